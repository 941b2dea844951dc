# Written by kvcanary-gen from the spec; edit that instead.
"""A miniature LLM engine: real tables, pools and tensors, a model without weights, and no more code than that needs.

It works as servers do: paged pools for full and sliding-window layers, a radix prefix cache, chunked prefill,
preemption, several samples of a prompt with copy on write, drafts, padded decode batches. Its outputs depend on every
cached byte, and on nothing else: they are the same with the cache on and off, with any page size, on a CPU and a GPU.

    engine = Engine(EngineConfig())
    engine.submit([3, 1, 4, 1, 5], max_new=8)
    while engine.busy:
        while (batch := engine.schedule()) is not None:  # the forwards of one step
            engine.copy(batch)
            engine.forward(batch)  # a canary sits around this
            engine.finish(batch)
    print(engine.outputs)
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from .. import errors
from .pool import KvPools
from .radix import CachedSlot
from .requests import Batch, EngineConfig, Request, Work
from .scheduler import DECODE, Scheduler
from .toy_model import Layer, Model

_PER_REQUEST = ("req_pool_indices", "prefix_lens", "extend_seq_lens", "history_lens")
_PER_TOKEN = ("input_ids", "positions", "out_cache_loc", "expected_tokens", "expected_positions", "token_rows", "salts")


class Engine:
    """The device side, and the loop: `schedule`, `copy`, `forward`, `finish` for every forward of a step.

    Attributes:
        req_to_token (int32 [rows, max_context]): slot of every position of every row; stale behind a request's end.
        token_history (int32 [rows, max_context]): tokens of every row's request; stale behind its end.
        pools (KvPools): the pools' pages; `pools.mapping` translates slots to those of the window.
        model (Model): its layers hold the real KV bytes.
        scheduler (Scheduler): who runs and who waits.
        step (int): steps that have ended.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.device = torch.device(config.device)
        self.pools = KvPools(
            page_size=config.page_size,
            full_pages=config.full_pages,
            swa_pages=config.swa_pages,
            window=config.window,
            device=self.device,
            seed=config.seed,
        )
        self.model = Model(
            full_layers=config.full_layers,
            swa_layers=config.swa_layers,
            full_pages=config.full_pages,
            swa_pages=config.swa_pages,
            page_size=config.page_size,
            bytes_per_token=config.bytes_per_token,
            window=config.window,
            vocabulary=config.vocabulary,
            device=self.device,
        )
        self.scheduler = Scheduler(config, self.pools)
        self.req_to_token = torch.zeros([config.rows, config.max_context], dtype=torch.int32, device=self.device)
        self.token_history = torch.zeros_like(self.req_to_token)
        self.step = 0
        self._forward = 0
        self._phase = 0
        self._requests = 0
        self._decode_buffers: dict[int, dict[str, torch.Tensor]] = {}

    # --- requests -----------------------------------------------------------------------------------------------------

    def submit(self, prompt: list[int], *, max_new: int, samples: int = 1) -> int:
        """Queues a prompt and returns its id.

        Args:
            prompt (list of int): at least two token ids.
            max_new (int): tokens to generate, at least 1.
            samples (int): how many continuations.
        """
        _require(len(prompt) >= 2, "prompt", "have at least 2 tokens", len(prompt))
        _require(max_new >= 1, "max_new", "be at least 1", max_new)
        _require(samples >= 1, "samples", "be at least 1", samples)
        longest, room = len(prompt) + max_new, self.config.max_context - self.config.drafts - 1
        _require(longest <= room, "prompt with max_new", f"have at most {room} tokens", longest)
        for token in prompt:
            _require(0 <= token < self.config.vocabulary, "prompt", f"hold ids below {self.config.vocabulary}", token)
        self.scheduler.waiting.append(Request(self._requests, 0, list(prompt), max_new, samples - 1))
        self._requests += 1
        return self._requests - 1

    @property
    def busy(self) -> bool:
        """Whether any request is not finished."""
        return bool(self.scheduler.waiting or self.scheduler.running)

    @property
    def outputs(self) -> dict[str, list[int]]:
        """Generated tokens of every finished request by its name."""
        return {request.name: request.tokens[len(request.prompt) :] for request in self.scheduler.finished}

    # --- the loop -----------------------------------------------------------------------------------------------------

    def schedule(self) -> Batch | None:
        """The next forward of this step, with the device's tables up to date; None ends the step."""
        every = self.config.preempt_every
        if self._phase == 0 and every and self.step % every == every - 1:
            self.scheduler.preempt_at_random()
        while self._phase < 2:
            self._phase += 1
            work = self.scheduler.prefill() if self._phase == 1 else self.scheduler.decode()
            self._flush()
            if work is not None:
                self._forward += 1
                return self._batch(work)
        self._phase = self._forward = 0
        self.step += 1
        return None

    def copy(self, batch: Batch) -> None:
        """Makes the copies that the forward needs. Fingerprints of the same slots have to move too."""
        copies = batch.copies
        for layers, sources, targets in (
            (self.model.full_layers, copies.sources, copies.targets),
            (self.model.swa_layers, copies.swa_sources, copies.swa_targets),
        ):
            if sources and not batch.copied:
                places = torch.tensor([sources, targets], dtype=torch.int64).to(self.device)
                for layer in layers:
                    layer.copy(places[0], places[1])
        batch.copied = True

    def forward(self, batch: Batch) -> None:
        """Runs the model. Device work alone, so a CUDA graph may hold it, once `copy` is done."""
        if batch.copies and not batch.copied:
            count = len(batch.copies.sources)
            raise errors.CanaryRuntimeError(
                "KVC-092", f"kv-canary: Engine.forward needs Engine.copy first: {count} slots are not copied yet"
            )
        batch.next_tokens.copy_(
            self.model.forward(
                input_ids=batch.input_ids,
                positions=batch.positions,
                token_rows=batch.token_rows,
                out_cache_loc=batch.out_cache_loc,
                salts=batch.salts,
                req_to_token=self.req_to_token,
                mapping=self.pools.mapping,
            )
        )

    def finish(self, batch: Batch) -> None:
        """Reads what the model said and moves the requests on. Waits for the device."""
        said = batch.next_tokens.tolist()
        words, first = [], 0
        for item in batch.work.items:
            words.append(said[first : first + len(item.tokens)])
            first += len(item.tokens)
        self.scheduler.finish(batch.work, words)

    def cached_slots(self) -> Iterator[CachedSlot]:
        """Everything that the prefix cache holds, for sweeps."""
        return self.scheduler.cache.walk()

    def layers(self, group: str) -> list[Layer]:
        """Layers on the pool `FULL` or `SWA`."""
        return {"FULL": self.model.full_layers, "SWA": self.model.swa_layers}[group]

    # --- tensors ------------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Brings the device's tables up to date with the host's."""
        # A position may have changed more than once; the last change holds.
        changes = {(row, position): slot for row, position, slot in self.scheduler.table_changes}
        if changes:
            places = torch.tensor([(*key, slot) for key, slot in changes.items()], dtype=torch.int64).to(self.device)
            self.req_to_token[places[:, 0], places[:, 1]] = places[:, 2].to(torch.int32)
        self.scheduler.table_changes.clear()
        self.pools.flush()

    def _batch(self, work: Work) -> Batch:
        decode = work.kind == DECODE
        bs = next(size for size in self.config.decode_sizes if size >= len(work.items)) if decode else len(work.items)
        columns = self._columns(work, bs)
        self._record(work)
        if decode:
            if bs not in self._decode_buffers:
                self._decode_buffers[bs] = self._allocate(bs, bs * (self.config.drafts + 1))
            tensors = self._decode_buffers[bs]
        else:
            tensors = self._allocate(bs, len(columns["input_ids"]))
        for name, values in columns.items():
            tensors[name].copy_(torch.tensor(values, dtype=torch.int64))
        return Batch(step=self.step, forward=self._forward - 1, kind=work.kind, work=work, copied=False, **tensors)

    def _record(self, work: Work) -> None:
        """Enters in the token history what has been said since the last forward."""
        places, tokens = [], []
        for item in work.items:
            request = item.request
            places += [(request.row, position) for position in range(request.recorded, len(request.tokens))]
            tokens += request.tokens[request.recorded :]
            request.recorded = len(request.tokens)
        if places:
            where = torch.tensor(places, dtype=torch.int64).T.to(self.device)
            self.token_history[where[0], where[1]] = torch.tensor(tokens, dtype=torch.int32).to(self.device)

    def _allocate(self, bs: int, tokens: int) -> dict[str, torch.Tensor]:
        sizes = dict.fromkeys(_PER_REQUEST, bs) | dict.fromkeys((*_PER_TOKEN, "next_tokens"), tokens)
        return {name: torch.zeros(size, dtype=torch.int64, device=self.device) for name, size in sizes.items()}

    def _columns(self, work: Work, bs: int) -> dict[str, list[int]]:
        """The batch as lists. Padding is row 0, with as many tokens as the others have, all of them 0 in slot 0."""
        columns: dict[str, list[int]] = {name: [] for name in (*_PER_REQUEST, *_PER_TOKEN)}
        for item in work.items:
            request, count = item.request, len(item.tokens)
            positions = range(item.start, item.start + count)
            values = {
                "req_pool_indices": [request.row],
                "prefix_lens": [item.start],
                "extend_seq_lens": [count],
                "history_lens": [len(request.tokens)],
                "input_ids": item.tokens,
                "positions": positions,
                "out_cache_loc": [self._slot(request, position) for position in positions],
                "expected_tokens": item.tokens,
                "expected_positions": positions,
                "token_rows": [request.row] * count,
                "salts": [request.sample * 0x9E3779B97F4A7C1] * count,
            }
            for name, more in values.items():
                columns[name] += more
        for name in columns:
            columns[name] += [0] * (bs - len(work.items)) * (self.config.drafts + 1 if name in _PER_TOKEN else 1)
        columns["extend_seq_lens"][len(work.items) :] = [self.config.drafts + 1] * (bs - len(work.items))
        return columns

    def _slot(self, request: Request, position: int) -> int:
        page, offset = divmod(position, self.config.page_size)
        return self.pools.slot(request.pages[page], offset)


def _require(holds: bool, name: str, rule: str, have: int) -> None:
    if not holds:
        raise errors.CanaryValueError("KVC-091", f"kv-canary: Engine.submit {name} must {rule}, got {have}")
