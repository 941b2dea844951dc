"""Kernels that leave their tensors, each in a way of its own. The bounds tests must catch every one."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from kvcanary_gen.oracle.values import Array

COUNT = 5

Broken = Callable[[torch.Tensor, torch.Tensor], None]


def arguments() -> list[Array]:
    """What every kernel here takes: a source and a target of COUNT elements."""
    return [Array("int64", (COUNT,), list(range(COUNT))), Array("int64", (COUNT,), [-1] * COUNT)]


@triton.jit
def _copy_kernel(source_ptr, target_ptr, loads, stores, shift, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    values = tl.load(source_ptr + i + shift, mask=i < loads, other=0)
    tl.store(target_ptr + (i % stores), values, mask=i < stores)


@triton.jit
def _last_kernel(source_ptr, target_ptr, count):
    tl.store(target_ptr, tl.load(source_ptr + count))


@triton.jit
def _add_kernel(target_ptr, place):
    tl.atomic_add(target_ptr + place, 1)


def loads_behind_the_end(source: torch.Tensor, target: torch.Tensor) -> None:
    """Reads one element too many and writes it where it shows."""
    _last_kernel[(1,)](source, target, COUNT)


def loads_before_the_start(source: torch.Tensor, target: torch.Tensor) -> None:
    _copy_kernel[(1,)](source, target, COUNT, COUNT, -1, BLOCK=8)


def stores_behind_the_end(source: torch.Tensor, target: torch.Tensor) -> None:
    _copy_kernel[(1,)](source, target, COUNT, COUNT + 1, 0, BLOCK=8)


def adds_behind_the_end(source: torch.Tensor, target: torch.Tensor) -> None:
    _add_kernel[(1,)](target, COUNT)


def loads_half_an_element_outside(source: torch.Tensor, target: torch.Tensor) -> None:
    """The last element of a narrower view of the source, read as a whole one."""
    narrow = source.view(torch.int32)[: 2 * COUNT - 1]
    _wide_kernel[(1,)](narrow, target, COUNT)


@triton.jit
def _wide_kernel(source_ptr, target_ptr, count):
    wide = source_ptr.to(tl.pointer_type(tl.int64))
    tl.store(target_ptr, tl.load(wide + count - 1))


ALL: tuple[Broken, ...] = (
    loads_behind_the_end,
    loads_before_the_start,
    stores_behind_the_end,
    adds_behind_the_end,
    loads_half_an_element_outside,
)
