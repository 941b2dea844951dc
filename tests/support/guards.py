"""Watches memory: guard bands around tensors, every address that Triton's interpreter touches, every index in torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
import triton.runtime.interpreter as interpreter
from torch.utils._python_dispatch import TorchDispatchMode

from kvcanary_gen.oracle.values import Array
from tests.support.calls import DTYPES, POINTED_AT

# Elements on either side of a tensor.
BAND = 64

_ATEN = torch.ops.aten


class OutOfBoundsError(AssertionError):
    """An access that leaves its tensors."""


# --- Guard bands ------------------------------------------------------------------------------------------------------


@dataclass
class Bands:
    """Allocates each tensor as the middle of a larger one whose ends hold `fill`."""

    fill: int
    _buffers: list[tuple[torch.Tensor, int]] = field(default_factory=list)

    def __call__(self, array: Array) -> torch.Tensor:
        count = len(array.data)
        buffer = torch.full((BAND + count + BAND,), self.fill, dtype=DTYPES[array.dtype])
        assert buffer.data_ptr() % BAND == 0
        middle = buffer[BAND : BAND + count]
        middle.copy_(torch.tensor(array.data, dtype=DTYPES[array.dtype]))
        self._buffers.append((buffer, count))
        return middle.view(array.shape)

    def check(self) -> None:
        """Raises where a band was written."""
        for buffer, count in self._buffers:
            for band in (buffer[:BAND], buffer[BAND + count :]):
                if (band != self.fill).any():
                    raise OutOfBoundsError(f"a guard band was written: {band.tolist()}")


# --- Triton's interpreter ---------------------------------------------------------------------------------------------


@dataclass
class Watch:
    """Bytes that the running launch may touch, and how many accesses were checked."""

    starts: np.ndarray
    ends: np.ndarray
    accesses: int = 0

    def allow(self, tensors: list[torch.Tensor]) -> None:
        """The bytes of a launch's own arguments, none of them shared; sorted by place."""
        spans = sorted((t.data_ptr(), t.data_ptr() + _extent(t)) for t in tensors if t.numel())
        self.starts = np.array([start for start, _ in spans], dtype=np.uint64)
        self.ends = np.array([end for _, end in spans], dtype=np.uint64)

    def check(self, pointers: Any, mask: Any, what: str) -> None:
        """Raises if a lane that `mask` lets through points outside."""
        width = np.uint64(interpreter._get_np_dtype(pointers.get_element_ty()).itemsize)
        places, active = np.broadcast_arrays(pointers.data, True if mask is None else mask.data)
        places = places[active]
        self.accesses += 1
        if not places.size:
            return
        if not self.starts.size:
            raise OutOfBoundsError(f"{what} at {places[0]}, where the launch has no tensor")
        span = np.searchsorted(self.starts, places, side="right").astype(np.int64) - 1
        # Not places + width: that wraps around at the end of the address space.
        inside = (span >= 0) & (places <= self.ends[np.maximum(span, 0)] - width)
        if not inside.all():
            place = int(places[~inside][0])
            nearest = min((abs(place - int(start)), place - int(start)) for start in self.starts)[1]
            raise OutOfBoundsError(f"{what} {nearest} bytes from the start of the nearest tensor")


def _extent(tensor: torch.Tensor) -> int:
    """Bytes from the first element to behind the last; what lies between rows with gaps is no business of bounds."""
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


@contextlib.contextmanager
def watched() -> Iterator[Watch]:
    """Checks every access of interpreted kernels before it happens."""
    watch = Watch(np.empty(0, np.uint64), np.empty(0, np.uint64))
    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "__call__", _launch(executor.__call__, watch))
        for name, what, mask in (
            ("create_masked_load", "load", 1),
            ("create_masked_store", "store", 2),
            ("create_atomic_rmw", "atomic", 3),
            ("create_atomic_cas", "atomic", None),
        ):
            patch.setattr(builder, name, _access(getattr(builder, name), watch, what, mask))
        try:
            yield watch
        except interpreter.InterpreterError as error:
            raise _innermost(error) from None


def _innermost(error: BaseException) -> BaseException:
    """The error itself: the interpreter wraps it once for every function that it passes through."""
    while isinstance(error, interpreter.InterpreterError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _launch(original: Callable[..., None], watch: Watch) -> Callable[..., None]:
    def launch(self: Any, *args: Any, **keywords: Any) -> None:
        given = [value for value in (*args, *keywords.values()) if isinstance(value, torch.Tensor)]
        watch.allow(list({id(tensor): tensor for tensor in (*given, *POINTED_AT)}.values()))
        original(self, *args, **keywords)

    return launch


def _access(original: Callable[..., Any], watch: Watch, what: str, mask: int | None) -> Callable[..., Any]:
    """`mask`: place of the mask among the arguments behind self; the pointers come first."""

    def access(self: Any, pointers: Any, *args: Any) -> Any:
        # Atomics name their operation before the pointers.
        given = (pointers, *args)
        start = next(place for place, value in enumerate(given) if isinstance(value, interpreter.TensorHandle))
        watch.check(given[start], None if mask is None else given[mask], what)
        return original(self, *given)

    return access


# --- torch ------------------------------------------------------------------------------------------------------------


class StrictIndices(TorchDispatchMode):
    """Refuses indices that torch would wrap or that lie outside; counts those that it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.indexed = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor, axis, index in _indices(func.overloadpacket, args):
            self.indexed += 1
            size = tensor.shape[axis]
            if index.numel() and not bool(((index >= 0) & (index < size)).all()):
                raise OutOfBoundsError(f"{func} with {index.min()} .. {index.max()} on an axis of {size}")
        return func(*args, **(kwargs or {}))


# Operators that take (tensor, axis, integer indices, …).
_BY_AXIS = (
    *(_ATEN.gather, _ATEN.index_select, _ATEN.scatter, _ATEN.scatter_, _ATEN.scatter_add, _ATEN.scatter_add_),
    *(_ATEN.scatter_reduce, _ATEN.scatter_reduce_, _ATEN.index_add_, _ATEN.index_copy_, _ATEN.index_fill_),
)


def _indices(packet: Any, args: Any) -> Iterator[tuple[torch.Tensor, int, torch.Tensor]]:
    """(tensor, axis, integer indices) of an operator that picks elements."""
    if packet in (_ATEN.index, _ATEN.index_put, _ATEN.index_put_, _ATEN._index_put_impl_):
        axis = 0
        for index in args[1]:
            mask = index is not None and index.dtype in (torch.bool, torch.uint8)
            if index is not None and not mask:
                yield args[0], axis, index
            axis += index.dim() if mask else 1
    elif packet in (_ATEN.take, _ATEN.put, _ATEN.put_):
        yield args[0].reshape(-1), 0, args[1]
    elif packet in _BY_AXIS:
        yield args[0], args[1], args[2]
