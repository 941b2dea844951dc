"""Faults in a live engine, through its own attributes: each is reported when it must be, with whose it is and where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra: pip install 'kvcanary[transformers]'")

from kvcanary import ViolationRecord
from tests.integration.engines import PAGE, WINDOW, newer
from tests.integration.watched import WatchedEngine, reasons

PROMPT = [7, 3, 11, 19, 2, 23, 5, 31, 13, 17, 4, 29, 8, 37, 41, 6, 43, 1, 53, 9]
OTHER = [token + 40 for token in PROMPT]


@pytest.fixture
def made() -> Iterator[Any]:
    engines: list[WatchedEngine] = []

    def make(model: str = "llama", **settings: Any) -> WatchedEngine:
        engines.append(WatchedEngine(model, **settings))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def expect(
    records: list[ViolationRecord], request: str | None, position: int, slot: int, reason: str, stage: str | None = None
) -> None:
    """One of the records says exactly this."""
    found = [r for r in records if (r.request_id, r.position, r.slot) == (request, position, slot)]
    assert any(reason in record.reasons and stage in (None, record.stage) for record in found), records[:6]


def test_a_block_that_is_freed_while_in_use(made: Any) -> None:
    engine = made()
    engine.add(PROMPT, 20, "owner")
    engine.clean(3)
    block = engine.blocks("owner")[0]
    engine.free_only(block)
    engine.add(OTHER[:4], 2, "thief")
    found = engine.step_and_see()
    assert engine.blocks("thief")[0] == block
    # The thief writes in this step: what was there is seen to have changed behind the forward.
    expect(found, "owner", 3, engine.slot("owner", 3), "VERIFY_REAL_KV_HASH_MISMATCH", "TAIL")


def test_a_lost_reference(made: Any) -> None:
    engine = made()
    engine.add(PROMPT, 4, "first")
    engine.clean(2)
    engine.add(PROMPT[:PAGE] + OTHER, 20, "second")
    engine.clean(1)
    block = engine.blocks("second")[0]
    assert block == engine.blocks("first")[0]
    engine.lose_reference(block)
    while "first" in engine.active:
        engine.clean(1)
    engine.free_only(block)
    engine.add(OTHER[:4], 2, "thief")
    expect(engine.step_and_see(), "second", 3, engine.slot("second", 3), "VERIFY_REAL_KV_HASH_MISMATCH", "TAIL")


def test_a_prefix_hash_so_weak_that_blocks_collide(made: Any) -> None:
    engine = made()
    undo = engine.weaken_hash()
    try:
        engine.add(PROMPT, 20, "first")
        engine.clean(2)
        engine.add(OTHER, 20, "second")
        found = engine.step_and_see()
    finally:
        undo()
    assert engine.blocks("second")[:2] == engine.blocks("first")[:2]
    for position in (0, 9):
        expect(found, "second", position, engine.slot("first", position), "VERIFY_TOKEN_MISMATCH", "HEAD")


def test_a_hash_that_points_at_another_block(made: Any) -> None:
    engine = made()
    engine.add(PROMPT, 20, "first")
    engine.clean(2)
    engine.point_hash(engine.hash_of(None, PROMPT[:PAGE]), engine.blocks("first")[1])
    engine.add(PROMPT[:PAGE] + OTHER, 20, "second")
    slot = engine.slot("first", PAGE + 3)
    # The record has the position that the slot was stored for.
    expect(engine.step_and_see(), "second", PAGE + 3, slot, "VERIFY_POSITION_MISMATCH", "HEAD")


def test_a_block_that_is_marked_complete_too_early(made: Any) -> None:
    engine = made()
    engine.add(PROMPT[:12], 20, "first")
    engine.clean(1)
    parent = engine.hash_of(None, PROMPT[:PAGE])
    engine.point_hash(engine.hash_of(parent, PROMPT[PAGE : 2 * PAGE]), engine.blocks("first")[1])
    engine.add(PROMPT, 20, "second")
    found = engine.step_and_see()
    assert engine.blocks("second")[1] == engine.blocks("first")[1]
    unwritten = [r for r in found if r.request_id in ("first", "second") and r.slot == engine.slot("first", 15)]
    assert unwritten and unwritten[0].position == -1 and unwritten[0].stored_token == -1


def test_a_write_index_that_is_off_by_one(made: Any) -> None:
    engine = made()
    engine.add(PROMPT[:10], 20, "one")
    engine.clean(3)
    position = engine.active["one"].position_offset
    engine.skew_indices("get_write_indices", "one", lambda found: [index + 1 for index in found])
    engine.clean(1)
    # Nobody looks for that position before the step behind.
    expect(engine.step_and_see(), "one", -1, engine.slot("one", position), "VERIFY_POSITION_MISMATCH", "HEAD")


def test_a_read_index_that_is_wrong(made: Any) -> None:
    engine = made()
    engine.add(PROMPT, 20, "one")
    engine.add(OTHER, 20, "two")
    engine.clean(3)
    engine.skew_indices("get_read_indices", "two", lambda found: [found[0], found[2], *found[2:]])
    expect(engine.step_and_see(), "two", 2, engine.slot("two", 2), "VERIFY_POSITION_MISMATCH", "HEAD")


def test_a_read_index_that_points_at_the_trash(made: Any) -> None:
    engine = made()
    engine.add(PROMPT, 20, "one")
    engine.clean(2)
    trash = 0 if newer() else engine.cache.read_trash_index
    engine.skew_indices("get_read_indices", "one", lambda found: [*found[:5], trash, *found[6:]])
    found = engine.step_and_see()
    assert "VERIFY_SLOT_OUT_OF_RANGE" in set(reasons(found))
    assert any(record.position == 5 and record.request_id == "one" for record in found)


def test_tables_of_two_requests_crossed(made: Any) -> None:
    engine = made()
    engine.add(PROMPT, 20, "one")
    engine.add(OTHER, 20, "two")
    engine.clean(3)
    one, two = engine.blocks("one"), engine.blocks("two")
    one[1], two[1] = two[1], one[1]
    found = engine.step_and_see()
    for name in ("one", "two"):
        expect(found, name, PAGE, engine.slot(name, PAGE), "VERIFY_TOKEN_MISMATCH", "HEAD")


@pytest.mark.parametrize("model", ["mistral", "qwen3"])
def test_a_ring_that_is_skewed_on_read(made: Any, model: str) -> None:
    engine = made(model)
    engine.add(PROMPT, 40, "one")
    engine.clean(3)
    ring = next(place for place, pool in enumerate(engine.allocators) if hasattr(pool, "sliding_window"))
    cached = engine.active["one"].position_offset
    first, second = cached - WINDOW + 1, cached - WINDOW + 2
    engine.skew_indices("get_read_indices", "one", lambda found: [found[1], found[0], *found[2:]], ring)
    slot = engine.slot("one", second % WINDOW, ring)
    expect(engine.step_and_see(), "one", second, slot, "VERIFY_POSITION_MISMATCH", "HEAD")
    assert first > 0


@pytest.mark.parametrize("model", ["mistral", "qwen3"])
def test_a_ring_that_is_skewed_on_write(made: Any, model: str) -> None:
    engine = made(model)
    engine.add(PROMPT, 40, "one")
    engine.clean(3)
    ring = next(place for place, pool in enumerate(engine.allocators) if hasattr(pool, "sliding_window"))
    position = engine.active["one"].position_offset
    slot = engine.slot("one", (position + 1) % WINDOW, ring)
    engine.skew_indices("get_write_indices", "one", lambda found: [index + 1 for index in found], ring)
    # The next place of the ring holds what this very step still reads.
    hit = engine.step_and_see()
    expect(hit, "one", position + 1 - WINDOW, slot, "VERIFY_REAL_KV_HASH_MISMATCH", "TAIL")


def test_a_fork_whose_copy_is_missing(made: Any) -> None:
    engine = made(children=2)
    if newer():
        engine.allocators[0].copy_blocks = lambda source, target: None
    else:
        engine.cache.copy_cache = lambda source, target: None
    engine.add(PROMPT, 20, "one")
    engine.clean(1)
    (child,) = [name for name in engine.active if name != "one"]
    found = engine.step_and_see()
    # The block that is not full; without even the call, the slots were never written.
    reason, stored = ("VERIFY_REAL_KV_HASH_MISMATCH", 16) if newer() else ("VERIFY_POSITION_MISMATCH", -1)
    expect(found, child, stored, engine.slot(child, 16), reason)
    assert {record.request_id for record in found} == {child}


def starved(made: Any) -> tuple[WatchedEngine, str]:
    """An engine that has just offloaded a request of two full blocks and more."""
    engine = made(num_blocks=8, cpu_offload_space=0.001, allow_block_sharing=False)
    engine.add(PROMPT, 18, "one")
    engine.add(OTHER, 18, "two")
    while not engine.processor.offloading_manager._request_id_to_cpu_blocks:
        engine.clean(1)
    (name,) = engine.processor.offloading_manager._request_id_to_cpu_blocks
    return engine, name


def restored(engine: WatchedEngine, name: str) -> list[ViolationRecord]:
    """What is found in the step that brings a request back; nothing before."""
    while not (found := engine.step_and_see()):
        assert name not in engine.outputs, f"{name} came back and nothing was found"
    assert name in engine.active
    return found


def test_a_restore_is_clean(made: Any) -> None:
    engine, name = starved(made)
    while name not in engine.outputs:
        engine.clean(1)


def test_a_restore_of_stale_bytes(made: Any) -> None:
    engine, name = starved(made)
    engine.spoil_offloaded(engine.offloaded(name)[1])
    found = restored(engine, name)
    expect(found, name, PAGE + 1, engine.slot(name, PAGE + 1), "VERIFY_REAL_KV_HASH_MISMATCH", "TAIL")


def test_a_restore_that_is_permuted(made: Any) -> None:
    engine, name = starved(made)
    blocks = engine.offloaded(name)
    blocks[0], blocks[1] = blocks[1], blocks[0]
    found = restored(engine, name)
    for position in (1, PAGE + 1):
        expect(found, name, position, engine.slot(name, position), "VERIFY_REAL_KV_HASH_MISMATCH", "TAIL")


@pytest.mark.parametrize(("layer", "half"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_byte_that_flips_in_a_live_block(made: Any, layer: int, half: int) -> None:
    engine = made(config={"real_kv_mode": "ALL"}, layers="all")
    engine.add(OTHER, 20, "other")
    engine.add(PROMPT, 20, "one")
    engine.clean(3)
    slot = engine.slot("one", 9)
    engine.flip(slot, layer, half, byte=63)
    found = engine.step_and_see()
    expect(found, "one", 9, slot, "VERIFY_REAL_KV_HASH_MISMATCH", "TAIL")
    assert {(record.slot, record.half) for record in found} == {(slot, "KV"[half])}


def test_a_byte_that_flips_in_a_block_that_only_the_prefix_cache_holds(made: Any) -> None:
    engine = made(config={"sweep_interval": 1})
    engine.add(OTHER, 3, "gone")
    engine.clean(1)
    slot = engine.slot("gone", 9)
    engine.add(PROMPT, 20, "one")
    while "gone" not in engine.outputs:
        engine.clean(1)
    engine.flip(slot)
    found = engine.step_and_see()
    expect(found, None, 9, slot, "VERIFY_REAL_KV_HASH_MISMATCH", "SWEEP")
    assert {record.slot for record in found} == {slot}


@pytest.mark.parametrize(("tensor", "reason"), [("position_ids", "POSITION"), ("input_ids", "TOKEN")])
def test_inputs_that_are_skewed(made: Any, tensor: str, reason: str) -> None:
    engine = made()
    engine.add(OTHER, 20, "other")
    engine.add(PROMPT, 20, "one")
    engine.clean(3)
    position = engine.active["one"].position_offset
    engine.skew_inputs(tensor, "one")
    found = engine.step_and_see()
    written = position + 1 if tensor == "position_ids" else position
    expect(found, "one", written, engine.slot("one", position), f"WRITE_{reason}_MISMATCH", "HEAD")
    assert {record.request_id for record in found} == {"one"}
