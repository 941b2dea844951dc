"""Import statements as sorters leave them."""

from __future__ import annotations

import re
from collections.abc import Iterable


def import_line(module: str, names: Iterable[str]) -> str:
    """An import as sorters leave it."""
    ordered = sorted(names, key=_import_order)
    line = f"from {module} import {', '.join(ordered)}"
    if len(line) <= 120:
        return line
    return "\n".join([f"from {module} import (", *(f"    {name}," for name in ordered), ")"])


def _import_order(name: str) -> tuple[int, list[tuple[int, str]]]:
    """Constants, classes, functions: the order in which import sorters list names."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, natural(name)


def natural(text: str) -> list[tuple[int, str]]:
    """A sort key under which numbers in names count as numbers, and case does not count."""
    parts = re.split(r"(\d+)", text.lower())
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts if part]
