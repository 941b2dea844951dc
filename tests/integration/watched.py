"""An engine with the canary attached, and pokes at its inside that are the same for both layouts of the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from kvcanary import CanaryConfig, CanaryManager, ViolationRecord
from kvcanary.integrations.transformers import attach
from tests.integration.engines import PAGE, SMALL, SteppedEngine, make_model, newer


class WatchedEngine(SteppedEngine):
    """Remembers what was found in each step."""

    def __init__(
        self, model: str, *, config: dict[str, Any] | None = None, layers: Any = "first", **settings: Any
    ) -> None:
        attention = settings.pop("attention", "sdpa")
        super().__init__(make_model(model, attention), **{"safety_margin": 0.0, **settings})
        wanted = {**SMALL, **(config or {})}
        self.canary: CanaryManager = attach(self.manager, CanaryConfig(**wanted), layers=layers)
        self.found: list[ViolationRecord] = []
        step_end = self.canary.step_end

        def remembered(step: int | None = None) -> list[ViolationRecord]:
            records = step_end(step)
            self.found += records
            return records

        self.canary.step_end = remembered  # type: ignore[method-assign]

    def close(self) -> None:
        self.canary.close()

    def clean(self, steps: int) -> None:
        """Some steps, in none of which anything is found."""
        for _ in range(steps):
            assert self.step()
        assert not self.found, self.found[:3]

    def step_and_see(self) -> list[ViolationRecord]:
        """One step, and what was found in it."""
        before = len(self.found)
        assert self.step()
        return self.found[before:]

    # --- the engine's own parts ---------------------------------------------------------------------------------------

    def blocks(self, name: str, pool: int = 0) -> list[int]:
        return self.allocators[pool].block_table[name]

    def slot(self, name: str, position: int, pool: int = 0) -> int:
        """The canary's slot of a position."""
        slot = self.blocks(name, pool)[position // PAGE] * PAGE + position % PAGE
        return slot if newer() or slot else self.cache.key_cache[0].shape[0]

    def free_only(self, block: int) -> None:
        """Makes this block the next one that is handed out."""
        if newer():
            pool, index = self.cache.pool, self.allocators[0].index
            pool.free_sectors.clear()
            pool._free_blocks[index].trees.clear()
            pool._free_blocks[index]._length = 0
            pool.free_blocks(index, [block])
        else:
            manager = self.cache._block_manager
            manager._uninit_block_ids.clear()
            for cached in list(manager._init_block_ids):
                manager._init_block_ids.pop(cached)
            manager._uninit_block_ids.append(block)

    def hash_of(self, parent: int | None, tokens: list[int]) -> int:
        if newer():
            from transformers.generation.continuous_batching.cache_allocators.cache_allocator import compute_block_hash

            return compute_block_hash(parent, tokens)
        return self.cache._block_manager.compute_hash(parent, tokens, 0)

    def point_hash(self, hash_: int, block: int) -> None:
        """Lets the prefix cache find a block by a hash."""
        if newer():
            self.allocators[0].ledger.hash_to_block[hash_] = block
            self.allocators[0].ledger.block_to_hash[block] = hash_
        else:
            self.cache._block_manager._hash_to_id[hash_] = block
            self.cache._block_manager._id_to_block[block].hash = hash_

    def lose_reference(self, block: int) -> None:
        if newer():
            assert self.allocators[0].ledger.shared_ref_counts.pop(block) == 2
        else:
            known = self.cache._block_manager._id_to_block[block]
            assert known.ref_count == 2
            known.ref_count = 1

    def weaken_hash(self) -> Callable[[], None]:
        """Blocks at the same place are told apart no longer; answers how to undo it."""
        if newer():
            from transformers.generation.continuous_batching.cache_allocators import cache_allocator as owner

            name, strong = "compute_block_hash", None
        else:
            owner, name = self.cache._block_manager, "compute_hash"
        strong = getattr(owner, name)
        setattr(owner, name, lambda parent, tokens, *more, **named: strong(parent, [0] * len(tokens), *more, **named))
        return lambda: setattr(owner, name, strong)

    def flip(self, slot: int, layer: int = 0, half: int = 0, byte: int = 5) -> None:
        """Flips a bit of the real bytes of a slot, in one layer's keys or values."""
        block, offset = divmod(slot, PAGE)
        if newer():
            allocator = self.allocators[0]
            row = allocator.bytes_per_page // (2 * PAGE)
            place = block * allocator.bytes_per_block + layer * allocator.bytes_per_page + (half * PAGE + offset) * row
            self.cache.cache_tensor[place + byte] ^= 1
        else:
            cache = (self.cache.value_cache if half else self.cache.key_cache)[layer]
            cache[slot].view(torch.uint8).view(-1)[byte] ^= 1

    def offloaded(self, name: str) -> list[int]:
        """Blocks on the host of a request that was offloaded; the list itself."""
        found = self.processor.offloading_manager._request_id_to_cpu_blocks[name]
        return found["full_attention"] if newer() else found

    def spoil_offloaded(self, block: int) -> None:
        """Other bytes in a block on the host."""
        offloading = self.processor.offloading_manager
        views = [offloading._cpu_views["full_attention"]] if newer() else offloading._cpu_key_cache
        for view in views:
            view[block] = 0

    def skew_inputs(self, name: str, request: str) -> None:
        """Adds one to the last new token of a request in the next batch, or to its position."""
        outputs = self.processor.inputs_and_outputs
        prepare = outputs.prepare_batch_tensors

        def skewed(requests_in_batch: Any, *args: Any, **kwargs: Any) -> None:
            prepare(requests_in_batch, *args, **kwargs)
            outputs.prepare_batch_tensors = prepare
            names = [future.state.request_id for future in requests_in_batch]
            end = sum(future.query_length for future in requests_in_batch[: names.index(request) + 1])
            getattr(outputs, name)[end - 1] += 1

        outputs.prepare_batch_tensors = skewed

    def skew_indices(self, name: str, request: str, change: Callable[[list[int]], list[int]], pool: int = 0) -> None:
        """Changes the indices of one request in the next batch alone."""
        allocator = self.allocators[pool]
        method = getattr(allocator, name)

        def skewed(request_id: str, *args: Any, **kwargs: Any) -> list[int]:
            found = method(request_id, *args, **kwargs)
            if request_id != request:
                return found
            setattr(allocator, name, method)
            return change(found)

        setattr(allocator, name, skewed)


def reasons(records: list[ViolationRecord]) -> Iterator[str]:
    return (reason for record in records for reason in record.reasons)
