# Written by kvcanary-gen from the spec; edit that instead.
"""Violations per step, as stacked bars coloured by reason."""

from __future__ import annotations

from collections import Counter

from ..text import plural
from .collect import Columns
from .svg import Bins, chart, compact, esc, label, line, rect, step_axis, ticks

WIDTH, HEIGHT = 960, 250
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 14, 40
_MOST_BARS = 120
_WIDEST_BAR = 40.0


def step_bins(columns: Columns, most: int = _MOST_BARS) -> Bins:
    """Ranges of steps that make the columns of a chart."""
    return Bins.over(min(columns.steps), max(columns.steps), most)


def timeline(columns: Columns, classes: dict[str, str]) -> str:
    """The chart with its legend. `columns` has at least one row; `classes` gives each reason its colour."""
    bins = step_bins(columns)
    counts = _counts(columns, bins)
    totals: Counter[int] = Counter()
    for (place, _), count in counts.items():
        totals[place] += count
    top = max(totals.values(), default=1)
    inner, deep = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    marks = ticks(0, top, 5)
    parts = []
    for mark in marks:
        y = TOP + deep * (1 - mark / top)
        parts += [line(LEFT, y, WIDTH - RIGHT, y), label(LEFT - 8, y + 4, compact(mark), "end")]
    column = inner / bins.count
    wide = min(column * (0.84 if column > 4 else 1), _WIDEST_BAR)
    for place in sorted(totals):
        parts += _bar(place, counts, classes, bins, LEFT + place * column + (column - wide) / 2, wide, deep / top)
    parts += step_axis(bins, LEFT, inner, HEIGHT - BOTTOM + 18)
    what = "step" if bins.width == 1 else f"step ({bins.width:,} a bar)"
    parts.append(label(LEFT + inner / 2, HEIGHT - 4, what, "middle", "axis"))
    return chart(WIDTH, HEIGHT, "Violations per step by reason", parts) + legend(columns, classes)


def _counts(columns: Columns, bins: Bins) -> Counter[tuple[int, str]]:
    """Reasons reported in each bin, by bin and reason."""
    first, width = bins.first, bins.width
    both = zip(columns.steps, columns.reasons, strict=True)
    pairs = Counter(((step - first) // width, reasons) for step, reasons in both)
    found: Counter[tuple[int, str]] = Counter()
    for (place, reasons), count in pairs.items():
        for name in columns.reason_names[reasons]:
            found[place, name] += count
    return found


def _bar(
    place: int,
    counts: Counter[tuple[int, str]],
    classes: dict[str, str],
    bins: Bins,
    x: float,
    wide: float,
    unit: float,
) -> list[str]:
    """One bar, the most frequent reasons at its foot; reasons that share a colour share a block."""
    blocks: dict[str, list[tuple[str, int]]] = {}
    for name, style in classes.items():
        if counts[place, name]:
            blocks.setdefault(style, []).append((name, counts[place, name]))
    parts, y = [], float(HEIGHT - BOTTOM)
    for style, members in blocks.items():
        count = sum(number for _, number in members)
        names = members[0][0] if len(members) == 1 else plural(len(members), "other reason")
        y -= count * unit
        parts.append(rect(x, y, wide, count * unit, style, f"step {bins.label(place)}: {count:,} × {names}"))
    return parts


def legend(columns: Columns, classes: dict[str, str]) -> str:
    """The colours of reasons, with their counts."""
    counts = columns.reason_counts()
    items = [
        f'<li><i class="{style}"></i>{esc(name)} <b>{counts[name]:,}</b></li>'
        for name, style in classes.items()
        if style != "cx"
    ]
    others = [name for name, style in classes.items() if style == "cx"]
    if others:
        total = sum(counts[name] for name in others)
        names = plural(len(others), "other reason") if len(others) > 1 else esc(others[0])
        items.append(f'<li><i class="cx"></i>{names} <b>{total:,}</b></li>')
    return f'<ul class="legend">{"".join(items)}</ul>'
