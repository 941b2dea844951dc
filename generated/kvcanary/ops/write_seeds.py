# Written by kvcanary-gen from the spec; edit that instead.
"""Reads the seed of every request's chain.

Contract §5. Operations launch this kernel; it has no public functions.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .. import layout
from ..core import device, dispatch, eager, functions, lang

# --- Triton -----------------------------------------------------------------------------------------------------------


@lang.kernel
def _write_seeds_kernel(
    # inputs
    canary_buf_ptr,  # [num_slots, >= SLOT_BYTES] uint8
    write_seed_slot_indices_ptr,  # [write_req_capacity] int64
    write_num_valid_reqs_ptr,  # [1] int32
    # outputs
    seeds_ptr,  # [>= write_req_capacity, WRITE_SEED_NUM_FIELDS] int64
    violation_ring_ptr,  # [ring_capacity, VIOLATION_NUM_FIELDS] int64
    violation_write_index_ptr,  # [1] int32
    # sizes and scalars
    write_req_capacity: tl.int64,
    num_slots: tl.int64,
    canary_buf_words: tl.int64,
    seeds_len: tl.int64,
    seeds_words: tl.int64,
    ring_capacity: tl.int64,
    kernel_kind: tl.int64,
    # constants
    BLOCK: tl.constexpr,
):
    """Reads the seed of every request's chain."""
    # The interpreter passes small integers as int32; the sum forces 64 bits and costs nothing compiled.
    write_req_capacity = write_req_capacity.to(tl.int64) + 0
    num_slots = num_slots.to(tl.int64) + 0
    canary_buf_words = canary_buf_words.to(tl.int64) + 0
    seeds_len = seeds_len.to(tl.int64) + 0
    seeds_words = seeds_words.to(tl.int64) + 0
    ring_capacity = ring_capacity.to(tl.int64) + 0
    kernel_kind = kernel_kind.to(tl.int64) + 0
    count = tl.minimum(tl.load(write_num_valid_reqs_ptr).to(tl.int64), write_req_capacity)
    r = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = r < count
    seed = tl.load(write_seed_slot_indices_ptr + r, mask=mask, other=0)
    inside = seed < num_slots
    seeds = device.link(tl.where(inside, seed, -1), mask, canary_buf_ptr, num_slots, canary_buf_words)
    tl.store(seeds_ptr + r * seeds_words + device.WRITE_SEED_FIELD_LINK, seeds, mask=mask & (r < seeds_len))
    seeds_2 = tl.load(
        canary_buf_ptr + seed * canary_buf_words + device.CANARY_FIELD_POSITION,
        mask=mask & (seed >= 0) & (seed < num_slots),
        other=0,
    )
    tl.store(seeds_ptr + r * seeds_words + device.WRITE_SEED_FIELD_POSITION, seeds_2, mask=mask & (r < seeds_len))
    reasons = tl.zeros([BLOCK], tl.int64)
    reasons |= tl.where(inside == 0, device.FAIL_REASON_WRITE_SLOT_OUT_OF_RANGE, 0)
    failing = mask & (reasons != 0)
    if tl.max(failing.to(tl.int32), axis=0) > 0:
        row, kept = lang.append(failing, violation_write_index_ptr, ring_capacity)
        row_ptr = violation_ring_ptr + row * device.VIOLATION_NUM_FIELDS
        tl.store(row_ptr, kernel_kind, mask=kept)
        tl.store(row_ptr + 1, seed, mask=kept)
        tl.store(row_ptr + 2, 0, mask=kept)
        tl.store(row_ptr + 3, 0, mask=kept)
        tl.store(row_ptr + 4, 0, mask=kept)
        tl.store(row_ptr + 5, 0, mask=kept)
        tl.store(row_ptr + 6, 0, mask=kept)
        tl.store(row_ptr + 7, reasons, mask=kept)


def launch(
    *,
    canary_buf: torch.Tensor,
    write_seed_slot_indices: torch.Tensor,
    write_num_valid_reqs: torch.Tensor,
    seeds: torch.Tensor,
    violation_ring: torch.Tensor,
    violation_write_index: torch.Tensor,
    kernel_kind: int,
) -> None:
    """Launches the kernel on valid arguments. Nothing is allocated, and no device data is read."""
    canary_buf = canary_buf.view(torch.int64)
    write_req_capacity = write_seed_slot_indices.shape[0]
    num_slots = canary_buf.shape[0]
    canary_buf_words = canary_buf.shape[1]
    seeds_len = seeds.shape[0]
    seeds_words = seeds.shape[1]
    ring_capacity = violation_ring.shape[0]
    programs = triton.cdiv(write_req_capacity, 128)
    if programs <= 0:
        return
    with dispatch.on_device(canary_buf):
        _write_seeds_kernel[(programs,)](
            canary_buf,
            write_seed_slot_indices,
            write_num_valid_reqs,
            seeds,
            violation_ring,
            violation_write_index,
            write_req_capacity,
            num_slots,
            canary_buf_words,
            seeds_len,
            seeds_words,
            ring_capacity,
            kernel_kind,
            BLOCK=128,
            num_warps=4,
        )


# --- Reference --------------------------------------------------------------------------------------------------------


def reference(
    *,
    canary_buf: torch.Tensor,
    write_seed_slot_indices: torch.Tensor,
    write_num_valid_reqs: torch.Tensor,
    seeds: torch.Tensor,
    violation_ring: torch.Tensor,
    violation_write_index: torch.Tensor,
    kernel_kind: torch.Tensor,
) -> None:
    """The kernel in vectorised torch, on any device; scalars are 0-d tensors, so that they wrap."""
    canary_buf = canary_buf.view(torch.int64)
    write_req_capacity = write_seed_slot_indices.shape[0]
    num_slots = canary_buf.shape[0]
    r = torch.arange(
        max(min(int(eager.load(write_num_valid_reqs, 0)), write_req_capacity), 0), device=canary_buf.device
    )
    seed = eager.load(write_seed_slot_indices, r)
    inside = seed < num_slots
    value = functions.link(torch.where(inside, seed, -1), canary_buf)
    eager.store(seeds, (r, layout.WRITE_SEED_FIELD_LINK), value, unique=True)
    value_2 = eager.load(canary_buf, seed, layout.CANARY_FIELD_POSITION)
    eager.store(seeds, (r, layout.WRITE_SEED_FIELD_POSITION), value_2, unique=True)
    seed_range_reasons = torch.zeros_like(r)
    seed_range_reasons |= torch.where(~inside, layout.FailReason.WRITE_SLOT_OUT_OF_RANGE, 0)
    seed_range_row: list[torch.Tensor | int] = [
        kernel_kind,
        seed,
        0,
        0,
        0,
        0,
        0,
        seed_range_reasons,
    ]
    rows = [(seed_range_reasons, seed_range_row)]
    eager.append(violation_ring, violation_write_index, rows)
