# Written by kvcanary-gen from the spec; edit that instead.
"""Calls around a forward. They launch and nothing else, so a CUDA graph can hold them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import ParamSpec, TypeVar

import torch

from .. import errors
from ..core import checks
from .batch import CanaryBatch, check_names, of_pool
from .exclusions import SlotExclusions
from .manager_core import ManagerCore
from .records import ViolationRecord
from .sweep import translated
from .transfers import slots_on

P = ParamSpec("P")
T = TypeVar("T")


class ForwardCalls(ManagerCore):
    """What an engine calls in every forward."""

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
            self._forwards[place].check(batch)
            excused = self._excused_of(batch)
            self._begun[place] = None
            for exclusions, slots in excused:
                exclusions.excuse(slots)
            self._begun[place] = self._last[place] = self._forwards[place].before(batch)
            if self._capturing():
                self._captured[batch] = self._last[place]
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
            if batch is not None:
                checks.kind("batch", batch, CanaryBatch)
            place = self._place(batch.forward if batch is not None else "")
            begun, forward = self._begun[place], self.config.forwards[place]
            if begun is None:
                raise errors.CanaryRuntimeError(
                    "KVC-061", f"kv-canary: after_forward of {forward} without a before_forward"
                )
            self._begun[place] = None
            self._forwards[place].after(begun)
            self._asked(place, "after")

    def replayed(
        self, forward: str = "", request_ids: Sequence[object] | None = None, *, captured: CanaryBatch | None = None
    ) -> None:
        """A CUDA graph with this forward's launches was replayed, so its stages should have run.

        Args:
            forward: which of the configured forwards; that of `captured`, or the first one, if empty.
            request_ids: the engine's names of the requests, for reports.
            captured: the batch that the graph was captured with. Engines with several graphs of one forward, such as
                one for each batch size, keep it and give it, or reports may name the wrong request.
        """
        with self._entered("replayed") as active:
            if active:
                if captured is not None:
                    checks.kind("captured", captured, CanaryBatch)
                check_names("request_ids", request_ids)
                place = self._place(forward or (captured.forward if captured is not None else ""))
                last = self._captured.get(captured) if captured is not None else None
                last = last or self._last[place]
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
            # The engine's own exception matters more than a manager that was closed meanwhile.
            with contextlib.suppress(errors.CanaryError):
                self.give_up(batch.forward if isinstance(batch, CanaryBatch) else "")
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

        for name, given in (("model_forward", model_forward), ("make_batch", make_batch)):
            if not callable(given):
                want, have = "be callable", f"{given!r:.80}"
                raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")

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

    def step_end(self, step: int | None = None) -> list[ViolationRecord]:
        """Ends a step."""
        raise NotImplementedError

    def _excused_of(self, batch: CanaryBatch) -> list[tuple[SlotExclusions, torch.Tensor]]:
        """What the batch excuses, by pool; nothing is changed yet."""
        found = []
        for place, group in enumerate(self.groups):
            slots = of_pool("batch.excused", batch.excused, group.name, self._first)
            mapping = group.full_to_swa_index_mapping if slots is None else None
            if mapping is not None:
                slots = of_pool("batch.excused", batch.excused, self._first, self._first)
            if slots is not None:
                slots = translated(slots_on(self.device, "batch.excused", slots), mapping)
                found.append((self._excluded(place), slots))
        return found
