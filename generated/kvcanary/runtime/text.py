# Written by kvcanary-gen from the spec; edit that instead.
"""Text from elsewhere as it may be shown: on one line, printable, of bounded length."""

from __future__ import annotations

import datetime

MOST = 120


def shown(text: str, most: int = MOST) -> str:
    """`text` with escapes for what is not printable, cut in the middle where it is longer than `most`.

    Line breaks, control characters, marks that turn the direction of text, and lone surrogates become escapes, so that
    a request's name can neither break a line of a log nor an encoder.
    """
    if len(text) <= most and text.isprintable():
        return text
    if len(text) > 2 * most:
        text = text[:most] + text[-most:]
    plain = "".join(char if char.isprintable() else _escape(char) for char in text)
    if len(plain) <= most:
        return plain
    head = (most - 1) * 2 // 3
    return f"{plain[:head]}…{plain[head + 1 - most :]}"


def _escape(char: str) -> str:
    code = ord(char)
    return {9: "\\t", 10: "\\n", 13: "\\r"}.get(code) or (f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")


def named(text: str | None, most: int = MOST) -> str:
    """A request's or pool's name in quotes; `unknown` where there is none."""
    return "unknown" if text is None else f"'{shown(text, most)}'"


def plural(count: int, noun: str, many: str = "") -> str:
    """`1 step`, `1,234 steps`."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def listing(words: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def clock(seconds: float) -> str:
    """A time in UTC to the second; the number itself where no calendar has it."""
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return f"{seconds} s"
