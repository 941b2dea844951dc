# Written by kvcanary-gen from the spec; edit that instead.
"""Who computes: Triton on a GPU (or interpreted), the torch reference everywhere else."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Sequence
from typing import Any, Protocol

import torch
import triton
from triton.language.extra import cuda

from .. import errors
from . import lang

# Triton decides at import whether its kernels are interpreted.
INTERPRETED = not isinstance(lang.saturating_add, triton.JITFunction)

# Whether one program may do all of a small batch. Tests turn it off, to compare the results of both ways.
ONE_PROGRAM = True
# Blocks of entries that it takes at most, and entries for each segment: longer ones are walked faster side by side.
ROUNDS, PER_SEGMENT = 4, 2

# Whether one launch may do the work of several, its programs all summing up a small batch. Tests turn it off, too. They
# look sums up in registers, which Triton learnt after 3.2.
ONE_LAUNCH = hasattr(triton.language, "gather")

# Whether kernels may begin while the launch ahead of them still ends. Turned off, each begins when that has ended.
OVERLAP = True

_GPUS = ("cuda", "xpu")
_VARIABLE = "KVCANARY_BACKEND"


class Run(Protocol):
    """What becomes of a kernel, once its grid and its arguments are known."""

    def __call__(self, kernel: Any, grid: tuple[int, ...], /, *arguments: Any, **options: Any) -> None: ...


def launch(kernel: Any, grid: tuple[int, ...], /, *arguments: Any, **options: Any) -> None:
    """Launches it at once, on the current stream."""
    kernel[grid](*arguments, **options)


def use_triton(tensor: torch.Tensor, backend: str | None) -> bool:
    """Whether the Triton kernel runs on `tensor`'s device.

    `backend` decides, else the environment's `KVCANARY_BACKEND`, else the device.
    """
    name, have = "backend", backend
    if have is None:
        name, have = _VARIABLE, os.environ.get(_VARIABLE) or None
    if have is None:
        return INTERPRETED or tensor.device.type in _GPUS
    if have not in ("triton", "reference"):
        raise errors.CanaryValueError("KVC-018", f"kv-canary: {name} must be 'triton' or 'reference', got {have}")
    if have == "triton" and not INTERPRETED and tensor.device.type not in _GPUS:
        have = str(tensor.device)
        raise errors.CanaryValueError(
            "KVC-019", f"kv-canary: backend 'triton' cannot run on device {have} without TRITON_INTERPRET=1"
        )
    return have == "triton"


def cdiv(count: int, block: int) -> int:
    """Blocks that hold `count`; Triton's own function takes a hundred times as long on the host."""
    return -(-count // block)


def one_program(
    segments: int, entries: int, most: int, shapes: Sequence[tuple[int, int, int | None]]
) -> tuple[int, int, int | None] | None:
    """Lanes, warps and registers of one program that does all of a small batch; None where launches share the work.

    Args:
        segments: their number; each needs a lane.
        entries: their number, at most `most`, `ROUNDS` times the lanes, and `PER_SEGMENT` times the segments.
        shapes: what there is to choose from, in ascending order.
    """
    if not ONE_PROGRAM or entries > min(most, PER_SEGMENT * segments):
        return None
    return next((shape for shape in shapes if segments <= shape[0] and entries <= ROUNDS * shape[0]), None)


def one_launch(segments: int, most: int) -> bool:
    """Whether one launch does the work of several for so many segments, of which it takes `most`."""
    return ONE_LAUNCH and segments <= most


def lanes(count: int, sizes: Sequence[int]) -> int:
    """The first of `sizes`, in ascending order, that holds `count`; else the last."""
    return next((size for size in sizes if count <= size), sizes[-1])


def one_round(count: int, shapes: Sequence[tuple[int, int, int | None]]) -> tuple[int, int, int | None]:
    """Lanes, warps and registers of the first shape, in ascending order, that holds `count`; else of the last."""
    return next((shape for shape in shapes if count <= shape[0]), shapes[-1])


def at_most(registers: int | None) -> dict[str, int]:
    """Launch option that limits a thread's registers, which NVIDIA's assembler alone takes."""
    return {} if registers is None or torch.version.cuda is None else {"maxnreg": registers}


def paired(words: torch.Tensor) -> bool:
    """Whether rows of 8-byte words begin at multiples of 16 bytes, so that kernels load two words at once."""
    return words.shape[1] % 2 == 0 and words.data_ptr() % 16 == 0


def overlapping(tensor: torch.Tensor, programs: int = 1) -> dict[str, bool]:
    """Launch options of kernels that may begin before the launch ahead of them has ended, where the GPU can do that.

    Args:
        programs: of a launch that may wait for long, as they hold their places: at most one for each multiprocessor.
    """
    index = tensor.device.index if OVERLAP and tensor.device.type == "cuda" else None
    if index is None or not _overlaps(index) or programs > _multiprocessors(index):
        return {"OVERLAPS": False}
    return {"OVERLAPS": True, "launch_pdl": True}


@functools.cache
def _multiprocessors(index: int) -> int:
    return torch.cuda.get_device_properties(index).multi_processor_count


@functools.cache
def _overlaps(index: int) -> bool:
    """Whether a GPU knows programmatic dependent launches: NVIDIA's, from Hopper on."""
    known = not INTERPRETED and torch.version.cuda is not None and hasattr(cuda, "gdc_wait")
    return known and torch.cuda.get_device_capability(index) >= (9, 0)


def refuse_capture(op: str, tensor: torch.Tensor) -> None:
    """References read device data on the host, which a graph under capture cannot replay."""
    if tensor.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise errors.CanaryRuntimeError(
            "KVC-020", f"kv-canary: {op} reads device data on the host and cannot run under CUDA graph capture"
        )


def on_device(tensor: torch.Tensor) -> contextlib.AbstractContextManager[object]:
    """Triton launches on the current device; this makes it the tensor's."""
    if tensor.device.type == "cuda" and tensor.device.index != torch.cuda.current_device():
        return torch.cuda.device(tensor.device)
    return contextlib.nullcontext()
