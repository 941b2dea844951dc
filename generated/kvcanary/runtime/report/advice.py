# Written by kvcanary-gen from the spec; edit that instead.
"""What to look at first: patterns in the violations that point at a culprit."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from ..meanings import STAGES, reason
from ..text import listing, named, plural
from .collect import Columns

_MOST = 6
# A pattern counts where it covers at least this share of what it is about.
_MOSTLY = 0.8
_SHARED_SLOT = 3


class Finding(NamedTuple):
    """A pattern: what was seen, and what it usually means. Plain text."""

    title: str
    text: str


@dataclass
class _Facts:
    """What the patterns are read from, gathered in one pass."""

    total: int
    first_step: int = 0
    last_step: int = 0
    by_when: Counter[str] = field(default_factory=Counter)
    # (step, forward, pool, slot) that were found before and after the forward, but for rows about real bytes alone:
    # a stage before the forward does not look at these.
    before: set[tuple[object, ...]] = field(default_factory=set)
    after: set[tuple[object, ...]] = field(default_factory=set)
    by_step: Counter[int] = field(default_factory=Counter)
    by_request: Counter[int] = field(default_factory=Counter)
    writing: int = 0
    owners: defaultdict[tuple[tuple[str, ...], int], set[int]] = field(default_factory=lambda: defaultdict(set))


def advice(columns: Columns) -> list[Finding]:
    """Patterns, the most telling first. `columns` has at least one row."""
    facts = _gather(columns)
    patterns = (_beginning, _inputs, _forward, _reused, _one_request, _periodic, _burst, _block)
    found = [finding for pattern in patterns if (finding := pattern(columns, facts)) is not None]
    return found[:_MOST]


def _gather(columns: Columns) -> _Facts:
    facts = _Facts(len(columns), min(columns.steps), max(columns.steps))
    whens = [_when(place.axis("stage")) for place in columns.place_names]
    meanings = [[reason(name) for name in names] for names in columns.reason_names]
    bytes_alone = [all(meaning.real_bytes for meaning in found) for found in meanings]
    writing = [any(meaning.writing for meaning in found) for found in meanings]
    spaces = [place.space for place in columns.place_names]
    for step, slot, place, reasons, request in columns.rows():
        when = whens[place]
        facts.by_when[when] += 1
        facts.writing += writing[reasons]
        facts.owners[spaces[place], slot].add(request)
        if when in ("before", "after") and not bytes_alone[reasons]:
            key = (step, columns.place_names[place].forward, spaces[place], slot)
            (facts.before if when == "before" else facts.after).add(key)
    facts.by_step, facts.by_request = Counter(columns.steps), Counter(columns.requests)
    return facts


def _when(stage: str) -> str:
    return STAGES[stage].when if stage in STAGES else ""


def _stages(when: str) -> str:
    return listing([stage.name for stage in STAGES.values() if stage.when == when])


# --- patterns ---------------------------------------------------------------------------------------------------------


def _beginning(columns: Columns, facts: _Facts) -> Finding | None:
    """Where it starts: later violations often follow from the first."""
    if facts.total == 1:
        return None
    rows = [row for row in columns.rows() if row[0] == facts.first_step]
    names = Counter(name for row in rows for name in columns.reason_names[row[3]])
    slots = sorted({row[1] for row in rows})
    where = f"slot {slots[0]:,}" if len(slots) == 1 else f"{len(slots):,} slots, the lowest {slots[0]:,}"
    return Finding(
        f"It begins in step {facts.first_step:,}",
        f"{plural(len(rows), 'violation')} there, at {where}: {listing([name for name, _ in names.most_common(3)])}. "
        "A link covers all that came before it, so one broken slot makes its successors fail too: look at what "
        "happened in this step before anything later.",
    )


def _inputs(columns: Columns, facts: _Facts) -> Finding | None:
    if facts.writing < _MOSTLY * facts.total:
        return None
    return Finding(
        "What the forward was given is wrong",
        f"{_of(facts.writing, facts.total, 'violation')} found where fingerprints are written, not where they are "
        "verified. Look at how the batch is put together (tokens, positions, slots to write), not at the cache.",
    )


def _forward(columns: Columns, facts: _Facts) -> Finding | None:
    """The stages on both sides of the forward, against each other."""
    if facts.by_when["after"] and not facts.after:
        return Finding(
            f"Only real KV bytes, and only {_stages('after')}",
            f"{_stages('before')} does not look at real bytes, so it cannot say on which side of the forward they "
            "changed. Suspect whatever writes KV without the canary: copies, restores, transfers, kernels that run out "
            "of bounds.",
        )
    both = facts.after & facts.before
    if not facts.after or (_few(len(both), facts) and _few(len(facts.after) - len(both), facts)):
        return None
    if len(both) < len(facts.after) / 2:
        passed = _of(len(facts.after) - len(both), len(facts.after), "place")
        return Finding(
            f"{_stages('before')} clean, {_stages('after')} dirty",
            f"{passed} that {_stages('after')} complains of passed {_stages('before')} in the same step, so the "
            "forward itself broke what it found: look at the kernels that write KV, at the slots they are given, and "
            "at whatever else runs on another stream meanwhile.",
        )
    return Finding(
        "Broken before the forward",
        f"{_of(len(both), len(facts.after), 'place')} that {_stages('after')} complains of failed in "
        f"{_stages('before')} already, so the forward is not to blame: look at what happens between steps, such as "
        "tables, allocation, eviction and copies.",
    )


def _few(count: int, facts: _Facts) -> bool:
    return count < _MOSTLY * len(facts.after)


def _reused(columns: Columns, facts: _Facts) -> Finding | None:
    """One slot that several requests trip over."""
    shared = [(len(owners), key) for key, owners in facts.owners.items() if len(owners) >= _SHARED_SLOT]
    if not shared:
        return None
    count, (space, slot) = max(shared)
    more = f", and {plural(len(shared) - 1, 'other slot')} like it" if len(shared) > 1 else ""
    return Finding(
        f"Slot {slot:,} fails for {count:,} requests",
        f"Pool {named(space[0], 40)}{more}. A slot that many requests trip over was freed and handed out while still "
        "in use, or is a shared prefix that somebody overwrote: look at the reference counts of the block that holds "
        "it, and at who wrote it last.",
    )


def _one_request(columns: Columns, facts: _Facts) -> Finding | None:
    request, count = facts.by_request.most_common(1)[0]
    name = columns.request_names[request]
    known = sum(columns.request_names[index] is not None for index in facts.by_request)
    if name is None or facts.total < 2 or count < _MOSTLY * facts.total:
        return None
    others = "" if known == 1 else f" of {known:,} that are concerned"
    return Finding(
        f"One request: {named(name, 60)}",
        f"{_of(count, facts.total, 'violation')} of this request{others}. Then its own table is the suspect: its row, "
        "its prefix hit, a resume after preemption, or the copy that it was forked from.",
    )


def _periodic(columns: Columns, facts: _Facts) -> Finding | None:
    if facts.by_when["periodic"] < facts.total:
        return None
    return Finding(
        f"Only {_stages('periodic')}",
        "No running request has seen it: the slots broke while the cache merely kept them. Look at eviction, offload "
        "and restore, and at writes to blocks that were freed.",
    )


def _burst(columns: Columns, facts: _Facts) -> Finding | None:
    step, count = facts.by_step.most_common(1)[0]
    if facts.first_step == facts.last_step or count < _MOSTLY * facts.total:
        return None
    return Finding(
        f"One event: step {step:,}",
        f"{_of(count, facts.total, 'violation')} in a single step. Look for what is done rarely: a reset, a restore, "
        "a resize.",
    )


def _block(columns: Columns, facts: _Facts) -> Finding | None:
    """Neighbouring slots: a block, not single entries."""
    slots = sorted({slot for _, slot in facts.owners})
    spaces = {space for space, _ in facts.owners}
    if len(spaces) != 1 or len(slots) < 4 or slots[-1] - slots[0] + 1 != len(slots):
        return None
    return Finding(
        f"{len(slots):,} neighbouring slots",
        f"Slots {slots[0]:,} to {slots[-1]:,} without a gap. A whole block is wrong, not single entries: look at its "
        "owner, and at copies of blocks.",
    )


def _of(count: int, total: int, noun: str) -> str:
    """`All 3 places`, `2 of 3 places`, `The only place`."""
    if total == 1:
        return f"The only {noun}"
    return f"All {total:,} {noun}s" if count == total else f"{count:,} of {total:,} {noun}s"
