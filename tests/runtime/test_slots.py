"""Slots that change hands outside a forward: dropped, excused, copied, brought to the host and back; and sweeps."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest
import torch

import kvcanary
from kvcanary import CacheWalk, CanaryBufferGroup, CanaryManager, CanaryValueError, ViolationRecord

from .worlds import World, batch_of, config, run


class Scene:
    def __init__(self, **other: object) -> None:
        self.world = World()
        self.group = self.world.group()
        self.manager = CanaryManager([self.group], config(sweep_capacity=8, **other))
        self.manager.mark_warm()

    def step(self, lengths: dict[int, int]) -> list[ViolationRecord]:
        return run(self.manager, batch_of(self.world, self.world.add(lengths)))

    def move(self, source: list[int], target: list[int]) -> None:
        """The engine's own copy of real bytes."""
        for kv in self.world.kv.values():
            kv[target] = kv[source]


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.manager.close()


def reasons(found: list[ViolationRecord]) -> set[str]:
    return {reason for record in found for reason in record.reasons}


# --- slots without a fingerprint --------------------------------------------------------------------------------------


def test_never_written_slots_are_wrong_and_dropped_ones_are_not(scene: Scene) -> None:
    scene.step({1: 4})
    scene.world.table[1, 1] = 60
    assert {record.slot for record in scene.step({1: 1})} == {60, 3}
    scene.manager.drop_slots([60])
    assert scene.step({1: 1}) == []


def test_a_cache_that_was_there_before(scene: Scene) -> None:
    """All slots dropped, so that only what is written from then on is verified; chains start anew."""
    scene.world.add({1: 5, 2: 3})
    scene.manager.drop_slots()
    assert scene.step({1: 1, 2: 2}) == []
    assert scene.step({1: 1, 2: 1, 3: 4}) == []
    # What is new is verified as ever.
    slot = int(scene.world.table[2, 4])
    scene.group.buffers["HEAD"]["K"][slot, 0] ^= 1
    found = scene.step({1: 1, 2: 1})
    assert {(record.kind, record.slot) for record in found} == {("HEAD_K_FULL", slot), ("HEAD_K_FULL", slot + 2)}


def test_written_slots_count_again(scene: Scene) -> None:
    scene.step({1: 3, 2: 3})
    scene.manager.drop_slots(torch.tensor([1, 2, 3], dtype=torch.int32))
    scene.world.kv["K"][1, 0] ^= 1
    assert scene.step({1: 1}) == []
    # The pool hands slots 1 to 3 out again.
    scene.world.next_slot = 1
    assert scene.step({3: 3}) == []
    scene.world.next_slot = 20
    scene.world.kv["K"][1, 0] ^= 1
    assert {record.slot for record in scene.step({3: 1})} == {1}


def test_excused_until_the_step_ends(scene: Scene) -> None:
    scene.step({1: 4})
    scene.world.kv["K"][2, 0] ^= 1
    scene.manager.excuse_slots([2])
    assert scene.step({1: 1}) == []
    assert {record.slot for record in scene.step({1: 1})} == {2}
    # Excused and dropped at a time: the end of the step brings back what was excused alone.
    scene.manager.drop_slots([2])
    scene.manager.excuse_slots([2, 3])
    scene.world.kv["K"][3, 0] ^= 1
    assert scene.step({1: 1}) == []
    assert {record.slot for record in scene.step({1: 1})} == {3}


def test_slots_outside_the_pool_stay_out_of_range(scene: Scene) -> None:
    for call in (scene.manager.drop_slots, scene.manager.excuse_slots):
        call([-3, 64, 1 << 40])
    scene.step({1: 3})
    scene.world.table[1, 1] = 64
    assert "VERIFY_SLOT_OUT_OF_RANGE" in reasons(scene.step({1: 1}))
    scene.world.table[1, 1] = -3
    assert "VERIFY_SLOT_OUT_OF_RANGE" in reasons(scene.step({1: 1}))


def test_without_exclusions() -> None:
    scene = Scene(exclusions=False)
    for call in (scene.manager.drop_slots, scene.manager.excuse_slots):
        with pytest.raises(CanaryValueError, match="exclusions must be configured for slots to be excused, dropped"):
            call([1])
    assert scene.step({1: 3}) == scene.step({1: 1}) == []
    scene.manager.close()


# --- moves ------------------------------------------------------------------------------------------------------------


def test_a_fork_copies_fingerprints(scene: Scene) -> None:
    scene.step({1: 4})
    scene.move([3, 4], [30, 31])
    scene.world.tokens[2] = scene.world.tokens[1][:4]
    scene.world.table[2, :4] = torch.tensor([1, 2, 30, 31])
    scene.world.history[2, :4] = scene.world.history[1, :4]
    scene.manager.copy_slots([3, 4], torch.tensor([30, 31]))
    assert scene.step({1: 1, 2: 1}) == []
    # A copy that the canary was not told of.
    scene.move([5], [32])
    scene.world.table[1, 4] = 32
    assert 32 in {record.slot for record in scene.step({1: 1})}


