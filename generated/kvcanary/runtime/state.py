# Written by kvcanary-gen from the spec; edit that instead.
"""What endpoints work with on the device: logs, counters, flags, scratch. Contract §7."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .. import layout
from ..core import checks
from .scratch import LaunchScratch

__all__ = ["CanaryDeviceState", "ExpectedInputs", "PlanInput", "ViolationLog"]


@dataclass(frozen=True, slots=True)
class ViolationLog:
    """Where the launches of a forward append what they find.

    Attributes:
        violation_ring (int64 [rows, VIOLATION_NUM_FIELDS]): The rows; those past its end are dropped.
        violation_write_index (int32 [1]): Number of the next row; it counts dropped rows too.
    """

    violation_ring: torch.Tensor
    violation_write_index: torch.Tensor

    @classmethod
    def allocate(cls, *, ring_capacity: int, device: torch.device | str) -> ViolationLog:
        """An empty log for `ring_capacity` rows, at least 1."""
        checks.kind("ring_capacity", ring_capacity, int)
        checks.capacity("ViolationLog", "ring_capacity", ring_capacity)
        return cls(
            violation_ring=torch.zeros([ring_capacity, layout.VIOLATION_NUM_FIELDS], dtype=torch.int64, device=device),
            violation_write_index=torch.zeros([1], dtype=torch.int32, device=device),
        )


@dataclass(frozen=True, slots=True)
class ExpectedInputs:
    """What the tokens of a forward should be, known from elsewhere than the batch itself.

    Attributes:
        tokens (int64 [num_new_tokens]): Token ids that the entries should have.
        positions (int64 [num_new_tokens]): Positions that the entries should have.
    """

    tokens: torch.Tensor
    positions: torch.Tensor


@dataclass(frozen=True, slots=True)
class PlanInput:
    """What planning a forward needs of one pool. Contract §3.

    Attributes:
        req_pool_indices (int64 [bs]): Request row of each request; row 0 is padding.
        prefix_lens (int64 [bs]): Tokens of each request that are cached already.
        extend_seq_lens (int64 [bs]): Tokens of each request that the forward adds.
        req_to_token (int32 [table_rows, table_width]): Slot of every position of every request row.
        expected_tokens (int32 [token_rows, token_width], optional): Token history of every request row.
        expected_tokens_valid_lens (int64 [bs], optional): Columns of each request's history that hold its own tokens.
    """

    req_pool_indices: torch.Tensor
    prefix_lens: torch.Tensor
    extend_seq_lens: torch.Tensor
    req_to_token: torch.Tensor
    expected_tokens: torch.Tensor | None = None
    expected_tokens_valid_lens: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class CanaryDeviceState:
    """What the endpoints of a pool share.

    Attributes:
        log (ViolationLog): Where violations go unless a launch names another log.
        slot_run_counters (int64 [tags]): Entries that each endpoint has checked or stored, by launch tag.
        kernel_run_counters (int64 [tags]): Launches of each endpoint, by launch tag.
        enable_chain_position_assert (int32 [1]): Whether write asserts that positions follow each other.
        scratch (LaunchScratch): Room for translated slots and for the seeds of a write.
    """

    log: ViolationLog
    slot_run_counters: torch.Tensor
    kernel_run_counters: torch.Tensor
    enable_chain_position_assert: torch.Tensor
    scratch: LaunchScratch

    @classmethod
    def allocate(
        cls, *, ring_capacity: int, max_requests: int, max_tokens: int, device: torch.device | str
    ) -> CanaryDeviceState:
        """Allocates everything that launches of up to `max_requests` requests and `max_tokens` new tokens need.

        The chain assert is on.
        """
        tags = len(layout.CanaryLaunchTag)
        return cls(
            log=ViolationLog.allocate(ring_capacity=ring_capacity, device=device),
            slot_run_counters=torch.zeros([tags], dtype=torch.int64, device=device),
            kernel_run_counters=torch.zeros([tags], dtype=torch.int64, device=device),
            enable_chain_position_assert=torch.ones([1], dtype=torch.int32, device=device),
            scratch=LaunchScratch.allocate(max_requests=max_requests, max_tokens=max_tokens, device=device),
        )

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Everything that was allocated."""
        return (
            self.log.violation_ring,
            self.log.violation_write_index,
            self.slot_run_counters,
            self.kernel_run_counters,
            self.enable_chain_position_assert,
            *self.scratch.tensors(),
        )
