# Written by kvcanary-gen from the spec; edit that instead.
"""Constants, record layouts, enums and launch tags, as the spec states them. Contract §2."""

from __future__ import annotations

from enum import IntEnum, IntFlag

SPEC_VERSION = "0.1.0"

# --- Constants --------------------------------------------------------------------------------------------------------

# Hashed once, it is the link that the first token of every chain carries.
CANARY_CHAIN_ANCHOR = 0xC0FFEE1234567890
# Request row of a padded batch entry; row 0 of the token table belongs to nobody.
REQ_POOL_IDX_PADDING = 0
# The pool's dummy slot for padded tokens; never checked.
TOKEN_TO_KV_SLOT_PADDING = 0
# Real-KV sources that one launch hashes for a slot.
MAX_REAL_KV_SOURCES = 4
# Bytes of each source that mode PARTIAL hashes.
PARTIAL_REAL_KV_BYTES = 16
# Requests that one plan launch takes; the workspace holds one offset more.
MAX_PLAN_BATCH = 4096
# Largest count that an int32 plan field can hold.
INT32_MAX = 0x7FFFFFFF

# --- Records: indices of 8-byte words ---------------------------------------------------------------------------------

# The fingerprint beside one KV slot. A slot's stride may be larger than the record, in multiples of 8 bytes.

# int64: Token id whose keys and values the slot holds.
CANARY_FIELD_TOKEN = 0
# int64: Position of that token in its request.
CANARY_FIELD_POSITION = 1
# uint64: Link of the chain: the hash over the predecessor's record.
CANARY_FIELD_PREV_HASH = 2
# uint64: Hash of the slot's real KV bytes, 0 where none are hashed.
CANARY_FIELD_REAL_KV_HASH = 3
SLOT_NUM_FIELDS = 4
SLOT_BYTES = 32

# One row of the violation ring.

# int64: Launch tag of the endpoint that found it.
VIOLATION_FIELD_KERNEL_KIND = 0
# int64: Slot that does not fit.
VIOLATION_FIELD_SLOT_IDX = 1
# int64: Stored position in verify; position being written in write.
VIOLATION_FIELD_POSITION = 2
# int64: Token in the slot.
VIOLATION_FIELD_STORED_TOKEN = 3
# int64: Token that should be there, -1 where it is not known.
VIOLATION_FIELD_EXPECTED_TOKEN = 4
# uint64: Link in the slot.
VIOLATION_FIELD_STORED_CHAIN_HASH = 5
# uint64: Link that should be there in verify; expected position in write.
VIOLATION_FIELD_EXPECTED_AUX = 6
# int64: Reasons as bits of FailReason.
VIOLATION_FIELD_FAIL_REASON_BITS = 7
VIOLATION_NUM_FIELDS = 8
VIOLATION_BYTES = 64

# Where a request's chain stands before an entry; scratch of write.

# uint64: The prev_hash that the entry will carry.
WRITE_CHAIN_FIELD_PREV_HASH = 0
# int64: Position of the entry stored before it, or of the seed.
WRITE_CHAIN_FIELD_PREVIOUS_POSITION = 1
WRITE_CHAIN_NUM_FIELDS = 2
WRITE_CHAIN_BYTES = 16

# --- Enums ------------------------------------------------------------------------------------------------------------


class FailReason(IntFlag):
    """Why a row stands in the violation ring; several bits may be set."""

    # The stored link is not the hash of the predecessor's record.
    VERIFY_CHAIN_HASH_MISMATCH = 1 << 0
    # The stored position is not the planned one.
    VERIFY_POSITION_MISMATCH = 1 << 1
    # The slot's real KV bytes are not those that were fingerprinted.
    VERIFY_REAL_KV_HASH_MISMATCH = 1 << 2
    # A token being written is not the expected one.
    WRITE_TOKEN_MISMATCH = 1 << 3
    # A position being written is not the expected one, or does not follow its predecessor.
    WRITE_POSITION_MISMATCH = 1 << 4
    # The stored token is not the one in the request's history.
    VERIFY_TOKEN_MISMATCH = 1 << 5
    # A slot to verify lies outside the canary buffer.
    VERIFY_SLOT_OUT_OF_RANGE = 1 << 6
    # A slot to write lies outside the canary buffer.
    WRITE_SLOT_OUT_OF_RANGE = 1 << 7
    # Two entries of one launch wrote one slot.
    WRITE_SLOT_COLLISION = 1 << 8


