"""Parts of the spec as they were written, for reference pages and `explain`."""

from __future__ import annotations

import textwrap

from kvcanary_gen.load import Document


def spec_file(document: Document, section: str, name: str) -> str:
    """File of a declaration, relative to the spec folder."""
    return document.places[section, name].removeprefix(f"{document.root.name}/")


def block(document: Document, section: str, name: str, *path: str | int) -> tuple[int, list[str]]:
    """The lines of a declaration or of a part of it, comments above it included, and the number of the first."""
    mark = document.mark(section, name, *path, key=True)
    lines = (document.root / spec_file(document, section, name)).read_text("utf-8").splitlines()
    first, end = mark.line - 1, mark.line
    indent = _indent(lines[first])
    while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > indent):
        end += 1
    while not lines[end - 1].strip():
        end -= 1
    while first > 0 and lines[first - 1].lstrip().startswith("#") and _indent(lines[first - 1]) == indent:
        first -= 1
    return first + 1, lines[first:end]


def source(document: Document, section: str, name: str, *paths: str) -> str:
    """Parts of a declaration one after the other, without their common indentation; missing parts are left out."""
    declared = {key.rstrip("_") for key in document.section(section)[name].model_fields_set}
    lines = [line for path in paths if path in declared for line in block(document, section, name, path)[1]]
    return textwrap.dedent("\n".join(lines))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
