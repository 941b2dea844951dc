"""The self-test on a GPU: decode forwards in CUDA graphs, faults between them."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from kvcanary.runtime.engine import Engine
from kvcanary.runtime.requests import EngineConfig
from kvcanary.runtime.selftest import Selftest
from kvcanary.runtime.traffic import Traffic

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_the_self_test_passes_with_decode_forwards_in_graphs() -> None:
    result = Selftest(device="cuda", steps=100, seed=1, per_fault=2).run()
    assert result.passed
    assert result.counts["replays"] > result.counts["decode"] // 2 > 0


def test_no_false_alarms_over_many_seeds() -> None:
    for seed in range(20):
        result = Selftest(device="cuda", steps=100, seed=seed).run(())
        assert not result.clean_alarms, f"seed {seed}: {result.clean_alarms[0]}"


def test_the_engine_says_the_same_as_on_the_cpu() -> None:
    said = []
    for device in ("cpu", "cuda"):
        engine = Engine(dataclasses.replace(EngineConfig(), device=device))
        traffic = Traffic(engine, 1)
        for _ in range(12):
            traffic.submit()
        while engine.busy:
            while (batch := engine.schedule()) is not None:
                engine.copy(batch)
                engine.forward(batch)
                engine.finish(batch)
        said.append(engine.outputs)
    assert said[0] == said[1]
