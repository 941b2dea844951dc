"""Copies of the real spec that tests break on purpose."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvcanary_gen import load, source
from kvcanary_gen.diagnostics import Diagnostic, Diagnostics, SpecError
from kvcanary_gen.ir import Program
from kvcanary_gen.resolve import load_program

SPEC = Path(__file__).resolve().parents[2] / "spec"
FILES = {path.relative_to(SPEC).as_posix(): path.read_text("utf-8") for path in sorted(SPEC.rglob("*.yaml"))}

# Stands in a test's text where the finding must be; no file of the spec holds it.
HERE = "¦"
assert not any(HERE in text for text in FILES.values())


@dataclass(frozen=True)
class Copy:
    """A copy of the spec in a folder of its own."""

    root: Path

    @classmethod
    def make(cls, folder: Path) -> Copy:
        shutil.copytree(SPEC, folder / "spec")
        return cls(folder / "spec")

    def write(self, file: str, text: str | bytes) -> None:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)

    def restore(self, files: Iterable[str]) -> None:
        for file in files:
            if file in FILES:
                self.write(file, FILES[file])
            else:
                (self.root / file).unlink()

    def replace(self, file: str, old: str, new: str) -> str | None:
        """Replaces the only `old` in a file; returns the place of the marker in `new`, if it has one."""
        text = (self.root / file).read_text("utf-8")
        assert text.count(old) == 1, f"{file} holds {old!r} {text.count(old)} times"
        text = text.replace(old, new)
        place = place_of(file, text) if HERE in new else None
        self.write(file, text.replace(HERE, ""))
        return place

    def load(self) -> Program | list[Diagnostic]:
        """The program, or what is wrong with the spec; any other exception is the test's."""
        try:
            return load_program(self.root)
        except SpecError as error:
            return error.diagnostics

    def findings(self) -> list[Diagnostic]:
        found = self.load()
        assert isinstance(found, list), "the spec is valid"
        return found


@contextlib.contextmanager
def unchanged_files_read_once() -> Iterator[None]:
    """Files that are as in the real spec are parsed once; that is half of the work of loading a copy."""
    known: dict[str, source.Source] = {}

    def read(path: Path, file: str, out: Diagnostics) -> source.Source | None:
        name = file.removeprefix("spec/")
        unchanged = name in FILES and path.is_file() and path.read_bytes() == FILES[name].encode("utf-8")
        if not unchanged or file not in known:
            found = source.read_source(path, file, out)
            if not unchanged or found is None:
                return found
            known[file] = found
        return known[file]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "read_source", read)
        yield


def place_of(file: str, text: str) -> str:
    """The marker's place in `text`, as findings print it."""
    before = text[: text.index(HERE)]
    return f"spec/{file}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


def file_place(file: str, text: str) -> str:
    """Place of the marker in `text`, which is a part of the unchanged file."""
    plain = text.replace(HERE, "")
    assert FILES[file].count(plain) == 1, f"{file} holds {plain!r} {FILES[file].count(plain)} times"
    return place_of(file, FILES[file].replace(plain, text))
