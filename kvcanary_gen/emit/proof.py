"""Which bounds checks an index does not need, because its own expression or a guard around it says so already."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvcanary_gen.expr.nodes import Binary, Call, Compare, Const, Logic, Node, Select, Type, Var, substitute
from kvcanary_gen.ir import AxisLength, FunctionIR

Fact = tuple[str, Node, Node]


@dataclass(frozen=True)
class Facts:
    """What holds where an expression is evaluated: comparisons `left < right` and `left <= right`.

    `holds` is true of every active lane; `guards` of those lanes alone for which conditions around the expression hold.
    """

    functions: dict[str, FunctionIR]
    lets: dict[str, Node]
    holds: frozenset[Fact] = frozenset()
    guards: frozenset[Fact] = frozenset()

    def with_let(self, name: str, node: Node) -> Facts:
        return replace(self, lets={**self.lets, name: node})

    def with_guard(self, guard: Node) -> Facts:
        return replace(self, guards=self.guards | frozenset(self._conjuncts(guard)))

    def without_guards(self) -> Facts:
        """For code that runs whatever the conditions around it say."""
        return replace(self, guards=frozenset())

    @property
    def _known(self) -> frozenset[Fact]:
        return self.holds | self.guards

    def with_less(self, left: Node, right: Node) -> Facts:
        return replace(self, holds=self.holds | {("<", left, right)})

    def _conjuncts(self, guard: Node) -> list[Fact]:
        guard = self._unfold(guard)
        if isinstance(guard, Logic) and guard.op == "and":
            return [fact for item in guard.items for fact in self._conjuncts(item)]
        if isinstance(guard, Compare):
            if guard.op in ("<", "<="):
                return [(guard.op, guard.left, guard.right)]
            if guard.op in (">", ">="):
                return [("<" if guard.op == ">" else "<=", guard.right, guard.left)]
        return []

    def _unfold(self, node: Node) -> Node:
        """Looks through names of conditions and calls of functions."""
        while True:
            if isinstance(node, Var) and node.kind == "let" and node.name in self.lets and node.type is Type.BOOL:
                node = self.lets[node.name]
            elif isinstance(node, Call) and not node.builtin and not self.functions[node.function].lets:
                function = self.functions[node.function]
                names = [name for name, _ in function.params]
                node = substitute(function.value, dict(zip(names, node.args, strict=True)))
            else:
                return node

    def not_negative(self, node: Node) -> bool:
        if isinstance(node, Const):
            return node.value >= 0
        if any(fact_right == node and self._floor(op, left) for op, left, fact_right in self._known):
            return True
        if isinstance(node, Var):
            return node.kind in ("index", "dim") or (node.name in self.lets and self.not_negative(self.lets[node.name]))
        if isinstance(node, Select):
            then = self.with_guard(node.condition)
            return then.not_negative(node.then) and self.not_negative(node.other)
        if isinstance(node, Call) and node.builtin and node.function in ("max", "min", "clamp"):
            if node.function == "max":
                return any(map(self.not_negative, node.args))
            return all(map(self.not_negative, node.args[node.function == "clamp" :]))
        return False

    @staticmethod
    def _floor(op: str, left: Node) -> bool:
        return isinstance(left, Const) and left.value >= (0 if op == "<=" else -1)

    def below(self, node: Node, axis: AxisLength) -> bool:
        """Whether `node` is certainly less than the length of `axis`."""
        length = axis.length
        if isinstance(node, Const) and isinstance(length, Const) and (node.value < length.value or not axis.at_least):
            return node.value < length.value
        if axis.at_least:
            return False
        if ("<", node, length) in self._known:
            return True
        if isinstance(node, Var) and node.name in self.lets:
            return self.below(self.lets[node.name], axis)
        if isinstance(node, Select):
            then = self.with_guard(node.condition)
            return then.below(node.then, axis) and self.below(node.other, axis)
        if isinstance(node, Call) and node.builtin and node.function in ("min", "clamp"):
            tops = node.args if node.function == "min" else node.args[2:]
            return any(_is_last(top, length) or self.below(top, axis) for top in tops)
        return False


def _is_last(node: Node, length: Node) -> bool:
    """`length - n` with n of at least 1."""
    return (
        isinstance(node, Binary)
        and node.op == "-"
        and node.left == length
        and isinstance(node.right, Const)
        and node.right.value >= 1
    )
