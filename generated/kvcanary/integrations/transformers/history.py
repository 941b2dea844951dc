# Written by kvcanary-gen from the spec; edit that instead.
"""What requests themselves know of their tokens, brought to the device once and kept there."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


def on_device(values: Sequence[object], device: torch.device) -> torch.Tensor:
    """Host values as int64 on the device, without waiting for it."""
    host = torch.tensor(values, dtype=torch.int64, pin_memory=device.type == "cuda")
    return host.to(device, non_blocking=True)


@dataclass(slots=True)
class _Entry:
    row: int
    state: weakref.ref[Any]
    known: int


def known_tokens(state: Any, begin: int, end: int) -> list[int]:
    """A request's own tokens at positions from `begin` to `end`; as many of them as it knows."""
    prompt = len(state.initial_tokens)
    if begin >= prompt:
        return list(state.generated_tokens[begin - prompt : end - prompt])
    found = state.initial_tokens[begin:end]
    if end > prompt:
        found = found + state.generated_tokens[: end - prompt]
    return list(found)


class TokenHistory:
    """A row of tokens for each request, as many requests as it has rows; the one unseen for longest makes room.

    Row 0 is left free, as it stands for padding.
    """

    def __init__(self, requests: int, width: int, device: torch.device) -> None:
        self._device = device
        self.width = width
        self.tokens = torch.full([requests + 1, width], -1, dtype=torch.int32, device=device)
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._free = list(range(1, requests + 1))

    def rows_of(self, states: Sequence[Any]) -> list[int]:
        """Rows of these requests, brought up to date; all of them stay until the next call."""
        for state in states:
            if state.request_id in self._entries:
                self._entries.move_to_end(state.request_id)
        lengths = [len(state.initial_tokens) + len(state.generated_tokens) for state in states]
        self._widen(max(lengths, default=0))
        rows: list[int] = []
        places: list[int] = []
        tokens: list[int] = []
        for state, known in zip(states, lengths, strict=True):
            entry = self._entry(state)
            new = known_tokens(state, entry.known, known)
            begin = entry.row * self.width + entry.known
            places.extend(range(begin, begin + len(new)))
            tokens.extend(new)
            entry.known = known
            rows.append(entry.row)
        if places:
            at, what = on_device([places, tokens], self._device)
            self.tokens.view(-1).scatter_(0, at, what.to(torch.int32))
        return rows

    def _entry(self, state: Any) -> _Entry:
        found = self._entries.get(state.request_id)
        if found is not None and found.state() is state:
            return found
        # Another request of the same name: one that starts again, or a name that was used before.
        row = found.row if found is not None else self._free_row()
        entry = _Entry(row, weakref.ref(state), 0)
        self._entries[state.request_id] = entry
        self._entries.move_to_end(state.request_id)
        return entry

    def _free_row(self) -> int:
        return self._free.pop() if self._free else self._entries.popitem(last=False)[1].row

    def _widen(self, length: int) -> None:
        """Longer rows where a request outgrows them; what was known is brought again."""
        if length <= self.width:
            return
        self.width = max(length, 2 * self.width)
        self.tokens = torch.full([len(self.tokens), self.width], -1, dtype=torch.int32, device=self._device)
        for entry in self._entries.values():
            entry.known = 0
