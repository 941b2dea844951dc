# Written by kvcanary-gen from the spec; edit that instead.
"""Lists of byte sources: what is checked of them, and how a kernel takes them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .. import errors, structs
from . import checks


def row_bytes(tensor: torch.Tensor) -> int:
    """Bytes of a row, whatever the dtype."""
    return tensor[:1].numel() * tensor.element_size() if tensor.shape[0] else 0


def row_stride(tensor: torch.Tensor) -> int:
    """Bytes from a row to the next."""
    return int(tensor.stride(0)) * tensor.element_size()


def packed(tensor: torch.Tensor) -> bool:
    """Whether the elements of each row lie side by side."""
    return tensor[:1].is_contiguous()


# --- RealKvSource ----------------------------------------------------------------------------------------------------


def real_kv_source_arguments(sources: Sequence[structs.RealKvSource], most: int) -> tuple[list[object], bool]:
    """Kernel arguments of `most` sources, those that are missing included, and whether any row ends inside a word."""
    found: list[object] = []
    ragged = False
    for source in sources:
        length = row_bytes(source.tensor)
        ragged = ragged or length % 8 != 0
        found += [source.tensor.view(torch.uint8), source.tensor.shape[0], row_stride(source.tensor), length]
        found += [source.page_size, source.num_bytes_per_token, source.read_bytes]
    for _ in range(most - len(sources)):
        found += [None, 0, 0, 0, 0, 0, 0]
    return found, ragged


def real_kv_source_kinds(name: str, sources: Sequence[structs.RealKvSource]) -> None:
    """A tuple or list of sources, their fields of the declared kinds."""
    if not isinstance(sources, (tuple, list)):
        want, have = "a tuple of RealKvSource", type(sources).__name__
        raise errors.CanaryTypeError("KVC-001", f"kv-canary: {name} must be {want}, got {have}")
    for place, source in enumerate(sources):
        path = f"{name}[{place}]"
        checks.kind(path, source, structs.RealKvSource)
        checks.kind(f"{path}.tensor", source.tensor, torch.Tensor)
        checks.kind(f"{path}.page_size", source.page_size, int)
        checks.kind(f"{path}.num_bytes_per_token", source.num_bytes_per_token, int)
        checks.kind(f"{path}.read_bytes", source.read_bytes, int)


def real_kv_source_sizes(name: str, sources: Sequence[structs.RealKvSource]) -> None:
    """Numbers of every source fit an argument of a kernel."""
    for place, source in enumerate(sources):
        path = f"{name}[{place}]"
        checks.int64(f"{path}.page_size", source.page_size)
        checks.int64(f"{path}.num_bytes_per_token", source.num_bytes_per_token)
        checks.int64(f"{path}.read_bytes", source.read_bytes)


def real_kv_source_values(name: str, sources: Sequence[structs.RealKvSource]) -> None:
    """Numbers of every source are in their ranges."""
    for place, source in enumerate(sources):
        path = f"{name}[{place}]"
        below(f"{path}.page_size", source.page_size, 1)
        multiple(f"{path}.num_bytes_per_token", source.num_bytes_per_token, 16)
        multiple(f"{path}.read_bytes", source.read_bytes, 16)
        above(f"{path}.read_bytes", source.read_bytes, "num_bytes_per_token", source.num_bytes_per_token)


def real_kv_source_geometry(name: str, sources: Sequence[structs.RealKvSource]) -> None:
    """Tensors of every source can be read row by row, in aligned words."""
    for place, source in enumerate(sources):
        bytes_of(f"{name}[{place}].tensor", source.tensor, 16)


def real_kv_source_devices(name: str, sources: Sequence[structs.RealKvSource], tensors: checks.Tensors) -> None:
    """Tensors of every source lie where the call's first tensor does."""
    for place, source in enumerate(sources):
        tensor = source.tensor
        row = (f"{name}[{place}].tensor", tensor, tensor.dtype, tensor.dim())
        checks.devices([tensors[0], row])


# --- Shared -----------------------------------------------------------------------------------------------------------


def below(name: str, have: int, least: int) -> None:
    if have < least:
        want = f"at least {least}"
        raise errors.CanaryValueError("KVC-032", f"kv-canary: {name} must be {want}, got {have}")


def above(name: str, have: int, other: str, most: int) -> None:
    if have > most:
        want = f"at most {other}={most}"
        raise errors.CanaryValueError("KVC-032", f"kv-canary: {name} must be {want}, got {have}")


def multiple(name: str, have: int, unit: int) -> None:
    if have <= 0 or have % unit:
        want = f"a positive multiple of {unit}"
        raise errors.CanaryValueError("KVC-032", f"kv-canary: {name} must be {want}, got {have}")


def bytes_of(name: str, tensor: torch.Tensor, align: int) -> None:
    """A tensor whose rows are read as bytes."""
    if tensor.dim() < 2:
        want, have = "be at least 2-D", f"shape {tuple(tensor.shape)}"
        raise errors.CanaryValueError("KVC-033", f"kv-canary: {name} must {want}, got {have}")
    if not packed(tensor):
        want, have = "have packed rows", f"strides {tuple(tensor.stride())}"
        raise errors.CanaryValueError("KVC-033", f"kv-canary: {name} must {want}, got {have}")
    if row_stride(tensor) % align:
        want, have = f"have a row stride that is a multiple of {align} bytes", f"{row_stride(tensor)}"
        raise errors.CanaryValueError("KVC-033", f"kv-canary: {name} must {want}, got {have}")
    if tensor.data_ptr() % align:
        want, have = f"begin at a multiple of {align} bytes", f"{tensor.data_ptr() % align} bytes more"
        raise errors.CanaryValueError("KVC-033", f"kv-canary: {name} must {want}, got {have}")
