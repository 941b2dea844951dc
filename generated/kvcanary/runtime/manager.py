# Written by kvcanary-gen from the spec; edit that instead.
"""The manager: everything that an engine attaches.

    manager = CanaryManager(groups=[CanaryBufferGroup.allocate(pool_kind="FULL", num_slots=n, device="cuda")])
    manager.mark_warm()
    for batch in engine:
        with manager.forward(batch):
            model(batch)
        manager.step_end()

`before_forward` and `after_forward` only launch: they can be captured in a CUDA graph, allocate nothing and read
nothing back. `step_end` hands out what the device found up to the step before, without waiting for it.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import ParamSpec, TypeVar

import torch

from .. import errors
from ..core import checks
from .batch import CanaryBatch, of_pool
from .collector import Collector, Found
from .config import CanaryConfig
from .exclusions import SlotExclusions
from .forward_state import Begun, ForwardState, first_pool
from .groups import CanaryBufferGroup
from .guard import Guard
from .health import StageWatch
from .records import ViolationRecord
from .reporting import logger

__all__ = ["CanaryManager"]

P = ParamSpec("P")
T = TypeVar("T")


class CanaryManager:
    """Endpoints, plans and reports of all pools of an engine.

    All methods may be called from any thread; calls wait for each other. Work goes to the engine's stream: the current
    one, or `stream` where it was given.

    Args:
        groups: The engine's pools, at least one, on one device, with different names.
        config: Settings; from the environment if None.
        stream: The stream that the engine works on, where it is not the current one.

    Raises:
        CanaryValueError: KVC-060 for pools that do not go together.
    """

    def __init__(
        self,
        groups: Sequence[CanaryBufferGroup],
        config: CanaryConfig | None = None,
        *,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        self.config = CanaryConfig.from_environment() if config is None else config
        checks.kind("config", self.config, CanaryConfig)
        self.groups = tuple(groups)
        _check_groups(self.groups)
        self.stream = stream
        self.device = self.groups[0].device
        self.step = 0
        self._lock = threading.RLock()
        self._begun: list[Begun | None] = [None] * len(self.config.forwards)
        self._last: list[Begun | None] = [None] * len(self.config.forwards)
        self._first = first_pool(self.groups)
        self._guard = Guard(self.close)
        if self.active:
            self._allocate()

    @property
    def active(self) -> bool:
        """Whether there is a canary at all; in mode none every call returns at once."""
        return self.config.mode != "none"

    def _allocate(self) -> None:
        config, groups, pools = self.config, self.groups, len(self.groups)
        self._chain = torch.zeros([1], dtype=torch.int32, device=self.device)
        most = max(config.max_tokens, config.max_requests)
        self._exclusions = [SlotExclusions(group, most) if config.exclusions else None for group in groups]
        # A channel for each pool in each forward, and behind them one for each pool in sweeps.
        self._collector = Collector(groups, config, self.device)
        self._forwards = [
            ForwardState(groups, config, self._collector.mailbox, place * pools, self._chain, self._exclusions)
            for place in range(len(config.forwards))
        ]
        self._collector.watches = [
            StageWatch(pool.group.name, name, pool.endpoints)
            for name, forward in zip(self._collector.names, [*self._forwards, self._forwards[0]], strict=True)
            for pool in forward.pools
        ]

    # --- around a forward ---------------------------------------------------------------------------------------------

    def before_forward(self, batch: CanaryBatch) -> None:
        """Verifies what the batch's requests have cached and fingerprints its new tokens, before the model runs.

        Launches alone. A forward that began and did not end counts as given up.

        Raises:
            CanaryValueError: KVC-053 for a batch that is larger than configured, KVC-060 for one that does not fit the
                pools; nothing has been launched then.
        """
        with self._entered("before_forward") as active:
            if not active:
                return
            checks.kind("batch", batch, CanaryBatch)
            place = self._place(batch.forward)
            self._begun[place] = None
            self._excuse_of(batch)
            self._begun[place] = self._last[place] = self._forwards[place].before(batch)
            self._asked(place, "before")

    def after_forward(self, batch: CanaryBatch | None = None) -> None:
        """The same after the model has run, with the plans and the inputs of `before_forward`.

        Args:
            batch: names the forward that ends; the first one if None.

        Raises:
            CanaryRuntimeError: KVC-061 where that forward has not begun.
        """
        with self._entered("after_forward") as active:
            if not active:
                return
            place = self._place(batch.forward if batch is not None else "")
            begun, forward = self._begun[place], self.config.forwards[place]
            if begun is None:
                raise errors.CanaryRuntimeError(
                    "KVC-061", f"kv-canary: after_forward of {forward} without a before_forward"
                )
            self._begun[place] = None
            self._forwards[place].after(begun)
            self._asked(place, "after")

    def replayed(self, forward: str = "", request_ids: Sequence[str] | None = None) -> None:
        """A CUDA graph with this forward's launches was replayed, so its stages should have run."""
        with self._entered("replayed") as active:
            if active:
                place = self._place(forward)
                last = self._last[place]
                if last is not None:
                    self._last[place] = last._replace(request_ids=request_ids)
                for when in ("before", "after"):
                    self._asked(place, when)

    @contextlib.contextmanager
    def forward(self, batch: CanaryBatch) -> Iterator[None]:
        """`before_forward` and `after_forward` around a block; an exception in it gives the forward up."""
        self.before_forward(batch)
        try:
            yield
        except BaseException:
            self.give_up(batch.forward)
            raise
        self.after_forward(batch)

    def give_up(self, forward: str = "") -> None:
        """Forgets a forward that began and will not end."""
        with self._entered("give_up") as active:
            if active:
                self._begun[self._place(forward)] = None

    def wrap(
        self, model_forward: Callable[P, T], make_batch: Callable[P, CanaryBatch | None], *, ends_step: bool = True
    ) -> Callable[P, T]:
        """The engine's forward with the canary around it, for engines with one place where the model is called.

        Args:
            model_forward: what runs the model.
            make_batch: makes the batch from the same arguments; None leaves the canary out of that call.
            ends_step: whether each call is a step; otherwise the engine calls `step_end`.
        """

        @functools.wraps(model_forward)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
            batch = make_batch(*args, **kwargs)
            if batch is None:
                return model_forward(*args, **kwargs)
            with self.forward(batch):
                answer = model_forward(*args, **kwargs)
            if ends_step:
                self.step_end()
            return answer

        return wrapped

    # --- between steps ------------------------------------------------------------------------------------------------

    def step_end(self) -> list[ViolationRecord]:
        """Ends a step; hands out what has arrived since the last one.

        On a GPU that is what was found up to the step before, if it has arrived: nothing waits. On a CPU it is all.

        Raises:
            CanaryViolationError: KVC-059 in mode raise.
            CanaryRuntimeError: KVC-058 where a stage stood still.
        """
        with self._entered("step_end") as active:
            if not active or self._capturing():
                return []
            self.step += 1
            for exclusions in self._exclusions:
                if exclusions is not None:
                    exclusions.step_end()
            found = [self._receive(wait=False)]
            self._collector.send(self.step, self._last)
            if self.device.type != "cuda":
                found.append(self._receive(wait=True))
            return self._handed_out(found)

    def flush(self) -> list[ViolationRecord]:
        """Waits for the device and hands out everything; raises as `step_end` does."""
        with self._entered("flush") as active:
            return self._handed_out(self._flushed()) if active else []

    def mark_warm(self) -> None:
        """The engine has warmed up: from now on positions must follow each other in what is written."""
        with self._entered("mark_warm") as active:
            if active and self.config.assert_chain:
                self._chain.fill_(1)

    def close(self) -> None:
        """Waits for the device, reports what is left, and logs a summary; closing again does nothing.

        Raises:
            CanaryViolationError: KVC-059 in mode raise, where violations are left.
        """
        if not self._guard.close():
            return
        with self._lock:
            if not self.active:
                return
            with self._on_stream():
                found = self._flushed()
            try:
                self._handed_out(found)
            finally:
                logger.info("%s", self._collector.reporter.summary(self.step))

    def __del__(self) -> None:
        # Half-made ones have no guard yet.
        guard = getattr(self, "_guard", None)
        if guard is not None and guard.forgotten:
            guard.close()
            warnings.warn("CanaryManager was not closed; what it had not handed out is lost", ResourceWarning, 2)

    def __enter__(self) -> CanaryManager:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
            return
        # The engine's own exception matters more; what is left is logged all the same.
        with contextlib.suppress(errors.CanaryError):
            self.close()

    # --- what it takes and what it knows ------------------------------------------------------------------------------

    def statistics(self) -> dict[str, int]:
        """Totals as of the last findings that arrived: steps, violations, plans, launches and entries by tag."""
        return self._collector.statistics() if self.active else {}

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Everything that the manager allocated on the device; the pools' canary buffers are the engine's."""
        if not self.active:
            return ()
        found = [self._chain, *self._collector.mailbox.tensors()]
        for exclusions in self._exclusions:
            found += exclusions.tensors() if exclusions is not None else ()
        for forward in self._forwards:
            found += forward.tensors()
        return tuple(found)

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
        return torch.cuda.stream(self.stream) if self.stream is not None else contextlib.nullcontext()

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
        if self.config.mode == "raise":
            error = self._collector.reporter.error(records, lost, self.step)
            if error is not None:
                raise error
        for part in found:
            if part.stood_still is not None:
                raise part.stood_still
        return records

    def _excuse_of(self, batch: CanaryBatch) -> None:
        for group in self.groups:
            slots = of_pool("batch.excused", batch.excused, group.name, self._first)
            if slots is not None:
                self._excluded(group.name).excuse(slots)

    def _asked(self, place: int, when: str) -> None:
        """Launches that are captured run at replay, not now."""
        if not self._capturing():
            self._collector.asked(place, when)

    def _excluded(self, pool: str) -> SlotExclusions:
        found = self._exclusions[self._pool(pool)]
        if found is None:
            name, want, have = "exclusions", "be configured for slots to be excused, dropped or moved", "False"
            raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
        return found

    def _pool(self, name: str) -> int:
        names = [group.name for group in self.groups]
        if name not in names:
            name, want, have = "pool", f"be one of {', '.join(names)}", repr(name)
            raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
        return names.index(name)


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
