"""The GPU suite: on a GPU where there is one; and everywhere that it runs, and that it can fail."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests import gpu_suite
from tests.support.program import ROOT, SURFACES


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    path = tmp_path / "cases.json.gz"
    gpu_suite.make(path, count=6, series=1)
    return path


@pytest.mark.usefixtures("interpreted")
def test_suite_runs(cases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_suite.run(cases, "cpu", limit=None, sanitize=False, plant=False) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in SURFACES:
        line = next(line for line in lines if line.startswith(f"{name}: "))
        assert "0/" not in line and "equal" in line


@pytest.mark.usefixtures("interpreted")
def test_suite_sees_one_changed_element(cases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = json.loads(gzip.decompress(cases.read_bytes()))
    tampered = next(path for case in file["surfaces"]["canary_plan"]["drawn"] for path in _spoil(case))
    cases.write_bytes(gzip.compress(json.dumps(file).encode()))
    assert gpu_suite.run(cases, "cpu", limit=None, sanitize=False, plant=False) == 1
    assert f"{tampered}[0] is" in capsys.readouterr().out


def _spoil(case: gpu_suite.Case) -> list[str]:
    """Changes the first element of one expected output."""
    for path, recorded in case["after"].items():
        elements = gpu_suite.elements(recorded)
        recorded["runs"] = [elements[0] ^ 1, *elements[1:]]
        return [path]
    return []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu(tmp_path: Path) -> None:
    path = tmp_path / "cases.json.gz"
    gpu_suite.make(path, count=200, series=4)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "KVCANARY_"))}
    command = [sys.executable, str(ROOT / "tests" / "gpu_suite.py"), "--run", str(path)]
    done = subprocess.run(command, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
