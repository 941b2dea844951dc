# Written by kvcanary-gen from the spec; edit that instead.
"""What becomes of violations on the host: lines of a log, a journal, an exception, a summary."""

from __future__ import annotations

import collections
import dataclasses
import json
import logging
from collections.abc import Sequence
from pathlib import Path

from .. import errors
from .config import CanaryConfig
from .lines import format_line
from .records import ViolationRecord

__all__ = ["CanaryViolationError"]

logger = logging.getLogger("kvcanary")


class CanaryViolationError(errors.CanaryRuntimeError):
    """Violations, in mode raise.

    Attributes:
        records: What was found, in the order of the rows.
        lost: How many more did not fit their rings.
    """

    def __init__(self, id: str, message: str, records: Sequence[ViolationRecord] = (), lost: int = 0) -> None:
        super().__init__(id, message)
        self.records = tuple(records)
        self.lost = lost

    def __reduce__(self) -> tuple[type[CanaryViolationError], tuple[str, str, tuple[ViolationRecord, ...], int]]:  # type: ignore[override]
        return type(self), (self.id, str(self), self.records, self.lost)


class Reporter:
    """Hands out violations as the configuration says, and remembers how many there were."""

    def __init__(self, config: CanaryConfig) -> None:
        self._config = config
        self._warned: dict[str, int] = {}
        self.by_kind: collections.Counter[tuple[str, str, str]] = collections.Counter()
        self.violations = 0
        self.lost = 0

    def report(self, records: Sequence[ViolationRecord], lost: int, step: int) -> None:
        """Logs and journals; counts what is not logged one by one."""
        self.violations += len(records)
        self.lost += lost
        for record in records:
            self.by_kind[record.pool, record.kind, "+".join(record.reasons)] += 1
        limit = self._config.log_limit
        for record in records[:limit]:
            logger.error("%s", format_line(record))
        if len(records) > limit:
            logger.error("kv-canary: %d more violations up to step %d", len(records) - limit, step)
        if lost:
            logger.error(
                "kv-canary: %d violations up to step %d did not fit the ring of %d rows; their number is all that "
                "is known of them. Raise ring_capacity to keep more.",
                lost,
                step,
                self._config.ring_capacity,
            )
        if self._config.journal is not None and records:
            self._append(Path(self._config.journal), records)

    @staticmethod
    def _append(path: Path, records: Sequence[ViolationRecord]) -> None:
        with path.open("a", encoding="utf-8") as stream:
            for record in records:
                stream.write(json.dumps(dataclasses.asdict(record)) + "\n")

    def error(self, records: Sequence[ViolationRecord], lost: int, step: int) -> CanaryViolationError | None:
        """What mode raise raises; None where there is nothing."""
        if not records and not lost:
            return None
        count = len(records) + lost
        first = format_line(records[0]) if records else "not known, as no row fitted the ring"
        text = f"kv-canary: {count} violations up to step {step}, the first: {first}"
        return CanaryViolationError("KVC-059", text, records, lost)

    def warn(self, key: str, step: int, text: str, *values: object) -> None:
        """Warns, unless the same was said in the last steps."""
        if step - self._warned.get(key, -self._config.warn_interval) >= self._config.warn_interval:
            self._warned[key] = step
            logger.warning(text, *values)

    def summary(self, steps: int) -> str:
        """What there was, in a few lines."""
        lines = [f"kv-canary: {self.violations} violations in {steps} steps"]
        if self.lost:
            lines[0] += f", and {self.lost} that did not fit a ring"
        for (pool, kind, reasons), count in self.by_kind.most_common():
            lines.append(f"  {count} x pool {pool}, {kind}: {reasons}")
        return "\n".join(lines)
