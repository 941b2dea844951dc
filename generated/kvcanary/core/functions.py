# Written by kvcanary-gen from the spec; edit that instead.
"""Functions of the spec in vectorised torch. Hashes are int64 tensors with the bits of a uint64."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .. import layout, structs
from . import eager


def splitmix64(x: torch.Tensor) -> torch.Tensor:
    """The finaliser of SplitMix64, a bijection on 64 bits."""
    a = (x ^ eager.shift_right(x, 30)) * eager.bits(0xBF58476D1CE4E5B9)
    b = (a ^ eager.shift_right(a, 27)) * eager.bits(0x94D049BB133111EB)
    return b ^ eager.shift_right(b, 31)


def splitmix64_mix3(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Hash of three words, in order."""
    return splitmix64(splitmix64(splitmix64(a) ^ b) ^ c)


def link(slot: torch.Tensor, canary_buf: torch.Tensor) -> torch.Tensor:
    """The prev_hash that the successor of a slot must carry; below slot 0 lies the chain's anchor."""
    return torch.where(
        slot >= 0,
        splitmix64_mix3(
            eager.load(canary_buf, slot, layout.CANARY_FIELD_PREV_HASH),
            eager.load(canary_buf, slot, layout.CANARY_FIELD_TOKEN),
            eager.load(canary_buf, slot, layout.CANARY_FIELD_POSITION),
        ),
        splitmix64(torch.tensor(eager.bits(layout.CANARY_CHAIN_ANCHOR))),
    )


def is_live(row: torch.Tensor, table_rows: int) -> torch.Tensor:
    """Whether a request row takes part: padding rows and rows outside the table do not."""
    return (row != layout.REQ_POOL_IDX_PADDING) & (row >= 0) & (row < table_rows)


def window_start(prefix_len: torch.Tensor, swa_window_size: torch.Tensor) -> torch.Tensor:
    """First position that the sliding window still holds."""
    return torch.where(swa_window_size > 0, (prefix_len.clamp(min=0) - swa_window_size).clamp(min=0), 0)


def translate(slot: torch.Tensor, full_to_swa_index_mapping: torch.Tensor | None, mapping_len: int) -> torch.Tensor:
    """Slot in the group's own pool. Negative slots pass through; slots past the mapping's end take its last entry."""
    if full_to_swa_index_mapping is not None:
        return torch.where(slot >= 0, eager.load(full_to_swa_index_mapping, slot.clamp(max=mapping_len - 1)), slot)
    return slot


def slot_at(
    row: torch.Tensor,
    position: torch.Tensor,
    full_to_swa_index_mapping: torch.Tensor | None,
    req_to_token: torch.Tensor,
    mapping_len: int,
    table_width: int,
) -> torch.Tensor:
    """Slot of a request's position in the group's own pool; a position past the table reads its last column."""
    return translate(
        eager.load(req_to_token, row, position.clamp(0, table_width - 1)), full_to_swa_index_mapping, mapping_len
    )


def real_kv_hash(
    slot: torch.Tensor, real_kv_sources: Sequence[structs.RealKvSource], real_kv_hash_mode: layout.RealKvHashMode
) -> torch.Tensor:
    """Hash of the real KV bytes that a slot owns, over all sources in order; bytes outside a tensor are zero."""
    total = torch.full_like(slot, 0)
    if real_kv_hash_mode == layout.RealKvHashMode.NONE:
        return total
    for source in real_kv_sources:
        page_size = eager.scalar(source.page_size, slot)
        num_bytes_per_token = eager.scalar(source.num_bytes_per_token, slot)
        rows = eager.byte_rows(source.tensor)
        row = slot // page_size
        byte = slot % page_size * num_bytes_per_token
        state = torch.full_like(slot, 0)
        part = min(source.read_bytes, layout.PARTIAL_REAL_KV_BYTES)
        length = part if real_kv_hash_mode == layout.RealKvHashMode.PARTIAL else source.read_bytes
        for place in range(0, length, 8):
            word = eager.load_word(rows, row, byte + place, length - place)
            state = splitmix64(state ^ word)
        total = splitmix64(total ^ state)
    return total
