# Written by kvcanary-gen from the spec; edit that instead.
"""What all calls of the manager share: its pools, its memory, its lock and its stream."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from .. import errors, layout
from ..core import checks
from ..structs import VerifyPlan
from .batch import CanaryBatch
from .collector import Collector, Found
from .config import CanaryConfig
from .exclusions import SlotExclusions
from .failure import CanaryViolationError
from .forward_state import Begun, ForwardState, first_pool
from .groups import CanaryBufferGroup
from .guard import Guard
from .health import StageWatch
from .memory import allocating
from .metrics import CanaryMetrics
from .records import ViolationRecord
from .reporting import logger
from .sweep import Sweeper


class ManagerCore:
    """Allocates everything once; the calls of an engine are in the classes that build on it."""

    def __init__(
        self,
        groups: Sequence[CanaryBufferGroup],
        config: CanaryConfig | None = None,
        *,
        stream: torch.cuda.Stream | None = None,
        metrics: CanaryMetrics | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.config = CanaryConfig.from_environment() if config is None else config
        checks.kind("config", self.config, CanaryConfig)
        if self.config.max_requests > layout.MAX_PLAN_BATCH:
            name, have = "max_requests", f"{self.config.max_requests}"
            want = f"an int of at most {layout.MAX_PLAN_BATCH}, as plans are"
            raise errors.CanaryValueError("KVC-054", f"kv-canary: {name} must be {want}, got {have}")
        if isinstance(groups, CanaryBufferGroup) or not isinstance(groups, Iterable):
            name, want, have = "groups", "be a list of CanaryBufferGroup", f"a {type(groups).__name__}"
            raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
        self.groups = tuple(groups)
        _check_groups(self.groups)
        _check_hooks(stream, metrics, clock)
        self.stream = stream
        self.metrics = metrics
        self._clock = clock
        self.device = self.groups[0].device
        self.step = 0
        # The last step for which a line of statistics was written.
        self._told = 0
        self._lock = threading.RLock()
        self._begun: list[Begun | None] = [None] * len(self.config.forwards)
        self._last: list[Begun | None] = [None] * len(self.config.forwards)
        # Forwards in CUDA graphs, for as long as the engine keeps the batches that it captured.
        self._captured: weakref.WeakKeyDictionary[CanaryBatch, Begun | None] = weakref.WeakKeyDictionary()
        self._first = first_pool(self.groups)
        if self.active:
            with allocating(f"what {self._sizes()} take", self.device):
                self._allocate()
        # A manager that could not be made has nothing to close.
        self._guard = Guard(self.close)

    @property
    def active(self) -> bool:
        """Whether there is a canary at all; in mode none every call returns at once."""
        return self.config.mode != "none"

    @property
    def closed(self) -> bool:
        """Whether `close` was called; a closed manager takes no calls."""
        return self._guard.closed

    def _sizes(self) -> str:
        names = ("max_requests", "max_tokens", "max_length", "verify_capacity", "sweep_capacity", "ring_capacity")
        return ", ".join(f"{name}={getattr(self.config, name)}" for name in names)

    def _allocate(self) -> None:
        config, groups, pools = self.config, self.groups, len(self.groups)
        self._chain = torch.zeros([1], dtype=torch.int32, device=self.device)
        most = max(config.max_tokens, config.max_requests)
        self._exclusions = [SlotExclusions(group, most) if config.exclusions else None for group in groups]
        # A channel for each pool in each forward, and behind them one for each pool in sweeps.
        self._collector = Collector(groups, config, self.device, self._clock)
        self._forwards = [
            ForwardState(groups, config, self._collector.mailbox, place * pools, self._chain, self._exclusions)
            for place in range(len(config.forwards))
        ]
        self._sweepers = self._made_sweepers()
        self._collector.watches = [
            StageWatch(pool.group.name, name, pool.endpoints)
            for name, forward in zip(self._collector.names, [*self._forwards, self._forwards[0]], strict=True)
            for pool in forward.pools
        ]

    def _made_sweepers(self) -> list[Sweeper]:
        config = self.config
        if config.sweep_capacity < 1:
            return []
        plan = VerifyPlan.allocate(verify_capacity=config.sweep_capacity, device=self.device)
        self._sweep_plan = plan
        # Sweeps translate nothing that is written, so they need no room of their own.
        scratch = self._forwards[0].scratch
        last = len(config.forwards)
        return [
            Sweeper(
                group,
                config,
                self._collector.mailbox.state(self._collector.channel(last, place), self._chain, scratch),
                plan,
                self._exclusions[place],
            )
            for place, group in enumerate(self.groups)
        ]

    def close(self) -> None:
        """Closes what the engine's calls use."""
        raise NotImplementedError

    # --- inside -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _entered(self, what: str) -> Iterator[bool]:
        """Checks, the lock and the engine's stream; yields whether there is anything to do."""
        self._guard.check(what)
        if not self.active:
            yield False
            return
        with self._lock, self._on_stream():
            yield True

    def _on_stream(self) -> contextlib.AbstractContextManager[object]:
        if self.stream is not None:
            return torch.cuda.stream(self.stream)
        # Events and streams are those of the current device, which need not be the pools'.
        return torch.cuda.device(self.device) if self.device.type == "cuda" else contextlib.nullcontext()

    def _capturing(self) -> bool:
        return self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()

    def _place(self, forward: str) -> int:
        return self.config.forward_index(forward) if forward else 0

    def _receive(self, *, wait: bool) -> Found:
        return self._collector.receive(self._forwards, wait=wait)

    def _flushed(self) -> list[Found]:
        """Everything that the device has found until now."""
        found = [self._receive(wait=True)]
        self._collector.send(self.step, self._last)
        return [*found, self._receive(wait=True)]

    def _handed_out(self, found: Sequence[Found]) -> list[ViolationRecord]:
        """Reports what was found; raises what there is to raise, violations before stages that stood still."""
        records = [record for part in found for record in part.records]
        lost = sum(part.lost for part in found)
        self._collector.reporter.report(records, lost, self.step)
        if self.metrics is not None:
            self.metrics.update(self._collector.statistics(), records)
        interval = self.config.statistics_interval
        if interval and self.step // interval > self._told // interval:
            self._told = self.step
            pairs = (f"{name}={value}" for name, value in self._collector.statistics().items())
            logger.info("kv-canary statistics %s", " ".join(pairs))
        # Where rows were lost, as many as a ring holds were not.
        stood_still = [part.stood_still for part in found if part.stood_still is not None]
        if self.config.mode == "raise" and records:
            for error in stood_still:
                logger.error("%s", error)
            raise CanaryViolationError(records)
        for error in stood_still:
            raise error
        return records

    def _asked(self, place: int, when: str) -> None:
        """Launches that are captured run at replay, not now."""
        if not self._capturing():
            self._collector.asked(place, when)

    def _excluded(self, place: int) -> SlotExclusions:
        found = self._exclusions[place]
        if found is None:
            name, want, have = "exclusions", "be configured for slots to be excused, dropped or moved", "False"
            raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
        return found

    def _pool(self, name: str) -> int:
        """Place of a pool by its name; of the first one without a mapping if empty."""
        name = name or self._first
        names = [group.name for group in self.groups]
        if name not in names:
            name, want, have = "pool", f"be one of {', '.join(names)}", repr(name)
            raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
        return names.index(name)


def _check_hooks(stream: object, metrics: object, clock: object) -> None:
    """What the manager calls while it has violations in hand can be called."""
    hooks = (
        ("stream", "be a torch.cuda.Stream or None", stream, isinstance(stream, torch.cuda.Stream)),
        ("metrics", "have a method update, as CanaryMetrics has", metrics, callable(getattr(metrics, "update", None))),
        ("clock", "be callable and give seconds since 1970", clock, callable(clock)),
    )
    for name, want, given, good in hooks:
        if not good and (given is not None or name == "clock"):
            have = f"{given!r:.80}"
            raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")


def _check_groups(groups: Sequence[CanaryBufferGroup]) -> None:
    """At least one pool, all on one device, no two with one name."""
    for place, group in enumerate(groups):
        checks.kind(f"groups[{place}]", group, CanaryBufferGroup)
    names = [group.name for group in groups]
    name, want, have = "groups", "hold at least one pool, each with a name of its own", f"{names}"
    if not names or len(set(names)) < len(names):
        raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
    buffers = [(f"groups[{place}]", group.first_buffer, torch.uint8, 2) for place, group in enumerate(groups)]
    checks.devices(buffers)
