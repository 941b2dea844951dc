"""Located errors: what is wrong, where, by which rule, and how to mend it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field

# Who made a mistake a hundred times reads the first few; more would only take time.
MAX_FINDINGS = 200
MAX_MESSAGE = 400
MAX_QUOTE = 60


@dataclass(frozen=True, order=True)
class Mark:
    """A place in a spec file; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, order=True)
class Diagnostic:
    """One finding, on the line that causes it."""

    mark: Mark
    rule: str
    message: str

    def text(self) -> str:
        return f"{self.mark}: {self.rule} {self.message}"

    def github(self) -> str:
        """A workflow command that GitHub shows on the line of the diff."""
        file = _escape(self.mark.file).replace(":", "%3A").replace(",", "%2C")
        where = f"file={file},line={self.mark.line},col={self.mark.column},title={self.rule}"
        return f"::error {where}::{_escape(self.message)}"

    def as_dict(self) -> dict[str, object]:
        return {
            "file": self.mark.file,
            "line": self.mark.line,
            "column": self.mark.column,
            "rule": self.rule,
            "message": self.message,
        }


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


class SpecError(Exception):
    """The spec cannot be used; carries the findings, sorted by place."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = sorted(set(diagnostics))
        super().__init__("\n".join(d.text() for d in self.diagnostics))


@dataclass
class Diagnostics:
    """Collects findings, so that one run reports all of them.

    With a `limit`, the finding that reaches it raises SpecError at once.
    `unread` counts expressions without a meaning, those included of which nothing is said, as they use what is broken.
    """

    found: list[Diagnostic] = field(default_factory=list)
    limit: int | None = None
    unread: int = 0

    @property
    def troubles(self) -> int:
        """Grows with each finding, and with each expression that cannot be read."""
        return len(self.found) + self.unread

    def add(self, mark: Mark, rule: str, message: str) -> None:
        """Records a finding; the message becomes one line of bounded length."""
        message = " ".join(message.split())
        if len(message) > MAX_MESSAGE:
            message = message[: MAX_MESSAGE - 1] + "…"
        self.found.append(Diagnostic(mark, rule, message))
        if self.limit is not None and len(self.found) >= self.limit:
            raise SpecError(self.found)

    def raise_if_any(self) -> None:
        if self.found:
            raise SpecError(self.found)


def quote(text: str) -> str:
    """The text in quotes, cut where it is long."""
    return f"'{text}'" if len(text) <= MAX_QUOTE else f"'{text[: MAX_QUOTE - 1]}…'"


def suggest(word: str, known: Iterable[str]) -> str:
    """' (did you mean 'x'?)' for the known word closest to `word`, else an empty string."""
    if len(word) > MAX_QUOTE:
        return ""
    words = sorted(set(known))
    close = [other for other in words if other.lower() == word.lower() and other != word]
    close = close or difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return f" (did you mean '{close[0]}'?)" if close else ""
