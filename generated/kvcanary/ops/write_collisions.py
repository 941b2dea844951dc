# Written by kvcanary-gen from the spec; edit that instead.
"""Looks whether the fingerprints of the new tokens are still there, or another entry took their slot.

Contract §10. Operations launch this kernel; it has no public functions.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .. import layout
from ..core import device, dispatch, eager, functions, lang

# --- Triton -----------------------------------------------------------------------------------------------------------


@lang.kernel
def _write_collisions_kernel(
    # inputs
    write_offsets_ptr,  # [write_req_capacity + 1] int64
    write_num_valid_reqs_ptr,  # [1] int32
    seeds_ptr,  # [>= write_req_capacity, WRITE_SEED_NUM_FIELDS] int64
    input_ids_ptr,  # [num_new_tokens] int64
    positions_ptr,  # [num_new_tokens] int64
    out_cache_loc_ptr,  # [num_new_tokens] int64
    canary_buf_ptr,  # [num_slots, >= SLOT_BYTES] uint8
    # outputs
    violation_ring_ptr,  # [ring_capacity, VIOLATION_NUM_FIELDS] int64
    violation_write_index_ptr,  # [1] int32
    # sizes and scalars
    num_new_tokens: tl.int64,
    write_req_capacity: tl.int64,
    seeds_len: tl.int64,
    seeds_words: tl.int64,
    num_slots: tl.int64,
    canary_buf_words: tl.int64,
    ring_capacity: tl.int64,
    kernel_kind: tl.int64,
    lanes: tl.int64,  # programs for each segment
    # constants
    BLOCK: tl.constexpr,
):
    """Looks whether the fingerprints of the new tokens are still there, or another entry took their slot."""
    # The interpreter passes small integers as int32; the sum forces 64 bits and costs nothing compiled.
    num_new_tokens = num_new_tokens.to(tl.int64) + 0
    write_req_capacity = write_req_capacity.to(tl.int64) + 0
    seeds_len = seeds_len.to(tl.int64) + 0
    seeds_words = seeds_words.to(tl.int64) + 0
    num_slots = num_slots.to(tl.int64) + 0
    canary_buf_words = canary_buf_words.to(tl.int64) + 0
    ring_capacity = ring_capacity.to(tl.int64) + 0
    kernel_kind = kernel_kind.to(tl.int64) + 0
    lanes = lanes.to(tl.int64) + 0
    count = tl.minimum(tl.load(write_num_valid_reqs_ptr).to(tl.int64), write_req_capacity)
    program = tl.program_id(0).to(tl.int64)
    segment = program // lanes
    if segment >= count:
        return
    first, end = lang.segment_bounds(segment, True, write_offsets_ptr, num_new_tokens)
    seeds_value = tl.load(
        seeds_ptr + segment * seeds_words + device.WRITE_SEED_FIELD_LINK, mask=segment < seeds_len, other=0
    ).to(tl.uint64, bitcast=True)
    chain_prev_hash = seeds_value
    start = tl.zeros([], tl.int64)
    while start < end - first:
        j = start + tl.arange(0, BLOCK)
        prev_hash = tl.zeros([BLOCK], tl.uint64)
        # The state before each entry of the block, in order.
        at = start
        while at < tl.minimum(start + BLOCK, end - first):
            chain_index = first + at
            prev_hash = tl.where(j == at, chain_prev_hash, prev_hash)
            chain_slot = tl.load(out_cache_loc_ptr + chain_index)
            chain_stored = (chain_slot >= 0) & (chain_slot < num_slots)
            chain_token = tl.load(input_ids_ptr + chain_index)
            chain_position = tl.load(positions_ptr + chain_index)
            next_prev_hash = device.splitmix64_mix3(
                chain_prev_hash, chain_token.to(tl.uint64, bitcast=True), chain_position.to(tl.uint64, bitcast=True)
            )
            chain_prev_hash = tl.where(chain_stored, next_prev_hash, chain_prev_hash)
            at += 1
        # Everything else, on the whole block at once.
        if (start // BLOCK) % lanes == program % lanes:
            i = first + j
            mask = i < end
            slot = tl.load(out_cache_loc_ptr + i, mask=mask, other=0)
            stored = (slot >= 0) & (slot < num_slots)
            token = tl.load(input_ids_ptr + i, mask=mask, other=0)
            position = tl.load(positions_ptr + i, mask=mask, other=0)
            found_token = tl.load(
                canary_buf_ptr + slot * canary_buf_words + device.CANARY_FIELD_TOKEN,
                mask=mask & (slot >= 0) & (slot < num_slots),
                other=0,
            )
            found_position = tl.load(
                canary_buf_ptr + slot * canary_buf_words + device.CANARY_FIELD_POSITION,
                mask=mask & (slot >= 0) & (slot < num_slots),
                other=0,
            )
            found_prev_hash = tl.load(
                canary_buf_ptr + slot * canary_buf_words + device.CANARY_FIELD_PREV_HASH,
                mask=mask & (slot >= 0) & (slot < num_slots),
                other=0,
            ).to(tl.uint64, bitcast=True)
            collision_checked = stored & (slot != device.TOKEN_TO_KV_SLOT_PADDING)
            reasons = tl.zeros([BLOCK], tl.int64)
            reasons |= tl.where(
                (found_token != token) | (found_position != position) | (found_prev_hash != prev_hash),
                device.FAIL_REASON_WRITE_SLOT_COLLISION,
                0,
            )
            failing = mask & collision_checked & (reasons != 0)
            if tl.max(failing.to(tl.int32), axis=0) > 0:
                row, kept = lang.append(failing, violation_write_index_ptr, ring_capacity)
                row_ptr = violation_ring_ptr + row * device.VIOLATION_NUM_FIELDS
                tl.store(row_ptr, kernel_kind, mask=kept)
                tl.store(row_ptr + 1, slot, mask=kept)
                tl.store(row_ptr + 2, position, mask=kept)
                tl.store(row_ptr + 3, found_token, mask=kept)
                tl.store(row_ptr + 4, token, mask=kept)
                tl.store(row_ptr + 5, found_prev_hash, mask=kept)
                tl.store(row_ptr + 6, prev_hash, mask=kept)
                tl.store(row_ptr + 7, reasons, mask=kept)
        start += BLOCK


def launch(
    *,
    write_offsets: torch.Tensor,
    write_seed_slot_indices: torch.Tensor,
    write_num_valid_reqs: torch.Tensor,
    seeds: torch.Tensor,
    input_ids: torch.Tensor,
    positions: torch.Tensor,
    out_cache_loc: torch.Tensor,
    canary_buf: torch.Tensor,
    violation_ring: torch.Tensor,
    violation_write_index: torch.Tensor,
    kernel_kind: int,
) -> None:
    """Launches the kernel on valid arguments. Nothing is allocated, and no device data is read."""
    canary_buf = canary_buf.view(torch.int64)
    num_new_tokens = input_ids.shape[0]
    write_req_capacity = write_seed_slot_indices.shape[0]
    seeds_len = seeds.shape[0]
    seeds_words = seeds.shape[1]
    num_slots = canary_buf.shape[0]
    canary_buf_words = canary_buf.shape[1]
    ring_capacity = violation_ring.shape[0]
    # Few segments get several programs each; every one of them walks the whole chain.
    lanes = max(1, min(triton.cdiv(num_new_tokens, 32), 128 // max(1, write_req_capacity)))
    programs = write_req_capacity * lanes
    if programs <= 0:
        return
    with dispatch.on_device(write_offsets):
        _write_collisions_kernel[(programs,)](
            write_offsets,
            write_num_valid_reqs,
            seeds,
            input_ids,
            positions,
            out_cache_loc,
            canary_buf,
            violation_ring,
            violation_write_index,
            num_new_tokens,
            write_req_capacity,
            seeds_len,
            seeds_words,
            num_slots,
            canary_buf_words,
            ring_capacity,
            kernel_kind,
            lanes,
            BLOCK=32,
            num_warps=1,
        )


# --- Reference --------------------------------------------------------------------------------------------------------


def reference(
    *,
    write_offsets: torch.Tensor,
    write_seed_slot_indices: torch.Tensor,
    write_num_valid_reqs: torch.Tensor,
    seeds: torch.Tensor,
    input_ids: torch.Tensor,
    positions: torch.Tensor,
    out_cache_loc: torch.Tensor,
    canary_buf: torch.Tensor,
    violation_ring: torch.Tensor,
    violation_write_index: torch.Tensor,
    kernel_kind: torch.Tensor,
) -> None:
    """The kernel in vectorised torch, on any device; scalars are 0-d tensors, so that they wrap."""
    canary_buf = canary_buf.view(torch.int64)
    write_req_capacity = write_seed_slot_indices.shape[0]
    num_new_tokens = input_ids.shape[0]
    num_slots = canary_buf.shape[0]
    segments = eager.segments(
        write_offsets, max(min(int(eager.load(write_num_valid_reqs, 0)), write_req_capacity), 0), num_new_tokens
    )
    r = segments.number
    running_prev_hash = eager.spread(eager.load(seeds, r, layout.WRITE_SEED_FIELD_LINK), r)
    prev_hash = torch.zeros_like(segments.index)
    for step in segments.steps():
        r, i = segments.owner[step], segments.index[step]
        prev_hash_before = running_prev_hash[r]
        prev_hash[step] = prev_hash_before
        slot = eager.load(out_cache_loc, i)
        stored = (slot >= 0) & (slot < num_slots)
        token = eager.load(input_ids, i)
        position = eager.load(positions, i)
        advances = stored
        running_prev_hash[r] = torch.where(
            advances, functions.splitmix64_mix3(prev_hash_before, token, position), prev_hash_before
        )
    r, i = segments.owner, segments.index
    slot = eager.load(out_cache_loc, i)
    stored = (slot >= 0) & (slot < num_slots)
    token = eager.load(input_ids, i)
    position = eager.load(positions, i)
    found_token = eager.load(canary_buf, slot, layout.CANARY_FIELD_TOKEN)
    found_position = eager.load(canary_buf, slot, layout.CANARY_FIELD_POSITION)
    found_prev_hash = eager.load(canary_buf, slot, layout.CANARY_FIELD_PREV_HASH)
    collision_reasons = torch.zeros_like(i)
    collision_reasons |= torch.where(
        (found_token != token) | (found_position != position) | (found_prev_hash != prev_hash),
        layout.FailReason.WRITE_SLOT_COLLISION,
        0,
    )
    collision_reasons = torch.where(stored & (slot != layout.TOKEN_TO_KV_SLOT_PADDING), collision_reasons, 0)
    collision_row: list[torch.Tensor | int] = [
        kernel_kind,
        slot,
        position,
        found_token,
        token,
        found_prev_hash,
        prev_hash,
        collision_reasons,
    ]
    rows = [(collision_reasons, collision_row)]
    eager.append(violation_ring, violation_write_index, rows)
