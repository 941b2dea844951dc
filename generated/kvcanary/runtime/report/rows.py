# Written by kvcanary-gen from the spec; edit that instead.
"""The first violations in full, stored beside expected values."""

from __future__ import annotations

from ..meanings import CARRIED, reason, value_text
from ..records import ViolationRecord
from ..text import clock, plural
from .svg import esc
from .tables import badges, request_name

_OPEN = 1


def first_rows(records: list[ViolationRecord], total: int, classes: dict[str, str]) -> str:
    """A box that opens for each record."""
    boxes = [_box(record, classes, place < _OPEN) for place, record in enumerate(records)]
    left = total - len(records)
    note = f'<p class="note">{plural(left, "violation")} more in the file.</p>' if left else ""
    return "".join(boxes) + note


def _box(record: ViolationRecord, classes: dict[str, str], opened: bool) -> str:
    who = request_name(record.request_id)
    row = "" if record.request_row is None else f", row {record.request_row}"
    facts = [
        ("request", f"{who}{row}"),
        ("position", f"{record.position:,}"),
        ("pool", f"{esc(record.pool, 60)}, forward {esc(record.forward, 60)}"),
        ("seen", esc(clock(record.time))),
    ]
    listed = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts)
    said = "".join(f"<li><b>{esc(name)}</b>: {esc(reason(name).doc, 1000)}</li>" for name in record.reasons)
    return (
        f"<details{' open' if opened else ''}><summary><b>step {record.step:,}</b> <span>{esc(record.kind)}</span> "
        f"<span>slot {record.slot:,}</span> {badges(record.reasons, classes)}</summary>"
        f"<dl>{listed}</dl>{_values(record)}<ul>{said}</ul></details>"
    )


def _values(record: ViolationRecord) -> str:
    """Stored and expected values side by side, then whatever else the row carries."""
    pairs, rest = value_pairs()
    rows = []
    for stored, expected in pairs:
        have, want = value_text(record, stored), value_text(record, expected)
        style = "" if have == want or "unknown" in (have, want) else ' class="differs"'
        rows.append(f"<tr{style}><td>{esc(_pair_name(stored, expected))}</td><td>{have}</td><td>{want}</td></tr>")
    for name in rest:
        rows.append(f"<tr><td>{esc(name.replace('_', ' '))}</td><td colspan=2>{value_text(record, name)}</td></tr>")
    head = "<tr><th></th><th>stored</th><th>expected</th></tr>"
    return f'<div class="scroll" tabindex="0"><table class="values">{head}{"".join(rows)}</table></div>'


def value_pairs() -> tuple[list[tuple[str, str]], list[str]]:
    """Fields that belong together as stored and expected, by name and else by kind, and those that stand alone."""
    kinds = {field.name: field.kind for field in CARRIED}
    stored = [name for name in kinds if name.startswith("stored_")]
    expected = [name for name in kinds if name.startswith("expected_")]
    pairs: dict[str, str] = {}
    for exact in (True, False):
        for name in stored:
            for other in expected:
                same = name.removeprefix("stored_") == other.removeprefix("expected_")
                free = name not in pairs and other not in pairs.values()
                if free and (same if exact else kinds[name] == kinds[other]):
                    pairs[name] = other
    taken = {*pairs, *pairs.values()}
    return [(name, pairs[name]) for name in stored if name in pairs], [name for name in kinds if name not in taken]


def _pair_name(stored: str, expected: str) -> str:
    one, other = stored.removeprefix("stored_"), expected.removeprefix("expected_")
    return (one if one == other else f"{one} / {other}").replace("_", " ")
