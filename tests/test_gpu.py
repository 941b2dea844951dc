"""The GPU suite: on a GPU where there is one; and everywhere that it runs, and that it can fail."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kvcanary_gen.oracle.draw import seeded
from tests import gpu_suite
from tests.support import gpu_cases, gpu_memory
from tests.support.program import ROOT, SURFACES, drawer
from tests.support.verdicts import judge


@pytest.fixture(scope="module")
def made_cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "cases.json.gz"
    gpu_cases.make(path, count=30, series=1, forms=6)
    return path


@pytest.fixture
def cases(made_cases: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copy(made_cases, tmp_path / "cases.json.gz"))


@pytest.mark.usefixtures("interpreted")
def test_suite_runs(cases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "open.json.gz"
    assert gpu_suite.run(cases, "cpu", limit=8, sanitize=False, plant=False, results=results) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in SURFACES:
        line = next(line for line in lines if line.startswith(f"{name}: "))
        counts = re.findall(r"(\d+)/(\d+) equal", line)
        assert len(counts) == (3 if name.startswith(("canary_write", "canary_plan_and_verify")) else 2), line
        assert all(equal == of and int(of) >= 6 for equal, of in counts), line
    assert gpu_cases.judge_results(cases, results) == []


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", SURFACES)
def test_suite_sees_one_changed_element(name: str, cases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = json.loads(gzip.decompress(cases.read_bytes()))
    described = file["surfaces"][name]
    left = {*described["scratch"], *described["rings"].values()}
    number, path = next(
        (number, path)
        for number, case in enumerate(described["drawn"])
        for path in case["after"]
        if path not in left and not case.get("open")
    )
    _spoil(described["drawn"][number]["after"][path])
    file["surfaces"] = {name: {**described, "drawn": described["drawn"][: number + 1]}}
    file["golden"] = {}
    cases.write_bytes(gzip.compress(json.dumps(file).encode()))
    assert gpu_suite.run(cases, "cpu", limit=None, sanitize=False, plant=False) == 1
    assert f"{path}[0] is" in capsys.readouterr().out


def _spoil(recorded: gpu_memory.Recorded) -> None:
    """Changes the first element of an expected output."""
    first, *others = gpu_memory.elements(recorded)
    recorded.pop("hex", None)
    recorded["runs"] = [first ^ 1, *others]


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", SURFACES)
def test_other_elements_in_the_same_memory(name: str, cases: Path) -> None:
    """What replays of a captured graph do, without a graph: the same call over whatever was written there."""
    described = json.loads(gzip.decompress(cases.read_bytes()))["surfaces"][name]
    surface = gpu_suite.Surface(name, described, "cpu", bands=True)
    (series,) = described["series"]
    memory = surface.memory(series[0]["args"])
    for case in [*series, series[0]]:
        memory.overwrite(case["args"])
        surface.call(memory, "triton")
        assert surface.wrong(case, memory, "triton") == []
    assert any(case["after"] for case in series)


@pytest.mark.usefixtures("interpreted")
def test_results_that_were_left_open_are_judged(tmp_path: Path) -> None:
    """A result that no order of points leads to is found."""
    name, case = next(
        (name, case)
        for name in SURFACES
        for case in (seeded(drawer(name, True), f"open {seed}", large=False) for seed in range(40))
        if judge(name).is_open(case)
    )
    recorded = gpu_cases.recorded_case(case)
    cases, results = tmp_path / "cases.json.gz", tmp_path / "open.json.gz"
    cases.write_bytes(gzip.compress(json.dumps({"surfaces": {name: {"drawn": [recorded]}}}).encode()))
    after = {path: value for path, value in recorded["after"].items() if path in judge(name).undecided}
    for wrong in (False, True):
        if wrong:
            _spoil(next(iter(after.values())))
        result = {"surface": name, "case": ["drawn", 0], "after": {**recorded["after"], **after}}
        results.write_bytes(gzip.compress(json.dumps([result]).encode()))
        assert bool(gpu_cases.judge_results(cases, results)) is wrong


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu(tmp_path: Path) -> None:
    path, results = tmp_path / "cases.json.gz", tmp_path / "open.json.gz"
    gpu_cases.make(path, count=200, series=4, forms=6)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "KVCANARY_"))}
    script = str(ROOT / "tests" / "gpu_suite.py")
    command = [sys.executable, script, "--run", str(path), "--results", str(results)]
    done = subprocess.run(command, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert gpu_cases.judge_results(path, results) == []
