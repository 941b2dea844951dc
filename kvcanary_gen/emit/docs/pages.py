"""The frame of every page."""

from __future__ import annotations

import re

from kvcanary_gen.emit.frames import render

HEADER = "<!-- Written by kvcanary-gen from the spec; edit that instead. -->"


def page(template: str, **values: object) -> str:
    """A rendered page: a header, no trailing blanks, never two empty lines in a row, one newline at the end."""
    text = render(f"docs/{template}", **values)
    lines = [line.rstrip() for line in text.splitlines()]
    body = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
    return f"{HEADER}\n\n{body}\n"