class RealKvHashMode(IntEnum):
    """How much of a slot's real KV bytes goes into its fingerprint."""

    # Nothing; the stored hash is 0.
    NONE = 0
    # The first 16 bytes of each source.
    PARTIAL = 1
    # Everything that each source declares.
    ALL = 2


# --- Launch tags ------------------------------------------------------------------------------------------------------


class CanaryLaunchTag(IntEnum):
    """Names the endpoint of a launch; kernel_kind of a violation row."""

    HEAD_K_FULL = 0
    HEAD_V_FULL = 1
    TAIL_K_FULL = 2
    TAIL_V_FULL = 3
    SWEEP_K_FULL = 4
    SWEEP_V_FULL = 5
    HEAD_K_SWA = 6
    HEAD_V_SWA = 7
    TAIL_K_SWA = 8
    TAIL_V_SWA = 9
    SWEEP_K_SWA = 10
    SWEEP_V_SWA = 11

    @property
    def stage(self) -> str:
        return _CANARYLAUNCHTAG_AXES[self]["stage"]

    @property
    def half(self) -> str:
        return _CANARYLAUNCHTAG_AXES[self]["half"]

    @property
    def group(self) -> str:
        return _CANARYLAUNCHTAG_AXES[self]["group"]


_CANARYLAUNCHTAG_AXES: dict[CanaryLaunchTag, dict[str, str]] = {
    CanaryLaunchTag.HEAD_K_FULL: {"stage": "HEAD", "half": "K", "group": "FULL"},
    CanaryLaunchTag.HEAD_V_FULL: {"stage": "HEAD", "half": "V", "group": "FULL"},
    CanaryLaunchTag.TAIL_K_FULL: {"stage": "TAIL", "half": "K", "group": "FULL"},
    CanaryLaunchTag.TAIL_V_FULL: {"stage": "TAIL", "half": "V", "group": "FULL"},
    CanaryLaunchTag.SWEEP_K_FULL: {"stage": "SWEEP", "half": "K", "group": "FULL"},
    CanaryLaunchTag.SWEEP_V_FULL: {"stage": "SWEEP", "half": "V", "group": "FULL"},
    CanaryLaunchTag.HEAD_K_SWA: {"stage": "HEAD", "half": "K", "group": "SWA"},
    CanaryLaunchTag.HEAD_V_SWA: {"stage": "HEAD", "half": "V", "group": "SWA"},
    CanaryLaunchTag.TAIL_K_SWA: {"stage": "TAIL", "half": "K", "group": "SWA"},
    CanaryLaunchTag.TAIL_V_SWA: {"stage": "TAIL", "half": "V", "group": "SWA"},
    CanaryLaunchTag.SWEEP_K_SWA: {"stage": "SWEEP", "half": "K", "group": "SWA"},
    CanaryLaunchTag.SWEEP_V_SWA: {"stage": "SWEEP", "half": "V", "group": "SWA"},
}

_SWEEP_TAGS: frozenset[int] = frozenset(
    {
        CanaryLaunchTag.SWEEP_K_FULL,
        CanaryLaunchTag.SWEEP_V_FULL,
        CanaryLaunchTag.SWEEP_K_SWA,
        CanaryLaunchTag.SWEEP_V_SWA,
    }
)


def is_sweep_tag(tag: int) -> bool:
    """Whether a tag's stage verifies from time to time instead of around each forward. Contract §7."""
    return tag in _SWEEP_TAGS
