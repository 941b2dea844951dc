"""Types operators, comparisons and conditionals."""

from __future__ import annotations

import ast

from kvcanary_gen.expr.checker import Checker, Literal, each
from kvcanary_gen.expr.fold import constant
from kvcanary_gen.expr.nodes import (
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Const,
    Logic,
    Node,
    Present,
    Select,
    Type,
    Unary,
    Var,
    is_static,
)
from kvcanary_gen.expr.syntax import Failed

_BINARY: dict[type[ast.operator], BinaryOp] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
_COMPARE: dict[type[ast.cmpop], CompareOp] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


class OperatorChecker(Checker):
    def _visit_UnaryOp(self, node: ast.UnaryOp) -> Node | Literal:
        if isinstance(node.op, ast.Not):
            return Unary(Type.BOOL, "not", self.condition(node.operand, "operand of not"))
        operand = self.visit(node.operand)
        if isinstance(operand, Literal):
            value = {ast.USub: -operand.value, ast.Invert: ~operand.value}.get(type(node.op), operand.value)
            return Literal(value, node)
        if operand.type is Type.BOOL:
            self.fail(node, "KVG-022", "arithmetic on bool; use `1 if x else 0`")
        if isinstance(node.op, ast.UAdd):
            return operand
        return Unary(operand.type, "-" if isinstance(node.op, ast.USub) else "~", operand)

    def _visit_BinOp(self, node: ast.BinOp) -> Node | Literal:
        at = self.text.between(node.left, node.right)
        op = _BINARY.get(type(node.op))
        if op is None:
            self.foreign(node.op, at, "; use //" if isinstance(node.op, ast.Div) else "")
        sides = [node.left, node.right]
        left, right = self.alike(each(sides, self.visit), sides, f"'{op}'")
        if left.type is Type.BOOL:
            self.fail(at, "KVG-022", f"'{op}' on bool; use and, or, not")
        if op in ("<<", ">>"):
            if left.type is not Type.UINT:
                self.fail(at, "KVG-022", "shifts are for uint64 (`>>` of int64 would be arithmetic); use u64(x)")
            if not (isinstance(right, Const) and right.value < 64):
                self.fail(node.right, "KVG-022", "a shift distance must be a number from 0 to 63")
        if op in ("//", "%"):
            self._check_divisor(node, at, op, left, right)
        return Binary(left.type, op, left, right)

    def _check_divisor(self, node: ast.BinOp, at: int, op: str, left: Node, right: Node) -> None:
        if left.type is not Type.INT:
            self.fail(at, "KVG-022", f"'{op}' is for int64")
        value = constant(right)
        scalar = isinstance(right, Var) and right.kind in ("scalar", "param") and right.name in self.scope.positive
        if not scalar and (value is None or value <= 0):
            self.fail(node.right, "KVG-026", "the divisor is not known to be positive")

    def _visit_Compare(self, node: ast.Compare) -> Node:
        if isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return self._presence(node)
        sides = [node.left, *node.comparators]
        if len(node.ops) > 1 and self.in_chain:
            self.fail(node, "KVG-021", "a chain of comparisons inside another; give it a name in `let`")
        found = each(enumerate(sides), lambda side: self._side(side[1], 0 < side[0] < len(sides) - 1))
        items: list[Node] = []
        for index, op in enumerate(node.ops):
            at = self.text.between(sides[index], sides[index + 1])
            symbol = _COMPARE.get(type(op))
            if symbol is None:
                self.foreign(op, at)
            pair = slice(index, index + 2)
            left, right = self.alike(found[pair], sides[pair], f"'{symbol}'")
            if left.type is not Type.INT and symbol not in ("==", "!="):
                self.fail(at, "KVG-022", f"'{symbol}' is for int64; {left.type.value} has == and != alone")
            items.append(Compare(Type.BOOL, symbol, left, right))
        return items[0] if len(items) == 1 else Logic(Type.BOOL, "and", tuple(items))

    def _side(self, node: ast.expr, middle: bool) -> Node | Literal:
        """A side of a comparison. One in the middle becomes two operands, and would double with every chain in it."""
        before, self.in_chain = self.in_chain, self.in_chain or middle
        try:
            return self.visit(node)
        finally:
            self.in_chain = before

    def _presence(self, node: ast.Compare) -> Node:
        right = node.comparators[0]
        if len(node.ops) != 1 or not (isinstance(right, ast.Constant) and right.value is None):
            self.fail(node, "KVG-021", "`is` only tests for None, as in `name is not None`")
        name = self.tensor_name(node.left)
        if not self.scope.tensors[name].optional:
            self.fail(node, "KVG-028", f"'{name}' is not optional, so it is never None")
        return Present(Type.BOOL, name, negated=isinstance(node.ops[0], ast.Is))

    def _visit_BoolOp(self, node: ast.BoolOp) -> Node:
        op = "and" if isinstance(node.op, ast.And) else "or"
        items = each(node.values, lambda value: self.condition(value, f"operand of {op}"))
        if not self.scope.host and len({is_static(item) for item in items}) > 1:
            message = "what is known before launch cannot be mixed with device data; nest `a if x is not None else b`"
            self.fail(node, "KVG-028", message)
        return Logic(Type.BOOL, "and" if op == "and" else "or", tuple(items))

    def _visit_IfExp(self, node: ast.IfExp) -> Node:
        before, condition = self.present, None
        try:
            condition = self.condition(node.test, "a condition")
        except Failed:
            # Which tensors are there is unknown now; the branches are looked at for other errors.
            self.present = before | frozenset(self.scope.tensors)

        def branch(side: tuple[ast.expr, bool]) -> Node | Literal:
            if condition is not None:
                self.present = before | _known_present(condition, side[1])
            return self.visit(side[0])

        try:
            found = each([(node.body, True), (node.orelse, False)], branch)
        finally:
            self.present = before
        if condition is None:
            raise Failed
        then, other = self.alike(found, [node.body, node.orelse], "a conditional")
        return Select(then.type, condition, then, other)


def _known_present(condition: Node, holds: bool) -> frozenset[str]:
    """Names that are certainly not None in the branch where `condition` is `holds`."""
    if isinstance(condition, Present):
        return frozenset({condition.name} if condition.negated != holds else ())
    if isinstance(condition, Unary):
        return _known_present(condition.operand, not holds)
    if isinstance(condition, Logic) and (condition.op == "and") == holds:
        return frozenset().union(*(_known_present(item, holds) for item in condition.items))
    return frozenset()
