# Written by kvcanary-gen from the spec; edit that instead.
"""Metadata checks shared by all validators. None of them touches device data.

Each takes its rule's id and text from the spec; see the pages under `docs/errors`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .. import errors

# (name, tensor, dtype, rank)
Tensors = list[tuple[str, torch.Tensor, torch.dtype, int]]

_NOUNS = {torch.Tensor: "a torch.Tensor", int: "an int"}


def kind(name: str, value: object, type_: type) -> None:
    """`value` is of the declared kind; a bool is no int."""
    if not isinstance(value, type_) or (isinstance(value, bool) and type_ is not bool):
        want, have = _NOUNS.get(type_, f"a {type_.__name__}"), type(value).__name__
        raise errors.CanaryTypeError("KVC-001", f"kv-canary: {name} must be {want}, got {have}")


def table(name: str, value: object, type_: type) -> None:
    """`value` is a table of structs."""
    if not isinstance(value, type_):
        want, have = f"a {type_.__name__}, as its build() makes it", type(value).__name__
        raise errors.CanaryTypeError("KVC-001", f"kv-canary: {name} must be {want}, got {have}")


def kinds(tensors: Tensors) -> None:
    for name, tensor, _, _ in tensors:
        if not isinstance(tensor, torch.Tensor):
            kind(name, tensor, torch.Tensor)


def int64(name: str, value: int, least: int | None = None) -> None:
    """`value` fits an int64 argument of a kernel; one that divides also has a `least`."""
    if not (-(1 << 63) if least is None else least) <= value < 1 << 63:
        want, have = "int64" if least is None else f"int64, at least {least}", value
        raise errors.CanaryValueError("KVC-011", f"kv-canary: {name} must fit {want}, got {have}")


def dtypes(tensors: Tensors) -> None:
    for name, tensor, want, _ in tensors:
        if tensor.dtype != want:
            have = tensor.dtype
            raise errors.CanaryValueError("KVC-012", f"kv-canary: {name} must have dtype {want}, got {have}")


def _rank(name: str, tensor: torch.Tensor, rank: int) -> None:
    if tensor.dim() != rank:
        want, have = f"{rank}-D", tuple(tensor.shape)
        raise errors.CanaryValueError("KVC-013", f"kv-canary: {name} must be {want}, got shape {have}")


def ranks(tensors: Tensors) -> None:
    for name, tensor, _, rank in tensors:
        if tensor.dim() != rank:
            _rank(name, tensor, rank)


def size(name: str, tensor: torch.Tensor | None, rank: int, axis: int) -> int:
    """Length of an axis, 0 for a missing tensor. Without its rank there is no length, so that is checked first."""
    if tensor is None:
        return 0
    _rank(name, tensor, rank)
    return tensor.shape[axis]


def length(name: str, have: int, want: int) -> None:
    if have != want:
        raise errors.CanaryValueError("KVC-014", f"kv-canary: {name} length must be {want}, got {have}")


def at_least(name: str, have: int, least: int) -> None:
    if have < least:
        want = f"at least {least}"
        raise errors.CanaryValueError("KVC-014", f"kv-canary: {name} length must be {want}, got {have}")


def contiguous(tensors: Tensors) -> None:
    for name, tensor, _, _ in tensors:
        if not tensor.is_contiguous():
            raise errors.CanaryValueError("KVC-015", f"kv-canary: {name} must be contiguous")


def aligned(tensors: Tensors) -> None:
    """Kernels load whole elements, which must not straddle their natural boundary."""
    for name, tensor, _, _ in tensors:
        want = tensor.element_size()
        have = tensor.data_ptr() % want
        if have:
            raise errors.CanaryValueError(
                "KVC-021",
                f"kv-canary: {name} must be aligned to {want} bytes, got an address {have} bytes past a multiple",
            )


def devices(tensors: Tensors) -> None:
    """All tensors lie where the first one does."""
    other, first, _, _ = tensors[0]
    want = first.device
    for name, tensor, _, _ in tensors:
        have = tensor.device
        if have != want:
            raise errors.CanaryValueError(
                "KVC-016", f"kv-canary: {name} must be on {other}'s device {want}, got {have}"
            )


def words(name: str, tensor: torch.Tensor) -> None:
    """Rows of bytes that are read as 8-byte words."""
    if tensor.shape[-1] % 8:
        want, have = "have rows of a multiple of 8 bytes", f"{tensor.shape[-1]}"
        raise errors.CanaryValueError("KVC-030", f"kv-canary: {name} must {want}, got {have}")
    if tensor.data_ptr() % 8:
        want, have = "begin at a multiple of 8 bytes", f"{tensor.data_ptr() % 8} bytes more"
        raise errors.CanaryValueError("KVC-030", f"kv-canary: {name} must {want}, got {have}")
    # Neither can torch see other rows as words, be they but one, or none, and so contiguous.
    if tensor.stride(0) % 8:
        want, have = "have a row stride that is a multiple of 8 bytes", f"{tensor.stride(0)}"
        raise errors.CanaryValueError("KVC-030", f"kv-canary: {name} must {want}, got {have}")
    if tensor.storage_offset() % 8:
        want, have = "begin at a multiple of 8 bytes in its storage", f"{tensor.storage_offset() % 8} bytes more"
        raise errors.CanaryValueError("KVC-030", f"kv-canary: {name} must {want}, got {have}")


def count(name: str, items: Sequence[object], want: int) -> None:
    """A list is no longer than a kernel takes."""
    have = len(items)
    if have > want:
        raise errors.CanaryValueError("KVC-031", f"kv-canary: {name} must hold at most {want} sources, got {have}")


def capacity(struct: str, capacity: str, have: int) -> None:
    """A struct is allocated for at least one element."""
    if have < 1:
        raise errors.CanaryValueError("KVC-017", f"kv-canary: {struct} {capacity} must be positive, got {have}")
