"""The ways in which a whole step can be launched, as far as the package has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .cases import Work


def steps(work: Work) -> dict[str, Callable[[], None]]:
    """Name to call. `apart` stores the verify plan; `bound` has validated every argument once, here."""
    return {"apart": work.step_apart, "launchers": work.step, "bound": work.bound_step()}


def plan_and_verify_two(work: Work, second: Any) -> None:
    """One plan, verified for the work's endpoint and for another with the context `second`."""
    work.plan_and_verify()
    replace(work, context=second).verify()
