"""Patterns that a report points at first."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kvcanary import CanaryLaunchTag
from kvcanary.runtime import ViolationRecord
from kvcanary.runtime.report import advice, collect

from .records import tagged

CHAIN, BYTES = "VERIFY_CHAIN_HASH_MISMATCH", "VERIFY_REAL_KV_HASH_MISMATCH"
HEAD, TAIL, SWEEP = CanaryLaunchTag.HEAD_K_FULL, CanaryLaunchTag.TAIL_K_FULL, CanaryLaunchTag.SWEEP_K_FULL


def titles(given: Iterable[ViolationRecord]) -> str:
    return " | ".join(finding.title for finding in advice.advice(collect(given, 0)))


def spread(tag: CanaryLaunchTag, **changes: object) -> list[ViolationRecord]:
    """Violations of several requests, slots and steps."""
    return [
        tagged(
            tag, **{"step": 20 + n % 5, "slot": 100 + 9 * n, "request_id": f"r{n % 4}", "reasons": (CHAIN,), **changes}
        )
        for n in range(20)
    ]


@pytest.mark.parametrize(
    ("given", "want", "never"),
    [
        (spread(TAIL), "HEAD clean, TAIL dirty", "Broken before"),
        (spread(HEAD) + spread(TAIL), "Broken before the forward", "HEAD clean"),
        (spread(TAIL, reasons=(BYTES,)), "Only real KV bytes, and only TAIL", "HEAD clean"),
        (spread(TAIL, slot=77), "Slot 77 fails for 4 requests", "neighbouring"),
        (spread(TAIL, request_id="lonely"), "One request: 'lonely'", "Slot"),
        (spread(TAIL, request_id=None), "HEAD clean", "One request"),
        (spread(SWEEP), "Only SWEEP", "TAIL"),
        ([*spread(TAIL, step=33), tagged(TAIL, step=40)], "One event: step 33", "Only"),
        ([tagged(TAIL, slot=s, step=s) for s in range(64, 80)], "16 neighbouring slots", "Slot"),
        (spread(HEAD, reasons=("WRITE_TOKEN_MISMATCH",)), "What the forward was given is wrong", "TAIL"),
        (spread(TAIL), "It begins in step 20", "One event"),
    ],
)
def test_what_to_look_at_first(given: list[ViolationRecord], want: str, never: str) -> None:
    found = titles(given)
    assert want in found and never not in found
