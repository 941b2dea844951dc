"""Calls of the generated package: the interpreter's values as tensors and structs, and back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import torch
import triton.runtime.interpreter as interpreter

import kvcanary
from kvcanary_gen.oracle.case import Case, run_case
from kvcanary_gen.oracle.values import Array, Value, Values
from kvcanary_gen.surface import Surface
from tests.support.program import PROGRAM, SURFACES

DTYPES = {"int32": torch.int32, "int64": torch.int64, "uint64": torch.uint64, "uint8": torch.uint8}
SIDES = ("triton", "triton, last program first", "reference")

Allocate = Callable[[Array], torch.Tensor]


def to_tensor(array: Array) -> torch.Tensor:
    return torch.tensor(array.data, dtype=DTYPES[array.dtype]).reshape(array.shape)


def to_array(tensor: torch.Tensor) -> Array:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Array(dtype, tuple(tensor.shape), tensor.reshape(-1).tolist())


def keywords(surface: Surface, values: Mapping[str, Any], package: ModuleType = kvcanary) -> dict[str, Any]:
    """Keyword arguments of a public function from values by path; fields of a struct become the struct."""
    found = {path: value for path, value in values.items() if "." not in path}
    for name, struct, _ in surface.structs:
        if name not in found:
            fields = {field.name: values[f"{name}.{field.name}"] for field in struct.fields}
            found[name] = getattr(package, struct.name)(**fields)
    return found


def call(surface: Surface, values: Mapping[str, Any], side: str, package: ModuleType = kvcanary) -> None:
    """Calls the launcher with the Triton backend forced, or the reference by its own name."""
    arguments = keywords(surface, values, package)
    if side == "reference":
        getattr(package, surface.reference)(**arguments)
    elif side == "triton":
        getattr(package, surface.launcher)(**arguments, backend="triton")
    else:
        with last_program_first():
            getattr(package, surface.launcher)(**arguments, backend="triton")


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


def tensors_of(case: Case, allocate: Allocate = to_tensor) -> dict[str, Any]:
    return {path: allocate(value) if isinstance(value, Array) else value for path, value in case.args.items()}


def run(case: Case, side: str, allocate: Allocate = to_tensor, package: ModuleType = kvcanary) -> Values:
    """All arguments after the call."""
    values = tensors_of(case, allocate)
    call(SURFACES[case.surface], values, side, package)
    return {path: to_array(value) if isinstance(value, torch.Tensor) else value for path, value in values.items()}


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


def assert_agreement(case: Case) -> None:
    """Triton and the reference leave every argument as the interpreter does, also those that are only read."""
    want = run_case(PROGRAM, case)
    for side in SIDES:
        found = differences(want, run(case, side))
        assert not found, f"{side}: " + "; ".join(found)
