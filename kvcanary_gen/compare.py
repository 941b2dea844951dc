"""A folder on disk against the files that belong there, as a set."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

MANIFEST = ".manifest.json"
GENERATOR = "kvcanary-gen"

# What tools leave behind in any folder of Python files; neither compared nor removed.
_IGNORED_FOLDERS = frozenset({"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"})
_IGNORED_NAMES = frozenset({".DS_Store"})
_IGNORED_SUFFIXES = (".pyc", ".pyo")

Tree = Mapping[str, str]


def manifest_text(files: Tree) -> str:
    """Digest of every file as it was generated; a file that has another one was edited since."""
    digests = {path: _digest(text.encode()) for path, text in sorted(files.items())}
    return json.dumps({"generator": GENERATOR, "sha256": digests}, indent=2) + "\n"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class State(str, Enum):
    """How a file differs from the one that the spec builds."""

    CHANGED = "changed"  # it is as it was generated, but the spec says something else by now
    MISSING = "missing"
    ORPHANED = "orphaned"  # the spec builds no such file
    EDITED = "edited by hand"


@dataclass(frozen=True)
class Difference:
    """One path that differs. `have` is None where no plain file is, `want` where none should be."""

    path: str
    state: State
    have: bytes | None
    want: str | None

    def diff(self) -> list[str]:
        """Unified diff from the disk to what the spec builds."""
        have = (self.have or b"").decode("utf-8", "replace").splitlines()
        want = (self.want or "").splitlines()
        before = self.path if self.have is not None else "/dev/null"
        after = f"{self.path} (from the spec)" if self.want is not None else "/dev/null"
        lines = list(difflib.unified_diff(have, want, before, after, lineterm=""))
        return lines or [f"--- {before}", f"+++ {after}", "only line endings or bytes outside UTF-8 differ"]


@dataclass(frozen=True)
class Comparison:
    """What differs between a tree and a folder, sorted by path."""

    differences: tuple[Difference, ...]
    same: int

    @property
    def equal(self) -> bool:
        return not self.differences

    def of(self, *states: State) -> list[Difference]:
        return [difference for difference in self.differences if difference.state in states]


def compare(tree: Tree, folder: Path) -> Comparison:
    """Compares the set of files in `folder` with `tree`; a folder that does not exist is empty. Raises OSError."""
    have = {path: _read(folder / path) for path in walk(folder)}
    digests = _digests(have.get(MANIFEST))
    found = []
    for path in sorted(have.keys() | tree.keys()):
        data, text = have.get(path), tree.get(path)
        if path not in have:
            found.append(Difference(path, State.MISSING, None, text))
        elif text is None:
            found.append(Difference(path, State.ORPHANED, data, None))
        elif data != text.encode():
            edited = path in digests and (data is None or _digest(data) != digests[path])
            found.append(Difference(path, State.EDITED if edited else State.CHANGED, data, text))
    return Comparison(tuple(found), len(tree) - sum(d.want is not None for d in found))


def walk(folder: Path) -> Iterator[str]:
    """Paths of the files below `folder`, with `/`; links are not followed."""
    for where, folders, names in os.walk(folder, onerror=_unreadable):
        linked = [name for name in folders if os.path.islink(os.path.join(where, name))]
        folders[:] = sorted(name for name in folders if name not in _IGNORED_FOLDERS and name not in linked)
        for name in (*names, *linked):
            if name not in _IGNORED_NAMES and not name.endswith(_IGNORED_SUFFIXES):
                yield Path(where, name).relative_to(folder).as_posix()


def _unreadable(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _read(path: Path) -> bytes | None:
    """Content of a plain file; None for a link, a socket and the like, which no generator wrote."""
    return path.read_bytes() if path.is_file() and not path.is_symlink() else None


def _digests(manifest: bytes | None) -> dict[str, str]:
    """Digests in a manifest; none where it is missing or damaged, as a merge conflict may leave it."""
    try:
        found = json.loads(manifest or b"{}")["sha256"]
    except (ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def is_generated(folder: Path) -> bool:
    """Whether `folder` was written by this generator, by its manifest, even by a damaged one."""
    data = _read(folder / MANIFEST)
    return data is not None and GENERATOR.encode() in data
