"""Expressions over metadata as plain Python: sizes, scalars, lengths and presence, in unbounded integers."""

from __future__ import annotations

from collections.abc import Callable

from kvcanary_gen.emit.code import Atom, Code, Operator, Prefix, Ternary, compare, invoke, operator
from kvcanary_gen.expr.fold import constant
from kvcanary_gen.expr.nodes import (
    Binary,
    Call,
    Compare,
    Const,
    Length,
    Logic,
    Node,
    Present,
    Select,
    Type,
    Unary,
    Var,
)


def _no_length(node: Length) -> Code:
    raise TypeError(f"len({node.name}) has no meaning here")


def host_code(node: Node, length: Callable[[Length], Code] = _no_length) -> Code:
    """Code of a host expression; `length` names the lengths of tensors."""

    def value(part: Node) -> Code:
        return host_code(part, length)

    if isinstance(node, Const):
        return _constant(node)
    if isinstance(node, Length):
        return length(node)
    if isinstance(node, Var):
        return Atom(node.name)
    if isinstance(node, Present):
        return Operator("is" if node.negated else "is not", (Atom(node.name), Atom("None")))
    if isinstance(node, Unary):
        return Prefix(node.op, value(node.operand))
    if isinstance(node, Compare):
        constant_left = constant(node.left) is not None
        return compare(node.op, value(node.left), value(node.right), constant_left=constant_left)
    if isinstance(node, Binary):
        return operator(node.op, value(node.left), value(node.right))
    if isinstance(node, Logic):
        return operator(node.op, *map(value, node.items))
    if isinstance(node, Select):
        return Ternary(value(node.then), value(node.condition), value(node.other))
    assert isinstance(node, Call), node
    args = list(map(value, node.args))
    if node.function == "clamp":
        return invoke("min", invoke("max", args[0], args[1]), args[2])
    return args[0] if node.function in ("u64", "i64") else invoke(node.function, *args)


def _constant(node: Const) -> Code:
    if node.name is not None:
        return Atom(f"layout.{node.name}")
    return Atom(("True" if node.value else "False") if node.type is Type.BOOL else str(node.value))
