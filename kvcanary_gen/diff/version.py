"""Versions of a spec: semantic ones, where 0.y breaks with y and grows with the last number."""

from __future__ import annotations

from collections.abc import Iterable

from kvcanary_gen.diff.changes import Change

Version = tuple[int, int, int]


def read_version(text: str) -> Version:
    major, minor, patch = map(int, text.split("."))
    return major, minor, patch


def needed(old: Version, found: Iterable[Change]) -> Version:
    """The least version that says enough about these changes."""
    breaking = [change.breaking for change in found]
    major, minor, patch = old
    if not breaking:
        return old
    if major == 0:
        return (0, minor + 1, 0) if any(breaking) else (0, minor, patch + 1)
    return (major + 1, 0, 0) if any(breaking) else (major, minor + 1, 0)
