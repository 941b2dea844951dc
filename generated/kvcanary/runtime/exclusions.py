# Written by kvcanary-gen from the spec; edit that instead.
"""Slots that are not verified: excused for a step, or without a fingerprint of their own.

Three things look alike in a canary buffer and are not. A slot that was never written holds a record with all bits set;
a table that points at one is wrong, so it is a violation. A slot that is *excused* is left out until the step ends, and
a slot that was *dropped* until it is written again. Both are left out while planning: the map that translates slots
sends them to slot 0, which verify skips and which makes the link of its successor unverifiable.
"""

from __future__ import annotations

import torch

from .groups import CanaryBufferGroup


class SlotExclusions:
    """Excused and dropped slots of one pool, as a map on the device that planning translates by."""

    def __init__(self, group: CanaryBufferGroup, most: int) -> None:
        """`most` is the largest number of slots, or of requests, of a forward."""
        slots, device = group.num_slots, group.device
        self._mapping = group.full_to_swa_index_mapping
        self._slots = slots
        # Every slot to itself or to 0. Behind them: out-of-range slots stay so, and -1 stays -1.
        self._own = torch.arange(slots + 2, dtype=torch.int64, device=device)
        self._own[slots + 1] = -1
        self._dropped = torch.zeros([slots + 1], dtype=torch.bool, device=device)
        self._index = torch.empty([most], dtype=torch.int64, device=device)
        self._flags = torch.empty([most], dtype=torch.bool, device=device)
        self._excused: list[torch.Tensor] = []
        self._composed = self._places = None
        if self._mapping is not None:
            self._composed = torch.empty_like(self._mapping)
            self._places = torch.empty_like(self._mapping)

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Everything that was allocated."""
        own = [self._own, self._dropped, self._index, self._flags]
        return (*own, *(t for t in (self._composed, self._places) if t is not None))

    # --- around a forward: nothing is allocated, nothing read back ----------------------------------------------------

    def mapping(self) -> torch.Tensor:
        """What entries are planned with: the pool's mapping, or none, without the slots that are left out."""
        if self._mapping is None:
            return self._own[: self._slots + 1]
        assert self._composed is not None and self._places is not None
        # What the engine maps to may lie anywhere; `take` counts -1 from the end, where -1 stands.
        torch.clamp(self._mapping, min=-1, max=self._slots, out=self._places)
        return torch.take(self._own, self._places, out=self._composed)

    def start_anew(self, seeds: torch.Tensor) -> None:
        """A chain cannot go on from a dropped slot, so it starts from the anchor: such seeds become -1."""
        index, dropped = self._index[: seeds.shape[0]], self._flags[: seeds.shape[0]]
        torch.clamp(seeds, min=0, max=self._slots, out=index)
        torch.index_select(self._dropped, 0, index, out=dropped)
        seeds.masked_fill_(dropped, -1)

    def written(self, slots: torch.Tensor) -> None:
        """Slots of this pool that carry a fingerprint of their own from now on."""
        index = self._index[: slots.shape[0]]
        torch.clamp(slots, min=0, max=self._slots, out=index)
        self._own.scatter_(0, index, index)
        self._dropped.index_fill_(0, index, False)

    # --- between steps ------------------------------------------------------------------------------------------------

    def excuse(self, slots: torch.Tensor) -> None:
        """Leaves slots out until `step_end`."""
        index = self._inside(slots)
        self._excused.append(index)
        self._own.index_fill_(0, index, 0)
        self._mend()

    def drop(self, slots: torch.Tensor | None) -> None:
        """Leaves slots out until they are written; None stands for all."""
        if slots is None:
            self._own[: self._slots].zero_()
            self._dropped[: self._slots].fill_(True)
        else:
            index = self._inside(slots)
            self._own.index_fill_(0, index, 0)
            self._dropped.index_fill_(0, index, True)
            self._mend()
        self._dropped[0].fill_(False)

    def restore(self, slots: torch.Tensor, dropped: torch.Tensor) -> None:
        """Slots that got fingerprints from elsewhere, save those that were without one there."""
        self._set(self._inside(slots), dropped)

    def dropped(self, slots: torch.Tensor) -> torch.Tensor:
        """Whether slots are without a fingerprint of their own."""
        return self._dropped.index_select(0, self._inside(slots))

    def step_end(self) -> None:
        """Excused slots count again."""
        for index in self._excused:
            self._set(index, self._dropped.index_select(0, index))
        self._excused.clear()

    def _inside(self, slots: torch.Tensor) -> torch.Tensor:
        """Slots as places in the map; those outside the pool meet in the place behind it."""
        return slots.where((slots >= 0) & (slots < self._slots), self._slots)

    def _set(self, index: torch.Tensor, dropped: torch.Tensor) -> None:
        self._dropped.scatter_(0, index, dropped)
        self._own.scatter_(0, index, index.masked_fill(dropped, 0))
        self._mend()

    def _mend(self) -> None:
        """The place behind the pool stays out of range, whatever was said of slots that do not exist."""
        self._own[self._slots].fill_(self._slots)
        self._dropped[self._slots].fill_(False)
