# Written by kvcanary-gen from the spec; edit that instead.
"""One engine with the canary around its forwards, and told of everything that moves its blocks."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ...runtime.config import CanaryConfig
from ...runtime.manager import CanaryManager
from ...runtime.sweep import CacheWalk
from ...runtime.transfers import ExportedSlots
from .batches import BatchReader
from .history import TokenHistory
from .pools import CachePool, pool_slots
from .sizing import buffer_groups, layout_of, sized

# Requests by which the engine warms up read slots that nobody has written.
WARM_UP = "__warmup_"
# Tokens of a history's row to begin with; it grows with the requests.
HISTORY_WIDTH = 1024


class _Exported(NamedTuple):
    """Fingerprints of a request on the host, and the slots (on the host) that they come from."""

    slots: torch.Tensor
    records: ExportedSlots


class Attachment:
    """The canary of one batch processor.

    Forwards, copies and transfers are wrapped on the very objects of the engine, so nothing of it is edited. All work
    goes to the engine's compute stream, from the engine's own thread.

    Attributes:
        manager (CanaryManager): What finds and reports; while it is open, the engine is watched.
    """

    def __init__(self, processor: Any, config: CanaryConfig, layers: str | Sequence[int]) -> None:
        self._processor = processor
        self._layout = layout_of(processor.cache)
        config = sized(config, self._layout, processor.cb_config)
        groups = buffer_groups(self._layout, config, layers)
        self.manager = CanaryManager(groups, config, stream=processor.inputs_and_outputs.compute_stream)
        self._exported: dict[str, dict[str, _Exported]] = {}
        # Place of each block in its request, for sweeps: the engine itself forgets it.
        self._places: dict[str, dict[int, int]] = {pool.name: {} for pool in self._layout.pools}
        if not self.manager.active:
            return
        device = self.manager.device
        self._reader = BatchReader(self._layout, TokenHistory(2 * config.max_requests, HISTORY_WIDTH, device), device)
        if self._layout.in_use():
            for pool in self._layout.pools:
                self.manager.drop_slots(pool=pool.name)
        self.manager.walker = self
        self.manager.mark_warm()
        self._wrap_all()

    def _wrap_all(self) -> None:
        cache, offloading = self._processor.cache, self._processor.offloading_manager
        self._wrap(self._processor.model_runner, "compute_batch", self._compute)
        self._wrap(cache, "perform_cache_copy" if hasattr(cache, "perform_cache_copy") else "copy_cache", self._copy)
        self._wrap(offloading, "_offload_to_cpu", self._offload)
        self._wrap(offloading, "restore_scheduled_requests", self._restore)
        self._wrap(offloading, "reset", self._reset)

    def _wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Puts `around` in the place of a method; it gets the method first. Once closed, the method is as it was."""
        method = getattr(owner, name)

        @functools.wraps(method)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if self.manager.closed:
                return method(*args, **kwargs)
            return around(method, *args, **kwargs)

        setattr(owner, name, wrapped)

    # --- forwards -----------------------------------------------------------------------------------------------------

    def _compute(self, method: Callable[..., Any], model: Any, data: dict[str, Any]) -> Any:
        requests = self._requests()
        if any(request.state.request_id.startswith(WARM_UP) for request in requests):
            return method(model, data)
        with self._on_stream():
            # Tokens that the step before has generated, where it is still under way; the engine does it once more.
            outputs = self._processor.inputs_and_outputs
            carried, before, _ = outputs.get_cb_kwargs()
            outputs.carry_over_tokens(data["input_ids"], carried, before)
            batch = self._reader.read(data, requests)
        with self.manager.forward(batch):
            answer = method(model, data)
        self._note_places(requests)
        self.manager.step_end()
        return answer

    def _requests(self) -> list[Any]:
        outputs = self._processor.inputs_and_outputs
        pairs = getattr(outputs, "io_pairs", None)
        if pairs is not None:
            outputs = pairs[outputs.current_pair].host_io
        return list(outputs.requests_in_batch)

    def _on_stream(self) -> contextlib.AbstractContextManager[object]:
        stream = self.manager.stream
        return contextlib.nullcontext() if stream is None else torch.cuda.stream(stream)

    # --- blocks that move ---------------------------------------------------------------------------------------------

    def _slots(self, pool: CachePool, blocks: Sequence[int]) -> torch.Tensor:
        slots = pool_slots(self._layout, pool, blocks)
        return slots.pin_memory() if self.manager.device.type == "cuda" else slots

    def _copy(self, method: Callable[..., Any], *blocks: Any) -> Any:
        """A fork: blocks that it does not share are copied, by pool or, where pools share tensors, in all of them."""
        answer = method(*blocks)
        by_pool = blocks[0] if isinstance(blocks[0], Mapping) else {pool.name: blocks for pool in self._layout.pools}
        for pool in self._layout.pools:
            source, target = by_pool[pool.name]
            if source:
                slots, to = self._slots(pool, source), self._slots(pool, target)
                self.manager.copy_slots(slots, to, pool=pool.name)
                self._drop_unhashed(pool, slots, to)
                places = self._places[pool.name]
                places.update((to, places[block]) for block, to in zip(source, target, strict=True) if block in places)
        return answer

    def _drop_unhashed(self, pool: CachePool, source: torch.Tensor, target: torch.Tensor) -> None:
        """Where real bytes were hashed on one side of a move alone, the fingerprint does not fit."""
        mixed = (source == pool.unhashed) ^ (target == pool.unhashed)
        if mixed.any():
            self.manager.drop_slots(target[mixed], pool=pool.name)

    def _offload(self, method: Callable[..., Any], victims: Sequence[Any], *tables: Any) -> Any:
        """Requests whose blocks go to the host take their fingerprints along, in the order of their positions."""
        blocks = {
            state.request_id: {
                pool.name: tables[0][state.request_id][pool.name] if tables else pool.blocks(state.request_id)
                for pool in self._layout.pools
            }
            for state in victims
        }
        gone = method(victims, *tables)
        waiting = self._processor.offloading_manager._request_id_to_cpu_blocks
        self._exported = {name: exported for name, exported in self._exported.items() if name in waiting}
        for name in gone:
            own = blocks[name]
            self._exported[name] = {pool.name: self._export(pool, own[pool.name]) for pool in self._layout.pools}
        return gone

    def _export(self, pool: CachePool, blocks: Sequence[int]) -> _Exported:
        slots = self._slots(pool, blocks)
        return _Exported(slots, self.manager.export_slots(slots, pool=pool.name))

    def _restore(self, method: Callable[..., Any], requests: Sequence[Any]) -> Any:
        """They come back to other blocks, with what was taken along for each place."""
        states = [request.state for request in requests if request.state.is_cpu_offloaded]
        answer = method(requests)
        for state in states:
            exported = self._exported.pop(state.request_id, {})
            for pool in self._layout.pools:
                self._import(pool, pool.blocks(state.request_id), exported.get(pool.name))
        return answer

    def _import(self, pool: CachePool, blocks: list[int], exported: _Exported | None) -> None:
        count = 0 if exported is None else len(exported.slots) // pool.page
        if exported is None or len(blocks) < count:
            # Offloaded before the canary came, or cut: what these blocks hold is not known.
            self.manager.drop_slots(self._slots(pool, blocks), pool=pool.name)
        elif count:
            slots = self._slots(pool, blocks[:count])
            self.manager.import_slots(slots, exported.records, pool=pool.name)
            self._drop_unhashed(pool, exported.slots, slots)
        self._places[pool.name].update((block, place) for place, block in enumerate(blocks))

    def _reset(self, method: Callable[..., Any]) -> Any:
        """A new session: what was offloaded is gone, what the prefix cache holds stays valid."""
        self._exported.clear()
        return method()

    # --- sweeps -------------------------------------------------------------------------------------------------------

    def _note_places(self, requests: Sequence[Any]) -> None:
        if not self.manager.config.sweep_interval:
            return
        for pool in self._layout.pools:
            places = self._places[pool.name]
            for request in requests:
                end = request.state.position_offset
                first, last = (end - request.query_length) // pool.page, (end - 1) // pool.page
                blocks = pool.blocks(request.state.request_id)[: last + 1]
                places.update((block, place) for place, block in enumerate(blocks) if place >= first)

    def walk(self, pool: str) -> CacheWalk | None:
        """Everything that the prefix cache knows of a pool, for sweeps; links are checked within each block."""
        found = next(known for known in self._layout.pools if known.name == pool)
        places = self._places[pool]
        blocks = [block for block in self._layout.hashed_blocks(found) if block in places]
        if not blocks:
            return None
        begins = torch.tensor([places[block] * found.page for block in blocks], dtype=torch.int64)
        slots = self._slots(found, blocks).view(-1, found.page)
        before = torch.cat([(begins[:, None] > 0).long() - 1, slots[:, :-1]], dim=1)
        positions = begins[:, None] + torch.arange(found.page)
        return CacheWalk(slots.reshape(-1), positions.reshape(-1), before.reshape(-1))
