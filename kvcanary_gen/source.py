"""YAML text to plain Python values that remember where they stood.

Strings and integers come back as `LocatedStr` and `LocatedInt`. The reader works on PyYAML's event stream, so nesting
and aliases are bounded before anything recursive sees the input.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kvcanary_gen.diagnostics import Diagnostics, Mark, quote
from kvcanary_gen.located import LocatedInt, LocatedStr

MAX_FILE_BYTES = 1 << 18
MAX_DEPTH = 32
MAX_DIGITS = 40

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"[-+]?(0x[0-9a-fA-F]+|0o[0-7]+|[0-9]+)\Z")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+\Z")
_YAML_1_1_BOOLEAN = re.compile(r"(?i:on|off|yes|no)\Z")
# What no text file needs; most of it YAML refuses too, without saying where.
_CONTROL = re.compile("[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_MERGE = "<<"

PathKey = tuple[str | int, ...]


@dataclass
class Source:
    """One file's tree, and the places of its keys and values by path.

    `refused` holds the paths of what is no part of the language and reported already; nothing more is said of them.
    """

    file: str
    tree: Any
    keys: dict[PathKey, Mark] = field(default_factory=dict)
    values: dict[PathKey, Mark] = field(default_factory=dict)
    refused: set[PathKey] = field(default_factory=set)

    def locate(self, path: PathKey, *, key: bool = False) -> Mark:
        """Place of the value (or key) at `path`, or of the closest parent that exists."""
        while path:
            first, second = (self.keys, self.values) if key else (self.values, self.keys)
            found = first.get(path) or second.get(path)
            if found:
                return found
            path = path[:-1]
        return Mark(self.file, 1, 1)

    def is_refused(self, path: PathKey) -> bool:
        """Whether the value at `path`, or one that holds it, is reported already."""
        return any(path[:length] in self.refused for length in range(len(path) + 1))


class _Refused(Exception):
    """Reading cannot go on; the reason is recorded already."""


class _Reader:
    def __init__(self, text: str, file: str, out: Diagnostics) -> None:
        # The last line may be a newline of the parser's own.
        self.lines = [*text.split("\n"), ""]
        self.out = out
        self.source = Source(file, None)
        self.events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)

    def read(self) -> Source | None:
        first = Mark(self.source.file, 1, 1)
        try:
            self._read_stream()
        except yaml.MarkedYAMLError as error:
            where = error.problem_mark or error.context_mark
            mark = self._mark(where) if where else first
            self.out.add(mark, "KVG-002", f"not YAML: {error.problem or error.context or 'unreadable'}")
            return None
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            self.out.add(first, "KVG-002", f"not YAML: {error}")
            return None
        except _Refused:
            return None
        return self.source

    def _mark(self, mark: Any) -> Mark:
        last = len(self.lines) - 2
        if mark.line > last:
            return Mark(self.source.file, last + 1, len(self.lines[last]) + 1)
        return Mark(self.source.file, mark.line + 1, mark.column + 1)

    def _refuse(self, mark: Any, path: PathKey, message: str) -> None:
        self.out.add(self._mark(mark), "KVG-005", message)
        self.source.refused.add(path)

    def _read_stream(self) -> None:
        documents = 0
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._refuse(event.start_mark, (), "a second document; keep one a file")
                    return
                self.source.tree = self._node(next(self.events), (), 1)

    # --- nodes --------------------------------------------------------------------------------------------------

    def _node(self, event: Any, path: PathKey, depth: int) -> Any:
        self.source.values[path] = self._mark(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            self._refuse(event.start_mark, path, f"alias *{event.anchor} is not part of the language")
            return None
        if event.anchor is not None:
            self._refuse(event.start_mark, path, f"anchor &{event.anchor} is not part of the language")
        if event.tag is not None:
            self._refuse(event.start_mark, path, f"tag {event.tag} is not part of the language")
        if depth > MAX_DEPTH:
            self._refuse(event.start_mark, path, f"nested deeper than {MAX_DEPTH} levels")
            raise _Refused
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        return (self._sequence if isinstance(event, yaml.SequenceStartEvent) else self._mapping)(path, depth)

    def _sequence(self, path: PathKey, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self._node(event, (*path, len(items)), depth + 1))
        return items

    def _mapping(self, path: PathKey, depth: int) -> dict[Any, Any]:
        items: dict[Any, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self._key(event, path, depth)
            place = (*path, str(key))
            # What a refused or repeated key holds must not take the places of what the first one holds.
            kept = key is not None and key not in items
            if key is not None and not kept:
                first = self.source.keys[place]
                self.out.add(key.mark, "KVG-003", f"duplicate key {quote(key)} (first at line {first.line})")
            value = self._node(next(self.events), place if kept else (*place, "", ""), depth + 1)
            if key is not None and kept:
                items[key] = value
                self.source.keys[place] = key.mark
        return items

    def _key(self, event: Any, path: PathKey, depth: int) -> LocatedStr | None:
        """A mapping's key, None where it is refused."""
        if not isinstance(event, yaml.ScalarEvent):
            self._refuse(event.start_mark, path, "a key must be a plain word")
            self._node(event, (*path, "", ""), depth + 1)
            return None
        key = self._text(event, path)
        if event.anchor is not None or event.tag is not None:
            self._refuse(event.start_mark, path, "anchors and tags are not part of the language")
        elif self._is_plain(event):
            if key == _MERGE:
                self._refuse(event.start_mark, path, "merge keys are not part of the language; write the keys out")
                return None
            if key in ("", "~", "null", "true", "false"):
                self._refuse(event.start_mark, path, "a key must be a word, neither null nor a boolean")
                return None
            if _YAML_1_1_BOOLEAN.match(key):
                self._ambiguous(event, path)
                return None
        return key

    # --- scalars ------------------------------------------------------------------------------------------------

    @staticmethod
    def _is_plain(event: Any) -> bool:
        return not event.style

    def _text(self, event: Any, path: PathKey) -> LocatedStr:
        control = _CONTROL.search(event.value)
        if control is not None:
            self._refuse(event.start_mark, path, f"character {_code(control.group())} is not part of the language")
        style = "" if self._is_plain(event) else event.style
        return LocatedStr.make(event.value, self._mark(event.start_mark), self._raw(event), style)

    def _ambiguous(self, event: Any, path: PathKey) -> None:
        hint = "is a boolean in YAML 1.1 and a word in 1.2; write true or false, or quote it"
        if not _YAML_1_1_BOOLEAN.match(event.value):
            hint = "is octal in YAML 1.1 and decimal in 1.2; drop the leading zero, or write 0o"
        self.out.add(self._mark(event.start_mark), "KVG-004", f"'{event.value}' {hint}")
        self.source.refused.add(path)

    def _raw(self, event: Any) -> str:
        start, end = event.start_mark, event.end_mark
        if start.line == end.line:
            return str(self.lines[start.line][start.column : end.column])
        middle = self.lines[start.line + 1 : end.line]
        last = self.lines[end.line][: end.column] if end.line < len(self.lines) else ""
        return "\n".join([self.lines[start.line][start.column :], *middle, last])

    def _scalar(self, event: Any, path: PathKey) -> Any:
        text = self._text(event, path)
        if not self._is_plain(event):
            return text
        if _YAML_1_1_BOOLEAN.match(text) or (_LEADING_ZERO.match(text) and len(text) <= MAX_DIGITS):
            self._ambiguous(event, path)
            return text
        if text in ("", "~", "null"):
            return None
        if text in ("true", "false"):
            return text == "true"
        if _INTEGER.match(text) and len(text) <= MAX_DIGITS:
            return LocatedInt.make(int(text, 0), text)
        return text


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


