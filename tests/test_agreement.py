"""Triton kernels, torch references and the scalar interpreter mean the same, for every public function of the spec."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvcanary
from kvcanary_gen.expr.phases import once_schedule, phases
from kvcanary_gen.ir import KernelIR
from kvcanary_gen.oracle.case import run_case
from kvcanary_gen.oracle.draw import seeded
from kvcanary_gen.oracle.interpreter import evaluate_function
from kvcanary_gen.oracle.values import Array, Value, wrap
from kvcanary_gen.schema.code import Folding
from tests.support.calls import assert_agreement, call, in_one_program, objects, run, values_of, wrong
from tests.support.functions import BLOCK, PUBLIC, in_torch, in_triton
from tests.support.program import PROGRAM, SURFACES, both_kinds, drawer, every_surface, largest_sizes
from tests.support.strategies import for_each, quick, reporting

pytestmark = pytest.mark.usefixtures("interpreted")


@both_kinds
@every_surface
def test_three_meanings_agree(name: str, hostile: bool) -> None:
    """On every argument: outputs, elements that nobody writes, and inputs, which stay as they are."""
    for_each(name, hostile, assert_agreement)


@both_kinds
@every_surface
def test_three_meanings_agree_on_sizes_around_a_block(name: str, hostile: bool) -> None:
    drawn = (seeded(drawer(name, hostile), seed, large=True) for seed in range(40))
    large = [case for case in drawn if quick(case)]
    assert len(large) >= 10
    for case in large[: 5 if reporting(name) else 10]:
        assert_agreement(case)


def once_shapes(kernel: KernelIR) -> list[Folding]:
    """Ways to do all of a kernel in one program."""
    return list(once_schedule(kernel).shapes) if len(phases(kernel)) > 1 else []


ONCE = [
    pytest.param(name, block, id=f"{name}-{block}")
    for name, surface in SURFACES.items()
    for block in dict.fromkeys(shape.block for kernel in surface.kernels for shape in once_shapes(kernel))
]


@both_kinds
@pytest.mark.parametrize(("name", "block"), ONCE)
def test_one_program_of_any_size_agrees(name: str, block: int, hostile: bool) -> None:
    """Whichever number of lanes it has: more or fewer entries than lanes, segments of one entry and long ones."""
    surface = SURFACES[name]
    drawn = (seeded(drawer(name, hostile), f"once {seed}", large=seed % 4 == 0) for seed in range(40))
    cases = [case for case in drawn if quick(case)]
    assert len(cases) >= 6
    with in_one_program(block) as programs:
        for case in cases[:6]:
            given = objects(surface, case.args)
            call(surface, given, "triton")
            found = wrong(case, "triton", values_of(case, given))
            assert not found, "; ".join(found)
    assert programs


LARGEST = [(name, dim, limit) for name, surface in SURFACES.items() for dim, limit in largest_sizes(surface)]


@both_kinds
@pytest.mark.parametrize(("name", "dim", "limit"), LARGEST)
def test_three_meanings_agree_on_the_largest_sizes(name: str, dim: str, limit: int, hostile: bool) -> None:
    """At the limits that rules set, where buffers of fixed length are full."""
    for seed in range(4):
        case = seeded(drawer(name, hostile), seed, large=False, sizes={dim: limit})
        assert quick(case)
        assert_agreement(case)


@both_kinds
@every_surface
def test_draws_reach_every_output(name: str, hostile: bool) -> None:
    """Agreement on calls that do nothing would be worth nothing."""
    outputs = {tensor.path for tensor in SURFACES[name].tensors if tensor.output and not tensor.workspace}
    assert outputs
    written: set[str] = set()
    for seed in range(60):
        case = seeded(drawer(name, hostile), seed)
        after = run_case(PROGRAM, case)
        written |= {path for path in outputs if after[path] != case.args[path]}
    assert written == outputs


@pytest.mark.parametrize("side", ["triton", "reference"])
@every_surface
def test_one_changed_element_is_a_difference(name: str, side: str) -> None:
    """The comparison itself can fail, on every argument but scratch."""
    scratch = {workspace.name for workspace in SURFACES[name].workspaces}
    tried: set[str] = set()
    for seed in range(8):
        case = seeded(drawer(name, False), f"changed {seed}", large=False)
        have = run(case, side)
        assert wrong(case, side, have) == []
        for path, value in have.items():
            for changed in [] if path in scratch else _changed(value):
                found = wrong(case, side, {**have, path: changed})
                assert [text.partition(":")[0] for text in found] == [path]
                tried.add(path)
    lists = {path for path, _ in SURFACES[name].lists}
    assert tried >= {tensor.path for tensor in SURFACES[name].tensors if not tensor.workspace} | lists


def _changed(value: Value) -> Iterator[Value]:
    """A tensor or list of sources with one bit changed, if it has any."""
    if isinstance(value, Array) and value.data:
        last = value.copied()
        last.data[-1] ^= 1
        yield last
    elif isinstance(value, list) and value and value[0].rows and value[0].rows[0]:
        first, *others = value[0].rows
        yield [replace(value[0], rows=[bytes([first[0] ^ 1]) + first[1:], *others]), *value[1:]]


@pytest.mark.parametrize("name", PUBLIC)
@given(data=st.data())
def test_public_functions_agree(name: str, data: st.DataObject) -> None:
    """The interpreter, Python integers, torch and Triton, on any 64 bits."""
    types = [type_.value for _, type_ in PROGRAM.functions[name].params]
    row = st.tuples(*(st.integers(0, (1 << 64) - 1).map(lambda x, t=t: wrap(x, t)) for t in types)).map(list)
    rows = data.draw(st.lists(row, min_size=1, max_size=BLOCK))
    want = [evaluate_function(PROGRAM, name, *row) for row in rows]
    assert [getattr(kvcanary, name)(*row) for row in rows] == want
    assert in_torch(name, rows) == want
    assert in_triton(name, rows) == want
