# Written by kvcanary-gen from the spec; edit that instead.
"""A batch as the launchers take it: int64, flat and packed, copied only where it is not so already."""

from __future__ import annotations

from typing import NamedTuple

import torch

from .. import errors
from ..core import checks
from .batch import CanaryBatch
from .state import ExpectedInputs


class Inputs(NamedTuple):
    """Tensors of one forward; all int64 and one-dimensional."""

    input_ids: torch.Tensor
    positions: torch.Tensor
    prefix_lens: torch.Tensor
    extend_lens: torch.Tensor
    rows: torch.Tensor | None
    history_lens: torch.Tensor | None
    expected: ExpectedInputs | None


class InputStage:
    """Room for the inputs of one forward."""

    _PER_TOKEN = ("input_ids", "positions", "expected.tokens", "expected.positions")
    _PER_REQUEST = ("prefix_lens", "extend_lens", "rows", "history_lens")

    def __init__(self, max_requests: int, max_tokens: int, device: torch.device) -> None:
        self._device = device
        self._room = {name: torch.empty([max_tokens], dtype=torch.int64, device=device) for name in self._PER_TOKEN}
        for name in self._PER_REQUEST:
            self._room[name] = torch.empty([max_requests], dtype=torch.int64, device=device)

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Everything that was allocated."""
        return tuple(self._room.values())

    def check(self, batch: CanaryBatch) -> None:
        """Refuses what `load` could not take; nothing is copied."""
        for name in ("input_ids", "positions", *self._PER_REQUEST, "seq_lens", "query_start_loc"):
            tensor = getattr(batch, name)
            if tensor is not None and (name != "history_lens" or batch.history is not None):
                self._check(name, tensor)
        if batch.expected is not None:
            self._check("expected.tokens", batch.expected.tokens)
            self._check("expected.positions", batch.expected.positions)

    def load(self, batch: CanaryBatch) -> Inputs:
        """The batch's tensors, in place or copied; they have been checked."""
        bs = batch.num_requests
        extend = self._extend(batch, bs)
        prefix = self._prefix(batch, extend, bs)
        expected = batch.expected
        if expected is not None:
            expected = ExpectedInputs(
                tokens=self._flat("expected.tokens", expected.tokens),
                positions=self._flat("expected.positions", expected.positions),
            )
        history_lens = None
        if batch.history is not None and batch.history_lens is not None:
            history_lens = self._flat("history_lens", batch.history_lens)
        elif batch.history is not None:
            history_lens = torch.add(prefix, extend, out=self._room["history_lens"][:bs])
        return Inputs(
            input_ids=self._flat("input_ids", batch.input_ids),
            positions=self._flat("positions", batch.positions),
            prefix_lens=prefix,
            extend_lens=extend,
            rows=None if batch.rows is None else self._flat("rows", batch.rows),
            history_lens=history_lens,
            expected=expected,
        )

    def _extend(self, batch: CanaryBatch, bs: int) -> torch.Tensor:
        if batch.extend_lens is not None:
            return self._flat("extend_lens", batch.extend_lens)
        starts = batch.query_start_loc
        assert starts is not None
        starts = starts.reshape(-1)
        return torch.sub(starts[1 : bs + 1], starts[:bs], out=self._room["extend_lens"][:bs])

    def _prefix(self, batch: CanaryBatch, extend: torch.Tensor, bs: int) -> torch.Tensor:
        if batch.prefix_lens is not None:
            return self._flat("prefix_lens", batch.prefix_lens)
        lengths = batch.seq_lens
        assert lengths is not None
        return torch.sub(lengths.reshape(-1), extend, out=self._room["prefix_lens"][:bs])

    def _flat(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype == torch.int64 and tensor.dim() == 1 and tensor.is_contiguous():
            return tensor
        room = self._room[name]
        checks.at_least(f"room for batch.{name}", room.shape[0], tensor.numel())
        found = room[: tensor.numel()]
        found.view(tensor.shape).copy_(tensor)
        return found

    def _check(self, name: str, tensor: torch.Tensor) -> None:
        """A copy between devices would wait for them."""
        name = f"batch.{name}"
        checks.kind(name, tensor, torch.Tensor)
        if tensor.dtype not in (torch.int64, torch.int32):
            want, have = "be of int32 or int64", f"{tensor.dtype}"
            raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
        if tensor.device != self._device:
            want, have = f"be on the pools' device {self._device}", f"{tensor.device}"
            raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
