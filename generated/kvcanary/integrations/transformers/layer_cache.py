# Written by kvcanary-gen from the spec; edit that instead.
"""The cache of transformers 5.17: a tensor for the keys and one for the values of each layer of a group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ...structs import RealKvSource
from .pools import FULL, SLIDING, CachePool


class LayerCache:
    """A pool for each group of layers, as groups share tensors and take blocks from one manager.

    Slot 0 of the engine is one like any other, but that of the canary is a dummy that is never verified. So the
    engine's slot 0 is the canary's last one, behind the cache's bytes: all is checked there but the real KV.
    """

    # Attributes by which such a cache is known, and the version that has it.
    ATTRIBUTES = ("key_cache", "value_cache", "group_cache_managers", "_block_manager", "layer_index_to_group_indices")
    VERSIONS = "transformers 5.17"

    def __init__(self, cache: Any) -> None:
        self.cache = cache
        self._instead_of_0 = cache.key_cache[0].shape[0]
        self._end = cache.num_blocks * cache.block_size
        windows = [self._window(group) for group in range(cache.num_groups)]
        self.pools = [self._pool(group, windows) for group in range(cache.num_groups)]

    def _layers(self, group: int) -> tuple[int, ...]:
        places = {place: layer for layer, (at, place) in self.cache.layer_index_to_group_indices.items() if at == group}
        return tuple(places[place] for place in sorted(places))

    def _window(self, group: int) -> int:
        return getattr(self.cache.group_cache_managers[group], "sliding_window", 0)

    def _pool(self, group: int, windows: list[int]) -> CachePool:
        attention = SLIDING if windows[group] else FULL
        same = [other for other, window in enumerate(windows) if bool(window) == bool(windows[group])]
        return CachePool(
            name=attention if len(same) == 1 else f"{attention}_{same.index(group)}",
            attention=attention,
            index=group,
            window=windows[group],
            page=self.cache.block_size,
            num_slots=self._instead_of_0 + 1,
            layers=self._layers(group),
            allocator=self.cache.group_cache_managers[group],
            unhashed=self._instead_of_0,
        )

    def read_slots(self, pool: CachePool, raw: torch.Tensor) -> torch.Tensor:
        slots = raw.masked_fill((raw < 0) | (raw >= self._end), pool.num_slots)
        return slots.masked_fill_(raw == 0, self._instead_of_0)

    def write_slots(self, pool: CachePool, raw: torch.Tensor) -> torch.Tensor:
        return self.read_slots(pool, raw).masked_fill_(raw == self.cache.write_trash_index, -1)

    def block_numbers(self, pool: CachePool, entries: torch.Tensor) -> torch.Tensor:
        return entries.to(torch.int64)

    def block_slots(self, pool: CachePool, blocks: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return self.read_slots(pool, blocks * pool.page + offsets)

    def source(self, pool: CachePool, layer: int, half: str) -> RealKvSource:
        caches = self.cache.key_cache if half == "K" else self.cache.value_cache
        tensor = caches[pool.layers.index(layer)]
        row = tensor[0].numel() * tensor.element_size()
        return RealKvSource(tensor.view(-1, pool.page * tensor[0].numel()), pool.page, row, row)

    def hashed_blocks(self, pool: CachePool) -> Iterable[int]:
        manager = self.cache._block_manager
        if not pool.allocator.uses_block_sharing:
            return []
        return [block for block in manager._hash_to_id.values() if manager._id_to_block[block].group_id == pool.index]

    def is_complete(self, pool: CachePool, block: int) -> bool:
        if not pool.allocator.uses_block_sharing:
            return False
        known = self.cache._block_manager._id_to_block.get(block)
        return known is not None and known.is_complete

    def in_use(self) -> bool:
        return any(pool.allocator.block_table for pool in self.pools) or bool(self.cache._block_manager._hash_to_id)
