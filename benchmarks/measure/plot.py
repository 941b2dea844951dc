"""One picture of a result: every case beside baseline and floor, and how cost grows. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from .tables import PARTS

PANELS = ("plan", "verify", "write", "step")
# Blue, orange and grey differ for every kind of sight, and the markers differ too.
STYLES = {
    "baseline_us": {"label": "baseline", "color": "#d97706", "marker": "D", "markersize": 6},
    "us": {"label": "kvcanary", "color": "#1d4ed8", "marker": "o", "markersize": 8},
    "floor_us": {"label": "floor", "color": "#6b7280", "marker": "|", "markersize": 13, "markeredgewidth": 2},
}
# Floors of next to nothing lie outside the picture, on the left.
LEAST = 0.02
CURVES = ("#1d4ed8", "#0f766e", "#9333ea")


def draw(result: dict[str, Any], out: Path) -> None:
    """Writes a PNG. Results without a baseline, floors or curves leave those out."""
    cases, curves = result["cases"], result.get("growth", [])
    heights = [0.42 * len(cases) + 1.6, *([4.4] if curves else [])]
    figure = plt.figure(figsize=(15, sum(heights) + 0.4), layout="constrained")
    rows = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    panels = rows[0].subplots(1, len(PANELS))
    for axes, part in zip(panels, PANELS, strict=True):
        _cases(axes, cases, part, named=axes is panels[0])
    handles, labels = panels[0].get_legend_handles_labels()
    rows[0].legend(handles, labels, loc="outside upper right", ncols=len(labels), frameon=False)
    overs = list(dict.fromkeys(curve["over"] for curve in curves))
    for axes, over in zip(rows[-1].subplots(1, len(overs), squeeze=False)[0] if overs else (), overs, strict=True):
        _growth(axes, [curve for curve in curves if curve["over"] == over], over)
    rows[0].suptitle(_title(result), x=0.01, ha="left", fontsize=13)
    figure.savefig(out, dpi=130, metadata={"Software": None})
    plt.close(figure)


def _title(result: dict[str, Any]) -> str:
    machine, summary = result["machine"], result.get("summary", {})
    text = f"{machine['card']}, torch {machine['torch']}, Triton {machine['triton']}, {machine['date'][:10]}"
    if summary:
        text += f"\nwhole step: {summary['step_times_faster']:.2f}× the baseline's speed"
        text += f", {summary['step_times_floor']:.2f}× the floor (geometric means of {summary['cases']} cases)"
    return text


def _cases(axes: Axes, cases: list[dict[str, Any]], part: str, *, named: bool) -> None:
    """A line for each case, from the least of its figures to the largest, and a marker for each."""
    places = range(len(cases), 0, -1)
    for place, case in zip(places, cases, strict=True):
        figures = [case[kind][part] for kind in STYLES if kind in case]
        axes.plot([min(figures), max(figures)], [place, place], color="#d1d5db", linewidth=2, zorder=1)
        if "baseline_us" in case:
            faster = case["baseline_us"][part] / case["us"][part]
            spot = (max(figures), place)
            axes.annotate(f"{faster:.1f}×", spot, (8, -3), textcoords="offset points", fontsize=8, color="#374151")
    for kind, style in STYLES.items():
        shown = [(case[kind][part], place) for place, case in zip(places, cases, strict=True) if kind in case]
        if shown:
            axes.plot(*zip(*shown, strict=True), linestyle="", zorder=2, **style)
    axes.margins(x=0.16)
    axes.set_ylim(0.4, len(cases) + 0.6)
    axes.set_yticks(list(places), [case["name"] for case in cases] if named else [])
    axes.tick_params(axis="y", length=0)
    axes.set_title(PARTS[part], loc="left", fontsize=11)
    axes.set_xlabel("µs")
    _logarithmic(axes, "x")
    axes.set_xlim(left=max(LEAST, axes.get_xlim()[0]))
    axes.spines[["top", "right", "left"]].set_visible(False)


def _growth(axes: Axes, curves: list[dict[str, Any]], over: str) -> None:
    """Measured points, and for each curve the straight line through its last one: cost that is all per item."""
    for curve, color in zip(curves, CURVES, strict=False):
        counts, times = zip(*curve["points"], strict=True)
        axes.plot(counts, times, marker="o", markersize=5, color=color, label=curve["title"])
        line = [times[-1] * count / counts[-1] for count in counts]
        each = times[-1] / counts[-1] * 1e3
        axes.plot(counts, line, color=color, linewidth=1, linestyle=":", label=f"{each:.3g} ns each")
    axes.set_title(f"cost over {over}", loc="left", fontsize=11)
    axes.set_xlabel(over)
    axes.set_ylabel("µs")
    _logarithmic(axes, "x")
    _logarithmic(axes, "y")
    axes.legend(frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def _logarithmic(axes: Axes, which: str) -> None:
    """A logarithmic axis with plain numbers, whose ticks are powers of ten where these are enough."""
    getattr(axes, f"set_{which}scale")("log")
    low, high = getattr(axes, f"get_{which}lim")()
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(LogLocator(subs=(1.0,) if high > 50 * low else (1.0, 2.0, 5.0), numticks=7))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axis.set_minor_formatter(NullFormatter())
    axes.grid(axis=which, color="#e5e7eb", linewidth=0.6)
    axes.set_axisbelow(True)


def _short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
