"""Reads pages strictly: what a browser would guess at fails here."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from html.parser import HTMLParser

from kvcanary.runtime import ViolationRecord
from kvcanary.runtime.report import build_page, collect, svg

TAGS = {"html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "h3", "p", "small", "ul", "ol", "li"}
TAGS |= {"b", "i", "em", "span", "div", "svg", "rect", "line", "text", "table", "tr", "th", "td", "code"}
TAGS |= {"details", "summary", "dl", "dt", "dd"}


class Page(HTMLParser):
    """Reads a page strictly: only known tags, properly nested, and nothing that loads or runs."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.text: list[str] = []
        self.rects: list[dict[str, str]] = []
        self.labels: list[tuple[float, float, str, str]] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        given = {name: value or "" for name, value in attrs}
        assert not {name for name in given if name.startswith("on") or name in ("src", "href", "srcset")}
        assert "http" not in " ".join(given.values())
        if tag == "rect":
            self.rects.append(given)
        if tag == "text":
            self.labels.append((float(given["x"]), float(given["y"]), given["text-anchor"], ""))
        if tag not in ("meta", "line"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in ("meta", "line"):
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "title"):
            self.text.append(data)
        if self.open and self.open[-1] == "text":
            self.labels[-1] = (*self.labels[-1][:3], data)


def page_of(given: Iterable[ViolationRecord], first: int = 50) -> Page:
    text = build_page(collect(given, first), "journal.jsonl")
    assert "url(" not in text and "@import" not in text
    text.encode("utf-8")
    return Page(text)


def words(page: Page) -> str:
    return " ".join(" ".join(page.text).split())


def assert_readable(page: Page) -> None:
    """No label of a chart leaves the picture on the right, or covers its neighbour on the line."""
    lines: dict[float, list[tuple[float, float]]] = {}
    for x, y, anchor, text in page.labels:
        wide = len(text) * svg.DIGIT
        begin = x - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
        assert begin >= -1 and begin + wide <= 961, text
        lines.setdefault(y, []).append((begin, begin + wide))
    # Charts follow each other, so a line begins anew where a label stands left of the last.
    for spans in lines.values():
        for (_, end), (begin, _) in itertools.pairwise(spans):
            assert begin >= end or begin <= spans[0][0] + 60, spans
