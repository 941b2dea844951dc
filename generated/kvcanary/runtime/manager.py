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
import warnings
from collections.abc import Mapping
from dataclasses import fields

import torch

from .. import errors
from ..core import checks
from .forward_calls import ForwardCalls
from .memory import storage_bytes
from .records import ViolationRecord
from .reporting import logger
from .slot_calls import SlotCalls
from .sweep import CacheWalk, CacheWalker, LoadedWalk, check_sweeps

__all__ = ["CanaryManager"]


class CanaryManager(ForwardCalls, SlotCalls):
    """Endpoints, plans and reports of all pools of an engine.

    All methods may be called from any thread; calls wait for each other. Work goes to the engine's stream: the current
    one, or `stream` where it was given.

    Args:
        groups: The engine's pools, at least one, on one device, with different names.
        config: Settings; from the environment if None.
        stream: The stream that the engine works on, where it is not the current one.
        metrics: Counters for Prometheus that the manager keeps up to date.
        clock: Seconds since 1970, for the times of records.

    Raises:
        CanaryValueError: KVC-060 for pools that do not go together.
    """

    # What `step_end` asks for the cache's entries every `sweep_interval` steps.
    walker: CacheWalker | None = None

    def step_end(self, step: int | None = None) -> list[ViolationRecord]:
        """Ends a step; hands out what has arrived since the last one.

        On a GPU that is what was found up to the step before, if it has arrived: nothing waits. On a CPU it is all.

        Args:
            step: The engine's number of the step that ends, larger than those before; counted here if None.

        Raises:
            CanaryViolationError: KVC-084 in mode raise.
            CanaryRuntimeError: KVC-058 where a stage stood still.
        """
        with self._entered("step_end") as active:
            if not active or self._capturing():
                return []
            if step is not None:
                checks.kind("step", step, int)
                checks.int64("step", step)
            before, self.step = self.step, self.step + 1 if step is None else step
            for exclusions in self._exclusions:
                if exclusions is not None:
                    exclusions.step_end()
            interval = self.config.sweep_interval
            if self.walker is not None and interval and self.step // interval > before // interval:
                self._sweep_all(self.walker)
            found = [self._receive(wait=False)]
            self._collector.send(self.step, self._last)
            if self.device.type != "cuda":
                found.append(self._receive(wait=True))
            return self._handed_out(found)

    def sweep(self, walks: Mapping[str, CacheWalk]) -> None:
        """Verifies everything that these walks name, by pool; what is found comes with the findings of the step.

        Raises:
            CanaryValueError: KVC-060 without `sweep_capacity`, or for a pool that is not there.
        """
        with self._entered("sweep") as active:
            if not active:
                return
            names = [group.name for group in self.groups]
            checks.kind("walks", walks, Mapping)
            check_sweeps(self.config, list(walks), names)
            # All of them are read before any is launched.
            loaded = {pool: LoadedWalk(walk, self.device) for pool, walk in walks.items()}
            for pool, walk in loaded.items():
                place = names.index(pool)
                channel = self._collector.channel(len(self.config.forwards), place)
                for _ in range(self._sweepers[place].sweep(walk)):
                    self._collector.watches[channel].asked("periodic")

    def _sweep_all(self, walker: CacheWalker) -> None:
        if not callable(getattr(walker, "walk", None)):
            name, want, have = "walker", "have a method walk, as CacheWalker says", f"{walker!r:.80}"
            raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
        walks = {group.name: walker.walk(group.name) for group in self.groups}
        self.sweep({name: walk for name, walk in walks.items() if walk is not None})

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
            CanaryViolationError: KVC-084 in mode raise, where violations are left.
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
                self._collector.reporter.close(self.step)

    def __del__(self) -> None:
        # Half-made ones have no guard yet.
        guard = getattr(self, "_guard", None)
        if guard is not None and guard.forgotten:
            guard.close()
            text = "CanaryManager was not closed; what it had not handed out is lost"
            # Python shows no ResourceWarning unless asked, and violations must not vanish unseen.
            logger.warning("kv-canary: %s", text)
            warnings.warn(text, ResourceWarning, 2)

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
        return tuple(tensor for part in self._parts().values() for tensor in part)

    def memory_report(self) -> dict[str, int]:
        """Bytes by what they are for, as requested from the allocator, which rounds up.

        `canary_buffers` are those of the pools; `total` is everything on the device; `host` is pinned memory.
        """
        report = {"canary_buffers": storage_bytes(tensor for group in self.groups for tensor in group.tensors())}
        report |= {name: storage_bytes(part) for name, part in self._parts().items()}
        report["total"] = sum(report.values())
        report["host"] = storage_bytes(self._collector.mailbox.host_tensors()) if self.active else 0
        return report

    def _parts(self) -> dict[str, tuple[torch.Tensor, ...]]:
        if not self.active:
            return {}
        found = {"mailbox": (*self._collector.mailbox.tensors(), self._chain), "exclusions": (), "sweeps": ()}
        for exclusions in self._exclusions:
            found["exclusions"] += exclusions.tensors() if exclusions is not None else ()
        for name, forward in zip(self.config.forwards, self._forwards, strict=True):
            # What lies in the mailbox is counted there.
            found[f"forward {name}"] = forward.tensors()
        if self._sweepers:
            found["sweeps"] = tuple(getattr(self._sweep_plan, field.name) for field in fields(self._sweep_plan))
        return found
