"""Which numbers each type holds."""

from __future__ import annotations

from kvcanary_gen.expr.nodes import Type

RANGES = {Type.INT: (-(1 << 63), (1 << 63) - 1), Type.UINT: (0, (1 << 64) - 1)}
STORAGE_RANGES = {
    "uint8": (0, (1 << 8) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": RANGES[Type.INT],
    "uint64": RANGES[Type.UINT],
}


def fits(value: int, type_: Type) -> bool:
    low, high = RANGES[type_]
    return low <= value <= high
