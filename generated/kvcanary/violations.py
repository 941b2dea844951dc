# Written by kvcanary-gen from the spec; edit that instead.
"""Violation rows as the device left them, with names instead of numbers."""

from __future__ import annotations

from typing import NamedTuple

import torch

from . import layout


class Violation(NamedTuple):
    """One row of the violation ring. Fields as in the record; links are unsigned."""

    # Launch tag of the endpoint that found it.
    kernel_kind: int
    # Slot that does not fit.
    slot_idx: int
    # Stored position in verify; position being written in write.
    position: int
    # Token in the slot.
    stored_token: int
    # Token that should be there, -1 where it is not known.
    expected_token: int
    # Link in the slot.
    stored_chain_hash: int
    # Link that should be there in verify; expected position in write.
    expected_aux: int
    # Reasons as bits of FailReason.
    fail_reason_bits: int

    @property
    def reasons(self) -> layout.FailReason:
        """Why the row stands there, as bits."""
        return layout.FailReason(self.fail_reason_bits)

    @property
    def reason_names(self) -> tuple[str, ...]:
        """Names of the reasons; a bit that has none is written as its number."""
        bits = self.fail_reason_bits & 0xFFFFFFFFFFFFFFFF
        names = {reason.value: str(reason.name) for reason in layout.FailReason}
        found = [1 << bit for bit in range(64) if bits >> bit & 1]
        return tuple(names.get(value, f"bit {value.bit_length() - 1}") for value in found)

    @property
    def tag_name(self) -> str:
        """Name of the launch tag; a number that is none is written as such."""
        known = layout.CanaryLaunchTag._value2member_map_
        return layout.CanaryLaunchTag(self.kernel_kind).name if self.kernel_kind in known else str(self.kernel_kind)


def decode_violations(ring: torch.Tensor, write_index: torch.Tensor | int) -> list[Violation]:
    """Rows of the ring that were written, in their order. Reads device data, so it waits for the device.

    Args:
        ring (int64 [rows, 8]): the violation ring.
        write_index (int32 [1], or int): number of the next row; it counts dropped rows too, and may be anything.
    """
    count = int(write_index) if isinstance(write_index, int) else int(write_index.reshape(-1)[0])
    rows = ring[: max(0, min(count, ring.shape[0]))].tolist()
    return [_row(row) for row in rows]


def _row(words: list[int]) -> Violation:
    return Violation(
        words[0],
        words[1],
        words[2],
        words[3],
        words[4],
        words[5] & 0xFFFFFFFFFFFFFFFF,
        words[6] & 0xFFFFFFFFFFFFFFFF,
        words[7],
    )
