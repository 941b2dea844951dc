"""Verify and write in plain Python, written from CONTRACT.md §2, §4, §5 and §10 alone. The judge of corruptions.

Slots are records here, memory is a list of them, and a violation is what an endpoint, a slot and the reasons say.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from kvcanary import CANARY_CHAIN_ANCHOR, FailReason, RealKvHashMode
from tests.support.contract import Entry

MASK = (1 << 64) - 1
Found = tuple[int, int]  # slot, reason bits


@functools.lru_cache(maxsize=1 << 20)
def splitmix64(x: int) -> int:
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def mix3(a: int, b: int, c: int) -> int:
    return splitmix64(splitmix64(splitmix64(a & MASK) ^ b & MASK) ^ c & MASK)


@dataclass(frozen=True)
class Record:
    """A slot's fingerprint; the two hashes are unsigned."""

    token: int
    position: int
    prev_hash: int
    real_kv_hash: int

    @classmethod
    def read(cls, words: Sequence[int]) -> Record:
        return cls(words[0], words[1], words[2] & MASK, words[3] & MASK)

    @property
    def link(self) -> int:
        return mix3(self.prev_hash, self.token, self.position)


@dataclass(frozen=True)
class Source:
    """§2: rows of bytes, the slots in a row, and the bytes of each."""

    rows: Sequence[bytes]
    page_size: int
    num_bytes_per_token: int
    read_bytes: int


@functools.lru_cache(maxsize=1 << 20)
def fold(data: bytes) -> int:
    state = 0
    for at in range(0, len(data), 8):
        state = splitmix64(state ^ int.from_bytes(data[at : at + 8], "little"))
    return state


def real_kv_hash(slot: int, sources: Sequence[Source], mode: RealKvHashMode) -> int:
    total = 0
    for source in sources if mode else ():
        length = min(16, source.read_bytes) if mode == RealKvHashMode.PARTIAL else source.read_bytes
        first = slot % source.page_size * source.num_bytes_per_token
        total = splitmix64(total ^ fold(source.rows[slot // source.page_size][first : first + length]))
    return total


def verify(
    memory: Sequence[Record], entries: Sequence[Entry], sources: Sequence[Source], mode: RealKvHashMode
) -> list[Found]:
    """§4 with the token check on."""
    found = []
    for entry in entries:
        if not 0 <= entry.slot < len(memory):
            found.append((entry.slot, int(FailReason.VERIFY_SLOT_OUT_OF_RANGE)))
        elif entry.slot != 0:
            stored, bits = memory[entry.slot], FailReason(0)
            if entry.prev_slot >= len(memory):
                bits |= FailReason.VERIFY_SLOT_OUT_OF_RANGE
            elif entry.prev_slot != 0:
                before = splitmix64(CANARY_CHAIN_ANCHOR) if entry.prev_slot < 0 else memory[entry.prev_slot].link
                bits |= FailReason.VERIFY_CHAIN_HASH_MISMATCH if stored.prev_hash != before else 0
            bits |= FailReason.VERIFY_TOKEN_MISMATCH if entry.token not in (-1, stored.token) else 0
            bits |= FailReason.VERIFY_POSITION_MISMATCH if stored.position != entry.position else 0
            now = real_kv_hash(entry.slot, sources, mode)
            bits |= FailReason.VERIFY_REAL_KV_HASH_MISMATCH if stored.real_kv_hash != now else 0
            if bits:
                found.append((entry.slot, int(bits)))
    return found


@dataclass(frozen=True)
class New:
    """One new token: what is written, where, and what was expected of it."""

    token: int
    position: int
    slot: int
    expected_token: int
    expected_position: int


def write(memory: list[Record], segments: Sequence[tuple[int, Sequence[New]]]) -> list[Found]:
    """§5 with both asserts on: every segment is a seed and the entries behind it. Changes `memory`, hashes aside.

    The real-KV hash of what is stored plays no part in what write reports, so it is left at 0.
    """
    found: list[Found] = []
    chains = []
    for seed, _ in segments:
        if seed >= len(memory):
            found.append((seed, int(FailReason.WRITE_SLOT_OUT_OF_RANGE)))
        inside = 0 <= seed < len(memory)
        link = memory[seed].link if inside else splitmix64(CANARY_CHAIN_ANCHOR)
        chains.append((link, memory[seed].position if inside else 0, inside))
    stored: list[tuple[int, Record]] = []
    for (link, last, asserted), (_, entries) in zip(chains, segments, strict=True):
        for new in entries:
            if new.slot < 0:
                continue
            if new.slot >= len(memory):
                found.append((new.slot, int(FailReason.WRITE_SLOT_OUT_OF_RANGE)))
                continue
            bits = FailReason.WRITE_TOKEN_MISMATCH if new.token != new.expected_token else FailReason(0)
            bits |= FailReason.WRITE_POSITION_MISMATCH if new.position != new.expected_position else 0
            if bits:
                found.append((new.slot, int(bits)))
            if asserted and new.position != last + 1:
                found.append((new.slot, int(FailReason.WRITE_POSITION_MISMATCH)))
            record = Record(new.token, new.position, link, 0)
            stored.append((new.slot, record))
            link, last = record.link, new.position
    survivors = dict(stored)
    for slot, record in survivors.items():
        memory[slot] = record
    found += [
        (slot, int(FailReason.WRITE_SLOT_COLLISION))
        for slot, record in stored
        if slot != 0 and survivors[slot] != record
    ]
    return found
