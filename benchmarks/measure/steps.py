"""The ways in which a whole step can be launched, as far as the package has them."""

from __future__ import annotations

from collections.abc import Callable

from .cases import Work


def steps(work: Work) -> dict[str, Callable[[], None]]:
    """Name to call. `launchers` validates every argument in every call."""
    return {"launchers": work.step}
