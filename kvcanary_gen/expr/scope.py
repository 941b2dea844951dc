"""What the names in an expression mean."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kvcanary_gen.expr.nodes import Type, VarKind

BUILTINS: dict[str, tuple[int, int]] = {"min": (2, 8), "max": (2, 8), "clamp": (3, 3), "u64": (1, 1), "i64": (1, 1)}

Variables = dict[str, tuple[Type, VarKind]]


@dataclass(frozen=True)
class TensorInfo:
    """What an expression needs to know of a tensor."""

    type: Type
    rank: int
    optional: bool
    # Of a tensor of records: field name to type and the name of its index constant.
    fields: dict[str, tuple[Type, str]] | None = None


@dataclass(frozen=True)
class FunctionInfo:
    """Signature of a spec function."""

    params: tuple[Type, ...]
    returns: Type
    fold: bool = False


@dataclass(frozen=True)
class Scope:
    """Names visible to one expression.

    `host` scopes are those of invariants: lengths and presence are plain values there, and tensors have no elements.
    `hidden` maps a name to the reason why it exists but is not visible here; `noted` are those reported once already.
    Names in `broken` have errors of their own, so expressions that use them fail without another word.
    """

    variables: Variables = field(default_factory=dict)
    constants: dict[str, tuple[Type, int]] = field(default_factory=dict)
    tensors: dict[str, TensorInfo] = field(default_factory=dict)
    functions: dict[str, FunctionInfo] = field(default_factory=dict)
    positive: frozenset[str] = frozenset()
    hidden: dict[str, str] = field(default_factory=dict)
    noted: set[str] = field(default_factory=set)
    broken: frozenset[str] = frozenset()
    host: bool = False
    # Members of enums as 'Enum.MEMBER', with their numbers or bits.
    members: dict[str, int] = field(default_factory=dict)
    # Names of records: alias to field to the variable that holds it.
    records: dict[str, dict[str, tuple[Type, str]]] = field(default_factory=dict)

    def with_variable(self, name: str, type_: Type, kind: VarKind) -> Scope:
        return replace(self, variables={**self.variables, name: (type_, kind)})

    def with_let(self, name: str, type_: Type | None) -> Scope:
        """With a let; one that has no type is broken, so that its uses are not reported too."""
        if type_ is None:
            return replace(self, broken=self.broken | {name})
        return self.with_variable(name, type_, "let")

    def meaning(self, name: str) -> str | None:
        """What a visible name is, None for others."""
        if name in self.variables:
            words = {"param": "a parameter", "scalar": "a scalar", "dim": "a size", "total": "a total"}
            words["index"] = "an index"
            return words.get(self.variables[name][1], "a `let`")
        if name in self.records:
            return "a record"
        if name in self.constants:
            return "a constant"
        if name in self.tensors:
            return "a tensor"
        return "a function" if name in self.functions or name in BUILTINS else None

    def names(self) -> Iterable[str]:
        return [*self.variables, *self.records, *self.constants, *self.tensors, *self.functions, *BUILTINS]
