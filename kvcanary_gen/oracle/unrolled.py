"""Operations that take many of a struct, spelt out for so many: one call after the other, which is what they mean.

The interpreter, the drawer and the judges know no tables. They see an operation that takes each struct by a name of its
own, such as 'contexts[1]', and whoever calls the package puts them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvcanary_gen.expr.nodes import Const, Type, substitute
from kvcanary_gen.ir import AxisLength, CallIR, OperationIR, Program, TensorArg
from kvcanary_gen.many import count_of, of_each


def unrolled(program: Program, count: int) -> Program:
    """The program with every table spelt out for `count` structs."""
    operations = {name: _operation(operation, count) for name, operation in program.operations.items()}
    return replace(program, operations=operations)


def _operation(operation: OperationIR, count: int) -> OperationIR:
    if not operation.many:
        return operation
    instances = tuple(f"{operation.many}[{place}]" for place in range(count))
    structs = [
        (name, struct, doc)
        for taken, struct, doc in operation.structs
        for name in (instances if taken == operation.many else (taken,))
    ]
    return replace(
        operation,
        structs=tuple(structs),
        workspaces=tuple(_workspace(operation, workspace, count) for workspace in operation.workspaces),
        calls=tuple(_calls(operation, instances)),
        many="",
        instances=instances,
        table=operation.many,
    )


def _calls(operation: OperationIR, instances: tuple[str, ...]) -> Iterator[CallIR]:
    prefix = f"{operation.many}."
    for call in operation.calls:
        if not of_each(operation, call):
            yield call
            continue
        for instance in instances:
            bind = {
                n: f"{instance}.{p.removeprefix(prefix)}" if p.startswith(prefix) else p for n, p in call.bind.items()
            }
            yield CallIR(call.kernel, bind)


def _workspace(operation: OperationIR, workspace: TensorArg, count: int) -> TensorArg:
    known = {count_of(operation.many): Const(Type.INT, count)}

    def settled(axis: AxisLength) -> AxisLength:
        return replace(axis, length=substitute(axis.length, known))  # type: ignore[arg-type]

    return replace(workspace, shape=tuple(map(settled, workspace.shape)))
