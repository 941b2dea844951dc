# Written by kvcanary-gen from the spec; edit that instead.
"""Violations in a file of JSON Lines: written by servers, read by reports.

Each line is an object with every field of ViolationRecord by its name. Hashes are strings of `0x` and 16 hexadecimal
digits, and whole numbers beyond 2**53 are strings of decimal digits, since many JSON readers keep numbers as doubles.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import IO, NamedTuple, NoReturn

from .. import errors
from .records import FIELDS, ViolationRecord

__all__ = ["BadLine", "Journal", "read_journal"]

_LOG = logging.getLogger("kvcanary")
_EXACT = 1 << 53
_MOST_BYTES = 16 << 20
_HASH = re.compile(r"0x[0-9a-fA-F]{16}")
_NAMES = tuple(field.name for field in FIELDS)
_INTS = tuple(field.name for field in FIELDS if field.kind == "int")
_HASHES = tuple(field.name for field in FIELDS if field.kind == "hash")


class Journal:
    """Appends violations to a file, a line each.

    Every call of `append` is one write at the end of the file, so that threads, forked children and other processes on
    the same (local) file system never mix their lines. What was appended outlives a crash of the process; `sync` makes
    it outlive one of the machine.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Opens or creates the file. Raises CanaryValueError (KVC-083) where it cannot be opened for writing."""
        self.path = _path(path)
        self._lock = threading.Lock()
        self._file = -1
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
            # Whether the file may end inside a line, as after a crash: then the next write begins a new one.
            self._torn = _ends_inside_a_line(self._file)
        except (OSError, ValueError) as error:
            self.close()
            _unusable(self.path, getattr(error, "strerror", None) or str(error))
        _JOURNALS.add(self)

    def append(self, *records: ViolationRecord) -> None:
        """Writes records, in order. Raises CanaryValueError (KVC-083) after `close`, OSError where the disk is full."""
        if not records:
            return
        data = "".join(f"{to_json(record)}\n" for record in records).encode("ascii")
        with self._lock:
            if self._file < 0:
                _unusable(self.path, "it was closed")
            data = b"\n" + data if self._torn else data
            self._torn = True
            while data:
                data = data[os.write(self._file, data) :]
            self._torn = False

    def sync(self) -> None:
        """Waits until the disk has everything."""
        with self._lock:
            if self._file >= 0:
                os.fsync(self._file)

    def close(self) -> None:
        """Closes the file; again is harmless."""
        with self._lock:
            file, self._file = self._file, -1
            if file >= 0:
                os.close(file)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _ends_inside_a_line(file: int) -> bool:
    if not os.lseek(file, 0, os.SEEK_END):
        return False
    os.lseek(file, -1, os.SEEK_END)
    return os.read(file, 1) != b"\n"


_JOURNALS: weakref.WeakSet[Journal] = weakref.WeakSet()


def _renew_locks() -> None:
    """In a forked child: whoever held a lock stayed in the parent."""
    for journal in list(_JOURNALS):
        journal._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


# --- lines ------------------------------------------------------------------------------------------------------------


def to_json(record: ViolationRecord) -> str:
    """The record as one line of JSON in ASCII."""
    values = {name: getattr(record, name) for name in _NAMES}
    for name in _HASHES:
        values[name] = f"0x{values[name]:016x}"
    for name in _INTS:
        if values[name] is not None and abs(values[name]) > _EXACT:
            values[name] = str(values[name])
    return json.dumps(values, separators=(",", ":"))


def from_json(text: str | bytes) -> ViolationRecord:
    """Reads what `to_json` wrote; raises ValueError that says what is wrong."""
    try:
        values = json.loads(text.decode("utf-8") if isinstance(text, bytes) else text)
    except UnicodeDecodeError as error:
        raise ValueError(f"no UTF-8 at byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError("no JSON: it is nested too deeply") from None
    if not isinstance(values, dict):
        raise ValueError(f"expected an object, got {type(values).__name__}")
    if values.keys() != _FIELD_SET:
        _refuse_keys(values)
    for name in _HASHES:
        values[name] = _hash(name, values[name])
    for name in _INTS:
        if isinstance(values[name], str):
            values[name] = _int(name, values[name])
    if isinstance(values["reasons"], list):
        values["reasons"] = tuple(values["reasons"])
    if type(values["time"]) is int:
        values["time"] = float(values["time"])
    return ViolationRecord(**values)


_FIELD_SET = frozenset(_NAMES)


def _refuse_keys(values: dict[str, object]) -> NoReturn:
    missing = [name for name in _NAMES if name not in values]
    if missing:
        raise ValueError(f"no {', '.join(missing)}")
    raise ValueError(f"unknown {', '.join(repr(name)[:40] for name in values if name not in _FIELD_SET)[:200]}")


def _hash(name: str, value: object) -> int:
    if isinstance(value, str) and _HASH.fullmatch(value):
        return int(value, 16)
    raise ValueError(f"{name} must be 0x and 16 hexadecimal digits, got {value!r:.80}")


def _int(name: str, value: str) -> int:
    if len(value) <= 20 and value.isascii() and value.removeprefix("-").isdigit():
        return int(value)
    raise ValueError(f"{name} must be a whole number, got {value!r:.80}")


# --- reading ----------------------------------------------------------------------------------------------------------


class BadLine(NamedTuple):
    """A line that is no violation."""

    number: int
    problem: str


def read_journal(
    path: str | os.PathLike[str], on_bad_line: Callable[[BadLine], None] | None = None
) -> Iterator[ViolationRecord]:
    """Records of the file in order, one at a time; empty lines are skipped.

    Args:
        path: the file.
        on_bad_line: called for every line that is no violation, after which reading goes on.

    Raises:
        CanaryValueError: KVC-083 where the file cannot be read; KVC-082 for a bad line, unless `on_bad_line` takes it.
            A last line that was cut short, as by a crash, is only warned of.
    """
    where = _path(path)
    try:
        file = open(where, "rb")  # noqa: SIM115 - closed below, and errors of reading are not errors of opening
    except (OSError, ValueError) as error:
        _unusable(where, getattr(error, "strerror", None) or str(error))
    with file:
        for number, line in enumerate(_lines(where, file), 1):
            if line.isspace():
                continue
            try:
                if len(line) > _MOST_BYTES:
                    raise ValueError(f"longer than {_MOST_BYTES} bytes")
                record = from_json(line)
            except ValueError as error:
                problem = str(error)
                if not line.endswith(b"\n") and len(line) <= _MOST_BYTES:
                    problem = f"the last line was cut short: {problem}"
                    if on_bad_line is None:
                        _LOG.warning("kv-canary: %s:%d: %s", where, number, problem)
                        continue
                if on_bad_line is None:
                    _bad(where, number, problem)
                on_bad_line(BadLine(number, problem))
                continue
            yield record


def _lines(path: str, file: IO[bytes]) -> Iterator[bytes]:
    """Lines with their ends; of one that is too long, only its beginning."""
    try:
        while line := file.readline(_MOST_BYTES + 1):
            yield line
            while len(line) > _MOST_BYTES and not line.endswith(b"\n"):
                line = file.readline(_MOST_BYTES + 1)
    except OSError as error:
        _unusable(path, error.strerror or str(error))


def _path(given: object) -> str:
    try:
        return os.fsdecode(given)  # type: ignore[arg-type]
    except TypeError:
        _unusable(f"{given!r:.80}", f"a path must be text, bytes or a PathLike, not a {type(given).__name__}")


def _unusable(path: str, problem: str) -> NoReturn:
    raise errors.CanaryValueError("KVC-083", f"kv-canary: cannot use {path}: {problem}")


def _bad(path: str, number: int, problem: str) -> NoReturn:
    raise errors.CanaryValueError("KVC-082", f"kv-canary: {path}, line {number}, is no violation: {problem}")
