"""A pool of slots, a token table and real bytes, as an engine has them; no part of the generator is imported."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

import kvcanary
from kvcanary import (
    CanaryBatch,
    CanaryBufferGroup,
    CanaryConfig,
    CanaryManager,
    RealKvHashMode,
    RealKvSource,
    VerifyPlan,
    ViolationRecord,
    WritePlan,
)

ROWS, WIDTH, SLOTS, BYTES = 9, 32, 64, 32


@dataclass
class World:
    """Requests with a row each; slots are handed out one after the other, 0 stays the dummy."""

    device: str = "cpu"
    slots: int = SLOTS
    next_slot: int = 1
    tokens: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(7)
        self.table = torch.zeros([ROWS, WIDTH], dtype=torch.int32, device=self.device)
        self.history = torch.zeros([ROWS, WIDTH], dtype=torch.int32, device=self.device)
        self.kv = {
            half: torch.randint(0, 255, [self.slots, BYTES], dtype=torch.uint8, generator=generator).to(self.device)
            for half in kvcanary.HALVES
        }

    def sources(self) -> dict[str, tuple[RealKvSource, ...]]:
        return {half: (RealKvSource(kv, 1, BYTES, BYTES),) for half, kv in self.kv.items()}

    def group(self, **other: object) -> CanaryBufferGroup:
        given = {"pool_kind": "FULL", "num_slots": self.slots, "real_kv_sources": self.sources(), **other}
        return CanaryBufferGroup.allocate(device=self.device, **given)  # type: ignore[arg-type]

    def int64(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)

    def add(self, lengths: dict[int, int]) -> Step:
        """New tokens for some rows: fresh slots in the table, tokens in the history."""
        rows, prefix, extend, ids, positions, slots = [], [], [], [], [], []
        for row, count in lengths.items():
            known = self.tokens.setdefault(row, [])
            rows.append(row)
            prefix.append(len(known))
            extend.append(count)
            for _ in range(count):
                position, token, slot = len(known), (1000 * row + 7 * len(known)) % 50_000, self.next_slot
                self.next_slot += 1
                known.append(token)
                self.table[row, position] = slot
                self.history[row, position] = token
                ids.append(token)
                positions.append(position)
                slots.append(slot)
        return Step(*map(self.int64, (rows, prefix, extend, ids, positions, slots)))

    def plans(self, step: Step, *, capacity: int = 256, mapping: torch.Tensor | None = None, window: int = 0) -> Plans:
        verify = VerifyPlan.allocate(verify_capacity=capacity, device=self.device)
        write = WritePlan.allocate(write_req_capacity=16, device=self.device)
        kvcanary.launch_canary_plan_kernels(
            verify_plan_out=verify,
            write_plan_out=write,
            req_pool_indices=step.rows,
            prefix_lens=step.prefix,
            extend_seq_lens=step.extend,
            req_to_token=self.table,
            swa_window_size=window,
            full_to_swa_index_mapping=mapping,
            verify_capacity=capacity,
            req_to_verify_expected_tokens=self.history,
            req_to_verify_expected_tokens_valid_lens=step.prefix + step.extend,
            kv_token_id_vs_position_offset=0,
        )
        return Plans(verify, write)


@dataclass(frozen=True)
class Step:
    rows: torch.Tensor
    prefix: torch.Tensor
    extend: torch.Tensor
    ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor


@dataclass(frozen=True)
class Plans:
    verify: VerifyPlan
    write: WritePlan


MODES = tuple(RealKvHashMode)


def config(**other: Any) -> CanaryConfig:
    sizes = {"verify_capacity": 256, "max_requests": 8, "max_tokens": 32, "ring_capacity": 32, "real_kv_mode": "ALL"}
    return CanaryConfig(**{**sizes, **other})


def batch_of(world: World, step: Step, **other: Any) -> CanaryBatch:
    """A batch as an engine with a token table by request row has it."""
    given = {
        "input_ids": step.ids,
        "positions": step.positions,
        "slots": step.slots,
        "tables": world.table,
        "prefix_lens": step.prefix,
        "extend_lens": step.extend,
        "rows": step.rows,
        "history": world.history,
        "request_ids": [f"request-{row}" for row in step.rows.tolist()],
        **other,
    }
    return CanaryBatch(**given)


def run(manager: CanaryManager, *batches: CanaryBatch) -> list[ViolationRecord]:
    """A step of these forwards; what it hands out."""
    for batch in batches:
        with manager.forward(batch):
            pass
    return manager.step_end()
