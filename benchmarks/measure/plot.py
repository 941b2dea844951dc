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
CURVES = ("#1d4ed8", "#0f766e", "#9333ea")


def draw(result: dict[str, Any], out: Path) -> None:
    """Writes a PNG. Results without a baseline, floors or curves leave those out."""
    cases, curves = result["cases"], result.get("growth", [])
    heights = [0.42 * len(cases) + 1.2, 4.2] if curves else [0.42 * len(cases) + 1.2]
    figure = plt.figure(figsize=(15, sum(heights) + 1.2), layout="constrained")
    grid = figure.add_gridspec(len(heights), 12, height_ratios=heights)
    panels = [figure.add_subplot(grid[0, 3 * column : 3 * column + 3]) for column in range(len(PANELS))]
    for axes, part in zip(panels, PANELS, strict=True):
        _cases(axes, cases, part, named=axes is panels[0])
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=len(labels), frameon=False)
    overs = list(dict.fromkeys(curve["over"] for curve in curves))
    width = 12 // max(1, len(overs))
    for column, over in enumerate(overs):
        axes = figure.add_subplot(grid[1, width * column : width * (column + 1)])
        _growth(axes, [curve for curve in curves if curve["over"] == over], over)
    figure.suptitle(_title(result), x=0.01, ha="left", fontsize=13)
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
    axes.set_xscale("log")
    axes.margins(x=0.16)
    axes.set_ylim(0.4, len(cases) + 0.6)
    axes.set_yticks(list(places), [case["name"] for case in cases] if named else [])
    axes.tick_params(axis="y", length=0)
    axes.set_title(PARTS[part], loc="left", fontsize=11)
    _tidy(axes, "µs")


def _growth(axes: Axes, curves: list[dict[str, Any]], over: str) -> None:
    """Measured points, and for each curve the straight line through its last one: cost that is all per item."""
    for curve, color in zip(curves, CURVES, strict=False):
        counts, times = zip(*curve["points"], strict=True)
        axes.plot(counts, times, marker="o", markersize=5, color=color, label=curve["title"])
        line = [times[-1] * count / counts[-1] for count in counts]
        each = times[-1] / counts[-1] * 1e3
        axes.plot(counts, line, color=color, linewidth=1, linestyle=":", label=f"{each:.3g} ns each")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(f"cost over {over}", loc="left", fontsize=11)
    axes.set_xlabel(over)
    axes.legend(frameon=False, fontsize=9)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(axis="y", color="#e5e7eb", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylabel("µs")


def _tidy(axes: Axes, label: str) -> None:
    axes.set_xlabel(label)
    axes.xaxis.set_major_locator(LogLocator(numticks=6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", color="#e5e7eb", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
