"""Kernels as a GPU's Triton would have compiled them, computed by its interpreter: what a compiled launch is given."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from kvcanary.core import bound, dispatch

STREAM = 7
FUNCTION, METADATA = object(), (4, 1, 0)


class Hooks:
    """What Triton calls around launches."""

    def __init__(self) -> None:
        self.calls: list[Callable[[Any], None]] = []

    def __call__(self, metadata: Any) -> None:
        for call in self.calls:
            call(metadata)


class CompiledKernel:
    """Launches as a compiled kernel does: it takes every parameter, and pointers as addresses.

    Attributes:
        queue: Where launches wait instead of being computed, if it is set.
    """

    queue: ClassVar[list[tuple[Any, ...]] | None] = None

    def __init__(self, kernel: Any, names: list[str], tensors: dict[str, torch.Tensor]) -> None:
        self.kernel = kernel
        self.names = names
        self.tensors = tensors
        self.function = FUNCTION
        self.packed_metadata = METADATA

    def launch_metadata(self, grid: tuple[int, ...], stream: int, *values: Any) -> Any:
        assert len(values) == len(self.names)
        return {"name": self.kernel.__name__, "grid": grid, "stream": stream}

    def run(
        self, x: int, y: int, z: int, stream: int, function: Any, metadata: Any, about: Any, enter: Any, leave: Any,
        *values: Any,
    ) -> None:  # fmt: skip
        if self.queue is not None:
            self.queue.append((self, x, y, z, stream, function, metadata, about, enter, leave, *values))
            return
        assert (stream, function, metadata) == (STREAM, FUNCTION, METADATA)
        given = dict(zip(self.names, values, strict=True))
        for name, tensor in self.tensors.items():
            assert given[name] == tensor.data_ptr()
        if enter is not None:
            enter(about)
        self.kernel[(x, y, z)](**(given | self.tensors))
        if leave is not None:
            leave(about)


class Compiler:
    """A JIT function around an interpreted kernel. Launching it the usual way is an error."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.signature = inspect.signature(kernel.fn)
        self.__name__ = kernel.__name__

    def warmup(self, *arguments: Any, grid: tuple[int, ...], **options: Any) -> CompiledKernel:
        names = list(self.signature.parameters)
        assert {*options} - {*names} <= {"num_warps", "maxnreg"}
        positional = dict(zip(names, arguments, strict=False))
        tensors = {name: value for name, value in positional.items() if isinstance(value, torch.Tensor)}
        return CompiledKernel(self.kernel, names, tensors)


def install(monkeypatch: pytest.MonkeyPatch, version: str = "3.6.0") -> SimpleNamespace:
    """Lets bindings find a GPU with compiled kernels; returns the hooks around their launches."""
    hooks = SimpleNamespace(launch_enter_hook=Hooks(), launch_exit_hook=Hooks())
    active = SimpleNamespace(get_current_stream=lambda index: STREAM)
    driver = SimpleNamespace(driver=SimpleNamespace(active=active))
    triton = SimpleNamespace(__version__=version, runtime=driver, knobs=SimpleNamespace(runtime=hooks))

    class Recorder(bound.Recorder):
        def __init__(self, device: torch.device) -> None:
            super().__init__(torch.device("cuda", 0))

        def __call__(self, kernel: Any, grid: tuple[int, ...], /, *arguments: Any, **options: Any) -> None:
            super().__call__(Compiler(kernel), grid, *arguments, **options)

    compiled = SimpleNamespace(INTERPRETED=False, refuse_capture=dispatch.refuse_capture)
    monkeypatch.setattr(bound, "triton", triton)
    monkeypatch.setattr(bound, "dispatch", compiled)
    monkeypatch.setattr(bound, "Recorder", Recorder)
    return hooks
