"""Launches that begin before the one ahead of them has ended: who may, and what they leave alone until it has."""

from __future__ import annotations

import inspect
import re
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kvcanary.core import dispatch, lang
from kvcanary.ops import write_entries, write_entries_of_many

JOIN = "lang.join(OVERLAPS)"
# What the walk stores, and what the entries store: nobody reads either before the launch that stores it has ended.
STORED = ("write_chain_ptr", "canary_buf_ptr", "violation_ring_ptr", "violation_write_index_ptr")
MODULES = (write_entries, write_entries_of_many)
KERNELS = ("", "_after")


def body(module: ModuleType, phase: str) -> list[str]:
    """The statements of a kernel, without its parameters."""
    name = module.__name__.rpartition(".")[2]
    text = inspect.getsource(getattr(module, f"_{name}{phase}_kernel").fn)
    return text.partition('"""')[2].splitlines()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("phase", KERNELS)
def test_entries_touch_nothing_that_the_launch_ahead_stores_before_it_has_ended(module: ModuleType, phase: str) -> None:
    lines = body(module, phase)
    first = next(place for place, line in enumerate(lines) if JOIN in line)
    assert first > 10, "something is done before"
    # Of many endpoints, names are given to pointers first, which reads nothing of what these point at.
    early = [line for line in lines[:first] if not re.match(r"\s+\w+_ptr = ", line)]
    touched = [line for line in early if any(name in line for name in STORED)]
    assert touched == []


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("phase", KERNELS)
def test_every_way_through_the_entries_waits(module: ModuleType, phase: str) -> None:
    """Else the launch after the next could begin while the walk still stores."""
    lines = body(module, phase)
    assert lines[-1].strip() == JOIN and lines[-1].startswith("    lang")
    assert not any(line.strip() == "return" for line in lines)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("phase", ["_chain", "_once"])
def test_other_kernels_wait_first(module: ModuleType, phase: str) -> None:
    statements = [line.strip() for line in body(module, phase) if "+ 0" not in line and "#" not in line]
    assert "lang.begin(OVERLAPS)" in statements[:3]
    assert "join(OVERLAPS)" in inspect.getsource(lang.begin.fn)


def device(kind: str = "cuda") -> Any:
    return SimpleNamespace(device=SimpleNamespace(type=kind, index=0 if kind == "cuda" else None))


@pytest.mark.parametrize(
    ("able", "programs", "switch", "want"),
    [
        (True, 1, True, True),
        (True, 132, True, True),
        (True, 133, True, False),
        (False, 1, True, False),
        (True, 1, False, False),
    ],
)
def test_who_overlaps(able: bool, programs: int, switch: bool, want: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs that know how, and of those that may wait for long no more than one for each multiprocessor."""
    monkeypatch.setattr(dispatch, "_overlaps", lambda index: able)
    monkeypatch.setattr(dispatch, "_multiprocessors", lambda index: 132)
    monkeypatch.setattr(dispatch, "OVERLAP", switch)
    assert dispatch.overlapping(device(), programs) == (
        {"OVERLAPS": True, "launch_pdl": True} if want else {"OVERLAPS": False}
    )
    assert dispatch.overlapping(device("cpu"), programs) == {"OVERLAPS": False}
