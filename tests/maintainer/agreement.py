"""One call, computed by the scalar interpreter, by Triton in one program or several, and by the torch reference."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from kvcanary_gen.ir import Program
from kvcanary_gen.oracle.case import Case, run_case
from kvcanary_gen.oracle.draw import Drawer, seeded
from kvcanary_gen.oracle.unrolled import unrolled
from kvcanary_gen.oracle.values import Array, Values
from kvcanary_gen.surface import surfaces
from tests.support.calls import DTYPES, in_the_way_of, keywords, objects, sides, values_of
from tests.support.verdicts import Judge

from .workshop import Built

SIDES = ("triton", "triton, in launches", "reference")
_GUARD = 16
_GUARD_BYTE = 0x5A


def spelt_out(built: Built) -> Program:
    """The program with every table of structs spelt out for two."""
    return unrolled(built.program, 2)


def agree(built: Built, names: Iterable[str] | None = None, *, draws: int = 12) -> None:
    """Draws calls of kernels and operations and compares all tensors, those that are only read too."""
    for name in surfaces(built.program) if names is None else names:
        for case in drawn(built, name, draws):
            check(built, case)


def drawn(built: Built, name: str, draws: int) -> list[Case]:
    """Calls from declarations alone; every second one is hostile, and some are large."""
    program = spelt_out(built)
    surface = surfaces(program)[name]
    drawers = [Drawer(program, surface, hostile=hostile) for hostile in (False, True)]
    return [seeded(drawers[seed % 2], seed, large=seed % 16 == 5) for seed in range(draws)]


def check(built: Built, case: Case) -> Values:
    """Compares the two paths with the interpreter on one call; returns its answer."""
    program = spelt_out(built)
    surface = surfaces(program)[case.surface]
    judge = Judge(program, surface)
    for side in (side for side in SIDES if side in sides(surface)):
        wrong = judge.wrong(case, run(built, case, side), ordered=side == "reference")
        assert wrong == [], f"{case.surface} by {side}: {'; '.join(wrong)}\n  args {case.args}"
    return run_case(program, case)


def run(built: Built, case: Case, side: str) -> Values:
    """Calls the public function; every tensor lies between guards that must not change."""
    surface = surfaces(spelt_out(built))[case.surface]
    guards = Guards()
    given = objects(surface, case.args, guards, built.module)
    arguments = keywords(surface, given, built.module)
    if side == "reference":
        getattr(built, surface.reference)(**arguments)
    else:
        with in_the_way_of(side, built.module):
            getattr(built, surface.launcher)(**arguments, backend="triton")
    assert guards.whole(), f"{case.surface}: {side} wrote outside"
    return values_of(case, given)


class Guards:
    """Allocates tensors between bytes that nobody may write."""

    def __init__(self) -> None:
        self.buffers: list[torch.Tensor] = []

    def __call__(self, array: Array) -> torch.Tensor:
        data = torch.tensor(array.data, dtype=DTYPES[array.dtype])
        size = data.numel() * data.element_size()
        self.buffers.append(torch.full([size + 2 * _GUARD], _GUARD_BYTE, dtype=torch.uint8))
        inner = self.buffers[-1][_GUARD : _GUARD + size].view(DTYPES[array.dtype])
        inner.copy_(data)
        return inner.view(array.shape)

    def whole(self) -> bool:
        ends = [torch.cat([buffer[:_GUARD], buffer[-_GUARD:]]) for buffer in self.buffers]
        return all(bool((end == _GUARD_BYTE).all()) for end in ends)
