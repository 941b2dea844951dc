# Written by kvcanary-gen from the spec; edit that instead.
"""Functions of the spec as Triton helpers. Those that load take the mask under which they may."""

from __future__ import annotations

import triton
import triton.language as tl

from . import lang

CANARY_CHAIN_ANCHOR = tl.constexpr(0xC0FFEE1234567890)
REQ_POOL_IDX_PADDING = tl.constexpr(0)
TOKEN_TO_KV_SLOT_PADDING = tl.constexpr(0)
MAX_REAL_KV_SOURCES = tl.constexpr(4)
PARTIAL_REAL_KV_BYTES = tl.constexpr(16)
MAX_PLAN_BATCH = tl.constexpr(4096)
INT32_MAX = tl.constexpr(0x7FFFFFFF)
CANARY_FIELD_TOKEN = tl.constexpr(0)
CANARY_FIELD_POSITION = tl.constexpr(1)
CANARY_FIELD_PREV_HASH = tl.constexpr(2)
CANARY_FIELD_REAL_KV_HASH = tl.constexpr(3)
SLOT_NUM_FIELDS = tl.constexpr(4)
VIOLATION_FIELD_KERNEL_KIND = tl.constexpr(0)
VIOLATION_FIELD_SLOT_IDX = tl.constexpr(1)
VIOLATION_FIELD_POSITION = tl.constexpr(2)
VIOLATION_FIELD_STORED_TOKEN = tl.constexpr(3)
VIOLATION_FIELD_EXPECTED_TOKEN = tl.constexpr(4)
VIOLATION_FIELD_STORED_CHAIN_HASH = tl.constexpr(5)
VIOLATION_FIELD_EXPECTED_AUX = tl.constexpr(6)
VIOLATION_FIELD_FAIL_REASON_BITS = tl.constexpr(7)
VIOLATION_NUM_FIELDS = tl.constexpr(8)
WRITE_CHAIN_FIELD_PREV_HASH = tl.constexpr(0)
WRITE_CHAIN_FIELD_PREVIOUS_POSITION = tl.constexpr(1)
WRITE_CHAIN_NUM_FIELDS = tl.constexpr(2)
FAIL_REASON_VERIFY_CHAIN_HASH_MISMATCH = tl.constexpr(1)
FAIL_REASON_VERIFY_POSITION_MISMATCH = tl.constexpr(2)
FAIL_REASON_VERIFY_REAL_KV_HASH_MISMATCH = tl.constexpr(4)
FAIL_REASON_WRITE_TOKEN_MISMATCH = tl.constexpr(8)
FAIL_REASON_WRITE_POSITION_MISMATCH = tl.constexpr(16)
FAIL_REASON_VERIFY_TOKEN_MISMATCH = tl.constexpr(32)
FAIL_REASON_VERIFY_SLOT_OUT_OF_RANGE = tl.constexpr(64)
FAIL_REASON_WRITE_SLOT_OUT_OF_RANGE = tl.constexpr(128)
FAIL_REASON_WRITE_SLOT_COLLISION = tl.constexpr(256)
REAL_KV_HASH_MODE_NONE = tl.constexpr(0)
REAL_KV_HASH_MODE_PARTIAL = tl.constexpr(1)
REAL_KV_HASH_MODE_ALL = tl.constexpr(2)


@triton.jit
def splitmix64(x):
    """The finaliser of SplitMix64, a bijection on 64 bits."""
    a = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    b = (a ^ (a >> 27)) * 0x94D049BB133111EB
    return b ^ (b >> 31)


@triton.jit
def splitmix64_mix3(a, b, c):
    """Hash of three words, in order."""
    return splitmix64(splitmix64(splitmix64(a) ^ b) ^ c)


@triton.jit
def link(slot, mask, canary_buf_ptr, num_slots, canary_buf_words, CANARY_BUF_PAIRED: tl.constexpr):
    """The prev_hash that the successor of a slot must carry; below slot 0 lies the chain's anchor."""
    canary_buf_value = tl.load(
        canary_buf_ptr + slot * canary_buf_words + CANARY_FIELD_PREV_HASH,
        mask=mask & (slot >= 0) & (slot < num_slots),
        other=0,
    ).to(tl.uint64, bitcast=True)
    canary_buf_token, canary_buf_position = lang.load_pair(
        canary_buf_ptr,
        slot * canary_buf_words + CANARY_FIELD_TOKEN,
        mask & (slot >= 0) & (slot < num_slots),
        CANARY_BUF_PAIRED,
    )
    return tl.where(
        slot >= 0,
        splitmix64_mix3(
            canary_buf_value,
            canary_buf_token.to(tl.uint64, bitcast=True),
            canary_buf_position.to(tl.uint64, bitcast=True),
        ),
        splitmix64(tl.full([], CANARY_CHAIN_ANCHOR, tl.uint64)),
    )


