# Written by kvcanary-gen from the spec; edit that instead.
"""Compares the fingerprint of every planned entry with what it should be.

Contract §4. Operations launch this kernel for all rows of a table of structs at once; it has no public functions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton.language as tl

from .. import layout, structs
from ..core import device, dispatch, lang, sources, tables

# --- Triton -----------------------------------------------------------------------------------------------------------


@lang.kernel
def _verify_entries_of_many_kernel(
    # contexts
    contexts_ptr,  # [num_contexts, 12] int64
    # inputs
    verify_slot_indices_ptr,  # [verify_capacity] int64
    verify_expected_tokens_ptr,  # [verify_capacity] int64
    verify_expected_positions_ptr,  # [verify_capacity] int64
    verify_prev_slot_indices_ptr,  # [verify_capacity] int64
    verify_num_valid_ptr,  # [1] int32
    verify_enable_ptr,  # [1] int32
    # sizes and scalars
    verify_capacity: tl.int64,
    num_contexts: tl.int64,
    # constants
    REAL_KV_HASH_MODE: tl.constexpr,
    CHECK_VERIFY_EXPECTED_TOKEN: tl.constexpr,
    CANARY_BUF_PAIRED: tl.constexpr,
    REAL_KV_HASH_TILE: tl.constexpr,
    REAL_KV_HASH_ALIGNMENT: tl.constexpr,
    REAL_KV_HASH_CUT: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Compares the fingerprint of every planned entry with what it should be."""
    # The interpreter passes small integers as int32; the sum forces 64 bits and costs nothing compiled.
    verify_capacity = verify_capacity.to(tl.int64) + 0
    num_contexts = num_contexts.to(tl.int64) + 0
    lang.begin(OVERLAPS)
    if tl.load(verify_enable_ptr).to(tl.int64) == 0:
        if tl.program_id(0) == 0:
            context = tl.zeros([], tl.int64)
            while context < num_contexts:
                context_ptr = contexts_ptr + context * 12
                kernel_run_counter_ptr = tl.load(context_ptr + 8).to(tl.pointer_type(tl.int64))
                tl.atomic_add(kernel_run_counter_ptr, tl.full([], 1, tl.int64), sem="relaxed")
                context += 1
        return
    count = tl.minimum(tl.load(verify_num_valid_ptr).to(tl.int64), verify_capacity)
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < count
    slot = tl.load(verify_slot_indices_ptr + i, mask=mask, other=0)
    prev = tl.load(verify_prev_slot_indices_ptr + i, mask=mask, other=0)
    if CHECK_VERIFY_EXPECTED_TOKEN:
        expected_token = tl.load(verify_expected_tokens_ptr + i, mask=mask, other=0)
    else:
        expected_token = tl.where(mask, tl.full([], -1, tl.int64), 0)
    expected_position = tl.load(verify_expected_positions_ptr + i, mask=mask, other=0)
    context = tl.zeros([], tl.int64)
    while context < num_contexts:
        context_ptr = contexts_ptr + context * 12
        canary_buf_ptr = tl.load(context_ptr).to(tl.pointer_type(tl.int64))
        num_slots = tl.load(context_ptr + 1)
        canary_buf_words = tl.load(context_ptr + 2)
        real_kv_sources_table_ptr = tl.load(context_ptr + 9).to(tl.pointer_type(tl.int64))
        real_kv_sources_table_len = tl.load(context_ptr + 10)
        if tl.program_id(0) == 0:
            slot_run_counter_ptr = tl.load(context_ptr + 7).to(tl.pointer_type(tl.int64))
            kernel_run_counter_ptr = tl.load(context_ptr + 8).to(tl.pointer_type(tl.int64))
            tl.atomic_add(kernel_run_counter_ptr, tl.full([], 1, tl.int64), sem="relaxed")
            tl.atomic_add(
                slot_run_counter_ptr,
                tl.minimum(tl.maximum(tl.load(verify_num_valid_ptr).to(tl.int64), 0), verify_capacity),
                sem="relaxed",
            )
        inside = (slot >= 0) & (slot < num_slots)
        checked = inside & (slot != device.TOKEN_TO_KV_SLOT_PADDING)
        real_kv_hash_now = tl.where(
            checked,
            device.real_kv_hash_of_table(
                slot,
                mask & checked,
                real_kv_sources_table_ptr,
                real_kv_sources_table_len,
                REAL_KV_HASH_MODE,
                REAL_KV_HASH_TILE,
                REAL_KV_HASH_ALIGNMENT,
                REAL_KV_HASH_CUT,
            ),
            0,
        )
        linked = checked & (prev != device.TOKEN_TO_KV_SLOT_PADDING)
        prev_inside = prev < num_slots
        stored_token, stored_position = lang.load_pair(
            canary_buf_ptr,
            slot * canary_buf_words + device.CANARY_FIELD_TOKEN,
            mask & (slot >= 0) & (slot < num_slots),
            CANARY_BUF_PAIRED,
        )
        stored_prev_hash, stored_real_kv_hash = lang.load_pair(
            canary_buf_ptr,
            slot * canary_buf_words + device.CANARY_FIELD_PREV_HASH,
            mask & (slot >= 0) & (slot < num_slots),
            CANARY_BUF_PAIRED,
        )
        stored_prev_hash = stored_prev_hash.to(tl.uint64, bitcast=True)
        stored_real_kv_hash = stored_real_kv_hash.to(tl.uint64, bitcast=True)
        expected_link = tl.where(
            linked,
            tl.where(
                prev_inside,
                device.link(
                    prev, mask & linked & prev_inside, canary_buf_ptr, num_slots, canary_buf_words, CANARY_BUF_PAIRED
                ),
                0,
            ),
            stored_prev_hash,
        )
        reasons = tl.zeros([BLOCK], tl.int64)
        reasons |= tl.where(inside == 0, device.FAIL_REASON_VERIFY_SLOT_OUT_OF_RANGE, 0)
        failing = mask & (reasons != 0)
        if tl.max(failing.to(tl.int32), axis=0) > 0:
            kernel_kind = tl.load(context_ptr + 3)
            violation_ring_ptr = tl.load(context_ptr + 4).to(tl.pointer_type(tl.int64))
            ring_capacity = tl.load(context_ptr + 5)
            violation_write_index_ptr = tl.load(context_ptr + 6).to(tl.pointer_type(tl.int32))
            row, kept = lang.append(failing, violation_write_index_ptr, ring_capacity)
            row_ptr = violation_ring_ptr + row * device.VIOLATION_NUM_FIELDS
            tl.store(row_ptr, kernel_kind, mask=kept)
            tl.store(row_ptr + 1, slot, mask=kept)
            tl.store(row_ptr + 2, expected_position, mask=kept)
            tl.store(row_ptr + 3, 0, mask=kept)
            tl.store(row_ptr + 4, expected_token, mask=kept)
            tl.store(row_ptr + 5, 0, mask=kept)
            tl.store(row_ptr + 6, 0, mask=kept)
            tl.store(row_ptr + 7, reasons, mask=kept)
        reasons_2 = tl.zeros([BLOCK], tl.int64)
        reasons_2 |= tl.where(
            linked & prev_inside & (stored_prev_hash != expected_link), device.FAIL_REASON_VERIFY_CHAIN_HASH_MISMATCH, 0
        )
        reasons_2 |= tl.where(linked & (prev_inside == 0), device.FAIL_REASON_VERIFY_SLOT_OUT_OF_RANGE, 0)
        reasons_2 |= tl.where(
            (expected_token != -1) & (stored_token != expected_token), device.FAIL_REASON_VERIFY_TOKEN_MISMATCH, 0
        )
        reasons_2 |= tl.where(stored_position != expected_position, device.FAIL_REASON_VERIFY_POSITION_MISMATCH, 0)
        reasons_2 |= tl.where(
            stored_real_kv_hash != real_kv_hash_now, device.FAIL_REASON_VERIFY_REAL_KV_HASH_MISMATCH, 0
        )
        failing_2 = mask & checked & (reasons_2 != 0)
        if tl.max(failing_2.to(tl.int32), axis=0) > 0:
            kernel_kind = tl.load(context_ptr + 3)
            violation_ring_ptr = tl.load(context_ptr + 4).to(tl.pointer_type(tl.int64))
            ring_capacity = tl.load(context_ptr + 5)
            violation_write_index_ptr = tl.load(context_ptr + 6).to(tl.pointer_type(tl.int32))
            row_2, kept_2 = lang.append(failing_2, violation_write_index_ptr, ring_capacity)
            row_2_ptr = violation_ring_ptr + row_2 * device.VIOLATION_NUM_FIELDS
            tl.store(row_2_ptr, kernel_kind, mask=kept_2)
            tl.store(row_2_ptr + 1, slot, mask=kept_2)
            tl.store(row_2_ptr + 2, stored_position, mask=kept_2)
            tl.store(row_2_ptr + 3, stored_token, mask=kept_2)
            tl.store(row_2_ptr + 4, expected_token, mask=kept_2)
            tl.store(row_2_ptr + 5, stored_prev_hash, mask=kept_2)
            tl.store(row_2_ptr + 6, expected_link, mask=kept_2)
            tl.store(row_2_ptr + 7, reasons_2, mask=kept_2)
        context += 1


