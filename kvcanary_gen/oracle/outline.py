"""The metadata of a call while it is being drawn: sizes, scalars and presence, changed until every rule holds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

from kvcanary_gen.expr.nodes import Binary, Compare, CompareOp, Const, Length, Logic, Node, Present, Unary, Var
from kvcanary_gen.oracle.evaluate import Member, Meta, evaluate
from kvcanary_gen.oracle.listed import Layout
from kvcanary_gen.oracle.source import Source
from kvcanary_gen.surface import CheckedTensor, Surface

_Item = TypeVar("_Item", bound=Node)

MAX_SIZE = 8192
_ROUNDS = 20
_MIRRORED: dict[CompareOp, CompareOp] = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass
class Outline:
    """Sizes (scoped by their struct), scalars and settings, which optional tensors are there, slack of minimum lengths.

    A flag and a member of an enum are integers here. `lists` holds the byte sources without their bytes.
    `pinned` names sizes and scalars that `settle` leaves alone.
    """

    surface: Surface
    sizes: dict[str, int]
    scalars: dict[str, int]
    present: dict[str, bool]
    slack: dict[str, int] = field(default_factory=dict)
    free: dict[str, int] = field(default_factory=dict)
    pinned: frozenset[str] = frozenset()
    lists: dict[str, tuple[Layout, ...]] = field(default_factory=dict)

    def names(self, scope: str = "") -> dict[str, int]:
        """What an expression of the spec can name; sizes of the struct `scope` win."""
        bare = {name.rpartition(".")[2]: value for name, value in (*self.scalars.items(), *self.sizes.items())}
        own = {n.removeprefix(f"{scope}."): size for n, size in self.sizes.items() if n.startswith(f"{scope}.")}
        return {**self.free, **bare, **self.sizes, **self.scalars, **(own if scope else {})}

    def shape(self, tensor: CheckedTensor) -> tuple[int, ...]:
        return self._shape(tensor, self.names(tensor.scope))

    def _shape(self, tensor: CheckedTensor, names: dict[str, int]) -> tuple[int, ...]:
        lengths = [evaluate(axis.length, names) for axis in tensor.shape]
        slack = self.slack.get(tensor.path, 0)
        return tuple(n + slack if axis.at_least else n for n, axis in zip(lengths, tensor.shape, strict=True))

    def call(self) -> dict[str, object]:
        """Metadata as validators see it."""
        call: dict[str, object] = dict(self.scalars)
        for setting in self.surface.settings:
            value = self.scalars[setting.path]
            kinds = {"bool": bool(value), "enum": Member(setting.of, value)}
            call[setting.path] = kinds.get(setting.kind, value)
        call.update({path: tuple(layout.fields for layout in layouts) for path, layouts in self.lists.items()})
        names = {scope: self.names(scope) for scope in {tensor.scope for tensor in self.surface.tensors}}
        for tensor in self.surface.tensors:
            here = self.present.get(tensor.path, True)
            shape = self._shape(tensor, names[tensor.scope])
            call[tensor.path] = Meta.packed(tensor.dtype, shape) if here else None
        return call

    def with_pinned(self, name: str, value: int) -> Outline:
        """A copy in which one size or scalar has a value that stays."""
        scalars, sizes = dict(self.scalars), dict(self.sizes)
        (scalars if name in scalars else sizes)[name] = value
        pinned = self.pinned | {name}
        return replace(self, sizes=sizes, scalars=scalars, present=dict(self.present), pinned=pinned)

    def settle(self, source: Source) -> bool:
        """Changes what is not pinned until every rule holds; false where that did not work out."""
        for _ in range(_ROUNDS):
            call = self.call()
            broken = [rule.rule for rule in self.surface.rules if not evaluate(rule.rule, call)]
            if not broken:
                return all(0 <= size <= MAX_SIZE for size in self.sizes.values())
            if not self._repair(broken[0], source):
                return False
        return False

    def _repair(self, node: Node, source: Source) -> bool:
        """Makes one broken condition hold, in any of the ways that are open."""
        if isinstance(node, Present):
            self.present[node.name] = not node.negated
            return True
        if isinstance(node, Logic) and node.op == "and":
            return all(evaluate(item, self.call()) or self._repair(item, source) for item in node.items)
        if isinstance(node, Logic):
            return any(self._repair(item, source) for item in _shuffled(list(node.items), source))
        if isinstance(node, Unary) and node.op == "not" and isinstance(node.operand, Var):
            return self._set(self.scalars, node.operand.name, 0)
        if isinstance(node, Var):
            return self._set(self.scalars, node.name, 1)
        if not isinstance(node, Compare):
            return False
        turned = Compare(node.type, _MIRRORED[node.op], node.right, node.left)
        return any(self._assign(compare, source) for compare in _shuffled([node, turned], source))

    def _assign(self, compare: Compare, source: Source) -> bool:
        """Gives the left side a value that fits the right one."""
        right = evaluate(compare.right, self.call())
        room = source.pick((0, 0, 1, 2))
        value = {
            "==": right,
            "!=": right + 1 + room,
            "<": right - 1 - room,
            "<=": right - room,
            ">": right + 1 + room,
            ">=": right + room,
        }[compare.op]
        left = compare.left
        if isinstance(left, Var):
            return self._set(self.scalars, left.name, value)
        if isinstance(left, Length):
            return self._set_length(self.surface.tensor(left.name), left.axis, max(0, value))
        return False

    def _set_length(self, tensor: CheckedTensor, axis: int, value: int) -> bool:
        length = tensor.shape[axis].length
        if isinstance(length, Binary) and length.op == "+" and isinstance(length.right, Const):
            value -= length.right.value
            length = length.left
        if not isinstance(length, Var) or not 0 <= value <= MAX_SIZE:
            return False
        scoped = f"{tensor.scope}.{length.name}" if tensor.scope else length.name
        return self._set(self.sizes, scoped, value)

    def _set(self, values: dict[str, int], name: str, value: int) -> bool:
        if name in self.pinned or name not in values:
            return False
        values[name] = value
        return True


def _shuffled(items: list[_Item], source: Source) -> list[_Item]:
    start = source.integer(0, len(items) - 1)
    return items[start:] + items[:start]