@triton.jit
def is_live(row, table_rows):
    """Whether a request row takes part: padding rows and rows outside the table do not."""
    return (row != REQ_POOL_IDX_PADDING) & (row >= 0) & (row < table_rows)


@triton.jit
def window_start(prefix_len, swa_window_size):
    """First position that the sliding window still holds."""
    return tl.where(swa_window_size > 0, tl.maximum(0, tl.maximum(0, prefix_len) - swa_window_size), 0)


@triton.jit
def translate(slot, mask, full_to_swa_index_mapping_ptr, mapping_len, HAS_FULL_TO_SWA_INDEX_MAPPING: tl.constexpr):
    """Slot in the group's own pool. Negative slots pass through; slots past the mapping's end take its last entry."""
    if HAS_FULL_TO_SWA_INDEX_MAPPING:
        full_to_swa_index_mapping_index = tl.minimum(slot, mapping_len - 1)
        full_to_swa_index_mapping_value = tl.load(
            full_to_swa_index_mapping_ptr + full_to_swa_index_mapping_index,
            mask=mask & (slot >= 0) & (full_to_swa_index_mapping_index >= 0),
            other=0,
        )
        return tl.where(slot >= 0, full_to_swa_index_mapping_value, slot)
    else:
        return slot


@triton.jit
def slot_at(
    row,
    position,
    mask,
    full_to_swa_index_mapping_ptr,
    req_to_token_ptr,
    mapping_len,
    table_rows,
    table_width,
    HAS_FULL_TO_SWA_INDEX_MAPPING: tl.constexpr,
):
    """Slot of a request's position in the group's own pool; a position past the table reads its last column."""
    column = tl.minimum(tl.maximum(position, 0), table_width - 1)
    req_to_token_value = tl.load(
        req_to_token_ptr + row * table_width + column,
        mask=mask & (row >= 0) & (row < table_rows) & (column >= 0),
        other=0,
    ).to(tl.int64)
    return translate(
        req_to_token_value, mask, full_to_swa_index_mapping_ptr, mapping_len, HAS_FULL_TO_SWA_INDEX_MAPPING
    )


@triton.jit
def real_kv_hash_of_tile(state, tile):
    """A whole tile, word by word."""
    word_0, word_1, word_2, word_3, word_4, word_5, word_6, word_7 = lang.split_words(tile)
    state = splitmix64(state ^ word_0)
    state = splitmix64(state ^ word_1)
    state = splitmix64(state ^ word_2)
    state = splitmix64(state ^ word_3)
    state = splitmix64(state ^ word_4)
    state = splitmix64(state ^ word_5)
    state = splitmix64(state ^ word_6)
    state = splitmix64(state ^ word_7)
    return state


@triton.jit
def real_kv_hash_of_last_tile(state, tile, left, TILE: tl.constexpr):
    """A tile of which `left` bytes are a slot's, one at least."""
    if TILE == 2:
        word_0, word_1 = tl.split(tile)
        state = splitmix64(state ^ word_0)
        state = tl.where(left > 8, splitmix64(state ^ word_1), state)
    elif TILE == 4:
        word_0, word_1, word_2, word_3 = lang.split_four(tile)
        state = splitmix64(state ^ word_0)
        state = tl.where(left > 8, splitmix64(state ^ word_1), state)
        state = tl.where(left > 16, splitmix64(state ^ word_2), state)
        state = tl.where(left > 24, splitmix64(state ^ word_3), state)
    else:
        word_0, word_1, word_2, word_3, word_4, word_5, word_6, word_7 = lang.split_words(tile)
        state = splitmix64(state ^ word_0)
        state = tl.where(left > 8, splitmix64(state ^ word_1), state)
        state = tl.where(left > 16, splitmix64(state ^ word_2), state)
        state = tl.where(left > 24, splitmix64(state ^ word_3), state)
        state = tl.where(left > 32, splitmix64(state ^ word_4), state)
        state = tl.where(left > 40, splitmix64(state ^ word_5), state)
        state = tl.where(left > 48, splitmix64(state ^ word_6), state)
        state = tl.where(left > 56, splitmix64(state ^ word_7), state)
    return state


