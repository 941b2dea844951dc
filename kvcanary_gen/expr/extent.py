"""What the host can say of the places that a fold reads: what they are multiples of, and how far they reach."""

from __future__ import annotations

from kvcanary_gen.expr.nodes import Binary, Const, Node, Type, Var
from kvcanary_gen.ir import FoldIR


def divisors(fold: FoldIR) -> list[str] | None:
    """Numbers of a source whose common divisors divide the first byte; None where nothing is known."""
    return _divisors(fold.byte, frozenset(fold.numbers))


def _divisors(node: Node, numbers: frozenset[str]) -> list[str] | None:
    if isinstance(node, Const) and node.value == 0:
        return []
    if isinstance(node, Var) and node.name in numbers:
        return [node.name]
    if isinstance(node, Binary) and node.op == "*":
        sides = [_divisors(side, numbers) for side in (node.left, node.right)]
        return next((side for side in sides if side is not None), None)
    if isinstance(node, Binary) and node.op in ("+", "-"):
        left, right = _divisors(node.left, numbers), _divisors(node.right, numbers)
        return None if left is None or right is None else [*left, *right]
    return None


def furthest(fold: FoldIR) -> Node | None:
    """The largest first byte, over the numbers of a source, which are positive; None where nothing is known."""
    return _largest(fold.byte, frozenset(fold.numbers))


def _largest(node: Node, numbers: frozenset[str]) -> Node | None:
    if isinstance(node, Const) and node.value >= 0:
        return node
    if isinstance(node, Var) and node.name in numbers:
        return node
    if not isinstance(node, Binary):
        return None
    if node.op == "%" and isinstance(node.right, Var) and node.right.name in numbers:
        return Binary(Type.INT, "-", node.right, Const(Type.INT, 1))
    if node.op in ("+", "*"):
        left, right = _largest(node.left, numbers), _largest(node.right, numbers)
        return None if left is None or right is None else Binary(Type.INT, node.op, left, right)
    return None
