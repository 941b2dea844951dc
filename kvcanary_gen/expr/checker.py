"""Types expressions: what every kind of node needs, and names, numbers and elements of tensors."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, NoReturn, TypeVar

from kvcanary_gen.diagnostics import Diagnostics, quote, suggest
from kvcanary_gen.expr.constants import RANGES, fits
from kvcanary_gen.expr.nodes import Const, Load, Node, Type, Var, is_static
from kvcanary_gen.expr.scope import BUILTINS, Scope
from kvcanary_gen.expr.syntax import ExprText, Failed, construct
from kvcanary_gen.located import LocatedStr

T = TypeVar("T")
R = TypeVar("R")


class Literal(NamedTuple):
    """An integer whose type its neighbour decides."""

    value: int
    node: ast.AST


def each(items: Iterable[T], visit: Callable[[T], R]) -> list[R]:
    """Visits all items before failing, so that each gets its own error."""
    found: list[R] = []
    failed = False
    for item in items:
        try:
            found.append(visit(item))
        except Failed:
            failed = True
    if failed:
        raise Failed
    return found


class Checker:
    """Types one expression. `present` are the optional tensors that are certainly there."""

    def __init__(self, text: LocatedStr, scope: Scope, out: Diagnostics) -> None:
        self.text = ExprText(text, out)
        self.fail = self.text.fail
        self.scope = scope
        self.present: frozenset[str] = frozenset()
        self.in_chain = False

    # --- entry --------------------------------------------------------------------------------------------------

    def typed(self, node: ast.expr, want: Type | None = None) -> Node:
        """The typed tree of `node`; a bare literal takes the type `want`, or int64."""
        found = self.visit(node)
        if isinstance(found, Literal):
            return self.literal(found, want if want in RANGES else Type.INT)
        return found

    def of_type(self, node: ast.expr, want: Type, what: str) -> Node:
        found = self.typed(node, want)
        self._demand(node, found, want, what)
        return found

    def condition(self, node: ast.expr, what: str) -> Node:
        """A bool, which may test whether tensors are there."""
        found = self._visit(node)
        typed = self.literal(found, Type.INT) if isinstance(found, Literal) else found
        self._demand(node, typed, Type.BOOL, what)
        return typed

    def _demand(self, node: ast.expr, found: Node, want: Type, what: str) -> None:
        if found.type is not want:
            hint = {Type.UINT: "; u64(x) keeps the bits", Type.INT: "; i64(x) keeps the bits"}.get(want, "")
            hint = hint if Type.BOOL not in (want, found.type) else ""
            self.fail(node, "KVG-022", f"{what} must be {want.value}, got {found.type.value}{hint}")

    def literal(self, literal: Literal, want: Type | None) -> Const:
        want = want or Type.INT
        if not fits(literal.value, want):
            shown = str(literal.value) if literal.value.bit_length() <= 128 else "the number"
            self.fail(literal.node, "KVG-027", f"{shown} does not fit {want.value}")
        return Const(want, literal.value)

    def alike(self, found: Sequence[Node | Literal], at: Sequence[ast.expr], what: str) -> list[Node]:
        """Operands of one type, literals typed by their neighbours."""
        known = next((f.type for f in found if not isinstance(f, Literal)), Type.INT)
        typed: list[Node] = []
        for operand, node in zip(found, at, strict=True):
            if isinstance(operand, Literal):
                if known is Type.BOOL:
                    self.fail(node, "KVG-022", f"{what} mixes bool and a number")
                operand = self.literal(operand, known)
            if operand.type is not known:
                hint = "" if Type.BOOL in (operand.type, known) else "; u64(x) and i64(x) keep the bits"
                self.fail(node, "KVG-022", f"{what} mixes {known.value} and {operand.type.value}{hint}")
            typed.append(operand)
        return typed

    def several(self, nodes: list[ast.expr], want: Type, what: str) -> list[Node]:
        return each(nodes, lambda node: self.of_type(node, want, what))

    # --- nodes --------------------------------------------------------------------------------------------------

    def visit(self, node: ast.expr) -> Node | Literal:
        """The value of `node`, which is not known before launch unless the host asks."""
        found = self._visit(node)
        if not isinstance(found, Literal) and not self.scope.host and is_static(found):
            self.fail(
                node,
                "KVG-028",
                "what is known before launch is a condition; use it as in `a if name is not None else b`",
            )
        return found

    def _visit(self, node: ast.expr) -> Node | Literal:
        method = getattr(self, f"_visit_{type(node).__name__}", None)
        if method is None:
            self.foreign(node)
        result: Node | Literal = method(node)
        return result

    def foreign(self, node: ast.AST, at: int | None = None, hint: str = "") -> NoReturn:
        where = node if at is None else at
        self.fail(where, "KVG-021", f"{construct(node)} is not part of the spec language{hint}")

    def _visit_Constant(self, node: ast.Constant) -> Node | Literal:
        if isinstance(node.value, bool):
            return Const(Type.BOOL, int(node.value))
        if isinstance(node.value, int):
            return Literal(node.value, node)
        if node.value is None:
            self.fail(node, "KVG-021", "None is only compared with, as in `name is not None`")
        self.fail(node, "KVG-021", f"a {type(node.value).__name__} is not part of the spec language")

    def _visit_Name(self, node: ast.Name) -> Node:
        scope, name = self.scope, node.id
        if name in scope.variables:
            type_, kind = scope.variables[name]
            return Var(type_, name, kind)
        if name in scope.constants:
            type_, value = scope.constants[name]
            return Const(type_, value, name)
        if name in scope.tensors:
            hint = f"use len({name})" if scope.host else f"as in {name}[index]"
            self.fail(node, "KVG-021", f"tensor '{name}' is used without an index; {hint}")
        if name in scope.functions or name in BUILTINS:
            self.fail(node, "KVG-021", f"function '{name}' is used without a call")
        self.unknown(node, name)

    def unknown(self, node: ast.AST, name: str) -> NoReturn:
        scope = self.scope
        if name in scope.broken or name in scope.noted:
            raise Failed
        if name in scope.hidden:
            scope.noted.add(name)
            self.fail(node, "KVG-012", f"'{name}' {scope.hidden[name]}")
        self.fail(node, "KVG-012", f"unknown name {quote(name)}{suggest(name, scope.names())}")

    def _visit_Attribute(self, node: ast.Attribute) -> Node:
        name = dotted(node)
        if name in self.scope.tensors:
            self.fail(node, "KVG-021", f"tensor '{name}' is used without an index; use len({name})")
        self.foreign(node)

    def tensor_name(self, node: ast.expr) -> str:
        name = dotted(node)
        if name not in self.scope.tensors:
            if not name:
                self.fail(node, "KVG-021", "only a tensor argument can stand here")
            meaning = self.scope.meaning(name)
            if meaning is not None:
                self.fail(node, "KVG-021", f"'{name}' is {meaning}, not a tensor")
            self.unknown(node, name)
        return name

    def element(self, node: ast.Subscript) -> tuple[str, list[Node]]:
        """A tensor's name and the indices of an element."""
        name = self.tensor_name(node.value)
        rank = self.scope.tensors[name].rank
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(parts) != rank:
            self.fail(
                node,
                "KVG-023",
                f"'{name}' has {count(rank, 'axis', 'axes')}, got {count(len(parts), 'index', 'indices')}",
            )
        return name, self.several(parts, Type.INT, "an index")

    def _visit_Subscript(self, node: ast.Subscript) -> Node:
        if self.scope.host:
            name = self.tensor_name(node.value)
            self.fail(node, "KVG-021", f"a host-side rule cannot read elements of '{name}'; use len({name})")
        name, indices = self.element(node)
        info = self.scope.tensors[name]
        if info.optional and name not in self.present:
            self.fail(node, "KVG-028", f"'{name}' may be missing; read it inside `… if {name} is not None else …`")
        return Load(info.type, name, tuple(indices))


def count(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def dotted(node: ast.expr) -> str:
    """`name` or `name.field`, else an empty string."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
