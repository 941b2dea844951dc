# Written by kvcanary-gen from the spec; edit that instead.
"""From the device to the host without either waiting: one block of memory, a copy of it, and an event.

Everything that the host wants to know lies in one block: for each channel (a pool in a forward, or a pool in sweeps)
the number of the next violation row, how many plans were made and how many fitted, the endpoints' counters, and the
ring. At the end of a step the block is copied aside on the engine's stream, where the rows' numbers then start again
from 0; a side stream brings the copy to pinned memory. The host looks at the next step's end whether it is there. While
it is not, no new copy is made: rows stay in their rings, so nothing is lost unless a ring is full, and that is counted.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from .. import layout
from ..violations import Violation, decode_violations
from .scratch import LaunchScratch
from .state import CanaryDeviceState, ViolationLog

_TAGS = len(layout.CanaryLaunchTag)
_ROW = layout.VIOLATION_NUM_FIELDS


class Reading(NamedTuple):
    """What the host learned of one channel."""

    violations: list[Violation]
    # Rows that did not fit the ring.
    lost: int
    # Plans made since the beginning, and those of them that fitted their capacity.
    plans: int
    fitting: int
    # Entries and launches of each launch tag since the beginning.
    slot_runs: list[int]
    kernel_runs: list[int]


class Mailbox:
    """The block of `channels` channels, and its way to the host."""

    def __init__(self, channels: int, ring_capacity: int, device: torch.device) -> None:
        self._channels, self._capacity, self._device = channels, ring_capacity, device
        words = channels * (3 + 2 * _TAGS + ring_capacity * _ROW)
        self._block = torch.zeros([words], dtype=torch.int64, device=device)
        self._views = self._split(self._block)
        self._cuda = device.type == "cuda"
        self._arrived: torch.cuda.Event | None = None
        self._sent = False
        if self._cuda:
            self._aside = torch.empty_like(self._block)
            self._host = torch.empty([words], dtype=torch.int64, pin_memory=True)
            self._side = torch.cuda.Stream(device)
        else:
            self._aside = self._host = torch.empty_like(self._block)

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """What was allocated on the device."""
        return (self._block, self._aside)

    def host_tensors(self) -> tuple[torch.Tensor, ...]:
        """What was allocated on the host beside."""
        return (self._host,) if self._cuda else ()

    def _split(self, block: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Row numbers, plan counts, both counters and rings of all channels."""
        sizes = [1, 2, _TAGS, _TAGS, self._capacity * _ROW]
        return block.split([self._channels * size for size in sizes])

    def state(self, channel: int, chain: torch.Tensor, scratch: LaunchScratch) -> CanaryDeviceState:
        """A device state whose log and counters lie in the block."""
        numbers, _, slots, kernels, rings = self._views
        ring = rings.view(self._channels, self._capacity, _ROW)[channel]
        log = ViolationLog(ring, numbers.view(torch.int32)[2 * channel : 2 * channel + 1])
        slot_runs = slots.view(self._channels, _TAGS)[channel]
        return CanaryDeviceState(log, slot_runs, kernels.view(self._channels, _TAGS)[channel], chain, scratch)

    def plan_counts(self, channel: int) -> torch.Tensor:
        """int64 [2]: plans made, and plans that fitted."""
        return self._views[1].view(self._channels, 2)[channel]

    # --- sending and receiving ----------------------------------------------------------------------------------------

    @property
    def sent(self) -> bool:
        """Whether a copy is on its way, or waits to be read."""
        return self._sent

    def send(self) -> None:
        """Copies the block aside, on the current stream, and starts the rings anew."""
        self._aside.copy_(self._block)
        self._views[0].zero_()
        if self._cuda:
            ready = torch.cuda.Event()
            ready.record()
            self._side.wait_event(ready)
            with torch.cuda.stream(self._side):
                self._host.copy_(self._aside, non_blocking=True)
                self._arrived = torch.cuda.Event()
                self._arrived.record()
        self._sent = True

    def receive(self, *, wait: bool) -> list[Reading] | None:
        """What was sent, by channel; None where nothing was, or where it has not arrived and `wait` is False."""
        if not self._sent:
            return None
        if self._arrived is not None:
            if wait:
                self._arrived.synchronize()
            elif not self._arrived.query():
                return None
        self._sent = False
        numbers, plans, slots, kernels, rings = self._split(self._host)
        counts = numbers.view(torch.int32)[::2].tolist()
        made = plans.view(self._channels, 2).tolist()
        slot_runs = slots.view(self._channels, _TAGS).tolist()
        kernel_runs = kernels.view(self._channels, _TAGS).tolist()
        rows = rings.view(self._channels, self._capacity, _ROW)
        found = []
        for channel, count in enumerate(counts):
            violations = decode_violations(rows[channel], count) if count > 0 else []
            lost = max(0, count - self._capacity)
            plans_made, fitting = made[channel]
            reading = Reading(violations, lost, plans_made, fitting, slot_runs[channel], kernel_runs[channel])
            found.append(reading)
        return found
