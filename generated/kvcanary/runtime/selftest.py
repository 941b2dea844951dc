# Written by kvcanary-gen from the spec; edit that instead.
"""The canary's own test: a miniature engine runs clean, and then with every kind of fault.

A clean run must report nothing. Of every fault everything must be reported that the stages of this package can see, and
nothing but what it explains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .attached import AttachedEngine
from .engine import Engine
from .fault_kinds import FAULTS
from .faults import FaultInjector, FaultPlan, Injection
from .records import ViolationRecord
from .requests import EngineConfig
from .traffic import Traffic

SWEEP_INTERVAL = 5
# Steps after which a fault that found no occasion, or was undone each time, counts as not tested.
PATIENCE = 60

Progress = Callable[[str, int, int], None]


@dataclass
class FaultResult:
    """What became of the faults of one kind."""

    fault: str
    injections: list[Injection] = field(default_factory=list)
    false_alarms: list[ViolationRecord] = field(default_factory=list)

    @property
    def injected(self) -> int:
        """Faults that lasted until somebody looked."""
        return sum(injection.state in ("detected", "missed") for injection in self.injections)

    @property
    def detected(self) -> int:
        """Faults of which everything was reported that must be."""
        return sum(injection.state == "detected" for injection in self.injections)

    @property
    def latencies(self) -> list[int]:
        """Steps to the first report of each that was detected, ascending."""
        return sorted(injection.latency for injection in self.injections if injection.state == "detected")

    @property
    def reasons(self) -> list[str]:
        """All reasons that were reported for faults of this kind."""
        return sorted({reason for injection in self.injections for reason in injection.reasons})

    @property
    def passed(self) -> bool:
        return 0 < self.injected == self.detected and not self.false_alarms


@dataclass
class SelftestResult:
    """What a self-test found.

    Attributes:
        clean_steps (int): steps without faults.
        clean_alarms (list of ViolationRecord): reports in them; none is right.
        counts (dict of str to int): what the engine did in them, as in `AttachedEngine`.
        faults (list of FaultResult): in the order of `FAULTS`.
    """

    clean_steps: int = 0
    clean_alarms: list[ViolationRecord] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    faults: list[FaultResult] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether nothing was missed and nothing reported in vain."""
        return not self.clean_alarms and all(result.passed for result in self.faults)


class Selftest:
    """Runs the engine and its canary through everything.

    Args:
        device (str): where the engine runs.
        steps (int): steps of the clean run.
        seed (int): requests, slots and faults.
        per_fault (int): faults of each kind.
        progress (callable, optional): is told what is done, how far, and of how much.
    """

    def __init__(
        self,
        *,
        device: str = "cpu",
        steps: int = 200,
        seed: int = 0,
        per_fault: int = 3,
        progress: Progress | None = None,
    ) -> None:
        self.steps, self.seed, self.per_fault = steps, seed, per_fault
        self._progress = progress
        # Pools in which requests get in each other's way, and a preemption now and then in any case.
        config = EngineConfig(
            seed=seed,
            device=device,
            full_pages=32,
            swa_pages=18,
            bytes_per_token=16,
            rows=5,
            max_context=48,
            chunk=8,
            decode_sizes=(1, 2, 4),
            preempt_every=17,
        )
        self.engine = Engine(config)
        self.attached = AttachedEngine(self.engine, sweep_interval=SWEEP_INTERVAL)
        self._traffic = Traffic(self.engine, seed)

    def run(self, faults: Sequence[str] = tuple(FAULTS)) -> SelftestResult:
        """The clean run, then faults of these kinds."""
        result = SelftestResult()
        try:
            self._clean(result)
            result.faults = [self._faults(fault) for fault in faults]
        finally:
            self.attached.manager.close()
        return result

    def _clean(self, result: SelftestResult) -> None:
        for step in range(self.steps):
            self._traffic.feed()
            result.clean_alarms += self.attached.step()
            if step == 0:
                self.attached.manager.mark_warm()
            self._tell("clean", step + 1, self.steps)
        result.clean_alarms += self.attached.manager.flush()
        result.clean_steps, result.counts = self.steps, dict(self.attached.counts)

    def _faults(self, fault: str) -> FaultResult:
        # Not in every forward, so that there are some without in between.
        plan = FaultPlan(fault, probability=0.7, warm_up=self.engine.step + 1, seed=self.seed)
        injector, result = FaultInjector(self.engine, plan, sweep_interval=SWEEP_INTERVAL), FaultResult(fault)
        result.injections, result.false_alarms = injector.injections, injector.unexplained
        last = self.engine.step + PATIENCE
        while self.engine.step < last and result.injected < self.per_fault:
            self._traffic.feed()
            records = self.attached.step(injector.before, injector.after)
            # What is found has to be told before the next fault, so this waits for the device.
            injector.step_end([*records, *self.attached.manager.flush()])
            self._tell(fault, result.injected, self.per_fault)
        injector.finish()
        return result

    def _tell(self, what: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(what, done, total)
