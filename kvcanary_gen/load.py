"""Spec files to one validated document, with located errors for all of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from kvcanary_gen.diagnostics import Diagnostics, Mark, SpecError, suggest
from kvcanary_gen.schema import SECTIONS, Header, SpecFile
from kvcanary_gen.source import PathKey, Source, read_source

ROOT_FILE = "kvcanary.yaml"


@dataclass
class Document:
    """All spec files merged; every section is a dict by name, in file order."""

    root: Path
    header: Header
    header_mark: Mark
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    places: dict[tuple[str, str], str] = field(default_factory=dict)

    def section(self, name: str) -> dict[str, Any]:
        return self.sections[name]

    def mark(self, section: str, name: str, *path: str | int, key: bool = False) -> Mark:
        """Place of a declaration, or of a part of it."""
        source = self.sources[self.places[section, name]]
        return source.locate((section, name, *path), key=key or not path)

    def source_lines(self, section: str, name: str) -> tuple[Mark, list[str]]:
        """The lines of a declaration as written, for `explain`."""
        mark = self.mark(section, name)
        lines = (self.root / mark.file.removeprefix(self.root.name + "/")).read_text("utf-8").splitlines()
        indent = len(lines[mark.line - 1]) - len(lines[mark.line - 1].lstrip())
        end = mark.line
        while end < len(lines) and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > indent):
            end += 1
        while not lines[end - 1].strip():
            end -= 1
        return mark, lines[mark.line - 1 : end]


def load_document(root: Path) -> Document:
    """Reads the spec folder `root`.

    Raises:
        SpecError: with every finding, sorted by place.
    """
    out = Diagnostics()
    sources = list(_read_all(root, out))
    parsed = [(source, model) for source in sources if (model := _validate(source, out)) is not None]
    document = _merge(root, parsed, out)
    out.raise_if_any()
    assert document is not None
    return document


def _read_all(root: Path, out: Diagnostics) -> Iterator[Source]:
    seen: set[Path] = set()
    todo: list[tuple[Path, Mark | None]] = [(root / ROOT_FILE, None)]
    while todo:
        path, by = todo.pop(0)
        resolved = path.resolve()
        if resolved in seen:
            assert by is not None
            out.add(by, "KVG-006", f"{path.name} is included twice, or in a circle")
            continue
        seen.add(resolved)
        file = f"{root.name}/{path.relative_to(root)}" if path.is_relative_to(root) else str(path)
        source = read_source(path, file, out)
        if source is None:
            continue
        yield source
        todo[0:0] = list(_includes(root, source, out))


def _includes(root: Path, source: Source, out: Diagnostics) -> Iterator[tuple[Path, Mark]]:
    tree = source.tree
    patterns = tree.get("include") if isinstance(tree, dict) else None
    if not isinstance(patterns, list):
        return
    for index, pattern in enumerate(patterns):
        mark = source.locate(("include", index))
        if not isinstance(pattern, str) or not pattern or pattern.startswith("/") or ".." in pattern.split("/"):
            out.add(mark, "KVG-006", "an include is a path or pattern below the spec folder")
            continue
        try:
            found = sorted(p for p in root.glob(str(pattern)) if p.is_file())
        except (ValueError, OSError, NotImplementedError, IndexError):
            found = []
        if not found:
            out.add(mark, "KVG-006", f"'{pattern}' names no file in {root.name}/")
        for path in found:
            yield path, mark


def _validate(source: Source, out: Diagnostics) -> SpecFile | None:
    if not isinstance(source.tree, dict):
        what = "is empty" if source.tree is None else "is not a mapping"
        out.add(Mark(source.file, 1, 1), "KVG-010", f"the file {what}; it must hold sections such as `kernels:`")
        return None
    try:
        return SpecFile.model_validate(source.tree)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            _report(source, details, out)
        return None


def _report(source: Source, details: ErrorDetails, out: Diagnostics) -> None:
    path: PathKey = tuple(p for p in details["loc"] if p != "[key]")
    at_key = "[key]" in details["loc"] or details["type"] == "extra_forbidden"
    mark = source.locate(path, key=at_key)
    where = ".".join(str(p) for p in path) or "the file"
    if details["type"] == "extra_forbidden":
        known = _known_keys(path[:-1])
        out.add(mark, "KVG-011", f"unknown key '{path[-1]}'{suggest(str(path[-1]), known)}")
    elif details["type"] == "missing":
        out.add(mark, "KVG-013", f"'{path[-1]}' is missing in {'.'.join(str(p) for p in path[:-1]) or 'the file'}")
    else:
        message = details["msg"].removeprefix("Value error, ")
        message = message[:1].lower() + message[1:]
        out.add(mark, "KVG-010", f"{where}: {message}")


def _known_keys(path: PathKey) -> list[str]:
    """Keys that the schema knows at `path`."""
    model: Any = SpecFile
    for part in path:
        if isinstance(model, type) and issubclass(model, BaseModel):
            fields = {f.alias or n: f for n, f in model.model_fields.items()}
            info = fields.get(str(part))
            if info is None:
                return []
            model = info.annotation
        else:
            model = _value_type(model)
        while not isinstance(model, type) and _value_type(model) is not None and _is_optional(model):
            model = _value_type(model)
    if isinstance(model, type) and issubclass(model, BaseModel):
        return [f.alias or n for n, f in model.model_fields.items()]
    return []


def _is_optional(annotation: Any) -> bool:
    return type(None) in getattr(annotation, "__args__", ())


def _value_type(annotation: Any) -> Any:
    """The model inside dict[K, Model], tuple[Model, ...] or Model | None."""
    for argument in reversed(getattr(annotation, "__args__", ())):
        if isinstance(argument, type) and issubclass(argument, BaseModel):
            return argument
    return None


def _merge(root: Path, parsed: list[tuple[Source, SpecFile]], out: Diagnostics) -> Document | None:
    headers = [(source, model.spec) for source, model in parsed if model.spec is not None]
    for source, _ in headers[1:]:
        out.add(source.locate(("spec",), key=True), "KVG-014", f"`spec` stands in {headers[0][0].file} already")
    if not headers:
        if not out.found:
            out.add(Mark(f"{root.name}/{ROOT_FILE}", 1, 1), "KVG-013", "'spec' is missing in the root file")
        return None
    source, header = headers[0]
    document = Document(root, header, source.locate(("spec",), key=True), {name: {} for name in SECTIONS})
    for source, model in parsed:
        document.sources[source.file] = source
        for section in SECTIONS:
            for name, value in getattr(model, section).items():
                first = document.places.get((section, name))
                if first is not None:
                    at = document.mark(section, name)
                    mark = source.locate((section, name), key=True)
                    out.add(mark, "KVG-014", f"'{name}' is declared already at {at}")
                    continue
                document.sections[section][name] = value
                document.places[section, name] = source.file
    return document


def load_or_report(root: Path) -> tuple[Document | None, SpecError | None]:
    """`load_document` for callers that print findings instead of raising."""
    try:
        return load_document(root), None
    except SpecError as error:
        return None, error