def launch(
    *,
    contexts: tables.VerifyOrWriteContextTable,
    verify_slot_indices: torch.Tensor,
    verify_expected_tokens: torch.Tensor,
    verify_expected_positions: torch.Tensor,
    verify_prev_slot_indices: torch.Tensor,
    verify_num_valid: torch.Tensor,
    verify_enable: torch.Tensor,
    check_verify_expected_token: bool,
    run: dispatch.Run = dispatch.launch,
) -> None:
    """Launches the kernel on valid arguments. Nothing is allocated, and no device data is read."""
    real_kv_sources: Sequence[structs.RealKvSource] = contexts.real_kv_sources
    real_kv_hash_mode = contexts.real_kv_hash_mode
    verify_capacity = verify_slot_indices.shape[0]
    if real_kv_hash_mode == layout.RealKvHashMode.NONE:
        real_kv_sources = ()
    real_kv_hash_form = sources.real_kv_hash_form(real_kv_sources, real_kv_hash_mode)
    # Long folds leave room for fewer lanes, and need fewer to keep memory busy.
    block, num_warps, registers = (32, 1, 255) if real_kv_hash_form.long else (64, 1, None)
    programs = dispatch.cdiv(verify_capacity, block)
    programs = max(1, programs)  # one at least counts the launch
    with dispatch.on_device(contexts.table):
        run(
            _verify_entries_of_many_kernel,
            (programs,),
            contexts.table,
            verify_slot_indices,
            verify_expected_tokens,
            verify_expected_positions,
            verify_prev_slot_indices,
            verify_num_valid,
            verify_enable,
            verify_capacity,
            len(contexts),
            REAL_KV_HASH_MODE=int(real_kv_hash_mode),
            CHECK_VERIFY_EXPECTED_TOKEN=check_verify_expected_token,
            CANARY_BUF_PAIRED="canary_buf" in contexts.paired,
            REAL_KV_HASH_TILE=real_kv_hash_form.tile,
            REAL_KV_HASH_ALIGNMENT=real_kv_hash_form.alignment,
            REAL_KV_HASH_CUT=real_kv_hash_form.cut,
            BLOCK=block,
            num_warps=num_warps,
            **dispatch.at_most(registers),
            **dispatch.overlapping(contexts.table),
        )
