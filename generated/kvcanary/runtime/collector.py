# Written by kvcanary-gen from the spec; edit that instead.
"""From what the device counted and found to records, warnings and statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from .. import errors, layout
from ..violations import Violation
from .config import CanaryConfig
from .forward_state import Begun, ForwardState
from .groups import CanaryBufferGroup
from .health import StageWatch
from .mailbox import Mailbox, Reading
from .records import ViolationRecord
from .reporting import Reporter

# What reports call the launches of a sweep, which belong to no forward.
SWEEP = "sweep"


# Clocks count seconds; what lies beyond is no time.
_LATEST = 1e18


class Found(NamedTuple):
    """What arrived: rows that can be told, rows that were dropped, and a stage that stood still."""

    records: list[ViolationRecord]
    lost: int
    stood_still: errors.CanaryError | None


class Collector:
    """Sends for the device's findings, and makes sense of them when they arrive."""

    def __init__(
        self,
        groups: Sequence[CanaryBufferGroup],
        config: CanaryConfig,
        device: torch.device,
        clock: Callable[[], float],
    ) -> None:
        self._groups, self._config, self._clock = groups, config, clock
        self.names = (*config.forwards, SWEEP)
        self.mailbox = Mailbox(len(self.names) * len(groups), config.ring_capacity, device)
        self.reporter = Reporter(config)
        self.watches: list[StageWatch] = []
        self._step = 0
        self._begun: Sequence[Begun | None] = ()
        self._readings: list[Reading] = []
        self.skipped_plans = 0

    def channel(self, name: int, pool: int) -> int:
        """Place of a pool's channel in the mailbox; `name` is the place among `names`."""
        return name * len(self._groups) + pool

    def asked(self, name: int, when: str) -> None:
        """The stages that run `when` were launched for all pools."""
        for pool in range(len(self._groups)):
            self.watches[self.channel(name, pool)].asked(when)

    def send(self, step: int, begun: Sequence[Begun | None]) -> None:
        """Sends for the findings unless the last ones are still on their way; then they wait in their rings."""
        if self.mailbox.sent:
            return
        self._step, self._begun = step, tuple(begun)
        for watch in self.watches:
            watch.sent()
        self.mailbox.send()

    def receive(self, forwards: Sequence[ForwardState], *, wait: bool) -> Found:
        """What has arrived, with its requests by name as far as the plans still tell."""
        # What can fail comes first, while the findings still wait to be read.
        now = self._now() if self.mailbox.sent else 0.0
        readings = self.mailbox.receive(wait=wait)
        if readings is None:
            return Found([], 0, None)
        records: list[ViolationRecord] = []
        lost, stood_still = 0, None
        for channel, reading in enumerate(readings):
            name, pool = divmod(channel, len(self._groups))
            error = self.watches[channel].received(self._step, reading.kernel_runs)
            stood_still = stood_still or error
            lost += reading.lost
            requests = self._requests(reading.violations, forwards, name, pool)
            for row, (request_row, request_id) in zip(reading.violations, requests, strict=True):
                records.append(
                    ViolationRecord.from_row(
                        row,
                        step=self._step,
                        time=now,
                        forward=self.names[name],
                        pool=self._groups[pool].name,
                        request_id=request_id,
                        request_row=request_row,
                    )
                )
        self._warn_of_skipped(readings)
        self._readings = readings
        return Found(records, lost, stood_still)

    def _now(self) -> float:
        """The engine's clock, as records take it."""
        now = self._clock()
        if isinstance(now, int | float) and abs(now) < _LATEST:
            return float(now)
        name, want, have = "clock", "give seconds since 1970, as a finite float", f"{now!r:.80}"
        raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")

    def _requests(
        self, rows: Sequence[Violation], forwards: Sequence[ForwardState], name: int, pool: int
    ) -> list[tuple[int | None, str | None]]:
        begun = self._begun[name] if name < len(self._begun) else None
        if not self._config.name_requests or begun is None:
            return [(None, None)] * len(rows)
        # Looking up reads from the device; what is beyond the limit is counted, not told.
        looked_up = [(row.slot_idx, row.expected_token) for row in rows[: self._config.log_limit]]
        plans = forwards[name].pools[pool]
        found = plans.request_of(looked_up, begun.requests, begun.slots[pool]) if looked_up else []
        ids = begun.request_ids
        named = [(row, None if ids is None or row is None or row >= len(ids) else _name(ids[row])) for row in found]
        return named + [(None, None)] * (len(rows) - len(named))

    def _warn_of_skipped(self, readings: Sequence[Reading]) -> None:
        skipped = sum(reading.plans - reading.fitting for reading in readings)
        if skipped > self.skipped_plans:
            self.reporter.warn(
                "skipped",
                self._step,
                "kv-canary: %d plans so far did not fit verify_capacity=%d, so nothing was verified for them; "
                "raise verify_capacity (%s) to the largest sum of cached lengths",
                skipped,
                self._config.verify_capacity,
                "KVCANARY_VERIFY_CAPACITY",
            )
        self.skipped_plans = skipped

    def statistics(self) -> dict[str, int]:
        """Totals as of the last findings that arrived."""
        found = {
            "step": self._step,
            "violations": self.reporter.summary.count,
            "lost": self.reporter.summary.dropped,
            "plans": sum(reading.plans for reading in self._readings),
            "skipped_plans": self.skipped_plans,
        }
        for tag in layout.CanaryLaunchTag:
            runs = sum(reading.kernel_runs[tag] for reading in self._readings)
            if runs:
                found[f"launches_{tag.name}"] = runs
                found[f"entries_{tag.name}"] = sum(reading.slot_runs[tag] for reading in self._readings)
        return found


def _name(given: object) -> str | None:
    """An engine's name of a request as text; whatever it is, it must not stand in the way of the violation."""
    if given is None or type(given) is str:
        return given
    try:
        return "".join(str(given))
    except Exception:
        return f"a {type(given).__name__} without text"
