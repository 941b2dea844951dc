"""The miniature engine by itself: the same tokens whatever it shares, cuts, copies or takes away."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from typing import Any

import pytest
import torch

from kvcanary import CanaryError
from kvcanary.runtime.engine import Engine
from kvcanary.runtime.requests import Batch, EngineConfig
from kvcanary.runtime.scheduler import DECODE, accept
from kvcanary.runtime.toy_model import HALVES
from kvcanary.runtime.traffic import Traffic

REQUESTS = 25
# Everything off: one request at a time, in a pool that holds it, its prompt in one piece.
PLAIN: dict[str, Any] = {
    "page_size": 1,
    "full_pages": 200,
    "swa_pages": 200,
    "rows": 2,
    "chunk": 64,
    "drafts": 0,
    "decode_sizes": (1,),
    "prefix_cache": False,
}


def run(config: EngineConfig, seed: int = 1, seen: Counter[str] | None = None) -> dict[str, list[int]]:
    """Outputs of so many requests; `seen` counts what happened on the way."""
    # Every configuration gets the same requests, so that drafts don't take room from the prompts.
    engine = Engine(config)
    traffic = Traffic(engine, seed)
    for _ in range(REQUESTS):
        traffic.submit()
    while engine.busy:
        assert engine.step < 3000, "the engine does not come to an end"
        while (batch := engine.schedule()) is not None:
            consistent(engine, batch)
            if seen is not None:
                note(seen, engine, batch)
            engine.copy(batch)
            engine.forward(batch)
            engine.finish(batch)
    idle(engine)
    if seen is not None:
        seen["preempted"] = engine.scheduler.preemptions
    return engine.outputs


def note(seen: Counter[str], engine: Engine, batch: Batch) -> None:
    items = batch.work.items
    seen["copies"] += len(batch.copies.sources)
    seen["padded"] += len(batch.prefix_lens) > len(items)
    seen["forked"] += any(item.request.sample for item in items)
    seen["second forward"] += batch.forward
    seen["chunks"] += any(item.start + len(item.tokens) < len(item.request.prompt) for item in items)
    pages = Counter(page for request in engine.scheduler.running for page in request.pages)
    seen["shared"] += any(count > 1 for count in pages.values())
    seen["window left"] += any(request.window_from for request in engine.scheduler.running)


def consistent(engine: Engine, batch: Batch) -> None:
    """Device tables say what the host's lists say, and no two requests write one slot."""
    for item in batch.work.items:
        end = item.start + len(item.tokens)
        slots = [engine._slot(item.request, position) for position in range(end)]
        assert engine.req_to_token[item.request.row, :end].tolist() == slots
        if engine.pools.mapping is not None:
            first = max(0, item.start - engine.config.window)
            assert all(engine.pools.mapping[slots[first:]].tolist()), "a slot of the window is gone"
    written = [slot for slot in batch.out_cache_loc.tolist() if slot]
    assert len(written) == len(set(written))
    if engine.pools.mapping is not None:
        assert engine.pools.mapping.tolist() == [engine.pools.swa_slot(s) for s in range(len(engine.pools.mapping))]


def idle(engine: Engine) -> None:
    """With nobody running, the pools belong to the cache alone, and then to nobody."""
    while engine.scheduler.cache.evict():
        pass
    for pool in (engine.pools.full, engine.pools.swa):
        if pool is not None:
            assert len(pool.free) == pool.pages - 1 and not any(pool.holders)
    assert sorted(engine.scheduler._rows) == list(range(1, engine.config.rows))


