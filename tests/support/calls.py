"""Calls of the generated package: the interpreter's values as tensors and structs, and back."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import pytest
import torch
import triton.runtime.interpreter as interpreter

import kvcanary
from kvcanary_gen.expr.phases import phases
from kvcanary_gen.oracle.case import Case
from kvcanary_gen.oracle.evaluate import Meta
from kvcanary_gen.oracle.listed import Listed
from kvcanary_gen.oracle.values import Array, Values
from kvcanary_gen.surface import Surface
from tests.support.program import SURFACES
from tests.support.verdicts import judge

DTYPES = {"int32": torch.int32, "int64": torch.int64, "uint64": torch.uint64, "uint8": torch.uint8}
SIDES = ("triton", "triton, in launches", "triton, last program first", "reference")

Allocate = Callable[[Array], torch.Tensor]


def to_tensor(array: Array) -> torch.Tensor:
    return torch.tensor(array.data, dtype=DTYPES[array.dtype]).reshape(array.shape)


def to_array(tensor: torch.Tensor) -> Array:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Array(dtype, tuple(tensor.shape), tensor.reshape(-1).tolist())


def to_source(source: Listed, allocate: Allocate, package: ModuleType) -> Any:
    """A byte source as the package takes it; between its rows lies what belongs to nobody."""
    layout, fields = source.layout, source.layout.fields
    meta = fields.fields[layout.bytes_field]
    assert isinstance(meta, Meta)
    gap = [0xEE] * (layout.step - layout.row_bytes)
    flat = [byte for row in source.rows for byte in (*row, *gap)]
    # The last row's gap may be missing, as at the end of a larger tensor's view.
    flat = flat[: len(flat) - len(gap)]
    memory = allocate(Array("uint8", (len(flat),), flat))
    tensor = memory.view(getattr(torch, layout.dtype)).as_strided(meta.shape, meta.strides)
    return getattr(package, layout.struct)(**{**fields.fields, layout.bytes_field: tensor})


def to_listed(before: Listed, tensor: torch.Tensor) -> Listed:
    """A source with the bytes that its tensor holds now."""
    flat = tensor.reshape(tensor.shape[0], -1).contiguous().view(torch.uint8) if tensor.numel() else tensor
    rows = [bytes(row) for row in flat.tolist()] if tensor.numel() else [b""] * tensor.shape[0]
    return Listed(rows, before.numbers, before.layout)


def objects(
    surface: Surface, values: Values, allocate: Allocate = to_tensor, package: ModuleType = kvcanary
) -> dict[str, Any]:
    """Values of a case as the package takes them, by path."""
    found: dict[str, Any] = {
        path: allocate(value) if isinstance(value, Array) else value for path, value in values.items()
    }
    for setting in surface.settings:
        value = values[setting.path]
        if setting.kind == "enum":
            found[setting.path] = getattr(package, setting.of)(value)
        elif setting.kind == "bool":
            found[setting.path] = bool(value)
    for path, _ in surface.lists:
        listed = values[path]
        assert isinstance(listed, list)
        found[path] = tuple(to_source(source, allocate, package) for source in listed)
    return found


def values_of(case: Case, given: Mapping[str, Any]) -> Values:
    """Objects of a case as values again, with the elements that they hold now."""
    found: Values = dict(case.args)
    found |= {path: to_array(value) for path, value in given.items() if isinstance(value, torch.Tensor)}
    for path, value in case.args.items():
        if isinstance(value, list):
            pairs = zip(value, given[path], strict=True)
            found[path] = [to_listed(s, getattr(struct, s.layout.bytes_field)) for s, struct in pairs]
    return found


def keywords(surface: Surface, given: Mapping[str, Any], package: ModuleType = kvcanary) -> dict[str, Any]:
    """Keyword arguments of a public function from objects by path; fields of a struct become the struct."""
    found = {path: value for path, value in given.items() if "." not in path}
    for name, struct, _ in surface.structs:
        if name not in found:
            names = [field.name for field in (*struct.fields, *struct.values)]
            found[name] = getattr(package, struct.name)(**{field: given[f"{name}.{field}"] for field in names})
    if surface.instances:
        table = next(struct.table for name, struct, _ in surface.structs if name in surface.instances)
        found[surface.table] = getattr(package, table).build([found.pop(name) for name in surface.instances])
    return found


# What the tables of the running call point at; no launch has it among its arguments.
POINTED_AT: list[torch.Tensor] = []


def pointed_at(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor that a table of structs leads to."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from pointed_at(item)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from pointed_at(getattr(value, field.name))


def call(surface: Surface, values: Mapping[str, Any], side: str, package: ModuleType = kvcanary) -> None:
    """Calls the launcher with the Triton backend forced, or the reference by its own name."""
    arguments = keywords(surface, values, package)
    POINTED_AT[:] = pointed_at(arguments[surface.table]) if surface.table else ()
    if side == "reference":
        getattr(package, surface.reference)(**arguments)
    else:
        with in_the_way_of(side, package):
            getattr(package, surface.launcher)(**arguments, backend="triton")


@contextlib.contextmanager
def in_the_way_of(side: str, package: ModuleType = kvcanary) -> Iterator[None]:
    """Small batches take one program where a kernel knows how to; the other sides on Triton keep to launches."""
    with contextlib.ExitStack() as stack:
        if side != "triton":
            stack.enter_context(in_launches(package))
        else:
            # Long segments too, which a program takes, but not by itself.
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setattr(package.core.dispatch, "PER_SEGMENT", 1 << 20)
        if side == "triton, last program first":
            stack.enter_context(last_program_first())
        yield


@contextlib.contextmanager
def in_launches(package: ModuleType = kvcanary) -> Iterator[None]:
    """Keeps small batches from being done in one program, or in one launch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(package.core.dispatch, "ONE_PROGRAM", False)
        patch.setattr(package.core.dispatch, "ONE_LAUNCH", False)
        yield


