"""Hundreds of steps as an engine makes them: no false alarm, and every way to hand a table over leaves the same."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from kvcanary import CanaryBatch, CanaryManager, ViolationRecord

from .worlds import BYTES, ROWS, WIDTH, World, config

SLOTS, STEPS = 330, 45


class Pool:
    """Slots with reference counts, a cache of finished requests, and requests that come, go, fork and are offloaded."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(slots=SLOTS)
        self.used = [0] * SLOTS
        self.slots: dict[int, list[int]] = {}
        self.tokens: dict[int, list[int]] = {}
        self.cached: list[tuple[list[int], list[int]]] = []
        self.away: list[tuple[list[int], list[Any], dict[str, torch.Tensor]]] = []

    def free(self) -> list[int]:
        return [slot for slot in range(1, SLOTS) if not self.used[slot]]

    def take(self, count: int) -> list[int]:
        found = self.rng.sample(self.free(), count)
        for slot in found:
            self.used[slot] += 1
        return found

    def let_go(self, slots: list[int]) -> None:
        for slot in slots:
            self.used[slot] -= 1

    def make_room(self) -> None:
        while self.cached and len(self.free()) < 50:
            self.let_go(self.cached.pop(self.rng.randrange(len(self.cached)))[0])

    def arrive(self, row: int) -> None:
        """A request, perhaps with a prefix from the cache."""
        self.slots[row], self.tokens[row] = [], []
        if self.cached and self.rng.random() < 0.6:
            slots, tokens = self.rng.choice(self.cached)
            count = self.rng.randint(1, len(slots))
            self.slots[row], self.tokens[row] = slots[:count], tokens[:count]
            for slot in slots[:count]:
                self.used[slot] += 1

    def finish(self, row: int) -> None:
        slots, tokens = self.slots.pop(row), self.tokens.pop(row)
        if slots and self.rng.random() < 0.7:
            self.cached.append((slots, tokens))
        else:
            self.let_go(slots)

    def fork(self, row: int, other: int, managers: list[CanaryManager]) -> None:
        """Copy on write: the last slot is copied, the others are shared."""
        slots = self.slots[row]
        (copy,) = self.take(1)
        for kv in self.world.kv.values():
            kv[copy] = kv[slots[-1]]
        for manager in managers:
            manager.copy_slots([slots[-1]], [copy])
        for slot in slots[:-1]:
            self.used[slot] += 1
        self.slots[other], self.tokens[other] = [*slots[:-1], copy], list(self.tokens[row])

    def offload(self, row: int, managers: list[CanaryManager]) -> None:
        slots, tokens = self.slots.pop(row), self.tokens.pop(row)
        kept = {half: kv[slots].clone() for half, kv in self.world.kv.items()}
        self.away.append((tokens, [manager.export_slots(slots) for manager in managers], kept))
        self.let_go(slots)

    def restore(self, row: int, managers: list[CanaryManager]) -> None:
        tokens, exported, kept = self.away.pop()
        slots = self.take(len(tokens))
        for half, kv in self.world.kv.items():
            kv[slots] = kept[half]
        for manager, part in zip(managers, exported, strict=True):
            manager.import_slots(slots, part)
        self.slots[row], self.tokens[row] = slots, tokens

    def step(self, managers: list[CanaryManager]) -> dict[int, int]:
        """What happens between two forwards; new tokens by row."""
        rng = self.rng
        self.make_room()
        for row in range(1, ROWS):
            if row not in self.slots and rng.random() < 0.3:
                if self.away and rng.random() < 0.7:
                    self.restore(row, managers)
                else:
                    self.arrive(row)
            elif self.slots.get(row):
                chance = rng.random()
                other = next((k for k in range(1, ROWS) if k not in self.slots), None)
                if chance < 0.1 or len(self.slots[row]) > WIDTH - 8:
                    self.finish(row)
                elif chance < 0.15 and len(self.away) < 2:
                    self.offload(row, managers)
                elif chance < 0.2 and other is not None:
                    self.fork(row, other, managers)
        rows = rng.sample(sorted(self.slots), rng.randint(0, len(self.slots)))
        return {row: rng.choice([1, 1, 1, rng.randint(1, 4)]) for row in rows}

    def add(self, new: dict[int, int]) -> tuple[list[list[int]], list[int], list[int], list[int]]:
        """Prefix and new lengths, and each new token's id, position and slot."""
        lengths, ids, positions, slots = [], [], [], []
        for row, count in new.items():
            lengths.append([len(self.slots[row]), count])
            for slot in self.take(count):
                ids.append(self.rng.randrange(30_000))
                positions.append(len(self.slots[row]))
                slots.append(slot)
                self.slots[row].append(slot)
                self.tokens[row].append(ids[-1])
        for row, found in self.slots.items():
            self.world.table[row, : len(found)] = torch.tensor(found, dtype=torch.int32)
            self.world.history[row, : len(found)] = torch.tensor(self.tokens[row], dtype=torch.int32)
        return lengths, ids, positions, slots


