"""Whether a call left what it must: exactly on the reference; on Triton, what the contract leaves open may vary.

Left open, of every function: the order of rows in a ring, and so which of them a full ring drops; which of several
values a place keeps that several points of one launch store to, and what follows from that; what scratch holds.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from kvcanary_gen.ir import Program
from kvcanary_gen.oracle.case import Case, calls, run_case
from kvcanary_gen.oracle.roles import Roles, roles
from kvcanary_gen.oracle.undecided import Contested, Undecided
from kvcanary_gen.oracle.values import Array, Value, Values
from kvcanary_gen.surface import Surface
from tests.support.program import PROGRAM, SURFACES
from tests.support.rings import places, ring_difference, rows_of


def differences(want: Values, have: Values) -> list[str]:
    """Where two results differ, in words; empty if nowhere."""
    return [text for path in want for text in _difference(path, want[path], have[path])]


def _difference(path: str, want: Value, have: Value) -> list[str]:
    if want == have:
        return []
    if not isinstance(want, Array) or not isinstance(have, Array) or want.shape != have.shape:
        return [f"{path}: want {want}, have {have}"]
    places = [place for place, pair in enumerate(zip(want.data, have.data, strict=True)) if pair[0] != pair[1]]
    shown = ", ".join(f"[{place}] want {want.data[place]} have {have.data[place]}" for place in places[:4])
    return [f"{path}: {len(places)} of {len(want.data)} elements differ: {shown}"]


class Judge:
    """Judges results of one public function."""

    def __init__(self, program: Program, surface: Surface) -> None:
        self.program = program
        self.surface = surface
        self.roles: Roles = roles(program, surface)
        saved = {bind[kernel.saved] for kernel, bind in calls(program, surface) if kernel.saved}
        self.scratch = saved | {workspace.name for workspace in surface.workspaces}
        self.undecided = sorted({path for paths in self.roles.targets.values() for path in paths})

    def wrong(self, case: Case, have: Values, *, ordered: bool) -> list[str]:
        """What is wrong with a result. `ordered`: it is to be as if points came one after the other."""
        want = self._expected(case, None)
        if ordered:
            return differences(want, self._kept(have))
        found = self._free(case, want, have, None)
        if found and self.undecided:
            found = self._free(case, self._expected(case, have), have, have)
        return found

    def is_open(self, case: Case) -> bool:
        """Whether several outcomes are right, apart from the order of rows."""
        found: list[Contested] = []

        def contested(path: str, array: Array) -> Array:
            if path in self.undecided:
                found.append(Contested(array))
            return found[-1] if path in self.undecided else array

        run_case(self.program, case, instead=contested)
        return any(array.places for array in found)

    def _expected(self, case: Case, outcome: Values | None) -> Values:
        def undecided(path: str, array: Array) -> Array:
            return Undecided(array, _array((outcome or {})[path])) if path in self.undecided else array

        return self._kept(run_case(self.program, case, instead=undecided if outcome is not None else None))

    def _kept(self, values: Values) -> Values:
        return {path: value for path, value in values.items() if path not in self.scratch}

    def _free(self, case: Case, want: Values, have: Values, outcome: Values | None) -> list[str]:
        rings = set(self.roles.rings.values())
        found = differences({path: value for path, value in want.items() if path not in rings}, have)
        for index, ring in self.roles.rings.items():
            text = self._ring(case, want, have, index, ring, outcome)
            found += [f"{ring}: {text}"] if text else []
        return found

    def _ring(
        self, case: Case, want: Values, have: Values, index: str, ring: str, outcome: Values | None
    ) -> str | None:
        first, last = (_array(values[index]) for values in (case.args, want))
        before, right, after = (_array(values[ring]) for values in (case.args, want, have))
        bits = 32 if first.dtype == "int32" else 64
        count = (last.data[0] - first.data[0]) % (1 << bits)
        rows, width = right.shape
        written = places(first.data[0], count, rows, bits)
        every = [rows_of(right.data, width)[place] for place in written]
        if len(written) < count:
            every = self.every_row(case, index, ring, count, outcome)
        return ring_difference(rows_of(before.data, width), rows_of(after.data, width), written, every)

    def every_row(
        self, case: Case, index: str, ring: str, count: int, outcome: Values | None = None
    ) -> Sequence[tuple[int, ...]]:
        """All rows that a call reports, as a ring that is long enough receives them."""
        old, width = _array(case.args[index]), _array(case.args[ring]).shape[1]
        roomy = {
            index: Array(old.dtype, old.shape, [0] * len(old.data)),
            ring: Array(_array(case.args[ring]).dtype, (count, width), [0] * (count * width)),
        }
        after = self._expected(Case(case.surface, {**case.args, **roomy}), outcome)
        return rows_of(_array(after[ring]).data, width)


def _array(value: Value) -> Array:
    assert isinstance(value, Array)
    return value


@functools.cache
def judge(name: str) -> Judge:
    """The judge of a public function of this package."""
    return Judge(PROGRAM, SURFACES[name])
