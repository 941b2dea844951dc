# Written by kvcanary-gen from the spec; edit that instead.
"""One of the configured forwards, over all pools: from a batch to launches before and after the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from .. import errors
from ..core import checks
from .batch import CanaryBatch, of_pool
from .config import CanaryConfig
from .exclusions import SlotExclusions
from .forwards import PoolForward, check_capacity
from .groups import CanaryBufferGroup
from .inputs import Inputs, InputStage
from .mailbox import Mailbox
from .scratch import LaunchScratch
from .state import PlanInput
from .tables import RowStage, Table, TableStage, check_table, is_direct


class Begun(NamedTuple):
    """A forward that has begun: what its end launches with."""

    inputs: Inputs
    # Slots of the new tokens, by pool.
    slots: list[torch.Tensor]
    tokens: bool
    passes: int
    requests: int
    request_ids: Sequence[object] | None
    # Whether slots that were verified before the forward are written in it, by pool.
    rewritten: list[bool]


class ForwardState:
    """Plans, endpoints and room of one forward; `channel` is the place of its first pool in the mailbox."""

    def __init__(
        self,
        groups: Sequence[CanaryBufferGroup],
        config: CanaryConfig,
        mailbox: Mailbox,
        channel: int,
        chain: torch.Tensor,
        exclusions: Sequence[SlotExclusions | None],
    ) -> None:
        device = groups[0].device
        self._groups, self._config = groups, config
        self._first = first_pool(groups)
        self._inputs = InputStage(config.max_requests, config.max_tokens, device)
        self._rows = RowStage(config.max_requests, device)
        self._stages: dict[str, TableStage] = {}
        if config.max_length:
            for group in groups:
                if group.full_to_swa_index_mapping is None:
                    self._stages[group.name] = TableStage(
                        group.block_size, config.max_requests, config.max_length, device
                    )
            self._stages["history"] = TableStage(1, config.max_requests, config.max_length, device)
        self._slots = torch.empty([len(groups), config.max_tokens], dtype=torch.int64, device=device)
        self.scratch = LaunchScratch.allocate(
            max_requests=config.max_requests, max_tokens=config.max_tokens, device=device
        )
        self.pools = [
            PoolForward(
                group,
                config,
                mailbox.state(channel + place, chain, self.scratch),
                mailbox.plan_counts(channel + place),
                exclusions[place],
            )
            for place, group in enumerate(groups)
        ]

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Everything that was allocated here."""
        found = [self._slots, *self._inputs.tensors(), *self._rows.tensors(), *self.scratch.tensors()]
        for stage in self._stages.values():
            found += stage.tensors()
        for pool in self.pools:
            found += pool.tensors()
        return tuple(found)

    # --- before and after ---------------------------------------------------------------------------------------------

    def check(self, batch: CanaryBatch) -> None:
        """Refuses a batch that is larger than configured, or that does not fit the pools; nothing is changed."""
        config = self._config
        check_capacity("requests of the batch:", batch.num_requests, "max_requests", config.max_requests)
        check_capacity("new tokens of the batch:", batch.num_new_tokens, "max_tokens", config.max_tokens)
        names = {group.name for group in self._groups}
        for name in ("slots", "tables", "excused"):
            given = getattr(batch, name)
            for pool in given if not isinstance(given, torch.Tensor) else ():
                if pool not in names:
                    name, want, have = f"batch.{name}", f"name pools: {', '.join(sorted(names))}", repr(pool)
                    raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
        for pool in batch.rewritten:
            if pool not in names:
                name, want, have = "batch.rewritten", f"name pools: {', '.join(sorted(names))}", repr(pool)
                raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
        for group in self._groups:
            mapped = group.full_to_swa_index_mapping is not None and group.name != self._first
            if mapped and not isinstance(batch.tables, torch.Tensor) and group.name in batch.tables:
                name, want, have = "batch.tables", "name pools without a mapping alone", repr(group.name)
                raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")

        self._inputs.check(batch)
        for place in range(len(self._groups)):
            self._check_slots(place, batch)
        self._check_tables(batch)

    def before(self, batch: CanaryBatch) -> Begun:
        """Plans all pools and launches what runs before the forward."""
        inputs = self._inputs.load(batch)
        slots = [self._own_slots(place, batch) for place in range(len(self._groups))]
        tables = self._tables(batch, inputs)
        tokens = batch.history is not None and self._config.assert_tokens
        # The longest chain of requests that go on from each other has all of them; more passes change nothing.
        passes = min(batch.write_passes, max(1, batch.num_requests))
        rewritten = [group.name in batch.rewritten for group in self._groups]
        begun = Begun(inputs, slots, tokens, passes, batch.num_requests, batch.request_ids, rewritten)
        history = self._history(batch, inputs, tables) if tokens else None
        for pool, table in zip(self.pools, tables, strict=True):
            offset = pool.group.kv_token_id_vs_position_offset if batch.token_offset is None else batch.token_offset
            pool.plan(_plan_input(batch, inputs, table, history), offset)
        self._launch("before", begun)
        return begun

    def after(self, begun: Begun) -> None:
        """Launches what runs after the forward."""
        for pool, slots, rewritten in zip(self.pools, begun.slots, begun.rewritten, strict=True):
            pool.forget_rewritten(slots if rewritten else None)
        self._launch("after", begun)
        for pool, slots in zip(self.pools, begun.slots, strict=True):
            if pool.exclusions is not None:
                pool.exclusions.written(slots)

    def _launch(self, when: str, begun: Begun) -> None:
        for pool, slots in zip(self.pools, begun.slots, strict=True):
            pool.launch(when, begun.inputs, slots, tokens=begun.tokens, passes=begun.passes)

    # --- what a batch gives -------------------------------------------------------------------------------------------

    def _given(self, name: str, batch: CanaryBatch, pool: str) -> torch.Tensor:
        found = of_pool(f"batch.{name}", getattr(batch, name), pool, self._first)
        group = next(group for group in self._groups if group.name == pool)
        if found is None and group.full_to_swa_index_mapping is not None:
            found = of_pool(f"batch.{name}", getattr(batch, name), self._first, self._first)
        if found is None:
            name, want, have = f"batch.{name}", f"give a tensor for pool {pool}, which has no mapping", "none"
            raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
        return found

    def _check_slots(self, place: int, batch: CanaryBatch) -> None:
        group = self._groups[place]
        slots = self._given("slots", batch, group.name)
        name = f"batch.slots[{group.name!r}]"
        checks.kind(name, slots, torch.Tensor)
        checks.length(name, slots.numel(), batch.num_new_tokens)
        checks.devices([("the pool", group.first_buffer, torch.uint8, 2), (name, slots, torch.int64, 1)])
        if slots.dtype not in (torch.int32, torch.int64):
            want, have = "be of int32 or int64", f"{slots.dtype}"
            raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")

    def _own_slots(self, place: int, batch: CanaryBatch) -> torch.Tensor:
        group, pool = self._groups[place], self.pools[place]
        slots = self._given("slots", batch, group.name)
        if slots.dtype != torch.int64 or slots.dim() != 1 or not slots.is_contiguous():
            room = self._slots[place, : slots.numel()]
            room.view(slots.shape).copy_(slots)
            slots = room
        return pool.own_slots(slots)

    def _table_sources(self) -> list[CanaryBufferGroup]:
        """Pools with a mapping read the table of the first pool without one, as that pool does."""
        return [g if g.full_to_swa_index_mapping is None else self._group(self._first) for g in self._groups]

    def _check_tables(self, batch: CanaryBatch) -> None:
        given = [self._given("tables", batch, group.name) for group in self._groups]
        direct = []
        for group, source, table in zip(self._groups, self._table_sources(), given, strict=True):
            name = f"batch.tables[{group.name!r}]"
            check_table(name, table, batch)
            self._check_device(name, table)
            direct.append(is_direct(source, table, batch))
            if not direct[-1]:
                self._check_staged(source.name, name, table)
        if batch.history is not None and self._config.assert_tokens:
            self._check_history(batch, batch.history, direct, min(table.shape[0] for table in given))

    def _check_history(self, batch: CanaryBatch, history: torch.Tensor, direct: Sequence[bool], height: int) -> None:
        name = "batch.history"
        check_table(name, history, batch)
        self._check_device(name, history)
        if any(direct) and not (history.dtype == torch.int32 and history.is_contiguous()):
            want, have = "be of int32 and contiguous beside tables that are", f"{history.dtype}"
            raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
        if all(direct):
            return
        if batch.rows is not None and history.shape[0] < height:
            want, have = f"have a row for each of the tables' {height}", f"{history.shape[0]}"
            raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
        self._check_staged("history", name, history)

    def _check_staged(self, stage: str, name: str, given: torch.Tensor) -> None:
        """A table that is copied finds room."""
        if stage not in self._stages:
            want, have = "name its rows by batch.rows and hold slots, or max_length must be configured", "neither"
            raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
        self._stages[stage].check(name, given)

    def _check_device(self, name: str, given: torch.Tensor) -> None:
        checks.devices([("the pool", self._groups[0].first_buffer, torch.uint8, 2), (name, given, torch.int32, 2)])

    def _tables(self, batch: CanaryBatch, inputs: Inputs) -> list[Table]:
        """A table for each pool; a table that several pools share is copied once."""
        given = [self._given("tables", batch, group.name) for group in self._groups]
        sources = self._table_sources()
        keys = [(id(table), source.block_size) for table, source in zip(given, sources, strict=True)]
        # A row is padding for all pools where any table has no such row.
        height = min(table.shape[0] for table in given)
        done: dict[tuple[int, int], Table] = {}
        for key, source, table in zip(keys, sources, given, strict=True):
            if key not in done and inputs.rows is not None and is_direct(source, table, batch):
                done[key] = Table(table, inputs.rows, True)
            elif key not in done:
                own, chosen = self._rows.of(inputs.rows, batch.num_requests, height)
                done[key] = Table(self._stages[source.name].fill(table, chosen, batch.num_requests), own, False)
        return [done[key] for key in keys]

    def _group(self, name: str) -> CanaryBufferGroup:
        return next(group for group in self._groups if group.name == name)

    def _history(self, batch: CanaryBatch, inputs: Inputs, tables: Sequence[Table]) -> torch.Tensor | None:
        """The token history by the manager's own rows, where any table has them."""
        history = batch.history
        if history is None or all(table.direct for table in tables):
            return None
        heights = [self._given("tables", batch, group.name).shape[0] for group in self._groups]
        _, chosen = self._rows.of(inputs.rows, batch.num_requests, min(heights))
        # What lies behind the last column is not known, as in a history that is read in place.
        return self._stages["history"].fill(history, chosen, batch.num_requests, beyond=-1)


def _plan_input(batch: CanaryBatch, inputs: Inputs, table: Table, staged: torch.Tensor | None) -> PlanInput:
    return PlanInput(
        req_pool_indices=table.rows,
        prefix_lens=inputs.prefix_lens,
        extend_seq_lens=inputs.extend_lens,
        req_to_token=table.slots,
        expected_tokens=batch.history if table.direct else staged,
        expected_tokens_valid_lens=inputs.history_lens,
    )


def first_pool(groups: Sequence[CanaryBufferGroup]) -> str:
    """The pool that a batch means where it names none: the first without a mapping."""
    named = [group.name for group in groups if group.full_to_swa_index_mapping is None]
    return (named or [groups[0].name])[0]
