"""Spec files to one validated document, with located errors for all of them at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvcanary_gen.diagnostics import MAX_FINDINGS, Diagnostics, Mark, quote
from kvcanary_gen.schema import SECTIONS, Header, SpecFile
from kvcanary_gen.schema.validate import Declaration, validate
from kvcanary_gen.source import Source, read_source

ROOT_FILE = "kvcanary.yaml"
MAX_FILES = 1000
MAX_PATTERN = 200


@dataclass
class Document:
    """All spec files merged; every section is a dict by name, in file order.

    Declarations with errors of their own stand in `broken` alone, so that those that use them are still checked;
    `findings` says what is wrong with them.
    """

    root: Path
    header: Header
    header_mark: Mark
    sections: dict[str, dict[str, Any]] = field(default_factory=lambda: {name: {} for name in SECTIONS})
    sources: dict[str, Source] = field(default_factory=dict)
    places: dict[Declaration, str] = field(default_factory=dict)
    declared: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in SECTIONS})
    broken: set[Declaration] = field(default_factory=set)
    findings: Diagnostics = field(default_factory=Diagnostics)

    @property
    def root_source(self) -> Source:
        return self.sources[f"{self.root.name}/{ROOT_FILE}"]

    def section(self, name: str) -> dict[str, Any]:
        return self.sections[name]

    def names(self, section: str) -> list[str]:
        """Names declared in a section, those with errors included."""
        return self.declared[section]

    def mark(self, section: str, name: str, *path: str | int, key: bool = False) -> Mark:
        """Place of a declaration, or of a part of it."""
        source = self.sources[self.places[section, name]]
        return source.locate((section, name, *path), key=key or not path)

    def section_mark(self, section: str) -> Mark:
        """Place of the first heading of a section, or of the header where there is none."""
        for source in self.sources.values():
            if (section,) in source.keys:
                return source.keys[section,]
        return self.header_mark

    def raw(self, section: str, name: str) -> Any:
        """What stands in the file for a declaration, valid or not."""
        return self.sources[self.places[section, name]].tree[section][name]


def load_document(root: Path) -> Document:
    """Reads the spec folder `root`.

    Errors inside single declarations are kept in the document's `findings`, which `resolve_document` adds to its own.

    Raises:
        SpecError: where files are unreadable or sections unknown, so that what remains would say little.
    """
    out = Diagnostics(limit=MAX_FINDINGS)
    folder = _Folder(Path(os.path.abspath(root)), out)
    sources = list(folder.read())
    parsed = [(source, *validate(source, out)) for source in sources]
    complete = folder.complete and all(model is not None for _, model, _ in parsed)
    document = _merge(folder, [(s, m, b) for s, m, b in parsed if m is not None], out)
    if not complete:
        out.raise_if_any()
    return document


@dataclass
class _Folder:
    """Reads the root file and what it includes."""

    root: Path
    out: Diagnostics
    complete: bool = True

    @property
    def root_file(self) -> str:
        return self.label(self.root / ROOT_FILE)

    def label(self, path: Path) -> str:
        """How findings call a file: from the spec folder's own name on."""
        return f"{self.root.name}/{path.relative_to(self.root).as_posix()}"

    def read(self) -> Iterator[Source]:
        seen: set[str] = set()
        todo: list[tuple[Path, Mark]] = [(self.root / ROOT_FILE, Mark(self.root_file, 1, 1))]
        while todo:
            path, by = todo.pop(0)
            real = _real(path)
            if real in seen:
                self._fail(by, f"{quote(path.name)} is included twice, or in a circle")
                continue
            seen.add(real)
            if len(seen) > MAX_FILES:
                self._fail(by, f"more than {MAX_FILES} files")
                return
            source = read_source(path, self.label(path), self.out)
            if source is None:
                self.complete = False
                continue
            yield source
            todo[0:0] = list(self._includes(source))

    def _fail(self, mark: Mark, message: str) -> None:
        self.complete = False
        self.out.add(mark, "KVG-006", message)

    def _includes(self, source: Source) -> Iterator[tuple[Path, Mark]]:
        patterns = source.tree.get("include") if isinstance(source.tree, dict) else None
        for index, pattern in enumerate(patterns if isinstance(patterns, list) else []):
            if not isinstance(pattern, str):
                continue  # the schema says so
            mark = source.locate(("include", index))
            if len(pattern) > MAX_PATTERN or pattern.startswith("/") or ".." in pattern.split("/"):
                self._fail(mark, "an include is a path or pattern below the spec folder")
                continue
            found = self._glob(str(pattern))
            if not found:
                self._fail(mark, f"{quote(pattern)} names no file in {self.root.name}/")
            for path in found:
                yield path, mark

    def _glob(self, pattern: str) -> list[Path]:
        try:
            return sorted(path for path in self.root.glob(pattern) if path.is_file())
        except (ValueError, OSError, NotImplementedError, IndexError):
            return []


def _real(path: Path) -> str:
    """The file behind symbolic links; unlike Path.resolve, this bears links that form a circle."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return str(path)


def _merge(folder: _Folder, parsed: list[tuple[Source, SpecFile, set[Declaration]]], out: Diagnostics) -> Document:
    header, mark = _header(folder, parsed, out)
    document = Document(folder.root, header, mark, findings=out)
    for source, model, broken in parsed:
        document.sources[source.file] = source
        document.broken |= broken
        for section in SECTIONS:
            declared = getattr(model, section)
            for name in source.tree.get(section, ()):
                if (section, name) in document.places:
                    at = document.mark(section, name)
                    out.add(
                        source.locate((section, name), key=True), "KVG-014", f"'{name}' is declared already at {at}"
                    )
                    continue
                document.places[section, name] = source.file
                document.declared[section].append(name)
                if name in declared:
                    document.sections[section][name] = declared[name]
    return document


def _header(
    folder: _Folder, parsed: list[tuple[Source, SpecFile, set[Declaration]]], out: Diagnostics
) -> tuple[Header, Mark]:
    """The root file's header. Where it has errors, a stand-in lets the rest be checked."""
    found = Header(version="0.0.0", package="unknown", message_prefix="", doc="Unknown.")
    mark = Mark(folder.root_file, 1, 1)
    for source, model, broken in parsed:
        given = model.spec is not None or ("spec", "") in broken
        place = source.locate(("spec",), key=True)
        if source.file == folder.root_file:
            if not given:
                out.add(place, "KVG-013", "'spec' is missing in the root file")
            found, mark = model.spec or found, place
        elif given:
            out.add(place, "KVG-014", f"`spec` belongs into {folder.root_file} alone")
    return found, mark
