# Written by kvcanary-gen from the spec; edit that instead.
"""What stands around the kernels: everything that an engine attaches, and reports that people read."""

from __future__ import annotations

from .describe import describe, headline
from .failure import CanaryViolationError
from .journal import BadLine, Journal, read_journal
from .lines import format_line, parse_violation
from .meanings import REASONS, STAGES, Reason, Stage
from .records import FIELDS, Field, ViolationRecord
from .summary import Summary, Tally

__all__ = [
    "BadLine",
    "CanaryViolationError",
    "FIELDS",
    "Field",
    "Journal",
    "REASONS",
    "Reason",
    "STAGES",
    "Stage",
    "Summary",
    "Tally",
    "ViolationRecord",
    "describe",
    "format_line",
    "headline",
    "parse_violation",
    "read_journal",
]
