# Written by kvcanary-gen from the spec; edit that instead.
"""What an engine tells the manager of one forward."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from .. import errors
from ..core import checks
from .state import ExpectedInputs

__all__ = ["CanaryBatch"]


@dataclass(frozen=True, eq=False)
class CanaryBatch:
    """One forward: its new tokens, and where each request's cached ones lie.

    Tensors stay the engine's. What has another integer dtype, other strides or more axes than named here is copied into
    the manager's own memory; whatever fits is used in place, and must keep its values until the forward has ended.

    Attributes:
        input_ids (int64 [num_new_tokens]): Token ids of the new tokens, request after request.
        positions (int64 [num_new_tokens]): Their positions.
        slots: Where they are stored: a tensor (int64 [num_new_tokens]) for the pool without a mapping, or one for each
            pool, by its name. Pools with a mapping take the slots of the first pool without one. Negative slots are
            skipped.
        tables: Slot of every position of every request, a tensor or one by pool, as with `slots`. In a pool of blocks
            (block_size > 1) entries are block numbers: position p lies in slot table[row, p // block_size] *
            block_size + p % block_size.
        prefix_lens (int64 [bs]): Tokens of each request that are cached already. Or leave it out and give `seq_lens`.
        extend_lens (int64 [bs]): New tokens of each request. Or leave it out and give `query_start_loc`.
        seq_lens (int64 [bs], optional): Cached and new tokens of each request together.
        query_start_loc (int64 [bs + 1], optional): Where each request's new tokens begin, and where the last one's end.
        rows (int64 [bs], optional): Row of each request in tables and history; row 0 is padding and is left out. None:
            request r has row r, and no request is padding.
        history (int32 [rows, positions], optional): Tokens of each request as it knows them itself; cached tokens are
            checked against them.
        history_lens (int64 [bs], optional): Columns of each request's history that are its own; cached and new tokens
            if None.
        expected (ExpectedInputs, optional): What the new tokens should be, known from elsewhere.
        excused: Slots not to be verified in this step, a tensor or one by pool, such as those that another request of
            the same step writes. They are verified again from the next step on. Where a pool with a mapping has no
            entry of its own, those of the first pool without one are excused there, too.
        rewritten: Names of pools in which new tokens may go to slots that are cached in this very batch, as in a ring
            that goes round. Such slots are verified before the forward and not after it, when their bytes have changed.
        write_passes (int): More than 1 where requests of this batch go on from slots that others of this batch write:
            one more than the longest such chain.
        token_offset (int, optional): Column of the history for position p is p plus this; the pool's own if None.
        forward (str): Which of the configured forwards it is; the first if empty.
        request_ids: The engine's names of the requests, for reports, which show what is no text by its `str`.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor | Mapping[str, torch.Tensor]
    tables: torch.Tensor | Mapping[str, torch.Tensor]
    prefix_lens: torch.Tensor | None = None
    extend_lens: torch.Tensor | None = None
    seq_lens: torch.Tensor | None = None
    query_start_loc: torch.Tensor | None = None
    rows: torch.Tensor | None = None
    history: torch.Tensor | None = None
    history_lens: torch.Tensor | None = None
    expected: ExpectedInputs | None = None
    excused: torch.Tensor | Mapping[str, torch.Tensor] = field(default_factory=dict)
    rewritten: Collection[str] = ()
    write_passes: int = 1
    token_offset: int | None = None
    forward: str = ""
    request_ids: Sequence[object] | None = None

    def __post_init__(self) -> None:
        tensors: checks.Tensors = []
        for name in ("input_ids", "positions"):
            tensors.append((f"batch.{name}", getattr(self, name), torch.int64, 1))
        for name in ("prefix_lens", "extend_lens", "seq_lens", "query_start_loc", "rows", "history", "history_lens"):
            if getattr(self, name) is not None:
                tensors.append((f"batch.{name}", getattr(self, name), torch.int64, 1))
        checks.kinds(tensors)
        checks.kind("batch.write_passes", self.write_passes, int)
        checks.kind("batch.forward", self.forward, str)
        if self.token_offset is not None:
            checks.kind("batch.token_offset", self.token_offset, int)
            checks.int64("batch.token_offset", self.token_offset)
        for name in ("slots", "tables", "excused"):
            if not isinstance(getattr(self, name), (torch.Tensor, Mapping)):
                want, have = "be a tensor, or a mapping of tensors by pool", f"{getattr(self, name)!r:.80}"
                name = f"batch.{name}"
                raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
        lengths = {
            "prefix_lens": (self.prefix_lens, "seq_lens", self.seq_lens),
            "extend_lens": (self.extend_lens, "query_start_loc", self.query_start_loc),
        }
        for name, (tensor, other, instead) in lengths.items():
            if (tensor is None) == (instead is None):
                want, have = f"be given, or batch.{other} in its place", "both" if tensor is not None else "neither"
                name = f"batch.{name}"
                raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
        if self.write_passes < 1:
            name, want, have = "batch.write_passes", "be at least 1", str(self.write_passes)
            raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
        for name in ("prefix_lens", "seq_lens", "rows", "history_lens"):
            tensor = getattr(self, name)
            if tensor is not None:
                checks.length(f"batch.{name}", tensor.numel(), self.num_requests)
        checks.length("batch.positions", self.positions.numel(), self.num_new_tokens)
        if self.expected is not None:
            checks.kind("batch.expected", self.expected, ExpectedInputs)
            checks.kind("batch.expected.tokens", self.expected.tokens, torch.Tensor)
            checks.kind("batch.expected.positions", self.expected.positions, torch.Tensor)
            checks.length("batch.expected.tokens", self.expected.tokens.numel(), self.num_new_tokens)
            checks.length("batch.expected.positions", self.expected.positions.numel(), self.num_new_tokens)
        check_names("batch.request_ids", self.request_ids)
        if self.request_ids is not None and len(self.request_ids) < self.num_requests:
            name, want = "batch.request_ids", f"name all {self.num_requests} requests"
            have = f"{len(self.request_ids)} names"
            raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")

    @property
    def num_requests(self) -> int:
        """Requests of the batch, padding included."""
        if self.extend_lens is not None:
            return self.extend_lens.numel()
        assert self.query_start_loc is not None
        return max(0, self.query_start_loc.numel() - 1)

    @property
    def num_new_tokens(self) -> int:
        return self.input_ids.numel()


def check_names(name: str, names: Sequence[object] | None) -> None:
    """A sequence of names, one for each request; text would be taken letter by letter."""
    if names is not None and (isinstance(names, (str, bytes)) or not isinstance(names, Sequence)):
        want, have = "be a list of names, or None", f"{names!r:.80}"
        raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")


def of_pool(name: str, given: torch.Tensor | Mapping[str, torch.Tensor], pool: str, first: str) -> torch.Tensor | None:
    """What a batch gives for a pool: its entry, or the only tensor for the first pool; None where there is none."""
    if isinstance(given, Mapping):
        return given.get(pool)
    checks.kind(name, given, torch.Tensor)
    return given if pool == first else None
