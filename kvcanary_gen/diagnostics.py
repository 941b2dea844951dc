"""Located errors: what is wrong, where, by which rule, and how to mend it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field


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
        escaped = self.message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        where = f"file={self.mark.file},line={self.mark.line},col={self.mark.column},title={self.rule}"
        return f"::error {where}::{escaped}"

    def as_dict(self) -> dict[str, object]:
        return {
            "file": self.mark.file,
            "line": self.mark.line,
            "column": self.mark.column,
            "rule": self.rule,
            "message": self.message,
        }


class SpecError(Exception):
    """The spec cannot be used; carries every finding, sorted by place."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = sorted(set(diagnostics))
        super().__init__("\n".join(d.text() for d in self.diagnostics))


@dataclass
class Diagnostics:
    """Collects findings, so that one run reports all of them."""

    found: list[Diagnostic] = field(default_factory=list)

    def add(self, mark: Mark, rule: str, message: str) -> None:
        self.found.append(Diagnostic(mark, rule, message))

    def raise_if_any(self) -> None:
        if self.found:
            raise SpecError(self.found)


def suggest(word: str, known: Iterable[str]) -> str:
    """' (did you mean 'x'?)' for the known word closest to `word`, else an empty string."""
    close = difflib.get_close_matches(word, sorted(set(known)), n=1, cutoff=0.6)
    return f" (did you mean '{close[0]}'?)" if close else ""
