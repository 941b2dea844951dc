"""Names that are unknown because no `include` names the file that declares them."""

from __future__ import annotations

import itertools
import re

from kvcanary_gen.diagnostics import Diagnostics
from kvcanary_gen.load import Document
from kvcanary_gen.schema import SECTIONS
from kvcanary_gen.source import read_source

MAX_FILES = 1000
MAX_SHOWN = 3
_NAME = re.compile(r"'(\w+)'")


def explain_strays(document: Document, out: Diagnostics) -> None:
    """Replaces the findings on names of one file that is not included by a single one that says so."""
    if not any(found.rule == "KVG-012" for found in out.found):
        return
    paths = sorted(itertools.islice(document.root.rglob("*.yaml"), MAX_FILES))
    for path in paths:
        file = f"{document.root.name}/{path.relative_to(document.root).as_posix()}"
        source = None if file in document.sources else read_source(path, file, Diagnostics())
        if source is None or not isinstance(source.tree, dict):
            continue
        parts = [source.tree.get(section) for section in SECTIONS]
        declared = {str(name) for part in parts if isinstance(part, dict) for name in part}
        unknown = {found: match.group(1) for found in out.found if (match := _NAME.search(found.message))}
        explained = {found for found, name in unknown.items() if found.rule == "KVG-012" and name in declared}
        if explained:
            names = sorted({unknown[found] for found in explained})
            shown = ", ".join(names[:MAX_SHOWN]) + (", …" if len(names) > MAX_SHOWN else "")
            out.found = [found for found in out.found if found not in explained]
            mark = document.root_source.locate(("include",), key=True)
            out.add(mark, "KVG-006", f"no `include` names {file}, which declares {shown}")
