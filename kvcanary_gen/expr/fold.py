"""Constants that are computed before any code is written, with the wrapping that Triton's compile-time numbers lack."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kvcanary_gen.expr.nodes import (
    Binary,
    Call,
    Compare,
    Const,
    Load,
    Logic,
    Node,
    Select,
    Type,
    Unary,
    mapped,
    negated,
)

if TYPE_CHECKING:
    from kvcanary_gen.ir import TensorArg

_WORD = (1 << 64) - 1
_BINARY: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
}
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def wrapped(value: int, type_: Type) -> int:
    """The 64 low bits as the type reads them."""
    value &= _WORD
    return value - (1 << 64) if type_ is Type.INT and value >> 63 else value


def constant(node: Node) -> int | None:
    """Value of an expression of constants alone, a bool as 0 or 1; None where anything else is in it."""
    if isinstance(node, Const):
        return node.value
    if not isinstance(node, (Unary, Binary, Compare, Logic, Select)) and not (isinstance(node, Call) and node.builtin):
        return None
    parts = [constant(child) for child in node.children()]
    known = [part for part in parts if part is not None]
    return _evaluate(node, known) if len(known) == len(parts) else None


def _evaluate(node: Node, parts: list[int]) -> int:
    if isinstance(node, Compare):
        return int(_COMPARE[node.op](*parts))
    if isinstance(node, Logic):
        return int(all(parts) if node.op == "and" else any(parts))
    if isinstance(node, Select):
        return parts[1] if parts[0] else parts[2]
    if isinstance(node, Unary):
        if node.op == "not":
            return int(not parts[0])
        return wrapped(-parts[0] if node.op == "-" else ~parts[0], node.type)
    if isinstance(node, Binary):
        return wrapped(_BINARY[node.op](*parts), node.type)
    assert isinstance(node, Call)
    if node.function == "clamp":
        return min(max(parts[0], parts[1]), parts[2])
    if node.function in ("min", "max"):
        return min(parts) if node.function == "min" else max(parts)
    return wrapped(parts[0], node.type)


def simplified(node: Node, tensors: Mapping[str, TensorArg]) -> Node:
    """`node` folded throughout, and loads that are certainly outside their tensor replaced by what they read."""
    node = folded(mapped(node, lambda child: simplified(child, tensors)))
    if isinstance(node, Load) and any((constant(index) or 0) < 0 for index in node.indices):
        return Const(node.type, wrapped(tensors[node.tensor].outside, node.type))
    return node


def folded(node: Node) -> Node:
    """`node` with its constant part computed. A sum or product that cannot wrap keeps the names of its constants."""
    if isinstance(node, Const) or _readable(node):
        return node
    value = constant(node)
    if value is not None:
        return Const(node.type, value)
    if isinstance(node, Unary):
        return _unary(node)
    if isinstance(node, Select):
        return _select(node)
    if isinstance(node, Logic):
        return _logic(node)
    if isinstance(node, Compare):
        return _compare(node)
    if isinstance(node, Call) and node.builtin and node.function in ("min", "max"):
        return _extreme(node)
    return node


def _readable(node: Node) -> bool:
    """Whether an expression of constants is exact in unbounded integers, and names one of them."""
    if isinstance(node, Const):
        return True
    if not isinstance(node, Binary) or node.op not in ("+", "-", "*") or node.type is not Type.INT:
        return False
    if not any(isinstance(part, Const) and part.name is not None for part in node.walk()):
        return False
    sides = constant(node.left), constant(node.right)
    exact = None not in sides and constant(node) == _BINARY[node.op](*sides)  # type: ignore[arg-type]
    return exact and _readable_side(node.left) and _readable_side(node.right)


def _readable_side(node: Node) -> bool:
    return isinstance(node, Const) or _readable(node)


def _unary(node: Unary) -> Node:
    operand = node.operand
    if isinstance(operand, Unary) and node.op == operand.op:
        return operand.operand
    if node.op == "not" and isinstance(operand, Compare):
        return negated(operand)
    return node


def _select(node: Select) -> Node:
    chosen = constant(node.condition)
    if chosen is not None:
        return folded(node.then if chosen else node.other)
    if node.then == node.other:
        return node.then
    values = constant(node.then), constant(node.other)
    if node.type is Type.BOOL and values in ((1, 0), (0, 1)):
        return folded(node.condition if values == (1, 0) else Unary(Type.BOOL, "not", node.condition))
    return node


def _compare(node: Compare) -> Node:
    """A choice between two numbers, compared with a third, is a question of its condition alone."""
    choice, number = node.left, constant(node.right)
    if not isinstance(choice, Select) or number is None:
        return node
    then, other = constant(choice.then), constant(choice.other)
    if then is None or other is None:
        return node
    holds, fails = _COMPARE[node.op](then, number), _COMPARE[node.op](other, number)
    if holds == fails:
        return Const(Type.BOOL, int(holds))
    return choice.condition if holds else negated(choice.condition)


def _logic(node: Logic) -> Node:
    neutral = int(node.op == "and")
    known = [constant(item) for item in node.items]
    if 1 - neutral in known:
        return Const(Type.BOOL, 1 - neutral)
    items = tuple(item for item, value in zip(node.items, known, strict=True) if value is None)
    return folded(items[0]) if len(items) == 1 else Logic(Type.BOOL, node.op, items)


def _extreme(node: Call) -> Node:
    """At most one constant among the arguments, at the end."""
    numbers = [value for arg in node.args if (value := constant(arg)) is not None]
    if len(numbers) < 2:
        return node
    best = min(numbers) if node.function == "min" else max(numbers)
    others = tuple(arg for arg in node.args if constant(arg) is None)
    return Call(node.type, node.function, (*others, Const(node.type, best)), builtin=True)
