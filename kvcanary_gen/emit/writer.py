"""Statements being written: lines, indentation and the names that are taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kvcanary_gen.emit.code import Code, statement
from kvcanary_gen.emit.tidy import shortened, tidy


@dataclass
class Writer:
    """Collects the lines of one function body."""

    indent: int = 4
    lines: list[str] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    def write(self, lead: str, code: Code, tail: str = "") -> None:
        """A statement around an expression, broken where it does not fit; what is too long even so gets a name."""
        while not tidy(lead, code, self.indent, tail):
            found = shortened(code, name := self.fresh("part"))
            if found is None:
                break
            part, code = found
            self.write(f"{name} = ", part)
        self.lines += statement(lead, code, self.indent, tail)

    def text(self, line: str) -> None:
        self.lines.append(" " * self.indent + line)

    @contextmanager
    def indented(self) -> Iterator[None]:
        self.indent += 4
        yield
        self.indent -= 4

    def fresh(self, name: str) -> str:
        """`name`, or `name_2` and so on where it is taken."""
        found, count = name, 1
        while found in self.taken:
            count += 1
            found = f"{name}_{count}"
        self.taken.add(found)
        return found
