"""Tensors where the order of stores is free: an element stored to more than once keeps any one of the values."""

from __future__ import annotations

from abc import abstractmethod

from kvcanary_gen.oracle.values import Array, wrap


class Settling(Array):
    """An array that asks `keeps` before each store. A word of bytes is one element, known by its first byte."""

    def __init__(self, array: Array) -> None:
        super().__init__(array.dtype, array.shape, list(array.data))

    @abstractmethod
    def keeps(self, place: int, value: int) -> bool:
        """Whether the element at a flat place stays as it is, although `value` is stored to it."""

    def store(self, places: tuple[int, ...], value: int) -> None:
        flat = self.index(places)
        if flat is not None and not self.keeps(flat, wrap(value, self.dtype)):
            super().store(places, value)

    def store_word(self, places: tuple[int, ...], value: int) -> None:
        first = self._first_byte(places) if self.dtype == "uint8" else None
        if self.dtype != "uint8":
            self.store(places, value)
        elif first is not None and not self.keeps(first, wrap(value, "uint64")):
            super().store_word(places, value)


class Undecided(Settling):
    """Keeps what another run kept, where somebody stores that; what nobody stores is not right for standing there."""

    def __init__(self, array: Array, outcome: Array) -> None:
        super().__init__(array)
        self.outcome = outcome
        self.decided: set[int] = set()

    def keeps(self, place: int, value: int) -> bool:
        if place in self.decided:
            return True
        if value == self._outcome(place):
            self.decided.add(place)
        return False

    def _outcome(self, place: int) -> int:
        if self.dtype != "uint8":
            return self.outcome.data[place]
        return int.from_bytes(bytes(self.outcome.data[place : place + 8]), "little")


class Contested(Settling):
    """Finds elements that different values are stored to."""

    def __init__(self, array: Array) -> None:
        super().__init__(array)
        self.seen: dict[int, int] = {}
        self.places: set[int] = set()

    def keeps(self, place: int, value: int) -> bool:
        if self.seen.setdefault(place, value) != value:
            self.places.add(place)
        return False
