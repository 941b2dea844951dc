# Written by kvcanary-gen from the spec; edit that instead.
"""The exception of an engine that must stop at the first violation."""

from __future__ import annotations

from collections.abc import Iterable

from .. import errors
from .describe import describe, headline
from .records import ViolationRecord

__all__ = ["CanaryViolationError"]


class CanaryViolationError(errors.CanaryRuntimeError):
    """Violations were found and the canary was told to raise.

    Attributes:
        id: "KVC-084".
        records: the violations, at least one, in the order in which they were read.
    """

    def __init__(self, records: Iterable[ViolationRecord]) -> None:
        """Raises CanaryValueError (KVC-085) where there is nothing to report."""
        self.records = tuple(records)
        if not self.records:
            raise errors.CanaryValueError(
                "KVC-085", "kv-canary: CanaryViolationError needs at least one record, got none"
            )
        first, others = headline(self.records[0]), len(self.records) - 1
        more = f" (and {others:,} more)" if others else ""
        super().__init__("KVC-084", f"kv-canary: {first}{more}")

    def __reduce__(self) -> tuple[type[CanaryViolationError], tuple[tuple[ViolationRecord, ...]]]:  # type: ignore[override]
        return type(self), (self.records,)

    def describe(self, most: int = 10) -> str:
        """The first `most` violations in prose."""
        blocks = [describe(record) for record in self.records[:most]]
        left = len(self.records) - len(blocks)
        return "\n\n".join([*blocks, *([f"… and {left:,} more"] if left else [])])
