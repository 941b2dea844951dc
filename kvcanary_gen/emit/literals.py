"""Calls and collections of literals, laid out as formatters leave them."""

from __future__ import annotations

from collections.abc import Sequence

from kvcanary_gen.emit.code import WIDTH
from kvcanary_gen.emit.host import python_string, split_string


def call_text(lead: str, function: str, args: Sequence[object], indent: int, tail: str = "") -> str:
    """A call with literal arguments: on one line, with its arguments on one, or one a line."""
    pad, inner = " " * indent, " " * (indent + 4)
    texts = [_literal(arg) for arg in args]
    flat = f"{pad}{lead}{function}({', '.join(texts)}){tail}"
    if len(flat) <= WIDTH:
        return flat
    together = f"{inner}{', '.join(texts)}"
    if len(together) <= WIDTH:
        return "\n".join([f"{pad}{lead}{function}(", together, f"{pad}){tail}"])
    lines = []
    for text in texts:
        pieces = split_string(text, WIDTH - len(inner) - 1) if len(inner + text) + 1 > WIDTH else [text]
        lines += [f"{inner}{piece}" for piece in pieces[:-1]] + [f"{inner}{pieces[-1]},"]
    return "\n".join([f"{pad}{lead}{function}(", *lines, f"{pad}){tail}"])


def strings_text(lead: str, items: Sequence[str], indent: int = 0, tail: str = "") -> str:
    """A tuple of strings: on one line, or one a line."""
    pad = " " * indent
    comma = "," if len(items) == 1 else ""
    flat = f"{pad}{lead}({', '.join(map(python_string, items))}{comma}){tail}"
    if len(flat) <= WIDTH:
        return flat
    return "\n".join([f"{pad}{lead}(", *(f"{pad}    {python_string(item)}," for item in items), f"{pad}){tail}"])


def _literal(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    return python_string(value) if isinstance(value, str) else repr(value)
