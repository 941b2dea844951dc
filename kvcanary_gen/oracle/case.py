"""Calls of public functions as the interpreter takes them, and what comes out of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvcanary_gen.ir import KernelIR, Program, TensorArg
from kvcanary_gen.oracle.evaluate import Meta, evaluate
from kvcanary_gen.oracle.interpreter import Watch, run_kernel, run_operation
from kvcanary_gen.oracle.values import Array, Values, wrap
from kvcanary_gen.surface import Surface, operation_surface, workspace_lengths

# What outputs hold before a call: an element that still does was not written.
POISON = -7777


@dataclass(frozen=True)
class Case:
    """One call: path to tensor, integer, None, or a list of byte sources; flags and members of enums are integers.

    Nobody changes its arrays; whoever runs it takes copies.
    """

    surface: str
    args: Values


def poisoned(dtype: str, shape: tuple[int, ...]) -> Array:
    return Array(dtype, shape, [wrap(POISON, dtype)] * math.prod(shape))


def copied(values: Values) -> Values:
    return {p: v.copied() if isinstance(v, Array) else v for p, v in values.items()}


def run_case(
    program: Program,
    case: Case,
    *,
    instead: Callable[[str, Array], Array] | None = None,
    watch: Watch | None = None,
    copies: dict[int, Array] | None = None,
) -> Values:
    """All arguments as they are after the call; a workspace that was not given is None again.

    Args:
        instead: gives what the run works on instead of a tensor, such as one that settles stores otherwise.
        watch: is shown every point.
        copies: receives the case's own array for the id of every copy that the run works on.
    """
    args = copied(case.args)
    if copies is not None:
        copies.update({id(args[path]): v for path, v in case.args.items() if isinstance(v, Array)})
    if instead is not None:
        args = {path: instead(path, value) if isinstance(value, Array) else value for path, value in args.items()}
    if case.surface in program.kernels:
        run_kernel(program, program.kernels[case.surface], args, watch)
        return _plain(args)
    operation = program.operations[case.surface]
    missing = [workspace for workspace in operation.workspaces if args[workspace.name] is None]
    if missing:
        args |= _scratch(program, case)
    run_operation(program, operation, args, watch)
    return _plain(args | {workspace.name: None for workspace in missing})


def _plain(args: Values) -> Values:
    """Arrays of the base class alone, so that they compare equal."""
    return {p: v.copied() if isinstance(v, Array) and type(v) is not Array else v for p, v in args.items()}


def _scratch(program: Program, case: Case) -> Values:
    """Workspaces of an operation that were not given, as it would allocate them."""
    surface = operation_surface(program, program.operations[case.surface])
    metas = {p: Meta.packed(v.dtype, v.shape) if isinstance(v, Array) else v for p, v in case.args.items()}
    found: Values = {}
    for workspace in surface.workspaces:
        if case.args[workspace.name] is None:
            shape = tuple(evaluate(length, metas) for length in workspace_lengths(surface, workspace))
            found[workspace.name] = poisoned(workspace.dtype, shape)
    return found


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
