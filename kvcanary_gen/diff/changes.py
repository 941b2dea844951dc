"""The differences between the facts of two programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kvcanary_gen.diff.facts import Fact, Facts, Kind, Path, facts
from kvcanary_gen.ir import Program


@dataclass(frozen=True)
class Change:
    """`breaking`: who used the package before may have to change something, or gets other bytes."""

    kind: Kind
    path: Path
    what: Literal["added", "removed", "changed"]
    before: str
    after: str
    breaking: bool

    @property
    def place(self) -> str:
        return ", ".join(self.path)


def changes(old: Program, new: Program) -> list[Change]:
    """Every difference that users of the package can notice; prose and schedules are none."""
    before, after = facts(old), facts(new)
    found = list(_came_and_went(before, after))
    found += [
        Change(fact.kind, path, "changed", before[path].text, fact.text, not _relaxed(before[path], fact))
        for path, fact in after.items()
        if path in before and _differ(before[path], fact)
    ]
    order = {path: place for place, path in enumerate([*before, *after])}
    kinds = list(Kind)
    return sorted(found, key=lambda change: (kinds.index(change.kind), order.get(change.path, 0)))


def _came_and_went(before: Facts, after: Facts) -> Iterator[Change]:
    for path, fact in before.items():
        if path not in after and not _below_missing(path, after, before) and not fact.inner:
            yield Change(fact.kind, path, "removed", fact.text, "", True)
    for path, fact in after.items():
        if path not in before and not _below_missing(path, before, after) and not fact.inner:
            yield Change(fact.kind, path, "added", "", fact.text, fact.adds_break)


def _below_missing(path: Path, there: Facts, here: Facts) -> bool:
    """Whether something that the path lies below came or went itself."""
    return any(path[:size] in here and path[:size] not in there for size in range(1, len(path)))


def _relaxed(before: Fact, after: Fact) -> bool:
    """An argument that need not be given any more breaks no call."""
    return (before.text, after.text) == ("required", "optional")


def _differ(before: Fact, after: Fact) -> bool:
    if not after.ordered:
        return before.text != after.text
    lists = [fact.text.split(", ") for fact in (before, after)]
    common = set(lists[0]) & set(lists[1])
    old, new = ([name for name in each if name in common] for each in lists)
    return old != new
