"""One call, computed three times: by the scalar interpreter, by Triton and by the torch reference."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from kvcanary_gen.oracle.interpreter import run_kernel, run_operation
from kvcanary_gen.oracle.values import Array, Values
from kvcanary_gen.surface import Surface, surfaces

from .draws import Drawer
from .workshop import Built

_DTYPES = {"int32": torch.int32, "int64": torch.int64, "uint64": torch.uint64, "uint8": torch.uint8}
_GUARD = 16
_GUARD_BYTE = 0x5A


def agree(built: Built, names: Iterable[str] | None = None, *, draws: int = 12, **sizes: int) -> None:
    """Draws calls of kernels and operations and compares all tensors, those that are only read too."""
    views = surfaces(built.program)
    for name in views if names is None else names:
        for seed in range(draws):
            fitting = {dim: size for dim, size in sizes.items() if dim in views[name].dims}
            values = Drawer(views[name], seed).draw(hostile=seed % 2 == 1, sizes=fitting)
            check(built, views[name], values, f"{name}, draw {seed}")


def check(built: Built, surface: Surface, values: Values, what: str = "") -> Values:
    """Compares the two paths with the interpreter on one call; returns its answer."""
    expected = interpret(built, surface, values)
    for side in ("triton", "reference"):
        found = run(built, surface, values, side)
        for path, value in expected.items():
            assert found[path] == value, f"{what}: {path} by {side}\n  args {values}"
    return expected


def interpret(built: Built, surface: Surface, values: Values) -> Values:
    args = {n: Array(v.dtype, v.shape, list(v.data)) if isinstance(v, Array) else v for n, v in values.items()}
    if surface.name in built.program.kernels:
        run_kernel(built.program, built.program.kernels[surface.name], args)
    else:
        run_operation(built.program, built.program.operations[surface.name], args)
    return args


def run(built: Built, surface: Surface, values: Values, side: str) -> Values:
    """Calls the public function; every tensor lies between guards that must not change."""
    buffers: dict[str, torch.Tensor] = {}
    args: dict[str, Any] = {}
    for path, value in values.items():
        args[path] = _tensor(path, value, buffers) if isinstance(value, Array) else value
    call = {name: value for name, value in args.items() if "." not in name}
    for name, struct, _ in surface.structs:
        fields = {f.name: args[f"{name}.{f.name}"] for f in struct.fields}
        call[name] = getattr(built, struct.name)(**fields)
    getattr(built, surface.launcher)(**call, backend=side)
    for path, buffer in buffers.items():
        guards = torch.cat([buffer[:_GUARD], buffer[-_GUARD:]])
        assert bool((guards == _GUARD_BYTE).all()), f"{path} was written outside by {side}"
    return {path: _array(value) if isinstance(value, torch.Tensor) else value for path, value in args.items()}


def _tensor(path: str, array: Array, buffers: dict[str, torch.Tensor]) -> torch.Tensor:
    data = torch.tensor(array.data, dtype=_DTYPES[array.dtype])
    size = data.numel() * data.element_size()
    buffer = torch.full([size + 2 * _GUARD], _GUARD_BYTE, dtype=torch.uint8)
    buffers[path] = buffer
    inner = buffer[_GUARD : _GUARD + size].view(_DTYPES[array.dtype])
    inner.copy_(data)
    return inner.view(array.shape)


def _array(tensor: torch.Tensor) -> Array:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Array(dtype, tuple(tensor.shape), tensor.reshape(-1).tolist())
