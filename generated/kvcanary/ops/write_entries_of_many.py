# Written by kvcanary-gen from the spec; edit that instead.
"""Stores the fingerprints of the new tokens, each request's chain going on from its seed.

Contract §5. Operations launch this kernel for all rows of a table of structs at once; it has no public functions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton.language as tl

from .. import layout, structs
from ..core import device, dispatch, lang, sources, tables

# --- Triton -----------------------------------------------------------------------------------------------------------


@lang.kernel
def _write_entries_of_many_chain_kernel(
    # contexts
    contexts_ptr,  # [num_contexts, 12] int64
    # inputs
    write_offsets_ptr,  # [write_req_capacity + 1] int64
    write_seed_slot_indices_ptr,  # [write_req_capacity] int64
    write_num_valid_reqs_ptr,  # [1] int32
    input_ids_ptr,  # [num_new_tokens] int64
    positions_ptr,  # [num_new_tokens] int64
    out_cache_loc_ptr,  # [num_new_tokens] int64
    # outputs
    write_chain_parts_ptr,  # of each [>= num_new_tokens + write_req_capacity, WRITE_CHAIN_NUM_FIELDS] int64
    # sizes and scalars
    num_new_tokens: tl.int64,
    write_req_capacity: tl.int64,
    write_chain_len: tl.int64,
    write_chain_words: tl.int64,
    # constants
    CANARY_BUF_PAIRED: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Walks along each segment of write_entries_of_many, and saves the state before every entry."""
    # The interpreter passes small integers as int32; the sum forces 64 bits and costs nothing compiled.
    num_new_tokens = num_new_tokens.to(tl.int64) + 0
    write_req_capacity = write_req_capacity.to(tl.int64) + 0
    write_chain_len = write_chain_len.to(tl.int64) + 0
    write_chain_words = write_chain_words.to(tl.int64) + 0
    lang.begin(OVERLAPS)
    context = tl.program_id(1).to(tl.int64)
    context_ptr = contexts_ptr + context * 12
    canary_buf_ptr = tl.load(context_ptr).to(tl.pointer_type(tl.int64))
    num_slots = tl.load(context_ptr + 1)
    canary_buf_words = tl.load(context_ptr + 2)
    write_chain_ptr = write_chain_parts_ptr + context * write_chain_len * write_chain_words
    count = tl.minimum(tl.load(write_num_valid_reqs_ptr).to(tl.int64), write_req_capacity)
    segment = tl.program_id(0).to(tl.int64)
    if segment >= count:
        return
    first, end = lang.segment_bounds(segment, True, write_offsets_ptr, num_new_tokens)
    length = end - first
    lane = tl.arange(0, BLOCK)
    r = segment + tl.zeros([BLOCK], tl.int64)
    i = first + lane
    held = tl.minimum(length, BLOCK).to(tl.int32)
    mask = lane < held
    slot = tl.load(out_cache_loc_ptr + i, mask=mask, other=0)
    token = tl.load(input_ids_ptr + i, mask=mask, other=0)
    position = tl.load(positions_ptr + i, mask=mask, other=0)
    seed = tl.load(write_seed_slot_indices_ptr + r)
    seed_exists = seed < num_slots
    alone = lane == 0
    reasons = tl.zeros([BLOCK], tl.int64)
    reasons |= tl.where(seed_exists == 0, device.FAIL_REASON_WRITE_SLOT_OUT_OF_RANGE, 0)
    failing = alone & (reasons != 0)
    if tl.max(failing.to(tl.int32), axis=0) > 0:
        kernel_kind = tl.load(context_ptr + 3)
        violation_ring_ptr = tl.load(context_ptr + 4).to(tl.pointer_type(tl.int64))
        ring_capacity = tl.load(context_ptr + 5)
        violation_write_index_ptr = tl.load(context_ptr + 6).to(tl.pointer_type(tl.int32))
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
    row_2 = num_new_tokens + r
    prev_hash = device.link(
        tl.where(seed_exists, seed, -1), True, canary_buf_ptr, num_slots, canary_buf_words, CANARY_BUF_PAIRED
    )
    tl.store(write_chain_ptr + row_2 * write_chain_words, prev_hash, mask=alone & (row_2 < write_chain_len))
    canary_buf_value = tl.load(
        canary_buf_ptr + seed * canary_buf_words + device.CANARY_FIELD_POSITION,
        mask=(seed >= 0) & (seed < num_slots),
        other=0,
    )
    previous_position = canary_buf_value
    tl.store(write_chain_ptr + row_2 * write_chain_words + 1, previous_position, mask=alone & (row_2 < write_chain_len))
    prev_hash_low, prev_hash_high = lang.halves(prev_hash)
    prev_hash_mixed_low, prev_hash_mixed_high = lang.halves(prev_hash ^ (prev_hash >> 30))
    skipped = lane < 0
    start = tl.zeros([], tl.int64)
    while start < length:
        # The next block is on its way while this one is walked.
        next_i = i + BLOCK
        next_held = tl.minimum(length - start - BLOCK, BLOCK).to(tl.int32)
        next_mask = lane < next_held
        next_slot = tl.load(out_cache_loc_ptr + next_i, mask=next_mask, other=0)
        next_token = tl.load(input_ids_ptr + next_i, mask=next_mask, other=0)
        next_position = tl.load(positions_ptr + next_i, mask=next_mask, other=0)
        stored = (slot >= 0) & (slot < num_slots)
        skipped = skipped | (mask & (stored == 0))
        token_mixed_low, token_mixed_high = lang.halves(
            token.to(tl.uint64, bitcast=True) ^ (token.to(tl.uint64, bitcast=True) >> 30)
        )
        position_mixed_low, position_mixed_high = lang.halves(
            position.to(tl.uint64, bitcast=True) ^ (position.to(tl.uint64, bitcast=True) >> 30)
        )
        follows = mask & (start + lane > 0)
        i_before = i - 1
        left_previous_position = tl.load(positions_ptr + i_before, mask=follows, other=0)
        saved_prev_hash_ptr = write_chain_ptr + i * write_chain_words
        taken = tl.where(mask & (i < write_chain_len), lane, -1)
        at = tl.zeros([], tl.int32)
        while at < held:
            for step in tl.static_range(2):
                entry = tl.full([BLOCK], step, tl.int32) | at
                tl.store(saved_prev_hash_ptr, lang.joined(prev_hash_low, prev_hash_high), mask=taken == entry)
                token_mixed_low_at = tl.gather(token_mixed_low, entry, 0)
                token_mixed_high_at = tl.gather(token_mixed_high, entry, 0)
                position_mixed_low_at = tl.gather(position_mixed_low, entry, 0)
                position_mixed_high_at = tl.gather(position_mixed_high, entry, 0)
                # Between two products lies one layer of shifts, whose halves need not wait for all of each other.
                wide, cross = lang.product(prev_hash_mixed_low, prev_hash_mixed_high, 0xBF58476D1CE4E5B9)
                top = lang.product_bits(wide, cross, 32)
                low = wide.to(tl.uint32) ^ lang.product_bits(wide, cross, 27)
                high = top ^ (top >> 27)
                wide_2, cross_2 = lang.product(low, high, 0x94D049BB133111EB)
                top_2 = lang.product_bits(wide_2, cross_2, 32)
                low = (
                    token_mixed_low_at
                    ^ wide_2.to(tl.uint32)
                    ^ lang.product_bits(wide_2, cross_2, 30)
                    ^ lang.product_bits(wide_2, cross_2, 31)
                    ^ (top_2 >> 29)
                )
                high = token_mixed_high_at ^ top_2 ^ (top_2 >> 30) ^ (top_2 >> 31)
                wide_3, cross_3 = lang.product(low, high, 0xBF58476D1CE4E5B9)
                top_3 = lang.product_bits(wide_3, cross_3, 32)
                low = wide_3.to(tl.uint32) ^ lang.product_bits(wide_3, cross_3, 27)
                high = top_3 ^ (top_3 >> 27)
                wide_4, cross_4 = lang.product(low, high, 0x94D049BB133111EB)
                top_4 = lang.product_bits(wide_4, cross_4, 32)
                low = (
                    position_mixed_low_at
                    ^ wide_4.to(tl.uint32)
                    ^ lang.product_bits(wide_4, cross_4, 30)
                    ^ lang.product_bits(wide_4, cross_4, 31)
                    ^ (top_4 >> 29)
                )
                high = position_mixed_high_at ^ top_4 ^ (top_4 >> 30) ^ (top_4 >> 31)
                wide_5, cross_5 = lang.product(low, high, 0xBF58476D1CE4E5B9)
                top_5 = lang.product_bits(wide_5, cross_5, 32)
                low = wide_5.to(tl.uint32) ^ lang.product_bits(wide_5, cross_5, 27)
                high = top_5 ^ (top_5 >> 27)
                wide_6, cross_6 = lang.product(low, high, 0x94D049BB133111EB)
                top_6 = lang.product_bits(wide_6, cross_6, 32)
                next_prev_hash_low = wide_6.to(tl.uint32) ^ lang.product_bits(wide_6, cross_6, 31)
                next_prev_hash_high = top_6 ^ (top_6 >> 31)
                next_prev_hash_mixed_low = (
                    wide_6.to(tl.uint32)
                    ^ lang.product_bits(wide_6, cross_6, 30)
                    ^ lang.product_bits(wide_6, cross_6, 31)
                    ^ (top_6 >> 29)
                )
                next_prev_hash_mixed_high = top_6 ^ (top_6 >> 30) ^ (top_6 >> 31)
                prev_hash_low = next_prev_hash_low
                prev_hash_high = next_prev_hash_high
                prev_hash_mixed_low = next_prev_hash_mixed_low
                prev_hash_mixed_high = next_prev_hash_mixed_high
            at = tl.add(at, 2, sanitize_overflow=False)
        saved_previous_position = tl.where(follows, left_previous_position, previous_position)
        tl.store(
            write_chain_ptr + i * write_chain_words + 1, saved_previous_position, mask=mask & (i < write_chain_len)
        )
        i = next_i
        held = next_held
        mask = next_mask
        slot = next_slot
        token = next_token
        position = next_position
        start += BLOCK
    if tl.max(skipped.to(tl.int32), axis=0) > 0:
        # Some entries leave the state alone, so each is asked.
        i = first + lane
        mask = lane < length
        slot = tl.load(out_cache_loc_ptr + i, mask=mask, other=0)
        stored = (slot >= 0) & (slot < num_slots)
        token = tl.load(input_ids_ptr + i, mask=mask, other=0)
        position = tl.load(positions_ptr + i, mask=mask, other=0)
        moves = (mask & stored).to(tl.int32)
        start_2 = tl.zeros([], tl.int64)
        while start_2 < length:
            # The next block is on its way while this one is walked.
            next_i_2 = i + BLOCK
            next_mask_2 = start_2 + BLOCK + lane < length
            next_slot_2 = tl.load(out_cache_loc_ptr + next_i_2, mask=next_mask_2, other=0)
            next_stored = (next_slot_2 >= 0) & (next_slot_2 < num_slots)
            next_token_2 = tl.load(input_ids_ptr + next_i_2, mask=next_mask_2, other=0)
            next_position_2 = tl.load(positions_ptr + next_i_2, mask=next_mask_2, other=0)
            next_moves = (next_mask_2 & next_stored).to(tl.int32)
            at_2 = tl.zeros([], tl.int64)
            steps = tl.minimum(length - start_2, BLOCK)
            while at_2 < steps:
                for step_2 in tl.static_range(4):
                    entry_2 = (tl.full([BLOCK], step_2, tl.int64) + at_2).to(tl.int32)
                    here = mask & (lane == entry_2)
                    tl.store(write_chain_ptr + i * write_chain_words, prev_hash, mask=here & (i < write_chain_len))
                    tl.store(
                        write_chain_ptr + i * write_chain_words + 1,
                        previous_position,
                        mask=here & (i < write_chain_len),
                    )
                    token_at = tl.gather(token, entry_2, 0)
                    position_at = tl.gather(position, entry_2, 0)
                    moves_at = tl.gather(moves, entry_2, 0)
                    next_prev_hash = device.splitmix64_mix3(
                        prev_hash, token_at.to(tl.uint64, bitcast=True), position_at.to(tl.uint64, bitcast=True)
                    )
                    next_previous_position = position_at
                    prev_hash = tl.where(moves_at != 0, next_prev_hash, prev_hash)
                    previous_position = tl.where(moves_at != 0, next_previous_position, previous_position)
                at_2 += 4
            i = next_i_2
            mask = next_mask_2
            token = next_token_2
            position = next_position_2
            moves = next_moves
            start_2 += BLOCK


