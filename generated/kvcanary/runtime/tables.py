# Written by kvcanary-gen from the spec; edit that instead.
"""Tables as planning takes them: a row of slots for each request, row 0 for padding."""

from __future__ import annotations

from typing import NamedTuple

import torch

from .. import errors, layout
from ..core import checks
from .batch import CanaryBatch
from .groups import CanaryBufferGroup


class Table(NamedTuple):
    """A table of slots, and where each request stands in it."""

    slots: torch.Tensor
    rows: torch.Tensor
    # Whether rows are those of the batch, or the manager's own, one for each request in turn.
    direct: bool


class TableStage:
    """The manager's own table, for tables that planning cannot read in place: of blocks, or without a row for padding.

    Memory: 4 bytes for each request and position, twice for histories, and less than as much for blocks.
    """

    def __init__(self, block_size: int, max_requests: int, max_length: int, device: torch.device) -> None:
        self._block_size = block_size
        self._length = max_length
        self._table = torch.zeros([max_requests + 1, max_length], dtype=torch.int32, device=device)
        self._blocks = self._block_of = self._offset_of = None
        if block_size > 1:
            places = torch.arange(max_length, dtype=torch.int64, device=device)
            count = -(-max_length // block_size)
            self._blocks = torch.zeros([max_requests, count], dtype=torch.int32, device=device)
            self._block_of = places // block_size
            self._offset_of = (places % block_size).to(torch.int32)

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Everything that was allocated."""
        return tuple(t for t in (self._table, self._blocks, self._block_of, self._offset_of) if t is not None)

    def check(self, name: str, table: torch.Tensor) -> None:
        """The table is no longer than this one, a history aside, of which the rest is not needed."""
        have, want = table.shape[1] * self._block_size, self._length
        if have - self._block_size >= want and not name.startswith("batch.history"):
            what, name = f"positions of {name}:", "max_length"
            raise errors.CanaryValueError(
                "KVC-053",
                f"kv-canary: {what} {have} exceeds {name}={want}; allocate more with {name}={have}, or split the batch",
            )

    def fill(
        self, table: torch.Tensor, chosen: torch.Tensor | None, bs: int, *, beyond: int | None = None
    ) -> torch.Tensor:
        """Copies rows of the engine's table, or all in turn, behind row 0; blocks become slots.

        What a request has behind the table's last column is that column again, as where planning reads the table in
        place, or `beyond`: never what an earlier batch has left there.
        """
        own = self._table[1 : bs + 1]
        if self._blocks is None:
            _rows(table, chosen, bs, own, beyond)
            return self._table
        assert self._block_of is not None and self._offset_of is not None
        blocks = self._blocks[:bs]
        _rows(table, chosen, bs, blocks, beyond)
        torch.index_select(blocks, 1, self._block_of, out=own)
        own.mul_(self._block_size).add_(self._offset_of)
        return self._table


def _rows(table: torch.Tensor, chosen: torch.Tensor | None, bs: int, out: torch.Tensor, beyond: int | None) -> None:
    width = min(table.shape[1], out.shape[1])
    if chosen is None:
        out[:, :width].copy_(table[:bs, :width])
    elif table.shape[0]:
        torch.index_select(table[:, :width], 0, chosen, out=out[:, :width])
    if width == out.shape[1]:
        return
    if beyond is None and width:
        out[:, width:].copy_(out[:, width - 1 : width].expand(-1, out.shape[1] - width))
    else:
        out[:, width:].fill_(-1 if beyond is None else beyond)


class RowStage:
    """Rows of the manager's own tables: request r in row r + 1, padding in row 0."""

    def __init__(self, max_requests: int, device: torch.device) -> None:
        self._turn = torch.arange(1, max_requests + 1, dtype=torch.int64, device=device)
        self._rows = torch.empty([max_requests], dtype=torch.int64, device=device)
        self._chosen = torch.empty([max_requests], dtype=torch.int64, device=device)
        self._flags = torch.empty([max_requests], dtype=torch.bool, device=device)

    def tensors(self) -> tuple[torch.Tensor, ...]:
        return self._turn, self._rows, self._chosen, self._flags

    def of(self, rows: torch.Tensor | None, bs: int, height: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Own rows of `bs` requests, and the rows of the engine's table that go there; None for all in turn.

        Rows that the engine's table of `height` rows does not have count as padding.
        """
        if rows is None:
            return self._turn[:bs], None
        own, chosen, padding = self._rows[:bs], self._chosen[:bs], self._flags[:bs]
        torch.clamp(rows, min=0, max=max(0, height - 1), out=chosen)
        own.copy_(self._turn[:bs])
        torch.ne(chosen, rows, out=padding)
        own.masked_fill_(padding, layout.REQ_POOL_IDX_PADDING)
        torch.eq(rows, layout.REQ_POOL_IDX_PADDING, out=padding)
        own.masked_fill_(padding, layout.REQ_POOL_IDX_PADDING)
        return own, chosen


def check_table(name: str, table: torch.Tensor, batch: CanaryBatch) -> None:
    """A table of the engine's can be read: integers, a row for every request."""
    checks.kind(name, table, torch.Tensor)
    if table.dim() != 2 or table.dtype not in (torch.int32, torch.int64):
        want, have = "be 2-D, of int32 or int64", f"{table.dtype} of shape {tuple(table.shape)}"
        raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
    if batch.rows is None and table.shape[0] < batch.num_requests:
        want, have = f"have a row for each of {batch.num_requests} requests", f"{table.shape[0]}"
        raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
    if batch.rows is not None and table.dtype != torch.int32:
        want, have = "be of int32 where batch.rows names its rows", f"{table.dtype}"
        raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")


def is_direct(group: CanaryBufferGroup, table: torch.Tensor, batch: CanaryBatch) -> bool:
    """Whether planning can read the engine's table in place."""
    return batch.rows is not None and group.block_size == 1 and table.is_contiguous()