def forwards(pool: Pool, new: dict[int, int]) -> list[dict[str, Any]]:
    """One batch in the ways that engines hand it over."""
    lengths, ids, positions, slots = pool.add(new)
    rows = list(new)
    prefix = torch.tensor([p for p, _ in lengths], dtype=torch.int64)
    extend = torch.tensor([e for _, e in lengths], dtype=torch.int64)
    one = {
        "input_ids": torch.tensor(ids, dtype=torch.int64),
        "positions": torch.tensor(positions, dtype=torch.int64),
        "slots": torch.tensor(slots, dtype=torch.int64),
        "prefix_lens": prefix,
        "extend_lens": extend,
        "tables": pool.world.table,
        "history": pool.world.history,
        "rows": torch.tensor(rows, dtype=torch.int64),
    }
    # Padding in row 0, whose lengths mean nothing.
    padded = {**one, "rows": torch.tensor([*rows, 0]), "prefix_lens": torch.nn.functional.pad(prefix, (0, 1), value=9)}
    padded["extend_lens"] = torch.nn.functional.pad(extend, (0, 1))
    staged = {
        **{name: one[name].to(torch.int32) for name in ("input_ids", "positions", "slots")},
        "tables": pool.world.table[rows].to(torch.int64),
        "history": pool.world.history[rows],
        "seq_lens": (prefix + extend).to(torch.int32),
        "query_start_loc": torch.nn.functional.pad(extend.cumsum(0), (1, 0)).to(torch.int32),
    }
    return [one, padded, staged]


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_reported_and_all_ways_agree(seed: int) -> None:
    pool = Pool(seed)
    assert BYTES == 32
    sources = {"K": pool.world.sources()["K"]}
    groups = [pool.world.group(halves=("K",), real_kv_sources=sources) for _ in range(3)]
    sizes = {"max_length": WIDTH, "max_requests": ROWS + 1, "max_tokens": 4 * ROWS}
    managers = [CanaryManager([group], config(**sizes, exclusions=place != 1)) for place, group in enumerate(groups)]
    for manager in managers:
        manager.mark_warm()
    for _ in range(STEPS):
        batches = [CanaryBatch(**given) for given in forwards(pool, pool.step(managers))]
        for manager, batch in zip(managers, batches, strict=True):
            manager.before_forward(batch)
        slots = batches[0].slots
        assert isinstance(slots, torch.Tensor)
        for kv in pool.world.kv.values():
            kv[slots] = torch.randint(0, 255, [len(slots), BYTES], dtype=torch.uint8)
        for manager, batch in zip(managers, batches, strict=True):
            manager.after_forward(batch)
        found: list[ViolationRecord] = [record for manager in managers for record in manager.step_end()]
        assert found == []
        for group in groups[1:]:
            assert all(torch.equal(a, b) for a, b in zip(group.tensors(), groups[0].tensors(), strict=True))
    verified = managers[0].statistics()["entries_TAIL_K_FULL"]
    assert verified > 1000
    assert len({manager.statistics()["entries_TAIL_K_FULL"] for manager in managers}) == 1
    for manager in managers:
        manager.close()
