# Written by kvcanary-gen from the spec; edit that instead.
"""Requests for the miniature engine, as servers see them: prompts that begin alike, some asked for several samples."""

from __future__ import annotations

import random

from .engine import Engine


class Traffic:
    """Keeps an engine busy. The same seed asks the same, whatever the engine does.

    Args:
        engine (Engine): whom to ask.
        seed (int): which prompts.
        backlog (int): requests that wait before `feed` stops adding more.
    """

    def __init__(self, engine: Engine, seed: int, backlog: int = 2) -> None:
        self.engine = engine
        self.backlog = backlog
        self._random = random.Random(seed)
        longest = engine.config.max_context // 3
        self._beginnings = [self._tokens(longest // 2, longest) for _ in range(3)]

    def _tokens(self, least: int, most: int) -> list[int]:
        return [self._random.randrange(self.engine.config.vocabulary) for _ in range(self._random.randint(least, most))]

    def feed(self) -> None:
        """Submits requests until the backlog is full."""
        while len(self.engine.scheduler.waiting) < self.backlog:
            self.submit()

    def submit(self) -> None:
        """One more request."""
        room = self.engine.config.max_context // 3
        beginning = self._random.choice([*self._beginnings, []])
        prompt = beginning[: self._random.randint(len(beginning) // 2, len(beginning))] + self._tokens(2, room // 2)
        samples = self._random.choice((1, 1, 1, 2, 3))
        self.engine.submit(prompt, max_new=self._random.randint(2, room), samples=samples)
