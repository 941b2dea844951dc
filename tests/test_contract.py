"""What the spec says of the plan and the scatter is what the contract says, out of range too.

Agreement of the three meanings shows that they follow from one spec. These tests hold the spec against a second
opinion, in `support/contract.py`, on calls that golden vectors do not cover.
"""

from __future__ import annotations

import pytest

from kvcanary_gen.oracle.case import Case, run_case
from kvcanary_gen.oracle.draw import seeded
from kvcanary_gen.oracle.values import Array, Value, Values
from tests.support import contract
from tests.support.program import PROGRAM, both_kinds, drawer

DRAWS = range(300)


def numbers(value: Value) -> list[int]:
    assert isinstance(value, Array)
    return value.data


def rows(value: Value) -> list[list[int]] | None:
    if value is None:
        return None
    assert isinstance(value, Array)
    count, width = value.shape
    return [value.data[row * width : (row + 1) * width] for row in range(count)]


def scalar(value: Value) -> int:
    assert isinstance(value, int)
    return value


def requests_of(args: Values) -> list[contract.Request]:
    pool = numbers(args["req_pool_indices"])
    extend = numbers(args["extend_seq_lens"]) if "extend_seq_lens" in args else [0] * len(pool)
    given = args.get("req_to_verify_expected_tokens_valid_lens")
    valid = numbers(given) if given is not None else [0] * len(pool)
    return [contract.Request(*each) for each in zip(pool, numbers(args["prefix_lens"]), extend, valid, strict=True)]


def pools_of(args: Values) -> contract.Pools:
    table, mapping = rows(args["req_to_token"]), args["full_to_swa_index_mapping"]
    assert table is not None
    return contract.Pools(
        table,
        None if mapping is None else numbers(mapping),
        rows(args.get("req_to_verify_expected_tokens")),
        scalar(args["swa_window_size"]),
        scalar(args.get("kv_token_id_vs_position_offset", 0)),
    )


def written(before: Value, values: list[int]) -> list[int]:
    """A tensor whose first elements were written."""
    return values + numbers(before)[len(values) :]


def entries_after(args: Values, prefix: str, entries: dict[int, contract.Entry]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for field, part in (
        ("verify_slot_indices", "slot"),
        ("verify_expected_tokens", "token"),
        ("verify_expected_positions", "position"),
        ("verify_prev_slot_indices", "prev_slot"),
    ):
        data = list(numbers(args[prefix + field]))
        for place, entry in entries.items():
            data[place] = getattr(entry, part)
        found[prefix + field] = data
    return found


def offsets_after(args: Values, names: dict[str, str], offsets: contract.Offsets) -> dict[str, list[int]]:
    return {
        names["write_offsets"]: offsets.write_offsets,
        names["write_seed_slot_indices"]: written(args[names["write_seed_slot_indices"]], offsets.seeds),
        names["verify_num_valid"]: [offsets.num_valid],
        names["enable"]: [offsets.enable],
        names["write_num_valid_reqs"]: [offsets.num_reqs],
    }


def plan(args: Values) -> dict[str, list[int]]:
    """canary_plan by the contract: every output but the scratch."""
    requests, pools, capacity = requests_of(args), pools_of(args), scalar(args["verify_capacity"])
    length = len(numbers(args["write_plan_out.write_offsets"]))
    offsets = contract.plan_offsets(requests, pools, capacity, length)
    entries = contract.plan_entries(requests, pools, offsets.verify_offsets, offsets.enable, capacity)
    verify, write = "verify_plan_out.", "write_plan_out."
    names = {name: verify + name for name in ("verify_num_valid", "enable")}
    names |= {name: write + name for name in ("write_offsets", "write_seed_slot_indices", "write_num_valid_reqs")}
    return offsets_after(args, names, offsets) | entries_after(args, verify, entries)


def plan_offsets(args: Values) -> dict[str, list[int]]:
    capacity, length = scalar(args["verify_capacity"]), len(numbers(args["out_write_offsets"]))
    offsets = contract.plan_offsets(requests_of(args), pools_of(args), capacity, length)
    names = {name: f"out_{name}" for name in ("write_offsets", "write_seed_slot_indices", "write_num_valid_reqs")}
    names |= {"verify_num_valid": "out_verify_num_valid", "enable": "out_verify_enable"}
    scratch = written(args["out_verify_offsets_scratch"], offsets.verify_offsets)
    return offsets_after(args, names, offsets) | {"out_verify_offsets_scratch": scratch}


def plan_entries(args: Values) -> dict[str, list[int]]:
    enable, capacity = numbers(args["verify_enable"])[0], len(numbers(args["out_verify_slot_indices"]))
    offsets = numbers(args["verify_offsets_scratch"])
    entries = contract.plan_entries(requests_of(args), pools_of(args), offsets, enable, capacity)
    return entries_after(args, "out_", entries)


def scatter(args: Values) -> dict[str, list[int]]:
    pool = rows(args["pool_out"])
    assert pool is not None
    inputs = [numbers(args[name]) for name in ("flat_in", "offsets", "req_pool_indices")]
    return {"pool_out": [token for row in contract.scatter(*inputs, pool) for token in row]}


BY_CONTRACT = {
    "canary_plan": plan,
    "plan_offsets": plan_offsets,
    "plan_entries": plan_entries,
    "scatter_req_token_ids": scatter,
}


def disagreements(case: Case) -> list[str]:
    after = run_case(PROGRAM, case)
    return [
        f"{path}: contract {want}, spec {numbers(after[path])}"
        for path, want in BY_CONTRACT[case.surface](case.args).items()
        if numbers(after[path]) != want
    ]


@both_kinds
@pytest.mark.parametrize("name", BY_CONTRACT)
def test_spec_says_what_the_contract_says(name: str, hostile: bool) -> None:
    for seed in DRAWS:
        case = seeded(drawer(name, hostile), f"contract {seed}")
        assert disagreements(case) == [], f"seed {seed}: {case.args}"
