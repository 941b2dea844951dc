"""Several forwards in a step, each with plans of its own."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from kvcanary import CanaryManager, CanaryRuntimeError, CanaryValueError

from .worlds import World, batch_of, config


def test_forwards_that_overlap() -> None:
    """The draft begins and ends within the target's forward, on the same pool, and is told apart."""
    world = World()
    manager = CanaryManager([world.group()], config(forwards=("target", "draft")))
    manager.mark_warm()
    target, draft = batch_of(world, world.add({1: 4})), batch_of(world, world.add({2: 3}), forward="draft")
    manager.before_forward(target)
    manager.before_forward(draft)
    manager.after_forward(draft)
    manager.after_forward(target)
    assert manager.step_end() == []
    world.kv["K"][2, 0] ^= 1
    world.kv["V"][6, 0] ^= 1
    manager.before_forward(batch_of(world, world.add({1: 1})))
    draft = batch_of(world, world.add({2: 1}), forward="draft")
    manager.before_forward(draft)
    manager.after_forward()
    manager.after_forward(draft)
    found = {(r.forward, r.kind, r.slot, r.request_id, r.request_row) for r in manager.step_end()}
    want = {("target", "TAIL_K_FULL", 2, "request-1", 0), ("draft", "TAIL_V_FULL", 6, "request-2", 0)}
    assert found == want
    assert manager.statistics()["plans"] == 4
    manager.close()


def test_a_forward_that_runs_again_in_a_step() -> None:
    """One after the other on one stream, so one set of plans will do: a draft of several tokens."""
    world = World()
    manager = CanaryManager([world.group()], config(forwards=("target", "draft")))
    manager.mark_warm()
    for _ in range(4):
        for _ in range(3):
            with manager.forward(batch_of(world, world.add({1: 1, 2: 1}), forward="draft")):
                pass
        with manager.forward(batch_of(world, world.add({1: 2}))):
            pass
        assert manager.step_end() == []
    assert manager.statistics()["launches_HEAD_K_FULL"] == 2 * 16
    manager.close()


@pytest.mark.parametrize("of_pool", [False, True])
def test_drafts_whose_tokens_stand_one_further_on(of_pool: bool) -> None:
    """The draft stores at position p the token of position p + 1; what the history does not know is not checked."""
    world = World()
    group = world.group(kv_token_id_vs_position_offset=1 if of_pool else 0)
    manager = CanaryManager([group], config())
    offset = None if of_pool else 1

    def step(count: int, lens: int) -> set[tuple[int, tuple[str, ...]]]:
        new = world.add({1: count})
        world.history[1, : len(world.tokens[1]) + 1] = torch.tensor([99, *world.tokens[1]], dtype=torch.int32)
        batch = batch_of(world, new, token_offset=offset, history_lens=torch.tensor([lens]))
        with manager.forward(batch):
            pass
        return {(record.slot, record.reasons) for record in manager.step_end()}

    assert step(5, 6) == set()
    assert step(1, 7) == set()
    world.tokens[1][2] += 1
    assert step(1, 8) == {(3, ("VERIFY_TOKEN_MISMATCH",))}
    # Columns behind the valid ones may hold anything.
    assert step(1, 3) == set()
    manager.close()


def test_giving_up_one_of_them() -> None:
    world = World()
    manager = CanaryManager([world.group()], config(forwards=("target", "draft")))
    manager.before_forward(batch_of(world, world.add({1: 2})))
    manager.before_forward(batch_of(world, world.add({2: 2}), forward="draft"))
    manager.give_up("draft")
    manager.after_forward()
    with pytest.raises(CanaryRuntimeError, match="after_forward of draft without"):
        manager.after_forward(dataclasses.replace(batch_of(world, world.add({3: 1})), forward="draft"))
    with pytest.raises(CanaryValueError, match=r"batch\.forward must be one of target, draft"):
        manager.give_up("verify")
    assert manager.step_end() == []
    manager.close()


def test_slots_excused_in_a_pool_with_a_mapping() -> None:
    """Full slots that are excused are excused where the mapping sends them, unless the pool has an entry of its own."""
    world = World()
    mapping = torch.arange(world.slots).flip(0)
    sliding = world.group(pool_kind="SWA", full_to_swa_index_mapping=mapping, real_kv_sources={})
    manager = CanaryManager([world.group(), sliding], config())
    batch = batch_of(world, world.add({1: 4}))
    with manager.forward(batch):
        pass
    assert manager.step_end() == []
    sliding.buffers["TAIL"]["K"][int(mapping[2]), 8] ^= 1

    def found(**excused: object) -> set[tuple[str, int]]:
        with manager.forward(batch_of(world, world.add({1: 1}), **excused)):
            pass
        return {(record.pool, record.slot) for record in manager.step_end()}

    own = int(mapping[2])
    assert found() == {("SWA", own), ("SWA", own - 1)}
    assert found(excused=torch.tensor([2])) == set()
    assert found(excused={"FULL": torch.tensor([2])}) == set()
    assert found(excused={"SWA": torch.tensor([own])}) == set()
    assert found(excused={"SWA": torch.tensor([own + 5])}) == {("SWA", own), ("SWA", own - 1)}
    manager.close()
