"""Scalars that remember where they stood in their file; both compare and hash like their plain types."""

from __future__ import annotations

from collections.abc import Iterator

from kvcanary_gen.diagnostics import Mark

_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}
_BLANK_ESCAPES = frozenset("tnvfr \t\n_NLP")


class LocatedStr(str):
    """A scalar's text with its place.

    `raw` is the source text from the scalar's first character on, quotes and block headers included; `style` is that
    first character where it is one of these.
    """

    mark: Mark
    raw: str
    style: str
    _whole: tuple[LocatedStr, int] | None

    @classmethod
    def make(cls, text: str, mark: Mark, raw: str, style: str = "") -> LocatedStr:
        self = cls(text)
        self.mark, self.raw, self.style, self._whole = mark, raw, style, None
        return self

    def part(self, start: int, end: int) -> LocatedStr:
        """The stripped text between two offsets, which still knows its place."""
        piece = self[start:end]
        start += len(piece) - len(piece.lstrip())
        part = LocatedStr.make(piece.strip(), self.mark_at(start), "")
        part._whole = (self, start)
        return part

    def mark_at(self, offset: int) -> Mark:
        """Place of character `offset` of the text, or of the first visible one behind it.

        Folding changes white space alone, so the n-th visible character of the value is the n-th of the source.
        """
        if self._whole is not None:
            whole, start = self._whole
            return whole.mark_at(start + offset)
        if self._is_verbatim():
            return Mark(self.mark.file, self.mark.line, self.mark.column + len(self.style) + min(offset, len(self)))
        visible = sum(not c.isspace() for c in self[:offset])
        place = 0
        for count, index in enumerate(self._visible_places()):
            if count == visible:
                return self._mark_of(index)
            place = index + 1
            if count + 1 == visible and offset >= len(self.rstrip()):
                break
        return self._mark_of(place)

    def _is_verbatim(self) -> bool:
        """Whether the source says on one line what the text says."""
        return len(self.raw) == len(self) + 2 * len(self.style) and "\n" not in self.raw

    def _mark_of(self, index: int) -> Mark:
        before = self.raw[:index]
        newline = before.rfind("\n")
        if newline < 0:
            return Mark(self.mark.file, self.mark.line, self.mark.column + index)
        return Mark(self.mark.file, self.mark.line + before.count("\n"), index - newline)

    def _visible_places(self) -> Iterator[int]:
        """Where in `raw` each visible character of the text stands."""
        raw, index = self.raw, 0
        if self.style in ("|", ">"):
            index = raw.find("\n") + 1
        elif self.style:
            index = 1
        while index < len(raw):
            length, visible = self._character(index)
            if visible:
                yield index
            index += length

    def _character(self, index: int) -> tuple[int, bool]:
        """Length in the source of the character at `index`, and whether it is visible in the text."""
        raw = self.raw
        if self.style == "'" and raw.startswith("''", index):
            return 2, True
        if self.style == '"' and raw[index] == "\\" and index + 1 < len(raw):
            letter = raw[index + 1]
            digits = raw[index + 2 : index + 2 + _HEX_ESCAPES.get(letter, 0)]
            if digits:
                return 2 + len(digits), not chr(int(digits, 16)).isspace()
            return 2, letter not in _BLANK_ESCAPES
        return 1, not raw[index].isspace()


class LocatedInt(int):
    """An integer scalar with its place and its spelling (`0xC0FFEE` stays so)."""

    text: LocatedStr

    @classmethod
    def make(cls, value: int, text: LocatedStr) -> LocatedInt:
        self = cls(value)
        self.text = text
        return self
