"""What the comparison of results lets pass and what it does not, where the contract leaves something open."""

from __future__ import annotations

import pytest

from kvcanary_gen.oracle.case import Case, run_case
from kvcanary_gen.oracle.draw import seeded
from kvcanary_gen.oracle.undecided import Settling
from kvcanary_gen.oracle.values import Array, Value, Values
from tests.support.program import PROGRAM, SURFACES, drawer
from tests.support.rings import places, ring_difference, rows_of
from tests.support.verdicts import judge

# Several structs at once are judged as one after the other, so those that take one are enough.
ALONE = {name: surface for name, surface in SURFACES.items() if not surface.instances}
REPORTING = [name for name, surface in ALONE.items() if any(kernel.report for kernel in surface.kernels)]
SCATTERING = [name for name in ALONE if judge(name).undecided]
SEEDS = range(150)


def array(value: Value) -> Array:
    assert isinstance(value, Array)
    return value


def rows_of_ring(name: str, values: Values) -> tuple[str, list[tuple[int, ...]]]:
    ring = next(iter(judge(name).roles.rings.values()))
    return ring, rows_of(array(values[ring]).data, array(values[ring]).shape[1])


def with_rows(values: Values, ring: str, rows: list[tuple[int, ...]]) -> Values:
    old = array(values[ring])
    return {**values, ring: Array(old.dtype, old.shape, [word for row in rows for word in row])}


def reported(name: str, case: Case) -> list[tuple[int, ...]]:
    """All rows that a call reports."""
    index, ring = next(iter(judge(name).roles.rings.items()))
    after = run_case(PROGRAM, case)
    count = (array(after[index]).data[0] - array(case.args[index]).data[0]) % (1 << 32)
    return list(judge(name).every_row(case, index, ring, count))


# --- Draws ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REPORTING)
def test_draws_reach_every_reason(name: str) -> None:
    """Every reason is reported somewhere, and a good part of the calls that look at something report nothing."""
    reports = [kernel.report for kernel in SURFACES[name].kernels if kernel.report is not None]
    reasons = {reason.bit.value for report in reports for check in report.checks for reason in check.reasons}
    place = next(i for check in reports[0].checks for i, (_, value) in enumerate(check.row) if value is None)
    found: set[int] = set()
    silent = busy = 0
    counters = judge(name).roles.counters
    for hostile in (False, True):
        for seed in SEEDS:
            case = seeded(drawer(name, hostile), seed, large=False)
            bits = [row[place] for row in reported(name, case)]
            found |= {bit for bit in reasons if any(word & bit for word in bits)}
            after = run_case(PROGRAM, case)
            if all(after[path] != case.args[path] for path in counters):
                busy += 1
                silent += not bits
    assert found == reasons
    assert busy >= len(SEEDS) // 2
    assert 0.2 < silent / busy < 0.8


# --- Rings ------------------------------------------------------------------------------------------------------------


def ringing(name: str, least: int, *, full: bool) -> tuple[Case, Values]:
    """A call that leaves `least` different rows in its ring, and drops others if it is `full`; with its result."""
    for seed in range(2000):
        case = seeded(drawer(name, False), f"ring {seed}", large=False)
        after = run_case(PROGRAM, case)
        ring, rows = rows_of_ring(name, after)
        written = [row for row in rows if row not in rows_of_ring(name, case.args)[1]]
        if len(set(written)) >= least and (len(reported(name, case)) > len(written)) == full:
            return case, {**after, ring: array(after[ring]).copied()}
    raise AssertionError("no such draw")


@pytest.mark.parametrize("name", REPORTING)
def test_rows_may_come_in_any_order(name: str) -> None:
    case, after = ringing(name, 2, full=False)
    ring, rows = rows_of_ring(name, after)
    before = rows_of_ring(name, case.args)[1]
    written = [place for place, row in enumerate(rows) if row != before[place]]
    turned = dict(zip(written, [*written[1:], written[0]], strict=True))
    other = with_rows(after, ring, [rows[turned.get(place, place)] for place in range(len(rows))])
    assert judge(name).wrong(case, other, ordered=False) == []
    assert judge(name).wrong(case, other, ordered=True) != []
    twice = with_rows(after, ring, [rows[written[0]] if p == written[1] else row for p, row in enumerate(rows)])
    assert judge(name).wrong(case, twice, ordered=False) != []


