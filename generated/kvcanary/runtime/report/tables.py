# Written by kvcanary-gen from the spec; edit that instead.
"""Tables of a report: by request, by endpoint, by reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ..meanings import AXES, STAGES, reason
from ..text import plural
from .collect import Columns
from .svg import esc

_MOST_REQUESTS = 25
_MOST_ROWS = 40
_MOST_REASONS = 40


def badges(names: tuple[str, ...] | list[str], classes: dict[str, str]) -> str:
    """Reasons as coloured labels."""
    return "".join(f'<span class="badge"><i class="{classes.get(n, "cx")}"></i>{esc(n, 44)}</span>' for n in names)


def request_name(name: str | None) -> str:
    """A request's name as code, or that it is unknown."""
    if name is None:
        return '<em class="quiet">unknown</em>'
    style = ' class="short"' if len(name) <= 32 else ""
    return f"<code{style}>{esc(name, 80) or '&quot;&quot;'}</code>"


def table(heads: list[str], rows: list[str]) -> str:
    """A table that scrolls sideways on a narrow page. Everything is markup already."""
    head = "".join(f"<th>{text}</th>" for text in heads)
    return f'<div class="scroll" tabindex="0"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


# --- by request -------------------------------------------------------------------------------------------------------


@dataclass
class _Request:
    first: int
    last: int
    slots: set[int] = field(default_factory=set)
    stages: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)


def by_request(columns: Columns, classes: dict[str, str]) -> str:
    """The requests with most violations."""
    counts = columns.request_counts()
    top = dict(counts[:_MOST_REQUESTS])
    found: dict[int, _Request] = {}
    for step, slot, place, reasons, request in columns.rows():
        if request not in top:
            continue
        entry = found.get(request)
        if entry is None:
            entry = found[request] = _Request(step, step)
        entry.first, entry.last = min(entry.first, step), max(entry.last, step)
        entry.slots.add(slot)
        entry.stages[columns.place_names[place].axis("stage")] += 1
        entry.reasons.update(columns.reason_names[reasons])
    most = counts[0][1]
    rows = [_request_row(columns, request, count, most, found[request], classes) for request, count in top.items()]
    text = table(["request", "violations", "steps", "slots", "stages", "reasons"], rows)
    left = len(counts) - len(top)
    if left:
        rest = sum(count for _, count in counts[_MOST_REQUESTS:])
        text += f'<p class="note">{plural(left, "more request")} with {plural(rest, "violation")}.</p>'
    return text


def _request_row(
    columns: Columns, request: int, count: int, most: int, entry: _Request, classes: dict[str, str]
) -> str:
    who = request_name(columns.request_names[request])
    steps = f"{entry.first:,}" if entry.first == entry.last else f"{entry.first:,} – {entry.last:,}"
    names = [name for name, _ in entry.reasons.most_common(6)]
    more = f' <span class="quiet">+{len(entry.reasons) - 6}</span>' if len(entry.reasons) > 6 else ""
    return (
        f"<tr><td>{who}</td>{_bar(count, most)}<td class=number>{steps}</td>"
        f"<td class=number>{len(entry.slots):,}</td><td>{esc(', '.join(sorted(entry.stages)))}</td>"
        f'<td class="labels">{badges(names, classes)}{more}</td></tr>'
    )


def _bar(count: int, most: int) -> str:
    """A cell with a number, and a bar that is full for the largest number of the column."""
    return f'<td class="share"><b>{count:,}</b><i style="width:{100 * count / most:.1f}%"></i></td>'


# --- by endpoint ------------------------------------------------------------------------------------------------------


def by_place(columns: Columns) -> str:
    """Pools and axes against stages: a cell for each endpoint and forward."""
    others = [axis for axis in AXES if axis != "stage"]
    counts: Counter[tuple[tuple[str, ...], str]] = Counter()
    for place, count in columns.place_counts():
        row = (place.pool, place.forward, *(place.axis(axis) for axis in others))
        counts[row, place.axis("stage")] += count
    stages = [*STAGES, *sorted({stage for _, stage in counts} - set(STAGES))]
    totals: Counter[tuple[str, ...]] = Counter()
    for (row, _), count in counts.items():
        totals[row] += count
    most = max(counts.values())
    rows = []
    for row, total in sorted(totals.most_common(_MOST_ROWS), key=lambda item: item[0]):
        names = "".join(f"<td>{esc(text, 40)}</td>" for text in row)
        cells = "".join(_cell(counts[row, stage], most) for stage in stages)
        rows.append(f"<tr>{names}{cells}<td class=number><b>{total:,}</b></td></tr>")
    text = table(["pool", "forward", *others, *map(esc, stages), "all"], rows)
    if len(totals) > _MOST_ROWS:
        text += f'<p class="note">{plural(len(totals) - _MOST_ROWS, "more row")} with fewer violations.</p>'
    return text


def _cell(count: int, most: int) -> str:
    if not count:
        return '<td class="number quiet">·</td>'
    return f'<td class="number heat" style="--share:{round(10 + 60 * count / most)}%">{count:,}</td>'


# --- by reason --------------------------------------------------------------------------------------------------------


def by_reason(columns: Columns, classes: dict[str, str]) -> str:
    """Reasons, how often and since when, and what they mean by the spec."""
    firsts: dict[str, int] = {}
    for index, step in _first_steps(columns).items():
        for name in columns.reason_names[index]:
            firsts[name] = min(step, firsts.get(name, step))
    counts = columns.reason_counts().most_common()
    rows = []
    for name, count in counts[:_MOST_REASONS]:
        meaning = reason(name)
        cause = f'<p class="quiet">{esc(meaning.cause, 1000)}</p>' if meaning.cause else ""
        rows.append(
            f"<tr><td>{badges([name], classes)}</td>{_bar(count, counts[0][1])}"
            f'<td class=number>{firsts[name]:,}</td><td class="prose">{esc(meaning.doc, 1000)}{cause}</td></tr>'
        )
    text = table(["reason", "violations", "first step", "meaning, and usual causes"], rows)
    if len(counts) > _MOST_REASONS:
        text += f'<p class="note">{plural(len(counts) - _MOST_REASONS, "more reason")}.</p>'
    return text


def _first_steps(columns: Columns) -> dict[int, int]:
    """Earliest step of each combination of reasons."""
    found: dict[int, int] = {}
    for step, index in zip(columns.steps, columns.reasons, strict=True):
        if step < found.get(index, step + 1):
            found[index] = step
    return found
