"""One launch that does what two do one after the other: when it is chosen, and that it leaves the same to the byte."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator

import pytest
import torch
import triton
import triton.language as tl

import kvcanary
from kvcanary.core import dispatch, lang
from kvcanary_gen.ir import SummedDomain
from kvcanary_gen.oracle.case import Case
from kvcanary_gen.oracle.draw import seeded
from kvcanary_gen.oracle.values import Array, Values
from tests.support.calls import in_launches, keywords, last_program_first, objects, values_of, wrong
from tests.support.program import SPEC, SURFACES, both_kinds, drawer
from tests.support.strategies import quick
from tests.support.verdicts import judge

pytestmark = pytest.mark.usefixtures("interpreted")

NAMES = [name for name, operation in SPEC.operations.items() if operation.one_launch is not None]
every_one = pytest.mark.parametrize("name", NAMES)
DOMAIN = SPEC.kernels["plan_and_verify_alone"].domain
assert isinstance(DOMAIN, SummedDomain)
LANES = DOMAIN.lanes
MOST = LANES[-1]


def with_scratch(case: Case) -> Case:
    """The case with scratch of the caller's own, full of what nobody stores."""
    scratch: Values = {
        "workspace": Array("int64", (kvcanary.MAX_PLAN_BATCH + 1,), [-7] * (kvcanary.MAX_PLAN_BATCH + 1)),
        "verify_num_valid": Array("int32", (1,), [-7]),
        "verify_enable": Array("int32", (1,), [-7]),
    }
    return Case(case.surface, {**case.args, **scratch})


def cases(name: str, hostile: bool, count: int, text: str, **sizes: int) -> list[Case]:
    """Calls that are not slow to interpret."""
    drawn = (seeded(drawer(name, hostile), f"{text} {seed}", sizes=sizes, large=False) for seed in range(10 * count))
    return [with_scratch(case) for case in itertools.islice((case for case in drawn if quick(case)), count)]


def launched(case: Case) -> list[str]:
    """Kernels that a call launches, each with the number of its programs."""
    given = objects(SURFACES[case.surface], case.args)
    bound = getattr(kvcanary, SURFACES[case.surface].binder)(
        **keywords(SURFACES[case.surface], given), backend="triton"
    )
    return repr(bound).partition(": ")[2].rstrip(">").split(", ")


def launch(case: Case, *, bound: bool = False) -> Values:
    """All arguments after the call, or after one of what was bound."""
    surface = SURFACES[case.surface]
    given = objects(surface, case.args)
    if bound:
        getattr(kvcanary, surface.binder)(**keywords(surface, given), backend="triton")()
    else:
        getattr(kvcanary, surface.launcher)(**keywords(surface, given), backend="triton")
    return values_of(case, given)


def differences(case: Case, one: Values, two: Values) -> list[str]:
    """Arguments that differ, those aside in which rows come in any order, which have a judge of their own."""
    rings = set(judge(case.surface).roles.rings.values())
    return [path for path in one if path not in rings and one[path] != two[path]]


def assert_alike(case: Case) -> None:
    """Eager or bound, and in whatever order programs run, one launch leaves what two leave, and what is right."""
    with in_launches():
        apart = launch(case)
    assert wrong(case, "triton", apart) == []
    ways: list[tuple[contextlib.AbstractContextManager[None], bool]] = [
        (contextlib.nullcontext(), False),
        (contextlib.nullcontext(), True),
        (last_program_first(), False),
    ]
    for way, bound in ways:
        with way:
            one = launch(case, bound=bound)
        assert wrong(case, "triton", one) == []
        assert differences(case, one, apart) == []


def enabled(case: Case) -> bool:
    with in_launches():
        return launch(case)["verify_enable"] == Array("int32", (1,), [1])


# ---- that it means the same ------------------------------------------------------------------------------------------


@both_kinds
@every_one
def test_it_leaves_what_two_launches_leave(name: str, hostile: bool) -> None:
    drawn = cases(name, hostile, 20, "one launch")
    for case in drawn:
        assert "alone" in launched(case)[0]
        assert_alike(case)
    assert {enabled(case) for case in drawn} == {False, True}
    windows = {int(case.args["swa_window_size"]) > 0 for case in drawn}  # type: ignore[arg-type]
    mapped = {case.args["full_to_swa_index_mapping"] is not None for case in drawn}
    assert windows == mapped == {False, True}


@both_kinds
@every_one
@pytest.mark.parametrize("bs", [0, 1, LANES[0], LANES[0] + 1, MOST, MOST + 1])
def test_batches_about_the_number_of_lanes(name: str, hostile: bool, bs: int) -> None:
    for case in cases(name, hostile, 2, "lanes", bs=bs, **{"write_plan_out.write_req_capacity": bs + 1}):
        assert len(launched(case)) == (1 if bs <= MOST else 2)
        assert_alike(case)


@every_one
def test_many_short_segments_share_a_block(name: str) -> None:
    """Some are empty, and some requests are padding; the capacity is enough, just enough, too small, and none."""
    [drawn] = cases(name, False, 1, "short", bs=100, **{"write_plan_out.write_req_capacity": 100})
    chosen = random.Random(0)
    lens = [chosen.choice([0, 0, 1, 2, 5, 40]) for _ in range(100)]
    rows = [chosen.choice([-1, 0, 1, 1, 2, 1 << 40]) for _ in range(100)]
    shape = drawn.args["req_to_token"].shape  # type: ignore[union-attr]
    total = sum(length for length, row in zip(lens, rows, strict=True) if 0 < row < shape[0])
    given: Values = {"prefix_lens": Array("int64", (100,), lens), "req_pool_indices": Array("int64", (100,), rows)}
    given |= {"swa_window_size": 0, "full_to_swa_index_mapping": None}
    for capacity in (total + 70, total, total - 1, 0):
        case = Case(drawn.surface, {**drawn.args, **given, "verify_capacity": capacity})
        assert enabled(case) == (total <= capacity)
        assert_alike(case)


