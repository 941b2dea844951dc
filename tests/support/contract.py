"""The plan and the scatter in plain Python, written from CONTRACT.md §3, §6 and §10 alone.

Everything else in these tests follows from the spec; this says whether the spec says what the contract does. Tensors
are lists here, two-dimensional ones lists of rows; what a call leaves alone is not in its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

INT64_MAX = (1 << 63) - 1
Table = Sequence[Sequence[int]]


def int64(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


@dataclass(frozen=True)
class Request:
    """What the plan is told of one request."""

    row: int
    prefix_len: int
    extend_len: int = 0
    valid_len: int = 0


@dataclass(frozen=True)
class Pools:
    """The tables, the same for all requests. A table's width is not known where it has no rows, but then 0 will do."""

    req_to_token: Table
    mapping: Sequence[int] | None
    tokens: Table | None
    window: int
    token_offset: int = 0


def padding(request: Request, pools: Pools) -> bool:
    """§1: row 0 is padding. §10: a row outside the table is as a padding row."""
    return not 1 <= request.row < len(pools.req_to_token)


def window_start(request: Request, pools: Pools) -> int:
    return max(0, request.prefix_len - pools.window) if pools.window > 0 else 0


def translated_slot(row: int, position: int, pools: Pools) -> int:
    """§3 `translate`, §10: a position past the table reads its last column. A table of nothing holds slot 0."""
    columns = pools.req_to_token[row] if 0 <= row < len(pools.req_to_token) else []
    slot = columns[max(0, min(position, len(columns) - 1))] if columns else 0
    if pools.mapping is None or slot < 0:
        return slot
    return pools.mapping[min(slot, len(pools.mapping) - 1)] if pools.mapping else 0


@dataclass(frozen=True)
class Offsets:
    """What the offsets kernel writes; `seeds` and `verify_offsets` are shorter than their tensors."""

    verify_offsets: list[int]
    write_offsets: list[int]
    seeds: list[int]
    num_valid: int
    enable: int
    num_reqs: int


def plan_offsets(requests: Sequence[Request], pools: Pools, capacity: int, write_offsets_len: int) -> Offsets:
    verify, write, seeds = [0], [0], []
    for request in requests:
        live = not padding(request, pools)
        verify_count = max(0, request.prefix_len - window_start(request, pools)) if live else 0
        write_count = max(0, request.extend_len) if live else 0
        verify.append(min(INT64_MAX, verify[-1] + verify_count))
        write.append(min(INT64_MAX, write[-1] + write_count))
        seeded = write_count > 0 and request.prefix_len > 0
        seeds.append(translated_slot(request.row, request.prefix_len - 1, pools) if seeded else -1)
    total = verify[-1]
    rest = [0] * (write_offsets_len - len(write))
    return Offsets(verify, write + rest, seeds, min(total, capacity), int(total <= capacity), len(requests))


@dataclass(frozen=True)
class Entry:
    slot: int
    token: int
    position: int
    prev_slot: int


def plan_entries(
    requests: Sequence[Request], pools: Pools, offsets: Sequence[int], enable: int, capacity: int
) -> dict[int, Entry]:
    """Entries by their place. §10: a negative offset is 0, offsets that run backwards make an empty request."""
    entries: dict[int, Entry] = {}
    for r, request in enumerate(requests):
        first = max(0, offsets[r])
        for i in range(first, min(offsets[r + 1], capacity) if enable else 0):
            entries[i] = entry(request, pools, int64(window_start(request, pools) + i - first))
    return entries


def entry(request: Request, pools: Pools, position: int) -> Entry:
    outside = request.row != 0 and padding(request, pools)
    row = 0 if outside else request.row
    prev = translated_slot(row, position - 1, pools) if position > 0 else -1
    token = -1 if outside else expected_token(request, pools, position)
    return Entry(translated_slot(row, position, pools), token, position, prev)


def expected_token(request: Request, pools: Pools, position: int) -> int:
    """-1 where no history says: another request's stale tail, outside the pool, or no pool at all."""
    column = position + pools.token_offset
    if pools.tokens is None or not 0 <= column < request.valid_len:
        return -1
    inside = 0 <= request.row < len(pools.tokens) and column < len(pools.tokens[request.row])
    return pools.tokens[request.row][column] if inside else -1


def scatter(flat: Sequence[int], offsets: Sequence[int], rows: Sequence[int], pool: Table) -> list[list[int]]:
    """§6: the low 32 bits of each token, where it fits; row 0 is like any other. §10: rows outside drop theirs."""
    after = [list(row) for row in pool]
    for r, row in enumerate(rows):
        first = max(0, offsets[r])
        for t in range(first, min(offsets[r + 1], len(flat))):
            if 0 <= row < len(after) and t - first < len(after[row]):
                after[row][t - first] = (flat[t] + (1 << 31)) % (1 << 32) - (1 << 31)
    return after
