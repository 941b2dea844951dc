"""Writes a tree of files into a folder: what changed alone, and all of it or nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from kvcanary_gen.compare import MANIFEST, Comparison, State, Tree, compare, is_generated, walk


class FolderError(Exception):
    """The folder cannot be written to, or must not be."""


def write_tree(tree: Tree, folder: Path) -> Comparison:
    """Makes `folder` hold `tree` and nothing else; returns what differed before.

    New text goes to a temporary folder beside it first, then file by file into place. When a step fails, those before
    it are undone, so the folder is as it was.

    Raises:
        FolderError: `folder` holds files that no generator wrote, or could not be put back as it was.
        OSError: the disk refused a step; the folder is as it was.
    """
    folder = folder.resolve()
    _refuse_foreign(tree, folder)
    comparison = compare(tree, folder)
    if comparison.equal:
        return comparison
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _stage(comparison, staging / "new")
        _Move(staging, folder).run(comparison)
    except FolderError:
        raise  # what is left in the temporary folder may be the only copy
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    shutil.rmtree(staging, ignore_errors=True)
    return comparison


def _refuse_foreign(tree: Tree, folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise FolderError(f"{folder} is a file; generated files need a folder")
    if is_generated(folder):
        return
    foreign = sorted(path for path in walk(folder) if path not in tree)
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise FolderError(
            f"{folder} is no generated folder: it has no {MANIFEST}, but holds {foreign[0]}{more}. "
            "Everything in a generated folder that the spec does not build is removed, so choose an empty one"
        )


def _stage(comparison: Comparison, staging: Path) -> None:
    for difference in comparison.differences:
        if difference.want is not None:
            path = staging / difference.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(difference.want.encode())


class _Move:
    """Moves staged files into place and remembers how to undo each step."""

    def __init__(self, staging: Path, folder: Path) -> None:
        self.folder, self.new, self.old = folder, staging / "new", staging / "old"
        self.undo: list[Callable[[], object]] = []

    def run(self, comparison: Comparison) -> None:
        try:
            # Orphans first: a file may stand where a folder is needed, or the other way round.
            for difference in comparison.of(State.ORPHANED):
                self._remove(difference.path)
            placed = comparison.of(State.CHANGED, State.EDITED, State.MISSING)
            # The manifest last: it vouches for all the others.
            for difference in sorted(placed, key=lambda d: d.path == MANIFEST):
                self._place(difference.path, replaces=difference.state is not State.MISSING)
        except BaseException as error:
            self._roll_back(error)
            raise

    def _remove(self, path: str) -> None:
        kept, target = self.old / path, self.folder / path
        kept.parent.mkdir(parents=True, exist_ok=True)
        self.undo.append(lambda: _put_back(kept, target))
        os.replace(target, kept)
        _prune(target.parent, self.folder)

    def _place(self, path: str, *, replaces: bool) -> None:
        kept, target = self.old / path, self.folder / path
        if replaces:
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(target, kept, follow_symlinks=False)
        self._make_folder(target.parent)
        self.undo.append(lambda: _put_back(kept, target) if replaces else target.unlink(missing_ok=True))
        os.replace(self.new / path, target)

    def _make_folder(self, where: Path) -> None:
        """Makes a folder and its parents, each of them a step of its own."""
        if where.is_dir():
            return
        self._make_folder(where.parent)
        self.undo.append(lambda: where.rmdir() if where.is_dir() else None)
        where.mkdir()

    def _roll_back(self, cause: BaseException) -> None:
        try:
            for step in reversed(self.undo):
                step()
        except OSError as error:
            raise FolderError(
                f"{self.folder} could not be written ({cause}) nor put back as it was ({error}); "
                f"the files that it held are in {self.old}"
            ) from cause


def _put_back(kept: Path, target: Path) -> None:
    if not os.path.lexists(kept):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(kept, target)


def _prune(where: Path, stop: Path) -> None:
    """Removes `where` and its parents below `stop` as far as they hold nothing but bytecode."""
    while where != stop and stop in where.parents:
        entries = list(where.iterdir())
        if any(entry.name != "__pycache__" for entry in entries):
            return
        for entry in entries:
            shutil.rmtree(entry)
        where.rmdir()
        where = where.parent
