"""Metadata of tensors, and host expressions over it in unbounded integers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kvcanary_gen.expr.nodes import Binary, Call, Compare, Const, Length, Logic, Node, Present, Select, Unary, Var


@dataclass(frozen=True)
class Meta:
    """A tensor without its elements: all that a validator may look at.

    `offset`: bytes from a multiple of any natural boundary to the first element.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: str = "cpu"
    offset: int = 0

    @staticmethod
    def packed(dtype: str, shape: tuple[int, ...], device: str = "cpu") -> Meta:
        strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        return Meta(dtype, shape, strides, device)

    @property
    def contiguous(self) -> bool:
        """Whether the elements are packed in row-major order; the stride of an axis of one element says nothing."""
        if 0 in self.shape:
            return True
        packed = Meta.packed(self.dtype, self.shape).strides
        return all(n == 1 or have == want for n, have, want in zip(self.shape, self.strides, packed, strict=True))


@dataclass(frozen=True)
class Member:
    """A member of an enum, by its value."""

    enum: str
    value: int


@dataclass(frozen=True)
class Fields:
    """A struct that stands in a list: its fields by name."""

    struct: str
    fields: Mapping[str, object]

    def changed(self, field: str, value: object) -> Fields:
        return Fields(self.struct, {**self.fields, field: value})


def evaluate(node: Node, call: Mapping[str, object]) -> int:
    """Value of a host expression in unbounded integers, a bool as 0 or 1.

    Names stand for scalars and sizes; the length of a missing tensor is 0.
    """
    if isinstance(node, Const):
        return node.value
    if isinstance(node, Var):
        value = call[node.name]
        value = value.value if isinstance(value, Member) else value
        assert isinstance(value, int), node.name
        return value
    if isinstance(node, Length):
        meta = call[node.name]
        return meta.shape[node.axis] if isinstance(meta, Meta) else 0
    if isinstance(node, Present):
        return int((call[node.name] is None) == node.negated)
    if isinstance(node, Select):
        return evaluate(node.then if evaluate(node.condition, call) else node.other, call)
    if isinstance(node, Logic):
        quantifier = all if node.op == "and" else any
        return int(quantifier(evaluate(item, call) for item in node.items))
    return _operation(node, [evaluate(child, call) for child in node.children()])


def _operation(node: Node, values: list[int]) -> int:
    if isinstance(node, Compare):
        left, right = values
        order = (left > right) - (left < right)
        return int(
            {
                "==": order == 0,
                "!=": order != 0,
                "<": order < 0,
                "<=": order <= 0,
                ">": order > 0,
                ">=": order >= 0,
            }[node.op]
        )
    if isinstance(node, Unary):
        return {"-": -values[0], "~": ~values[0], "not": int(not values[0])}[node.op]
    if isinstance(node, Binary):
        return _binary(node.op, *values)
    assert isinstance(node, Call) and node.builtin, node
    if node.function == "clamp":
        return min(max(values[0], values[1]), values[2])
    return {"min": min, "max": max}.get(node.function, lambda items: items[0])(values)


def _binary(op: str, left: int, right: int) -> int:
    if op in ("//", "%"):
        quotient, remainder = divmod(left, right)
        return quotient if op == "//" else remainder
    if op == "<<":
        return left << right
    if op == ">>":
        return left >> right
    return {"+": left + right, "-": left - right, "*": left * right, "&": left & right, "|": left | right}.get(
        op, left ^ right
    )
