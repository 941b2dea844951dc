# Written by kvcanary-gen from the spec; edit that instead.
"""Device tensors that travel together. Sizes and byte counts follow from the fields."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .core import checks


@dataclass(frozen=True, slots=True)
class VerifyPlan:
    """What verify reads, one entry for every cached position to check. Contract §3.

    Attributes:
        verify_slot_indices (int64 [verify_capacity]): Slot of the entry, translated to the group's pool.
        verify_expected_tokens (int64 [verify_capacity]): Token of the request's history at that position, -1 where it
            is not known.
        verify_expected_positions (int64 [verify_capacity]): Position of the entry in its request.
        verify_prev_slot_indices (int64 [verify_capacity]): Slot of the position before it, -1 at the start of the
            chain.
        verify_num_valid (int32 [1]): Entries that count, at most the capacity.
        enable (int32 [1]): 0 when the entries did not fit the capacity; nothing is verified then.
    """

    verify_slot_indices: torch.Tensor
    verify_expected_tokens: torch.Tensor
    verify_expected_positions: torch.Tensor
    verify_prev_slot_indices: torch.Tensor
    verify_num_valid: torch.Tensor
    enable: torch.Tensor

    @classmethod
    def allocate(cls, *, verify_capacity: int, device: torch.device | str) -> VerifyPlan:
        """Allocates all fields; those without an initial value are uninitialised.

        Args:
            verify_capacity (int): elements to hold, at least 1.
            device: where the tensors lie.
        """
        checks.kind("verify_capacity", verify_capacity, int)
        checks.capacity("VerifyPlan", "verify_capacity", verify_capacity)
        return cls(
            verify_slot_indices=torch.empty([verify_capacity], dtype=torch.int64, device=device),
            verify_expected_tokens=torch.empty([verify_capacity], dtype=torch.int64, device=device),
            verify_expected_positions=torch.empty([verify_capacity], dtype=torch.int64, device=device),
            verify_prev_slot_indices=torch.empty([verify_capacity], dtype=torch.int64, device=device),
            verify_num_valid=torch.empty([1], dtype=torch.int32, device=device),
            enable=torch.full([1], 1, dtype=torch.int32, device=device),
        )

    @staticmethod
    def allocation_bytes(verify_capacity: int) -> int:
        """Bytes that `allocate` takes for this capacity."""
        return verify_capacity * 8 + verify_capacity * 8 + verify_capacity * 8 + verify_capacity * 8 + 1 * 4 + 1 * 4


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What write reads, one segment of the new tokens for every request. Contract §3.

    Attributes:
        write_offsets (int64 [write_req_capacity + 1]): Token range of request r, from element r up to element r + 1.
        write_seed_slot_indices (int64 [write_req_capacity]): Slot of the last cached position, where the request's
            chain goes on; -1 starts from the anchor.
        write_num_valid_reqs (int32 [1]): Requests that count, at most the capacity.
    """

    write_offsets: torch.Tensor
    write_seed_slot_indices: torch.Tensor
    write_num_valid_reqs: torch.Tensor

    @classmethod
    def allocate(cls, *, write_req_capacity: int, device: torch.device | str) -> WritePlan:
        """Allocates all fields; those without an initial value are uninitialised.

        Args:
            write_req_capacity (int): elements to hold, at least 1.
            device: where the tensors lie.
        """
        checks.kind("write_req_capacity", write_req_capacity, int)
        checks.capacity("WritePlan", "write_req_capacity", write_req_capacity)
        return cls(
            write_offsets=torch.empty([write_req_capacity + 1], dtype=torch.int64, device=device),
            write_seed_slot_indices=torch.empty([write_req_capacity], dtype=torch.int64, device=device),
            write_num_valid_reqs=torch.empty([1], dtype=torch.int32, device=device),
        )

    @staticmethod
    def allocation_bytes(write_req_capacity: int) -> int:
        """Bytes that `allocate` takes for this capacity."""
        return (write_req_capacity + 1) * 8 + write_req_capacity * 8 + 1 * 4
