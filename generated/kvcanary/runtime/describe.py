# Written by kvcanary-gen from the spec; edit that instead.
"""A violation in prose."""

from __future__ import annotations

import textwrap

from .meanings import CARRIED, STAGES, reason, value_text
from .records import ViolationRecord
from .text import clock, named, shown

__all__ = ["describe", "headline"]


def headline(record: ViolationRecord) -> str:
    """What is wrong with which slot, on one line: for messages that have no room for more."""
    reasons = ", ".join(map(shown, record.reasons)) or "no reason"
    who = "" if record.request_id is None else f" of request {named(record.request_id, 60)}"
    return (
        f"{reasons} at slot {record.slot} of pool {named(record.pool, 60)}, position {record.position}{who}, "
        f"step {record.step} ({shown(record.kind)})"
    )


def describe(record: ViolationRecord) -> str:
    """A block of prose, without a line break at its end: where, whose, stored and expected values, what it means.

    The values are those of the row. Hashes are in hexadecimal.
    """
    stage = STAGES.get(record.stage)
    lines = [
        f"KV canary violation in step {record.step}, forward {named(record.forward)}, seen {clock(record.time)}",
        f"  where     slot {record.slot} of pool {named(record.pool)}, position {record.position}",
        f"  found by  {shown(record.kind)}" + ("" if stage is None else f": {stage.doc}"),
        f"  request   {named(record.request_id)}" + _row(record),
    ]
    width = max((len(field.name) for field in CARRIED), default=0)
    for field in CARRIED:
        label = field.name.replace("_", " ")
        lines.append(f"  {label:{width}}  {value_text(record, field.name):>18}  {field.doc}")
    for name in record.reasons:
        lines += _explained(name)
    return "\n".join(lines)


def _row(record: ViolationRecord) -> str:
    return "" if record.request_row is None else f", row {record.request_row} of the batch"


def _explained(name: str) -> list[str]:
    found = reason(name)
    lines = [f"  {shown(name)}: {found.doc}"]
    if found.cause:
        lines += textwrap.wrap(f"Usually: {found.cause}", 112, initial_indent="    ", subsequent_indent="    ")
    return lines
