"""Resolves operations: how their arguments reach the kernels that they call."""

from __future__ import annotations

from kvcanary_gen.diagnostics import Mark
from kvcanary_gen.ir import CallIR, KernelIR, OperationIR, ScalarArg, StructIR, TensorArg
from kvcanary_gen.resolve.context import Context, size_names
from kvcanary_gen.resolve.data import Arguments, check_name
from kvcanary_gen.schema.code import Call, Operation


def resolve_operations(
    context: Context, arguments: Arguments, structs: dict[str, StructIR], kernels: dict[str, KernelIR]
) -> dict[str, OperationIR]:
    found: dict[str, OperationIR] = {}
    for name, operation in context.document.section("operations").items():
        resolved = _operation(context, name, operation, arguments, structs, kernels)
        if resolved is not None:
            found[name] = resolved
    return found


def _operation(
    context: Context,
    name: str,
    operation: Operation,
    arguments: Arguments,
    structs: dict[str, StructIR],
    kernels: dict[str, KernelIR],
) -> OperationIR | None:
    document, before = context.document, len(context.out.found)
    if name in document.section("kernels"):
        context.out.add(document.mark("operations", name), "KVG-014", f"'{name}' is a kernel already")
    taken: list[tuple[str, StructIR, str]] = []
    for arg, struct in operation.structs.items():
        mark = document.mark("operations", name, "structs", arg)
        check_name(context, arg, mark)
        if struct.type in structs:
            taken.append((arg, structs[struct.type], struct.doc))
        elif struct.type not in document.section("structs"):
            context.unknown(mark, "struct", struct.type, list(structs))
    args: list[TensorArg | ScalarArg] = []
    for index, arg in enumerate(operation.arguments):
        if arg in arguments:
            args.append(arguments[arg])
        elif arg not in document.section("arguments"):
            context.unknown(document.mark("operations", name, "arguments", index), "argument", arg, list(arguments))
    workspaces = [w for w in (_workspace(context, name, operation, w) for w in operation.workspaces) if w is not None]
    calls: list[CallIR] = []
    for index, call in enumerate(operation.calls):
        kernel = kernels.get(call.kernel)
        mark = document.mark("operations", name, "calls", index)
        if kernel is not None:
            bind = _bind(context, mark, call, kernel, taken, args, workspaces)
            calls.append(CallIR(kernel, bind))
        elif call.kernel not in document.section("kernels"):
            context.unknown(mark, "kernel", call.kernel, list(kernels))
    if len(context.out.found) > before or len(calls) != len(operation.calls):
        return None
    return OperationIR(
        name,
        operation.doc,
        operation.contract,
        operation.launcher,
        tuple(taken),
        tuple(args),
        tuple(workspaces),
        tuple(calls),
    )


def _workspace(context: Context, name: str, operation: Operation, workspace: str) -> TensorArg | None:
    declared = operation.workspaces[workspace]
    mark = context.document.mark("operations", name, "workspaces", workspace)
    check_name(context, workspace, mark)
    split = context.split_type(context.located(declared.type, mark))
    if split is None:
        return None
    dtype, axes = split
    if axes is None or len(axes) != 1 or size_names(axes, set(context.constants())):
        context.out.add(mark, "KVG-030", f"workspace '{workspace}' must be 1-D, with a length of constants alone")
        return None
    axis = context.axis(axes[0], set())
    return None if axis is None else TensorArg(workspace, dtype, (axis,), declared.doc, optional=True)


def _bind(
    context: Context,
    mark: Mark,
    call: Call,
    kernel: KernelIR,
    structs: list[tuple[str, StructIR, str]],
    arguments: list[TensorArg | ScalarArg],
    workspaces: list[TensorArg],
) -> dict[str, str]:
    """Kernel argument to path: an explicit binding, else the struct's field, else the same name."""
    named: dict[str, TensorArg | ScalarArg] = {arg.name: arg for arg in (*arguments, *workspaces)}
    for name in call.bind:
        if name not in kernel.tensors and name not in {s.name for s in kernel.scalars}:
            context.unknown(mark, f"argument of {kernel.name}", name, [*kernel.tensors])
    bound: dict[str, str] = {}
    for arg in (*kernel.inputs, *kernel.outputs, *kernel.scalars):
        target = call.bind.get(arg.name)
        if target is None and isinstance(arg, TensorArg) and arg.field is not None:
            owners = [name for name, struct, _ in structs if struct.name == arg.field[0]]
            if len(owners) == 1:
                bound[arg.name] = f"{owners[0]}.{arg.field[1]}"
                continue
            if owners:
                context.out.add(mark, "KVG-060", f"'{arg.name}' could come from {' or '.join(owners)}; bind it")
                continue
        target = target or arg.name
        given = named.get(target)
        if given is None:
            context.out.add(mark, "KVG-060", f"nothing supplies '{arg.name}' of {kernel.name}; add it, or bind it")
            continue
        problem = _mismatch(arg, given, given in workspaces)
        if problem:
            context.out.add(mark, "KVG-060", f"'{target}' cannot be '{arg.name}' of {kernel.name}: {problem}")
        bound[arg.name] = target
    return bound


def _mismatch(want: TensorArg | ScalarArg, given: TensorArg | ScalarArg, workspace: bool) -> str:
    if isinstance(want, ScalarArg) or isinstance(given, ScalarArg):
        return "" if isinstance(want, ScalarArg) and isinstance(given, ScalarArg) else "one is a tensor, one a scalar"
    if want.dtype != given.dtype:
        return f"dtype {given.dtype} is not {want.dtype}"
    if len(want.shape) != len(given.shape):
        return f"{len(given.shape)} axes are not {len(want.shape)}"
    if given.optional and not want.optional and not workspace:
        return "it may be missing"
    return ""
