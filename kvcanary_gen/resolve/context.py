"""What every resolver needs: the document, the findings so far, and shared helpers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvcanary_gen.diagnostics import Diagnostics, Mark, suggest
from kvcanary_gen.expr.nodes import Const, Node, Type, Var
from kvcanary_gen.expr.parse import parse_expr
from kvcanary_gen.expr.scope import Scope
from kvcanary_gen.ir import STORAGE_TYPES, AxisLength, OffsetValues, ValueRange
from kvcanary_gen.load import Document
from kvcanary_gen.source import LocatedStr

_TYPE_TEXT = re.compile(r"\s*([A-Za-z0-9_]+)\s*(?:\[(.*)\])?\s*\Z", re.DOTALL)
_OFFSETS_TEXT = re.compile(r"offsets of (.+) up to (.+)\Z", re.DOTALL)


@dataclass
class Context:
    document: Document
    out: Diagnostics

    def constants(self) -> dict[str, tuple[Type, int]]:
        return {name: (Type(c.type), int(c.value)) for name, c in self.document.section("constants").items()}

    def located(self, text: str, fallback: Mark) -> LocatedStr:
        return text if isinstance(text, LocatedStr) else LocatedStr.make(text, fallback, text)

    def part(self, text: LocatedStr, start: int, end: int) -> LocatedStr:
        """A slice of a located text that still knows its place."""
        piece = str(text)[start:end]
        lead = len(piece) - len(piece.lstrip())
        piece = piece.strip()
        return LocatedStr.make(piece, text.mark_at(start + lead), piece)

    def unknown(self, mark: Mark, what: str, name: str, known: list[str]) -> None:
        self.out.add(mark, "KVG-012", f"unknown {what} '{name}'{suggest(name, known)}")

    def dims_scope(self, dims: set[str]) -> Scope:
        """Scope of lengths: sizes and constants."""
        return Scope(
            variables={name: (Type.INT, "dim") for name in dims},
            constants=self.constants(),
            host=True,
        )

    def split_type(self, text: LocatedStr) -> tuple[str, list[LocatedStr] | None] | None:
        """`int32[a, b]` to dtype and axis texts; None for the axes of a scalar."""
        match = _TYPE_TEXT.match(text)
        if match is None:
            self.out.add(text.mark, "KVG-030", f"'{text}' is not a type; write int64 or int64[bs + 1]")
            return None
        dtype, axes = match.group(1), match.group(2)
        if dtype not in STORAGE_TYPES:
            self.out.add(text.mark, "KVG-030", f"unknown dtype '{dtype}'{suggest(dtype, STORAGE_TYPES)}")
            return None
        if axes is None:
            return dtype, None
        parts: list[LocatedStr] = []
        start = match.start(2)
        for piece in axes.split(","):
            if not piece.strip():
                self.out.add(text.mark, "KVG-030", f"'{text}' has an axis without a length")
                return None
            parts.append(self.part(text, start, start + len(piece)))
            start += len(piece) + 1
        return dtype, parts

    def axis(self, text: LocatedStr, dims: set[str]) -> AxisLength | None:
        at_least = text.startswith(">=")
        body = self.part(text, 2, len(text)) if at_least else text
        node = parse_expr(body, self.dims_scope(dims), Type.INT, self.out, "a length")
        return None if node is None else AxisLength(node, at_least, str(text))

    def values(self, text: LocatedStr, scope: Scope) -> ValueRange | OffsetValues | None:
        """`LOW .. HIGH` or `offsets of N up to M`."""
        match = _OFFSETS_TEXT.match(text)
        if match is not None:
            pieces = [self.part(text, match.start(i), match.end(i)) for i in (1, 2)]
        elif text.count("..") == 1:
            middle = text.index("..")
            pieces = [self.part(text, 0, middle), self.part(text, middle + 2, len(text))]
        else:
            self.out.add(text.mark, "KVG-061", f"'{text}' is neither 'LOW .. HIGH' nor 'offsets of N up to M'")
            return None
        nodes = [parse_expr(piece, scope, Type.INT, self.out, "a bound of values") for piece in pieces]
        if nodes[0] is None or nodes[1] is None:
            return None
        kind = OffsetValues if match is not None else ValueRange
        return kind(nodes[0], nodes[1], str(text))


def size_names(texts: list[LocatedStr], constants: set[str]) -> set[str]:
    """Identifiers in axis texts that are not constants: the sizes that these axes speak of."""
    names = {name for text in texts for name in re.findall(r"[A-Za-z_]\w*", text)}
    return names - constants


def low_bound(node: Node) -> int | None:
    """Value of a bound that is known without any tensor."""
    return node.value if isinstance(node, Const) else None


def is_var(node: Node, name: str) -> bool:
    return isinstance(node, Var) and node.name == name
