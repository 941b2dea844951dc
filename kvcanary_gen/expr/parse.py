"""Expression text to a typed tree, with an error on the character that causes it."""

from __future__ import annotations

import ast
import warnings
from typing import NamedTuple, NoReturn

from kvcanary_gen.diagnostics import Diagnostics, Mark, suggest
from kvcanary_gen.expr.nodes import (
    Binary,
    BinaryOp,
    Call,
    Compare,
    CompareOp,
    Const,
    Length,
    Load,
    Logic,
    Node,
    Present,
    Select,
    Type,
    Unary,
    Var,
    is_static,
)
from kvcanary_gen.expr.scope import BUILTINS, Scope
from kvcanary_gen.source import LocatedStr

MAX_LENGTH = 4000
MAX_DEPTH = 60

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
_RANGES = {Type.INT: (-(1 << 63), (1 << 63) - 1), Type.UINT: (0, (1 << 64) - 1)}


class _Failed(Exception):
    """This part has no meaning; the reason is recorded already."""


class _Literal(NamedTuple):
    """An integer whose type its neighbour decides."""

    value: int
    node: ast.AST


class _Checker:
    def __init__(self, text: LocatedStr, scope: Scope, out: Diagnostics) -> None:
        self.text = text
        # Line breaks mean nothing here, and ast must not see leading blanks.
        self.flat = str(text).replace("\n", " ")
        self.shift = len(self.flat) - len(self.flat.lstrip())
        self.scope = scope
        self.out = out
        self.present: frozenset[str] = frozenset()
        self.depth = 0

    # --- errors -------------------------------------------------------------------------------------------------

    def _mark(self, node: ast.AST | None) -> Mark:
        if node is None or not hasattr(node, "col_offset"):
            return self.text.mark
        column = len(self.flat.lstrip().encode()[: node.col_offset].decode(errors="ignore"))
        return self.text.mark_at(self.shift + column)

    def fail(self, node: ast.AST | None, rule: str, message: str) -> NoReturn:
        self.out.add(self._mark(node), rule, message)
        raise _Failed

    # --- entry --------------------------------------------------------------------------------------------------

    def parse(self) -> ast.expr:
        if len(self.text) > MAX_LENGTH:
            self.fail(None, "KVG-020", f"expression is {len(self.text)} characters long; at most {MAX_LENGTH}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(self.flat.lstrip(), mode="eval").body
        except SyntaxError as error:
            mark = self.text.mark_at(self.shift + max(0, (error.offset or 1) - 1))
            self.out.add(mark, "KVG-020", f"not an expression: {error.msg}")
            raise _Failed from None
        except (ValueError, RecursionError, MemoryError) as error:
            self.fail(None, "KVG-020", f"not an expression: {error or type(error).__name__}")
        return tree

    def typed(self, node: ast.expr, want: Type | None = None) -> Node:
        """The typed tree of `node`; a bare literal takes the type `want`, or int64."""
        found = self.visit(node)
        if isinstance(found, _Literal):
            return self._literal(found, want if want in (Type.INT, Type.UINT) else Type.INT)
        return found

    def of_type(self, node: ast.expr, want: Type, what: str) -> Node:
        found = self.typed(node, want)
        if found.type is not want:
            hint = {Type.UINT: "; u64(x) keeps the bits", Type.INT: "; i64(x) keeps the bits"}.get(want, "")
            hint = hint if Type.BOOL not in (want, found.type) else ""
            self.fail(node, "KVG-022", f"{what} must be {want.value}, got {found.type.value}{hint}")
        return found

    def _literal(self, literal: _Literal, want: Type) -> Const:
        low, high = _RANGES[want]
        if not low <= literal.value <= high:
            self.fail(literal.node, "KVG-027", f"{literal.value} does not fit {want.value}")
        return Const(want, literal.value)

    def several(self, nodes: list[ast.expr], want: Type, what: str) -> list[Node]:
        """Checks all of them before failing, so that each gets its own error."""
        found: list[Node] = []
        failed = False
        for node in nodes:
            try:
                found.append(self.of_type(node, want, what))
            except _Failed:
                failed = True
        if failed:
            raise _Failed
        return found

    # --- nodes --------------------------------------------------------------------------------------------------

    def visit(self, node: ast.expr) -> Node | _Literal:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(node, "KVG-020", f"expression nests deeper than {MAX_DEPTH} levels")
        try:
            method = getattr(self, f"_visit_{type(node).__name__}", None)
            if method is None:
                self.fail(node, "KVG-021", f"{type(node).__name__} is not part of the spec language")
            result: Node | _Literal = method(node)
            return result
        finally:
            self.depth -= 1

    def _visit_Constant(self, node: ast.Constant) -> Node | _Literal:
        if isinstance(node.value, bool):
            return Const(Type.BOOL, int(node.value))
        if isinstance(node.value, int):
            return _Literal(node.value, node)
        if node.value is None:
            self.fail(node, "KVG-021", "None is only compared with, as in `name is not None`")
        self.fail(node, "KVG-021", f"{type(node.value).__name__} literals are not part of the spec language")

    def _visit_Name(self, node: ast.Name) -> Node:
        scope, name = self.scope, node.id
        if name in scope.variables:
            type_, kind = scope.variables[name]
            return Var(type_, name, kind)
        if name in scope.constants:
            type_, value = scope.constants[name]
            return Const(type_, value, name)
        if name in scope.tensors:
            self.fail(node, "KVG-021", f"tensor '{name}' is used without an index")
        if name in scope.functions or name in BUILTINS:
            self.fail(node, "KVG-021", f"function '{name}' is used without a call")
        self._unknown(node, name)

    def _unknown(self, node: ast.AST, name: str) -> NoReturn:
        if name in self.scope.hidden:
            self.fail(node, "KVG-012", f"'{name}' {self.scope.hidden[name]}")
        self.fail(node, "KVG-012", f"unknown name '{name}'{suggest(name, self.scope.names())}")

    def _visit_Attribute(self, node: ast.Attribute) -> Node:
        self.fail(node, "KVG-021", "attributes are not part of this expression")

    def _tensor_name(self, node: ast.expr) -> str:
        name = ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
        if name not in self.scope.tensors:
            if not name:
                self.fail(node, "KVG-021", "only a tensor argument can stand here")
            if name in self.scope.variables or name in self.scope.constants:
                self.fail(node, "KVG-021", f"'{name}' is a number, not a tensor")
            self._unknown(node, name)
        return name

    def _visit_Subscript(self, node: ast.Subscript) -> Node:
        name = self._tensor_name(node.value)
        if self.scope.host:
            self.fail(node, "KVG-021", f"a host-side rule cannot read elements of '{name}'; use len({name})")
        info = self.scope.tensors[name]
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(parts) != info.rank:
            self.fail(node, "KVG-023", f"'{name}' has {info.rank} axes, got {len(parts)} indices")
        indices = self.several(parts, Type.INT, "an index")
        if info.optional and name not in self.present:
            self.fail(node, "KVG-028", f"'{name}' may be missing; read it inside `... if {name} is not None else ...`")
        return Load(info.type, name, tuple(indices))

    def _visit_UnaryOp(self, node: ast.UnaryOp) -> Node | _Literal:
        if isinstance(node.op, ast.Not):
            return Unary(Type.BOOL, "not", self.of_type(node.operand, Type.BOOL, "operand of not"))
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.UAdd):
            return operand
        if isinstance(operand, _Literal):
            return _Literal(-operand.value if isinstance(node.op, ast.USub) else ~operand.value, node)
        if operand.type is Type.BOOL:
            self.fail(node, "KVG-022", "arithmetic on bool; use `1 if x else 0`")
        return Unary(operand.type, "-" if isinstance(node.op, ast.USub) else "~", operand)

    def _pair(self, left: ast.expr, right: ast.expr, what: str) -> tuple[Node, Node]:
        """Both operands, literals typed by their neighbour."""
        failed = False
        found: list[Node | _Literal] = []
        for side in (left, right):
            try:
                found.append(self.visit(side))
            except _Failed:
                failed = True
        if failed:
            raise _Failed
        known = next((f.type for f in found if not isinstance(f, _Literal)), Type.INT)
        if known is Type.BOOL and any(isinstance(f, _Literal) for f in found):
            self.fail(right, "KVG-022", f"{what} mixes bool and a number")
        a, b = (self._literal(f, known) if isinstance(f, _Literal) else f for f in found)
        if a.type is not b.type:
            self.fail(
                right, "KVG-022", f"{what} mixes {a.type.value} and {b.type.value}; u64(x) and i64(x) keep the bits"
            )
        return a, b

    def _visit_BinOp(self, node: ast.BinOp) -> Node | _Literal:
        op = _BINARY.get(type(node.op))
        if op is None:
            hint = "; use //" if isinstance(node.op, ast.Div) else ""
            self.fail(node, "KVG-021", f"operator {type(node.op).__name__} is not part of the spec language{hint}")
        left, right = self._pair(node.left, node.right, f"'{op}'")
        if left.type is Type.BOOL:
            self.fail(node, "KVG-022", f"'{op}' on bool; use and, or, not")
        if op in ("<<", ">>"):
            if left.type is not Type.UINT:
                self.fail(node, "KVG-022", "shifts are for uint64 (`>>` of int64 would be arithmetic); use u64(x)")
            if not (isinstance(right, Const) and right.value < 64):
                self.fail(node.right, "KVG-022", "a shift distance must be a literal from 0 to 63")
        if op in ("//", "%"):
            if left.type is not Type.INT:
                self.fail(node, "KVG-022", f"'{op}' is for int64")
            positive = isinstance(right, Const) and right.value > 0
            if not positive and not (isinstance(right, Var) and right.name in self.scope.positive):
                self.fail(node.right, "KVG-026", "the divisor is not known to be positive")
        return Binary(left.type, op, left, right)

    def _visit_Compare(self, node: ast.Compare) -> Node:
        if isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return self._presence(node)
        items: list[Node] = []
        sides = [node.left, *node.comparators]
        for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
            symbol = _COMPARE.get(type(op))
            if symbol is None:
                self.fail(node, "KVG-021", f"comparison {type(op).__name__} is not part of the spec language")
            a, b = self._pair(left, right, f"'{symbol}'")
            if a.type is not Type.INT and symbol not in ("==", "!="):
                self.fail(node, "KVG-022", f"'{symbol}' is for int64; {a.type.value} has == and != alone")
            items.append(Compare(Type.BOOL, symbol, a, b))
        return items[0] if len(items) == 1 else Logic(Type.BOOL, "and", tuple(items))

    def _presence(self, node: ast.Compare) -> Node:
        right = node.comparators[0]
        if len(node.ops) != 1 or not (isinstance(right, ast.Constant) and right.value is None):
            self.fail(node, "KVG-021", "`is` only tests for None, as in `name is not None`")
        name = self._tensor_name(node.left)
        if not self.scope.tensors[name].optional:
            self.fail(node, "KVG-028", f"'{name}' is not optional, so it is never None")
        return Present(Type.BOOL, name, negated=isinstance(node.ops[0], ast.Is))

    def _visit_BoolOp(self, node: ast.BoolOp) -> Node:
        word: str = "and" if isinstance(node.op, ast.And) else "or"
        items = self.several(node.values, Type.BOOL, f"operand of {word}")
        if not self.scope.host and len({is_static(item) for item in items}) > 1:
            self.fail(
                node, "KVG-028", "a presence test cannot be mixed with device data; nest `a if x is not None else b`"
            )
        return Logic(Type.BOOL, "and" if word == "and" else "or", tuple(items))

    def _visit_IfExp(self, node: ast.IfExp) -> Node:
        condition = self.of_type(node.test, Type.BOOL, "a condition")
        before = self.present
        branches: list[Node | _Literal] = []
        failed = False
        for side, holds in ((node.body, True), (node.orelse, False)):
            self.present = before | _known_present(condition, holds)
            try:
                branches.append(self.visit(side))
            except _Failed:
                failed = True
        self.present = before
        if failed:
            raise _Failed
        known = next((b.type for b in branches if not isinstance(b, _Literal)), Type.INT)
        if known is Type.BOOL and any(isinstance(b, _Literal) for b in branches):
            self.fail(node, "KVG-022", "the branches of a conditional mix bool and a number")
        then, other = (self._literal(b, known) if isinstance(b, _Literal) else b for b in branches)
        if then.type is not other.type:
            self.fail(node, "KVG-022", f"the branches are {then.type.value} and {other.type.value}")
        return Select(then.type, condition, then, other)

    def _visit_Call(self, node: ast.Call) -> Node:
        if not isinstance(node.func, ast.Name):
            self.fail(node, "KVG-021", "only functions of the spec can be called")
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            self.fail(node, "KVG-024", "arguments are given by place")
        name = node.func.id
        if name == "len" and self.scope.host:
            return self._length(node)
        if name in self.scope.functions and not self.scope.host:
            return self._function(node, name)
        if name in BUILTINS:
            return self._builtin(node, name)
        if name in self.scope.variables or name in self.scope.tensors:
            self.fail(node, "KVG-021", f"'{name}' is not a function")
        self._unknown(node.func, name)

    def _length(self, node: ast.Call) -> Node:
        if len(node.args) != 1:
            self.fail(node, "KVG-024", f"len takes 1 argument, got {len(node.args)}")
        return Length(Type.INT, self._tensor_name(node.args[0]))

    def _function(self, node: ast.Call, name: str) -> Node:
        info = self.scope.functions[name]
        if len(node.args) != len(info.params):
            self.fail(node, "KVG-024", f"{name} takes {len(info.params)} arguments, got {len(node.args)}")
        args: list[Node] = []
        failed = False
        for argument, type_ in zip(node.args, info.params, strict=True):
            try:
                args.append(self.of_type(argument, type_, f"argument of {name}"))
            except _Failed:
                failed = True
        if failed:
            raise _Failed
        return Call(info.returns, name, tuple(args), builtin=False)

    def _builtin(self, node: ast.Call, name: str) -> Node:
        low, high = BUILTINS[name]
        if not low <= len(node.args) <= high:
            want = str(low) if low == high else f"{low} to {high}"
            self.fail(node, "KVG-024", f"{name} takes {want} arguments, got {len(node.args)}")
        if name in ("u64", "i64"):
            operand = self.typed(node.args[0], Type.UINT if name == "u64" else Type.INT)
            if operand.type is Type.BOOL:
                self.fail(node, "KVG-022", f"{name} of bool; use `1 if x else 0`")
            return Call(Type.UINT if name == "u64" else Type.INT, name, (operand,), builtin=True)
        return Call(Type.INT, name, tuple(self.several(node.args, Type.INT, f"argument of {name}")), builtin=True)


