# Written by kvcanary-gen from the spec; edit that instead.
"""Counts of violations, printed when an engine stops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from .records import ViolationRecord
from .text import named, plural, shown

__all__ = ["Summary", "Tally"]

Key = TypeVar("Key", bound=Hashable)


class Tally(Generic[Key]):
    """Counts by key for at most `limit` keys; later keys are counted together, so that memory stays bounded."""

    def __init__(self, limit: int = 10_000) -> None:
        self.limit = limit
        # Occurrences of keys that came when the limit was reached.
        self.others = 0
        self._counts: Counter[Key] = Counter()

    def add(self, key: Key, count: int = 1) -> None:
        if key in self._counts or len(self._counts) < self.limit:
            self._counts[key] += count
        else:
            self.others += count

    def __len__(self) -> int:
        """Keys that are counted one by one."""
        return len(self._counts)

    def __getitem__(self, key: Key) -> int:
        return self._counts[key]

    def most_common(self, most: int | None = None) -> list[tuple[Key, int]]:
        """Keys by falling count; of equal counts the one that came first."""
        return self._counts.most_common(most)


class Summary:
    """What was reported so far, by reason, stage, slot and request. Bounded memory; one thread at a time."""

    def __init__(self) -> None:
        # Violations added, and rows that a full ring dropped before anyone could read them.
        self.count = 0
        self.dropped = 0
        self.first_step: int | None = None
        self.last_step: int | None = None
        self.by_reason: Tally[str] = Tally()
        self.by_stage: Tally[str] = Tally()
        self.by_slot: Tally[tuple[str, int]] = Tally()
        self.by_request: Tally[str | None] = Tally()

    @classmethod
    def of(cls, records: Iterable[ViolationRecord]) -> Summary:
        """The summary of some records."""
        found = cls()
        for record in records:
            found.add(record)
        return found

    def add(self, record: ViolationRecord) -> None:
        self.count += 1
        self.first_step = record.step if self.first_step is None else min(self.first_step, record.step)
        self.last_step = record.step if self.last_step is None else max(self.last_step, record.step)
        for name in record.reasons:
            self.by_reason.add(name)
        self.by_stage.add(record.stage)
        self.by_slot.add((record.pool, record.slot))
        self.by_request.add(record.request_id)

    def note_dropped(self, rows: int) -> None:
        """Counts rows that were lost because the ring was full."""
        self.dropped += rows

    def lines(self, most: int = 5) -> list[str]:
        """A few tidy lines, the `most` frequent of each kind."""
        if not self.count and not self.dropped:
            return ["kv-canary: no violations"]
        head = f"kv-canary: {plural(self.count, 'violation')}"
        if self.first_step is not None:
            same = self.first_step == self.last_step
            head += f" in step {self.first_step}" if same else f" in steps {self.first_step} to {self.last_step}"
        if self.dropped:
            head += f", and {plural(self.dropped, 'row')} more that a full ring dropped"
        return [head, *self._counts(most)]

    def _counts(self, most: int) -> list[str]:
        pools = len({pool for (pool, _), _ in self.by_slot.most_common()}) > 1
        kinds = [
            ("reasons", _row(self.by_reason, most, shown)),
            ("stages", _row(self.by_stage, most, shown)),
            ("slots", _row(self.by_slot, most, lambda key: f"{named(key[0], 30)}:{key[1]}" if pools else str(key[1]))),
            ("requests", _row(self.by_request, most, lambda key: named(key, 40))),
        ]
        return [f"  {label:9} {text}" for label, text in kinds if text]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _row(tally: Tally[Key], most: int, label: Callable[[Key], str]) -> str:
    """`a ×3, b ×1 and 4 more`."""
    parts = [f"{label(key)} ×{count:,}" for key, count in tally.most_common(most)]
    more = len(tally) - len(parts)
    text = ", ".join(parts)
    if tally.others:
        return f"{text} and more than {more:,} more"
    return f"{text} and {more:,} more" if more else text
