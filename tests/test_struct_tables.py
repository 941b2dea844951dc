"""Tables of structs: one launch for several endpoints leaves what a launch for each of them would.

What the generic tests say of two structs holds for one and for three; endpoints may share a ring and counters; and what
does not go together is refused when the table is built, or where it is passed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

import kvcanary
from kvcanary_gen.oracle.case import Case
from kvcanary_gen.oracle.draw import Drawer, seeded
from kvcanary_gen.oracle.unrolled import unrolled
from kvcanary_gen.oracle.values import Array, Value, Values
from kvcanary_gen.surface import Surface, surfaces
from tests.support.calls import call, keywords, objects, sides, values_of, wrong
from tests.support.golden import Golden, goldens
from tests.support.program import SPEC, SURFACES, drawer
from tests.support.verdicts import Judge

pytestmark = pytest.mark.usefixtures("interpreted")

ENDPOINTS = [name for name, surface in SURFACES.items() if surface.instances]
SINGLE = {f"{name}_endpoints": name for name in ("canary_verify", "canary_write", "canary_plan_and_verify")}
Table = kvcanary.VerifyOrWriteContextTable


def every(function: Any) -> Any:
    return pytest.mark.parametrize("name", ENDPOINTS)(function)


def test_these_are_all() -> None:
    assert set(ENDPOINTS) == set(SINGLE)


# --- The same as one after the other ----------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("hostile", [False, True], ids=["valid", "hostile"])
def test_meanings_agree_on_other_numbers(name: str, count: int, hostile: bool) -> None:
    program = unrolled(SPEC, count)
    surface = surfaces(program)[name]
    draws, judge = Drawer(program, surface, hostile=hostile), Judge(program, surface)
    for seed in range(4):
        case = seeded(draws, f"{count} {seed}", large=False)
        every_side = sides(surface)
        for side in every_side if seed == 0 else every_side[:: len(every_side) - 1]:
            given = objects(surface, case.args)
            call(surface, given, side)
            assert judge.wrong(case, values_of(case, given), ordered=side == "reference") == []


@pytest.mark.golden
@pytest.mark.parametrize("side", ["triton", "reference"])
@pytest.mark.parametrize("golden", [*goldens("verify"), *goldens("write")][::4], ids=lambda golden: golden.name)
def test_recorded_calls(golden: Golden, side: str) -> None:
    """Each of two endpoints answers what was recorded of one."""
    case = doubled(golden.case)
    surface = SURFACES[case.surface]
    given = objects(surface, case.args)
    call(surface, given, side)
    after = values_of(case, given)
    assert wrong(case, side, after) == []
    for instance in surface.instances:
        for path, want in golden.after.items():
            have = after[path.replace("context", instance, 1)]
            if path.endswith("violation_ring"):
                # Which rows a full ring drops is nobody's business on a device.
                full = golden.after["context.violation_write_index"].data[0] > want.shape[0]
                assert (full and side == "triton") or rows(have) == rows(want)
            else:
                assert have == want


def doubled(case: Case) -> Case:
    """A call of two endpoints that are as the one of `case`."""
    surface = SURFACES[f"{case.surface}_endpoints"]
    args: Values = {}
    for path, value in case.args.items():
        owners = surface.instances if path.startswith("context.") else ("",)
        args |= {path.replace("context", owner, 1) if owner else path: copy(value) for owner in owners}
    return Case(surface.name, args)


def copy(value: Value) -> Value:
    return value.copied() if isinstance(value, Array) else value


def rows(value: Value) -> Counter[tuple[int, ...]]:
    assert isinstance(value, Array)
    return Counter(tuple(value.data[start : start + 8]) for start in range(0, len(value.data), 8))


SHARED = ("violation_ring", "violation_write_index", "slot_run_counter", "kernel_run_counter")


@every
@pytest.mark.parametrize("side", ["triton", "reference"])
def test_endpoints_share_a_ring_and_counters(name: str, side: str) -> None:
    reported = 0
    for seed in range(3 if name == "canary_write_endpoints" else 20):
        surface, case = SURFACES[name], shared_case(name, seed)
        together, apart = (keywords(surface, shared_objects(surface, case)) for _ in range(2))
        table, alone = together["contexts"], apart.pop("contexts")
        # Several entries on one slot leave open who wins, and chains of two launches would not be told apart.
        getattr(kvcanary, surface.launcher)(**together, backend=side)
        apart.pop("workspace", None)
        for context in alone:
            getattr(kvcanary, SURFACES[SINGLE[name]].launcher)(context=context, **apart, backend=side)
        for mine, other in zip(table, alone, strict=True):
            for field in ("canary_buf", *SHARED[1:]):
                assert torch.equal(getattr(mine, field), getattr(other, field)), field
        left, right = (sorted(map(tuple, contexts[0].violation_ring.tolist())) for contexts in (table, alone))
        assert left == right
        reported += int(table[0].violation_write_index)
        assert int(table[0].kernel_run_counter) == len(table)
    assert reported > 0


def shared_case(name: str, seed: int) -> Case:
    """A valid call whose entries go to slots that differ, with rings that hold all that is reported."""
    case = seeded(drawer(name, False), f"shared {seed}", large=False)
    args = dict(case.args)
    slots = args.get("out_cache_loc")
    if isinstance(slots, Array):
        places = list(range(len(slots.data)))
        random.Random(seed).shuffle(places)
        args["out_cache_loc"] = Array(slots.dtype, slots.shape, places)
    for instance in SURFACES[name].instances:
        args[f"{instance}.violation_ring"] = Array("int64", (4096, 8), [0] * (4096 * 8))
        args[f"{instance}.violation_write_index"] = Array("int32", (1,), [0])
        args[f"{instance}.kernel_run_counter"] = Array("int64", (1,), [0])
    return replace(case, args=args)


def shared_objects(surface: Surface, case: Case) -> dict[str, Any]:
    """Its objects, the first endpoint's ring and counters in the places of all."""
    given = objects(surface, case.args)
    first, *others = surface.instances
    return given | {f"{other}.{field}": given[f"{first}.{field}"] for other in others for field in SHARED}


