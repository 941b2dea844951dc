"""Calls of public functions as the interpreter takes them, and what comes out of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from kvcanary_gen.ir import KernelIR, Program, TensorArg
from kvcanary_gen.oracle.evaluate import evaluate
from kvcanary_gen.oracle.interpreter import run_kernel, run_operation
from kvcanary_gen.oracle.values import Array, Values, wrap
from kvcanary_gen.surface import Surface

# What outputs hold before a call: an element that still does was not written.
POISON = -7777


@dataclass(frozen=True)
class Case:
    """One call: path to tensor, integer or None. Nobody changes its arrays; whoever runs it takes copies."""

    surface: str
    args: Values


def poisoned(dtype: str, shape: tuple[int, ...]) -> Array:
    return Array(dtype, shape, [wrap(POISON, dtype)] * math.prod(shape))


def copied(values: Values) -> Values:
    return {p: Array(v.dtype, v.shape, list(v.data)) if isinstance(v, Array) else v for p, v in values.items()}


def run_case(program: Program, case: Case) -> Values:
    """All arguments as they are after the call; a workspace that was not given is None again."""
    args = copied(case.args)
    if case.surface in program.kernels:
        run_kernel(program, program.kernels[case.surface], args)
        return args
    operation = program.operations[case.surface]
    missing = [workspace for workspace in operation.workspaces if args[workspace.name] is None]
    for workspace in missing:
        length = evaluate(workspace.shape[0].length, {})
        args[workspace.name] = poisoned(workspace.dtype, (length,))
    run_operation(program, operation, args)
    return args | {workspace.name: None for workspace in missing}


def calls(program: Program, surface: Surface) -> Iterable[tuple[KernelIR, dict[str, str]]]:
    """Every kernel that a surface launches, with the path that each of the kernel's arguments comes from."""
    if surface.name in program.kernels:
        kernel = program.kernels[surface.name]
        yield kernel, {argument.name: argument.name for argument in kernel.arguments}
        return
    for call in program.operations[surface.name].calls:
        yield call.kernel, call.bind


def input_at(program: Program, surface: Surface, path: str) -> TensorArg | None:
    """How a kernel declares what it reads at `path`, if one does before any writes there."""
    for kernel, bind in calls(program, surface):
        for argument in (*kernel.outputs, *kernel.inputs):
            if bind[argument.name] == path:
                return None if argument in kernel.outputs else argument
    return None


def surface_dim(surface: Surface, kernel: KernelIR, bind: dict[str, str], dim: str) -> str | None:
    """The surface's own name for a size of one of its kernels."""
    tensor, axis = kernel.dims[dim]
    return next((name for name, place in surface.dims.items() if place == (bind[tensor], axis)), None)
