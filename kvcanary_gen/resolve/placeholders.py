"""Texts with placeholders in braces, as in messages and tag names."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")


@dataclass(frozen=True)
class Piece:
    """Literal text, or the inside of a placeholder; `offset` is where it stands."""

    text: str
    offset: int
    placeholder: bool


class LoneBrace(Exception):
    """A brace that neither belongs to a placeholder nor is doubled."""

    def __init__(self, offset: int, brace: str) -> None:
        super().__init__(f"a single '{brace}'; write '{brace * 2}' for the character")
        self.offset = offset


def split_placeholders(text: str) -> list[Piece]:
    """Pieces of `text` in order; raises LoneBrace."""
    pieces: list[Piece] = []
    for match in _PIECE.finditer(text):
        found = match.group()
        if found in ("{", "}"):
            raise LoneBrace(match.start(), found)
        if match.group(1) is not None:
            pieces.append(Piece(match.group(1), match.start(1), True))
            continue
        literal = found[0] if found in ("{{", "}}") else found
        if pieces and not pieces[-1].placeholder:
            last = pieces.pop()
            pieces.append(Piece(last.text + literal, last.offset, False))
        else:
            pieces.append(Piece(literal, match.start(), False))
    return pieces
