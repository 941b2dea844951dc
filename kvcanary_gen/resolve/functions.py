"""Resolves functions: types, the arguments they read, and that none calls itself."""

from __future__ import annotations

from kvcanary_gen.expr.nodes import Call, Length, Load, Node, Present, Type, Var
from kvcanary_gen.expr.parse import parse_expr
from kvcanary_gen.expr.scope import FunctionInfo, Scope, TensorInfo
from kvcanary_gen.ir import FunctionIR, ScalarArg, TensorArg
from kvcanary_gen.resolve.context import Context, low_bound
from kvcanary_gen.resolve.data import Arguments, check_name
from kvcanary_gen.schema.code import Function


def function_infos(declared: dict[str, Function]) -> dict[str, FunctionInfo]:
    return {n: FunctionInfo(tuple(Type(t) for t in f.params.values()), Type(f.returns)) for n, f in declared.items()}


def positive_scalars(arguments: Arguments) -> frozenset[str]:
    """Scalars whose declared values begin at 1 or more, so that they may divide."""
    found = set()
    for name, argument in arguments.items():
        if isinstance(argument, ScalarArg) and argument.values is not None:
            low = low_bound(argument.values.low)
            if low is not None and low >= 1:
                found.add(name)
    return frozenset(found)


def argument_scope(context: Context, arguments: Arguments, functions: dict[str, FunctionInfo]) -> Scope:
    """Scope in which all of `arguments` and their sizes are visible."""
    variables: dict[str, tuple[Type, str]] = {}
    tensors: dict[str, TensorInfo] = {}
    for name, argument in arguments.items():
        if isinstance(argument, ScalarArg):
            variables[name] = (argument.type, "scalar")
            continue
        tensors[name] = TensorInfo(argument.type, len(argument.shape), argument.optional)
        for axis in argument.shape:
            if axis.dim is not None:
                variables.setdefault(axis.dim, (Type.INT, "dim"))
    return Scope(variables, context.constants(), tensors, functions, positive_scalars(arguments))  # type: ignore[arg-type]


def resolve_functions(context: Context, arguments: Arguments) -> dict[str, FunctionIR]:
    declared: dict[str, Function] = context.document.section("functions")
    infos = function_infos(declared)
    base = argument_scope(context, arguments, infos)
    bodies: dict[str, tuple[list[tuple[str, Node]], Node]] = {}
    for name, function in declared.items():
        body = _body(context, name, function, base)
        if body is not None:
            bodies[name] = body
    order = _order(context, bodies)
    found: dict[str, FunctionIR] = {}
    for name in order:
        found[name] = _function(context, name, declared[name], bodies[name], found, arguments)
    return found


def _body(context: Context, name: str, function: Function, base: Scope) -> tuple[list[tuple[str, Node]], Node] | None:
    mark = context.document.mark("functions", name)
    scope = base
    for param, type_ in function.params.items():
        check_name(context, param, context.document.mark("functions", name, "params", param))
        scope = scope.with_variable(param, Type(type_), "param")
    lets: list[tuple[str, Node]] = []
    failed = False
    for let, text in function.let.items():
        check_name(context, let, context.document.mark("functions", name, "let", let))
        if let in dict(scope.variables):
            place = context.document.mark("functions", name, "let", let, key=True)
            context.out.add(place, "KVG-014", f"'{let}' is visible in {name} already")
        node = parse_expr(context.located(text, mark), scope, None, context.out, f"'{let}'")
        failed = failed or node is None
        # An unreadable let still declares its name, or every use of it would be reported too.
        scope = scope.with_variable(let, node.type if node else Type.INT, "let")
        if node is not None:
            lets.append((let, node))
    value = parse_expr(
        context.located(function.value, mark), scope, Type(function.returns), context.out, f"the value of {name}"
    )
    return None if failed or value is None else (lets, value)


def _order(context: Context, bodies: dict[str, tuple[list[tuple[str, Node]], Node]]) -> list[str]:
    """Callees before callers; a circle is reported once, where it begins."""
    calls = {
        name: [
            part.function
            for node in (*(n for _, n in lets), value)
            for part in node.walk()
            if isinstance(part, Call) and not part.builtin
        ]
        for name, (lets, value) in bodies.items()
    }
    order: list[str] = []
    state: dict[str, str] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if state.get(name) == "done" or name not in calls:
            return
        if name in path:
            circle = " -> ".join((*path[path.index(name) :], name))
            context.out.add(context.document.mark("functions", name), "KVG-025", f"functions call in a circle: {circle}")
            state[name] = "done"
            return
        for callee in calls[name]:
            visit(callee, (*path, name))
        if state.get(name) != "done":
            state[name] = "done"
            if all(callee in order for callee in calls[name]):
                order.append(name)

    for name in calls:
        visit(name, ())
    return order


def _function(
    context: Context,
    name: str,
    function: Function,
    body: tuple[list[tuple[str, Node]], Node],
    known: dict[str, FunctionIR],
    arguments: Arguments,
) -> FunctionIR:
    lets, value = body
    tensors: dict[str, None] = {}
    scalars: dict[str, None] = {}
    dims: dict[str, None] = {}
    presence: dict[str, None] = {}
    for node in (*(n for _, n in lets), value):
        for part in node.walk():
            if isinstance(part, (Load, Length)):
                tensor = part.tensor if isinstance(part, Load) else part.name
                tensors[tensor] = None
                argument = arguments[tensor]
                assert isinstance(argument, TensorArg)
                dims.update({axis.dim: None for axis in argument.shape if axis.dim})
            elif isinstance(part, Present):
                presence[part.name] = None
            elif isinstance(part, Var) and part.kind == "scalar":
                scalars[part.name] = None
            elif isinstance(part, Var) and part.kind == "dim":
                dims[part.name] = None
            elif isinstance(part, Call) and not part.builtin:
                callee = known[part.function]
                tensors.update(dict.fromkeys(callee.tensors))
                scalars.update(dict.fromkeys(callee.scalars))
                dims.update(dict.fromkeys(callee.dims))
                presence.update(dict.fromkeys(callee.presence))
    if function.public and (tensors or scalars or dims or presence):
        reads = ", ".join((*tensors, *scalars, *dims))
        mark = context.document.mark("functions", name, "public")
        context.out.add(mark, "KVG-010", f"{name} is public, so it cannot read kernel arguments ({reads})")
    return FunctionIR(
        name,
        function.doc,
        function.contract,
        tuple((p, Type(t)) for p, t in function.params.items()),
        Type(function.returns),
        tuple(lets),
        value,
        function.public,
        tuple(tensors),
        tuple(scalars),
        tuple(dims),
        tuple(presence),
    )
