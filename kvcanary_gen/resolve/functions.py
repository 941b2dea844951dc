"""Resolves functions: types, the arguments they read, and that none calls itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kvcanary_gen.expr.fold import constant
from kvcanary_gen.expr.nodes import Call, Load, Node, Present, Type, Var
from kvcanary_gen.expr.parse import parse_expr
from kvcanary_gen.expr.scope import FunctionInfo, Scope, TensorInfo, Variables
from kvcanary_gen.ir import FunctionIR, ScalarArg, SourcesArg, TensorArg, ValueRange
from kvcanary_gen.resolve.context import Arguments, Context
from kvcanary_gen.resolve.lets import LetReader
from kvcanary_gen.resolve.records import enum_members, record_fields
from kvcanary_gen.schema.code import Function


def function_infos(declared: dict[str, Function]) -> dict[str, FunctionInfo]:
    return {n: FunctionInfo(tuple(Type(t) for t in f.params.values()), Type(f.returns)) for n, f in declared.items()}


def positive_scalars(arguments: Arguments) -> frozenset[str]:
    """Scalars whose declared values begin at 1 or more, so that they may divide."""
    found = set()
    for name, argument in arguments.items():
        if isinstance(argument, ScalarArg) and isinstance(argument.values, ValueRange):
            low = constant(argument.values.low)
            if low is not None and low >= 1:
                found.add(name)
    return frozenset(found)


def argument_scope(context: Context, arguments: Arguments, functions: dict[str, FunctionInfo]) -> Scope:
    """Scope in which all of `arguments` and their sizes are visible."""
    variables: Variables = {}
    tensors: dict[str, TensorInfo] = {}
    for name, argument in arguments.items():
        if isinstance(argument, ScalarArg):
            variables[name] = (argument.type, "static" if argument.static else "scalar")
            continue
        if isinstance(argument, SourcesArg):
            continue
        fields = record_fields(context.document, argument.record) if argument.record else None
        tensors[name] = TensorInfo(argument.type, len(argument.shape), argument.optional, fields)
        for axis in argument.shape:
            if axis.dim is not None:
                variables.setdefault(axis.dim, (Type.INT, "dim"))
    broken = context.failed_constants | context.failed("enums", context.document.section("enums"))
    positive, members = positive_scalars(arguments), enum_members(context.document)
    return Scope(variables, context.constants, tensors, functions, positive, broken=broken, members=members)


@dataclass(frozen=True)
class _Body:
    lets: list[tuple[str, Node]]
    value: Node

    def parts(self) -> Iterator[Node]:
        for node in (*(node for _, node in self.lets), self.value):
            yield from node.walk()

    def calls(self) -> list[str]:
        return [part.function for part in self.parts() if isinstance(part, Call) and not part.builtin]


def resolve_functions(context: Context, arguments: Arguments) -> dict[str, FunctionIR]:
    declared: dict[str, Function] = context.document.section("functions")
    statics = {n for n, a in arguments.items() if isinstance(a, ScalarArg) and a.static}
    plain = {n: a for n, a in arguments.items() if n not in statics}
    base = argument_scope(context, plain, function_infos(declared))
    broken = context.failed("functions", declared) | context.failed("arguments", arguments)
    hidden = dict.fromkeys(_unread_sizes(arguments, base), "is a whole axis of no tensor, so it has no value")
    hidden |= dict.fromkeys(statics, "is static, and functions take no statics; choose in the kernel")
    broken |= base.broken | context.failed_sizes(arguments)
    base = replace(base, broken=broken, hidden=hidden, noted=context.noted)
    bodies: dict[str, _Body] = {}
    for name, function in declared.items():
        body = _body(context, name, function, base)
        if body is not None:
            bodies[name] = body
    found: dict[str, FunctionIR] = {}
    for name in _order(context, bodies):
        found[name] = _function(context, name, declared[name], bodies[name], found, arguments)
    return found


def _unread_sizes(arguments: Arguments, scope: Scope) -> set[str]:
    """Sizes in shapes that no tensor has as one whole axis."""
    axes = [axis for argument in arguments.values() if isinstance(argument, TensorArg) for axis in argument.shape]
    parts = [part for axis in axes for part in axis.length.walk()]
    return {part.name for part in parts if isinstance(part, Var) and part.name not in scope.variables}


def _body(context: Context, name: str, function: Function, base: Scope) -> _Body | None:
    document = context.document
    reader = LetReader(context, name, base)
    for param, type_ in function.params.items():
        reader.declare(param, document.mark("functions", name, "params", param, key=True))
        reader.scope = reader.scope.with_variable(param, Type(type_), "param")
    for let, text in function.let.items():
        key = document.mark("functions", name, "let", let, key=True)
        reader.read(let, context.located(text, key), key)
    text = context.located(function.value, document.mark("functions", name, "value"))
    value = parse_expr(text, reader.scope, Type(function.returns), context.out, f"the value of {name}")
    return None if value is None or len(reader.lets) < len(function.let) else _Body(reader.lets, value)


def _order(context: Context, bodies: dict[str, _Body]) -> list[str]:
    """Callees before callers; a circle is reported once, where it begins, and those that need it are left out."""
    calls = {name: list(dict.fromkeys(body.calls())) for name, body in bodies.items()}
    order: dict[str, None] = {}
    done: set[str] = set()
    for first in calls:
        path = [first]
        while path:
            name = path[-1]
            pending = [callee for callee in calls[name] if callee in calls and callee not in done]
            if name in done or not pending:
                if name not in done and all(callee in order for callee in calls[name]):
                    order[name] = None
                done.add(name)
                path.pop()
            elif pending[0] in path:
                circle = path[path.index(pending[0]) :]
                first_declared = circle.index(min(circle, key=list(calls).index))
                circle = [*circle[first_declared:], *circle[: first_declared + 1]]
                mark = context.document.mark("functions", circle[0])
                context.out.add(mark, "KVG-025", f"functions call in a circle: {' -> '.join(circle)}")
                done.update(circle)
            else:
                path.append(pending[0])
    return list(order)


@dataclass
class _Reads:
    """Arguments of the calling kernel that a body reads, in order; dicts for sets that keep it."""

    tensors: dict[str, None] = field(default_factory=dict)
    scalars: dict[str, None] = field(default_factory=dict)
    dims: dict[str, None] = field(default_factory=dict)
    presence: dict[str, None] = field(default_factory=dict)

    def add(self, part: Node, arguments: Arguments, known: dict[str, FunctionIR]) -> None:
        if isinstance(part, Load):
            argument = arguments[part.tensor]
            assert isinstance(argument, TensorArg)
            self.tensors[part.tensor] = None
            self.dims.update({axis.dim: None for axis in argument.shape if axis.dim})
        elif isinstance(part, Present):
            self.presence[part.name] = None
        elif isinstance(part, Var) and part.kind in ("scalar", "dim"):
            (self.scalars if part.kind == "scalar" else self.dims)[part.name] = None
        elif isinstance(part, Call) and not part.builtin:
            callee = known[part.function]
            for mine, theirs in (
                (self.tensors, callee.tensors),
                (self.scalars, callee.scalars),
                (self.dims, callee.dims),
                (self.presence, callee.presence),
            ):
                mine.update(dict.fromkeys(theirs))


def _function(
    context: Context, name: str, function: Function, body: _Body, known: dict[str, FunctionIR], arguments: Arguments
) -> FunctionIR:
    reads = _Reads()
    for part in body.parts():
        reads.add(part, arguments, known)
    names = list(dict.fromkeys((*reads.tensors, *reads.scalars, *reads.dims, *reads.presence)))
    if function.public and names:
        mark = context.document.mark("functions", name, "public")
        context.out.add(mark, "KVG-010", f"{name} is public, so it cannot read kernel arguments ({', '.join(names)})")
        reads = _Reads()
        # Whoever calls it is told nothing of them.
        reads = _Reads()
    return FunctionIR(
        name,
        function.doc,
        function.contract,
        tuple((p, Type(t)) for p, t in function.params.items()),
        Type(function.returns),
        tuple(body.lets),
        body.value,
        function.public,
        tuple(reads.tensors),
        tuple(reads.scalars),
        tuple(reads.dims),
        tuple(reads.presence),
    )