@contextlib.contextmanager
def in_one_program(block: int) -> Iterator[list[int]]:
    """Batches are done in one program of so many lanes, as long as these suffice; yields segments of those that are."""
    done: list[int] = []

    def chosen(segments: int, *_: object) -> tuple[int, int, int | None] | None:
        done.extend([segments] if segments <= block else [])
        return (block, 1, None) if segments <= block else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kvcanary.core.dispatch, "one_program", chosen)
        yield done


def sides(surface: Surface) -> tuple[str, ...]:
    """Ways to call a function; where nothing may do all at once, launches are the only one on Triton."""
    once = any(len(phases(kernel)) > 1 for kernel in surface.kernels)
    return tuple(side for side in SIDES if once or surface.one_launch or side != "triton, in launches")


@contextlib.contextmanager
def last_program_first() -> Iterator[None]:
    """Interprets the programs of a launch from the last to the first; on a device they have no order at all."""
    builder = interpreter.InterpreterBuilder
    forwards = builder.set_grid_idx

    def backwards(self: Any, x: int, y: int, z: int) -> None:
        forwards(self, *(n - 1 - place for place, n in zip((x, y, z), self.grid_dim, strict=True)))

    builder.set_grid_idx = backwards
    try:
        yield
    finally:
        builder.set_grid_idx = forwards


def run(case: Case, side: str, allocate: Allocate = to_tensor, package: ModuleType = kvcanary) -> Values:
    """All arguments after the call."""
    surface = SURFACES[case.surface]
    given = objects(surface, case.args, allocate, package)
    call(surface, given, side, package)
    return values_of(case, given)


def wrong(case: Case, side: str, have: Values) -> list[str]:
    """What is wrong with the result of a side."""
    return judge(case.surface).wrong(case, have, ordered=side == "reference")


def assert_agreement(case: Case) -> None:
    """Triton and the reference leave every argument as the interpreter does, also those that are only read."""
    for side in sides(SURFACES[case.surface]):
        found = wrong(case, side, run(case, side))
        assert not found, f"{side}: " + "; ".join(found)
