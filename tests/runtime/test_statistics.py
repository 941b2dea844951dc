"""Lines of statistics, and metrics where the client is there."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvcanary import CanaryManager, CanaryMetrics, CanaryRuntimeError

from .worlds import World, batch_of, config, run

ROOT = Path(__file__).resolve().parents[2]


class Counter:
    """As much of the client's counter as is used."""

    def __init__(self, name: str, doc: str, labels: tuple[str, ...], registry: dict[str, Any]) -> None:
        assert doc.endswith(".")
        self.values: dict[tuple[str, ...], int] = {}
        self.names, self.place = labels, ()
        registry[name] = self.values

    def labels(self, *values: str) -> Counter:
        assert len(values) == len(self.names)
        self.place = values
        return self

    def inc(self, amount: int = 1) -> None:
        assert amount >= 0
        self.values[self.place] = self.values.get(self.place, 0) + amount


def spoilt_run(manager: CanaryManager, world: World) -> None:
    for lengths in ({1: 3, 2: 2}, {1: 1, 2: 1}, {1: 1}):
        run(manager, batch_of(world, world.add(lengths)))
    world.kv["K"][2, 0] ^= 1
    run(manager, batch_of(world, world.add({1: 1})))


WANT = {
    ("kvcanary_steps", ()): 4,
    ("kvcanary_plans", ()): 4,
    ("kvcanary_skipped_plans", ()): 0,
    ("kvcanary_lost_violations", ()): 0,
    ("kvcanary_launches", ("TAIL_V_FULL",)): 8,
    ("kvcanary_entries", ("HEAD_K_FULL",)): 9 + 14,
    ("kvcanary_violations", ("FULL", "TAIL_K_FULL", "VERIFY_REAL_KV_HASH_MISMATCH")): 1,
}


def test_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    registry: dict[str, dict[tuple[str, ...], int]] = {}
    client = SimpleNamespace(Counter=Counter)
    monkeypatch.setitem(sys.modules, "prometheus_client", client)
    world = World()
    manager = CanaryManager([world.group()], config(), metrics=CanaryMetrics(registry))
    spoilt_run(manager, world)
    assert {key: registry[key[0]][key[1]] for key in WANT} == WANT
    manager.close()
    assert {key: registry[key[0]][key[1]] for key in WANT} == WANT


def test_metrics_of_the_client() -> None:
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    world = World()
    manager = CanaryManager([world.group()], config(), metrics=CanaryMetrics(registry))
    spoilt_run(manager, world)
    manager.close()
    names = {"violations": ("pool", "kind", "reason")}
    for (name, values), count in WANT.items():
        labels = dict(zip(names.get(name.removeprefix("kvcanary_"), ("kind",)), values, strict=bool(values)))
        assert registry.get_sample_value(f"{name}_total", labels if values else {}) == count


def test_metrics_without_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(
        CanaryRuntimeError, match="CanaryMetrics needs prometheus_client, which is not installed"
    ) as error:
        CanaryMetrics()
    assert error.value.id == "KVC-062"


def test_nothing_else_imports_the_client() -> None:
    code = "import sys, kvcanary; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT / "generated", check=False).returncode == 0


def test_a_line_of_statistics(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kvcanary")
    world = World()
    manager = CanaryManager([world.group()], config(statistics_interval=2))
    for lengths in ({1: 3}, {1: 1}, {1: 1}, {1: 1}, {1: 1}):
        run(manager, batch_of(world, world.add(lengths)))
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split()[:3] for line in lines] == [["kv-canary", "statistics", f"step={step}"] for step in (2, 4)]
    pairs = dict(pair.split("=") for pair in lines[1].split()[2:])
    assert pairs["plans"] == "4" and pairs["launches_HEAD_K_FULL"] == "8" and pairs["violations"] == "0"
    assert int(pairs["entries_TAIL_V_FULL"]) == 6 + 3 + 4 + 5
    assert {record.name for record in caplog.records} == {"kvcanary"}
    manager.close()
