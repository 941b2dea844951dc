# Written by kvcanary-gen from the spec; edit that instead.
"""What becomes of violations on the host: lines of a log, a journal, an exception, a summary."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from .config import CanaryConfig
from .journal import Journal
from .lines import format_line
from .records import ViolationRecord
from .summary import Summary

logger = logging.getLogger("kvcanary")


class Reporter:
    """Hands out violations as the configuration says, and remembers how many there were."""

    def __init__(self, config: CanaryConfig) -> None:
        self._config = config
        self._journal = None if config.journal is None else Journal(config.journal)
        self._warned: dict[str, int] = {}
        self.summary = Summary()

    def report(self, records: Sequence[ViolationRecord], lost: int, step: int) -> None:
        """Logs and journals; counts what is not logged one by one."""
        for record in records:
            self.summary.add(record)
        self.summary.note_dropped(lost)
        # The file comes first: a handler of the logger may raise whatever it likes.
        if self._journal is not None and records:
            self._append(self._journal, records)
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

    @staticmethod
    def _append(journal: Journal, records: Sequence[ViolationRecord]) -> None:
        try:
            journal.append(*records)
        except OSError as error:
            # A full disk must not stop an engine; the log has the lines.
            logger.error("kv-canary: cannot write to %s: %s", journal.path, error)

    def warn(self, key: str, step: int, text: str, *values: object) -> None:
        """Warns, unless the same was said in the last steps."""
        if step - self._warned.get(key, -self._config.warn_interval) >= self._config.warn_interval:
            self._warned[key] = step
            logger.warning(text, *values)

    def close(self, steps: int) -> None:
        """Logs the summary."""
        if self._journal is not None:
            self._journal.close()
        logger.info("kv-canary: closed after %d steps\n%s", steps, self.summary)
