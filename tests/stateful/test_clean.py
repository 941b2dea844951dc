"""A canary around an engine in which nothing is wrong says nothing, whatever the engine does."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from kvcanary import CanaryLaunchTag
from kvcanary.runtime.engine import Engine
from kvcanary.runtime.requests import Batch, EngineConfig
from kvcanary.runtime.traffic import Traffic

from .canary import BUSY, MODES, Canary, forwards, guarded

STEPS = 200
ALL = {"shared", "window left", "padded", "preempted", "copies", "rejected drafts", "second forward"}
ALL |= {"swept", "evicted"}


def run(
    config: EngineConfig, seed: int, steps: int, backend: str, tags: tuple[CanaryLaunchTag, ...] | None = None
) -> set[str]:
    """Runs so many steps and returns what happened in them; nothing may be reported."""
    engine = Engine(config)
    canary, traffic, seen = Canary(engine, MODES, backend, tags), Traffic(engine, seed), Counter[str]()
    for step in range(steps):
        traffic.feed()
        for batch in forwards(engine):
            note(seen, engine, batch)
            before = [len(history) for history in batch.histories]
            guarded(engine, canary, batch)
            found = canary.violations()
            assert not found, f"step {step}, {batch.kind}: {found[0]}"
            grown = [len(item.request.tokens) - had for item, had in zip(batch.work.items, before, strict=True)]
            seen["rejected drafts"] += batch.kind == "decode" and min(grown) <= config.drafts
        if step % 10 == 9:
            seen["swept"] += canary.sweep()
            assert not canary.violations()
    seen["preempted"] = engine.scheduler.preemptions
    ran = {endpoint.tag: int(endpoint.context.slot_run_counter) for endpoint in canary.endpoints}
    assert all(ran.values()), f"endpoints without work: {ran}"
    return {name for name, count in seen.items() if count}


def note(seen: Counter[str], engine: Engine, batch: Batch) -> None:
    pages = Counter(page for request in engine.scheduler.running for page in request.pages)
    seen["shared"] += any(count > 1 for count in pages.values())
    seen["window left"] += any(request.window_from for request in engine.scheduler.running)
    seen["padded"] += len(batch.prefix_lens) > len(batch.work.items)
    seen["copies"] += len(batch.copies.sources)
    seen["second forward"] += batch.forward
    seen["evicted"] += any(not node.windowed for node in engine.scheduler.cache.nodes())


def tags(*wanted: str) -> tuple[CanaryLaunchTag, ...]:
    """Every stage of these halves and groups."""
    return tuple(tag for tag in CanaryLaunchTag if tag.half in wanted or f"{tag.half}_{tag.group}" in wanted)


def long(steps: int) -> int:
    """So many steps where time is short, and all of them at night."""
    return STEPS if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else steps


@pytest.mark.parametrize(("seed", "half", "steps"), [(1, "K", STEPS), (2, "V", STEPS // 5)])
def test_a_clean_run_reports_nothing(seed: int, half: str, steps: int) -> None:
    config = EngineConfig(seed=seed, **BUSY)
    assert run(config, seed, long(steps), "reference", tags(half)) >= ALL


def test_a_clean_run_reports_nothing_with_pages_of_one_slot() -> None:
    config = EngineConfig(page_size=1, full_pages=160, swa_pages=80, preempt_every=17)
    assert run(config, 3, long(STEPS // 5), "reference", tags("K_FULL", "V_SWA")) >= ALL - {"copies"}


def test_a_clean_run_reports_nothing_through_triton(interpreted: None) -> None:
    few = (CanaryLaunchTag.HEAD_K_FULL, CanaryLaunchTag.TAIL_V_SWA, CanaryLaunchTag.TAIL_K_FULL)
    config = EngineConfig(seed=4, rows=4, decode_sizes=(1, 3), **BUSY)
    assert run(config, 4, 4, "triton", few) >= {"second forward"}
