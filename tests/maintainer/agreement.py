"""One call, computed three times: by the scalar interpreter, by Triton and by the torch reference."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from kvcanary_gen.oracle.case import Case, run_case
from kvcanary_gen.oracle.draw import Drawer, seeded
from kvcanary_gen.oracle.values import Array, Values
from kvcanary_gen.surface import surfaces

from .workshop import Built

SIDES = ("triton", "reference")
_DTYPES = {"int32": torch.int32, "int64": torch.int64, "uint64": torch.uint64, "uint8": torch.uint8}
_GUARD = 16
_GUARD_BYTE = 0x5A


def agree(built: Built, names: Iterable[str] | None = None, *, draws: int = 12) -> None:
    """Draws calls of kernels and operations and compares all tensors, those that are only read too."""
    plain = [name for name, surface in surfaces(built.program).items() if surface.plain]
    for name in plain if names is None else names:
        for case in drawn(built, name, draws):
            check(built, case)


def drawn(built: Built, name: str, draws: int) -> list[Case]:
    """Calls from declarations alone; every second one is hostile, and some are large."""
    surface = surfaces(built.program)[name]
    drawers = [Drawer(built.program, surface, hostile=hostile) for hostile in (False, True)]
    return [seeded(drawers[seed % 2], seed, large=seed % 16 == 5) for seed in range(draws)]


def check(built: Built, case: Case) -> Values:
    """Compares the two paths with the interpreter on one call; returns its answer."""
    expected = run_case(built.program, case)
    for side in SIDES:
        found = run(built, case, side)
        for path, value in expected.items():
            assert found[path] == value, f"{case.surface}: {path} by {side}\n  args {case.args}"
    return expected


def run(built: Built, case: Case, side: str) -> Values:
    """Calls the public function; every tensor lies between guards that must not change."""
    surface = surfaces(built.program)[case.surface]
    buffers: dict[str, torch.Tensor] = {}
    args: dict[str, Any] = {}
    for path, value in case.args.items():
        args[path] = _tensor(path, value, buffers) if isinstance(value, Array) else value
    call = {name: value for name, value in args.items() if "." not in name}
    for name, struct, _ in surface.structs:
        fields = {f.name: args[f"{name}.{f.name}"] for f in struct.fields}
        call[name] = getattr(built, struct.name)(**fields)
    if side == "triton":
        getattr(built, surface.launcher)(**call, backend="triton")
    else:
        getattr(built, surface.reference)(**call)
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