@triton.jit
def real_kv_hash_first_tile(
    slot,
    mask,
    tensor_ptr,
    rows,
    row_stride,
    row_bytes,
    page_size,
    num_bytes_per_token,
    read_bytes,
    REAL_KV_HASH_MODE: tl.constexpr,
    TILE: tl.constexpr,
    ALIGNMENT: tl.constexpr,
    CUT: tl.constexpr,
):
    """The first tile of a source, and how many bytes a slot has there."""
    # The interpreter passes small integers as int32; the sum forces 64 bits and costs nothing compiled.
    rows = rows.to(tl.int64) + 0
    row_stride = row_stride.to(tl.int64) + 0
    row_bytes = row_bytes.to(tl.int64) + 0
    page_size = page_size.to(tl.int64) + 0
    num_bytes_per_token = num_bytes_per_token.to(tl.int64) + 0
    read_bytes = read_bytes.to(tl.int64) + 0
    row = lang.floor_div_by(slot, page_size)
    first = lang.floor_mod_by(slot, page_size) * num_bytes_per_token
    if REAL_KV_HASH_MODE == REAL_KV_HASH_MODE_PARTIAL:
        length = tl.minimum(read_bytes, PARTIAL_REAL_KV_BYTES)
    else:
        length = read_bytes
    stop = tl.minimum(row_bytes, first + length)
    inside = mask & (row >= 0) & (row < rows)
    if CUT == 2:
        # Where a row is left behind, sums with its places may wrap and seem to lie inside.
        inside = inside & (first < row_bytes)
    start = row * row_stride
    tile = lang.load_tile(tensor_ptr, start, first, stop, inside, TILE, ALIGNMENT, CUT)
    return tile, length


@triton.jit
def real_kv_hash_of_source(
    slot,
    mask,
    tensor_ptr,
    rows,
    row_stride,
    row_bytes,
    page_size,
    num_bytes_per_token,
    read_bytes,
    REAL_KV_HASH_MODE: tl.constexpr,
    TILE: tl.constexpr,
    ALIGNMENT: tl.constexpr,
    CUT: tl.constexpr,
):
    """One source's part."""
    # The interpreter passes small integers as int32; the sum forces 64 bits and costs nothing compiled.
    rows = rows.to(tl.int64) + 0
    row_stride = row_stride.to(tl.int64) + 0
    row_bytes = row_bytes.to(tl.int64) + 0
    page_size = page_size.to(tl.int64) + 0
    num_bytes_per_token = num_bytes_per_token.to(tl.int64) + 0
    read_bytes = read_bytes.to(tl.int64) + 0
    row = lang.floor_div_by(slot, page_size)
    first = lang.floor_mod_by(slot, page_size) * num_bytes_per_token
    if REAL_KV_HASH_MODE == REAL_KV_HASH_MODE_PARTIAL:
        length = tl.minimum(read_bytes, PARTIAL_REAL_KV_BYTES)
    else:
        length = read_bytes
    stop = tl.minimum(row_bytes, first + length)
    inside = mask & (row >= 0) & (row < rows)
    if CUT == 2:
        # Where a row is left behind, sums with its places may wrap and seem to lie inside.
        inside = inside & (first < row_bytes)
    start = row * row_stride
    state = tl.full(slot.shape, 0, tl.uint64)
    byte = tl.zeros([], tl.int64)
    if TILE == 8 and ALIGNMENT >= 8 and CUT < 2:
        while byte + 256 <= length:
            tile_0 = lang.load_tile(tensor_ptr, start, first + byte, stop, inside, TILE, ALIGNMENT, 0)
            tile_1 = lang.load_tile(tensor_ptr, start, first + byte + 64, stop, inside, TILE, ALIGNMENT, 0)
            tile_2 = lang.load_tile(tensor_ptr, start, first + byte + 128, stop, inside, TILE, ALIGNMENT, 0)
            tile_3 = lang.load_tile(tensor_ptr, start, first + byte + 192, stop, inside, TILE, ALIGNMENT, 0)
            state = real_kv_hash_of_tile(state, tile_0)
            state = real_kv_hash_of_tile(state, tile_1)
            state = real_kv_hash_of_tile(state, tile_2)
            state = real_kv_hash_of_tile(state, tile_3)
            byte += 256
    while byte < length:
        tile = lang.load_tile(tensor_ptr, start, first + byte, stop, inside, TILE, ALIGNMENT, CUT)
        state = real_kv_hash_of_last_tile(state, tile, length - byte, TILE)
        byte += 8 * TILE
    return state


