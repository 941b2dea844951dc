# Written by kvcanary-gen from the spec; edit that instead.
"""What charts share: escaping, scales, ticks and colours."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass

from ..text import shown

# Colours for reasons; the rarest share one where there are more.
COLOURS = 10
# Width of a digit in the charts' type, in pixels.
DIGIT = 6.6


def esc(text: str, most: int = 120) -> str:
    """Text for HTML: printable, of bounded length, with nothing that a browser would take for markup."""
    return html.escape(shown(text, most), quote=True)


@dataclass(frozen=True)
class Bins:
    """Consecutive ranges of `width` numbers, from `first`."""

    first: int
    width: int
    count: int

    @classmethod
    def over(cls, first: int, last: int, most: int) -> Bins:
        """At most `most` ranges (2 or more) that cover first to last, their width 1, 2 or 5 times a power of ten."""
        width = 1
        while True:
            for factor in (1, 2, 5):
                begin = first // (width * factor) * (width * factor) if width * factor > 1 else first
                count = (last - begin) // (width * factor) + 1
                if count <= most:
                    return cls(begin, width * factor, count)
            width *= 10

    def label(self, place: int) -> str:
        """What a range covers, as a reader would write it."""
        begin = self.first + place * self.width
        return f"{begin:,}" if self.width == 1 else f"{begin:,} to {begin + self.width - 1:,}"


def ticks(low: int, high: int, most: int) -> list[int]:
    """Round numbers from low to high, at most `most` and at least one of them."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            stride = step * factor
            begin = -(-low // stride) * stride
            if begin > high:
                return [low]
            if (high - begin) // stride + 1 <= max(most, 1):
                return list(range(begin, high + 1, stride))
        step *= 10


def compact(value: int) -> str:
    """A number in at most six characters or so: 950, 12,400, 1.2M."""
    for unit, size in (("E", 10**18), ("P", 10**15), ("T", 10**12), ("G", 10**9), ("M", 10**6)):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value / 1000:.0f}k" if abs(value) >= 100_000 else f"{value:,}"


def colour_classes(names: Iterable[tuple[str, int]]) -> dict[str, str]:
    """A CSS class for each reason, most frequent first: `c0` to `c9`, or `cx` for those that are left."""
    ordered = [name for name, _ in names]
    own = COLOURS if len(ordered) <= COLOURS else COLOURS - 1
    return {name: f"c{place}" if place < own else "cx" for place, name in enumerate(ordered)}


def rect(x: float, y: float, width: float, height: float, style: str, title: str, extra: str = "") -> str:
    """A rectangle with a tooltip; `title` is escaped here."""
    box = f'x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.5):.2f}" height="{max(height, 0.5):.2f}"'
    return f'<rect class="{style}" {box}{extra}><title>{esc(title)}</title></rect>'


def label(x: float, y: float, text: str, anchor: str = "start", style: str = "tick") -> str:
    """A text; it is escaped here."""
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{esc(text)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, style: str = "grid") -> str:
    return f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def step_axis(bins: Bins, left: float, width: float, y: float) -> list[str]:
    """Labels of steps below a chart whose columns are `bins`, as many as fit."""
    last = bins.first + bins.width * bins.count - 1
    widest = max(len(f"{value:,}") for value in (bins.first, last)) * DIGIT + 18
    marks = ticks(bins.first, last, min(10, int(width // widest)))
    column = width / bins.count
    found = []
    for value in marks:
        middle = 0.5 if bins.width == 1 else 0
        x = left + ((value - bins.first) / bins.width + middle) * column
        half = len(f"{value:,}") * DIGIT / 2
        # A label at an end would leave the picture.
        x = min(max(x, half), left + width + 16 - half)
        found.append(label(x, y, f"{value:,}", "middle"))
    return found


def chart(width: int, height: float, name: str, parts: Iterable[str]) -> str:
    """An inline SVG that scales with the page and scrolls sideways where that is narrow."""
    body = "\n".join(parts)
    return (
        f'<div class="chart" tabindex="0" role="group" aria-label="{esc(name)}">'
        f'<svg viewBox="0 0 {width} {height:.0f}" role="img" aria-label="{esc(name)}">\n{body}\n</svg></div>'
    )
