"""Calls as Hypothesis draws them: sizes, flags and short tensors one by one, long tensors from a drawn seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from kvcanary_gen.expr.schedule import segment_schedule
from kvcanary_gen.ir import FlatDomain, KernelIR, RecurrenceDomain, ScanDomain, SegmentDomain
from kvcanary_gen.oracle.case import Case, calls, input_at
from kvcanary_gen.oracle.interpreter import Machine, segments
from kvcanary_gen.oracle.values import Values
from tests.support.program import PROGRAM, SURFACES, drawer

T = TypeVar("T")

MAX_EXAMPLES = settings().max_examples

# Program instances, or rounds of a loop in one, that Triton's interpreter may spend on a case; each takes milliseconds.
MAX_STEPS = 420
# Steps that a segment of a recurrence counts for, and each of its points: folds and reports take many operations.
_SEGMENT_STEPS = 16
_POINT_STEPS = 6


class HypothesisSource:
    """Choices that Hypothesis makes, records and shrinks."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def pick(self, options: Sequence[T]) -> T:
        return options[self._draw(st.integers(0, len(options) - 1))]

    def bulk(self) -> random.Random:
        return random.Random(self._draw(st.integers(0, (1 << 32) - 1)))


@st.composite
def _cases(draw: st.DrawFn, name: str, hostile: bool) -> Case:
    return drawer(name, hostile).draw(HypothesisSource(draw))


def cases(name: str, hostile: bool) -> st.SearchStrategy[Case]:
    """Calls of one public function that Triton's interpreter gets through quickly."""
    return _cases(name, hostile).filter(quick)


def for_each(name: str, hostile: bool, check: Callable[[Case], None], *, share: int = 1) -> None:
    """Runs `check` on drawn calls: a `share`-th of the profile's examples; of functions that report, an eighth of that.

    Their kernels take tens of milliseconds a call where others take one, and those of several endpoints twice that.
    """
    examples = MAX_EXAMPLES // share // (1 if not reporting(name) else 16 if SURFACES[name].instances else 8)
    examples = max(12 if reporting(name) else 25, examples)

    @settings(max_examples=examples)
    @given(case=cases(name, hostile))
    def each(case: Case) -> None:
        check(case)

    each()


def reporting(name: str) -> bool:
    return any(kernel.report is not None for kernel in SURFACES[name].kernels)


def quick(case: Case) -> bool:
    surface, steps = SURFACES[case.surface], 0
    for kernel, bind in calls(PROGRAM, surface):
        # Offsets that a kernel before wrote ascend.
        given = isinstance(kernel.domain, SegmentDomain) and input_at(PROGRAM, surface, bind[kernel.domain.segments])
        steps += _steps(kernel, {name: case.args[path] for name, path in bind.items()}, bool(given))
    return steps <= MAX_STEPS


def _steps(kernel: KernelIR, values: Values, given: bool) -> int:
    """About how many rounds the kernel takes: a program each, and where offsets may run backwards, a search each."""
    machine, domain = Machine(PROGRAM, kernel, values), kernel.domain
    count = max(0, machine.eval(domain.count, {}) if not isinstance(domain, ScanDomain) else 0)
    if isinstance(domain, (FlatDomain, RecurrenceDomain)):
        count = min(count, machine.eval(domain.bound, {}))
    if isinstance(domain, RecurrenceDomain):
        found = segments(machine.array(domain.segments), count, machine.eval(domain.limit, {}))
        return _SEGMENT_STEPS * count + _POINT_STEPS * sum(end - first for _, first, end in found)
    if not isinstance(domain, SegmentDomain):
        return 1 + count // kernel.schedule.block
    if segment_schedule(domain, kernel.stores, kernel.lets) == "by_segment":
        return count
    programs = 1 + machine.eval(domain.limit, {}) // kernel.schedule.block
    return programs * (1 + count // 20) if given else programs
