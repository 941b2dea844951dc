# Written by kvcanary-gen from the spec; edit that instead.
"""Room that launches need, allocated once so that nothing is allocated while a CUDA graph is captured."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .. import errors, layout
from ..core import checks


def write_workspace(*, max_requests: int, max_tokens: int, device: torch.device | str) -> torch.Tensor:
    """What the write launcher takes as `workspace`, for the largest batch."""
    return torch.empty([max_tokens + max_requests, layout.WRITE_CHAIN_NUM_FIELDS], dtype=torch.int64, device=device)


@dataclass(frozen=True, slots=True)
class LaunchScratch:
    """Scratch of the launches of one forward; launches on two streams at a time need two.

    Attributes:
        write_workspace (int64): What the write launcher takes as `workspace`.
        slots (int64 [max_tokens]): Translated slots.
        index (int64 [max_tokens]): Places in the mapping.
        negative (bool [max_tokens]): Slots that no mapping translates.
    """

    write_workspace: torch.Tensor
    slots: torch.Tensor
    index: torch.Tensor
    negative: torch.Tensor

    @classmethod
    def allocate(cls, *, max_requests: int, max_tokens: int, device: torch.device | str) -> LaunchScratch:
        """Scratch for up to `max_requests` requests and `max_tokens` new tokens, both at least 1."""
        for name, value in (("max_requests", max_requests), ("max_tokens", max_tokens)):
            checks.kind(name, value, int)
            checks.capacity("LaunchScratch", name, value)
        return cls(
            write_workspace=write_workspace(max_requests=max_requests, max_tokens=max_tokens, device=device),
            slots=torch.empty([max_tokens], dtype=torch.int64, device=device),
            index=torch.empty([max_tokens], dtype=torch.int64, device=device),
            negative=torch.empty([max_tokens], dtype=torch.bool, device=device),
        )

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Everything that was allocated."""
        return self.write_workspace, self.slots, self.index, self.negative

    def check(self, slots: torch.Tensor) -> None:
        """Refuses more new tokens than there is room for."""
        checks.kind("out_cache_loc", slots, torch.Tensor)
        have, want = slots.numel(), self.slots.shape[0]
        if have > want:
            what, name = "length of out_cache_loc:", "max_tokens"
            raise errors.CanaryValueError(
                "KVC-053",
                f"kv-canary: {what} {have} exceeds {name}={want}; allocate more with {name}={have}, or split the batch",
            )

    def translate(self, slots: torch.Tensor, mapping: torch.Tensor) -> torch.Tensor:
        """Slots of the group's pool for full ones, as `translate` in the contract's §3.

        Negative slots pass through, a slot past the mapping's end clamps to its last entry.

        Args:
            slots (int64 [n]): slots of the full pool, n at most `max_tokens`.
            mapping (int64 [m]): slot of the group's pool for every full slot.

        Returns:
            int64 [n], valid until the next call.

        Raises:
            CanaryValueError: KVC-053 when there are more slots than scratch.
        """
        self.check(slots)
        have = slots.shape[0]
        found, index, negative = self.slots[:have], self.index[:have], self.negative[:have]
        torch.lt(slots, 0, out=negative)
        if mapping.shape[0] == 0:
            found.copy_(slots).masked_fill_(negative.logical_not_(), 0)
            return found
        torch.clamp(slots, min=0, max=mapping.shape[0] - 1, out=index)
        torch.index_select(mapping, 0, index, out=found)
        torch.where(negative, slots, found, out=found)
        return found
