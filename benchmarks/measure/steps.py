"""The ways in which a whole step can be launched, as far as the package has them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import kvcanary

from .cases import Work


def steps(work: Work) -> dict[str, Callable[[], None]]:
    """Name to call. `apart` stores the verify plan; `bound` has validated every argument once, here."""
    return {"apart": work.step_apart, "launchers": work.step, "bound": work.bound_step()}


def plan_and_verify_two(work: Work, second: Any) -> Callable[[], None]:
    """Plans and verifies for the work's endpoint and for another with the context `second`, in one launch for both."""
    table = kvcanary.VerifyOrWriteContextTable.build([work.context, second])
    suffix = "_torch_reference" if work.reference else ""
    launch = getattr(kvcanary, f"launch_canary_plan_and_verify_endpoints_kernels{suffix}")
    given = {name: value for name, value in work.arguments("plan_and_verify").items() if name != "context"}
    return partial(launch, contexts=table, **given)
