"""Ways to break a call's metadata, made from the spec: examples of its rules, and what declarations imply."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from kvcanary_gen.oracle.case import POISON, calls, surface_dim
from kvcanary_gen.oracle.evaluate import Meta
from kvcanary_gen.oracle.outline import Outline
from kvcanary_gen.oracle.source import RandomSource
from kvcanary_gen.oracle.values import wrap
from kvcanary_gen.surface import CheckedTensor, Surface
from tests.support.program import PROGRAM

Change = Callable[[Any], object]

_WRONG_DTYPES = ("int32", "int64", "uint8", "float32", "bool")
_NO_TENSORS = ([1, 2], None, 3.5, np.zeros(2, np.int64), (), "tensor")
_NO_INTEGERS = (None, 3.5, True, "4", [4], torch.tensor(4))
_TOO_LARGE = (1 << 63, -(1 << 63) - 1, 10**30)


@dataclass(frozen=True, eq=False)
class Breakage:
    """Changes to a good call: sizes set as they stand, then what stands at some paths replaced."""

    label: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    changes: Mapping[str, Change] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.label

    @property
    def touched(self) -> set[str]:
        return {*self.sizes, *self.changes}


def good(surface: Surface) -> Outline:
    """A call that breaks nothing, with several elements in every axis and everything optional there."""
    sizes = {name: 3 + place for place, name in enumerate(surface.dims)}
    scalars = {scalar.name: max(2, scalar.least or 2) for scalar in surface.scalars}
    outline = Outline(surface, sizes, scalars, {tensor.path: True for tensor in surface.tensors if tensor.optional})
    assert outline.settle(RandomSource(0)), surface.name
    return outline


def broken_call(surface: Surface, *breakages: Breakage) -> dict[str, object]:
    """Metadata of a good call with all of `breakages`."""
    outline = good(surface)
    for breakage in breakages:
        outline.sizes.update(breakage.sizes)
    call = outline.call()
    for breakage in breakages:
        for path, change in breakage.changes.items():
            call[path] = change(call.get(path))
    return call


def materialised(call: Mapping[str, object]) -> dict[str, Any]:
    """Tensors that look as `call` says; every element is poison."""
    return {path: _tensor(value) if isinstance(value, Meta) else value for path, value in call.items()}


def _tensor(meta: Meta) -> torch.Tensor:
    dtype = getattr(torch, meta.dtype)
    if meta.offset:
        count = math.prod(meta.shape)
        buffer = bytearray(meta.offset + count * dtype.itemsize)
        odd = torch.frombuffer(buffer, dtype=dtype, count=count, offset=meta.offset)
        return odd.fill_(poison(meta.dtype)).view(meta.shape)
    return torch.empty_strided(meta.shape, meta.strides, dtype=dtype, device=meta.device).fill_(poison(meta.dtype))


def poison(dtype: str) -> int | float:
    if dtype == "bool":
        return 1
    return POISON if dtype.startswith("float") else wrap(POISON, dtype)


# --- Rules that declarations imply ------------------------------------------------------------------------------------


def implied(surface: Surface) -> Iterator[Breakage]:
    for name, struct, _ in surface.structs:
        for wrong in _NO_TENSORS:
            yield Breakage(f"{name} is {wrong!r}, no {struct.name}", changes={name: lambda _, w=wrong: w})
    for tensor in surface.tensors:
        yield from _of_tensor(tensor, alone=len(surface.tensors) == 1)
    for scalar in surface.scalars:
        too_small = () if scalar.least is None else (scalar.least - 1, 0, -1, -(1 << 63))
        for wrong in (*_NO_INTEGERS, *_TOO_LARGE, *too_small):
            yield Breakage(f"{scalar.name} is {wrong!r}", changes={scalar.name: lambda _, w=wrong: w})


def _of_tensor(tensor: CheckedTensor, *, alone: bool) -> Iterator[Breakage]:
    def change(label: str, to: Change) -> Breakage:
        return Breakage(f"{tensor.path} {label}", changes={tensor.path: to})

    for wrong in _NO_TENSORS:
        yield change(f"is {wrong!r}", lambda _, w=wrong: w)
    for dtype in _WRONG_DTYPES:
        if dtype != tensor.dtype:
            yield change(f"is {dtype}", lambda m, d=dtype: Meta(d, m.shape, m.strides))
    yield change("has an axis too many", lambda m: Meta.packed(m.dtype, (*m.shape, 1)))
    yield change("has an axis too few", lambda m: Meta.packed(m.dtype, m.shape[1:]))
    for axis in range(len(tensor.shape)):
        for step in (1, -1):
            yield change(f"axis {axis} is longer by {step}", lambda m, a=axis, s=step: _longer(m, a, s))
    yield change("has gaps", lambda m: Meta(m.dtype, m.shape, tuple(2 * stride for stride in m.strides)))
    yield change("is column-major", lambda m: Meta(m.dtype, m.shape, Meta.packed("", m.shape[::-1]).strides[::-1]))
    if getattr(torch, tensor.dtype).itemsize > 1:
        yield change("lies at an odd address", lambda m: replace(m, offset=1))
    if not alone:
        yield change("is elsewhere", lambda m: Meta.packed(m.dtype, m.shape, "meta"))


def _longer(meta: Meta, axis: int, step: int) -> Meta:
    shape = list(meta.shape)
    shape[axis] += step
    return Meta.packed(meta.dtype, tuple(shape))


# --- Rules of the spec ------------------------------------------------------------------------------------------------


def examples(surface: Surface) -> Iterator[tuple[str, Breakage]]:
    """(rule id, its example in the names of this surface), once for every kernel or operation that it belongs to."""
    for rule in dict.fromkeys(rule.invariant for rule in surface.rules):
        if surface.name in rule.operations:
            known = set(surface.dims) - {scalar.name for scalar in surface.scalars}
            yield rule.id, _example(rule.id, rule.example, {name: name for name in known}, {})
        for kernel, bind in calls(PROGRAM, surface):
            if kernel.name in rule.operations and kernel.name != surface.name:
                dims = {name: surface_dim(surface, kernel, bind, name) for name in kernel.dims if name not in bind}
                yield rule.id, _example(rule.id, rule.example, dims, bind)


def _example(
    rule: str, example: Mapping[str, object], dims: Mapping[str, str | None], bind: Mapping[str, str]
) -> Breakage:
    sizes: dict[str, int] = {}
    changes: dict[str, Change] = {}
    for name, value in example.items():
        if name in dims:
            assert isinstance(value, int) and dims[name] is not None
            sizes[str(dims[name])] = int(value)
        elif isinstance(value, list):
            changes[bind.get(name, name)] = lambda m, shape=value: Meta.packed(m.dtype, tuple(map(int, shape)))
        else:
            changes[bind.get(name, name)] = lambda _, given=value: given if given is None else int(given)
    return Breakage(f"example of {rule}", sizes, changes)
