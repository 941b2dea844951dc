# Written by kvcanary-gen from the spec; edit that instead.
"""Plans one forward and verifies what it finds cached in one launch, for few requests.

Contract §3, §4. Operations launch this kernel for all rows of a table of structs at once; it has no public functions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton.language as tl

from .. import layout, structs
from ..core import device, dispatch, lang, sources, tables
from . import plan_offsets

# --- Triton -----------------------------------------------------------------------------------------------------------


@lang.kernel
def _plan_and_verify_alone_of_many_kernel(
    # contexts
    contexts_ptr,  # [num_contexts, 12] int64
    # inputs
    req_pool_indices_ptr,  # [bs] int64
    prefix_lens_ptr,  # [bs] int64
    extend_seq_lens_ptr,  # [bs] int64
    req_to_token_ptr,  # [table_rows, table_width] int32
    full_to_swa_index_mapping_ptr,  # [mapping_len] int64
    req_to_verify_expected_tokens_ptr,  # [token_rows, token_width] int32
    req_to_verify_expected_tokens_valid_lens_ptr,  # [bs] int64
    # outputs
    out_verify_offsets_scratch_ptr,  # [>= MAX_PLAN_BATCH + 1] int64
    out_write_offsets_ptr,  # [write_req_capacity + 1] int64
    out_write_seed_slot_indices_ptr,  # [write_req_capacity] int64
    out_verify_num_valid_ptr,  # [1] int32
    out_verify_enable_ptr,  # [1] int32
    out_write_num_valid_reqs_ptr,  # [1] int32
    # sizes and scalars
    bs: tl.int64,
    table_rows: tl.int64,
    mapping_len: tl.int64,
    table_width: tl.int64,
    out_verify_offsets_scratch_len: tl.int64,
    out_write_offsets_len: tl.int64,
    write_req_capacity: tl.int64,
    token_rows: tl.int64,
    token_width: tl.int64,
    swa_window_size: tl.int64,
    verify_capacity: tl.int64,
    kv_token_id_vs_position_offset: tl.int64,
    num_contexts: tl.int64,
    # constants
    HAS_FULL_TO_SWA_INDEX_MAPPING: tl.constexpr,
    HAS_REQ_TO_VERIFY_EXPECTED_TOKENS: tl.constexpr,
    HAS_REQ_TO_VERIFY_EXPECTED_TOKENS_VALID_LENS: tl.constexpr,
    REAL_KV_HASH_MODE: tl.constexpr,
    CHECK_VERIFY_EXPECTED_TOKEN: tl.constexpr,
    CANARY_BUF_PAIRED: tl.constexpr,
    REAL_KV_HASH_TILE: tl.constexpr,
    REAL_KV_HASH_ALIGNMENT: tl.constexpr,
    REAL_KV_HASH_CUT: tl.constexpr,
    BLOCK: tl.constexpr,
    LANES: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Plans one forward and verifies what it finds cached in one launch, for few requests."""
    # The interpreter passes small integers as int32; the sum forces 64 bits and costs nothing compiled.
    bs = bs.to(tl.int64) + 0
    table_rows = table_rows.to(tl.int64) + 0
    mapping_len = mapping_len.to(tl.int64) + 0
    table_width = table_width.to(tl.int64) + 0
    out_verify_offsets_scratch_len = out_verify_offsets_scratch_len.to(tl.int64) + 0
    out_write_offsets_len = out_write_offsets_len.to(tl.int64) + 0
    write_req_capacity = write_req_capacity.to(tl.int64) + 0
    token_rows = token_rows.to(tl.int64) + 0
    token_width = token_width.to(tl.int64) + 0
    swa_window_size = swa_window_size.to(tl.int64) + 0
    verify_capacity = verify_capacity.to(tl.int64) + 0
    kv_token_id_vs_position_offset = kv_token_id_vs_position_offset.to(tl.int64) + 0
    num_contexts = num_contexts.to(tl.int64) + 0
    lang.begin(OVERLAPS)
    if tl.program_id(0) == 0:
        plan_offsets._plan_offsets_kernel(
            req_pool_indices_ptr,
            prefix_lens_ptr,
            extend_seq_lens_ptr,
            req_to_token_ptr,
            full_to_swa_index_mapping_ptr,
            out_verify_offsets_scratch_ptr,
            out_write_offsets_ptr,
            out_write_seed_slot_indices_ptr,
            out_verify_num_valid_ptr,
            out_verify_enable_ptr,
            out_write_num_valid_reqs_ptr,
            bs,
            table_rows,
            mapping_len,
            table_width,
            out_verify_offsets_scratch_len,
            out_write_offsets_len,
            write_req_capacity,
            swa_window_size,
            verify_capacity,
            HAS_FULL_TO_SWA_INDEX_MAPPING=HAS_FULL_TO_SWA_INDEX_MAPPING,
            BLOCK=LANES,
            OVERLAPS=False,
        )
    lane = tl.arange(0, LANES)
    listed = lane < bs
    lane_row = tl.load(req_pool_indices_ptr + lane, mask=listed, other=0)
    live = device.is_live(lane_row, table_rows)
    prefix_len = tl.load(prefix_lens_ptr + lane, mask=listed, other=0)
    verify_count = tl.where(live, tl.maximum(0, prefix_len - device.window_start(prefix_len, swa_window_size)), 0)
    ends, verify_total = lang.sum_up(tl.where(listed, verify_count, 0))
    if verify_total > verify_capacity:
        if tl.program_id(0) == 0:
            context = tl.zeros([], tl.int64)
            while context < num_contexts:
                context_ptr = contexts_ptr + context * 12
                kernel_run_counter_ptr = tl.load(context_ptr + 8).to(tl.pointer_type(tl.int64))
                tl.atomic_add(kernel_run_counter_ptr, tl.full([], 1, tl.int64), sem="relaxed")
                context += 1
        return
    if tl.program_id(0) == 0:
        context = tl.zeros([], tl.int64)
        while context < num_contexts:
            context_ptr = contexts_ptr + context * 12
            slot_run_counter_ptr = tl.load(context_ptr + 7).to(tl.pointer_type(tl.int64))
            kernel_run_counter_ptr = tl.load(context_ptr + 8).to(tl.pointer_type(tl.int64))
            tl.atomic_add(kernel_run_counter_ptr, tl.full([], 1, tl.int64), sem="relaxed")
            tl.atomic_add(
                slot_run_counter_ptr,
                tl.minimum(tl.maximum(tl.minimum(verify_total, verify_capacity), 0), verify_capacity),
                sem="relaxed",
            )
            context += 1
        return
    start = (tl.program_id(0).to(tl.int64) - 1) * BLOCK
    i = start + tl.arange(0, BLOCK)
    r, first, found = lang.locate_in_sums(i, start, ends, bs)
    mask = found & (i < verify_capacity)
    j = i - first
    given_row = tl.load(req_pool_indices_ptr + r, mask=mask, other=0)
    row = tl.where((given_row >= 0) & (given_row < table_rows), given_row, device.REQ_POOL_IDX_PADDING)
    position = device.window_start(tl.load(prefix_lens_ptr + r, mask=mask, other=0), swa_window_size) + j
    token_column = position + kv_token_id_vs_position_offset
    slot = device.slot_at(
        row,
        position,
        mask,
        full_to_swa_index_mapping_ptr,
        req_to_token_ptr,
        mapping_len,
        table_rows,
        table_width,
        HAS_FULL_TO_SWA_INDEX_MAPPING,
    )
    prev = tl.where(
        position > 0,
        device.slot_at(
            row,
            position - 1,
            mask & (position > 0),
            full_to_swa_index_mapping_ptr,
            req_to_token_ptr,
            mapping_len,
            table_rows,
            table_width,
            HAS_FULL_TO_SWA_INDEX_MAPPING,
        ),
        -1,
    )
    if CHECK_VERIFY_EXPECTED_TOKEN:
        if HAS_REQ_TO_VERIFY_EXPECTED_TOKENS and HAS_REQ_TO_VERIFY_EXPECTED_TOKENS_VALID_LENS:
            chosen = (
                (row == given_row)
                & (token_column >= 0)
                & (token_column < tl.load(req_to_verify_expected_tokens_valid_lens_ptr + r, mask=mask, other=0))
            )
            req_to_verify_expected_tokens_value = tl.load(
                req_to_verify_expected_tokens_ptr + row * token_width + token_column,
                mask=mask & chosen & (row < token_rows) & (token_column < token_width),
                other=-1,
            ).to(tl.int64)
            expected_token = tl.where(chosen, req_to_verify_expected_tokens_value, -1)
        else:
            expected_token = tl.where(mask, tl.full([], -1, tl.int64), 0)
    else:
        expected_token = tl.where(mask, tl.full([], -1, tl.int64), 0)
    expected_position = position
    context = tl.zeros([], tl.int64)
    while context < num_contexts:
        context_ptr = contexts_ptr + context * 12
        canary_buf_ptr = tl.load(context_ptr).to(tl.pointer_type(tl.int64))
        num_slots = tl.load(context_ptr + 1)
        canary_buf_words = tl.load(context_ptr + 2)
        real_kv_sources_table_ptr = tl.load(context_ptr + 9).to(tl.pointer_type(tl.int64))
        real_kv_sources_table_len = tl.load(context_ptr + 10)
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
            row_2, kept = lang.append(failing, violation_write_index_ptr, ring_capacity)
            row_2_ptr = violation_ring_ptr + row_2 * device.VIOLATION_NUM_FIELDS
            tl.store(row_2_ptr, kernel_kind, mask=kept)
            tl.store(row_2_ptr + 1, slot, mask=kept)
            tl.store(row_2_ptr + 2, expected_position, mask=kept)
            tl.store(row_2_ptr + 3, 0, mask=kept)
            tl.store(row_2_ptr + 4, expected_token, mask=kept)
            tl.store(row_2_ptr + 5, 0, mask=kept)
            tl.store(row_2_ptr + 6, 0, mask=kept)
            tl.store(row_2_ptr + 7, reasons, mask=kept)
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
            row_3, kept_2 = lang.append(failing_2, violation_write_index_ptr, ring_capacity)
            row_3_ptr = violation_ring_ptr + row_3 * device.VIOLATION_NUM_FIELDS
            tl.store(row_3_ptr, kernel_kind, mask=kept_2)
            tl.store(row_3_ptr + 1, slot, mask=kept_2)
            tl.store(row_3_ptr + 2, stored_position, mask=kept_2)
            tl.store(row_3_ptr + 3, stored_token, mask=kept_2)
            tl.store(row_3_ptr + 4, expected_token, mask=kept_2)
            tl.store(row_3_ptr + 5, stored_prev_hash, mask=kept_2)
            tl.store(row_3_ptr + 6, expected_link, mask=kept_2)
            tl.store(row_3_ptr + 7, reasons_2, mask=kept_2)
        context += 1


