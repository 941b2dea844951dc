"""What must hold of every generated package, whatever the spec says."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

from kvcanary_gen.emit.package import build_package
from kvcanary_gen.resolve import load_program

from .compile_server import CompileServer
from .workshop import REPOSITORY, Built

_RUFF = Path(sys.executable).with_name("ruff")


def examine(built: Built, server: CompileServer, kernels: list[str] | None = None, *, bare: bool = False) -> None:
    """Checks texts and bytes, and compiles all kernels, or some."""
    stands_alone(built)
    looks_written_by_hand(built)
    assert build_package(load_program(built.spec)) == built.files, "a second build differs"
    wanted = list(built.program.kernels) if kernels is None else kernels
    answer = server.compile(built.spec, built.folder, wanted, bare=bare)
    assert not answer["errors"], "\n".join(answer["errors"])
    assert answer["files"] == built.files, "another PYTHONHASHSEED gives other bytes"
    spilling = [r for r in answer["reports"] if r["spills"] or r["local_accesses"]]
    assert not spilling, spilling


def stands_alone(built: Built) -> None:
    for name, text in built.files.items():
        assert "kvcanary_gen" not in text, name
        if name.endswith(".py"):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                compile(text, name, "exec")


def looks_written_by_hand(built: Built) -> None:
    for command in (["check"], ["format", "--check", "--diff"]):
        config = ["--no-cache", "--config", str(REPOSITORY / "pyproject.toml")]
        done = subprocess.run(
            [_RUFF, *command, *config, built.folder],
            cwd=built.folder.parents[1],  # the configuration speaks of generated/
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
