"""What may stand in a ring of rows whose order is free. Needs nothing but Python: the GPU suite compares so, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

Row = tuple[int, ...]


def rows_of(data: Sequence[int], width: int) -> list[Row]:
    return [tuple(data[start : start + width]) for start in range(0, len(data), width)]


def places(first: int, count: int, rows: int, bits: int) -> list[int]:
    """Rows of a ring that `count` rows from number `first` on go to; the number wraps, rows outside are dropped."""
    numbers = ((first + step + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1)) for step in range(count))
    return [number for number in numbers if 0 <= number < rows]


def ring_difference(
    before: Sequence[Row], after: Sequence[Row], written: Iterable[int], every: Sequence[Row]
) -> str | None:
    """What is wrong with a ring, if anything.

    Args:
        written: places that receive a row.
        every: all rows that were reported, also those that were dropped.
    """
    inside = set(written)
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        if place not in inside and old != new:
            return f"row {place} is {new}, and nothing should have been written there"
    left = Counter(every)
    for place in sorted(inside):
        if not left[after[place]]:
            return f"row {place} is {after[place]}, which is none of {sorted(left.elements())[:4]}"
        left[after[place]] -= 1
    return None
