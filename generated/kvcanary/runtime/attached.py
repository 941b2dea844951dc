# Written by kvcanary-gen from the spec; edit that instead.
"""The miniature engine with the canary attached, as one would attach it to a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import torch

from ..structs import RealKvSource
from .batch import CanaryBatch
from .config import CanaryConfig
from .engine import Engine
from .groups import CanaryBufferGroup
from .manager import CanaryManager
from .records import ViolationRecord
from .requests import Batch
from .scheduler import DECODE, PREFILL
from .stages import HALVES, POOL_KINDS
from .state import ExpectedInputs
from .sweep import CacheWalk

Hook = Callable[[Batch], None]


def groups_of(engine: Engine) -> list[CanaryBufferGroup]:
    """A group for each pool of the engine: every layer a real-KV source, all of its bytes."""
    config, groups = engine.config, []
    for kind, pages in (("FULL", config.full_pages), ("SWA", config.swa_pages)):
        if kind not in POOL_KINDS or not pages:
            continue
        sizes = (config.page_size, config.bytes_per_token, config.bytes_per_token)
        groups.append(
            CanaryBufferGroup.allocate(
                pool_kind=kind,
                num_slots=pages * config.page_size,
                device=engine.device,
                real_kv_sources={
                    half: [RealKvSource(layer.kv[half], *sizes) for layer in engine.layers(kind)] for half in HALVES
                },
                full_to_swa_index_mapping=engine.pools.mapping if kind == "SWA" else None,
                window_size=config.window if kind == "SWA" else 0,
            )
        )
    return groups


def canary_config(engine: Engine, sweep_interval: int) -> CanaryConfig:
    """Settings in which everything is checked, with room for the engine's largest batch."""
    config = engine.config
    most = max(config.decode_sizes[-1], config.rows)
    positions = config.rows * config.max_context
    return CanaryConfig(
        mode="log",
        real_kv_mode="ALL",
        forwards=(PREFILL, DECODE),
        max_requests=most,
        max_tokens=max(config.chunk, most * (config.drafts + 1)),
        verify_capacity=positions,
        sweep_capacity=positions,
        sweep_interval=sweep_interval,
    )


class _Graphs(NamedTuple):
    """A decode forward of one batch size: up to the end of the model, and what comes after it."""

    model: torch.cuda.CUDAGraph
    after: torch.cuda.CUDAGraph
    captured: CanaryBatch


class AttachedEngine:
    """Runs an engine step by step with a manager around every forward; on CUDA, decode forwards are graphs.

    Attributes:
        engine (Engine), manager (CanaryManager): the two.
        counts (Counter): what the engine has done so far: forwards of each kind, replays of graphs, padded batches,
            copies on write, shared pages, preemptions.
    """

    def __init__(self, engine: Engine, *, sweep_interval: int = 0) -> None:
        self.engine = engine
        self.manager = CanaryManager(groups_of(engine), canary_config(engine, sweep_interval))
        self.manager.walker = self
        self.counts: Counter[str] = Counter()
        self._graphs: dict[int, _Graphs | None] = {}

    def step(self, before: Hook | None = None, after: Hook | None = None) -> list[ViolationRecord]:
        """One step of the engine; returns the violations that have arrived.

        Args:
            before: called before each forward, with slots copied and tables up to date.
            after: called when the model has run, before the canary looks again.
        """
        while (batch := self.engine.schedule()) is not None:
            self._copy(batch)
            if before is not None:
                before(batch)
            if self._replays(batch):
                self._replay(batch, after)
            else:
                self._run(batch, after)
            self.engine.finish(batch)
            self._count(batch)
        return self.manager.step_end()

    def _count(self, batch: Batch) -> None:
        holders, size = self.engine.pools.full.holders, self.engine.config.page_size
        self.counts[batch.kind] += 1
        self.counts["padded batches"] += len(batch.prefix_lens) > len(batch.work.items)
        self.counts["copies on write"] += len({target // size for target in batch.copies.targets})
        self.counts["shared pages"] = max(self.counts["shared pages"], sum(count > 1 for count in holders))
        self.counts["preemptions"] = self.engine.scheduler.preemptions

    def _copy(self, batch: Batch) -> None:
        """Fingerprints go where their slots go."""
        copies = batch.copies
        places = {"FULL": (copies.sources, copies.targets), "SWA": (copies.swa_sources, copies.swa_targets)}
        for group in self.manager.groups:
            sources, targets = places[group.pool_kind]
            if sources:
                self.manager.copy_slots(sources, targets, pool=group.name)
        self.engine.copy(batch)

    def _run(self, batch: Batch, after: Hook | None) -> None:
        given = self.canary_batch(batch)
        self.manager.before_forward(given)
        self.engine.forward(batch)
        if after is not None:
            after(batch)
        self.manager.after_forward(given)

    # --- graphs -------------------------------------------------------------------------------------------------------

    def _replays(self, batch: Batch) -> bool:
        """Whether this forward is a graph: a size runs as it is the first time, so that its kernels are compiled."""
        if self.engine.device.type != "cuda" or batch.kind != DECODE:
            return False
        size = len(batch.prefix_lens)
        if size not in self._graphs:
            self._graphs[size] = None
            return False
        return True

    def _replay(self, batch: Batch, after: Hook | None) -> None:
        size = len(batch.prefix_lens)
        graphs = self._graphs[size]
        if graphs is None:
            graphs = self._graphs[size] = self._capture(batch)
        graphs.model.replay()
        if after is not None:
            after(batch)
        graphs.after.replay()
        self.manager.replayed(DECODE, batch.request_names, captured=graphs.captured)
        self.counts["replays"] += 1

    def _capture(self, batch: Batch) -> _Graphs:
        """Holds a forward and the canary around it. Faults are planted between the two graphs."""
        given = self.canary_batch(batch)
        graphs = _Graphs(torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph(), given)
        with torch.cuda.graph(graphs.model):
            self.manager.before_forward(given)
            self.engine.forward(batch)
        with torch.cuda.graph(graphs.after):
            self.manager.after_forward(given)
        return graphs

    # --- what the manager is told -------------------------------------------------------------------------------------

    def canary_batch(self, batch: Batch) -> CanaryBatch:
        """The engine's batch as the manager takes it; nothing is copied."""
        # Padding has no requests; their names are never asked for.
        names = batch.request_names + [""] * (len(batch.prefix_lens) - len(batch.work.items))
        return CanaryBatch(
            input_ids=batch.input_ids,
            positions=batch.positions,
            slots=batch.out_cache_loc,
            tables=self.engine.req_to_token,
            prefix_lens=batch.prefix_lens,
            extend_lens=batch.extend_seq_lens,
            rows=batch.req_pool_indices,
            history=self.engine.token_history,
            history_lens=batch.history_lens,
            expected=ExpectedInputs(tokens=batch.expected_tokens, positions=batch.expected_positions),
            forward=batch.kind,
            request_ids=names,
        )

    def walk(self, pool: str) -> CacheWalk | None:
        """Everything that the prefix cache holds, for sweeps; slots of the window's pool are translated there."""
        cached = list(self.engine.cached_slots())
        if not cached:
            return None
        slots, positions, predecessors, tokens = map(list, zip(*cached, strict=True))
        return CacheWalk(slots, positions, predecessors, tokens)
