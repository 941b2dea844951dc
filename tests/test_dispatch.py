"""Who computes: `backend=`, then KVCANARY_BACKEND, then the device. What is interpreted is settled at import."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from kvcanary_gen.oracle.host import broken_dispatch
from tests.support.dispatch_probe import ARGUMENTS, VARIABLES
from tests.support.program import PROGRAM, ROOT, SURFACES

PROCESSES = {
    "interpreted": {"TRITON_INTERPRET": "1"},
    "compiled": {},
    "set after import": {"SET_LATE": "1"},
}


def probe(extra: dict[str, str]) -> list[dict[str, Any]]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TRITON_", "KVCANARY_"))}
    path = os.pathsep.join([str(ROOT), str(ROOT / "generated")])
    command = [sys.executable, "-m", "tests.support.dispatch_probe"]
    done = subprocess.run(
        command, cwd=ROOT, env={**clean, **extra, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def expected(line: dict[str, Any], interpreted: bool) -> dict[str, Any]:
    backend, variable = line["backend"], line["variable"]
    broken = broken_dispatch(PROGRAM, device="cpu", backend=backend, variable=variable, interpreted=interpreted)
    if broken is not None:
        return {"raised": [broken.id, f"Canary{broken.raises}", broken.text]}
    return {"ran": [backend or variable or ("triton" if interpreted else "reference")]}


@pytest.mark.parametrize("process", PROCESSES)
def test_backend(process: str) -> None:
    lines = probe(PROCESSES[process])
    interpreted = process == "interpreted"
    assert len(lines) == len(list(itertools.product(SURFACES, ARGUMENTS, VARIABLES)))
    for line in lines:
        assert line["interpreted"] is interpreted
        have = {key: line[key] for key in ("ran", "raised") if key in line}
        assert have == expected(line, interpreted), line


def test_expectations_cover_both_errors() -> None:
    """The judge's table is not empty: each rule is broken somewhere, and each side runs somewhere."""
    found = set()
    for backend, variable, interpreted in itertools.product(ARGUMENTS, VARIABLES, (False, True)):
        outcome = expected({"backend": backend, "variable": variable}, interpreted)
        found.add(outcome["raised"][0] if "raised" in outcome else outcome["ran"][0])
    assert found == {PROGRAM.implied("backend").id, PROGRAM.implied("interpreter").id, "triton", "reference"}