def test_a_missing_copy_of_real_bytes(scene: Scene) -> None:
    scene.step({1: 4})
    scene.manager.copy_slots([4], [31])
    scene.world.table[1, 3] = 31
    assert reasons(scene.step({1: 1})) == {"VERIFY_REAL_KV_HASH_MISMATCH"}


def test_copies_overlap_and_leave_out_what_is_outside(scene: Scene) -> None:
    scene.step({1: 4})
    before = scene.group.first_buffer.clone()
    scene.manager.copy_slots([1, 2, 3, 900, 1], [2, 3, 4, 5, -1])
    after = scene.group.first_buffer
    assert torch.equal(after[2:5], before[1:4]) and torch.equal(after[6:], before[6:])
    with pytest.raises(CanaryValueError, match="target slots length must be 2, got 1"):
        scene.manager.copy_slots([1, 2], [3])


def test_a_dropped_slot_is_copied_as_such(scene: Scene) -> None:
    scene.world.add({1: 3})
    scene.manager.drop_slots()
    assert scene.step({1: 1}) == []
    scene.manager.copy_slots([2, 4], [32, 33])
    scene.world.table[1, 1] = 32
    scene.world.table[1, 3] = 33
    scene.move([4], [33])
    assert scene.step({1: 1}) == []
    # The one that had a fingerprint is verified in its new place.
    scene.world.kv["K"][33, 0] ^= 1
    assert {record.slot for record in scene.step({1: 1})} == {33}


def test_offload_and_restore(scene: Scene) -> None:
    scene.step({1: 4, 2: 2})
    kept = {half: kv[1:5].clone() for half, kv in scene.world.kv.items()}
    exported = scene.manager.export_slots([1, 2, 3, 4])
    assert len(exported.wait()) == 4 and exported.pool_kind == "FULL"
    # Others use the slots; then they come back elsewhere.
    scene.world.next_slot = 1
    assert scene.step({3: 4}) == []
    scene.world.next_slot = 40
    again = pickle.loads(pickle.dumps(exported))
    for half, kv in kept.items():
        scene.world.kv[half][50:54] = kv
    scene.world.table[1, :4] = torch.tensor([50, 51, 52, 53])
    scene.manager.import_slots([50, 51, 52, 53], again)
    assert scene.step({1: 1, 3: 1}) == []
    # Restored in another order.
    scene.manager.import_slots([51, 50, 52, 53], exported)
    assert "VERIFY_POSITION_MISMATCH" in reasons(scene.step({1: 1}))


def test_restore_of_stale_bytes(scene: Scene) -> None:
    scene.step({1: 4})
    exported = scene.manager.export_slots([2])
    scene.world.kv["V"][2, 7] ^= 1
    scene.manager.import_slots([2], exported)
    found = scene.step({1: 1})
    assert {(record.kind, record.slot) for record in found} == {("TAIL_V_FULL", 2)}


def test_exports_do_not_fit_every_pool() -> None:
    world = World()
    keys = CanaryBufferGroup.allocate(pool_kind="FULL", name="keys", num_slots=20, device="cpu", halves=("K",))
    manager = CanaryManager([world.group(), keys], config())
    with pytest.raises(CanaryValueError, match="exported must hold records for"):
        manager.import_slots([1], manager.export_slots([1]), pool="keys")
    with pytest.raises(CanaryValueError, match="slots length must be 1, got 2"):
        manager.import_slots([1, 2], manager.export_slots([1]))
    with pytest.raises(CanaryValueError, match="target_pool must have the halves"):
        manager.copy_slots([1], [2], target_pool="keys")
    with pytest.raises(CanaryValueError, match="pool must be one of FULL, keys, got 'values'"):
        manager.copy_slots([1], [2], pool="values")
    manager.close()


# --- sweeps -----------------------------------------------------------------------------------------------------------


class Radix:
    """A prefix cache that knows slots, positions, predecessors, and tokens if asked."""

    def __init__(self, world: World, *, tokens: bool) -> None:
        self.world, self.tokens, self.asked = world, tokens, 0

    def walk(self, pool: str) -> CacheWalk:
        self.asked += 1
        entries = []
        for row, tokens in self.world.tokens.items():
            slots = self.world.table[row].tolist()
            entries += [(slots[p], p, slots[p - 1] if p else -1, token) for p, token in enumerate(tokens)]
        slots, positions, predecessors, tokens = (list(column) for column in zip(*reversed(entries), strict=True))
        return CacheWalk(slots, torch.tensor(positions), predecessors, tokens if self.tokens else None)


