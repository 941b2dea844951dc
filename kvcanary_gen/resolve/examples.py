"""Whether the example of an invariant breaks its rule, as far as the example alone can tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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
    Unary,
    Var,
)


def evaluate(node: Node, example: Mapping[str, object]) -> int | bool | None:
    """Value of a host expression where `example` decides it, else None.

    An example gives integers for scalars and sizes, None for tensors that are missing, and shapes for others.
    """
    if isinstance(node, Const):
        return node.value
    if isinstance(node, Var):
        value = example.get(node.name)
        return value if isinstance(value, int) else None
    if isinstance(node, Length):
        return _length(example.get(node.name), node.axis)
    if isinstance(node, Present):
        return None if node.name not in example else (example[node.name] is None) == node.negated
    if isinstance(node, Logic):
        return _logic(node, [evaluate(item, example) for item in node.items])
    if isinstance(node, Select):
        condition = evaluate(node.condition, example)
        return None if condition is None else evaluate(node.then if condition else node.other, example)
    values = [evaluate(child, example) for child in node.children()]
    known = [value for value in values if value is not None]
    return _computed(node, known) if len(known) == len(values) else None


def _length(shape: object, axis: int) -> int | None:
    return shape[axis] if isinstance(shape, list) and axis < len(shape) and isinstance(shape[axis], int) else None


def _logic(node: Logic, values: list[int | bool | None]) -> bool | None:
    decisive = node.op == "or"
    if any(value is not None and bool(value) == decisive for value in values):
        return decisive
    return None if None in values else not decisive


def _computed(node: Node, values: list[int]) -> int | None:
    if isinstance(node, Binary) and node.op in ("//", "%") and values[1] <= 0:
        return None
    parts = [Const(child.type, value) for child, value in zip(node.children(), values, strict=True)]
    if isinstance(node, (Binary, Compare)):
        return constant(replace(node, left=parts[0], right=parts[1]))
    if isinstance(node, Unary):
        return constant(replace(node, operand=parts[0]))
    return constant(replace(node, args=tuple(parts))) if isinstance(node, Call) else None
