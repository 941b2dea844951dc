# Written by kvcanary-gen from the spec; edit that instead.
"""What stands around the kernels: everything that an engine attaches, and reports that people read."""

from __future__ import annotations

from .lines import format_line, parse_violation
from .records import FIELDS, Field, ViolationRecord

__all__ = [
    "FIELDS",
    "Field",
    "ViolationRecord",
    "format_line",
    "parse_violation",
]
