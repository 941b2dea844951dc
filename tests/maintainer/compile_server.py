"""Compiles generated packages ahead of time, in a process where Triton is not interpreted.

Many errors show in Triton's compiler alone: the interpreter runs Python, which knows more than Triton does. The tests
run interpreted, so they talk to this process by lines of JSON. It hashes in another order, too, and so builds every
package a second time to compare the bytes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
TARGETS = ("sm_90", "gfx942")


@dataclass
class CompileServer:
    """The caller's end."""

    process: subprocess.Popen[str]

    def compile(self, spec: Path, folder: Path, kernels: list[str], *, bare: bool) -> dict[str, Any]:
        """Answers `errors` (texts), `reports` (as dicts) and `files` (the package, built anew).

        Kernels are compiled with all their optional tensors, and with `bare` also with none.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        request = {"spec": str(spec), "folder": str(folder), "kernels": kernels, "bare": bare}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the compile server died"
        found: dict[str, Any] = json.loads(answer)
        return found


@contextlib.contextmanager
def serving() -> Iterator[CompileServer]:
    env = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "TRITON_DEBUG", "KVCANARY_BACKEND")}
    env |= {"PYTHONHASHSEED": "271828", "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "tests.maintainer.compile_server"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd=REPOSITORY, text=True
    ) as process:
        yield CompileServer(process)
        assert process.stdin is not None
        process.stdin.close()


# ---- the other end ---------------------------------------------------------------------------------------------------


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    from kvcanary_gen.emit.package import build_package
    from kvcanary_gen.resolve import load_program

    program = load_program(Path(request["spec"]))
    errors: list[str] = []
    reports: list[dict[str, Any]] = []
    for spec, target in itertools.product(_specialisations(program, request), TARGETS):
        _compile(spec, target, reports, errors)
    return {"files": build_package(program), "errors": errors, "reports": reports}


def _specialisations(program: Any, request: dict[str, Any]) -> Iterator[Any]:
    """The richest form of every kernel asked for, and with `bare` also the leanest; tests/aot compiles them all."""
    from kvcanary_gen.expr.phases import phases
    from kvcanary_gen.many import variants
    from kvcanary_gen.specialisations import package_loader, specialisations

    every = specialisations(program, package_loader(Path(request["folder"])))
    known = program.kernels | variants(program)
    for name in [phase.name for kernel in request["kernels"] for phase in phases(known[kernel])]:
        forms = [spec for spec in every if spec.kernel == name]
        yield forms[-1]
        if request["bare"] and len(forms) > 1:
            yield forms[0]


def _compile(spec: Any, target: str, reports: list[dict[str, Any]], errors: list[str]) -> None:
    from dataclasses import asdict

    from kvcanary_gen.aot import compile_one

    try:
        reports.append(asdict(compile_one(spec, target)))
    except Exception as error:  # whatever Triton raises is an answer
        errors.append(f"{spec.kernel} {spec.constants} for {target}: {type(error).__name__}: {error} {error.__cause__}")


def _serve() -> None:
    # Triton prints to stdout now and then; the answers must stay alone there.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(_answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve()
