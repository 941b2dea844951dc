# Written by kvcanary-gen from the spec; edit that instead.
"""Device tensors that travel together. Sizes and byte counts follow from the fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from . import layout
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


@dataclass(frozen=True, slots=True)
class RealKvSource:
    """Bytes of real KV: slot s has a place in row s // page_size, num_bytes_per_token wide. Contract §2.

    Attributes:
        tensor (any dtype, at least 2-D): Any dtype, at least 2-D, rows packed; a row is tensor[k] seen as bytes.
        page_size (int): Slots in a row.
        num_bytes_per_token (int): Bytes from a slot to the next in its row.
        read_bytes (int): Bytes of a slot that are hashed in mode ALL.
    """

    tensor: torch.Tensor
    page_size: int
    num_bytes_per_token: int
    read_bytes: int


@dataclass(frozen=True, slots=True)
class VerifyOrWriteContext:
    """What a launch of verify or write works on. Contract §4.

    Attributes:
        canary_buf (uint8 [num_slots, >= SLOT_BYTES]): The fingerprints, one for each slot; a row may be longer than the
            record.
        kernel_kind (int): Launch tag of the endpoint; stands in its violation rows.
        violation_ring (int64 [ring_capacity, VIOLATION_NUM_FIELDS]): Receives a row for whatever does not fit; rows
            past its end are dropped.
        violation_write_index (int32 [1]): Number of the next row; grows for dropped rows too.
        slot_run_counter (int64 [1]): Entries checked or stored so far.
        kernel_run_counter (int64 [1]): Launches so far.
        real_kv_sources (RealKvSource, at most 4): Bytes that go into the real-KV hash of a slot, in order; a
            RealKvSourceTable holds more, at any alignment.
        real_kv_hash_mode (RealKvHashMode): How much of them does.
        enable_chain_position_assert (int32 [1]): Whether write asserts that positions follow each other; verify ignores
            it.
    """

    canary_buf: torch.Tensor
    kernel_kind: int
    violation_ring: torch.Tensor
    violation_write_index: torch.Tensor
    slot_run_counter: torch.Tensor
    kernel_run_counter: torch.Tensor
    real_kv_sources: Sequence[RealKvSource]
    real_kv_hash_mode: layout.RealKvHashMode
    enable_chain_position_assert: torch.Tensor
