"""The program that the spec of this checkout says, and its public functions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvcanary_gen.expr.nodes import Compare, Const, Length
from kvcanary_gen.oracle.draw import Drawer
from kvcanary_gen.oracle.unrolled import unrolled
from kvcanary_gen.resolve import load_program
from kvcanary_gen.surface import Surface, surfaces

ROOT = Path(__file__).resolve().parents[2]
SPEC = load_program(ROOT / "spec")
# Operations that take a table of structs, spelt out for two.
PROGRAM = unrolled(SPEC, 2)
SURFACES = surfaces(PROGRAM)

every_surface = pytest.mark.parametrize("name", SURFACES)
both_kinds = pytest.mark.parametrize("hostile", [False, True], ids=["valid", "hostile"])


def largest_sizes(surface: Surface) -> Iterator[tuple[str, int]]:
    """Sizes that a rule bounds by a constant, and that constant."""
    for rule in surface.rules:
        compare = rule.rule
        if not isinstance(compare, Compare) or compare.op != "<=" or not isinstance(compare.right, Const):
            continue
        for name, place in surface.dims.items():
            if isinstance(compare.left, Length) and place == (compare.left.name, compare.left.axis):
                yield name, compare.right.value


_drawers: dict[tuple[str, bool], Drawer] = {}


def drawer(name: str, hostile: bool) -> Drawer:
    """Draws calls of one public function."""
    if (name, hostile) not in _drawers:
        _drawers[name, hostile] = Drawer(PROGRAM, SURFACES[name], hostile=hostile)
    return _drawers[name, hostile]
