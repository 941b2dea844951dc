"""Typed expression trees. They carry no text of any target language.

Every integer is int64 or uint64 and wraps; `//` and `%` round down; a load outside its tensor reads the argument's
`outside` value. Each of the three meanings (Triton, torch, scalar) is written against these definitions on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal


class Type(str, Enum):
    INT = "int64"
    UINT = "uint64"
    BOOL = "bool"


VarKind = Literal["index", "let", "param", "scalar", "static", "dim", "total"]


@dataclass(frozen=True)
class Node:
    type: Type

    def children(self) -> tuple[Node, ...]:
        return ()

    def walk(self) -> Iterator[Node]:
        yield self
        for child in self.children():
            yield from child.walk()


@dataclass(frozen=True)
class Const(Node):
    """A literal, or a named constant of the spec."""

    value: int
    name: str | None = None


@dataclass(frozen=True)
class Var(Node):
    name: str
    kind: VarKind


@dataclass(frozen=True)
class Load(Node):
    """An element of a tensor argument, widened to int64 (uint64 tensors stay unsigned)."""

    tensor: str
    indices: tuple[Node, ...]

    def children(self) -> tuple[Node, ...]:
        return self.indices


@dataclass(frozen=True)
class Present(Node):
    """`name is not None` (or `is None` when negated): known before launch."""

    name: str
    negated: bool = False


@dataclass(frozen=True)
class Length(Node):
    """`len(name)` in a host-side rule, or the length of another axis."""

    name: str
    axis: int = 0


@dataclass(frozen=True)
class Unary(Node):
    op: Literal["-", "~", "not"]
    operand: Node

    def children(self) -> tuple[Node, ...]:
        return (self.operand,)


BinaryOp = Literal["+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>"]


@dataclass(frozen=True)
class Binary(Node):
    op: BinaryOp
    left: Node
    right: Node

    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)


CompareOp = Literal["==", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True)
class Compare(Node):
    op: CompareOp
    left: Node
    right: Node

    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True)
class Logic(Node):
    op: Literal["and", "or"]
    items: tuple[Node, ...]

    def children(self) -> tuple[Node, ...]:
        return self.items


@dataclass(frozen=True)
class Select(Node):
    """`then if condition else other`; the branch not taken has no effect."""

    condition: Node
    then: Node
    other: Node

    def children(self) -> tuple[Node, ...]:
        return (self.condition, self.then, self.other)


@dataclass(frozen=True)
class Call(Node):
    """A call of a spec function, or of a builtin (min, max, clamp, u64, i64)."""

    function: str
    args: tuple[Node, ...]
    builtin: bool

    def children(self) -> tuple[Node, ...]:
        return self.args


@dataclass(frozen=True)
class Fold(Node):
    """The value of a fold over the bytes of real-KV sources."""

    name: str
    args: tuple[Node, ...]

    def children(self) -> tuple[Node, ...]:
        return self.args


def is_static(node: Node) -> bool:
    """Whether a condition is made of presence tests and static scalars alone, so that it is known before launch."""
    if isinstance(node, Present):
        return True
    if isinstance(node, Var):
        return node.kind == "static" and node.type is Type.BOOL
    if isinstance(node, Compare):
        sides = (node.left, node.right)
        return any(_is_static_number(side) for side in sides) and all(
            isinstance(side, Const) or _is_static_number(side) for side in sides
        )
    if isinstance(node, Logic):
        return all(is_static(item) for item in node.items)
    return isinstance(node, Unary) and node.op == "not" and is_static(node.operand)


def _is_static_number(node: Node) -> bool:
    return isinstance(node, Var) and node.kind == "static"


def loads(node: Node) -> Iterator[Load]:
    for part in node.walk():
        if isinstance(part, Load):
            yield part


def names_of(node: Node, kind: VarKind) -> set[str]:
    return {part.name for part in node.walk() if isinstance(part, Var) and part.kind == kind}


def mapped(node: Node, change: Callable[[Node], Node]) -> Node:
    """`node` with every child changed."""
    if isinstance(node, Unary):
        return replace(node, operand=change(node.operand))
    if isinstance(node, (Binary, Compare)):
        return replace(node, left=change(node.left), right=change(node.right))
    if isinstance(node, Logic):
        return replace(node, items=tuple(map(change, node.items)))
    if isinstance(node, Select):
        return Select(node.type, change(node.condition), change(node.then), change(node.other))
    if isinstance(node, Load):
        return replace(node, indices=tuple(map(change, node.indices)))
    if isinstance(node, (Call, Fold)):
        return replace(node, args=tuple(map(change, node.args)))
    return node


def substitute(node: Node, values: dict[str, Node]) -> Node:
    """`node` with variables replaced by expressions."""
    if isinstance(node, Var):
        return values.get(node.name, node)
    return mapped(node, lambda child: substitute(child, values))


OPPOSITES: dict[CompareOp, CompareOp] = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def negated(node: Node) -> Node:
    """The opposite of a condition, written the way a person would."""
    if isinstance(node, Compare):
        return replace(node, op=OPPOSITES[node.op])
    if isinstance(node, Logic):
        return Logic(Type.BOOL, "or" if node.op == "and" else "and", tuple(negated(item) for item in node.items))
    if isinstance(node, Present):
        return replace(node, negated=not node.negated)
    if isinstance(node, Unary) and node.op == "not":
        return node.operand
    return Unary(Type.BOOL, "not", node)
