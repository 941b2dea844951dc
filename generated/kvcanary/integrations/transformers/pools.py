# Written by kvcanary-gen from the spec; edit that instead.
"""What the canary must know of a paged cache, whatever version made it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ...structs import RealKvSource

FULL = "full_attention"
SLIDING = "sliding_attention"


@dataclass(frozen=True, eq=False)
class CachePool:
    """The layers of one group: they share an allocator, tables and indices.

    Attributes:
        name (str): What reports call the pool.
        attention (str): Kind of attention of its layers, by which lengths are found in a batch.
        index (int): Its place in the batch's lists of indices and in the block table.
        window (int): Slots of a request's ring, 0 where everything is kept.
        page (int): Tokens of a block.
        num_slots (int): Slots of the canary; slots from here on are what no request may use.
        layers (tuple of int): The model's layers, in the order in which they lie in a block.
        allocator: The engine's allocator; its `block_table` has the blocks of every request.
        unhashed (int): A slot whose real bytes are out of reach of the canary; -1 if there is none.
    """

    name: str
    attention: str
    index: int
    window: int
    page: int
    num_slots: int
    layers: tuple[int, ...]
    allocator: Any
    unhashed: int = -1

    @property
    def kind(self) -> str:
        return "SWA" if self.window else "FULL"

    def blocks(self, request_id: str) -> list[int]:
        """Blocks of a request, in the order of its positions; none where it has none."""
        return list(self.allocator.block_table.get(request_id, ()))


class CacheLayout(Protocol):
    """Where a cache keeps things. Slots are numbered from 0 through all blocks of a pool; what the engine's indices
    point at beside them is given as a slot out of range when it is read, and as -1 when it is the trash for writes."""

    cache: Any
    pools: list[CachePool]

    def read_slots(self, pool: CachePool, raw: torch.Tensor) -> torch.Tensor:
        """Slots (int64) for indices from which attention reads."""

    def write_slots(self, pool: CachePool, raw: torch.Tensor) -> torch.Tensor:
        """Slots (int64) for indices to which new tokens are written."""

    def block_numbers(self, pool: CachePool, entries: torch.Tensor) -> torch.Tensor:
        """Blocks (int64) for entries of the block table that attention kernels take; negative where there is none."""

    def block_slots(self, pool: CachePool, blocks: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """Slots (int64) for blocks and places in them; out of range where the block is."""

    def source(self, pool: CachePool, layer: int, half: str) -> RealKvSource:
        """The bytes of one layer's keys or values."""

    def hashed_blocks(self, pool: CachePool) -> Iterable[int]:
        """Blocks that the prefix cache holds or knows of."""

    def is_complete(self, pool: CachePool, block: int) -> bool:
        """Whether a block is known to the prefix cache, so that others may read it."""

    def in_use(self) -> bool:
        """Whether anything was stored that is still there."""


def pool_slots(layout: CacheLayout, pool: CachePool, blocks: Sequence[int]) -> torch.Tensor:
    """All slots (int64, on the host) of these blocks, in order."""
    numbers = torch.tensor(list(blocks), dtype=torch.int64)[:, None]
    return layout.block_slots(pool, numbers, torch.arange(pool.page)).reshape(-1)