def launch(
    *,
    contexts: tables.VerifyOrWriteContextTable,
    req_pool_indices: torch.Tensor,
    prefix_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    full_to_swa_index_mapping: torch.Tensor | None,
    req_to_verify_expected_tokens: torch.Tensor | None,
    req_to_verify_expected_tokens_valid_lens: torch.Tensor | None,
    out_verify_offsets_scratch: torch.Tensor,
    out_write_offsets: torch.Tensor,
    out_write_seed_slot_indices: torch.Tensor,
    out_verify_num_valid: torch.Tensor,
    out_verify_enable: torch.Tensor,
    out_write_num_valid_reqs: torch.Tensor,
    swa_window_size: int,
    verify_capacity: int,
    check_verify_expected_token: bool,
    kv_token_id_vs_position_offset: int,
    run: dispatch.Run = dispatch.launch,
) -> None:
    """Launches the kernel on valid arguments. Nothing is allocated, and no device data is read."""
    real_kv_sources: Sequence[structs.RealKvSource] = contexts.real_kv_sources
    real_kv_hash_mode = contexts.real_kv_hash_mode
    bs = req_pool_indices.shape[0]
    table_rows = req_to_token.shape[0]
    mapping_len = full_to_swa_index_mapping.shape[0] if full_to_swa_index_mapping is not None else 0
    table_width = req_to_token.shape[1]
    out_verify_offsets_scratch_len = out_verify_offsets_scratch.shape[0]
    out_write_offsets_len = out_write_offsets.shape[0]
    write_req_capacity = out_write_seed_slot_indices.shape[0]
    token_rows = req_to_verify_expected_tokens.shape[0] if req_to_verify_expected_tokens is not None else 0
    token_width = req_to_verify_expected_tokens.shape[1] if req_to_verify_expected_tokens is not None else 0
    if real_kv_hash_mode == layout.RealKvHashMode.NONE:
        real_kv_sources = ()
    real_kv_hash_form = sources.real_kv_hash_form(real_kv_sources, real_kv_hash_mode)
    lanes = dispatch.lanes(bs, [32, 64, 128])
    # Long folds leave room for fewer lanes, and need fewer to keep memory busy.
    block, num_warps, registers = (32, 1, 255) if real_kv_hash_form.long else (64, 1, 255)
    programs = 1 + dispatch.cdiv(verify_capacity, block)
    with dispatch.on_device(contexts.table):
        run(
            _plan_and_verify_alone_of_many_kernel,
            (programs,),
            contexts.table,
            req_pool_indices,
            prefix_lens,
            extend_seq_lens,
            req_to_token,
            full_to_swa_index_mapping,
            req_to_verify_expected_tokens,
            req_to_verify_expected_tokens_valid_lens,
            out_verify_offsets_scratch,
            out_write_offsets,
            out_write_seed_slot_indices,
            out_verify_num_valid,
            out_verify_enable,
            out_write_num_valid_reqs,
            bs,
            table_rows,
            mapping_len,
            table_width,
            out_verify_offsets_scratch_len,
            out_write_offsets_len,
            write_req_capacity,
            token_rows,
            token_width,
            swa_window_size,
            verify_capacity,
            kv_token_id_vs_position_offset,
            len(contexts),
            HAS_FULL_TO_SWA_INDEX_MAPPING=full_to_swa_index_mapping is not None,
            HAS_REQ_TO_VERIFY_EXPECTED_TOKENS=req_to_verify_expected_tokens is not None,
            HAS_REQ_TO_VERIFY_EXPECTED_TOKENS_VALID_LENS=req_to_verify_expected_tokens_valid_lens is not None,
            REAL_KV_HASH_MODE=int(real_kv_hash_mode),
            CHECK_VERIFY_EXPECTED_TOKEN=check_verify_expected_token,
            CANARY_BUF_PAIRED="canary_buf" in contexts.paired,
            REAL_KV_HASH_TILE=real_kv_hash_form.tile,
            REAL_KV_HASH_ALIGNMENT=real_kv_hash_form.alignment,
            REAL_KV_HASH_CUT=real_kv_hash_form.cut,
            BLOCK=block,
            LANES=lanes,
            num_warps=num_warps,
            **dispatch.at_most(registers),
            **dispatch.overlapping(contexts.table),
        )