@every_one
def test_sums_beyond_64_bits_do_not_fit(name: str) -> None:
    """Nor do they wrap to something that fits, whatever the capacity."""
    for case in cases(name, True, 3, "huge", bs=5, **{"write_plan_out.write_req_capacity": 5}):
        lens, rows = Array("int64", (5,), [(1 << 63) - 1] * 5), Array("int64", (5,), [1] * 5)
        given: Values = {"prefix_lens": lens, "req_pool_indices": rows, "swa_window_size": 0}
        case = Case(case.surface, {**case.args, **given, "verify_capacity": 300})
        assert_alike(case)


# ---- when it is chosen -----------------------------------------------------------------------------------------------


@every_one
def test_sizes_alone_choose(name: str) -> None:
    many = "_of_many" if SPEC.operations[name].many else ""
    for bs in (0, 1, MOST, MOST + 1):
        [case] = cases(name, False, 1, "choice", bs=bs, **{"write_plan_out.write_req_capacity": bs + 1})
        for capacity in (0, 129):
            case = Case(case.surface, {**case.args, "verify_capacity": capacity})
            with in_launches():
                plan, verify = launched(case)
            assert plan == "_plan_offsets_kernel[1]"
            blocks = int(verify.removeprefix(f"_verify_planned{many}_kernel[").rstrip("]"))
            # Without entries, one program counts the launch. The plan has a program of its own in the one launch.
            programs = blocks + 1 if capacity else 1
            one = [f"_plan_and_verify_alone{many}_kernel[{programs}]"]
            assert launched(case) == (one if bs <= MOST else [plan, verify])


def test_the_fewest_lanes_are_taken() -> None:
    assert [dispatch.lanes(count, LANES) for count in (0, 32, 33, 64, 65, 128)] == [32, 32, 64, 64, 128, 128]


def test_what_was_bound_keeps_its_way() -> None:
    for case in cases(NAMES[0], False, 6, "bound"):
        surface = SURFACES[case.surface]
        given = objects(surface, case.args)
        bound = kvcanary.bind_canary_plan_and_verify_kernels(**keywords(surface, given), backend="triton")
        with in_launches():
            bound()
        assert wrong(case, "triton", values_of(case, given)) == []


# ---- sums in registers -----------------------------------------------------------------------------------------------


@triton.jit
def _sum_up(values_ptr, ends_ptr, total_ptr, LANES: tl.constexpr):
    lane = tl.arange(0, LANES)
    ends, total = lang.sum_up(tl.load(values_ptr + lane))
    tl.store(ends_ptr + lane, ends)
    tl.store(total_ptr, total)


@triton.jit
def _locate(ends_ptr, start, count, found_ptr, LANES: tl.constexpr, BLOCK: tl.constexpr):
    start = start.to(tl.int64) + 0
    lane = tl.arange(0, BLOCK)
    ends = tl.load(ends_ptr + tl.arange(0, LANES))
    segment, first, found = lang.locate_in_sums(start + lane, start, ends, count)
    tl.store(found_ptr + lane, segment)
    tl.store(found_ptr + BLOCK + lane, first)
    tl.store(found_ptr + 2 * BLOCK + lane, found.to(tl.int64))


def values() -> Iterator[list[int]]:
    chosen = random.Random(1)
    for most in (0, 1, 3, 100, 1 << 20, (1 << 26) - 1, 1 << 26, 1 << 31, 1 << 40, (1 << 63) - 1):
        for _ in range(4):
            yield [chosen.choice([0, most, chosen.randint(-most, most)]) for _ in range(32)]
    yield [*[0] * 31, (1 << 31) - 1]
    yield [*[0] * 30, 1, (1 << 31) - 1]


def test_sums_stop_at_what_their_type_holds() -> None:
    for given in values():
        ends, total = torch.zeros(32, dtype=torch.int32), torch.zeros(1, dtype=torch.int64)
        _sum_up[(1,)](torch.tensor(given), ends, total, LANES=32)
        want = list(itertools.accumulate(max(0, value) for value in given))
        assert ends.tolist() == [min(end, (1 << 31) - 1) for end in want]
        assert total.item() == min(want[-1], (1 << 63) - 1)


def test_every_index_finds_its_segment() -> None:
    chosen = random.Random(2)
    for _ in range(60):
        count = chosen.randint(0, 32)
        lengths = [chosen.choice([0, 0, 1, 2, 9, 50]) for _ in range(count)]
        ends = list(itertools.accumulate(lengths, initial=0))
        padded = [*ends[1:], *[ends[-1]] * (32 - count)]
        start = chosen.randint(0, max(1, ends[-1]))
        found = torch.zeros(3 * 16, dtype=torch.int64)
        _locate[(1,)](torch.tensor(padded, dtype=torch.int32), start, count, found, LANES=32, BLOCK=16)
        for place, (segment, first, there) in enumerate(zip(*found.reshape(3, 16).tolist(), strict=True)):
            index = start + place
            assert there == (index < ends[-1])
            if there:
                assert ends[segment] <= index < ends[segment + 1]
                assert first == ends[segment]
