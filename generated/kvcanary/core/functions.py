# Written by kvcanary-gen from the spec; edit that instead.
"""Functions of the spec in vectorised torch. Hashes are int64 tensors with the bits of a uint64."""

from __future__ import annotations

import torch

from .. import layout
from . import eager


def splitmix64(x: torch.Tensor) -> torch.Tensor:
    """The finaliser of SplitMix64, a bijection on 64 bits."""
    a = (x ^ eager.shift_right(x, 30)) * eager.bits(0xBF58476D1CE4E5B9)
    b = (a ^ eager.shift_right(a, 27)) * eager.bits(0x94D049BB133111EB)
    return b ^ eager.shift_right(b, 31)


def splitmix64_mix3(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Hash of three words, in order."""
    return splitmix64(splitmix64(splitmix64(a) ^ b) ^ c)


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
