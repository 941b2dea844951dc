"""Verify and write in plain Python, written from CONTRACT.md §2, §4, §5 and §10 alone, for any content of the tensors.

Tensors are lists of integers here. A launch changes a `World` in place: fingerprints, the ring, and the counters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

ANCHOR = 0xC0FFEE1234567890
MASK = (1 << 64) - 1
NONE, PARTIAL = 0, 1
CHAIN, POSITION, REAL_KV, WRITE_TOKEN, WRITE_POSITION, TOKEN, VERIFY_RANGE, WRITE_RANGE, COLLISION = (
    1 << bit for bit in range(9)
)
Row = tuple[int, ...]


def signed(value: int, bits: int = 64) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def splitmix64(x: int) -> int:
    x &= MASK
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def mix3(a: int, b: int, c: int) -> int:
    return splitmix64(splitmix64(splitmix64(a) ^ b & MASK) ^ c & MASK)


@dataclass(frozen=True)
class Bytes:
    """§2: a source. `rows` are the bytes of each tensor[k]; what a slot owns beyond them reads as zero."""

    rows: Sequence[bytes]
    page_size: int
    num_bytes_per_token: int
    read_bytes: int

    def hash(self, slot: int, mode: int) -> int:
        length = min(16, self.read_bytes) if mode == PARTIAL else self.read_bytes
        page, place = divmod(slot, self.page_size)
        row = self.rows[page] if page < len(self.rows) else b""
        owned = row[place * self.num_bytes_per_token :][:length]
        owned += bytes(length - len(owned) + -length % 8)
        acc = 0
        for at in range(0, len(owned), 8):
            acc = splitmix64(acc ^ int.from_bytes(owned[at : at + 8], "little"))
        return acc


@dataclass
class World:
    """What the context of a launch holds; `slots` has the four fields of each fingerprint, as int64."""

    slots: list[list[int]]
    kind: int
    ring: list[Row]
    next_row: int
    slot_runs: int
    kernel_runs: int
    sources: Sequence[Bytes]
    mode: int
    chain_assert: int
    rows: list[Row] = field(default_factory=list)

    def append(self, *row: int) -> None:
        """Takes the next number, which is an int32; what has no place in the ring is dropped."""
        found = tuple(signed(value) for value in (self.kind, *row))
        if 0 <= self.next_row < len(self.ring):
            self.ring[self.next_row] = found
        self.rows.append(found)
        self.next_row = signed(self.next_row + 1, 32)

    def link(self, slot: int) -> int:
        if slot < 0:
            return splitmix64(ANCHOR)
        token, position, prev_hash, _ = self.slots[slot]
        return mix3(prev_hash, token, position)

    def real_kv_hash(self, slot: int) -> int:
        acc = 0
        for source in self.sources if self.mode != NONE else ():
            acc = splitmix64(acc ^ source.hash(slot, self.mode))
        return acc


@dataclass(frozen=True)
class Entries:
    """§3: a plan of verify."""

    slots: Sequence[int]
    tokens: Sequence[int]
    positions: Sequence[int]
    prevs: Sequence[int]
    num_valid: int
    enable: int


def verify(world: World, plan: Entries, check_token: bool) -> None:
    """§4 and §10."""
    world.kernel_runs = signed(world.kernel_runs + 1)
    if plan.enable == 0:
        return
    active = min(max(0, plan.num_valid), len(plan.slots))
    world.slot_runs = signed(world.slot_runs + active)
    for i in range(active):
        slot, prev, position = plan.slots[i], plan.prevs[i], plan.positions[i]
        token = plan.tokens[i] if check_token else -1
        if not 0 <= slot < len(world.slots):
            world.append(slot, position, 0, token, 0, 0, VERIFY_RANGE)
        elif slot != 0:
            _verify_slot(world, slot, prev, token, position)


def _verify_slot(world: World, slot: int, prev: int, token: int, position: int) -> None:
    stored_token, stored_position, prev_hash, real_kv_hash = world.slots[slot]
    expected, bits = prev_hash, 0
    if prev >= len(world.slots):
        expected, bits = 0, VERIFY_RANGE
    elif prev != 0:
        expected = signed(world.link(prev))
        bits |= CHAIN if prev_hash != expected else 0
    bits |= TOKEN if token not in (-1, stored_token) else 0
    bits |= POSITION if stored_position != position else 0
    bits |= REAL_KV if real_kv_hash != signed(world.real_kv_hash(slot)) else 0
    if bits:
        world.append(slot, stored_position, stored_token, token, prev_hash, expected, bits)


@dataclass(frozen=True)
class Segments:
    """§3: a plan of write, with what §5 takes beside it. Without the input assert, `expected` is None."""

    offsets: Sequence[int]
    seeds: Sequence[int]
    num_valid: int
    tokens: Sequence[int]
    positions: Sequence[int]
    slots: Sequence[int]
    expected: tuple[Sequence[int], Sequence[int]] | None


@dataclass(frozen=True)
class Stored:
    """An entry that was stored: its slot and what it put there."""

    slot: int
    record: list[int]


def write(world: World, plan: Segments, found: Callable[[int], list[int]] | None = None) -> dict[int, list[list[int]]]:
    """§5 and §10. Returns what was stored in each slot.

    Args:
        found: contents of a slot after the launch, where several entries were stored in it; the last one's if None.
    """
    world.kernel_runs = signed(world.kernel_runs + 1)
    seeds = plan.seeds[: max(0, plan.num_valid)]
    chains = []
    for seed in seeds:
        exists = seed < len(world.slots)
        if not exists:
            world.append(seed, 0, 0, 0, 0, 0, WRITE_RANGE)
        last = world.slots[seed][1] if exists and seed >= 0 else None
        chains.append((world.link(seed if exists else -1), last))
    stored: list[Stored] = []
    for r, (link, last) in enumerate(chains):
        stored += _write_request(world, plan, r, link, last)
    world.slot_runs = signed(world.slot_runs + len(stored))
    by_slot: dict[int, list[list[int]]] = {}
    for entry in stored:
        by_slot.setdefault(entry.slot, []).append(entry.record)
    for slot, records in by_slot.items():
        world.slots[slot] = found(slot) if found is not None and len(records) > 1 else records[-1]
    for entry in stored:
        token, position, prev_hash, _ = entry.record
        have = world.slots[entry.slot]
        if entry.slot != 0 and have != entry.record:
            world.append(entry.slot, position, have[0], token, have[2], prev_hash, COLLISION)
    return by_slot


def _write_request(world: World, plan: Segments, r: int, link: int, last: int | None) -> list[Stored]:
    stored = []
    for i in range(max(0, plan.offsets[r]), min(plan.offsets[r + 1], len(plan.tokens))):
        slot, token, position = plan.slots[i], plan.tokens[i], plan.positions[i]
        if slot >= len(world.slots):
            world.append(slot, position, token, token, 0, 0, WRITE_RANGE)
        if not 0 <= slot < len(world.slots):
            continue
        if plan.expected is not None:
            want_token, want_position = plan.expected[0][i], plan.expected[1][i]
            bits = (WRITE_TOKEN if token != want_token else 0) | (WRITE_POSITION if position != want_position else 0)
            if bits:
                world.append(slot, position, token, want_token, link, want_position, bits)
        if world.chain_assert != 0 and last is not None:
            if position != signed(last + 1):
                world.append(slot, position, token, token, link, last + 1, WRITE_POSITION)
            last = position
        stored.append(Stored(slot, [token, position, signed(link), signed(world.real_kv_hash(slot))]))
        link = mix3(link, token, position)
    return stored