# --- What is refused --------------------------------------------------------------------------------------------------


def context(**changes: Any) -> kvcanary.VerifyOrWriteContext:
    def one(dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.zeros(1, dtype=dtype)

    fields = {
        "canary_buf": torch.zeros(6, kvcanary.SLOT_BYTES, dtype=torch.uint8),
        "kernel_kind": 0,
        "violation_ring": torch.zeros(4, 8, dtype=torch.int64),
        "violation_write_index": one(torch.int32),
        "slot_run_counter": one(),
        "kernel_run_counter": one(),
        "real_kv_sources": (),
        "real_kv_hash_mode": kvcanary.RealKvHashMode.NONE,
        "enable_chain_position_assert": one(torch.int32),
    }
    return kvcanary.VerifyOrWriteContext(**{**fields, **changes})


def refusals() -> Iterator[tuple[object, str, str]]:
    modes, empty = kvcanary.RealKvHashMode, torch.zeros(6, 32, dtype=torch.uint8, device="meta")
    yield [], "KVC-035", "contexts must hold 1 to 65535 structs, got 0"
    yield context(), "KVC-001", "contexts must be a tuple of VerifyOrWriteContext, got VerifyOrWriteContext"
    yield [context(), None], "KVC-001", "contexts[1] must be a VerifyOrWriteContext, got NoneType"
    yield (
        [context(), context(canary_buf=torch.zeros(6, 24, dtype=torch.uint8))],
        "KVC-014",
        "contexts[1].canary_buf.shape[1] length must be at least 32, got 24",
    )
    yield (
        [context(), context(real_kv_sources=[None])],
        "KVC-001",
        "contexts[1].real_kv_sources[0] must be a RealKvSource, got NoneType",
    )
    yield (
        [context(), context(real_kv_hash_mode=modes.ALL)],
        "KVC-035",
        "contexts[1].real_kv_hash_mode must be contexts[0].real_kv_hash_mode=NONE, got ALL",
    )
    elsewhere = {
        name: getattr(context(), name).to("meta")
        for name in ("violation_ring", "violation_write_index", "slot_run_counter", "kernel_run_counter")
    }
    elsewhere |= {"canary_buf": empty, "enable_chain_position_assert": torch.zeros(1, dtype=torch.int32, device="meta")}
    yield (
        [context(), context(**elsewhere)],
        "KVC-016",
        "contexts[1].canary_buf must be on contexts[0].canary_buf's device cpu, got meta",
    )


@pytest.mark.parametrize(("given", "id_", "says"), list(refusals()))
def test_what_does_not_go_together(given: object, id_: str, says: str) -> None:
    with pytest.raises(kvcanary.CanaryError) as info:
        Table.build(given)  # type: ignore[arg-type]
    assert (info.value.id, str(info.value)) == (id_, f"kv-canary: {says}")


@every
@pytest.mark.parametrize("given", [[], (), None], ids=["list", "tuple", "None"])
def test_only_a_table_is_taken(name: str, given: object) -> None:
    case = seeded(drawer(name, False), "table")
    surface = SURFACES[name]
    arguments = keywords(surface, objects(surface, case.args)) | {"contexts": given}
    for op in (surface.launcher, surface.reference):
        with pytest.raises(kvcanary.CanaryTypeError) as info:
            getattr(kvcanary, op)(**arguments)
        want = f"contexts must be a {Table.__name__}, as its build() makes it, got {type(given).__name__}"
        assert (info.value.id, str(info.value)) == ("KVC-001", f"kv-canary: {want}")


@every
def test_a_buffer_of_two_endpoints(name: str) -> None:
    """Where nothing is stored to it, two may have it; parts of one allocation are no buffer of two."""
    surface = SURFACES[name]
    case = seeded(drawer(name, False), "buffers", large=False)
    whole = torch.zeros(12, 32, dtype=torch.uint8)
    arguments = keywords(surface, objects(surface, case.args))
    for other, ok in ((whole[6:], True), (whole[5:11], False), (whole[:6], False)):
        table = Table.build([context(canary_buf=whole[:6]), context(canary_buf=other)])
        for op in (surface.launcher, surface.reference):
            if ok or name != "canary_write_endpoints":
                getattr(kvcanary, op)(**{**arguments, "contexts": table})
                continue
            with pytest.raises(kvcanary.CanaryValueError) as info:
                getattr(kvcanary, op)(**{**arguments, "contexts": table})
            want = "contexts[1].canary_buf must share no memory with contexts[0].canary_buf, got bytes of both"
            assert (info.value.id, str(info.value)) == ("KVC-035", f"kv-canary: {want}")


def test_scratch_for_every_endpoint() -> None:
    """What is enough for one is too short for two."""
    surface = SURFACES["canary_write_endpoints"]
    case = seeded(drawer(surface.name, False), "scratch", large=False)
    arguments = keywords(surface, objects(surface, case.args))
    need = arguments["input_ids"].shape[0] + arguments["plan"].write_seed_slot_indices.shape[0]
    arguments["workspace"] = torch.empty(2 * need - 1, kvcanary.WRITE_CHAIN_NUM_FIELDS, dtype=torch.int64)
    with pytest.raises(kvcanary.CanaryValueError) as info:
        getattr(kvcanary, surface.launcher)(**arguments)
    assert info.value.id == "KVC-014"
    assert str(info.value) == f"kv-canary: workspace length must be at least {2 * need}, got {2 * need - 1}"


# --- What a table is --------------------------------------------------------------------------------------------------


def test_a_table_is_a_sequence_of_its_structs() -> None:
    given = [context(kernel_kind=3), context(kernel_kind=4)]
    table = Table.build(given)
    assert len(table) == 2 and list(table) == given and table[1:] == (given[1],)
    assert [row[3] for row in table.table.tolist()] == [3, 4]
    assert [row[0] for row in table.table.tolist()] == [one.canary_buf.data_ptr() for one in given]
    again = Table.build(table)
    assert torch.equal(again.table, table.table)


@pytest.mark.parametrize("side", ["triton", "reference"])
def test_sources_of_any_number_and_alignment(side: str) -> None:
    """Sources that are no plain list may hold go through a table of their own, also beside a plain list."""
    pool = torch.arange(6 * 20, dtype=torch.int64).to(torch.uint8).reshape(6, 20)
    odd = kvcanary.RealKvSourceTable.build([kvcanary.RealKvSource(pool, 1, 20, 20)] * 5)
    plain = [kvcanary.RealKvSource(torch.ones(6, 32, dtype=torch.uint8), 1, 32, 16)]
    given = [odd, (), plain]
    mode = kvcanary.RealKvHashMode.ALL
    together = [context(real_kv_sources=sources, real_kv_hash_mode=mode) for sources in given]
    alone = [context(real_kv_sources=sources, real_kv_hash_mode=mode) for sources in given]
    plan = kvcanary.WritePlan(torch.tensor([0, 5]), torch.tensor([-1]), torch.tensor([1], dtype=torch.int32))
    slots = torch.tensor([5, 1, 4, 2, 3])
    own = {"plan": plan, "input_ids": slots * 7, "positions": torch.arange(5), "out_cache_loc": slots}
    own |= {"enable_write_input_assert": False, "backend": side}
    kvcanary.launch_canary_write_endpoints_kernel(contexts=Table.build(together), **own)
    for one in alone:
        kvcanary.launch_canary_write_kernel(context=one, **own)
    for mine, other in zip(together, alone, strict=True):
        assert torch.equal(mine.canary_buf, other.canary_buf)
        assert int(mine.slot_run_counter) == 5
    hashes = [one.canary_buf.view(torch.int64)[5, kvcanary.CANARY_FIELD_REAL_KV_HASH].item() for one in together]
    assert len(set(hashes)) == 3 and hashes[1] == 0
