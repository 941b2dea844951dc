# Written by kvcanary-gen from the spec; edit that instead.
"""The page: charts and tables put together."""

from __future__ import annotations

from ..meanings import REASONS
from ..text import clock, plural
from .advice import advice
from .collect import Columns
from .heat import heat_strips
from .rows import first_rows
from .style import STYLE
from .svg import colour_classes, compact, esc
from .tables import by_place, by_reason, by_request
from .timeline import timeline

# The page fetches nothing and runs no script, and browsers are told to hold it to that.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def build_page(columns: Columns, source: str) -> str:
    """The whole HTML document.

    Args:
        columns: the violations; may be empty.
        source: what the page calls their origin, such as the journal's path.
    """
    title = f"KV canary: {plural(len(columns), 'violation')}"
    head = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
    )
    parts = [f"<header><h1>{title}</h1><p>{esc(source, 200)}{_seen(columns)}</p></header>", _bad_lines(columns)]
    parts += _body(columns) if len(columns) else ["<p>Nothing was reported.</p>"]
    return head + "\n".join(part for part in parts if part) + "\n</body>\n</html>\n"


def _seen(columns: Columns) -> str:
    if not len(columns):
        return ""
    first, last = (clock(seconds) for seconds in columns.times)
    return f" · seen {first}" if first == last else f" · seen {first} to {last}"


def _bad_lines(columns: Columns) -> str:
    """What could not be read: a report must not look complete when it is not."""
    if not columns.bad_count:
        return ""
    items = "".join(f"<li>line {line.number:,}: {esc(line.problem, 200)}</li>" for line in columns.bad)
    left = columns.bad_count - len(columns.bad)
    more = f"<li>and {left:,} more</li>" if left else ""
    return f'<div class="warning">{plural(columns.bad_count, "line")} left out.<ul>{items}{more}</ul></div>'


def _body(columns: Columns) -> list[str]:
    # Of reasons that are equally frequent, the lower bit comes first; the spec does not know all names in a file.
    order = {name: place for place, name in enumerate(REASONS)}
    counts = sorted(columns.reason_counts().items(), key=lambda item: (-item[1], order.get(item[0], 64), item[0]))
    classes = colour_classes(counts)
    return [
        _cards(columns),
        "<h2>What to look at first</h2>",
        _advice(columns),
        "<h2>Over time</h2>",
        timeline(columns, classes),
        "<h2>Slots over time</h2>",
        heat_strips(columns),
        "<h2>By request</h2>",
        by_request(columns, classes),
        "<h2>By endpoint</h2>",
        by_place(columns),
        "<h2>By reason</h2>",
        by_reason(columns, classes),
        f"<h2>The first {plural(len(columns.first), 'violation') if len(columns.first) > 1 else 'violation'}</h2>",
        first_rows(columns.first, len(columns), classes),
    ]


def _cards(columns: Columns) -> str:
    first, last = min(columns.steps), max(columns.steps)
    spaces = [place.space for place in columns.place_names]
    slots = len({(spaces[place], slot) for place, slot in zip(columns.places, columns.slots, strict=True)})
    known = sum(name is not None for name in columns.request_names)
    steps = f"{compact(first)} – {compact(last)}"
    cards = [
        _card(len(columns), "violation"),
        _card(len(set(columns.steps)), "step with violations", "steps with violations"),
        (f"{first:,}", "its number") if first == last else (steps, "first and last step"),
        _card(slots, "slot"),
        _card(known, "request"),
        _card(len({place.pool for place in columns.place_names}), "pool"),
    ]
    items = [f"<li><b{_size(value)}>{value}</b><span>{name}</span></li>" for value, name in cards]
    return f'<ul class="cards">{"".join(items)}</ul>'


def _size(value: str) -> str:
    return ' class="long"' if len(value) > 10 else ""


def _card(count: int, noun: str, many: str = "") -> tuple[str, str]:
    return f"{count:,}", noun if count == 1 else many or f"{noun}s"


def _advice(columns: Columns) -> str:
    found = advice(columns)
    if not found:
        return '<p class="note">No pattern stands out; the violation below says what usually causes it.</p>'
    items = "".join(f"<li><b>{esc(one.title, 200)}</b><p>{esc(one.text, 1000)}</p></li>" for one in found)
    return f'<ol class="advice">{items}</ol>'
