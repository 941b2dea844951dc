"""What the page on the runtime says is so."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from kvcanary import CanaryConfig, CanaryManager

from .worlds import World, config

PAGE = (Path(__file__).resolve().parents[2] / "generated" / "docs" / "runtime.md").read_text("utf-8")


def test_the_example_prints_what_the_page_says() -> None:
    code, printed = re.findall(r"```(?:python|text)\n(.*?)```", PAGE, re.DOTALL)[:2]
    assert len(code.splitlines()) <= 40
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "runtime.md", "exec"), {})
    assert out.getvalue() == printed


def test_settings_are_those_of_the_class() -> None:
    rows = re.findall(r"^\| `(\w+)` +\| `KVCANARY_(\w+)` +\| .*? \| `(.*?)` +\|", PAGE, re.MULTILINE)
    plain = CanaryConfig()
    assert [name for name, _, _ in rows] == [pair.split("=")[0] for pair in str(plain).split(" ")]
    for name, variable, default in rows:
        assert variable == name.upper() and default.replace('"', "'") == str(getattr(plain, name))


def stated(row: str, *patterns: str) -> list[int]:
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {row} |")]
    return [int(number) for pattern in patterns for number in re.findall(pattern, line)]


def difference(part: str, least: dict[str, Any], most: dict[str, Any], pools: int = 1) -> int:
    """Bytes that a part takes more in one configuration than in another."""

    def size(given: dict[str, Any]) -> int:
        world = World(slots=given.get("slots", 64))
        groups = [world.group(name=f"pool {k}") for k in range(pools)]
        manager = CanaryManager(groups, config(**{k: v for k, v in given.items() if k != "slots"}))
        report = manager.memory_report()
        manager.close()
        return report[part]

    return size(most) - size(least)


@pytest.mark.parametrize("name", ["max_tokens", "max_requests", "verify_capacity"])
@pytest.mark.parametrize("pools", [1, 3])
def test_memory_of_a_forward(name: str, pools: int) -> None:
    forward, pool = (stated(row, rf"(\d+) × `{name}`") for row in ("each forward", "each pool in each forward"))
    want = 10 * (sum(forward) + pools * sum(pool))
    least = {"max_requests": 8, "max_tokens": 32, "verify_capacity": 256}
    found = difference("forward target", least, {**least, name: least[name] + 10}, pools)
    assert found == want > 0


def test_memory_of_slots_rings_and_tables() -> None:
    (per_slot,) = stated("canary buffers, each slot", r"\| (\d+) ")
    assert difference("canary_buffers", {"slots": 64}, {"slots": 74}) == 10 * per_slot
    (per_slot,) = stated("exclusions, each slot", r"\| (\d+),")
    assert difference("exclusions", {"slots": 64}, {"slots": 74}) == 10 * per_slot
    (ring,) = stated("each pool in each forward, and in sweeps", r"(\d+) × `ring_capacity`")
    # The pool's channel in its forward, and the one in sweeps.
    assert difference("mailbox", {"ring_capacity": 32}, {"ring_capacity": 42}) == 2 * 10 * ring
    (channel,) = stated("each pool in each forward, and in sweeps", r"\| (\d+),")
    one = {"ring_capacity": 1}
    found = difference("mailbox", one, {**one, "forwards": ("a", "b")})
    assert found == channel + ring
    (sweep,) = stated("sweeps", r"(\d+) × `sweep_capacity`")
    assert difference("sweeps", {"sweep_capacity": 10}, {"sweep_capacity": 20}) == 10 * sweep
    (table,) = stated("tables that are copied, in each forward", r"\| (\d+) × `max_length` × `max_requests`")
    # A row more, for padding; the pool's own table and the history.
    assert difference("forward target", {"max_length": 10}, {"max_length": 20}) == 2 * table * 10 * (8 + 1)
