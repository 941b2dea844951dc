"""Byte sources of the interpreter, and the meaning of folds over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcanary_gen.ir import FoldIR
from kvcanary_gen.oracle.values import wrap

if TYPE_CHECKING:
    from kvcanary_gen.oracle.interpreter import Machine


@dataclass(frozen=True)
class Source:
    """Rows of bytes and the numbers of the struct."""

    rows: list[bytes]
    numbers: dict[str, int]

    def byte(self, row: int, place: int) -> int:
        """A byte, zero where there is none."""
        if not 0 <= row < len(self.rows) or not 0 <= place < len(self.rows[row]):
            return 0
        return self.rows[row][place]

    def word(self, row: int, place: int, size: int) -> int:
        """A little-endian word of 8 bytes, the first `size` of which count; the others are zero."""
        return sum(self.byte(row, wrap(place + k, "int64")) << (8 * k) for k in range(min(8, size)))


def run_fold(machine: Machine, fold: FoldIR, args: list[int]) -> int:
    """The value of a fold: source by source, and in each word by word."""
    total = fold.start
    if fold.when is not None and not machine.eval(fold.when, {}):
        return total
    params = {name: value for (name, _), value in zip(fold.params, args, strict=True)}
    sources = machine.args[fold.sources]
    assert isinstance(sources, list)
    for source in sources:
        env = {**params, **source.numbers}
        row, byte = machine.eval(fold.row, env), machine.eval(fold.byte, env)
        state = fold.start
        length = machine.eval(fold.length, env)
        for place in range(0, length, 8):
            word = source.word(row, wrap(byte + place, "int64"), length - place)
            state = machine.eval(fold.step, {"state": state, "word": word})
        total = machine.eval(fold.combine, {"total": total, "state": state})
    return total
