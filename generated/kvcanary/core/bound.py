# Written by kvcanary-gen from the spec; edit that instead.
"""Launches whose arguments are settled: checked once, then repeated at the cost of launching alone.

The one module that knows how Triton launches a compiled kernel. Where it does not know this Triton, or the kernels are
interpreted, it calls kernels as everybody does, with the arguments that were settled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton

from . import dispatch

# Launches one kernel, or computes one reference, given the handle of a stream.
Step = Callable[[int], object]

# Versions whose launchers take the grid's three sizes, stream, function, packed metadata, launch metadata, enter hook,
# exit hook and every parameter of the kernel in order, pointers as tensors or addresses. Others may differ.
_KNOWN = ("3.6", "3.7", "3.8", "3.9")
# What such a compiled kernel has.
_PARTS = ("run", "function", "packed_metadata", "launch_metadata")


class Bound:
    """A launch whose arguments are bound: a call repeats it.

    Made by the `bind_…` functions, which check the arguments. A call checks nothing, allocates nothing and waits for
    nothing. It launches on the stream that is current on the tensors' device at that time, whatever device is current,
    and CUDA graphs may capture it. Bind outside of them: it compiles and loads kernels, and may allocate scratch.

    What is in the tensors may change between calls; they are read and written as they are then. Nothing else may: the
    tensors stay the same memory, and their shapes, and all numbers, flags and members of enums, are those of the
    binding. To change one of these, bind again. All tensors are kept alive, scratch that was allocated included, which
    calls of one `Bound` share: they must not run at the same time on two streams.

    Where the torch reference was chosen, a call computes it, which no CUDA graph can capture.
    """

    __slots__ = ("__weakref__", "_content", "_device", "_held", "_index", "_name", "_steps", "_stream")

    def __init__(
        self,
        name: str,
        device: torch.device,
        steps: Sequence[Step],
        *,
        stream: Callable[[int | None], int] | None = None,
        content: str,
        held: object,
    ) -> None:
        self._name = name
        self._device = device
        # The device to be current during a call, None where there is no choice.
        self._index = device.index if device.type == "cuda" else None
        self._steps = tuple(steps)
        self._stream = stream
        self._content = content
        self._held = held

    def __call__(self) -> None:
        """Launches, or computes, once more."""
        index = self._index
        if index is None or index == torch.cuda.current_device():
            self._run(index)
        else:
            with torch.cuda.device(index):
                self._run(index)

    def _run(self, index: int | None) -> None:
        stream = self._stream(index) if self._stream is not None else 0
        for step in self._steps:
            step(stream)

    def __repr__(self) -> str:
        return f"<Bound {self._name} on {self._device}: {self._content}>"


def kernels(name: str, tensor: torch.Tensor, launch: Callable[..., None], /, **arguments: Any) -> Bound:
    """What `launch` launches for valid arguments; `tensor` lies on the device that it launches on."""
    recorder = Recorder(tensor.device)
    launch(**arguments, run=recorder)
    content = ", ".join(recorder.names) or "nothing to launch"
    return Bound(name, tensor.device, recorder.steps, stream=recorder.stream, content=content, held=arguments)


def reference(name: str, tensor: torch.Tensor, compute: Callable[..., None], /, **arguments: Any) -> Bound:
    """What `compute` computes for valid arguments; `tensor` lies on the device that they are on."""

    def step(_: int) -> None:
        dispatch.refuse_capture(name, tensor)
        compute(**arguments)

    return Bound(name, tensor.device, [step], content="torch reference", held=arguments)


# --- Kernels ----------------------------------------------------------------------------------------------------------


class Recorder:
    """Takes the place of `dispatch.launch`: compiles each kernel for its arguments, and keeps what will launch it.

    Attributes:
        steps (list): What launches each kernel.
        names (list of str): Each kernel with its grid.
        stream: What says which stream is current on a device; None where no step needs it.
    """

    def __init__(self, device: torch.device) -> None:
        self.steps: list[Step] = []
        self.names: list[str] = []
        self.stream: Callable[[int | None], int] | None = None
        # The launcher of a GPU of another kind may take anything.
        self._known = device.type == "cuda" and _minor(triton.__version__) in _KNOWN

    def __call__(self, kernel: Any, grid: tuple[int, ...], /, *arguments: Any, **options: Any) -> None:
        self.names.append(f"{kernel.__name__}[{', '.join(map(str, grid))}]")
        if not dispatch.INTERPRETED:
            compiled = kernel.warmup(*arguments, grid=grid, **options)
            if self._known and all(hasattr(compiled, part) for part in _PARTS):
                self.stream = triton.runtime.driver.active.get_current_stream
                self.steps.append(_direct_step(compiled, grid, _values(kernel, arguments, options)))
                return
        self.steps.append(_step(kernel, grid, arguments, options))


def _step(kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: dict[str, Any]) -> Step:
    """A launch as Triton documents it, which looks at all arguments again."""
    launch = kernel[grid]
    return lambda _: launch(*arguments, **options)


def _direct_step(compiled: Any, grid: tuple[int, ...], values: tuple[Any, ...]) -> Step:
    """A launch by the compiled kernel's own launcher, which takes everything as it is."""
    x, y, z = (*grid, 1, 1)[:3]
    run, function, metadata = compiled.run, compiled.function, compiled.packed_metadata
    settled = (function, metadata, None, None, None, *values)
    hooks = triton.knobs.runtime

    def launch(stream: int) -> None:
        enter, leave = hooks.launch_enter_hook, hooks.launch_exit_hook
        # Chains of nobody, unless a profiler is watching or has put something else there.
        if getattr(enter, "calls", True) or getattr(leave, "calls", True):
            about = compiled.launch_metadata((x, y, z), stream, *values)
            run(x, y, z, stream, function, metadata, about, enter, leave, *values)
        else:
            run(x, y, z, stream, *settled)

    return launch


def _values(kernel: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
    """Every parameter of a kernel, in order, tensors as their addresses."""
    parameters = kernel.signature.parameters
    named = {name: value for name, value in options.items() if name in parameters}
    given = kernel.signature.bind(*arguments, **named).arguments
    values = (given[name] for name in parameters)
    return tuple(value.data_ptr() if isinstance(value, torch.Tensor) else value for value in values)


def _minor(version: str) -> str:
    """`3.6.0+git1` without all that follows the second number."""
    return ".".join(version.split(".")[:2])
