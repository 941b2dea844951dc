"""Byte sources as calls hold them: a tensor of some dtype, and how one is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kvcanary_gen.expr.nodes import names_of
from kvcanary_gen.ir import FoldIR, Program, StructIR, StructValueIR
from kvcanary_gen.oracle import byte_sources
from kvcanary_gen.oracle.evaluate import Fields, Meta, evaluate
from kvcanary_gen.oracle.source import Source, chance

# Bytes of an element of every dtype that a source may have; torch may lack some.
ITEM_BYTES = {"uint8": 1, "int8": 1, "bfloat16": 2, "float16": 2, "float32": 4, "int64": 8} | {
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}
_DTYPES = ("uint8", "bfloat16", "uint8", "float8_e4m3fn", "float16", "int8", "float32", "float8_e5m2", "int64")
_MAX_ROWS = 40
_MAX_ROW_BYTES = 640
_SMALL = (1, 1, 2, 3, 4)
_HUGE = (1 << 20, 1 << 40, (1 << 63) - 1)


@dataclass(frozen=True)
class Layout:
    """A byte source without its bytes. `tail`: lengths behind the first axis; `step`: bytes from a row to the next."""

    struct: str
    bytes_field: str
    numbers: Mapping[str, int]
    dtype: str
    rows: int
    tail: tuple[int, ...]
    step: int

    @property
    def row_bytes(self) -> int:
        return math.prod(self.tail) * ITEM_BYTES[self.dtype]

    @property
    def fields(self) -> Fields:
        """As validators see it."""
        item = ITEM_BYTES[self.dtype]
        strides = (self.step // item, *Meta.packed(self.dtype, self.tail).strides)
        return Fields(
            self.struct, {self.bytes_field: Meta(self.dtype, (self.rows, *self.tail), strides), **self.numbers}
        )


@dataclass(frozen=True)
class Listed(byte_sources.Source):
    """A byte source of a call, as the interpreter takes it."""

    layout: Layout


class SourceDrawer:
    """Draws lists of one struct, so that some slots lie inside and some outside."""

    def __init__(self, program: Program, value: StructValueIR, fold: FoldIR | None, *, hostile: bool) -> None:
        self.struct: StructIR = program.structs[value.of]
        self.most = value.at_most or 0
        self.fold = fold
        self.hostile = hostile
        self.bytes_field = next(field for field in self.struct.values if field.kind == "bytes")
        self.numbers = [field for field in self.struct.values if field.kind == "int64"]
        # Numbers that say how much is read stay small.
        self.bounded = names_of(fold.length, "param") | names_of(fold.length, "scalar") if fold is not None else set()

    def draw(self, names: Mapping[str, int], source: Source) -> tuple[Layout, ...]:
        """`names`: sizes and settings of the call."""
        count = source.pick((0, 1, 1, 2, min(3, self.most), self.most))
        return tuple(self._layout(names, source) for _ in range(min(count, self.most)))

    def _layout(self, names: Mapping[str, int], source: Source) -> Layout:
        numbers = self._numbers(source)
        rows, length = self._extent({**names, **numbers}, names, source)
        dtype = source.pick(_DTYPES)
        item, align = ITEM_BYTES[dtype], self.bytes_field.multiple_of or 1
        # One row too few, rows that end before their last slot, or inside a word: what is missing reads as zero.
        rows = max(0, min(rows - source.pick((0, 0, 0, 1)), _MAX_ROWS))
        length = max(0, min(length + source.pick((0, 0, 0, 16, -16, -3, 5)), _MAX_ROW_BYTES))
        elements = length // item
        tail = (elements // 2, 2) if elements % 2 == 0 and chance(source, 30) else (elements,)
        step = -(-elements * item // align) * align + align * source.pick((0, 0, 1, 4))
        return Layout(self.struct.name, self.bytes_field.name, numbers, dtype, rows, tail, step)

    def _numbers(self, source: Source) -> dict[str, int]:
        """Numbers that keep to their rules; those that are bounded by another come behind it."""
        found: dict[str, int] = {}
        for field in sorted(self.numbers, key=lambda field: field.at_most_field is not None):
            unit = field.multiple_of or 1
            number = unit * source.pick(_SMALL)
            if self.hostile and field.name not in self.bounded and chance(source, 12):
                number = source.pick(_HUGE) // unit * unit
            number = max(number, field.at_least or number)
            if field.at_most_field is not None:
                number = min(number, found[field.at_most_field])
            found[field.name] = number
        return {field.name: found[field.name] for field in self.numbers}

    def _extent(self, known: Mapping[str, int], names: Mapping[str, int], source: Source) -> tuple[int, int]:
        """Rows, and bytes of one, that hold the first so many places of a fold."""
        if self.fold is None:
            return source.integer(0, 4), 16 * source.integer(0, 4)
        count = source.pick((*names.values(), 4))
        rows = length = 0
        for place in range(max(0, min(count, 64))):
            env = {**known, **{name: place for name, _ in self.fold.params}}
            rows = max(rows, evaluate(self.fold.row, env) + 1)
            length = max(length, evaluate(self.fold.byte, env) + evaluate(self.fold.length, env))
        return rows, length


def filled(layout: Layout, source: Source) -> Listed:
    """A source with other bytes each time."""
    bulk = source.bulk()
    return Listed([bulk.randbytes(layout.row_bytes) for _ in range(layout.rows)], dict(layout.numbers), layout)