@triton.jit
def real_kv_hash_of_table(
    slot,
    mask,
    real_kv_sources_table_ptr,
    real_kv_sources_table_len,
    REAL_KV_HASH_MODE: tl.constexpr,
    TILE: tl.constexpr,
    ALIGNMENT: tl.constexpr,
    CUT: tl.constexpr,
):
    """The same of sources that are all rows of a table."""
    total = tl.full(slot.shape, 0, tl.uint64)
    if REAL_KV_HASH_MODE != REAL_KV_HASH_MODE_NONE:
        place = tl.zeros([], tl.int64)
        while place < real_kv_sources_table_len:
            entry_ptr = real_kv_sources_table_ptr + 7 * place
            tensor_ptr = tl.load(entry_ptr).to(tl.pointer_type(tl.uint8))
            state = real_kv_hash_of_source(
                slot,
                mask,
                tensor_ptr,
                tl.load(entry_ptr + 1),
                tl.load(entry_ptr + 2),
                tl.load(entry_ptr + 3),
                tl.load(entry_ptr + 4),
                tl.load(entry_ptr + 5),
                tl.load(entry_ptr + 6),
                REAL_KV_HASH_MODE,
                TILE,
                ALIGNMENT,
                CUT,
            )
            total = splitmix64(total ^ state)
            place += 1
    return total


