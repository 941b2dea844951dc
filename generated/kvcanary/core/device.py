# Written by kvcanary-gen from the spec; edit that instead.
"""Functions of the spec as Triton helpers. Those that load take the mask under which they may."""

from __future__ import annotations

import triton
import triton.language as tl

CANARY_CHAIN_ANCHOR = tl.constexpr(0xC0FFEE1234567890)
REQ_POOL_IDX_PADDING = tl.constexpr(0)
TOKEN_TO_KV_SLOT_PADDING = tl.constexpr(0)
MAX_REAL_KV_SOURCES = tl.constexpr(4)
MAX_PLAN_BATCH = tl.constexpr(4096)
INT32_MAX = tl.constexpr(0x7FFFFFFF)


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
