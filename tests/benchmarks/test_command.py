"""`kvcanary-gen bench` and the script behind it, which needs nothing of the generator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import bench
from benchmarks.measure import checks, growth, results, tables, timing
from kvcanary_gen.cli import app
from kvcanary_gen.commands import bench as command
from tests.benchmarks.test_measure import RESULT

ROOT = Path(__file__).resolve().parents[2]
CASE = "decode bs1 p5120"


@pytest.fixture
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call is made once, and takes a microsecond; curves are short."""
    monkeypatch.setattr(timing, "cpu_us", lambda call: call() or 1.0)
    monkeypatch.setattr(growth, "SMALL_CURVES", (growth.Curve("few", "write", 2, (4, 8), "tokens"),))


@pytest.mark.usefixtures("untimed")
def test_figures_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--device", "cpu", "--case", CASE, "--growth", "--json", str(tmp_path)]) == 0
    (file,) = tmp_path.iterdir()
    result = json.loads(file.read_text("utf-8"))
    assert {"date", "card", "driver", "torch", "triton"} <= result["machine"].keys()
    (case,) = result["cases"]
    assert case["us"] == dict.fromkeys(results.TIMED, 1.0) and case["comparisons"] > 0
    assert "baseline_us" not in case and result["growth"]
    out = capsys.readouterr().out
    assert CASE in out and "nothing here compares with the baseline" in out and str(file) in out
    assert bench.main(["--from", str(file)]) == 0
    assert capsys.readouterr().out.strip() == out.partition("\n\nwritten:")[0].strip()


def test_wrong_results_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(*_: object, **__: object) -> int:
        raise checks.WrongResult("decode: plan: enable is 0, must be 1")

    monkeypatch.setattr(checks, "check", wrong)
    monkeypatch.setattr(timing, "cpu_us", lambda call: pytest.fail("timed in spite of it"))
    assert bench.main(["--device", "cpu", "--case", CASE, "--json", str(tmp_path / "out.json")]) == 1
    assert "nothing was timed: decode: plan: enable is 0, must be 1" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--device", "cpu", "--case", "decode bs1 p512"], f"no case 'decode bs1 p512' (did you mean '{CASE}'?)"),
        (["--device", "cuda"], "torch finds no GPU here; --device cpu times the torch references"),
        (["--device", "cpu", "--plot", "x.png"], "pip install 'kvcanary[bench]'"),
    ],
)
def test_what_cannot_be_done_says_so(
    words: list[str], text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert bench.main(words) == 2
    assert text in capsys.readouterr().err


def test_the_script_needs_no_generator() -> None:
    """As on a machine that has torch and Triton alone."""
    code = (
        "import sys, runpy\n"
        "for name in ('kvcanary_gen', 'pydantic', 'jinja2', 'typer', 'rich', 'yaml', 'matplotlib'):\n"
        "    sys.modules[name] = None\n"
        f"sys.argv[1:] = ['--device', 'cpu', '--case', {CASE!r}]\n"
        f"runpy.run_path({str(ROOT / 'benchmarks' / 'bench.py')!r}, run_name='__main__')\n"
    )
    clean = {name: value for name, value in os.environ.items() if name not in ("TRITON_INTERPRET", "PYTHONPATH")}
    done = subprocess.run(
        [sys.executable, "-P" if sys.version_info >= (3, 11) else "-E", "-c", code],
        env=clean, capture_output=True, text=True, check=False, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert CASE in done.stdout


def test_the_command_runs_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[list[str], dict[str, str]]] = []

    def run(words: list[str], *, env: dict[str, str], check: bool) -> subprocess.CompletedProcess[str]:
        assert not check
        calls.append((words, env))
        return subprocess.CompletedProcess(words, 3)

    monkeypatch.setattr(command.subprocess, "run", run)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    words = ["bench", "--device", "cpu", "--case", "a b", "--case", "c", "--json", "o.json", "--out", "elsewhere"]
    assert CliRunner().invoke(app, words).exit_code == 3
    ((given, env),) = calls
    assert given[:2] == [sys.executable, str(ROOT / "benchmarks" / "bench.py")]
    parsed = bench.parser().parse_args(given[2:])
    assert (parsed.device, parsed.case, parsed.growth) == ("cpu", ["a b", "c"], False)
    assert (parsed.json, parsed.package, parsed.plot) == (Path("o.json"), Path("elsewhere"), None)
    assert "TRITON_INTERPRET" not in env


def test_an_installed_package_has_no_benchmarks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "SCRIPT", tmp_path / "bench.py")
    done = CliRunner().invoke(app, ["bench"])
    assert done.exit_code == 1 and "part of the source tree" in done.output


def test_recorded_results_can_be_read() -> None:
    for file in sorted((ROOT / "tests/benchmarks/results").glob("*.json")):
        result = json.loads(file.read_text("utf-8"))
        assert {"date", "card", "driver", "torch", "triton"} <= result["machine"].keys(), file
        assert result["summary"] == results.summary(result["cases"]), file
        assert all(case["comparisons"] > 0 for case in result["cases"]), file
        assert tables.text(result)


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="drawing needs the extra kvcanary[bench]")
    for name, result in {"all": RESULT, "bare": {**RESULT, "growth": []}}.items():
        source, target = tmp_path / f"{name}.json", tmp_path / f"{name}.png"
        source.write_text(json.dumps(result), "utf-8")
        assert bench.main(["--from", str(source), "--plot", str(target)]) == 0
        assert target.read_bytes().startswith(b"\x89PNG")
