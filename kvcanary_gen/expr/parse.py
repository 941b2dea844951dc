"""Expression text to a typed tree, with an error on the character that causes it."""

from __future__ import annotations

import ast

from kvcanary_gen.diagnostics import Diagnostics
from kvcanary_gen.expr.checker import each
from kvcanary_gen.expr.nodes import Call, Fold, Length, Node, Type
from kvcanary_gen.expr.records import RecordChecker
from kvcanary_gen.expr.scope import BUILTINS, Scope
from kvcanary_gen.expr.syntax import Failed
from kvcanary_gen.located import LocatedStr


class _Checker(RecordChecker):
    """Types any expression; these are the calls."""

    def _visit_Call(self, node: ast.Call) -> Node:
        if not isinstance(node.func, ast.Name):
            self.fail(node, "KVG-021", "only functions of the spec can be called")
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            self.fail(node, "KVG-024", "arguments are given by place")
        name = node.func.id
        if name == "len":
            return self._length(node)
        if name in BUILTINS:
            return self._builtin(node, name)
        if name in self.scope.functions:
            return self._function(node, name)
        meaning = self.scope.meaning(name)
        if meaning is not None:
            self.fail(node, "KVG-021", f"'{name}' is {meaning}, not a function")
        self.unknown(node.func, name)

    def _length(self, node: ast.Call) -> Node:
        if not self.scope.host:
            self.fail(node, "KVG-021", "len is for host-side rules; use the name of the size")
        self._count_args(node, "len", 1, 1)
        return Length(Type.INT, self.tensor_name(node.args[0]))

    def _count_args(self, node: ast.Call, name: str, low: int, high: int) -> None:
        if not low <= len(node.args) <= high:
            want = str(low) if low == high else f"{low} to {high}"
            plural = "" if want == "1" else "s"
            self.fail(node, "KVG-024", f"{name} takes {want} argument{plural}, got {len(node.args)}")

    def _function(self, node: ast.Call, name: str) -> Node:
        info = self.scope.functions[name]
        self._count_args(node, name, len(info.params), len(info.params))
        pairs = list(zip(node.args, info.params, strict=True))
        args = each(pairs, lambda pair: self.of_type(pair[0], pair[1], f"argument of {name}"))
        if info.fold:
            return Fold(info.returns, name, tuple(args))
        return Call(info.returns, name, tuple(args), builtin=False)

    def _builtin(self, node: ast.Call, name: str) -> Node:
        self._count_args(node, name, *BUILTINS[name])
        if name not in ("u64", "i64"):
            return Call(Type.INT, name, tuple(self.several(node.args, Type.INT, f"argument of {name}")), builtin=True)
        if self.scope.host:
            self.fail(node, "KVG-021", f"{name} is for kernels; numbers of the host have no bits")
        want = Type.UINT if name == "u64" else Type.INT
        operand = self.typed(node.args[0], want)
        if operand.type is Type.BOOL:
            self.fail(node, "KVG-022", f"{name} of bool; use `1 if x else 0`")
        return Call(want, name, (operand,), builtin=True)


def parse_expr(text: LocatedStr, scope: Scope, want: Type | None, out: Diagnostics, what: str) -> Node | None:
    """Parses and types `text`; reports into `out` and returns None where it has no meaning.

    Args:
        want: the type that the place demands; None admits any.
        what: how errors call the expression, such as "the value of 'slot'".
    """
    checker = _Checker(text, scope, out)
    try:
        tree = checker.text.parse()
        return checker.typed(tree) if want is None else checker.of_type(tree, want, what)
    except Failed:
        out.unread += 1
        return None


def parse_target(text: LocatedStr, scope: Scope, out: Diagnostics) -> tuple[str, tuple[Node, ...], Type] | None:
    """Parses a store target, `name[index, ...]` or `name[index].field`, and says what type its values have."""
    checker = _Checker(text, scope, out)
    try:
        tree = checker.text.parse()
        if isinstance(tree, ast.Attribute) and isinstance(tree.value, ast.Subscript):
            return checker.record_field(tree, tree.value)
        if not isinstance(tree, ast.Subscript):
            checker.fail(tree, "KVG-021", "a store goes to an element, as in name[index]")
        name, indices = checker.element(tree)
        return name, tuple(indices), Type.INT
    except Failed:
        out.unread += 1
        return None


def parse_record(text: LocatedStr, scope: Scope, out: Diagnostics) -> tuple[str, tuple[Node, ...]] | None:
    """Parses a text that `names_record`; reports into `out` and returns None where it has no meaning."""
    checker = _Checker(text, scope, out)
    try:
        tree = checker.text.parse()
        return checker.record_element(tree) if isinstance(tree, ast.Subscript) else None
    except Failed:
        out.unread += 1
        return None
