"""Plan and verify in one go mean what the two mean one after the other."""

from __future__ import annotations

import pytest
import torch

import kvcanary
from kvcanary_gen.oracle.case import Case, poisoned, run_case
from kvcanary_gen.oracle.draw import seeded
from kvcanary_gen.oracle.values import Array, Values
from tests.support.calls import keywords, objects
from tests.support.program import PROGRAM, SURFACES, both_kinds, drawer
from tests.support.strategies import quick

FUSED = "canary_plan_and_verify"
SCRATCH = ("workspace", "verify_num_valid", "verify_enable")

pytestmark = pytest.mark.usefixtures("interpreted")


def cases(hostile: bool, count: int) -> list[Case]:
    drawn = (seeded(drawer(FUSED, hostile), f"fusion {seed}") for seed in range(3 * count))
    return [case for case in drawn if quick(case)][:count]


def apart(case: Case) -> tuple[Values, Values]:
    """Everything after `case` as a plan that is stored, and then verified: by the paths of the fused call."""
    args, capacity = dict(case.args), case.args["verify_capacity"]
    assert isinstance(capacity, int)
    plan: Values = {"verify_plan_out.verify_num_valid": poisoned("int32", (1,))}
    plan["verify_plan_out.enable"] = poisoned("int32", (1,))
    for field in ("slot_indices", "expected_tokens", "expected_positions", "prev_slot_indices"):
        plan[f"verify_plan_out.verify_{field}"] = poisoned("int64", (capacity,))
    wanted = [tensor.path for tensor in SURFACES["canary_plan"].tensors]
    wanted += [scalar.name for scalar in SURFACES["canary_plan"].scalars]
    given = {**{path: args[path] for path in wanted if path in args}, **plan, "workspace": None}
    planned = run_case(PROGRAM, Case("canary_plan", given))
    renamed = {path.replace("verify_plan_out.", "plan."): value for path, value in planned.items()}
    context = {path: value for path, value in args.items() if path.startswith("context.")}
    checked = {**context, "check_verify_expected_token": args["check_verify_expected_token"]}
    checked |= {path: value for path, value in renamed.items() if path.startswith("plan.")}
    verified = run_case(PROGRAM, Case("canary_verify", checked))
    return planned, verified


@both_kinds
def test_the_scalar_interpreter_finds_the_same(hostile: bool) -> None:
    reported = skipped = 0
    for case in cases(hostile, 60):
        planned, verified = apart(case)
        have = run_case(PROGRAM, case)
        for path in (path for path in have if path.startswith("context.")):
            assert have[path] == verified[path], path
        for path in (path for path in have if path.startswith("write_plan_out.")):
            assert have[path] == planned[path], path
        reported += have["context.violation_write_index"] != case.args["context.violation_write_index"]
        skipped += planned["verify_plan_out.enable"] == Array("int32", (1,), [0])
    assert reported >= 10
    assert skipped >= 3


@pytest.mark.parametrize("backend", ["triton", "reference"])
def test_the_caller_learns_how_many_entries_there_were(backend: str) -> None:
    for case in cases(False, 12):
        planned, _ = apart(case)
        given = keywords(SURFACES[FUSED], objects(SURFACES[FUSED], {**case.args, **dict.fromkeys(SCRATCH)}))
        given["verify_num_valid"] = torch.full([1], -5, dtype=torch.int32)
        given["verify_enable"] = torch.full([1], -5, dtype=torch.int32)
        kvcanary.launch_canary_plan_and_verify_kernels(**given, backend=backend)
        for name, field in (("verify_num_valid", "verify_num_valid"), ("verify_enable", "enable")):
            want = planned[f"verify_plan_out.{field}"]
            assert isinstance(want, Array)
            assert given[name].tolist() == want.data