@pytest.mark.parametrize("tokens", [False, True])
def test_sweeps_see_what_nobody_uses(tokens: bool) -> None:
    scene = Scene(sweep_interval=2)
    scene.manager.walker = radix = Radix(scene.world, tokens=tokens)
    assert scene.step({1: 9, 2: 4}) == scene.step({1: 1}) == scene.step({1: 1}) == []
    assert radix.asked == 1
    scene.world.kv["V"][11, 0] ^= 1
    scene.world.tokens[2][2] += 1
    found = scene.step({1: 1})
    want = {("SWEEP_V_FULL", 11, "VERIFY_REAL_KV_HASH_MISMATCH")}
    if tokens:
        want |= {(f"SWEEP_{half}_FULL", 12, "VERIFY_TOKEN_MISMATCH") for half in "KV"}
    assert {(record.kind, record.slot, *record.reasons) for record in found} == want
    assert {(record.forward, record.request_id) for record in found} == {("sweep", None)}
    # 16 entries in launches of 8, once at step 2 with 14, once at step 4.
    assert scene.manager.statistics()["launches_SWEEP_K_FULL"] == 4
    assert scene.manager.statistics()["entries_SWEEP_K_FULL"] == 14 + 16
    scene.manager.close()


def test_a_sweep_leaves_out_what_was_dropped(scene: Scene) -> None:
    scene.step({1: 5})
    scene.group.buffers["TAIL"]["K"][3, 0] ^= 1
    scene.manager.drop_slots([3])
    scene.manager.sweep({"FULL": Radix(scene.world, tokens=True).walk("FULL")})
    assert scene.step({2: 1}) == []


def test_a_sweep_of_a_mapped_pool() -> None:
    """What was evicted is left out; the first that is there has no predecessor to be linked to."""
    world = World()
    mapping = torch.zeros([world.slots], dtype=torch.int64)
    mapping[1:9] = torch.arange(8, 0, -1)
    sliding = CanaryBufferGroup.allocate(pool_kind="SWA", num_slots=12, device="cpu", full_to_swa_index_mapping=mapping)
    manager = CanaryManager([world.group(), sliding], config(sweep_capacity=100, max_requests=40))
    run(manager, batch_of(world, world.add({1: 8})))
    mapping[1:4] = 0
    walk = Radix(world, tokens=True).walk("SWA")
    manager.sweep({"FULL": walk, "SWA": walk})
    assert manager.flush() == []
    assert manager.statistics()["entries_SWEEP_K_SWA"] == 8
    mapping[6] = 2
    manager.sweep({"SWA": walk})
    assert {record.kind for record in manager.flush()} == {"SWEEP_K_SWA", "SWEEP_V_SWA"}
    manager.close()


def test_sweeps_refused(scene: Scene) -> None:
    walk = CacheWalk([1, 2], [0, 1], [-1, 1])
    with pytest.raises(CanaryValueError, match="walks must name pools: FULL, got 'SWA'"):
        scene.manager.sweep({"SWA": walk})
    with pytest.raises(CanaryValueError, match=r"walk.predecessors length must be 2, got 1"):
        scene.manager.sweep({"FULL": CacheWalk([1, 2], [0, 1], [1])})
    plain = CanaryManager([World().group()], config())
    with pytest.raises(CanaryValueError, match="sweep_capacity must be at least 1 for sweeps, got 0"):
        plain.sweep({"FULL": walk})
    plain.close()


def test_plans_of_sweeps() -> None:
    plan = kvcanary.VerifyPlan.allocate(verify_capacity=3, device="cpu")
    walk = CacheWalk([5, 6, 7, 70], [0, 1, 2, 3], [-1, 5, 6, 7], [9, 8, -1, 6])
    mapping = torch.tensor([0, 0, 0, 0, 0, 2, 0, 3])
    assert kvcanary.plan_sweep(walk=walk, verify_plan_out=plan, full_to_swa_index_mapping=mapping) == 3
    assert plan.verify_slot_indices.tolist() == [2, 0, 3]
    assert plan.verify_prev_slot_indices.tolist() == [-1, 2, 0]
    assert plan.verify_expected_tokens.tolist() == [9, 8, -1]
    assert (int(plan.verify_num_valid), int(plan.enable)) == (3, 1)
    assert kvcanary.plan_sweep(walk=walk, verify_plan_out=plan, begin=3) == 1
    assert (int(plan.verify_slot_indices[0]), int(plan.verify_expected_positions[0])) == (70, 3)
    assert kvcanary.plan_sweep(walk=walk, verify_plan_out=plan, begin=4) == 0 == int(plan.verify_num_valid)
