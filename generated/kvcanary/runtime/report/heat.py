# Written by kvcanary-gen from the spec; edit that instead.
"""Slots over time: a strip of cells for each numbering of slots, darker where more was reported."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from typing import NamedTuple

from ..text import plural
from .collect import Columns
from .svg import DIGIT, Bins, chart, compact, esc, label, rect, step_axis
from .timeline import step_bins

WIDTH, CELL, RIGHT, TOP, BOTTOM = 960, 15, 16, 6, 38
_MOST_COLUMNS = 96
_MOST_ROWS = 32
_MOST_STRIPS = 4
LEVELS = 5


class Strip(NamedTuple):
    """Violations of one numbering of slots: rows of slots, and counts by (row, column of steps)."""

    space: tuple[str, ...]
    # First and last affected slot of each row, and how many slots of the row are affected.
    rows: list[tuple[int, int, int]]
    counts: Counter[tuple[int, int]]


def heat_strips(columns: Columns) -> str:
    """A strip for each of the numberings with most violations."""
    bins = step_bins(columns, _MOST_COLUMNS)
    strips = _strips(columns, bins)
    most = max(max(strip.counts.values()) for strip in strips)
    parts = [_chart(strip, bins, most) for strip in strips[:_MOST_STRIPS]]
    if len(strips) > _MOST_STRIPS:
        left = sum(sum(strip.counts.values()) for strip in strips[_MOST_STRIPS:])
        what = f"{plural(len(strips) - _MOST_STRIPS, 'pool')} with {plural(left, 'violation')}"
        parts.append(f'<p class="note">Not shown: {what} more.</p>')
    return "".join(parts) + _legend(most)


def _strips(columns: Columns, bins: Bins) -> list[Strip]:
    spaces = [place.space for place in columns.place_names]
    by_space: dict[tuple[str, ...], Counter[tuple[int, int]]] = {space: Counter() for space in dict.fromkeys(spaces)}
    targets = [by_space[space] for space in spaces]
    first, width = bins.first, bins.width
    for step, slot, place in zip(columns.steps, columns.slots, columns.places, strict=True):
        targets[place][slot, (step - first) // width] += 1
    strips = [_strip(space, counts) for space, counts in by_space.items()]
    return sorted(strips, key=lambda strip: -sum(strip.counts.values()))


def _strip(space: tuple[str, ...], by_slot: Counter[tuple[int, int]]) -> Strip:
    """Rows of about equally many affected slots, since these may lie far apart."""
    slots = sorted({slot for slot, _ in by_slot})
    size = -(-len(slots) // _MOST_ROWS)
    starts = slots[::size]
    rows = []
    for place in range(len(starts)):
        members = slots[place * size : (place + 1) * size]
        rows.append((members[0], members[-1], len(members)))
    counts: Counter[tuple[int, int]] = Counter()
    for (slot, column), count in by_slot.items():
        counts[bisect_right(starts, slot) - 1, column] += count
    return Strip(space, rows, counts)


def _chart(strip: Strip, bins: Bins, most: int) -> str:
    names = [f"{a:,}" if a == b else f"{a:,} – {b:,}" for a, b, _ in strip.rows]
    labels = [_short(a) if _short(a) == _short(b) else f"{_short(a)} – {_short(b)}" for a, b, _ in strip.rows]
    left = max(58.0, max(len(name) for name in labels) * DIGIT + 14)
    height = TOP + CELL * len(strip.rows) + BOTTOM
    inner = WIDTH - left - RIGHT
    wide = inner / bins.count
    cell = min(wide, 40.0)
    parts = []
    for row, (name, text) in enumerate(zip(names, labels, strict=True)):
        y = TOP + CELL * row
        slots = strip.rows[row][2]
        full = f"slot {name}" if slots == 1 else f"{slots:,} slots from {name}"
        parts.append(rect(left, y, inner, CELL - 2, "track", full))
        parts.append(label(left - 8, y + CELL - 4, text, "end"))
        for column in range(bins.count):
            count = strip.counts.get((row, column), 0)
            if count:
                x = left + column * wide + (wide - cell) / 2
                title = f"{full}, step {bins.label(column)}: {plural(count, 'violation')}"
                parts.append(rect(x, y, max(cell - 0.6, 1.5), CELL - 2, f"h{level(count, most)}", title))
    parts += step_axis(bins, left, inner, height - BOTTOM + 18)
    parts.append(label(left + inner / 2, height - 4, "step", "middle", "axis"))
    total = sum(strip.counts.values())
    slots = sum(row[2] for row in strip.rows)
    title = " · ".join(esc(part, 40) for part in strip.space)
    heading = f"<h3>{title} <small>{plural(slots, 'slot')}, {plural(total, 'violation')}</small></h3>"
    return heading + chart(WIDTH, height, f"Slots of {strip.space[0]} over time", parts)


def _short(slot: int) -> str:
    """Slots of real pools in full; those that are garbage need no more than their size."""
    return f"{slot:,}" if abs(slot) < 10**9 else compact(slot)


def level(count: int, most: int) -> int:
    """Darkness 1 to LEVELS of a cell, on a logarithmic scale up to `most`."""
    if most <= LEVELS:
        return LEVELS - most + count
    return min(LEVELS, 1 + int(math.log(count) / math.log(most) * LEVELS * 0.9999))


def _legend(most: int) -> str:
    """What each darkness stands for."""
    least: dict[int, int] = {}
    if most <= LEVELS:
        least = {level(count, most): count for count in range(1, most + 1)}
    else:
        for shade in range(1, LEVELS + 1):
            bound = max(1, math.ceil(most ** ((shade - 1) / (LEVELS * 0.9999)) - 1e-9))
            least[shade] = bound if level(bound, most) >= shade else bound + 1
    bounds = [*least.items()]
    items = []
    for place, (shade, low) in enumerate(bounds):
        high = bounds[place + 1][1] - 1 if place + 1 < len(bounds) else most
        if high >= low:
            text = f"{low:,}" if high == low else f"{low:,} – {high:,}"
            items.append(f'<li><i class="h{shade}"></i>{text}</li>')
    return f'<ul class="legend"><li>violations in a cell:</li>{"".join(items)}</ul>'
