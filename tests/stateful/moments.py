"""Forwards of a running engine, kept so that each can be run again with something broken in it."""

from __future__ import annotations

import copy
import dataclasses
import random
from collections import Counter
from dataclasses import dataclass

import torch

from kvcanary.runtime.engine import Engine
from kvcanary.runtime.requests import Batch, EngineConfig
from kvcanary.runtime.toy_model import HALVES
from kvcanary.runtime.traffic import Traffic
from tests.support.contract import Entry

from .canary import BUSY, GROUPS, MODES, Canary, forwards, guarded
from .contract import New, Record, Source, verify, write

Key = tuple[str, str, str]  # stage, half, group
Seen = Counter[tuple[Key, int, int]]  # endpoint, slot, reason bits


@dataclass(frozen=True)
class Live:
    """A request of the batch, from the host's own lists: slots in the full pool of all its positions."""

    row: int
    prefix: int
    extend: int
    slots: list[int]


@dataclass(frozen=True)
class Truth:
    """What the batch really is. Nothing here comes from a table on the device."""

    live: list[Live]
    swa: list[int]
    window: int

    def place(self, slot: int, group: str) -> int:
        return self.swa[slot] if group == "SWA" else slot

    def cached(self, group: str) -> list[tuple[Live, int]]:
        """Requests and positions that the batch verifies."""
        first = {"FULL": lambda live: 0, "SWA": lambda live: max(0, live.prefix - self.window)}[group]
        return [(live, position) for live in self.live for position in range(first(live), live.prefix)]

    def entries(self, group: str) -> list[tuple[int, int]]:
        """Slot and predecessor of each of them."""
        return [
            (self.place(live.slots[p], group), self.place(live.slots[p - 1], group) if p else -1)
            for live, p in self.cached(group)
        ]

    def fresh(self) -> list[tuple[Live, int]]:
        """Requests and positions of the new tokens, in the order of the batch."""
        return [(live, p) for live in self.live for p in range(live.prefix, live.prefix + live.extend)]


@dataclass
class Moment:
    """A forward just before HEAD, and the contents of all tensors at that time."""

    batch: Batch
    histories: list[list[int]]
    truth: Truth
    contents: list[torch.Tensor]


class Bench:
    """An engine and its canary, and moments to put them back to."""

    def __init__(self, seed: int, steps: int, keep: int) -> None:
        config = EngineConfig(seed=seed, **BUSY)
        self.engine = Engine(config)
        self.canary = Canary(self.engine, MODES, "reference")
        self.moments: list[Moment] = []
        traffic, choice = Traffic(self.engine, seed), random.Random(seed)
        for step in range(steps):
            traffic.feed()
            for batch in forwards(self.engine):
                if step >= steps // 3 and len(self.moments) < keep and choice.random() < 0.6:
                    self.canary.copy(batch)
                    self.engine.copy(batch)
                    batch.work.copies.__init__()  # type: ignore[misc]
                    self.moments.append(self._capture(batch))
                guarded(self.engine, self.canary, batch)
        assert not self.canary.violations() and len(self.moments) == keep

    def tensors(self) -> list[torch.Tensor]:
        """Everything on the device but the batch."""
        pools = [layer.kv[half] for group in GROUPS for layer in self.engine.layers(group) for half in HALVES]
        mapping = self.engine.pools.mapping
        assert mapping is not None
        return [self.engine.req_to_token, mapping, self.canary.history, *self.canary.buffers.values(), *pools]

    def _capture(self, batch: Batch) -> Moment:
        pools = self.engine.pools
        live = [
            Live(item.request.row, item.start, len(item.tokens), slots[: item.start + len(item.tokens)])
            for item in batch.work.items
            for slots in [[pools.slot(page, o) for page in item.request.pages for o in range(pools.page_size)]]
        ]
        swa = [pools.swa_slot(slot) for slot in range(self.canary.slots["FULL"])]
        return Moment(
            self._cloned(batch),
            copy.deepcopy(batch.histories),
            Truth(live, swa, self.engine.config.window),
            [tensor.clone() for tensor in self.tensors()],
        )

    @staticmethod
    def _cloned(batch: Batch) -> Batch:
        fields = {f.name: getattr(batch, f.name) for f in dataclasses.fields(batch)}
        return Batch(**{k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in fields.items()})

    # --- one trial ----------------------------------------------------------------------------------------------------

    def restore(self, moment: Moment) -> Batch:
        """Puts everything back and returns a batch of its own, to be broken."""
        for tensor, contents in zip(self.tensors(), moment.contents, strict=True):
            tensor.copy_(contents)
        return self._cloned(moment.batch)

    def memory(self, stage: str) -> dict[Key, list[Record]]:
        """Fingerprints of a stage as records."""
        return {
            key: [Record.read(words) for words in buffer.view(torch.int64).tolist()]
            for key, buffer in self.canary.buffers.items()
            if key[0] == stage
        }

    def sources(self, half: str, group: str) -> list[Source]:
        return [
            Source([bytes(row) for row in s.tensor.numpy()], s.page_size, s.num_bytes_per_token, s.read_bytes)
            for s in self.canary.sources(half, group)
        ]

    def found(self) -> Seen:
        """What the kernels report."""
        rows = self.canary.violations()
        keys = {endpoint.tag: endpoint.name for endpoint in self.canary.endpoints}
        return Counter((keys[row.kernel_kind], row.slot_idx, row.fail_reason_bits) for row in rows)  # type: ignore[index]


def judged(
    stage: str,
    memory: dict[Key, list[Record]],
    sources: dict[tuple[str, str], list[Source]],
    plans: dict[str, tuple[list[Entry], list[tuple[int, list[New]]]]],
) -> Seen:
    """What one stage has to report, by the contract."""
    seen: Seen = Counter()
    for key, records in memory.items():
        _, half, group = key
        entries, segments = plans[group]
        rows = verify(records, entries, sources.get((half, group), ()), MODES[half]) + write(records, segments)
        seen.update((key, slot, bits) for slot, bits in rows)
    return seen
