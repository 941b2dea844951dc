"""The spec as it stood at a revision of git."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path


class RevisionError(Exception):
    """The revision has no spec here, or git cannot say."""


def extract(spec: Path, revision: str, into: Path) -> Path:
    """Writes the folder `spec` of `revision` below `into` and returns it there.

    Raises:
        RevisionError: no git, no repository, no such revision, or no such folder in it.
    """
    commit = _git(spec, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        inside = _git(spec, "rev-parse", "--is-inside-work-tree")
        raise RevisionError(f"no revision '{revision}'" if inside else f"{spec} is in no git repository")
    # In a subfolder, git archives that folder alone.
    archive = _git(spec, "archive", "--format=tar", commit.decode().strip())
    if archive is None:
        raise RevisionError(f"{spec} does not exist in '{revision}'")
    target = into / spec.name
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files.getmembers():
            content = files.extractfile(member) if member.isfile() else None
            path = target / member.name
            if content is not None and target in path.parents and ".." not in Path(member.name).parts:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())
    return target


def _git(folder: Path, *words: str) -> bytes | None:
    """What git prints; None where it fails."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=False)
    except FileNotFoundError:
        raise RevisionError("git is not installed") from None
    return done.stdout if done.returncode == 0 else None
