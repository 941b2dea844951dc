"""Ways to break a call's metadata, made from the spec: examples of its rules, and what declarations imply."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

import kvcanary
from kvcanary_gen.ir import StructValueIR
from kvcanary_gen.oracle.case import POISON, calls, surface_dim
from kvcanary_gen.oracle.evaluate import Fields, Member, Meta
from kvcanary_gen.oracle.listed import Layout
from kvcanary_gen.oracle.outline import Outline
from kvcanary_gen.oracle.source import RandomSource
from kvcanary_gen.oracle.values import wrap
from kvcanary_gen.surface import CheckedTensor, Surface
from tests.support.program import PROGRAM

Change = Callable[[Any], object]

_WRONG_DTYPES = ("int32", "int64", "uint8", "float32", "bool")
_NO_TENSORS = ([1, 2], None, 3.5, np.zeros(2, np.int64), (), "tensor")
_NO_INTEGERS = (None, 3.5, True, "4", [4], torch.tensor(4))
_NO_SETTINGS: dict[str, tuple[object, ...]] = {
    "int64": (None, 3.5, True, "4", [4], 1 << 63, -(1 << 63) - 1),
    "bool": (None, 0, 1, "yes", torch.tensor(True), 1.0),
    "enum": (None, 0, 1, True, "NONE", 2.0, [1]),
}
# No natural boundary is larger.
_BOUNDARY = 64
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
    """A call that breaks nothing, with several elements in every axis, and everything optional there or set."""
    sizes = {name: 3 + place for place, name in enumerate(surface.dims)}
    scalars = {scalar.name: max(2, scalar.least or 2) for scalar in surface.scalars}
    scalars |= {s.path: _last_member(s.of) if s.kind == "enum" else 1 for s in surface.settings}
    outline = Outline(surface, sizes, scalars, {tensor.path: True for tensor in surface.tensors if tensor.optional})
    outline.lists = {path: (_source(value), _source(value)) for path, value in surface.lists}
    assert outline.settle(RandomSource(0)), surface.name
    return outline


def _last_member(enum: str) -> int:
    return max(int(member.value) for member in PROGRAM.enums[enum].members.values())


def _source(value: StructValueIR) -> Layout:
    """Three rows of 32 elements, with a gap behind each."""
    fields = PROGRAM.structs[value.of].values
    numbers = {f.name: max(f.at_least or 1, 2 * (f.multiple_of or 1)) for f in fields if f.kind == "int64"}
    return Layout(value.of, bytes_field(value).name, numbers, "bfloat16", 3, (16, 2), 64 + _unit(value))


def bytes_field(value: StructValueIR) -> StructValueIR:
    return next(field for field in PROGRAM.structs[value.of].values if field.kind == "bytes")


def _unit(value: StructValueIR) -> int:
    return bytes_field(value).multiple_of or 2


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


def poisoned_tensor(meta: Meta) -> torch.Tensor:
    dtype = getattr(torch, meta.dtype)
    if meta.offset:
        count = 1 + sum((n - 1) * stride for n, stride in zip(meta.shape, meta.strides, strict=True))
        buffer = bytearray(_BOUNDARY + meta.offset + count * dtype.itemsize)
        start = -torch.frombuffer(buffer, dtype=torch.uint8).data_ptr() % _BOUNDARY + meta.offset
        odd = torch.frombuffer(buffer, dtype=dtype, count=count, offset=start)
        return odd.fill_(poison(meta.dtype)).as_strided(meta.shape, meta.strides)
    return torch.empty_strided(meta.shape, meta.strides, dtype=dtype, device=meta.device).fill_(poison(meta.dtype))


def poison(dtype: str) -> int | float:
    if dtype == "bool":
        return 1
    # Eight bits of a mantissa hold this one.
    return -64.0 if "float" in dtype else wrap(POISON, dtype)


def materialised(
    call: Mapping[str, object], tensor: Callable[[Meta], torch.Tensor] = poisoned_tensor
) -> dict[str, Any]:
    """Objects that look as `call` says; every element is poison, unless `tensor` makes other tensors."""
    return {path: _object(value, tensor) for path, value in call.items()}


def _object(value: object, tensor: Callable[[Meta], torch.Tensor]) -> Any:
    if isinstance(value, Meta):
        return tensor(value)
    if isinstance(value, Member):
        return getattr(kvcanary, value.enum)(value.value)
    if isinstance(value, Fields):
        return getattr(kvcanary, value.struct)(**materialised(value.fields, tensor))
    return type(value)(_object(item, tensor) for item in value) if isinstance(value, (tuple, list)) else value


def on_a_gpu(meta: Meta) -> torch.Tensor:
    """A tensor on a GPU that is not there; under FakeTensorMode."""
    return torch.empty_strided(meta.shape, meta.strides, dtype=getattr(torch, meta.dtype), device="cuda:0")


def assert_untouched(metadata: dict[str, object], values: dict[str, object], label: str) -> None:
    """Everything on the CPU holds the poison that `materialised` filled it with."""
    for path, meta in metadata.items():
        tensor = values[path]
        if isinstance(meta, Meta) and isinstance(tensor, torch.Tensor) and meta.device == "cpu":
            assert bool((tensor == poison(meta.dtype)).all()), f"{label}: {path} was written"
        for item, struct in zip(meta, tensor, strict=True) if isinstance(meta, (tuple, list)) else ():
            if isinstance(item, Fields):
                fields = {name: getattr(struct, name) for name in item.fields}
                assert_untouched(dict(item.fields), fields, f"{label}: {path}")


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
    for setting in surface.settings:
        for wrong in _NO_SETTINGS[setting.kind]:
            yield Breakage(f"{setting.path} is {wrong!r}", changes={setting.path: lambda _, w=wrong: w})
    for path, value in surface.lists:
        yield from _of_list(path, value)


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
    for offset in (1, 4):
        if tensor.record or getattr(torch, tensor.dtype).itemsize > 1:
            yield change(f"lies {offset} bytes behind a boundary", lambda m, o=offset: replace(m, offset=o))
    if tensor.record and tensor.dtype == "uint8":
        for rows in (1, 0):
            yield change(f"has {rows} rows at odd steps", lambda m, n=rows: _odd_steps(m, n))
    if not alone:
        yield change("is elsewhere", lambda m: Meta.packed(m.dtype, m.shape, "meta"))


def _odd_steps(meta: Meta, rows: int) -> Meta:
    """So few rows count as contiguous, whatever their stride."""
    return Meta(meta.dtype, (rows, *meta.shape[1:]), (meta.strides[0] + 1, *meta.strides[1:]))


def _longer(meta: Meta, axis: int, step: int) -> Meta:
    shape = list(meta.shape)
    shape[axis] += step
    return Meta.packed(meta.dtype, tuple(shape))


def _of_list(path: str, value: StructValueIR) -> Iterator[Breakage]:
    """A list as such, and its last struct with every field broken in turn."""

    def change(label: str, to: Change) -> Breakage:
        return Breakage(f"{path} {label}", changes={path: to})

    for wrong in (None, 3.5, "sources", {}, {1}, torch.zeros(2, 2)):
        yield change(f"is a {type(wrong).__name__}", lambda _, w=wrong: w)
    yield change("is a struct, no list", lambda listed: listed[0])
    yield change("holds None", lambda listed: (*listed, None))
    yield change("holds a tuple", lambda listed: (*listed, (1, 2)))
    yield change("is too long", lambda listed: (listed[0],) * ((value.at_most or 0) + 1))
    yield change("is a list too long", lambda listed: [listed[0]] * ((value.at_most or 0) + 3))
    for inner in PROGRAM.structs[value.of].values:
        for label, to in _of_bytes(inner) if inner.kind == "bytes" else _of_number(inner):
            yield change(f"{inner.name} {label}", lambda listed, n=inner.name, t=to: _last_changed(listed, n, t))


def _last_changed(listed: tuple[Fields, ...], field: str, to: Change) -> tuple[Fields, ...]:
    *others, last = listed
    return (*others, last.changed(field, to(last.fields[field])))


def _of_number(field: StructValueIR) -> Iterator[tuple[str, Change]]:
    unit = field.multiple_of or 1
    numbers = {0, -1, -unit, unit - 1, unit + 1, (field.at_least or 1) - 1, 1000 * unit, -(1 << 63)} | set(_TOO_LARGE)
    for wrong in (*_NO_INTEGERS, *sorted(numbers), 1 << 80):
        yield f"is {wrong!r}", lambda _, w=wrong: w


def _of_bytes(field: StructValueIR) -> Iterator[tuple[str, Change]]:
    unit = field.multiple_of or 1
    for wrong in _NO_TENSORS:
        yield f"is {wrong!r}", lambda _, w=wrong: w
    yield "has one axis", lambda m: Meta.packed(m.dtype, (m.shape[0],))
    yield "has no axis", lambda m: Meta.packed(m.dtype, ())
    yield "is transposed", lambda m: Meta(m.dtype, m.shape, Meta.packed("", m.shape[::-1]).strides[::-1])
    yield "has gaps in its rows", lambda m: Meta(m.dtype, m.shape, tuple(2 * stride for stride in m.strides))
    for rows in (3, 1):
        yield f"has {rows} rows, an element too long", lambda m, n=rows: _longer_rows(m, n)
    yield "is elsewhere", lambda m: replace(m, device="meta")
    for offset in (2, unit // 2, unit + 2):
        yield f"lies {offset} bytes behind a boundary", lambda m, o=offset: replace(m, offset=o)


def _longer_rows(meta: Meta, rows: int) -> Meta:
    return Meta(meta.dtype, (rows, *meta.shape[1:]), (meta.strides[0] + 1, *meta.strides[1:]))


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
            plain = value if value is None or isinstance(value, bool) else int(str(value))
            changes[bind.get(name, name)] = lambda _, given=plain: given
    return Breakage(f"example of {rule}", sizes, changes)
