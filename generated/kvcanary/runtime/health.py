# Written by kvcanary-gen from the spec; edit that instead.
"""Whether every stage ran on the device that should have run, by the endpoints' own counters."""

from __future__ import annotations

from collections.abc import Sequence

from .. import errors
from .endpoints import CanaryEndpoint
from .stages import stage_of


class StageWatch:
    """Compares launches that the host asked for with those that the device counted, for one channel."""

    def __init__(self, pool: str, forward: str, endpoints: Sequence[CanaryEndpoint]) -> None:
        self._pool, self._forward, self._endpoints = pool, forward, endpoints
        self._asked: dict[str, int] = {}
        self._sent: dict[str, int] = {}
        self._seen = [0] * (1 + max(int(endpoint.tag) for endpoint in endpoints))

    def asked(self, when: str) -> None:
        """Stages that run `when` were asked to run once."""
        self._asked[when] = self._asked.get(when, 0) + 1

    def sent(self) -> None:
        """The counters are on their way to the host."""
        self._sent, self._asked = self._asked, {}

    def received(self, step: int, launches: Sequence[int]) -> errors.CanaryError | None:
        """The counters as they were when sent, by tag; an error where one stood still that should not have."""
        stood_still = None
        for endpoint in self._endpoints:
            want = self._sent.get(stage_of(endpoint.tag).when, 0)
            if want and launches[endpoint.tag] == self._seen[endpoint.tag] and stood_still is None:
                stood_still = self._error(endpoint, want, step)
            self._seen[endpoint.tag] = launches[endpoint.tag]
        return stood_still

    def _error(self, endpoint: CanaryEndpoint, want: int, step: int) -> errors.CanaryError:
        stage, tag, pool, forward = endpoint.tag.stage, endpoint.tag.name, self._pool, self._forward
        try:
            raise errors.CanaryRuntimeError(
                "KVC-058",
                f"kv-canary: stage {stage} of pool {pool} stood still: {tag} was launched 0 times in {want} forwards "
                f"{forward} up to step {step}",
            )
        except errors.CanaryError as error:
            return error
