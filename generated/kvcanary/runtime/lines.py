# Written by kvcanary-gen from the spec; edit that instead.
"""A violation as one line of a log, and back.

    kv-canary violation step=12 time=1764524155.25 forward=target … reasons=VERIFY_CHAIN_HASH_MISMATCH …

After the two leading words comes every field of ViolationRecord as `key=value`, in the order of FIELDS, one space
between them. A value that is made of letters, digits and `_ . : / @ + , -` alone stands as it is; any other stands
between double quotes, with these escapes: a backslash before a double quote or a backslash, `\\n`, `\\r`, `\\t`, and
`\\uXXXX` or `\\UXXXXXXXX` for whatever else is not printable ASCII. So a line is one line of ASCII, whatever a request
calls itself. None is a bare `-`; the text "-" is quoted. Hashes are `0x` and 16 hexadecimal digits.
"""

from __future__ import annotations

import re
from typing import NoReturn

from .. import errors
from .records import FIELDS, Field, ViolationRecord

__all__ = ["format_line", "parse_violation"]

PREFIX = "kv-canary violation"

_BARE = re.compile(r"[A-Za-z0-9_.:/@+,-]+")
_PAIR = re.compile(r' ([A-Za-z_][A-Za-z0-9_]*)=(?:([A-Za-z0-9_.:/@+,-]+)|"((?:[ !#-\[\]-~]|\\.)*)")(?= |$)')
_ESCAPE = re.compile(r'\\(?:(["\\nrt])|u([0-9a-f]{4})|U([0-9a-f]{8})|.)')
_SHORT = {"\n": "n", "\r": "r", "\t": "t", '"': '"', "\\": "\\"}
_LONG = {letter: char for char, letter in _SHORT.items()}
_FIELDS = {field.name: field for field in FIELDS}


def format_line(record: ViolationRecord) -> str:
    """The record as one line without a line break; `parse_violation` reads it back."""
    return " ".join([PREFIX, *(f"{field.name}={_written(field, getattr(record, field.name))}" for field in FIELDS)])


def _written(field: Field, value: object) -> str:
    if value is None:
        return "-"
    if field.kind == "hash":
        return f"0x{value:016x}"
    if field.kind == "float":
        return repr(value)
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    if _BARE.fullmatch(text) and not (text == "-" and field.kind == "text"):
        return text
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in _SHORT:
        return "\\" + _SHORT[char]
    if " " <= char <= "~":
        return char
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


def parse_violation(line: str) -> ViolationRecord:
    """Reads a line that `format_line` wrote; a line break at its end is left out.

    Raises:
        CanaryValueError: KVC-081, with the column (from 1) and what is wrong there: another beginning, a pair that is
            no `key=value`, an unknown, repeated or missing key, or a value that its key cannot have.
    """
    if not isinstance(line, str):
        _refuse(1, f"expected a str, got {type(line).__name__}")
    text = line[:-1] if line.endswith("\n") else line
    text = text[:-1] if text.endswith("\r") else text
    if not text.startswith(PREFIX + " "):
        _refuse(1, f"expected '{PREFIX} ', got {text[: len(PREFIX) + 1]!r}")
    values: dict[str, object] = {}
    place = len(PREFIX)
    while place < len(text):
        pair = _PAIR.match(text, place)
        if pair is None:
            _refuse(place + 2, f"expected key=value, got {text[place + 1 : place + 33]!r}")
        key, bare, quoted = pair.groups()
        if key in values or key not in _FIELDS:
            _refuse(place + 2, f"{'repeated' if key in values else 'unknown'} key {key!r}")
        values[key] = _read(_FIELDS[key], bare, quoted, pair.end(1) + 2)
        place = pair.end()
    missing = [name for name in _FIELDS if name not in values]
    if missing:
        _refuse(len(text) + 1, f"the line ends without {', '.join(missing)}")
    try:
        return ViolationRecord(**values)  # type: ignore[arg-type]
    except errors.CanaryValueError as error:
        _refuse(len(PREFIX) + 2, str(error))


def _read(field: Field, bare: str | None, quoted: str | None, column: int) -> object:
    """A value of its field's type; `column` is where it begins."""
    if bare == "-" and field.optional:
        return None
    text = bare if quoted is None else _unescaped(quoted, column + 1)
    assert text is not None
    if field.kind == "text":
        if bare == "-":
            _refuse(column, f"{field.name} cannot be unknown")
        return text
    if field.kind == "reasons":
        return tuple(text.split(",")) if text else ()
    pattern, want = _NUMBERS[field.kind]
    if pattern.fullmatch(text) is None:
        _refuse(column, f"{field.name} must be {want}, got {text!r:.80}")
    return float(text) if field.kind == "float" else int(text, 16 if field.kind == "hash" else 10)


_NUMBERS = {
    "int": (re.compile(r"-?[0-9]{1,20}"), "a whole number"),
    "float": (re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?(e[+-]?[0-9]{1,4})?"), "a number of seconds"),
    "hash": (re.compile(r"0x[0-9a-f]{16}"), "0x and 16 hexadecimal digits"),
}


def _unescaped(text: str, column: int) -> str:
    """The text between quotes; `column` is where it begins."""

    def char(match: re.Match[str]) -> str:
        short, four, eight = match.groups()
        code = int(four or eight or "0", 16)
        if (short is None and four is None and eight is None) or code > 0x10FFFF:
            _refuse(column + match.start(), f"{match.group()!r} is no escape")
        return _LONG[short] if short else chr(code)

    return _ESCAPE.sub(char, text)


def _refuse(column: int, problem: str) -> NoReturn:
    raise errors.CanaryValueError("KVC-081", f"kv-canary: not a violation line, at column {column}: {problem}")
