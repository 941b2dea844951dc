# Written by kvcanary-gen from the spec; edit that instead.
"""What a planted fault has to bring about: reports by stage, half, pool and slot."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from .engine import Engine
from .records import ViolationRecord
from .requests import Batch


class Expected(NamedTuple):
    """A violation that must be reported: by which endpoint, of which slot, and with which of these reasons."""

    stage: str
    half: str
    group: str
    slot: int
    reason: str

    def explains(self, record: ViolationRecord) -> bool:
        """Whether a record is the one."""
        here = (record.stage, record.half, record.group, record.slot) == self[:4]
        return here and self.reason in record.reasons

    def __str__(self) -> str:
        return f"{self.stage}_{self.half}_{self.group}:{self.slot}:{self.reason}"


@dataclass
class Planted:
    """What a kind of fault has done.

    Attributes:
        detail (str): what was done, for the log.
        expected (list of Expected): everything that must be reported.
        touched (set of (group, slot)): slots of which more may be reported.
        pages (set of int): full pages that have to be computed anew.
        within (int): steps after this one in which it must be reported.
        by_sweep (bool): whether it must be reported by the next sweep instead.
        lasts (callable): whether the fault is still there, so that it can be reported at all.
    """

    detail: str
    expected: list[Expected]
    touched: set[tuple[str, int]]
    pages: set[int]
    within: int = 0
    by_sweep: bool = False
    lasts: Callable[[], bool] = lambda: True


class Kind(NamedTuple):
    """A kind of fault: when it is planted, `before` or `after` the model, and by whom; None where nothing suits."""

    when: str
    plant: Callable[[Engine, Batch, random.Random], Planted | None]
