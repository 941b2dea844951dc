"""Results as text: every figure beside the baseline's and the floor's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import goals

TITLES = ("case", "part", "µs", "baseline", "faster", "floor", "× floor", "launches")
WORDS = {"case", "part", "cost over", "launches", "goal", "verdict"}  # columns of text, not of figures
PARTS = {
    "plan": "plan",
    "verify": "verify",
    "write": "write",
    "plan_and_verify": "plan + verify",
    "step": "whole step",
}


def text(result: dict[str, Any]) -> str:
    """The whole report."""
    parts = [_machine(result["machine"]), _table(TITLES, list(_rows(result["cases"])))]
    growth = result.get("growth", [])
    if growth:
        parts.append(_table(("cost over", "count", "µs", "ns each"), list(_growth_rows(growth))))
    held = list(goals.rows(result))
    if held:
        parts.append(_table(("goal", "baseline", "at most", "have", "verdict"), held))
    summary = _summary(result.get("summary", {}))
    return "\n\n".join([*parts, *([summary] if summary else [])])


def _machine(machine: dict[str, Any]) -> str:
    lines = [f"{machine['card']}, torch {machine['torch']}, Triton {machine['triton']}, {machine['date']}"]
    if machine.get("driver"):
        lines[0] += f", driver {machine['driver']}"
    if "copy_gb_per_s" in machine:
        lines.append(f"copies {machine['copy_gb_per_s']} GB/s, SM clock {machine['sm_clock_ghz']} GHz")
    if machine["device"] != "cuda":
        lines.append("torch references on one thread, on smaller cases: nothing here compares with the baseline")
    return "\n".join(lines)


def _rows(cases: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for case in cases:
        baseline, floor = case.get("baseline_us", {}), case.get("floor_us", {})
        for number, (part, title) in enumerate(PARTS.items()):
            launches = _launches(case) if part == "step" else ""
            figures = _figures(case["us"][part], baseline.get(part), floor.get(part))
            yield (case["name"] if number == 0 else "", title, *figures, launches)
        if "plan_and_verify_two" in case["us"]:
            yield ("", "plan + 2 verifies", *_figures(case["us"]["plan_and_verify_two"], None, None), "")
        yield from _host_rows(case)


def _host_rows(case: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Host time has no floor."""
    known = case.get("baseline_host_us", {})
    for part, value in case.get("host_us", {}).items():
        yield ("", f"host, {PARTS[part]}", *_figures(value, known.get(part), None), "")
    for way, value in case.get("host_step_us", {}).items():
        yield ("", f"host, step by {way}", *_figures(value, None, None), "")


def _launches(case: dict[str, Any]) -> str:
    counts = case.get("launches", {})
    return ", ".join(f"{way} {'?' if count is None else count}" for way, count in counts.items())


def _figures(have: float, baseline: float | None, floor: float | None) -> tuple[str, ...]:
    faster = f"{baseline / have:.2f}×" if baseline is not None else ""
    above = f"{have / floor:.1f}" if floor else ""
    return f"{have:.1f}", _number(baseline), faster, _number(floor), above


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}" if value >= 0.1 else f"{value:.3f}"


def _growth_rows(curves: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for curve in curves:
        for number, (count, us) in enumerate(curve["points"]):
            yield curve["title"] if number == 0 else "", str(count), f"{us:.1f}", f"{us * 1e3 / count:.3f}"


def _summary(summary: dict[str, Any]) -> str:
    if not summary:
        return ""
    lines = [
        f"Whole step, geometric mean of {summary['cases']} cases: {summary['step_times_faster']:.2f} times the "
        f"baseline's speed, {summary['step_times_floor']:.2f} times the floor."
    ]
    slower = summary["slower_than_baseline"]
    return "\n".join([*lines, f"Slower than the baseline: {'; '.join(slower) if slower else 'nothing'}."])


def _table(titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Columns as wide as they must be, none that is empty; the figures right-aligned."""
    kept = [column for column in range(len(titles)) if any(row[column] for row in rows)]
    titles, *rows = [tuple(row[column] for column in kept) for row in (titles, *rows)]
    widths = [max(len(row[column]) for row in (titles, *rows)) for column in range(len(titles))]
    words = [
        column
        for column, title in enumerate(titles)
        if title in ("case", "part", "cost over", "launches", "goal", "verdict")
    ]
    lines = []
    for row in (titles, tuple("-" * width for width in widths), *rows):
        cells = [c.ljust(w) if n in words else c.rjust(w) for n, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