CONFIGS = {
    "default": {},
    "page of one": {"page_size": 1, "full_pages": 260, "swa_pages": 130},
    "large pages": {"page_size": 16, "full_pages": 20, "swa_pages": 14},
    "no prefix cache": {"prefix_cache": False},
    "small pools": {"full_pages": 26, "swa_pages": 13},
    "preempted": {"preempt_every": 3},
    "small chunks, many drafts": {"chunk": 3, "drafts": 3},
    "another order of slots": {"seed": 99},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_outputs_do_not_depend_on_how_the_engine_works(name: str) -> None:
    seen: Counter[str] = Counter()
    # Traffic fits the smallest room that any of these has.
    have = run(dataclasses.replace(EngineConfig(), **CONFIGS[name]), seen=seen)
    want = run(dataclasses.replace(EngineConfig(), **PLAIN))
    assert have == want and len(want) >= REQUESTS
    expected = {"padded", "forked", "second forward", "chunks", "shared", "window left"}
    expected |= {"copies"} if name != "page of one" else set()
    expected |= {"preempted"} if name in ("small pools", "preempted") else set()
    assert {key for key in expected if not seen[key]} == set(), seen


def test_without_a_window_there_is_no_second_pool() -> None:
    full = {"swa_pages": 0, "swa_layers": 0}
    have = run(dataclasses.replace(EngineConfig(), **full))
    assert have == run(dataclasses.replace(EngineConfig(), **{**PLAIN, **full}))


def decoding(engine: Engine) -> Batch:
    """Runs the engine up to its first decode forward, and that one too."""
    while True:
        batch = engine.schedule()
        if batch is not None:
            engine.copy(batch)
            engine.forward(batch)
            if batch.kind == DECODE:
                return batch
            engine.finish(batch)


@pytest.mark.parametrize("group", ["FULL", "SWA"])
def test_a_token_depends_on_every_cached_byte_in_reach(group: str) -> None:
    engine = Engine(EngineConfig(drafts=0))
    engine.submit(list(range(2, 30)), max_new=4)
    batch = decoding(engine)
    slots = engine.req_to_token[batch.req_pool_indices[0], : batch.prefix_lens[0]].long()
    first = 0 if group == "FULL" else len(slots) + 1 - engine.config.window
    if group == "SWA":
        slots = engine.pools.mapping[slots]  # type: ignore[index]

    def said() -> list[int]:
        # One token says little; sampled in a hundred ways it gives away the state behind it.
        names = ("input_ids", "positions", "token_rows", "out_cache_loc")
        same = {name: getattr(batch, name)[:1].expand(100) for name in names}
        tables = {"req_to_token": engine.req_to_token, "mapping": engine.pools.mapping}
        return engine.model.forward(**same, salts=torch.arange(100), **tables).tolist()

    before = said()
    for layer, half, position in itertools.product(engine.layers(group), HALVES, range(len(slots))):
        byte = layer.kv[half].reshape(-1)[int(slots[position]) * engine.config.bytes_per_token + position % 32 :]
        byte[0] ^= 4
        assert (said() != before) == (position >= first and bool(slots[position]))
        byte[0] ^= 4
    assert said() == before


@pytest.mark.parametrize(
    ("fed", "said", "accepted"),
    [([1], [5], [5]), ([1, 5, 6], [5, 6, 7], [5, 6, 7]), ([1, 5, 6], [5, 9, 7], [5, 9]), ([1, 4, 6], [5, 6, 7], [5])],
)
def test_drafts_hold_as_far_as_they_were_guessed(fed: list[int], said: list[int], accepted: list[int]) -> None:
    assert accept(fed, said) == accepted


@pytest.mark.parametrize(
    "field",
    [
        {"page_size": 0},
        {"bytes_per_token": 24},
        {"swa_pages": 0},
        {"window": 0},
        {"decode_sizes": (4, 2)},
        {"full_pages": 5},
        {"swa_pages": 5},
        {"chunk": 1},
        {"rows": 1},
        {"drafts": -1},
        {"device": "cudo"},
        {"device": "cuda:99"},
    ],
)
def test_sizes_that_cannot_work_are_refused_by_name(field: dict[str, Any]) -> None:
    (name, value), *_ = field.items()
    with pytest.raises(CanaryError) as caught:
        EngineConfig(**field)
    assert caught.value.id == "KVC-090"
    assert f"{name} must" in str(caught.value) and str(value) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "prompt", "asked"),
    [
        ("prompt", [1], {"max_new": 1}),
        ("prompt", [1, 999], {"max_new": 1}),
        ("max_new", [1, 2], {"max_new": 0}),
        ("samples", [1, 2], {"max_new": 1, "samples": 0}),
        ("prompt with max_new", [1, 2], {"max_new": 100}),
    ],
)
def test_requests_that_cannot_run_are_refused_by_name(name: str, prompt: list[int], asked: dict[str, int]) -> None:
    engine = Engine(EngineConfig())
    with pytest.raises(CanaryError, match=f"submit {name} must") as caught:
        engine.submit(prompt, **asked)
    assert caught.value.id == "KVC-091" and not engine.busy


def test_a_forward_before_its_copies_is_refused() -> None:
    engine = Engine(EngineConfig())
    engine.submit([1, 2, 3, 4, 5, 6], max_new=8, samples=3)
    while (batch := engine.schedule()) is not None or engine.busy:
        if batch is not None and batch.copies:
            with pytest.raises(CanaryError) as caught:
                engine.forward(batch)
            assert caught.value.id == "KVC-092"
            return
        if batch is not None:
            engine.copy(batch)
            engine.forward(batch)
            engine.finish(batch)
    pytest.fail("no copy was needed")