# --- files ------------------------------------------------------------------------------------------------------------


def read_source(path: Path, file: str, out: Diagnostics) -> Source | None:
    """Reads one spec file; records what is wrong with it in `out` and returns None where it is unusable."""
    data = _read_bytes(path, Mark(file, 1, 1), out)
    text = None if data is None else _decode(data, file, out)
    return None if text is None else _Reader(text, file, out).read()


def _read_bytes(path: Path, at: Mark, out: Diagnostics) -> bytes | None:
    try:
        # Opening a pipe would wait for a writer.
        if not stat.S_ISREG(path.stat().st_mode):
            out.add(at, "KVG-001", "is not a regular file")
            return None
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        out.add(at, "KVG-001", f"cannot be read: {getattr(error, 'strerror', None) or error}")
        return None
    if len(data) > MAX_FILE_BYTES:
        out.add(at, "KVG-001", f"is too long; a spec file has at most {MAX_FILE_BYTES} bytes")
        return None
    return data


def _decode(data: bytes, file: str, out: Diagnostics) -> str | None:
    """The text without byte-order mark, its lines ended by newlines."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        mark = _mark_behind(data[: error.start].decode("utf-8").replace("\r\n", "\n").replace("\r", "\n"), file)
        out.add(mark, "KVG-001", f"is not UTF-8: byte 0x{data[error.start]:02X}")
        return None
    control = _CONTROL.search(text)
    if control is not None:
        mark = _mark_behind(text[: control.start()], file)
        out.add(mark, "KVG-001", f"holds the character {_code(control.group())}, which is not text")
        return None
    return text


def _mark_behind(text: str, file: str) -> Mark:
    return Mark(file, text.count("\n") + 1, len(text) - (text.rfind("\n") + 1) + 1)


__all__ = ["MAX_DEPTH", "MAX_FILE_BYTES", "LocatedInt", "LocatedStr", "PathKey", "Source", "read_source"]
