"""A copy of a spec that a test edits as a maintainer would, and the package that it generates."""

from __future__ import annotations

import importlib.util
import itertools
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from kvcanary_gen.emit.package import build_package
from kvcanary_gen.ir import Program
from kvcanary_gen.resolve import load_program

REPOSITORY = Path(__file__).resolve().parents[2]
SPEC = REPOSITORY / "spec"
LABORATORY = Path(__file__).parent / "laboratory"

_numbers = itertools.count()


@dataclass(frozen=True)
class Built:
    """A generated package, imported under a name of its own."""

    program: Program
    spec: Path
    folder: Path
    files: dict[str, str]
    module: ModuleType

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    def text(self, path: str) -> str:
        """A generated file, by its path inside the package."""
        return self.files[f"{self.program.header.package}/{path}"]


class Workshop:
    """Edits text, never objects; an edit whose text is not there fails, so that no test passes by doing nothing."""

    def __init__(self, folder: Path, source: Path = SPEC) -> None:
        self.folder = folder / "spec"
        shutil.copytree(source, self.folder)

    def files(self) -> list[Path]:
        return sorted(self.folder.rglob("*.yaml"))

    def rename(self, old: str, new: str) -> None:
        """Renames a word in every file, as a search-and-replace in an editor does."""
        found = 0
        for path in self.files():
            text, count = re.subn(rf"\b{re.escape(old)}\b", new, path.read_text())
            path.write_text(text)
            found += count
        assert found, f"the spec does not say '{old}'"

    def replace(self, old: str, new: str, *, times: int = 1) -> None:
        """Replaces text that stands exactly `times` times in the whole spec."""
        found = {path: path.read_text().count(old) for path in self.files()}
        assert sum(found.values()) == times, f"expected {times} of {old!r}, found {sum(found.values())}"
        for path, count in found.items():
            if count:
                path.write_text(path.read_text().replace(old, new))

    def add_after(self, line: str, *new: str) -> None:
        """Adds lines below the only line with this text, as deep as it stands."""
        spots = [(p, i) for p in self.files() for i, t in enumerate(p.read_text().splitlines()) if t.strip() == line]
        assert len(spots) == 1, f"expected one line {line!r}, found {len(spots)}"
        path, index = spots[0]
        lines = path.read_text().splitlines()
        indent = " " * (len(lines[index]) - len(lines[index].lstrip()))
        lines[index + 1 : index + 1] = [indent + text for text in new]
        path.write_text("\n".join(lines) + "\n")

    def remove_block(self, head: str) -> None:
        """Removes the only line that begins with this text, and all that stands deeper below it."""
        lines_of = {path: path.read_text().splitlines() for path in self.files()}
        spots = [(p, i) for p, lines in lines_of.items() for i, t in enumerate(lines) if t.strip().startswith(head)]
        assert len(spots) == 1, f"expected one line {head!r}, found {len(spots)}"
        path, index = spots[0]
        lines = path.read_text().splitlines()
        depth = len(lines[index]) - len(lines[index].lstrip())
        end = index + 1
        while end < len(lines) and len(lines[end]) - len(lines[end].lstrip()) > depth:
            end += 1
        path.write_text("\n".join(lines[:index] + lines[end:]) + "\n")

    def write(self, name: str, text: str) -> None:
        """Adds a file; kernels/*.yaml is included already."""
        path = self.folder / name
        assert not path.exists(), f"{name} is there already"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def build(self) -> Built:
        program = load_program(self.folder)
        files = build_package(program)
        top = self.folder.parent / "generated"
        for name, text in files.items():
            path = top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        folder = top / program.header.package
        return Built(program, self.folder, folder, files, import_package(folder))


def implied_rules() -> str:
    """The canary's own rules that declarations imply, for a spec that has no others."""
    declared = {
        k: v for p in SPEC.rglob("*.yaml") for k, v in yaml.safe_load(p.read_text()).get("invariants", {}).items()
    }
    return yaml.safe_dump({"invariants": {k: v for k, v in declared.items() if "implied" in v}}, sort_keys=False)


def import_package(folder: Path) -> ModuleType:
    """Imports a package folder under a name that nothing else has."""
    name = f"{folder.name}_of_test_{next(_numbers)}"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
