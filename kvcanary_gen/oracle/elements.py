"""Draws elements of tensors: values of a range, ascending offsets, and values that belong to neither."""

from __future__ import annotations

from collections.abc import Sequence

from kvcanary_gen.oracle.interpreter import segments
from kvcanary_gen.oracle.source import Source, chance
from kvcanary_gen.oracle.values import Array, wrap

# Points of a segment domain, so that the interpreter stays quick.
MAX_POINTS = 6000
# Tensors up to this long come from the source element by element, so that a failure shrinks to readable numbers.
EXPLICIT = 8
WILD = (
    *(-1, -5, 0, 1 << 31, (1 << 31) - 1, -(1 << 31), -(1 << 31) - 1, 1 << 32, (1 << 32) + 1, 1 << 40, 1 << 62),
    *((1 << 63) - 1, (1 << 63) - 2, -(1 << 63), -(1 << 63) + 1, -(1 << 62)),
)


def elements(count: int, low: int, high: int, source: Source) -> list[int]:
    """Values of a range; sometimes its ends alone, sometimes few different ones."""
    high = max(low, high)
    style = source.pick(("any", "any", "few", "ends", "one"))
    if style == "any":
        return [source.integer(low, high) for _ in range(count)]
    options = [low, high, min(low + 1, high)]
    if style != "ends":
        options = [source.integer(low, high) for _ in range(1 if style == "one" else 3)]
    return [source.pick(options) for _ in range(count)]


def wild(dtype: str, low: int, high: int, sizes: Sequence[int]) -> list[int]:
    """Values that do not belong there: ends of the dtype, and neighbours of the range and of every size."""
    near = {low - 1, high + 1, high + 3, 2 * high + 1, *(s + d for s in sizes for d in (-1, 0, 1))}
    small = sorted({wrap(value, dtype) for value in near})
    # As many of the one kind as of the other: a step too far is the commoner mistake.
    repeats = max(1, len(WILD) // len(small))
    return sorted({wrap(value, dtype) for value in WILD}) + small * repeats


def sprinkled(data: list[int], others: Sequence[int], source: Source) -> list[int]:
    """`data` with none, some or all of its elements replaced.

    Mostly none: one wrong length makes a plan that holds nothing, and then no other tensor is tried.
    """
    percent = source.pick((0, 0, 0, 10, 30, 100))
    if not percent:
        return data
    return [source.pick(others) if chance(source, percent) else value for value in data]


def offsets(length: int, count: int, limit: int, sizes: Sequence[int], source: Source, *, hostile: bool) -> list[int]:
    """Offsets of `count` segments up to `limit`; hostile ones also run backwards, and anywhere."""
    good = _ascending(length, limit, source)
    if not hostile:
        return good
    others = wild("int64", 0, limit, sizes)
    bad = {
        "good": lambda: good,
        "sprinkled": lambda: sprinkled(good, others, source),
        "shuffled": lambda: [source.integer(-3, limit + 3) for _ in range(length)],
        "backwards": lambda: good[::-1],
        "one": lambda: [source.pick((0, limit, *others))] * length,
    }[source.pick(("good", "good", "sprinkled", "shuffled", "good", "sprinkled", "shuffled", "backwards", "one"))]()
    found = segments(Array("int64", (length,), bad), count, limit)
    return bad if sum(end - first for _, first, end in found) <= MAX_POINTS else good


def _ascending(length: int, limit: int, source: Source) -> list[int]:
    found = sorted(source.integer(0, limit) for _ in range(length))
    if found and not chance(source, 15):
        found[0] = 0
    return found
