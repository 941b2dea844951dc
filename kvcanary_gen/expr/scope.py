"""What the names in an expression mean."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kvcanary_gen.expr.nodes import Type, VarKind

BUILTINS: dict[str, tuple[int, int]] = {"min": (2, 8), "max": (2, 8), "clamp": (3, 3), "u64": (1, 1), "i64": (1, 1)}


@dataclass(frozen=True)
class TensorInfo:
    """What an expression needs to know of a tensor."""

    type: Type
    rank: int
    optional: bool


@dataclass(frozen=True)
class FunctionInfo:
    """Signature of a spec function."""

    params: tuple[Type, ...]
    returns: Type


@dataclass(frozen=True)
class Scope:
    """Names visible to one expression.

    `host` scopes are those of invariants: lengths and presence are plain values there, and tensors have no elements.
    `hidden` maps a name to the reason why it exists but is not visible here.
    """

    variables: dict[str, tuple[Type, VarKind]] = field(default_factory=dict)
    constants: dict[str, tuple[Type, int]] = field(default_factory=dict)
    tensors: dict[str, TensorInfo] = field(default_factory=dict)
    functions: dict[str, FunctionInfo] = field(default_factory=dict)
    positive: frozenset[str] = frozenset()
    hidden: dict[str, str] = field(default_factory=dict)
    host: bool = False

    def with_variable(self, name: str, type_: Type, kind: VarKind) -> Scope:
        return replace(self, variables={**self.variables, name: (type_, kind)})

    def names(self) -> Iterable[str]:
        return [*self.variables, *self.constants, *self.tensors, *self.functions, *BUILTINS]