@triton.jit
def real_kv_hash(
    slot,
    mask,
    real_kv_sources_table_ptr,
    real_kv_sources_table_len,
    real_kv_sources_ptr_0,
    real_kv_sources_rows_0,
    real_kv_sources_row_stride_0,
    real_kv_sources_row_bytes_0,
    real_kv_sources_page_size_0,
    real_kv_sources_num_bytes_per_token_0,
    real_kv_sources_read_bytes_0,
    real_kv_sources_ptr_1,
    real_kv_sources_rows_1,
    real_kv_sources_row_stride_1,
    real_kv_sources_row_bytes_1,
    real_kv_sources_page_size_1,
    real_kv_sources_num_bytes_per_token_1,
    real_kv_sources_read_bytes_1,
    real_kv_sources_ptr_2,
    real_kv_sources_rows_2,
    real_kv_sources_row_stride_2,
    real_kv_sources_row_bytes_2,
    real_kv_sources_page_size_2,
    real_kv_sources_num_bytes_per_token_2,
    real_kv_sources_read_bytes_2,
    real_kv_sources_ptr_3,
    real_kv_sources_rows_3,
    real_kv_sources_row_stride_3,
    real_kv_sources_row_bytes_3,
    real_kv_sources_page_size_3,
    real_kv_sources_num_bytes_per_token_3,
    real_kv_sources_read_bytes_3,
    REAL_KV_SOURCES_COUNT: tl.constexpr,
    REAL_KV_SOURCES_TABLE: tl.constexpr,
    REAL_KV_HASH_MODE: tl.constexpr,
    TILE: tl.constexpr,
    ALIGNMENT: tl.constexpr,
    CUT: tl.constexpr,
):
    """Hash of the real KV bytes that a slot owns, over all sources in order; bytes outside a tensor are zero."""
    total = tl.full(slot.shape, 0, tl.uint64)
    if REAL_KV_HASH_MODE != REAL_KV_HASH_MODE_NONE:
        if REAL_KV_SOURCES_TABLE:
            total = real_kv_hash_of_table(
                slot,
                mask,
                real_kv_sources_table_ptr,
                real_kv_sources_table_len,
                REAL_KV_HASH_MODE,
                TILE,
                ALIGNMENT,
                CUT,
            )
        if TILE < 8:
            # A tile has all bytes of a slot; those of all sources are on their way at once.
            if REAL_KV_SOURCES_COUNT > 0:
                tile_0, length_0 = real_kv_hash_first_tile(
                    slot,
                    mask,
                    real_kv_sources_ptr_0,
                    real_kv_sources_rows_0,
                    real_kv_sources_row_stride_0,
                    real_kv_sources_row_bytes_0,
                    real_kv_sources_page_size_0,
                    real_kv_sources_num_bytes_per_token_0,
                    real_kv_sources_read_bytes_0,
                    REAL_KV_HASH_MODE,
                    TILE,
                    ALIGNMENT,
                    CUT,
                )
            if REAL_KV_SOURCES_COUNT > 1:
                tile_1, length_1 = real_kv_hash_first_tile(
                    slot,
                    mask,
                    real_kv_sources_ptr_1,
                    real_kv_sources_rows_1,
                    real_kv_sources_row_stride_1,
                    real_kv_sources_row_bytes_1,
                    real_kv_sources_page_size_1,
                    real_kv_sources_num_bytes_per_token_1,
                    real_kv_sources_read_bytes_1,
                    REAL_KV_HASH_MODE,
                    TILE,
                    ALIGNMENT,
                    CUT,
                )
            if REAL_KV_SOURCES_COUNT > 2:
                tile_2, length_2 = real_kv_hash_first_tile(
                    slot,
                    mask,
                    real_kv_sources_ptr_2,
                    real_kv_sources_rows_2,
                    real_kv_sources_row_stride_2,
                    real_kv_sources_row_bytes_2,
                    real_kv_sources_page_size_2,
                    real_kv_sources_num_bytes_per_token_2,
                    real_kv_sources_read_bytes_2,
                    REAL_KV_HASH_MODE,
                    TILE,
                    ALIGNMENT,
                    CUT,
                )
            if REAL_KV_SOURCES_COUNT > 3:
                tile_3, length_3 = real_kv_hash_first_tile(
                    slot,
                    mask,
                    real_kv_sources_ptr_3,
                    real_kv_sources_rows_3,
                    real_kv_sources_row_stride_3,
                    real_kv_sources_row_bytes_3,
                    real_kv_sources_page_size_3,
                    real_kv_sources_num_bytes_per_token_3,
                    real_kv_sources_read_bytes_3,
                    REAL_KV_HASH_MODE,
                    TILE,
                    ALIGNMENT,
                    CUT,
                )
            if REAL_KV_SOURCES_COUNT > 0:
                state = tl.full(slot.shape, 0, tl.uint64)
                state = real_kv_hash_of_last_tile(state, tile_0, length_0, TILE)
                total = splitmix64(total ^ state)
            if REAL_KV_SOURCES_COUNT > 1:
                state = tl.full(slot.shape, 0, tl.uint64)
                state = real_kv_hash_of_last_tile(state, tile_1, length_1, TILE)
                total = splitmix64(total ^ state)
            if REAL_KV_SOURCES_COUNT > 2:
                state = tl.full(slot.shape, 0, tl.uint64)
                state = real_kv_hash_of_last_tile(state, tile_2, length_2, TILE)
                total = splitmix64(total ^ state)
            if REAL_KV_SOURCES_COUNT > 3:
                state = tl.full(slot.shape, 0, tl.uint64)
                state = real_kv_hash_of_last_tile(state, tile_3, length_3, TILE)
                total = splitmix64(total ^ state)
        else:
            if REAL_KV_SOURCES_COUNT > 0:
                state = real_kv_hash_of_source(
                    slot,
                    mask,
                    real_kv_sources_ptr_0,
                    real_kv_sources_rows_0,
                    real_kv_sources_row_stride_0,
                    real_kv_sources_row_bytes_0,
                    real_kv_sources_page_size_0,
                    real_kv_sources_num_bytes_per_token_0,
                    real_kv_sources_read_bytes_0,
                    REAL_KV_HASH_MODE,
                    TILE,
                    ALIGNMENT,
                    CUT,
                )
                total = splitmix64(total ^ state)
            if REAL_KV_SOURCES_COUNT > 1:
                state = real_kv_hash_of_source(
                    slot,
                    mask,
                    real_kv_sources_ptr_1,
                    real_kv_sources_rows_1,
                    real_kv_sources_row_stride_1,
                    real_kv_sources_row_bytes_1,
                    real_kv_sources_page_size_1,
                    real_kv_sources_num_bytes_per_token_1,
                    real_kv_sources_read_bytes_1,
                    REAL_KV_HASH_MODE,
                    TILE,
                    ALIGNMENT,
                    CUT,
                )
                total = splitmix64(total ^ state)
            if REAL_KV_SOURCES_COUNT > 2:
                state = real_kv_hash_of_source(
                    slot,
                    mask,
                    real_kv_sources_ptr_2,
                    real_kv_sources_rows_2,
                    real_kv_sources_row_stride_2,
                    real_kv_sources_row_bytes_2,
                    real_kv_sources_page_size_2,
                    real_kv_sources_num_bytes_per_token_2,
                    real_kv_sources_read_bytes_2,
                    REAL_KV_HASH_MODE,
                    TILE,
                    ALIGNMENT,
                    CUT,
                )
                total = splitmix64(total ^ state)
            if REAL_KV_SOURCES_COUNT > 3:
                state = real_kv_hash_of_source(
                    slot,
                    mask,
                    real_kv_sources_ptr_3,
                    real_kv_sources_rows_3,
                    real_kv_sources_row_stride_3,
                    real_kv_sources_row_bytes_3,
                    real_kv_sources_page_size_3,
                    real_kv_sources_num_bytes_per_token_3,
                    real_kv_sources_read_bytes_3,
                    REAL_KV_HASH_MODE,
                    TILE,
                    ALIGNMENT,
                    CUT,
                )
                total = splitmix64(total ^ state)
    return total