@pytest.mark.parametrize("name", REPORTING)
def test_a_full_ring_may_drop_any_rows(name: str) -> None:
    case, after = ringing(name, 1, full=True)
    ring, rows = rows_of_ring(name, after)
    before = rows_of_ring(name, case.args)[1]
    written = next(place for place, row in enumerate(rows) if row != before[place])
    for dropped in {row for row in reported(name, case) if row not in rows}:
        other = with_rows(after, ring, [dropped if p == written else row for p, row in enumerate(rows)])
        assert judge(name).wrong(case, other, ordered=False) == []
    wild = with_rows(after, ring, [(*row[:-1], row[-1] ^ 64) if p == written else row for p, row in enumerate(rows)])
    assert judge(name).wrong(case, wild, ordered=False) != []


@pytest.mark.parametrize(
    ("first", "count", "want"),
    [(0, 2, [0, 1]), (2, 5, [2, 3]), (-2, 4, [0, 1]), ((1 << 31) - 1, 3, []), (-(1 << 31), 1, []), (9, 1, [])],
)
def test_places_of_a_ring(first: int, count: int, want: list[int]) -> None:
    assert places(first, count, 4, 32) == want


def test_a_row_that_should_not_be_written() -> None:
    before, after = [(0,), (0,)], [(5,), (6,)]
    assert ring_difference(before, after, [0, 1], [(6,), (5,), (7,)]) is None
    assert ring_difference(before, after, [0], [(5,)]) is not None
    assert ring_difference(before, after, [0, 1], [(5,), (5,)]) is not None


# --- Places that several points store to ------------------------------------------------------------------------------


class FirstStays(Settling):
    """The other extreme: whoever stores first is never stored over."""

    def __init__(self, array: Array) -> None:
        super().__init__(array)
        self.stored: set[int] = set()

    def keeps(self, place: int, value: int) -> bool:
        kept = place in self.stored
        self.stored.add(place)
        return kept


def first_stays(name: str, case: Case) -> Values:
    undecided = judge(name).undecided
    return run_case(PROGRAM, case, instead=lambda path, array: FirstStays(array) if path in undecided else array)


@pytest.mark.parametrize("name", SCATTERING)
def test_any_of_several_values_may_stay(name: str) -> None:
    """With all that follows from it; but neither a value that nobody stored nor the rows of another outcome."""
    tried = 0
    (path,) = judge(name).undecided
    for seed in SEEDS:
        case = seeded(drawer(name, True), f"collide {seed}", large=False)
        last, first = run_case(PROGRAM, case), first_stays(name, case)
        pairs = zip(array(last[path]).data, array(first[path]).data, strict=True)
        differ = [place for place, (one, other) in enumerate(pairs) if one != other]
        assert judge(name).is_open(case) or not differ
        if not differ:
            assert judge(name).wrong(case, first, ordered=True) == []
            continue
        tried += 1
        assert judge(name).wrong(case, first, ordered=False) == []
        assert judge(name).wrong(case, first, ordered=True) != []
        spoilt = array(first[path]).copied()
        spoilt.data[differ[0]] ^= 0x55
        assert judge(name).wrong(case, {**first, path: spoilt}, ordered=False) != []
    assert tried >= 10


@pytest.mark.parametrize("name", SCATTERING)
def test_rows_belong_to_the_outcome(name: str) -> None:
    tried = 0
    (path,) = judge(name).undecided
    for seed in range(400):
        case = seeded(drawer(name, True), f"collide {seed}", large=False)
        last, first = run_case(PROGRAM, case), first_stays(name, case)
        ring, rows = rows_of_ring(name, last)
        others = rows_of_ring(name, first)[1]
        if last[path] != first[path] and sorted(rows) != sorted(others):
            tried += 1
            assert judge(name).wrong(case, {**first, ring: last[ring]}, ordered=False) != []
    assert tried >= 5


def test_places_decide_for_every_tensor_that_is_stored_to() -> None:
    """Endpoints store to buffers of their own at the same places."""
    assert judge("canary_write_endpoints").undecided == ["contexts[0].canary_buf", "contexts[1].canary_buf"]
    assert judge("canary_write").undecided == ["context.canary_buf"]
