"""Meaning as text that is equal where the meaning is: expressions without their lets, and all parts of a kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from kvcanary_gen.emit.code import Atom, Code, Invoke, Operator, Prefix, Ternary, operator
from kvcanary_gen.expr.nodes import (
    Binary,
    Call,
    Compare,
    Const,
    Fold,
    Length,
    Load,
    Logic,
    Node,
    Present,
    Select,
    Unary,
    Var,
    substitute,
)

Lets = tuple[tuple[str, Node], ...]

# Prose, and what decides about speed alone.
_SKIPPED = {"doc", "contract", "schedule", "text", "cause", "meaning", "fix"}


def expression(node: Node) -> str:
    """An expression as the spec would write it."""
    return _code(node).flat()


def _code(node: Node) -> Code:
    if isinstance(node, Const):
        return Atom(node.name or str(node.value))
    if isinstance(node, Var):
        return Atom(node.name)
    if isinstance(node, Load):
        return Atom(f"{node.tensor}[{', '.join(map(expression, node.indices))}]")
    if isinstance(node, Present):
        return Operator("is" if node.negated else "is not", (Atom(node.name), Atom("None")))
    if isinstance(node, Length):
        return Atom(f"len({node.name})" if node.axis == 0 else f"{node.name}.shape[{node.axis}]")
    if isinstance(node, Unary):
        return Prefix(node.op, _code(node.operand))
    if isinstance(node, (Binary, Compare)):
        return operator(node.op, _code(node.left), _code(node.right))
    if isinstance(node, Logic):
        return operator(node.op, *map(_code, node.items))
    if isinstance(node, Select):
        return Ternary(_code(node.then), _code(node.condition), _code(node.other))
    assert isinstance(node, (Call, Fold)), node
    name = node.function if isinstance(node, Call) else node.name
    return Invoke(name, tuple((None, _code(arg)) for arg in node.args))


def inlined(lets: Lets, known: Mapping[str, Node] | None = None) -> dict[str, Node]:
    """The value of every let without the ones before it, beside those that are known already."""
    values = dict(known or {})
    for name, node in lets:
        values[name] = substitute(node, values)
    return values


def parts(value: Any, lets: Mapping[str, Node], path: str = "") -> Iterator[tuple[str, str]]:
    """Every leaf of a part of a program, by a path that its place among others does not change where it has a name."""
    if isinstance(value, Node):
        yield path, expression(substitute(value, dict(lets)))
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if field.name not in _SKIPPED:
                yield from parts(getattr(value, field.name), lets, f"{path} {field.name}".strip())
    elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        yield from parts(value[1], lets, f"{path} {value[0]}")
    elif isinstance(value, (tuple, list)):
        for name, item in zip(names(value), value, strict=True):
            yield from parts(item, lets, f"{path} {name}".rstrip())
    elif value is not None:
        yield path, str(value)


def names(items: Any) -> list[str]:
    """What the items of a list are told apart by; empty for pairs, which begin with their name."""
    found: list[str] = []
    for number, item in enumerate(items):
        pair = isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)
        name = "" if pair else _name(item, number)
        twice = sum(other.partition(" #")[0] == name for other in found)
        found.append(f"{name} #{twice + 1}" if name and twice else name)
    return found


def _name(item: Any, number: int) -> str:
    bit = getattr(item, "bit", None)
    if bit is not None:
        return str(bit.name)
    return str(getattr(item, "name", None) or getattr(item, "tensor", None) or number)
