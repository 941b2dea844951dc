# Written by kvcanary-gen from the spec; edit that instead.
"""A page of HTML about a journal of violations: self-contained, and the same for the same journal."""

from __future__ import annotations

import os
from typing import NoReturn

from ... import errors
from .collect import Columns, collect, collect_file
from .page import build_page

__all__ = ["Columns", "build_page", "collect", "collect_file", "write_report"]

FIRST_ROWS = 50


def write_report(
    journal: str | os.PathLike[str], page: str | os.PathLike[str], first_rows: int = FIRST_ROWS
) -> Columns:
    """Writes the page about a journal, and returns what it is about.

    Args:
        journal: file of JSON Lines that Journal wrote. Lines that are no violation are left out and named in the page.
        page: HTML file to write; what stands there is replaced.
        first_rows: how many violations the page shows in full.

    Raises:
        CanaryValueError: KVC-083 where a file cannot be read or written, where both are one file, or where the
            journal has lines and none of them is a violation. Nothing is written then.
    """
    source, target = os.fsdecode(journal), os.fsdecode(page)
    if os.path.realpath(source) == os.path.realpath(target):
        _unusable(target, "the page would replace the journal that it is about")
    columns = collect_file(source, first_rows)
    if not len(columns) and columns.bad_count:
        _unusable(source, f"it has no violation; line {columns.bad[0].number}: {columns.bad[0].problem}")
    text = build_page(columns, source)
    try:
        with open(target, "w", encoding="utf-8") as file:
            file.write(text)
    except (OSError, ValueError) as error:
        _unusable(target, getattr(error, "strerror", None) or str(error))
    return columns


def _unusable(path: str, problem: str) -> NoReturn:
    raise errors.CanaryValueError("KVC-083", f"kv-canary: cannot use {path}: {problem}")
