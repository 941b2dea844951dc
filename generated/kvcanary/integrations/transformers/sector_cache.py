# Written by kvcanary-gen from the spec; edit that instead.
"""The cache of transformers 5.24: one tensor of bytes, in sectors from which allocators take blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ...structs import RealKvSource
from .pools import FULL, CachePool


class SectorCache:
    """A pool for each kind of attention, as blocks move between allocators.

    In bytes, a block holds a page for each of the allocator's layers, and a page the keys of its tokens and then their
    values. The engine's indices count tokens of one half of one layer, so a block is `block_physical_stride` of them
    long, and the first `tokens_per_page` are its slots. The two sectors in front are trash.
    """

    # Attributes by which such a cache is known, and the version that has it.
    ATTRIBUTES = ("cache_tensor", "cache_allocators", "bytes_per_sector", "num_sectors", "max_batch_tokens")
    VERSIONS = "transformers 5.24"

    def __init__(self, cache: Any) -> None:
        self.cache = cache
        self.pools = [self._pool(name, allocator) for name, allocator in cache.cache_allocators.items()]

    def _pool(self, name: str, allocator: Any) -> CachePool:
        page = allocator.tokens_per_page
        return CachePool(
            name=name,
            attention=name,
            index=allocator.index,
            window=0 if name == FULL else allocator.sliding_window,
            page=page,
            num_slots=self.cache.cache_tensor.numel() // allocator.bytes_per_block * page,
            layers=tuple(allocator.layer_indices),
            allocator=allocator,
        )

    def read_slots(self, pool: CachePool, raw: torch.Tensor) -> torch.Tensor:
        blocks = torch.div(raw, pool.allocator.block_physical_stride, rounding_mode="floor")
        return self.block_slots(pool, blocks, raw - blocks * pool.allocator.block_physical_stride)

    def write_slots(self, pool: CachePool, raw: torch.Tensor) -> torch.Tensor:
        return self.read_slots(pool, raw).masked_fill_(raw == pool.allocator.write_trash_index, -1)

    def block_numbers(self, pool: CachePool, entries: torch.Tensor) -> torch.Tensor:
        # Entries count pages of one half of one layer, of which a block has two for each layer.
        pages = pool.allocator.block_physical_stride // pool.page
        return torch.div(entries.to(torch.int64), pages, rounding_mode="floor")

    def block_slots(self, pool: CachePool, blocks: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        slots = blocks * pool.page + offsets
        first = 2 * pool.allocator.blocks_per_sector * pool.page
        strays = (offsets >= pool.page) | (slots < first) | (slots >= pool.num_slots)
        return slots.masked_fill_(strays, pool.num_slots)

    def source(self, pool: CachePool, layer: int, half: str) -> RealKvSource:
        allocator, place = pool.allocator, pool.layers.index(layer)
        row = allocator.num_key_value_heads * allocator.head_dim * allocator.cache_dtype.itemsize
        begin = place * allocator.bytes_per_page + (pool.page * row if half == "V" else 0)
        blocks = self.cache.cache_tensor.view(-1, allocator.bytes_per_block)
        return RealKvSource(blocks[:, begin : begin + pool.page * row], pool.page, row, row)

    def hashed_blocks(self, pool: CachePool) -> Iterable[int]:
        return pool.allocator.ledger.block_to_hash

    def is_complete(self, pool: CachePool, block: int) -> bool:
        return block in pool.allocator.ledger.block_to_hash

    def in_use(self) -> bool:
        return any(pool.allocator.block_table or pool.allocator.ledger.block_to_hash for pool in self.pools)
