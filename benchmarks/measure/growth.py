"""How cost grows: plan and verify over verify entries, write over tokens of one request and of many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .cases import Shape, Work


@dataclass(frozen=True)
class Curve:
    """`part` of a step over sizes; `requests` share the entries or tokens."""

    title: str
    part: str
    requests: int
    sizes: tuple[int, ...]
    over: str

    def shapes(self) -> Iterator[Shape]:
        for size in self.sizes:
            each = max(1, round(size / self.requests))
            prefix, extend = (each, 1) if self.over == "verify entries" else (0, each)
            yield Shape(f"{self.title}, {size}", self.requests, prefix, extend)


_DECADES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
CURVES = (
    Curve("plan and verify, 256 requests", "plan_and_verify", 256, _DECADES, "verify entries"),
    Curve("write, one request", "write", 1, (256, 1024, 4096, 16_384), "tokens"),
    Curve("write, 256 requests", "write", 256, (1024, 4096, 16_384, 65_536, 262_144, 1_048_576), "tokens"),
)
SMALL_CURVES = (
    Curve("plan and verify, 16 requests", "plan_and_verify", 16, (1000, 3000, 10_000, 30_000), "verify entries"),
    Curve("write, 16 requests", "write", 16, (256, 1024, 4096), "tokens"),
)


def measure(
    curves: tuple[Curve, ...],
    build: Callable[[Shape], Work],
    timed: Callable[[Callable[[], None]], float],
    say: Callable[[str], None],
) -> list[dict[str, object]]:
    """Every curve's points: how many entries or tokens there were, and microseconds."""
    found: list[dict[str, object]] = []
    for curve in curves:
        points = []
        for shape in curve.shapes():
            say(shape.name)
            work = build(shape)
            count = shape.entries if curve.over == "verify entries" else shape.tokens
            points.append([count, round(timed(getattr(work, curve.part)), 3)])
        found.append({"title": curve.title, "over": curve.over, "points": points})
    return found
