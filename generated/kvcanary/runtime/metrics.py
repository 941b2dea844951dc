# Written by kvcanary-gen from the spec; edit that instead.
"""Numbers for Prometheus, where `prometheus_client` is installed; nothing else imports it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from .. import errors
from .records import ViolationRecord

__all__ = ["CanaryMetrics"]

PREFIX = "kvcanary_"
_TOTALS = {
    "step": ("steps", "Steps that the engine has ended."),
    "plans": ("plans", "Plans made, one for each pool and forward."),
    "skipped_plans": ("skipped_plans", "Plans that did not fit verify_capacity, so that nothing was verified."),
    "lost": ("lost_violations", "Violations that did not fit their ring."),
}


class CanaryMetrics:
    """Counters of a manager: steps, plans, launches and entries by endpoint, violations by pool, endpoint and reason.

    Pass it to the manager as `metrics`; it is brought up to date whenever findings arrive.

    Args:
        registry: where the counters are registered; the client's own registry if None.

    Raises:
        CanaryRuntimeError: KVC-062 where `prometheus_client` is not installed.
    """

    def __init__(self, registry: Any = None) -> None:
        try:
            client = importlib.import_module("prometheus_client")
        except ImportError as error:
            raise errors.CanaryRuntimeError(
                "KVC-062", "kv-canary: CanaryMetrics needs prometheus_client, which is not installed"
            ) from error
        chosen = {} if registry is None else {"registry": registry}

        def counter(name: str, doc: str, *labels: str) -> Any:
            return client.Counter(PREFIX + name, doc, labels, **chosen)

        self._totals = {key: counter(name, doc) for key, (name, doc) in _TOTALS.items()}
        self._launches = counter("launches", "Launches of each endpoint.", "kind")
        self._entries = counter("entries", "Entries that each endpoint verified or stored.", "kind")
        self._violations = counter("violations", "Violations.", "pool", "kind", "reason")
        self._seen: dict[str, int] = {}

    def update(self, statistics: Mapping[str, int], records: Sequence[ViolationRecord]) -> None:
        """Adds what is new since the last call."""
        for name, value in statistics.items():
            more = max(0, value - self._seen.get(name, 0))
            self._seen[name] = value
            group, _, kind = name.partition("_")
            if name in self._totals:
                self._totals[name].inc(more)
            elif group == "launches":
                self._launches.labels(kind).inc(more)
            elif group == "entries":
                self._entries.labels(kind).inc(more)
        for record in records:
            for reason in record.reasons:
                self._violations.labels(record.pool, record.kind, reason).inc()
