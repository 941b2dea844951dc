"""Operations that take many of a struct: whether their kernels can, and scratch of which each struct has a part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvcanary_gen.diagnostics import Mark
from kvcanary_gen.expr.nodes import Binary, Length, Present, Type, Var
from kvcanary_gen.ir import CallIR, FoldIR, FunctionIR, InvariantIR, KernelIR, OperationIR, StructIR, TensorArg
from kvcanary_gen.many import count_of, of_each, scratch_of_each, strays, variant
from kvcanary_gen.resolve.context import Context

RULE = "KVG-062"


def _unfit(struct: StructIR, structs: dict[str, StructIR]) -> Iterator[str]:
    """Why there is no table of a struct."""
    if not struct.table:
        yield f"{struct.name} has no `table` that could hold many"
    elif any(value.kind == "bytes" for value in struct.values):
        yield f"the table of {struct.name} goes where a list of sources does"
    elif not struct.fields:
        yield f"{struct.name} has no tensor, and so no device for a table"
    for value in struct.values:
        if value.kind == "list" and value.of in structs and not structs[value.of].table:
            yield f"'{value.name}' of {struct.name} is a list, and {value.of} has no `table` that could hold it"


def find_many(
    context: Context, operation: str, taken: list[tuple[str, StructIR, str]], structs: dict[str, StructIR]
) -> str:
    """The parameter of an operation that is a table of structs, empty where there is none."""
    declared = context.document.section("operations")[operation].structs
    found = [(name, struct) for name, struct, _ in taken if declared[name].many]
    for name, struct in found:
        for problem in _unfit(struct, structs) if struct.name not in context.noted else ():
            # One struct is one mistake, however many operations take many of it.
            context.noted.add(struct.name)
            context.out.add(context.document.mark("operations", operation, "structs", name, "many"), RULE, problem)
    for name, _ in found[1:]:
        mark = context.document.mark("operations", operation, "structs", name, "many")
        context.out.add(mark, RULE, f"{operation} takes many of '{found[0][0]}' already")
    # What follows from an unfit struct is no mistake of its own.
    return next((name for name, struct in found if not list(_unfit(struct, structs))), "")


def with_parts(operation: OperationIR) -> OperationIR:
    """The operation with scratch for every struct, where calls that are made for each of them write to it."""
    if not operation.many:
        return operation
    mine = scratch_of_each(operation, operation.calls)
    workspaces = tuple(_times(operation, w) if w.name in mine else w for w in operation.workspaces)
    return replace(operation, workspaces=workspaces)


def _times(operation: OperationIR, workspace: TensorArg) -> TensorArg:
    first, *others = workspace.shape
    count = count_of(operation.many)
    text = first.text.removeprefix(">=").strip()
    length = Binary(Type.INT, "*", Var(Type.INT, count, "dim"), first.length)
    shown = f"{'>= ' if first.at_least else ''}{count} * ({text})"
    return replace(workspace, shape=(replace(first, length=length, text=shown), *others))


def check_many(
    context: Context,
    operations: dict[str, OperationIR],
    functions: dict[str, FunctionIR],
    folds: dict[str, FoldIR],
    invariants: tuple[InvariantIR, ...],
) -> None:
    """Reports calls of operations that take many of a struct, and cannot."""
    sources = {name: fold.sources for name, fold in folds.items()}
    known = {name: context.document.mark("kernels", name) for name in context.document.names("kernels")}
    made: dict[str, tuple[str, object]] = {}
    before = context.out.troubles
    for operation, index, call in _launches(operations):
        if index == len(operation.calls) and context.out.troubles > before:
            # One launch in the place of others has their mistakes.
            continue
        kernel = variant(operation, call)
        mark = context.document.mark(
            "operations", operation.name, "calls", min(index, len(operation.calls) - 1), "kernel"
        )
        problems = list(strays(kernel, functions, sources))
        problems += [f"a kernel is called {kernel.name} already"] if kernel.name in known else []
        problems += [
            f"{rule.id} is a rule of {call.kernel.name} that reads {operation.many}, which are checked before"
            for rule in invariants
            if call.kernel.name in rule.operations and _reads_struct(kernel, rule)
        ]
        first = made.setdefault(kernel.name, (operation.name, kernel.each))
        if first[1] != kernel.each:
            problems.append(f"{first[0]} binds its arguments otherwise")
        for problem in problems:
            # A kernel that is fused from this one has the same.
            if problem not in context.noted:
                context.noted.add(problem)
                _fail(context, mark, call.kernel.name, operation.many, problem)


def _launches(operations: dict[str, OperationIR]) -> Iterator[tuple[OperationIR, int, CallIR]]:
    """What is launched for many structs: all calls with their places, and then what takes the place of all of them."""
    found = [(o, place, call) for o in operations.values() if o.many for place, call in enumerate(o.launches)]
    for operation, place, call in sorted(found, key=lambda one: one[1] == len(one[0].calls)):
        if len(call.bind) == len(call.kernel.arguments) and of_each(operation, call):
            yield operation, place, call


def _reads_struct(kernel: KernelIR, rule: InvariantIR) -> bool:
    """Whether a kernel's rule, or its message, speaks of what is read off the rows of a table."""
    assert kernel.each is not None and rule.rule is not None
    nodes = [rule.rule, *(part.value for part in rule.message if part.value is not None)]
    parts = [part for node in nodes for part in node.walk()]
    names = {part.name for part in parts if isinstance(part, (Var, Present, Length))}
    names |= {kernel.dims[name][0] for name in names if name in kernel.dims}
    return bool(names & set(kernel.each.arguments))


def _fail(context: Context, mark: Mark, kernel: str, many: str, problem: str) -> None:
    context.out.add(mark, RULE, f"{kernel} cannot take many {many}: {problem}")
