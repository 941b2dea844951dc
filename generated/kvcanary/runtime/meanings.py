# Written by kvcanary-gen from the spec; edit that instead.
"""What reasons and stages mean, in the words of the spec."""

from __future__ import annotations

from typing import NamedTuple

from .records import FIELDS, ViolationRecord
from .stages import STAGES as _ALL_STAGES

__all__ = ["REASONS", "Reason"]


class Reason(NamedTuple):
    """A bit of FailReason."""

    name: str
    bit: int
    doc: str
    # What usually brings it about.
    cause: str
    # Whether it is about the real KV bytes, which not every stage looks at.
    real_bytes: bool
    # Whether it is found where fingerprints are written, so that what the forward was given is wrong.
    writing: bool


REASONS: dict[str, Reason] = {
    "VERIFY_CHAIN_HASH_MISMATCH": Reason(
        "VERIFY_CHAIN_HASH_MISMATCH",
        0,
        "The stored link is not the hash of the predecessor's record.",
        "The slot or the one before it was overwritten, freed and given to another request, or the table points at a "
        "slot of another request.",
        False,
        False,
    ),
    "VERIFY_POSITION_MISMATCH": Reason(
        "VERIFY_POSITION_MISMATCH",
        1,
        "The stored position is not the planned one.",
        "The table points at a slot that holds another position: entries swapped, an index off by one, or a slot "
        "that was used again.",
        False,
        False,
    ),
    "VERIFY_REAL_KV_HASH_MISMATCH": Reason(
        "VERIFY_REAL_KV_HASH_MISMATCH",
        2,
        "The slot's real KV bytes are not those that were fingerprinted.",
        "Something wrote to the KV bytes outside the canary's sight: a kernel out of bounds, a copy or a restore to "
        "the wrong place, a corrupted transfer.",
        True,
        False,
    ),
    "WRITE_TOKEN_MISMATCH": Reason(
        "WRITE_TOKEN_MISMATCH",
        3,
        "A token being written is not the expected one.",
        "The forward is fed tokens of another request, or stale ones: crossed inputs, or a batch that moved after it "
        "was prepared.",
        False,
        True,
    ),
    "WRITE_POSITION_MISMATCH": Reason(
        "WRITE_POSITION_MISMATCH",
        4,
        "A position being written is not the expected one, or does not follow its predecessor.",
        "Positions are skewed, or a request's cached length is not what its positions say.",
        False,
        True,
    ),
    "VERIFY_TOKEN_MISMATCH": Reason(
        "VERIFY_TOKEN_MISMATCH",
        5,
        "The stored token is not the one in the request's history.",
        "A false prefix hit: the slot belongs to a text that differs from the request's own, or its token was skewed "
        "when it was written.",
        False,
        False,
    ),
    "VERIFY_SLOT_OUT_OF_RANGE": Reason(
        "VERIFY_SLOT_OUT_OF_RANGE",
        6,
        "A slot to verify lies outside the canary buffer.",
        "The table holds garbage: it was read past its end, before it was filled, or with the slots of another pool.",
        False,
        False,
    ),
    "WRITE_SLOT_OUT_OF_RANGE": Reason(
        "WRITE_SLOT_OUT_OF_RANGE",
        7,
        "A slot to write lies outside the canary buffer.",
        "The allocator or the translation handed out a slot of another pool, or the write index is garbage.",
        False,
        True,
    ),
    "WRITE_SLOT_COLLISION": Reason(
        "WRITE_SLOT_COLLISION",
        8,
        "Two entries of one launch wrote one slot.",
        "The allocator gave one slot to two tokens: a slot freed twice, or two requests that share a block to be "
        "written.",
        False,
        True,
    ),
}
STAGES = {stage.name: stage for stage in _ALL_STAGES}

# Axes of launch tags in order, and those of them that tell pools of slots apart.
AXES: tuple[str, ...] = ("stage", "half", "group")
SLOT_AXES: tuple[str, ...] = ("group",)

# Fields of a record that come from the device as they are, in order.
_CARRIED: tuple[str, ...] = ("stored_token", "expected_token", "stored_chain_hash", "expected_aux")
CARRIED = tuple(field for field in FIELDS if field.name in _CARRIED)
# Values that say that nothing is known.
_UNKNOWN: dict[str, int] = {
    "expected_token": -1,
}
_HASHES = frozenset(field.name for field in CARRIED if field.kind == "hash")
# Unsigned fields that hold a plain number, not a hash, in violations of these reasons.
_NUMBERS: dict[str, tuple[str, ...]] = {
    "expected_aux": ("WRITE_TOKEN_MISMATCH", "WRITE_POSITION_MISMATCH"),
}


def unknown(name: str) -> Reason:
    """A reason that the spec does not know, as where a row is damaged or comes from another version."""
    cause = "The row is damaged, or another version wrote it."
    return Reason(name, 64, "Not a reason of this spec.", cause, False, False)


def reason(name: str) -> Reason:
    """The reason of that name, known or not."""
    return REASONS.get(name) or unknown(name)


def value_text(record: ViolationRecord, name: str) -> str:
    """A carried field as a reader wants it: hashes in hexadecimal, numbers in decimal, `unknown` where nothing is."""
    value: int = getattr(record, name)
    if value == _UNKNOWN.get(name):
        return "unknown"
    if name not in _HASHES:
        return str(value)
    plain = bool(record.reasons) and set(record.reasons) <= set(_NUMBERS.get(name, ()))
    # Such a number is an int64 that was cast.
    return str(value - (value >> 63 << 64)) if plain else f"0x{value:016x}"
