"""Tensors of the interpreter: flat lists of Python integers with a shape and a storage dtype."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

_BITS = {"int32": 32, "int64": 64, "uint64": 64, "uint8": 8}
_SIGNED = {"int32": True, "int64": True, "uint64": False, "uint8": False}


def wrap(value: int, dtype: str) -> int:
    """The low bits of `value` as `dtype` holds them."""
    bits = _BITS[dtype]
    value &= (1 << bits) - 1
    return value - (1 << bits) if _SIGNED[dtype] and value >> (bits - 1) else value


@dataclass(repr=False)
class Array:
    """A tensor. Loads outside it are the caller's business; `index` says whether a place exists."""

    dtype: str
    shape: tuple[int, ...]
    data: list[int]

    def __post_init__(self) -> None:
        assert len(self.data) == math.prod(self.shape)

    def __repr__(self) -> str:
        runs = [(value, len(list(group))) for value, group in itertools.groupby(self.data)]
        shown = ", ".join(
            f"{value} × {count}" if count > 3 else ", ".join([str(value)] * count) for value, count in runs
        )
        return f"{self.dtype}{list(self.shape)}({shown})"

    def index(self, places: tuple[int, ...]) -> int | None:
        """Flat index of an element, None where it lies outside."""
        flat = 0
        for place, length in zip(places, self.shape, strict=True):
            if not 0 <= place < length:
                return None
            flat = flat * length + place
        return flat

    def store(self, places: tuple[int, ...], value: int) -> None:
        """Stores the low bits of `value`; a place outside is dropped."""
        flat = self.index(places)
        if flat is not None:
            self.data[flat] = wrap(value, self.dtype)

    def _first_byte(self, places: tuple[int, ...]) -> int | None:
        """Flat place where a word of a row of bytes begins."""
        *outer, word = places
        if not 0 <= word < self.shape[-1] // 8:
            return None
        return self.index((*outer, 8 * word))

    def copied(self) -> Array:
        return Array(self.dtype, self.shape, list(self.data))

    def load_word(self, places: tuple[int, ...]) -> int | None:
        """An 8-byte word of a record, unsigned; None where it lies outside."""
        if self.dtype != "uint8":
            flat = self.index(places)
            return None if flat is None else wrap(self.data[flat], "uint64")
        first = self._first_byte(places)
        return None if first is None else sum(self.data[first + k] << (8 * k) for k in range(8))

    def store_word(self, places: tuple[int, ...], value: int) -> None:
        """Stores an 8-byte word of a record; a place outside is dropped."""
        if self.dtype != "uint8":
            self.store(places, value)
            return
        first = self._first_byte(places)
        if first is not None:
            self.data[first : first + 8] = wrap(value, "uint64").to_bytes(8, "little")


Value = Array | int | None | list[Any]
Values = dict[str, Value]
