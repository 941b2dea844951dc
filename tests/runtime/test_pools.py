"""What engines hand out, in their own forms: clean runs stay clean, and what is broken is seen."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from kvcanary import CanaryBatch, CanaryBufferGroup, CanaryManager, RealKvSource, ViolationRecord

from .worlds import World, batch_of, config, run


def int32(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


# --- SGLang: token tables by request row, a mapping to the sliding pool, padding in row 0 ----------------------------


class Mapped:
    """A full pool, and a sliding one that keeps `window` positions; slots that leave the window are given away."""

    window = 4

    def __init__(self, **other: Any) -> None:
        self.world = World()
        self.mapping = torch.zeros([self.world.slots + 1], dtype=torch.int64)
        self.free = list(range(1, 40))
        full = self.world.group()
        sliding = CanaryBufferGroup.allocate(
            pool_kind="SWA",
            num_slots=40,
            device="cpu",
            full_to_swa_index_mapping=self.mapping,
            window_size=self.window,
        )
        self.manager = CanaryManager([full, sliding], config(**other))
        self.manager.mark_warm()

    def step(self, lengths: dict[int, int]) -> list[ViolationRecord]:
        step = self.world.add(lengths)
        for slot in step.slots.tolist():
            self.mapping[slot] = self.free.pop(0)
        padding = torch.zeros([1], dtype=torch.int64)
        batch = batch_of(
            self.world,
            step,
            rows=torch.cat([step.rows, padding]),
            prefix_lens=torch.cat([step.prefix, padding + 3]),
            extend_lens=torch.cat([step.extend, padding]),
            request_ids=None,
        )
        found = run(self.manager, batch)
        for row, count in lengths.items():
            known = len(self.world.tokens[row])
            for position in range(max(0, known - count - self.window), max(0, known - self.window)):
                slot = int(self.world.table[row, position])
                self.free.append(int(self.mapping[slot]))
                self.mapping[slot] = 0
        return found


@pytest.mark.parametrize("exclusions", [True, False])
def test_a_mapped_pool(exclusions: bool) -> None:
    engine = Mapped(exclusions=exclusions)
    for lengths in ({1: 6, 2: 2}, {1: 1, 2: 5}, {2: 1}, {1: 3, 3: 7}, {1: 1, 2: 1, 3: 1}):
        assert engine.step(lengths) == []
    # A slot of the sliding pool that is given away while the window still needs it.
    slot = int(engine.world.table[1, 9])
    engine.mapping[int(engine.world.table[3, 6])] = engine.mapping[slot]
    found = engine.step({1: 1, 3: 1})
    assert {record.pool for record in found} == {"SWA"} and {record.kind[-5:] for record in found} == {"K_SWA", "V_SWA"}
    engine.manager.close()


def test_garbage_in_a_mapping_is_out_of_range() -> None:
    for exclusions in (True, False):
        for garbage in (40, 1 << 40, -7):
            engine = Mapped(exclusions=exclusions)
            engine.step({1: 3})
            engine.mapping[int(engine.world.table[1, 1])] = garbage
            found = engine.step({1: 1})
            assert "VERIFY_SLOT_OUT_OF_RANGE" in {reason for record in found for reason in record.reasons}
            engine.manager.close()


# --- vLLM: block tables by batch row, int32, cumulative lengths, padded tokens ---------------------------------------


class Blocks:
    """Requests in batch order, each with a row of blocks; block 0 is nobody's."""

    size = 4

    def __init__(self, window: int = 0, first_has_predecessor: bool = False, **other: Any) -> None:
        self.tables: dict[str, list[int]] = {}
        self.tokens: dict[str, list[int]] = {}
        self.next_block = 1
        kv = torch.zeros([32, self.size * 16], dtype=torch.uint8).random_(
            0, 255, generator=torch.Generator().manual_seed(3)
        )
        self.kv = kv
        group = CanaryBufferGroup.allocate(
            pool_kind="SWA" if window else "FULL",
            name="layers.0",
            num_slots=32 * self.size,
            device="cpu",
            halves=("K",),
            real_kv_sources={"K": (RealKvSource(kv, self.size, 16, 16),)},
            block_size=self.size,
            window_size=window,
            first_has_predecessor=first_has_predecessor,
        )
        self.manager = CanaryManager([group], config(max_length=40, **other))
        self.manager.mark_warm()

    def slot(self, name: str, position: int) -> int:
        return self.tables[name][position // self.size] * self.size + position % self.size

    def batch(self, new: dict[str, list[int]], **other: Any) -> CanaryBatch:
        """New tokens by request; slots are found through the tables, as the engine's kernels do."""
        ids, positions, slots, starts, lengths = [], [], [], [0], []
        for name, tokens in new.items():
            known = self.tokens.setdefault(name, [])
            table = self.tables.setdefault(name, [])
            for token in tokens:
                position = len(known)
                if position // self.size == len(table):
                    table.append(self.next_block)
                    self.next_block += 1
                known.append(token)
                ids.append(token)
                positions.append(position)
                slots.append(self.slot(name, position))
            starts.append(len(ids))
            lengths.append(len(known))
        width = 10
        rows = [(self.tables[name] + [0] * width)[:width] for name in new]
        histories = [(self.tokens[name] + [-5] * 40)[:40] for name in new]
        given = {
            # Rows of the tensors behind the batch hold what earlier batches left there.
            "tables": int32([*rows, [7] * width]),
            "history": int32([*histories, [9] * 40]),
            "input_ids": int32([*ids, 0, 0]),
            "positions": torch.tensor([*positions, 0, 0]),
            "slots": torch.tensor([*slots, -1, -1]),
            "query_start_loc": int32(starts),
            "seq_lens": int32(lengths),
            "request_ids": list(new),
            **other,
        }
        return CanaryBatch(**given)

    def step(self, new: dict[str, list[int]], **other: Any) -> list[ViolationRecord]:
        return run(self.manager, self.batch(new, **other))


@pytest.mark.parametrize("window", [0, 3, 8])
@pytest.mark.parametrize("exclusions", [True, False])
def test_block_tables(window: int, exclusions: bool) -> None:
    engine = Blocks(window, exclusions=exclusions)
    assert engine.step({"a": [5, 6, 7, 8, 9], "b": [1]}) == []
    assert engine.step({"b": [2, 3, 4, 5], "a": [10]}) == []
    assert engine.step({"c": list(range(11)), "a": [11, 12], "b": [6]}) == []
    for token in range(4):
        assert engine.step({"c": [token], "b": [token], "a": [token]}) == []
    # Tables of two requests crossed.
    engine.tables["a"][1], engine.tables["b"][1] = engine.tables["b"][1], engine.tables["a"][1]
    found = engine.step({"c": [1], "b": [1], "a": [1]})
    # A window of 3 reaches back to the crossed block in "b" alone.
    assert {record.request_id for record in found} == ({"b"} if window == 3 else {"a", "b"})
    assert {record.pool for record in found} == {"layers.0"}
    engine.manager.close()


@pytest.mark.parametrize("first_has_predecessor", [False, True])
def test_the_first_of_a_window_has_no_predecessor(first_has_predecessor: bool) -> None:
    """The slot before the window was given to another request: whether that is an alarm is for the engine to say."""
    engine = Blocks(window=5, first_has_predecessor=first_has_predecessor)
    engine.step({"a": list(range(13))})
    # The window of "a" begins at position 8 now; its first two blocks go to "b".
    engine.tables["b"] = engine.tables["a"][:2]
    assert engine.step({"b": list(range(50, 58))}) == []
    found = engine.step({"a": [77]})
    first = (engine.slot("a", 8), ("VERIFY_CHAIN_HASH_MISMATCH",))
    assert {(record.slot, record.reasons) for record in found} == ({first} if first_has_predecessor else set())
    # Links within the window are verified all the same.
    buffer = engine.manager.groups[0].buffers["TAIL"]["K"]
    buffer[engine.slot("a", 10), 0] ^= 1
    found = engine.step({"a": [78], "b": [58]})
    assert engine.slot("a", 11) in {record.slot for record in found if record.kind == "TAIL_K_SWA"}
    engine.manager.close()


def test_a_table_wider_than_configured() -> None:
    engine = Blocks()
    wide = torch.zeros([2, 12], dtype=torch.int32)
    with pytest.raises(
        ValueError, match=r"positions of batch.tables\['layers.0'\]: 48 exceeds max_length=40; allocate more"
    ):
        engine.step({"a": [1]}, tables=wide)
    engine.manager.close()


def test_blocks_that_another_request_of_the_step_writes() -> None:
    """'b' hits the block that 'a' fills in the same step, 'c' goes on from what 'b' writes."""
    engine = Blocks()
    first = engine.batch({"a": [1, 2, 3, 4]})
    block = engine.tables["a"][0]
    engine.tables["b"] = [block]
    engine.tokens["b"] = [1, 2, 3, 4]
    both = {"a": [], "b": [5, 6, 7, 8]}
    engine.tokens["a"] = []
    engine.tables["a"] = [block]
    both["a"] = [1, 2, 3, 4]
    engine.tables["c"] = [block, engine.next_block]
    engine.tokens["c"] = list(range(1, 9))
    new = {**both, "c": [9]}
    excused = [block * 4 + k for k in range(4)] + [engine.next_block * 4 + k for k in range(4)]
    assert first.num_requests == 1
    batch = engine.batch(new, excused=torch.tensor(excused), write_passes=3)
    assert run(engine.manager, batch) == []
    # From the next step on every link is verified, also across requests.
    assert engine.step({"a": [10], "b": [11], "c": [12]}) == []
    # With one pass the link of the first new token is wrong.
    engine = Blocks()
    engine.tables |= {"a": [1], "b": [1]}
    engine.tokens |= {"a": [], "b": [1, 2, 3, 4]}
    engine.next_block = 2
    found = engine.step({"a": [1, 2, 3, 4], "b": [5]}, excused=torch.tensor([4, 5, 6, 7]))
    assert {(r.request_id, r.position, r.reasons) for r in found} == {("b", 4, ("WRITE_POSITION_MISMATCH",))}
    found = engine.step({"a": [5], "b": [6]})
    assert {(r.request_id, r.position, r.reasons) for r in found} == {("b", 4, ("VERIFY_CHAIN_HASH_MISMATCH",))}
    engine.manager.close()


# --- Transformers: a group with tables of its own, a ring, trash slots -----------------------------------------------


@pytest.mark.parametrize("exclusions", [True, False])
def test_a_ring_with_trash(exclusions: bool) -> None:
    """Slot = position mod window within a request's ring; new tokens that no later one reads go to the trash slot."""
    window, trash = 4, 20
    full = CanaryBufferGroup.allocate(pool_kind="FULL", name="full", num_slots=40, device="cpu", trash_from=40)
    sliding = CanaryBufferGroup.allocate(
        pool_kind="SWA",
        name="sliding",
        num_slots=trash,
        device="cpu",
        trash_from=trash,
        window_size=window - 1,
        first_has_predecessor=False,
    )
    manager = CanaryManager([full, sliding], config(max_length=24, exclusions=exclusions))
    manager.mark_warm()
    known = {0: 0, 1: 0}

    def step(lengths: list[int], skew: int = 0) -> list[ViolationRecord]:
        ids, positions, slots, rings = [], [], [], []
        for request, count in enumerate(lengths):
            for position in range(known[request], known[request] + count):
                last = position >= known[request] + count - window
                ids.append(100 * request + position)
                positions.append(position)
                slots.append(1 + 18 * request + position)
                rings.append(4 * (request + 1) + (position + skew) % window if last else trash)
        table = [[1 + 18 * r + p for p in range(18)] for r in range(2)]
        ring_table = [[4 * (r + 1) + p % window for p in range(18)] for r in range(2)]
        batch = CanaryBatch(
            input_ids=torch.tensor([ids]),
            positions=torch.tensor([positions]),
            slots={"full": torch.tensor(slots), "sliding": int32(rings)},
            tables={"full": int32(table), "sliding": torch.tensor(ring_table)},
            prefix_lens=torch.tensor([known[0], known[1]]),
            extend_lens=torch.tensor(lengths),
        )
        for request, count in enumerate(lengths):
            known[request] += count
        return run(manager, batch)

    for lengths in ([7, 2], [1, 1], [1, 3], [3, 1], [1, 1]):
        assert step(lengths) == []
    step([1, 1], skew=1)
    found = step([1, 1])
    assert found and {record.pool for record in found} == {"sliding"}
    manager.close()


def test_rows_that_the_table_does_not_have_are_padding() -> None:
    """Where rows are gathered into the manager's table, as where planning reads the engine's."""
    world = World()
    group = world.group()
    manager = CanaryManager([group], config(max_length=40))
    direct = CanaryManager([world.group(name="direct")], config())
    strided = torch.zeros([world.table.shape[0], 2 * world.table.shape[1]], dtype=torch.int32)[:, ::2]
    for lengths, row in (({1: 3, 2: 2}, 2), ({1: 1, 2: 1}, 1 << 40), ({1: 1, 2: 1}, -3), ({1: 2, 2: 1}, 0)):
        step = world.add(lengths)
        strided.copy_(world.table)
        step.rows[1] = row
        assert run(manager, batch_of(world, step, tables=strided, request_ids=None)) == []
        assert run(direct, batch_of(world, step, request_ids=None)) == []
    assert manager.statistics() == direct.statistics()
    assert all(torch.equal(a, b) for a, b in zip(group.tensors(), direct.groups[0].tensors(), strict=True))
    manager.close()
    direct.close()


def test_one_tensor_for_pools_of_other_blocks() -> None:
    """The same table tensor means other slots where blocks have another size."""
    small = CanaryBufferGroup.allocate(pool_kind="FULL", name="small", num_slots=64, device="cpu", block_size=2)
    large = CanaryBufferGroup.allocate(pool_kind="FULL", name="large", num_slots=64, device="cpu", block_size=4)
    manager = CanaryManager([small, large], config(max_length=16))
    table = int32([[3, 5, 7, 1]])

    def step(known: int, count: int) -> list[ViolationRecord]:
        positions = torch.arange(known, known + count)
        slots = {
            group.name: torch.tensor([int(table[0, p // size]) * size + p % size for p in positions.tolist()])
            for group, size in ((small, 2), (large, 4))
        }
        lengths = {"prefix_lens": torch.tensor([known]), "extend_lens": torch.tensor([count])}
        tables = {"small": table, "large": table}
        return run(manager, CanaryBatch(positions + 9, positions, slots, tables, **lengths))

    assert step(0, 5) == step(5, 2) == step(7, 1) == []
    assert manager.statistics()["entries_HEAD_K_FULL"] == 2 * (5 + 5 + 2 + 7 + 1)
    manager.close()


def test_tables_of_other_heights() -> None:
    """A row that one of the tables does not have is padding in all of them, and the others keep theirs."""
    pools = [CanaryBufferGroup.allocate(pool_kind="FULL", name=name, num_slots=40, device="cpu") for name in ("a", "b")]
    manager = CanaryManager(pools, config(max_length=8))
    tall = torch.arange(32, dtype=torch.int32).reshape(8, 4).t().contiguous().t()
    tables = {"a": tall, "b": tall[:4]}
    new = torch.arange(4)
    for rows in ([1, 2], [3, 5]):
        slots = torch.cat([tall[row, :2] for row in rows]).to(torch.int64)
        batch = CanaryBatch(
            new,
            torch.tensor([0, 1, 0, 1]),
            {"a": slots, "b": slots},
            tables,
            torch.tensor([0, 0]),
            torch.tensor([2, 2]),
            rows=torch.tensor(rows),
        )
        assert run(manager, batch) == []
    assert manager.statistics()["entries_HEAD_K_FULL"] == 2 * (4 + 2)
    manager.close()


def test_a_mapped_pool_has_no_table() -> None:
    engine = Mapped()
    batch = batch_of(engine.world, engine.world.add({1: 2}))
    tables = {"FULL": engine.world.table, "SWA": engine.world.table}
    with pytest.raises(ValueError, match=r"batch\.tables must name pools without a mapping alone, got 'SWA'"):
        engine.manager.before_forward(dataclasses.replace(batch, tables=tables))
    engine.manager.close()


def test_a_mapped_pool_beside_one_of_blocks() -> None:
    """Slots are worked out of the full pool's blocks first, then translated."""
    mapping = torch.arange(63, -1, -1)
    full = CanaryBufferGroup.allocate(pool_kind="FULL", num_slots=64, device="cpu", block_size=4)
    sliding = CanaryBufferGroup.allocate(
        pool_kind="SWA", num_slots=64, device="cpu", full_to_swa_index_mapping=mapping, window_size=6
    )
    manager = CanaryManager([full, sliding], config(max_length=16))
    table = int32([[0, 0, 0, 0], [3, 5, 7, 1]])
    for known, count in ((0, 5), (5, 3), (8, 1)):
        positions = torch.arange(known, known + count)
        slots = torch.tensor([int(table[1, p // 4]) * 4 + p % 4 for p in positions.tolist()])
        lengths = {"prefix_lens": torch.tensor([known]), "extend_lens": torch.tensor([count])}
        batch = CanaryBatch(positions + 9, positions, slots, table, **lengths, rows=torch.tensor([1]))
        assert run(manager, batch) == []
    assert manager.statistics()["entries_HEAD_K_SWA"] == 9 + 5 + 6
    written = sliding.buffers["HEAD"]["K"].view(torch.int64)[:, 1]
    assert [int(mapping[slot]) for slot in (12, 13, 14, 15)] == [51, 50, 49, 48]
    assert written[[51, 50, 49, 48]].tolist() == [0, 1, 2, 3]
    manager.close()
