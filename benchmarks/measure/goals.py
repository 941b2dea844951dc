"""Goals on a certain card: which of them a result reaches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GOALS = Path(__file__).resolve().parents[1] / "goals_h200.json"
CARD = "H200"

Row = tuple[str, str, str, str, str]


def rows(result: dict[str, Any], path: Path = GOALS) -> Iterator[Row]:
    """Work, the baseline's figure, the goal, ours, and a verdict, for what the result holds; none for other cards."""
    if CARD not in result["machine"]["card"]:
        return
    goals = json.loads(path.read_text("utf-8"))
    cases = {case["name"]: case for case in result["cases"]}
    for goal in goals["goals"]:
        have = cases.get(goal["case"], {}).get("us", {}).get(goal["part"])
        if have is not None:
            yield _row(goal["work"], f"{goal['baseline']:g}", goal["at_most"], have)
    hosts = [min(case["host_step_us"].values()) for case in result["cases"] if case.get("host_step_us")]
    if hosts:
        yield _row("host, whole step, the slowest case", "", goals["host_step_us"], max(hosts))
    summary = result.get("summary", {})
    if summary:
        have, least = summary["step_times_faster"], goals["step_times_faster"]
        verdict = "reached" if have >= least else f"missed by {least / have - 1:.0%}"
        yield "whole step, times faster, geometric mean", "1", f"{least:g}", f"{have:.2f}", verdict
        slower = summary["steps_slower_than_baseline"]
        yield "whole steps slower than the baseline", "", "0", str(len(slower)), "missed" if slower else "reached"


def _row(work: str, baseline: str, at_most: float, have: float) -> Row:
    verdict = "reached" if have <= at_most else f"missed by {have / at_most - 1:.0%}"
    return work, baseline, f"{at_most:g}", f"{have:.1f}", verdict