@lang.kernel
def _write_entries_of_many_kernel(
    # contexts
    contexts_ptr,  # [num_contexts, 12] int64
    # inputs
    write_offsets_ptr,  # [write_req_capacity + 1] int64
    write_seed_slot_indices_ptr,  # [write_req_capacity] int64
    write_num_valid_reqs_ptr,  # [1] int32
    input_ids_ptr,  # [num_new_tokens] int64
    positions_ptr,  # [num_new_tokens] int64
    out_cache_loc_ptr,  # [num_new_tokens] int64
    expected_input_tokens_ptr,  # [num_new_tokens] int64
    expected_input_positions_ptr,  # [num_new_tokens] int64
    # outputs
    write_chain_parts_ptr,  # of each [>= num_new_tokens + write_req_capacity, WRITE_CHAIN_NUM_FIELDS] int64
    # sizes and scalars
    num_new_tokens: tl.int64,
    write_req_capacity: tl.int64,
    write_chain_len: tl.int64,
    write_chain_words: tl.int64,
    # constants
    HAS_EXPECTED_INPUT_TOKENS: tl.constexpr,
    HAS_EXPECTED_INPUT_POSITIONS: tl.constexpr,
    REAL_KV_HASH_MODE: tl.constexpr,
    ENABLE_WRITE_INPUT_ASSERT: tl.constexpr,
    REAL_KV_HASH_TILE: tl.constexpr,
    REAL_KV_HASH_ALIGNMENT: tl.constexpr,
    REAL_KV_HASH_CUT: tl.constexpr,
    BLOCK: tl.constexpr,
    SCAN: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Stores the fingerprints of the new tokens, each request's chain going on from its seed."""
    # The interpreter passes small integers as int32; the sum forces 64 bits and costs nothing compiled.
    num_new_tokens = num_new_tokens.to(tl.int64) + 0
    write_req_capacity = write_req_capacity.to(tl.int64) + 0
    write_chain_len = write_chain_len.to(tl.int64) + 0
    write_chain_words = write_chain_words.to(tl.int64) + 0
    context = tl.program_id(1).to(tl.int64)
    context_ptr = contexts_ptr + context * 12
    canary_buf_ptr = tl.load(context_ptr).to(tl.pointer_type(tl.int64))
    num_slots = tl.load(context_ptr + 1)
    canary_buf_words = tl.load(context_ptr + 2)
    slot_run_counter_ptr = tl.load(context_ptr + 7).to(tl.pointer_type(tl.int64))
    real_kv_sources_table_ptr = tl.load(context_ptr + 9).to(tl.pointer_type(tl.int64))
    real_kv_sources_table_len = tl.load(context_ptr + 10)
    enable_chain_position_assert_ptr = tl.load(context_ptr + 11).to(tl.pointer_type(tl.int32))
    write_chain_ptr = write_chain_parts_ptr + context * write_chain_len * write_chain_words
    if tl.program_id(0) == 0:
        kernel_run_counter_ptr = tl.load(context_ptr + 8).to(tl.pointer_type(tl.int64))
        tl.atomic_add(kernel_run_counter_ptr, tl.full([], 1, tl.int64), sem="relaxed")
    count = tl.minimum(tl.load(write_num_valid_reqs_ptr).to(tl.int64), write_req_capacity)
    program = tl.program_id(0).to(tl.int64)
    # Segments that share entries, as broken offsets make them, are taken one by one.
    apart = lang.offsets_ascend(write_offsets_ptr, count, SCAN)
    segment = tl.where(apart, 0, program)
    while segment < tl.where(apart, 1, count):
        exists = segment < count
        first, end = lang.segment_bounds(segment, exists, write_offsets_ptr, num_new_tokens)
        walked = exists & (apart == 0)
        if walked:
            lang.join(OVERLAPS)
        row = num_new_tokens + segment
        chain_prev_hash = tl.load(
            write_chain_ptr + row * write_chain_words, mask=walked & (row < write_chain_len), other=0
        ).to(tl.uint64, bitcast=True)
        chain_previous_position = tl.load(
            write_chain_ptr + row * write_chain_words + 1, mask=walked & (row < write_chain_len), other=0
        )
        start = tl.zeros([], tl.int64)
        while start < tl.where(apart, 1, end - first):
            if apart:
                i = program * BLOCK + tl.arange(0, BLOCK)
                r, begin, found = lang.bisect_segment(i, tl.zeros([], tl.int64), count, write_offsets_ptr, count)
                mask = found & (i < num_new_tokens)
                j = i - begin
            else:
                r = segment + tl.zeros([BLOCK], tl.int64)
                j = start + tl.arange(0, BLOCK)
                i = first + j
                mask = i < end
            seed = tl.load(write_seed_slot_indices_ptr + r, mask=mask, other=0)
            seed_exists = seed < num_slots
            slot = tl.load(out_cache_loc_ptr + i, mask=mask, other=0)
            stored = (slot >= 0) & (slot < num_slots)
            bytes_hash = tl.where(
                stored,
                device.real_kv_hash_of_table(
                    slot,
                    mask & stored,
                    real_kv_sources_table_ptr,
                    real_kv_sources_table_len,
                    REAL_KV_HASH_MODE,
                    REAL_KV_HASH_TILE,
                    REAL_KV_HASH_ALIGNMENT,
                    REAL_KV_HASH_CUT,
                ),
                0,
            )
            token = tl.load(input_ids_ptr + i, mask=mask, other=0)
            position = tl.load(positions_ptr + i, mask=mask, other=0)
            chained = (
                lang.one_bit(tl.load(enable_chain_position_assert_ptr).to(tl.int64) != 0) & (seed >= 0) & seed_exists
            )
            if ENABLE_WRITE_INPUT_ASSERT and HAS_EXPECTED_INPUT_TOKENS:
                expected_token = tl.load(expected_input_tokens_ptr + i, mask=mask, other=0)
            else:
                expected_token = token
            if ENABLE_WRITE_INPUT_ASSERT and HAS_EXPECTED_INPUT_POSITIONS:
                expected_position = tl.load(expected_input_positions_ptr + i, mask=mask, other=0)
            else:
                expected_position = position
            if apart:
                lang.join(OVERLAPS)
                prev_hash = tl.load(
                    write_chain_ptr + i * write_chain_words, mask=mask & (i < write_chain_len), other=0
                ).to(tl.uint64, bitcast=True)
                previous_position = tl.load(
                    write_chain_ptr + i * write_chain_words + 1, mask=mask & (i < write_chain_len), other=0
                )
            else:
                prev_hash = tl.zeros([BLOCK], tl.uint64)
                previous_position = tl.zeros([BLOCK], tl.int64)
                at = start
                while at < tl.minimum(start + BLOCK, end - first):
                    chain_index = first + at
                    prev_hash = tl.where(j == at, chain_prev_hash, prev_hash)
                    previous_position = tl.where(j == at, chain_previous_position, previous_position)
                    chain_slot = tl.load(out_cache_loc_ptr + chain_index)
                    chain_stored = (chain_slot >= 0) & (chain_slot < num_slots)
                    chain_token = tl.load(input_ids_ptr + chain_index)
                    chain_position = tl.load(positions_ptr + chain_index)
                    next_prev_hash = device.splitmix64_mix3(
                        chain_prev_hash,
                        chain_token.to(tl.uint64, bitcast=True),
                        chain_position.to(tl.uint64, bitcast=True),
                    )
                    next_previous_position = chain_position
                    chain_prev_hash = tl.where(chain_stored, next_prev_hash, chain_prev_hash)
                    chain_previous_position = tl.where(chain_stored, next_previous_position, chain_previous_position)
                    at += 1
            tl.store(
                canary_buf_ptr + slot * canary_buf_words + device.CANARY_FIELD_TOKEN,
                token,
                mask=mask & (slot >= 0) & (slot < num_slots),
            )
            tl.store(
                canary_buf_ptr + slot * canary_buf_words + device.CANARY_FIELD_POSITION,
                position,
                mask=mask & (slot >= 0) & (slot < num_slots),
            )
            tl.store(
                canary_buf_ptr + slot * canary_buf_words + device.CANARY_FIELD_PREV_HASH,
                prev_hash,
                mask=mask & (slot >= 0) & (slot < num_slots),
            )
            tl.store(
                canary_buf_ptr + slot * canary_buf_words + device.CANARY_FIELD_REAL_KV_HASH,
                bytes_hash,
                mask=mask & (slot >= 0) & (slot < num_slots),
            )
            added = tl.sum(tl.where(mask, stored.to(tl.int64), 0).to(tl.int64), axis=0)
            if added != 0:
                tl.atomic_add(slot_run_counter_ptr, added, sem="relaxed")
            reasons = tl.zeros([BLOCK], tl.int64)
            reasons |= tl.where(slot >= num_slots, device.FAIL_REASON_WRITE_SLOT_OUT_OF_RANGE, 0)
            failing = mask & (reasons != 0)
            if tl.max(failing.to(tl.int32), axis=0) > 0:
                kernel_kind = tl.load(context_ptr + 3)
                violation_ring_ptr = tl.load(context_ptr + 4).to(tl.pointer_type(tl.int64))
                ring_capacity = tl.load(context_ptr + 5)
                violation_write_index_ptr = tl.load(context_ptr + 6).to(tl.pointer_type(tl.int32))
                row_2, kept = lang.append(failing, violation_write_index_ptr, ring_capacity)
                row_2_ptr = violation_ring_ptr + row_2 * device.VIOLATION_NUM_FIELDS
                tl.store(row_2_ptr, kernel_kind, mask=kept)
                tl.store(row_2_ptr + 1, slot, mask=kept)
                tl.store(row_2_ptr + 2, position, mask=kept)
                tl.store(row_2_ptr + 3, token, mask=kept)
                tl.store(row_2_ptr + 4, token, mask=kept)
                tl.store(row_2_ptr + 5, 0, mask=kept)
                tl.store(row_2_ptr + 6, 0, mask=kept)
                tl.store(row_2_ptr + 7, reasons, mask=kept)
            reasons_2 = tl.zeros([BLOCK], tl.int64)
            reasons_2 |= tl.where(token != expected_token, device.FAIL_REASON_WRITE_TOKEN_MISMATCH, 0)
            reasons_2 |= tl.where(position != expected_position, device.FAIL_REASON_WRITE_POSITION_MISMATCH, 0)
            failing_2 = mask & stored & (reasons_2 != 0)
            if tl.max(failing_2.to(tl.int32), axis=0) > 0:
                kernel_kind = tl.load(context_ptr + 3)
                violation_ring_ptr = tl.load(context_ptr + 4).to(tl.pointer_type(tl.int64))
                ring_capacity = tl.load(context_ptr + 5)
                violation_write_index_ptr = tl.load(context_ptr + 6).to(tl.pointer_type(tl.int32))
                row_3, kept_2 = lang.append(failing_2, violation_write_index_ptr, ring_capacity)
                row_3_ptr = violation_ring_ptr + row_3 * device.VIOLATION_NUM_FIELDS
                tl.store(row_3_ptr, kernel_kind, mask=kept_2)
                tl.store(row_3_ptr + 1, slot, mask=kept_2)
                tl.store(row_3_ptr + 2, position, mask=kept_2)
                tl.store(row_3_ptr + 3, token, mask=kept_2)
                tl.store(row_3_ptr + 4, expected_token, mask=kept_2)
                tl.store(row_3_ptr + 5, prev_hash, mask=kept_2)
                tl.store(row_3_ptr + 6, expected_position.to(tl.uint64, bitcast=True), mask=kept_2)
                tl.store(row_3_ptr + 7, reasons_2, mask=kept_2)
            chain_assert_checked = stored & chained
            reasons_3 = tl.zeros([BLOCK], tl.int64)
            reasons_3 |= tl.where(position != previous_position + 1, device.FAIL_REASON_WRITE_POSITION_MISMATCH, 0)
            failing_3 = mask & chain_assert_checked & (reasons_3 != 0)
            if tl.max(failing_3.to(tl.int32), axis=0) > 0:
                kernel_kind = tl.load(context_ptr + 3)
                violation_ring_ptr = tl.load(context_ptr + 4).to(tl.pointer_type(tl.int64))
                ring_capacity = tl.load(context_ptr + 5)
                violation_write_index_ptr = tl.load(context_ptr + 6).to(tl.pointer_type(tl.int32))
                row_4, kept_3 = lang.append(failing_3, violation_write_index_ptr, ring_capacity)
                row_4_ptr = violation_ring_ptr + row_4 * device.VIOLATION_NUM_FIELDS
                tl.store(row_4_ptr, kernel_kind, mask=kept_3)
                tl.store(row_4_ptr + 1, slot, mask=kept_3)
                tl.store(row_4_ptr + 2, position, mask=kept_3)
                tl.store(row_4_ptr + 3, token, mask=kept_3)
                tl.store(row_4_ptr + 4, token, mask=kept_3)
                tl.store(row_4_ptr + 5, prev_hash, mask=kept_3)
                tl.store(row_4_ptr + 6, (previous_position + 1).to(tl.uint64, bitcast=True), mask=kept_3)
                tl.store(row_4_ptr + 7, reasons_3, mask=kept_3)
            start += BLOCK
        segment += tl.num_programs(0)
    lang.join(OVERLAPS)


@lang.kernel
def _write_entries_of_many_after_kernel(
    # contexts
    contexts_ptr,  # [num_contexts, 12] int64
    # inputs
    write_offsets_ptr,  # [write_req_capacity + 1] int64
    write_num_valid_reqs_ptr,  # [1] int32
    input_ids_ptr,  # [num_new_tokens] int64
    positions_ptr,  # [num_new_tokens] int64
    out_cache_loc_ptr,  # [num_new_tokens] int64
    # outputs
    write_chain_parts_ptr,  # of each [>= num_new_tokens + write_req_capacity, WRITE_CHAIN_NUM_FIELDS] int64
    # sizes and scalars
    num_new_tokens: tl.int64,
    write_req_capacity: tl.int64,
    write_chain_len: tl.int64,
    write_chain_words: tl.int64,
    # constants
    CANARY_BUF_PAIRED: tl.constexpr,
    BLOCK: tl.constexpr,
    SCAN: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Looks at every entry of write_entries_of_many again, now that all is stored."""
    # The interpreter passes small integers as int32; the sum forces 64 bits and costs nothing compiled.
    num_new_tokens = num_new_tokens.to(tl.int64) + 0
    write_req_capacity = write_req_capacity.to(tl.int64) + 0
    write_chain_len = write_chain_len.to(tl.int64) + 0
    write_chain_words = write_chain_words.to(tl.int64) + 0
    context = tl.program_id(1).to(tl.int64)
    context_ptr = contexts_ptr + context * 12
    canary_buf_ptr = tl.load(context_ptr).to(tl.pointer_type(tl.int64))
    num_slots = tl.load(context_ptr + 1)
    canary_buf_words = tl.load(context_ptr + 2)
    write_chain_ptr = write_chain_parts_ptr + context * write_chain_len * write_chain_words
    count = tl.minimum(tl.load(write_num_valid_reqs_ptr).to(tl.int64), write_req_capacity)
    program = tl.program_id(0).to(tl.int64)
    # Segments that share entries, as broken offsets make them, are taken one by one.
    apart = lang.offsets_ascend(write_offsets_ptr, count, SCAN)
    segment = tl.where(apart, 0, program)
    while segment < tl.where(apart, 1, count):
        exists = segment < count
        first, end = lang.segment_bounds(segment, exists, write_offsets_ptr, num_new_tokens)
        walked = exists & (apart == 0)
        if walked:
            lang.join(OVERLAPS)
        row = num_new_tokens + segment
        chain_prev_hash = tl.load(
            write_chain_ptr + row * write_chain_words, mask=walked & (row < write_chain_len), other=0
        ).to(tl.uint64, bitcast=True)
        chain_previous_position = tl.load(
            write_chain_ptr + row * write_chain_words + 1, mask=walked & (row < write_chain_len), other=0
        )
        start = tl.zeros([], tl.int64)
        while start < tl.where(apart, 1, end - first):
            if apart:
                i = program * BLOCK + tl.arange(0, BLOCK)
                _, begin, found = lang.bisect_segment(i, tl.zeros([], tl.int64), count, write_offsets_ptr, count)
                mask = found & (i < num_new_tokens)
                j = i - begin
            else:
                j = start + tl.arange(0, BLOCK)
                i = first + j
                mask = i < end
            slot = tl.load(out_cache_loc_ptr + i, mask=mask, other=0)
            stored = (slot >= 0) & (slot < num_slots)
            token = tl.load(input_ids_ptr + i, mask=mask, other=0)
            position = tl.load(positions_ptr + i, mask=mask, other=0)
            if apart:
                lang.join(OVERLAPS)
                prev_hash = tl.load(
                    write_chain_ptr + i * write_chain_words, mask=mask & (i < write_chain_len), other=0
                ).to(tl.uint64, bitcast=True)
                previous_position = tl.load(
                    write_chain_ptr + i * write_chain_words + 1, mask=mask & (i < write_chain_len), other=0
                )
            else:
                prev_hash = tl.zeros([BLOCK], tl.uint64)
                previous_position = tl.zeros([BLOCK], tl.int64)
                at = start
                while at < tl.minimum(start + BLOCK, end - first):
                    chain_index = first + at
                    prev_hash = tl.where(j == at, chain_prev_hash, prev_hash)
                    previous_position = tl.where(j == at, chain_previous_position, previous_position)
                    chain_slot = tl.load(out_cache_loc_ptr + chain_index)
                    chain_stored = (chain_slot >= 0) & (chain_slot < num_slots)
                    chain_token = tl.load(input_ids_ptr + chain_index)
                    chain_position = tl.load(positions_ptr + chain_index)
                    next_prev_hash = device.splitmix64_mix3(
                        chain_prev_hash,
                        chain_token.to(tl.uint64, bitcast=True),
                        chain_position.to(tl.uint64, bitcast=True),
                    )
                    next_previous_position = chain_position
                    chain_prev_hash = tl.where(chain_stored, next_prev_hash, chain_prev_hash)
                    chain_previous_position = tl.where(chain_stored, next_previous_position, chain_previous_position)
                    at += 1
            found_token, found_position = lang.load_pair(
                canary_buf_ptr,
                slot * canary_buf_words + device.CANARY_FIELD_TOKEN,
                mask & (slot >= 0) & (slot < num_slots),
                CANARY_BUF_PAIRED,
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
                kernel_kind = tl.load(context_ptr + 3)
                violation_ring_ptr = tl.load(context_ptr + 4).to(tl.pointer_type(tl.int64))
                ring_capacity = tl.load(context_ptr + 5)
                violation_write_index_ptr = tl.load(context_ptr + 6).to(tl.pointer_type(tl.int32))
                row_2, kept = lang.append(failing, violation_write_index_ptr, ring_capacity)
                row_2_ptr = violation_ring_ptr + row_2 * device.VIOLATION_NUM_FIELDS
                tl.store(row_2_ptr, kernel_kind, mask=kept)
                tl.store(row_2_ptr + 1, slot, mask=kept)
                tl.store(row_2_ptr + 2, position, mask=kept)
                tl.store(row_2_ptr + 3, found_token, mask=kept)
                tl.store(row_2_ptr + 4, token, mask=kept)
                tl.store(row_2_ptr + 5, found_prev_hash, mask=kept)
                tl.store(row_2_ptr + 6, prev_hash, mask=kept)
                tl.store(row_2_ptr + 7, reasons, mask=kept)
            start += BLOCK
        segment += tl.num_programs(0)
    lang.join(OVERLAPS)


@lang.kernel
def _write_entries_of_many_once_kernel(
    # contexts
    contexts_ptr,  # [num_contexts, 12] int64
    # inputs
    write_offsets_ptr,  # [write_req_capacity + 1] int64
    write_seed_slot_indices_ptr,  # [write_req_capacity] int64
    write_num_valid_reqs_ptr,  # [1] int32
    input_ids_ptr,  # [num_new_tokens] int64
    positions_ptr,  # [num_new_tokens] int64
    out_cache_loc_ptr,  # [num_new_tokens] int64
    expected_input_tokens_ptr,  # [num_new_tokens] int64
    expected_input_positions_ptr,  # [num_new_tokens] int64
    # outputs
    write_chain_parts_ptr,  # of each [>= num_new_tokens + write_req_capacity, WRITE_CHAIN_NUM_FIELDS] int64
    # sizes and scalars
    num_new_tokens: tl.int64,
    write_req_capacity: tl.int64,
    write_chain_len: tl.int64,
    write_chain_words: tl.int64,
    # constants
    HAS_EXPECTED_INPUT_TOKENS: tl.constexpr,
    HAS_EXPECTED_INPUT_POSITIONS: tl.constexpr,
    REAL_KV_HASH_MODE: tl.constexpr,
    ENABLE_WRITE_INPUT_ASSERT: tl.constexpr,
    CANARY_BUF_PAIRED: tl.constexpr,
    REAL_KV_HASH_TILE: tl.constexpr,
    REAL_KV_HASH_ALIGNMENT: tl.constexpr,
    REAL_KV_HASH_CUT: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """All of write_entries_of_many in one program, for few segments and few entries."""
    # The interpreter passes small integers as int32; the sum forces 64 bits and costs nothing compiled.
    num_new_tokens = num_new_tokens.to(tl.int64) + 0
    write_req_capacity = write_req_capacity.to(tl.int64) + 0
    write_chain_len = write_chain_len.to(tl.int64) + 0
    write_chain_words = write_chain_words.to(tl.int64) + 0
    lang.begin(OVERLAPS)
    context = tl.program_id(1).to(tl.int64)
    context_ptr = contexts_ptr + context * 12
    canary_buf_ptr = tl.load(context_ptr).to(tl.pointer_type(tl.int64))
    num_slots = tl.load(context_ptr + 1)
    canary_buf_words = tl.load(context_ptr + 2)
    slot_run_counter_ptr = tl.load(context_ptr + 7).to(tl.pointer_type(tl.int64))
    real_kv_sources_table_ptr = tl.load(context_ptr + 9).to(tl.pointer_type(tl.int64))
    real_kv_sources_table_len = tl.load(context_ptr + 10)
    enable_chain_position_assert_ptr = tl.load(context_ptr + 11).to(tl.pointer_type(tl.int32))
    write_chain_ptr = write_chain_parts_ptr + context * write_chain_len * write_chain_words
    if tl.program_id(0) == 0:
        kernel_run_counter_ptr = tl.load(context_ptr + 8).to(tl.pointer_type(tl.int64))
        tl.atomic_add(kernel_run_counter_ptr, tl.full([], 1, tl.int64), sem="relaxed")
    count = tl.minimum(tl.load(write_num_valid_reqs_ptr).to(tl.int64), write_req_capacity)
    lane = tl.arange(0, BLOCK).to(tl.int64)
    listed = lane < write_req_capacity
    exists = lane < count
    first, end = lang.segment_bounds(lane, listed, write_offsets_ptr, num_new_tokens)
    segment_seed = tl.load(write_seed_slot_indices_ptr + lane, mask=listed, other=0)
    segment_seed_exists = segment_seed < num_slots
    length = tl.where(exists, end - first, 0)
    longest = lang.longest(length)
    start_prev_hash = device.link(
        tl.where(segment_seed_exists, segment_seed, -1),
        listed,
        canary_buf_ptr,
        num_slots,
        canary_buf_words,
        CANARY_BUF_PAIRED,
    )
    start_previous_position = tl.load(
        canary_buf_ptr + segment_seed * canary_buf_words + device.CANARY_FIELD_POSITION,
        mask=listed & (segment_seed >= 0) & (segment_seed < num_slots),
        other=0,
    )
    reasons = tl.zeros([BLOCK], tl.int64)
    reasons |= tl.where(segment_seed_exists == 0, device.FAIL_REASON_WRITE_SLOT_OUT_OF_RANGE, 0)
    failing = exists & (reasons != 0)
    if tl.max(failing.to(tl.int32), axis=0) > 0:
        kernel_kind = tl.load(context_ptr + 3)
        violation_ring_ptr = tl.load(context_ptr + 4).to(tl.pointer_type(tl.int64))
        ring_capacity = tl.load(context_ptr + 5)
        violation_write_index_ptr = tl.load(context_ptr + 6).to(tl.pointer_type(tl.int32))
        row, kept = lang.append(failing, violation_write_index_ptr, ring_capacity)
        row_ptr = violation_ring_ptr + row * device.VIOLATION_NUM_FIELDS
        tl.store(row_ptr, kernel_kind, mask=kept)
        tl.store(row_ptr + 1, segment_seed, mask=kept)
        tl.store(row_ptr + 2, 0, mask=kept)
        tl.store(row_ptr + 3, 0, mask=kept)
        tl.store(row_ptr + 4, 0, mask=kept)
        tl.store(row_ptr + 5, 0, mask=kept)
        tl.store(row_ptr + 6, 0, mask=kept)
        tl.store(row_ptr + 7, reasons, mask=kept)
    # Segments that share entries, as broken offsets make them, go together however long they are.
    together = longest <= 8
    if longest > 8:
        together = lang.offsets_ascend(write_offsets_ptr, count, BLOCK) == 0
    if together == 0:
        chain_prev_hash = start_prev_hash
        chain_previous_position = start_previous_position
        stored_0 = tl.zeros([BLOCK], tl.int1)
        stored_1 = tl.zeros([BLOCK], tl.int1)
        stored_2 = tl.zeros([BLOCK], tl.int1)
        stored_3 = tl.zeros([BLOCK], tl.int1)
        token_0 = tl.zeros([BLOCK], tl.int64)
        token_1 = tl.zeros([BLOCK], tl.int64)
        token_2 = tl.zeros([BLOCK], tl.int64)
        token_3 = tl.zeros([BLOCK], tl.int64)
        position_0 = tl.zeros([BLOCK], tl.int64)
        position_1 = tl.zeros([BLOCK], tl.int64)
        position_2 = tl.zeros([BLOCK], tl.int64)
        position_3 = tl.zeros([BLOCK], tl.int64)
        at = tl.full([], -4, tl.int64)
        while at < longest:
            ahead = at + 4
            later = ahead < length
            later_i = first + ahead
            later_slot = tl.load(out_cache_loc_ptr + later_i, mask=later, other=0)
            later_stored = (later_slot >= 0) & (later_slot < num_slots)
            later_token = tl.load(input_ids_ptr + later_i, mask=later, other=0)
            later_position = tl.load(positions_ptr + later_i, mask=later, other=0)
            here = lang.one_bit(at >= 0) & (at < length)
            chain_i = first + at
            tl.store(
                write_chain_ptr + chain_i * write_chain_words, chain_prev_hash, mask=here & (chain_i < write_chain_len)
            )
            tl.store(
                write_chain_ptr + chain_i * write_chain_words + 1,
                chain_previous_position,
                mask=here & (chain_i < write_chain_len),
            )
            next_prev_hash = device.splitmix64_mix3(
                chain_prev_hash, token_0.to(tl.uint64, bitcast=True), position_0.to(tl.uint64, bitcast=True)
            )
            next_previous_position = position_0
            moves = here & stored_0
            chain_prev_hash = tl.where(moves, next_prev_hash, chain_prev_hash)
            chain_previous_position = tl.where(moves, next_previous_position, chain_previous_position)
            stored_0, stored_1, stored_2, stored_3 = stored_1, stored_2, stored_3, later_stored
            token_0, token_1, token_2, token_3 = token_1, token_2, token_3, later_token
            position_0, position_1, position_2, position_3 = position_1, position_2, position_3, later_position
            at += 1
    # Whatever segments start from is read before anything is stored.
    tl.debug_barrier()
    rounds = tl.where(together, longest, tl.cdiv(num_new_tokens, BLOCK))
    running_prev_hash = start_prev_hash
    running_previous_position = start_previous_position
    turn = tl.zeros([], tl.int64)
    while turn < rounds:
        if together:
            r = lane
            i = first + turn
            mask = turn < length
            prev_hash = running_prev_hash
            previous_position = running_previous_position
        else:
            i = turn * BLOCK + lane
            r, _, found = lang.bisect_segment(i, tl.zeros([], tl.int64), count, write_offsets_ptr, count)
            mask = found & (i < num_new_tokens)
            part = tl.load(write_chain_ptr + i * write_chain_words, mask=mask & (i < write_chain_len), other=0)
            prev_hash = part.to(tl.uint64, bitcast=True)
            previous_position = tl.load(
                write_chain_ptr + i * write_chain_words + 1, mask=mask & (i < write_chain_len), other=0
            )
        seed = tl.load(write_seed_slot_indices_ptr + r, mask=mask, other=0)
        seed_exists = seed < num_slots
        slot = tl.load(out_cache_loc_ptr + i, mask=mask, other=0)
        stored = (slot >= 0) & (slot < num_slots)
        bytes_hash = tl.where(
            stored,
            device.real_kv_hash_of_table(
                slot,
                mask & stored,
                real_kv_sources_table_ptr,
                real_kv_sources_table_len,
                REAL_KV_HASH_MODE,
                REAL_KV_HASH_TILE,
                REAL_KV_HASH_ALIGNMENT,
                REAL_KV_HASH_CUT,
            ),
            0,
        )
        token = tl.load(input_ids_ptr + i, mask=mask, other=0)
        position = tl.load(positions_ptr + i, mask=mask, other=0)
        chained = lang.one_bit(tl.load(enable_chain_position_assert_ptr).to(tl.int64) != 0) & (seed >= 0) & seed_exists
        if ENABLE_WRITE_INPUT_ASSERT and HAS_EXPECTED_INPUT_TOKENS:
            expected_token = tl.load(expected_input_tokens_ptr + i, mask=mask, other=0)
        else:
            expected_token = token
        if ENABLE_WRITE_INPUT_ASSERT and HAS_EXPECTED_INPUT_POSITIONS:
            expected_position = tl.load(expected_input_positions_ptr + i, mask=mask, other=0)
        else:
            expected_position = position
        tl.store(
            canary_buf_ptr + slot * canary_buf_words + device.CANARY_FIELD_TOKEN,
            token,
            mask=mask & (slot >= 0) & (slot < num_slots),
        )
        tl.store(
            canary_buf_ptr + slot * canary_buf_words + device.CANARY_FIELD_POSITION,
            position,
            mask=mask & (slot >= 0) & (slot < num_slots),
        )
        tl.store(
            canary_buf_ptr + slot * canary_buf_words + device.CANARY_FIELD_PREV_HASH,
            prev_hash,
            mask=mask & (slot >= 0) & (slot < num_slots),
        )
        tl.store(
            canary_buf_ptr + slot * canary_buf_words + device.CANARY_FIELD_REAL_KV_HASH,
            bytes_hash,
            mask=mask & (slot >= 0) & (slot < num_slots),
        )
        added = tl.sum(tl.where(mask, stored.to(tl.int64), 0).to(tl.int64), axis=0)
        if added != 0:
            tl.atomic_add(slot_run_counter_ptr, added, sem="relaxed")
        reasons_2 = tl.zeros([BLOCK], tl.int64)
        reasons_2 |= tl.where(slot >= num_slots, device.FAIL_REASON_WRITE_SLOT_OUT_OF_RANGE, 0)
        failing_2 = mask & (reasons_2 != 0)
        reasons_3 = tl.zeros([BLOCK], tl.int64)
        reasons_3 |= tl.where(token != expected_token, device.FAIL_REASON_WRITE_TOKEN_MISMATCH, 0)
        reasons_3 |= tl.where(position != expected_position, device.FAIL_REASON_WRITE_POSITION_MISMATCH, 0)
        failing_3 = mask & stored & (reasons_3 != 0)
        chain_assert_checked = stored & chained
        reasons_4 = tl.zeros([BLOCK], tl.int64)
        reasons_4 |= tl.where(position != previous_position + 1, device.FAIL_REASON_WRITE_POSITION_MISMATCH, 0)
        failing_4 = mask & chain_assert_checked & (reasons_4 != 0)
        if tl.max((failing_2 | failing_3 | failing_4).to(tl.int32), axis=0) > 0:
            if tl.max(failing_2.to(tl.int32), axis=0) > 0:
                kernel_kind = tl.load(context_ptr + 3)
                violation_ring_ptr = tl.load(context_ptr + 4).to(tl.pointer_type(tl.int64))
                ring_capacity = tl.load(context_ptr + 5)
                violation_write_index_ptr = tl.load(context_ptr + 6).to(tl.pointer_type(tl.int32))
                row_2, kept_2 = lang.append(failing_2, violation_write_index_ptr, ring_capacity)
                row_2_ptr = violation_ring_ptr + row_2 * device.VIOLATION_NUM_FIELDS
                tl.store(row_2_ptr, kernel_kind, mask=kept_2)
                tl.store(row_2_ptr + 1, slot, mask=kept_2)
                tl.store(row_2_ptr + 2, position, mask=kept_2)
                tl.store(row_2_ptr + 3, token, mask=kept_2)
                tl.store(row_2_ptr + 4, token, mask=kept_2)
                tl.store(row_2_ptr + 5, 0, mask=kept_2)
                tl.store(row_2_ptr + 6, 0, mask=kept_2)
                tl.store(row_2_ptr + 7, reasons_2, mask=kept_2)
            if tl.max(failing_3.to(tl.int32), axis=0) > 0:
                kernel_kind = tl.load(context_ptr + 3)
                violation_ring_ptr = tl.load(context_ptr + 4).to(tl.pointer_type(tl.int64))
                ring_capacity = tl.load(context_ptr + 5)
                violation_write_index_ptr = tl.load(context_ptr + 6).to(tl.pointer_type(tl.int32))
                row_3, kept_3 = lang.append(failing_3, violation_write_index_ptr, ring_capacity)
                row_3_ptr = violation_ring_ptr + row_3 * device.VIOLATION_NUM_FIELDS
                tl.store(row_3_ptr, kernel_kind, mask=kept_3)
                tl.store(row_3_ptr + 1, slot, mask=kept_3)
                tl.store(row_3_ptr + 2, position, mask=kept_3)
                tl.store(row_3_ptr + 3, token, mask=kept_3)
                tl.store(row_3_ptr + 4, expected_token, mask=kept_3)
                tl.store(row_3_ptr + 5, prev_hash, mask=kept_3)
                tl.store(row_3_ptr + 6, expected_position.to(tl.uint64, bitcast=True), mask=kept_3)
                tl.store(row_3_ptr + 7, reasons_3, mask=kept_3)
            if tl.max(failing_4.to(tl.int32), axis=0) > 0:
                kernel_kind = tl.load(context_ptr + 3)
                violation_ring_ptr = tl.load(context_ptr + 4).to(tl.pointer_type(tl.int64))
                ring_capacity = tl.load(context_ptr + 5)
                violation_write_index_ptr = tl.load(context_ptr + 6).to(tl.pointer_type(tl.int32))
                row_4, kept_4 = lang.append(failing_4, violation_write_index_ptr, ring_capacity)
                row_4_ptr = violation_ring_ptr + row_4 * device.VIOLATION_NUM_FIELDS
                tl.store(row_4_ptr, kernel_kind, mask=kept_4)
                tl.store(row_4_ptr + 1, slot, mask=kept_4)
                tl.store(row_4_ptr + 2, position, mask=kept_4)
                tl.store(row_4_ptr + 3, token, mask=kept_4)
                tl.store(row_4_ptr + 4, token, mask=kept_4)
                tl.store(row_4_ptr + 5, prev_hash, mask=kept_4)
                tl.store(row_4_ptr + 6, (previous_position + 1).to(tl.uint64, bitcast=True), mask=kept_4)
                tl.store(row_4_ptr + 7, reasons_4, mask=kept_4)
        if turn + 1 < tl.where(together, longest, 0):
            next_prev_hash_2 = device.splitmix64_mix3(
                prev_hash, token.to(tl.uint64, bitcast=True), position.to(tl.uint64, bitcast=True)
            )
            next_previous_position_2 = position
            running_prev_hash = tl.where(mask & stored, next_prev_hash_2, running_prev_hash)
            running_previous_position = tl.where(mask & stored, next_previous_position_2, running_previous_position)
        turn += 1
    # Everything is stored.
    tl.debug_barrier()
    rounds_2 = tl.where(together, longest, tl.cdiv(num_new_tokens, BLOCK))
    running_prev_hash_2 = start_prev_hash
    running_previous_position_2 = start_previous_position
    turn_2 = tl.zeros([], tl.int64)
    while turn_2 < rounds_2:
        if together:
            i = first + turn_2
            mask = turn_2 < length
            prev_hash = running_prev_hash_2
            previous_position = running_previous_position_2
        else:
            i = turn_2 * BLOCK + lane
            _, _, found_2 = lang.bisect_segment(i, tl.zeros([], tl.int64), count, write_offsets_ptr, count)
            mask = found_2 & (i < num_new_tokens)
            part_2 = tl.load(write_chain_ptr + i * write_chain_words, mask=mask & (i < write_chain_len), other=0)
            prev_hash = part_2.to(tl.uint64, bitcast=True)
            previous_position = tl.load(
                write_chain_ptr + i * write_chain_words + 1, mask=mask & (i < write_chain_len), other=0
            )
        slot = tl.load(out_cache_loc_ptr + i, mask=mask, other=0)
        stored = (slot >= 0) & (slot < num_slots)
        token = tl.load(input_ids_ptr + i, mask=mask, other=0)
        position = tl.load(positions_ptr + i, mask=mask, other=0)
        found_token, found_position = lang.load_pair(
            canary_buf_ptr,
            slot * canary_buf_words + device.CANARY_FIELD_TOKEN,
            mask & (slot >= 0) & (slot < num_slots),
            CANARY_BUF_PAIRED,
        )
        found_prev_hash = tl.load(
            canary_buf_ptr + slot * canary_buf_words + device.CANARY_FIELD_PREV_HASH,
            mask=mask & (slot >= 0) & (slot < num_slots),
            other=0,
        ).to(tl.uint64, bitcast=True)
        collision_checked = stored & (slot != device.TOKEN_TO_KV_SLOT_PADDING)
        reasons_5 = tl.zeros([BLOCK], tl.int64)
        reasons_5 |= tl.where(
            (found_token != token) | (found_position != position) | (found_prev_hash != prev_hash),
            device.FAIL_REASON_WRITE_SLOT_COLLISION,
            0,
        )
        failing_5 = mask & collision_checked & (reasons_5 != 0)
        if tl.max(failing_5.to(tl.int32), axis=0) > 0:
            kernel_kind = tl.load(context_ptr + 3)
            violation_ring_ptr = tl.load(context_ptr + 4).to(tl.pointer_type(tl.int64))
            ring_capacity = tl.load(context_ptr + 5)
            violation_write_index_ptr = tl.load(context_ptr + 6).to(tl.pointer_type(tl.int32))
            row_5, kept_5 = lang.append(failing_5, violation_write_index_ptr, ring_capacity)
            row_5_ptr = violation_ring_ptr + row_5 * device.VIOLATION_NUM_FIELDS
            tl.store(row_5_ptr, kernel_kind, mask=kept_5)
            tl.store(row_5_ptr + 1, slot, mask=kept_5)
            tl.store(row_5_ptr + 2, position, mask=kept_5)
            tl.store(row_5_ptr + 3, found_token, mask=kept_5)
            tl.store(row_5_ptr + 4, token, mask=kept_5)
            tl.store(row_5_ptr + 5, found_prev_hash, mask=kept_5)
            tl.store(row_5_ptr + 6, prev_hash, mask=kept_5)
            tl.store(row_5_ptr + 7, reasons_5, mask=kept_5)
        if turn_2 + 1 < tl.where(together, longest, 0):
            next_prev_hash_3 = device.splitmix64_mix3(
                prev_hash, token.to(tl.uint64, bitcast=True), position.to(tl.uint64, bitcast=True)
            )
            next_previous_position_3 = position
            running_prev_hash_2 = tl.where(mask & stored, next_prev_hash_3, running_prev_hash_2)
            running_previous_position_2 = tl.where(mask & stored, next_previous_position_3, running_previous_position_2)
        turn_2 += 1


def launch(
    *,
    contexts: tables.VerifyOrWriteContextTable,
    write_offsets: torch.Tensor,
    write_seed_slot_indices: torch.Tensor,
    write_num_valid_reqs: torch.Tensor,
    input_ids: torch.Tensor,
    positions: torch.Tensor,
    out_cache_loc: torch.Tensor,
    expected_input_tokens: torch.Tensor | None,
    expected_input_positions: torch.Tensor | None,
    write_chain: torch.Tensor,
    enable_write_input_assert: bool,
    run: dispatch.Run = dispatch.launch,
) -> None:
    """Launches the kernel on valid arguments. Nothing is allocated, and no device data is read."""
    real_kv_sources: Sequence[structs.RealKvSource] = contexts.real_kv_sources
    real_kv_hash_mode = contexts.real_kv_hash_mode
    num_new_tokens = input_ids.shape[0]
    write_req_capacity = write_seed_slot_indices.shape[0]
    write_chain_len = write_chain.shape[0] // len(contexts)
    write_chain_words = write_chain.shape[1]
    if real_kv_hash_mode == layout.RealKvHashMode.NONE:
        real_kv_sources = ()
    real_kv_hash_form = sources.real_kv_hash_form(real_kv_sources, real_kv_hash_mode)
    # One program takes few segments and entries: launches would take longer than the work.
    if real_kv_hash_form.tile == sources.LARGEST_TILE:
        shape = dispatch.one_program(write_req_capacity, num_new_tokens, 128, [(64, 4, 255)])
    elif real_kv_sources:
        shape = dispatch.one_program(
            write_req_capacity, num_new_tokens, 512, [(32, 1, 255), (256, 8, 255), (512, 16, 128)]
        )
    else:
        shape = dispatch.one_program(
            write_req_capacity, num_new_tokens, 512, [(32, 1, 255), (256, 8, 255), (512, 16, 128)]
        )
    with dispatch.on_device(contexts.table):
        if shape is not None:
            programs, (block, num_warps, registers) = 1, shape
            run(
                _write_entries_of_many_once_kernel,
                (programs, len(contexts)),
                contexts.table,
                write_offsets,
                write_seed_slot_indices,
                write_num_valid_reqs,
                input_ids,
                positions,
                out_cache_loc,
                expected_input_tokens,
                expected_input_positions,
                write_chain,
                num_new_tokens,
                write_req_capacity,
                write_chain_len,
                write_chain_words,
                HAS_EXPECTED_INPUT_TOKENS=expected_input_tokens is not None,
                HAS_EXPECTED_INPUT_POSITIONS=expected_input_positions is not None,
                REAL_KV_HASH_MODE=int(real_kv_hash_mode),
                ENABLE_WRITE_INPUT_ASSERT=enable_write_input_assert,
                CANARY_BUF_PAIRED="canary_buf" in contexts.paired,
                REAL_KV_HASH_TILE=real_kv_hash_form.tile,
                REAL_KV_HASH_ALIGNMENT=real_kv_hash_form.alignment,
                REAL_KV_HASH_CUT=real_kv_hash_form.cut,
                BLOCK=block,
                num_warps=num_warps,
                **dispatch.at_most(registers),
                **dispatch.overlapping(contexts.table),
            )
            return
        programs = write_req_capacity
        programs = max(1, programs)  # what follows waits for it
        run(
            _write_entries_of_many_chain_kernel,
            (programs, len(contexts)),
            contexts.table,
            write_offsets,
            write_seed_slot_indices,
            write_num_valid_reqs,
            input_ids,
            positions,
            out_cache_loc,
            write_chain,
            num_new_tokens,
            write_req_capacity,
            write_chain_len,
            write_chain_words,
            CANARY_BUF_PAIRED="canary_buf" in contexts.paired,
            BLOCK=32,
            num_warps=1,
            **dispatch.overlapping(contexts.table),
        )
        programs = dispatch.cdiv(num_new_tokens, 64)
        programs = max(1, programs)  # one at least counts the launch
        run(
            _write_entries_of_many_kernel,
            (programs, len(contexts)),
            contexts.table,
            write_offsets,
            write_seed_slot_indices,
            write_num_valid_reqs,
            input_ids,
            positions,
            out_cache_loc,
            expected_input_tokens,
            expected_input_positions,
            write_chain,
            num_new_tokens,
            write_req_capacity,
            write_chain_len,
            write_chain_words,
            HAS_EXPECTED_INPUT_TOKENS=expected_input_tokens is not None,
            HAS_EXPECTED_INPUT_POSITIONS=expected_input_positions is not None,
            REAL_KV_HASH_MODE=int(real_kv_hash_mode),
            ENABLE_WRITE_INPUT_ASSERT=enable_write_input_assert,
            REAL_KV_HASH_TILE=real_kv_hash_form.tile,
            REAL_KV_HASH_ALIGNMENT=real_kv_hash_form.alignment,
            REAL_KV_HASH_CUT=real_kv_hash_form.cut,
            BLOCK=64,
            SCAN=1024,
            num_warps=2,
            **dispatch.at_most(255),
            **dispatch.overlapping(contexts.table, programs),
        )
        programs = dispatch.cdiv(num_new_tokens, 64)
        if programs > 0:
            run(
                _write_entries_of_many_after_kernel,
                (programs, len(contexts)),
                contexts.table,
                write_offsets,
                write_num_valid_reqs,
                input_ids,
                positions,
                out_cache_loc,
                write_chain,
                num_new_tokens,
                write_req_capacity,
                write_chain_len,
                write_chain_words,
                CANARY_BUF_PAIRED="canary_buf" in contexts.paired,
                BLOCK=64,
                SCAN=1024,
                num_warps=2,
                **dispatch.at_most(255),
                **dispatch.overlapping(contexts.table, programs),
            )
