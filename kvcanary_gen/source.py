"""YAML text to plain Python values that remember where they stood.

Strings and integers come back as `LocatedStr` and `LocatedInt`; both compare and hash like their plain types. The
reader works on PyYAML's event stream, so nesting and aliases are bounded before anything recursive sees the input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kvcanary_gen.diagnostics import Diagnostics, Mark

MAX_FILE_BYTES = 1 << 18
MAX_DEPTH = 32

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"[-+]?(0x[0-9a-fA-F]+|0o[0-7]+|[0-9]+)\Z")
_YAML_1_1_BOOLEAN = re.compile(r"(?i:on|off|yes|no)\Z")

PathKey = tuple[str | int, ...]


class LocatedStr(str):
    """A scalar's text with its place. `raw` is the source text from the scalar's first character on."""

    mark: Mark
    raw: str

    @classmethod
    def make(cls, text: str, mark: Mark, raw: str) -> LocatedStr:
        self = cls(text)
        self.mark = mark
        self.raw = raw
        return self

    def mark_at(self, offset: int) -> Mark:
        """Place of character `offset` of the text.

        Folding and quoting change white space alone, so the n-th visible character of the value is the n-th of the
        source (behind a block scalar's header).
        """
        visible = sum(not c.isspace() for c in self[:offset])
        start = 0
        if self.raw[:1] in (">", "|"):
            start = self.raw.find("\n") + 1
        elif self.raw[:1] in ("'", '"') and self[:1] != self.raw[:1]:
            start = 1
        for index in range(start, len(self.raw)):
            if self.raw[index].isspace():
                continue
            if visible == 0:
                before = self.raw[:index]
                newline = before.rfind("\n")
                if newline < 0:
                    return Mark(self.mark.file, self.mark.line, self.mark.column + index)
                return Mark(self.mark.file, self.mark.line + before.count("\n"), index - newline)
            visible -= 1
        return self.mark


class LocatedInt(int):
    """An integer scalar with its place and its spelling (`0xC0FFEE` stays so)."""

    text: LocatedStr

    @classmethod
    def make(cls, value: int, text: LocatedStr) -> LocatedInt:
        self = cls(value)
        self.text = text
        return self


@dataclass
class Source:
    """One file's tree, and the places of its keys and values by path."""

    file: str
    tree: Any
    keys: dict[PathKey, Mark] = field(default_factory=dict)
    values: dict[PathKey, Mark] = field(default_factory=dict)

    def locate(self, path: PathKey, *, key: bool = False) -> Mark:
        """Place of the value (or key) at `path`, or of the closest parent that exists."""
        while path:
            first, second = (self.keys, self.values) if key else (self.values, self.keys)
            found = first.get(path) or second.get(path)
            if found:
                return found
            path = path[:-1]
        return Mark(self.file, 1, 1)


class _Refused(Exception):
    """Reading cannot go on; the reason is recorded already."""


class _Reader:
    def __init__(self, text: str, file: str, out: Diagnostics) -> None:
        self.text = text
        self.lines = text.split("\n")
        self.out = out
        self.source = Source(file, None)
        self.events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)

    def read(self) -> Source | None:
        try:
            self._read_stream()
        except yaml.MarkedYAMLError as error:
            where = error.problem_mark or error.context_mark
            mark = self._mark(where) if where else Mark(self.source.file, 1, 1)
            self.out.add(mark, "KVG-002", f"not YAML: {error.problem or error.context or 'unreadable'}")
            return None
        except yaml.YAMLError as error:
            self.out.add(Mark(self.source.file, 1, 1), "KVG-002", f"not YAML: {str(error).splitlines()[0]}")
            return None
        except _Refused:
            return None
        return self.source

    def _mark(self, mark: Any) -> Mark:
        return Mark(self.source.file, mark.line + 1, mark.column + 1)

    def _refuse(self, mark: Any, rule: str, message: str) -> _Refused:
        self.out.add(self._mark(mark), rule, message)
        return _Refused()

    def _read_stream(self) -> None:
        documents = 0
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._refuse(event.start_mark, "KVG-005", "a second document; keep one a file")
                self.source.tree = self._node(next(self.events), (), 1)

    def _node(self, event: Any, path: PathKey, depth: int) -> Any:
        self.source.values[path] = self._mark(event.start_mark)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise self._refuse(event.start_mark, "KVG-005", "anchors and aliases are not part of the spec language")
        if depth > MAX_DEPTH:
            raise self._refuse(event.start_mark, "KVG-005", f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if event.tag is not None:
            raise self._refuse(event.start_mark, "KVG-005", f"tag {event.tag} is not part of the spec language")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path, depth)
        return self._mapping(path, depth)

    def _sequence(self, path: PathKey, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self._node(event, (*path, len(items)), depth + 1))
        return items

    def _mapping(self, path: PathKey, depth: int) -> dict[Any, Any]:
        items: dict[Any, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise self._refuse(event.start_mark, "KVG-005", "a key must be a plain word")
            key = LocatedStr.make(event.value, self._mark(event.start_mark), self._raw(event))
            if self._is_plain(event) and _YAML_1_1_BOOLEAN.match(event.value):
                self._boolean_error(event)
            value = self._node(next(self.events), (*path, str(key)), depth + 1)
            if key in items:
                first = self.source.keys[(*path, str(key))]
                self.out.add(key.mark, "KVG-003", f"duplicate key '{key}' (first at line {first.line})")
                continue
            items[key] = value
            self.source.keys[(*path, str(key))] = key.mark
        return items

    @staticmethod
    def _is_plain(event: Any) -> bool:
        return event.style is None or event.style == ""

    def _boolean_error(self, event: Any) -> None:
        self.out.add(
            self._mark(event.start_mark),
            "KVG-004",
            f"'{event.value}' is a boolean in YAML 1.1 and a word in 1.2; write true or false, or quote it",
        )

    def _raw(self, event: Any) -> str:
        start, end = event.start_mark, event.end_mark
        if start.line == end.line:
            return self.lines[start.line][start.column : end.column]
        middle = self.lines[start.line + 1 : end.line]
        last = self.lines[end.line][: end.column] if end.line < len(self.lines) else ""
        return "\n".join([self.lines[start.line][start.column :], *middle, last])

    def _scalar(self, event: Any) -> Any:
        text = LocatedStr.make(event.value, self._mark(event.start_mark), self._raw(event))
        if event.tag is not None:
            raise self._refuse(event.start_mark, "KVG-005", f"tag {event.tag} is not part of the spec language")
        if not self._is_plain(event):
            return text
        if _YAML_1_1_BOOLEAN.match(text):
            self._boolean_error(event)
            return text
        if text in ("", "~", "null"):
            return None
        if text in ("true", "false"):
            return text == "true"
        if _INTEGER.match(text) and len(text) <= 40:
            return LocatedInt.make(int(text, 0 if text.lstrip("+-").startswith(("0x", "0o")) else 10), text)
        return text


def read_source(path: Path, file: str, out: Diagnostics) -> Source | None:
    """Reads one spec file; records what is wrong with it in `out` and returns None where it is unusable."""
    at = Mark(file, 1, 1)
    try:
        data = path.read_bytes()
    except OSError as error:
        out.add(at, "KVG-001", f"cannot be read: {error.strerror or error}")
        return None
    if len(data) > MAX_FILE_BYTES:
        out.add(at, "KVG-001", f"is {len(data)} bytes long; a spec file has at most {MAX_FILE_BYTES}")
        return None
    try:
        text = data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        out.add(Mark(file, line, column), "KVG-001", f"is not UTF-8: byte 0x{data[error.start]:02X}")
        return None
    return _Reader(text, file, out).read()
