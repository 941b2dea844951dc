# Written by kvcanary-gen from the spec; edit that instead.
"""The rows of a journal as columns of numbers, so that a million of them fit in memory and are counted fast."""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..journal import BadLine, read_journal
from ..meanings import AXES, SLOT_AXES
from ..records import ViolationRecord

# Stands for a row without any reason bit.
NO_REASON = "no reason"

_SHOWN_BAD_LINES = 5


class Place(NamedTuple):
    """Who found a violation: pool, forward, and the values of the launch tag's axes in their order."""

    pool: str
    forward: str
    axes: tuple[str, ...]

    def axis(self, name: str) -> str:
        return self.axes[AXES.index(name)]

    @property
    def space(self) -> tuple[str, ...]:
        """What tells one numbering of slots from another."""
        return (self.pool, *(self.axis(name) for name in SLOT_AXES))


class Columns:
    """Violations by column; `places`, `reasons` and `requests` are indices into lists of what occurs.

    Attributes:
        first: the first records in full.
        bad: the first lines that are no violation; `bad_count` of them in all.
    """

    def __init__(self) -> None:
        self.steps = array("q")
        self.slots = array("q")
        self.places = array("l")
        self.reasons = array("l")
        self.requests = array("l")
        self.place_names: list[Place] = []
        self.reason_names: list[tuple[str, ...]] = []
        self.request_names: list[str | None] = []
        self.first: list[ViolationRecord] = []
        self.bad: list[BadLine] = []
        self.bad_count = 0
        self.times = (0.0, 0.0)

    def __len__(self) -> int:
        return len(self.steps)

    def note_bad(self, line: BadLine) -> None:
        self.bad_count += 1
        if len(self.bad) < _SHOWN_BAD_LINES:
            self.bad.append(line)

    def reason_counts(self) -> Counter[str]:
        """Violations with each reason; one with two reasons counts for both."""
        found: Counter[str] = Counter()
        for index, count in Counter(self.reasons).items():
            for name in self.reason_names[index]:
                found[name] += count
        return found

    def place_counts(self) -> list[tuple[Place, int]]:
        return [(self.place_names[index], count) for index, count in Counter(self.places).items()]

    def request_counts(self) -> list[tuple[int, int]]:
        """Index of the request and its violations, most first."""
        return Counter(self.requests).most_common()

    def rows(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Step, slot, place, reasons and request of every violation."""
        return zip(self.steps, self.slots, self.places, self.reasons, self.requests, strict=True)


def collect(records: Iterable[ViolationRecord], most_first: int, into: Columns | None = None) -> Columns:
    """Columns of the records, with the first `most_first` of them in full."""
    found = Columns() if into is None else into
    places: dict[Place, int] = {}
    reasons: dict[tuple[str, ...], int] = {}
    requests: dict[str | None, int] = {}
    low = high = None
    for record in records:
        place = Place(record.pool, record.forward, tuple([getattr(record, axis) for axis in AXES]))
        found.steps.append(record.step)
        found.slots.append(record.slot)
        found.places.append(places.setdefault(place, len(places)))
        found.reasons.append(reasons.setdefault(record.reasons or (NO_REASON,), len(reasons)))
        found.requests.append(requests.setdefault(record.request_id, len(requests)))
        low = record.time if low is None or record.time < low else low
        high = record.time if high is None or record.time > high else high
        if len(found.first) < most_first:
            found.first.append(record)
    found.place_names, found.reason_names, found.request_names = list(places), list(reasons), list(requests)
    found.times = (low or 0.0, high or 0.0)
    return found


def collect_file(path: str | os.PathLike[str], most_first: int) -> Columns:
    """Columns of a journal; lines that are no violation are counted. Raises CanaryValueError (KVC-083)."""
    found = Columns()
    return collect(read_journal(path, found.note_bad), most_first, found)
