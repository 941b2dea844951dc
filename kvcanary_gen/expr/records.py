"""Attributes in expressions: fields of records, and members of enums."""

from __future__ import annotations

import ast

from kvcanary_gen.diagnostics import Diagnostics, suggest
from kvcanary_gen.expr.checker import count
from kvcanary_gen.expr.nodes import Const, Load, Node, Type, Var
from kvcanary_gen.expr.operators import OperatorChecker
from kvcanary_gen.expr.scope import Scope
from kvcanary_gen.expr.syntax import Failed
from kvcanary_gen.located import LocatedStr

Field = tuple[str, tuple[Node, ...], Type]


class RecordChecker(OperatorChecker):
    """Types `tensor[index].field`, `name.field` and `Enum.MEMBER`."""

    def _visit_Name(self, node: ast.Name) -> Node:
        fields = self.scope.records.get(node.id)
        if fields is not None:
            self.fail(node, "KVG-044", f"'{node.id}' is a record; name a field, as in {node.id}.{next(iter(fields))}")
        return super()._visit_Name(node)

    def _visit_Attribute(self, node: ast.Attribute) -> Node:
        if isinstance(node.value, ast.Subscript):
            return self._record_load(node, node.value)
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        if owner in self.scope.broken:
            raise Failed
        if owner in self.scope.records:
            fields = self.scope.records[owner]
            if node.attr not in fields:
                self.fail(node, "KVG-012", f"'{owner}' has no field '{node.attr}'{suggest(node.attr, fields)}")
            type_, variable = fields[node.attr]
            return Var(type_, variable, "let")
        member = f"{owner}.{node.attr}"
        if member in self.scope.members:
            return Const(Type.INT, self.scope.members[member], member)
        if any(name.startswith(f"{owner}.") for name in self.scope.members):
            self.fail(node, "KVG-012", f"unknown member '{member}'{suggest(member, self.scope.members)}")
        if owner and self.scope.meaning(owner) is None:
            self.unknown(node, owner)
        return super()._visit_Attribute(node)

    def _record_load(self, node: ast.Attribute, element: ast.Subscript) -> Node:
        if self.scope.host:
            name = self.tensor_name(element.value)
            self.fail(node, "KVG-021", f"a host-side rule cannot read elements of '{name}'; use len({name})")
        name, indices, type_ = self.record_field(node, element)
        if self.scope.tensors[name].optional and name not in self.present:
            self.fail(node, "KVG-028", f"'{name}' may be missing; read it inside `… if {name} is not None else …`")
        return Load(type_, name, indices)

    def record_field(self, node: ast.Attribute, element: ast.Subscript) -> Field:
        name, indices = self.record_element(element)
        fields = self.scope.tensors[name].fields or {}
        if node.attr not in fields:
            self.fail(node, "KVG-012", f"records of '{name}' have no field '{node.attr}'{suggest(node.attr, fields)}")
        type_, constant = fields[node.attr]
        column = Const(Type.INT, list(fields).index(node.attr), constant)
        return name, (*indices, column), type_

    def record_element(self, node: ast.Subscript) -> tuple[str, tuple[Node, ...]]:
        """A whole record, `tensor[index]`: all indices but that of the field."""
        name = self.tensor_name(node.value)
        info = self.scope.tensors[name]
        if info.fields is None:
            self.fail(node, "KVG-044", f"'{name}' holds no records; declare `record` on the argument")
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(parts) != info.rank - 1:
            wanted = count(info.rank - 1, "index", "indices")
            self.fail(node, "KVG-023", f"a record of '{name}' has {wanted}, got {len(parts)}")
        return name, tuple(self.several(parts, Type.INT, "an index"))

    def element(self, node: ast.Subscript) -> tuple[str, list[Node]]:
        name = self.tensor_name(node.value)
        fields = self.scope.tensors[name].fields
        if fields is not None:
            self.fail(node, "KVG-044", f"'{name}' holds records; name a field, as in {name}[…].{next(iter(fields))}")
        return super().element(node)


def names_record(text: LocatedStr, scope: Scope) -> bool:
    """Whether the text is `tensor[index]` of a tensor of records, so that it stands for a whole record."""
    try:
        tree = RecordChecker(text, scope, Diagnostics()).text.parse()
    except Failed:
        return False
    if not isinstance(tree, ast.Subscript) or not isinstance(tree.value, ast.Name):
        return False
    info = scope.tensors.get(tree.value.id)
    return info is not None and info.fields is not None
