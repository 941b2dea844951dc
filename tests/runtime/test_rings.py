"""Pools in which new tokens go to slots that the same forward still reads, and slots that several requests share."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from kvcanary import CanaryBatch, CanaryBufferGroup, CanaryConfig, CanaryManager, RealKvSource, ViolationRecord
from kvcanary.errors import CanaryValueError

RING = 6


class Ring:
    """One request in a ring of slots from 10 on: position p lies in slot 10 + p % RING."""

    def __init__(self, *, ring_size: int = RING) -> None:
        self.keys = torch.zeros([32, 16], dtype=torch.uint8)
        group = CanaryBufferGroup.allocate(
            pool_kind="SWA",
            num_slots=32,
            device="cpu",
            halves=["K"],
            real_kv_sources={"K": [RealKvSource(self.keys, 1, 16, 16)]},
            window_size=RING - 1,
            first_has_predecessor=False,
            ring_size=ring_size,
        )
        sizes = {"max_requests": 4, "max_tokens": 64, "verify_capacity": 64}
        self.manager = CanaryManager([group], CanaryConfig(real_kv_mode="ALL", **sizes))
        self.manager.mark_warm()
        self.cached = 0

    def step(self, count: int, rewritten: Sequence[str] = ("SWA",), flip: int | None = None) -> list[ViolationRecord]:
        positions = torch.arange(self.cached, self.cached + count)
        slots = 10 + positions % RING
        # Of more tokens than the ring holds, the last ones stay.
        slots[: max(0, count - RING)] = -1
        table = torch.zeros([2, self.cached + 1], dtype=torch.int32)
        table[1, : self.cached] = (10 + torch.arange(self.cached) % RING).to(torch.int32)
        batch = CanaryBatch(
            input_ids=positions + 100,
            positions=positions,
            slots=slots,
            tables=table,
            rows=torch.tensor([1]),
            prefix_lens=torch.tensor([self.cached]),
            extend_lens=torch.tensor([count]),
            request_ids=["one"],
            rewritten=rewritten,
        )
        with self.manager.forward(batch):
            kept = slots >= 0
            self.keys[slots[kept]] = (positions[kept] % 251).to(torch.uint8)[:, None]
            if flip is not None:
                self.keys[flip, 3] ^= 1
        self.cached += count
        return self.manager.step_end()


def test_a_ring_that_goes_round_is_clean() -> None:
    ring = Ring()
    for count in (4, 1, 3, 1, 1, RING, 2, 1):
        assert ring.step(count) == []
    ring.manager.close()


def test_what_is_overwritten_is_verified_before_alone() -> None:
    ring = Ring()
    ring.step(RING)
    # Without a word about it, slots whose bytes the forward itself has changed look damaged.
    found = ring.step(3, rewritten=())
    assert {(record.stage, record.slot) for record in found} == {("TAIL", 11), ("TAIL", 12)}
    assert {record.reasons for record in found} == {("VERIFY_REAL_KV_HASH_MISMATCH",)}
    ring.manager.close()


def test_what_is_not_overwritten_is_verified_after_all_the_same() -> None:
    ring = Ring()
    ring.step(RING)
    found = ring.step(2, flip=13)
    assert [(record.stage, record.slot, record.position, record.request_id) for record in found] == [
        ("TAIL", 13, 3, "one")
    ]
    # The step behind goes by the whole plan again.
    assert [(record.stage, record.slot) for record in ring.step(1, rewritten=())] == [("TAIL", 13)]
    ring.manager.close()


def test_what_is_overwritten_is_still_verified_before() -> None:
    ring = Ring()
    ring.step(RING)
    ring.manager.groups[0].buffers["HEAD"]["K"][12].zero_()
    found = ring.step(3)
    assert ("HEAD", 12) in {(record.stage, record.slot) for record in found}
    assert "TAIL" not in {record.stage for record in found}
    ring.manager.close()


@pytest.mark.parametrize(("ring_size", "reasons"), [(RING, set()), (0, {("WRITE_POSITION_MISMATCH",)})])
def test_more_tokens_than_the_ring_holds_start_a_chain_anew(ring_size: int, reasons: set[tuple[str, ...]]) -> None:
    ring = Ring(ring_size=ring_size)
    ring.step(4)
    assert {record.reasons for record in ring.step(RING + 5)} == reasons
    for _ in range(RING + 2):
        assert ring.step(1) == []
    ring.manager.close()


def test_an_unknown_pool_is_refused_and_nothing_runs() -> None:
    ring = Ring()
    with pytest.raises(CanaryValueError, match=r"batch\.rewritten must name pools: SWA, got 'FULL'"):
        ring.step(1, rewritten=["FULL"])
    assert ring.manager.statistics()["plans"] == 0
    ring.manager.close()


def test_room_for_rewritten_slots_is_made_when_it_is_needed() -> None:
    ring = Ring()
    before = ring.manager.memory_report()["total"]
    ring.step(1, rewritten=())
    assert ring.manager.memory_report()["total"] == before
    ring.step(1)
    capacity, slots = 64, 32
    assert ring.manager.memory_report()["total"] == before + 9 * capacity + slots + 1
    ring.manager.close()


def test_a_closed_manager_says_so() -> None:
    ring = Ring()
    assert not ring.manager.closed
    ring.manager.close()
    assert ring.manager.closed


def test_of_requests_that_share_a_slot_the_one_whose_token_does_not_fit_is_named() -> None:
    group = CanaryBufferGroup.allocate(pool_kind="FULL", num_slots=16, device="cpu")
    manager = CanaryManager([group], CanaryConfig(max_requests=4, max_tokens=8, verify_capacity=16))
    table = torch.zeros([4, 8], dtype=torch.int32)
    table[1:, :3] = torch.tensor([5, 6, 7])
    history = torch.tensor([[0] * 8, [31, 32, 33, 1, 0, 0, 0, 0], [31, 99, 33, 2, 0, 0, 0, 0], [0] * 8]).to(torch.int32)

    def step(rows: list[int], tokens: list[int], slots: list[int], cached: int, names: list[str]) -> None:
        count = len(tokens) // len(rows)
        batch = CanaryBatch(
            input_ids=torch.tensor(tokens),
            positions=torch.arange(cached, cached + count).repeat(len(rows)),
            slots=torch.tensor(slots),
            tables=table,
            rows=torch.tensor(rows),
            prefix_lens=torch.tensor([cached] * len(rows)),
            extend_lens=torch.tensor([count] * len(rows)),
            history=history,
            request_ids=names,
        )
        with manager.forward(batch):
            pass

    step([1], [31, 32, 33], [5, 6, 7], 0, ["owner"])
    assert manager.step_end() == []
    step([1, 2], [1, 2], [8, 9], 3, ["owner", "guest"])
    found = manager.step_end()
    assert {(record.slot, record.request_id, record.expected_token) for record in found} == {(6, "guest", 99)}
    manager.close()
