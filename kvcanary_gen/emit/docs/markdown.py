"""Small pieces of Markdown."""

from __future__ import annotations

from collections.abc import Iterable


def code(text: object) -> str:
    return f"`{text}`"


def codes(items: Iterable[object]) -> str:
    """`a`, `b` and `c`."""
    return listing([code(item) for item in items])


def listing(items: list[str], word: str = "and") -> str:
    """a, b and c."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {word} {items[-1]}" if items else ""


def table(head: list[str], rows: Iterable[Iterable[object]]) -> str:
    """A table whose columns are as wide as their widest cell, except the last, which runs free."""
    cells = [head, *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head) - 1)]
    lines = ["| " + " | ".join(_pad(row, widths)) + " |" for row in cells]
    rule = "| " + " | ".join(["-" * max(3, width) for width in widths] + ["---"]) + " |"
    return "\n".join([lines[0], rule, *lines[1:]])


def _pad(row: list[str], widths: list[int]) -> list[str]:
    return [*(cell.ljust(max(3, width)) for cell, width in zip(row, widths, strict=False)), row[-1]]


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def anchor(heading: str) -> str:
    """The fragment by which a heading is linked."""
    kept = "".join(c for c in heading.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")
