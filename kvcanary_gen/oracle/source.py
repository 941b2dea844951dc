"""Where drawn inputs get their choices from: a seeded generator here, a property-testing library in the tests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Source(Protocol):
    """A stream of choices. The first option and the lower end are the simplest ones, where that matters."""

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""

    def pick(self, options: Sequence[T]) -> T:
        """One of `options`."""

    def bulk(self) -> random.Random:
        """A generator for many choices of little meaning each."""


class RandomSource:
    """Choices of a seeded generator."""

    def __init__(self, seed: int | str | random.Random) -> None:
        self._random = seed if isinstance(seed, random.Random) else random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self._random.random() * len(options))]

    def bulk(self) -> random.Random:
        return self._random


def chance(source: Source, percent: int) -> bool:
    """True in `percent` of all draws; false is the simpler answer."""
    return source.integer(1, 100) > 100 - percent
