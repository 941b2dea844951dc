# Written by kvcanary-gen from the spec; edit that instead.
"""Faults for self-tests: planted in a running engine, each with what the canary must report of it.

A fault is planted with a probability in every forward after a warm-up, one at a time. It stays until everything that
must be reported has been, or the time for that is over; then the requests that it may have touched start anew.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from .. import errors
from .engine import Engine
from .fault_kinds import FAULTS
from .fault_reports import Expected, Planted
from .records import ViolationRecord
from .requests import Batch

logger = logging.getLogger("kvcanary")


@dataclass
class Injection:
    """One fault that was planted, and what became of it.

    Attributes:
        fault (str): kind of the fault.
        step (int): the engine's step, counted as reports do.
        forward (str): forward of that step.
        found (dict of Expected to int): the step in which each was reported.
        reasons (set of str): all reasons that were reported.
        state (str): `open`, `detected`, `missed`, or `withdrawn` where the engine undid it before anybody looked.
    """

    fault: str
    step: int
    forward: str
    planted: Planted
    found: dict[Expected, int] = field(default_factory=dict)
    reasons: set[str] = field(default_factory=set)
    state: str = "open"

    @property
    def latency(self) -> int:
        """Steps until the first report; 0 is the step of the fault itself."""
        return min(self.found.values()) - self.step

    @property
    def missing(self) -> list[Expected]:
        """What was not reported, or not yet."""
        return [expected for expected in self.planted.expected if expected not in self.found]

    def __str__(self) -> str:
        expects = ",".join(map(str, self.planted.expected))
        where = f"fault={self.fault} step={self.step} forward={self.forward} within={self.planted.within}"
        return f'kv-canary injected {where} detail="{self.planted.detail}" expects={expects}'


@dataclass(frozen=True)
class FaultPlan:
    """How often a fault is planted.

    Attributes:
        fault (str): one of `FAULTS`.
        probability (float): of planting it in a forward in which it can be planted.
        warm_up (int): steps without faults.
        seed (int): chooses forwards, requests, slots and bits.
    """

    fault: str
    probability: float = 1.0
    warm_up: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        rules = (
            ("fault", self.fault in FAULTS, f"be one of {', '.join(FAULTS)}"),
            ("probability", 0 <= self.probability <= 1, "lie between 0 and 1"),
            ("warm_up", self.warm_up >= 0, "be at least 0"),
        )
        for name, holds, rule in rules:
            have = getattr(self, name)
            if not holds:
                raise errors.CanaryValueError("KVC-093", f"kv-canary: FaultPlan {name} must {rule}, got {have}")


class FaultInjector:
    """Plants the faults of one plan, and compares what is reported with what must be.

    Attributes:
        injections (list of Injection): in order; the last one may be open.
        unexplained (list of ViolationRecord): reports that no fault accounts for.
    """

    def __init__(self, engine: Engine, plan: FaultPlan, *, sweep_interval: int = 0) -> None:
        self.engine, self.plan, self.sweep_interval = engine, plan, sweep_interval
        self.injections: list[Injection] = []
        self.unexplained: list[ViolationRecord] = []
        self._kind = FAULTS[plan.fault]
        self._random = random.Random(f"{plan.fault} {plan.seed}")

    @property
    def open(self) -> Injection | None:
        """The fault that is planted now."""
        last = self.injections[-1] if self.injections else None
        return last if last is not None and last.state == "open" else None

    # --- around a forward ---------------------------------------------------------------------------------------------

    def before(self, batch: Batch) -> None:
        """To be called before each forward, when its copies are made."""
        self._follow(batch)
        self._plant("before", batch)

    def after(self, batch: Batch) -> None:
        """To be called when the model has run, before the canary looks again."""
        self._plant("after", batch)

    def _plant(self, when: str, batch: Batch) -> None:
        if self._kind.when != when or self.open is not None or self.engine.step < self.plan.warm_up:
            return
        if self._random.random() >= self.plan.probability:
            return
        planted = self._kind.plant(self.engine, batch, self._random)
        if planted is not None:
            planted.within = self.sweep_interval if planted.by_sweep else planted.within
            # Reports count steps from 1.
            self.injections.append(Injection(self.plan.fault, self.engine.step + 1, batch.kind, planted))
            logger.info("%s", self.injections[-1])

    def _follow(self, batch: Batch) -> None:
        """What is copied from a broken slot is broken too."""
        injection, copies, size = self.open, batch.copies, self.engine.config.page_size
        if injection is None:
            return
        planted = injection.planted
        for group, sources, targets in (
            ("FULL", copies.sources, copies.targets),
            ("SWA", copies.swa_sources, copies.swa_targets),
        ):
            for index, (source, target) in enumerate(zip(sources, targets, strict=True)):
                if (group, source) in planted.touched:
                    planted.touched.add((group, target))
                    planted.pages.add(copies.targets[index] // size)

    # --- after a step -------------------------------------------------------------------------------------------------

    def step_end(self, records: Sequence[ViolationRecord]) -> None:
        """Takes in what was reported of a step, and ends a fault of which all was, or nothing more can be."""
        injection = self.open
        for record in records:
            if injection is None or not self._account(injection, record):
                self.unexplained.append(record)
        if injection is None:
            return
        if not injection.missing:
            injection.state = "detected"
        elif not injection.planted.lasts():
            injection.state = "withdrawn"
        elif self.engine.step >= injection.step + injection.planted.within:
            injection.state = "missed"
        if injection.state != "open":
            self.engine.scheduler.forget(injection.planted.pages)
            logger.info("kv-canary settled fault=%s step=%d state=%s", injection.fault, injection.step, injection.state)

    @staticmethod
    def _account(injection: Injection, record: ViolationRecord) -> bool:
        for expected in injection.planted.expected:
            if expected.explains(record):
                injection.found.setdefault(expected, record.step)
        touched = (record.group, record.slot) in injection.planted.touched
        if touched:
            injection.reasons.update(record.reasons)
        return touched

    def finish(self) -> None:
        """Gives up a fault that is still open."""
        if self.open is not None:
            self.engine.scheduler.forget(self.open.planted.pages)
            self.injections[-1].state = "withdrawn"
