"""The benchmark of what the canary costs an engine: that it runs, and that what should not be is told."""

from __future__ import annotations

import argparse
import collections
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra: pip install 'kvcanary[transformers]'")

import torch

from benchmarks import transformers_cost as cost
from benchmarks.measure import serving

SMALL = ["--device", "cpu", "--batch", "2", "--context", "20", "--tokens", "16", "--layers", "1"]


@pytest.mark.usefixtures("reference_by_day")
def test_a_tiny_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(serving, "PAGE", 16)
    run = [*SMALL, "--rounds", "2", "--turn", "1", "--profile", "NONE", "--json", str(tmp_path / "cost.json")]
    assert cost.main(run) == 0
    rows = json.loads((tmp_path / "cost.json").read_text())["graphs"]["off"]
    assert list(rows) == [name for name, _, _ in cost.CASES]
    assert all(row["equal"] and row["turns"] == 2 and row["step_ms"] > 0 for row in rows.values())
    # Every decoding step verifies at least the prompts.
    assert all(row["violations"] == 0 and row["entries"] > 2 * 20 * 8 for row in list(rows.values())[2:])
    printed = capsys.readouterr().out
    assert "three steps, NONE" in printed and "Self CPU time total" in printed
    assert printed.count("| yes |") == len(rows) and printed.rstrip().endswith("all holds")


@pytest.mark.usefixtures("reference_by_day")
def test_a_case_that_fails_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cost, "CASES", [*cost.CASES[:2], ("broken", {"real_kv_mode": "NO SUCH MODE"}, None)])
    assert cost.main([*SMALL, "--rounds", "1", "--turn", "1"]) == 1
    printed = capsys.readouterr()
    assert printed.out.count("| yes |") == 2 and "graphs off, broken: did not run" in printed.out
    assert "NO SUCH MODE" in printed.err


def test_an_engine_with_nothing_to_do_says_so() -> None:
    given = cost.arguments(SMALL)
    engine = serving.make_engine(serving.make_model(given), given, False)
    with pytest.raises(RuntimeError, match=r"the engine has nothing to do: \{\} active, 0 waiting"):
        serving.step(serving.Subject("idle", engine))


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU the engine has them")
def test_graphs_that_the_engine_does_without_are_not_measured() -> None:
    given = cost.arguments(SMALL)
    with pytest.raises(RuntimeError, match="uses no CUDA graphs"):
        serving.make_subject(serving.make_model(given), given, True, "graphs", None)


def test_waits_are_counted_by_place(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    monkeypatch.setattr(torch.cuda.Event, "synchronize", lambda event: None)
    found: collections.Counter[str] = collections.Counter()
    with cost.counted_synchronisations(found):
        warnings.warn("Synchronization debug mode is a prototype feature", stacklevel=1)
        for _ in range(3):
            warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        torch.cuda.Event.synchronize(None)  # type: ignore[arg-type]
    assert modes == ["warn", "default"]
    assert sorted(found.values()) == [1, 3]
    assert any(place.startswith(__file__) for place in found)


def test_what_should_hold_and_does_not() -> None:
    good: dict[str, Any] = {"equal": True, "step_added": 0.01, "synchronisations_added": 0}
    rows = {name: {**good, "violations": 0, "skipped": 0, "entries": 9} for name, _, _ in cost.CASES}
    given = argparse.Namespace(device="cuda")
    assert list(cost.failures(rows, given)) == []
    rows["NONE"] |= {"equal": False, "entries": 0}
    rows["PARTIAL"] |= {"step_added": 0.031, "synchronisations_added": 5}
    rows["ALL, one layer"] |= {"step_added": 0.079, "violations": 2}
    assert list(cost.failures(rows, given)) == [
        "NONE: generates other tokens",
        "NONE: nothing was verified",
        "PARTIAL: waits for the device 5 times more",
        "PARTIAL: adds 3.10 % to a step, over 3 %",
        "ALL, one layer: 2 violations, 0 skipped plans",
    ]
