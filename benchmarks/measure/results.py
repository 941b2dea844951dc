"""Measures cases and puts the figures into one plain dictionary, which is also what a result file holds.

Of every case: `us` (device time of plan, verify, write, plan_and_verify and step; plan_and_verify_two verifies for two
endpoints), `host_us` (eager calls), `launches` of a step, and where they apply `baseline_us`, `baseline_host_us` and
`floor_us` by the same names.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from . import checks, growth, machine, timing
from .cases import PARTS, Shape, Work, build
from .floors import floors_us
from .steps import plan_and_verify_two, steps

TIMED = (*PARTS, "plan_and_verify", "step")
Say = Callable[[str], None]


def measure(shapes: list[Shape], device: str, *, curves: bool, say: Say) -> dict[str, Any]:
    """Checks every case, then times it.

    Args:
        shapes: the cases; on the CPU they should be small, and the torch references are what is timed.
        curves: also how cost grows, which takes a minute on a GPU.
        say: told what is being measured.

    Raises:
        checks.WrongResult: a case's results are wrong; nothing is measured then.
    """
    say("checking results")
    made = {shape.name: _checked(shape, device) for shape in shapes}
    found: dict[str, Any] = {"machine": machine.describe(device), "cases": []}
    speeds: dict[str, float] = {}
    if device == "cuda":
        say("copy bandwidth and clock")
        timing.warm_up()
        speeds = machine.speeds()
        found["machine"] |= speeds
    for shape in shapes:
        say(shape.name)
        found["cases"].append({**_case(shape, device, speeds), "comparisons": made[shape.name]})
    if curves:
        small = device != "cuda"
        found["growth"] = growth.measure(
            growth.SMALL_CURVES if small else growth.CURVES,
            lambda shape: build(shape, device, reference=small),
            timing.cpu_us if small else timing.device_us,
            say,
        )
    found["summary"] = summary(found["cases"])
    return found


def _checked(shape: Shape, device: str) -> int:
    """On a GPU, and in Triton's interpreter, the kernels are judged; elsewhere the reference alone can be."""
    kernels = device == "cuda" or _interpreted()
    return checks.check(build(shape, device, reference=not kernels), against_reference=kernels)


def _interpreted() -> bool:
    from kvcanary.core import dispatch

    return bool(dispatch.INTERPRETED)


def _case(shape: Shape, device: str, speeds: dict[str, float]) -> dict[str, Any]:
    work = build(shape, device, reference=device != "cuda")
    found: dict[str, Any] = {
        "name": shape.name,
        "bs": shape.bs,
        "prefix": shape.prefix,
        "extend": shape.extend,
        "window": shape.window,
        "sources": [list(pair) for pair in shape.sources],
        "mode": shape.mode,
        "verify_entries": shape.entries,
        "tokens": shape.tokens,
    }
    found |= _cuda_times(work) if device == "cuda" else {"us": _rounded({p: _cpu_time(work, p) for p in TIMED})}
    if speeds:
        found["floor_us"] = _rounded(floors_us(shape, **speeds))
    if shape.baseline is not None:
        found |= _baseline(shape.baseline)
    return found


def _cpu_time(work: Work, part: str) -> float:
    return timing.cpu_us(getattr(work, part))


def _cuda_times(work: Work) -> dict[str, Any]:
    timing.warm_up()
    ways = steps(work)
    device = {part: timing.device_us(getattr(work, part)) for part in TIMED if part != "step"}
    if (two := work.second_endpoint()) is not None:
        device["plan_and_verify_two"] = timing.device_us(plan_and_verify_two(work, two))
    step_us = {name: timing.device_us(call) for name, call in ways.items()}
    host = {part: timing.host_us(getattr(work, part)) for part in PARTS}
    return {
        "us": _rounded({**device, "step": min(step_us.values())}),
        "step_us": _rounded(step_us),
        "host_us": _rounded(host),
        "host_step_us": _rounded({name: timing.host_us(call) for name, call in ways.items()}),
        "launches": {name: timing.launches(call) for name, call in ways.items()},
    }


def _baseline(figures: dict[str, float]) -> dict[str, Any]:
    """The baseline's figures by our names; it was never timed as one step, so its parts are added up."""
    parts = {part: figures[f"{part}_us"] for part in PARTS}
    both = parts["plan"] + parts["verify"]
    host = {part: figures[f"host_{part}_us"] for part in PARTS if f"host_{part}_us" in figures}
    sums = {"plan_and_verify": both, "step": both + parts["write"]}
    return {"baseline_us": _rounded({**parts, **sums}), "baseline_host_us": host}


def summary(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """The geometric mean of the whole steps' speed-ups, and where the baseline is still faster."""
    compared = [case for case in cases if "baseline_us" in case and "floor_us" in case]
    if not compared:
        return {}
    ratios = [case["baseline_us"]["step"] / case["us"]["step"] for case in compared]
    above = [case["us"]["step"] / case["floor_us"]["step"] for case in compared]
    slower = [f"{c['name']}: {p}" for c in compared for p in TIMED if c["us"][p] > c["baseline_us"][p]]
    return {
        "cases": len(compared),
        "step_times_faster": round(_geometric_mean(ratios), 3),
        "step_times_floor": round(_geometric_mean(above), 3),
        "slower_than_baseline": slower,
        "steps_slower_than_baseline": [c["name"] for c in compared if c["us"]["step"] > c["baseline_us"]["step"]],
    }


def _geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _rounded(figures: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3 if value >= 1 else 6) for name, value in figures.items()}