def _known_present(condition: Node, holds: bool) -> frozenset[str]:
    """Names that are certainly not None in the branch where `condition` is `holds`."""
    if isinstance(condition, Present):
        return frozenset({condition.name} if condition.negated != holds else ())
    if isinstance(condition, Unary):
        return _known_present(condition.operand, not holds)
    if isinstance(condition, Logic) and (condition.op == "and") == holds:
        return frozenset().union(*(_known_present(item, holds) for item in condition.items))
    return frozenset()


def parse_expr(text: LocatedStr, scope: Scope, want: Type | None, out: Diagnostics, what: str) -> Node | None:
    """Parses and types `text`; reports into `out` and returns None where it has no meaning.

    Args:
        want: the type that the place demands; None admits int64 and uint64.
        what: how errors call the expression, such as "the value of 'slot'".
    """
    checker = _Checker(text, scope, out)
    try:
        tree = checker.parse()
        if want is None:
            found = checker.typed(tree)
            if is_static(found) and not scope.host:
                checker.fail(tree, "KVG-028", f"{what} is a presence test; use it as a condition")
            return found
        return checker.of_type(tree, want, what)
    except _Failed:
        return None


def parse_target(text: LocatedStr, scope: Scope, out: Diagnostics) -> tuple[str, tuple[Node, ...]] | None:
    """Parses a store target `name[index, ...]`."""
    checker = _Checker(text, scope, out)
    try:
        tree = checker.parse()
        if not isinstance(tree, ast.Subscript):
            checker.fail(tree, "KVG-021", "a store goes to an element, as in name[index]")
        name = checker._tensor_name(tree.value)
        rank = scope.tensors[name].rank
        parts = list(tree.slice.elts) if isinstance(tree.slice, ast.Tuple) else [tree.slice]
        if len(parts) != rank:
            checker.fail(tree, "KVG-023", f"'{name}' has {rank} axes, got {len(parts)} indices")
        return name, tuple(checker.several(parts, Type.INT, "an index"))
    except _Failed:
        return None
