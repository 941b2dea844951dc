"""Tensors that a call reads and writes at once, by the part that declarations give them, and elements for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from kvcanary_gen.expr.nodes import Load, Node, Var
from kvcanary_gen.ir import FlatDomain, KernelIR, Program, RecurrenceDomain
from kvcanary_gen.oracle.case import POISON, calls
from kvcanary_gen.oracle.source import Source
from kvcanary_gen.surface import Surface


@dataclass(frozen=True)
class Roles:
    """Paths of a surface.

    `rings`: number of the next row to the ring that it belongs to. `records`: tensors of records that kernels work on.
    `targets`: tensors that say where points store, where the order of points is free, to the tensors stored to.
    """

    rings: dict[str, str]
    counters: frozenset[str]
    records: frozenset[str]
    targets: dict[str, tuple[str, ...]]


def roles(program: Program, surface: Surface) -> Roles:
    rings: dict[str, str] = {}
    counters: set[str] = set()
    targets: dict[str, tuple[str, ...]] = {}
    for kernel, bind in calls(program, surface):
        if kernel.report is not None:
            rings[bind[kernel.report.next]] = bind[kernel.report.ring]
        counters |= {bind[counter.tensor] for counter in kernel.counters}
        for tensor, place in _scattered(kernel):
            others = targets.get(bind[place], ())
            targets[bind[place]] = tuple(dict.fromkeys([*others, bind[tensor]]))
    records = {t.path for t in surface.tensors if t.record is not None and not t.workspace}
    return Roles(rings, frozenset(counters), frozenset(records - set(rings.values())), targets)


def _scattered(kernel: KernelIR) -> Iterator[tuple[str, str]]:
    """(tensor, tensor of places) of stores at places that are device data, by points in no order."""
    if not isinstance(kernel.domain, (FlatDomain, RecurrenceDomain)):
        return
    for store in kernel.stores:
        for index in store.indices:
            place = resolved(kernel, index)
            if isinstance(place, Load):
                yield store.tensor, place.tensor


def resolved(kernel: KernelIR, node: Node) -> Node:
    """What a name of the kernel's own stands for; other nodes as they are."""
    lets = dict(kernel.lets)
    while isinstance(node, Var) and node.kind == "let" and node.name in lets:
        node = lets[node.name]
    return node


# --- Elements ---------------------------------------------------------------------------------------------------------


def next_row(rows: int, source: Source, *, hostile: bool) -> int:
    """Number of a ring's next row: at its start, about its end, or anything."""
    wild = (-1, -3, -(1 << 31), (1 << 31) - 2, (1 << 31) - 1, 1 << 20) if hostile else ()
    return source.pick((0, 0, 0, 0, 0, 0, 0, 1, max(0, rows - 2), max(0, rows - 1), rows, rows + 5, *wild))


def count_so_far(source: Source) -> int:
    return source.pick((0, 9, POISON, (1 << 63) - 1, (1 << 63) - 2, -1))


def record_words(count: int, source: Source) -> list[int]:
    """Words of records: mostly small numbers, as tokens and positions are; sometimes any bits."""
    any_bits = source.pick((0, 20, 20, 100))
    bulk = source.bulk()
    return [bulk.getrandbits(64) if bulk.randrange(100) < any_bits else bulk.randrange(4) for _ in range(count)]


def record_data(dtype: str, shape: tuple[int, ...], source: Source) -> list[int]:
    """Rows of records; what stands behind the record in a longer row is no different."""
    rows, length = shape
    if dtype != "uint8":
        return record_words(rows * length, source)
    words = record_words(rows * (length // 8), source)
    return list(itertools.chain.from_iterable(word.to_bytes(8, "little") for word in words))


def distinct(count: int, low: int, high: int, source: Source) -> list[int]:
    """Values of a range that differ, as far as it goes; then its low end, so that a range from -1 skips the rest."""
    found = list(range(low, high + 1)) if high - low < 1 << 20 else list(range(low, low + count))
    source.bulk().shuffle(found)
    found = found[:count] + [low] * (count - len(found))
    source.bulk().shuffle(found)
    return found
