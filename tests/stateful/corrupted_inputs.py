"""Corruptions of what a batch says of itself: lengths, and the new tokens with their positions and slots."""

from __future__ import annotations

from dataclasses import dataclass

from kvcanary import FailReason as Bits
from kvcanary.runtime.requests import Batch

from .canary import GROUPS
from .corruptions import Context, Corruption, Demand, everywhere, flip, flipped
from .moments import Bench, Live


@dataclass(frozen=True)
class PrefixLen(Corruption):
    """How much of a request is said to be cached."""

    index: int

    def apply(self, bench: Bench, batch: Batch) -> None:
        flip(batch.prefix_lens, (self.index,), self.bit)

    def demands(self, context: Context) -> list[Demand]:
        if self.index >= len(context.truth.live):
            return []
        live = context.truth.live[self.index]
        wrong = flipped(live.prefix, self.bit)
        found = []
        if 0 < wrong < live.prefix:
            # The chain goes on from a slot that is not the last one.
            for group in GROUPS:
                found += everywhere(
                    group, context.truth.place(live.slots[live.prefix], group), Bits.WRITE_POSITION_MISMATCH
                )
        elif wrong > live.prefix and wrong + sum(other.prefix for other in context.truth.live) <= context.capacity:
            found += everywhere("FULL", None, None)
        return found

    def excuse(self, context: Context) -> str | None:
        if self.index >= len(context.truth.live):
            return "a padded entry has no request"
        live = context.truth.live[self.index]
        wrong = flipped(live.prefix, self.bit)
        if wrong <= 0:
            return "it says that nothing is cached: there is nothing to verify, and the chain starts anew"
        total = sum(other.prefix for other in context.truth.live) - live.prefix + wrong
        return "more entries than the plan holds: it is not enabled" if total > context.capacity else None


@dataclass(frozen=True)
class ExtendLen(Corruption):
    """How many new tokens a request is said to have."""

    index: int

    def apply(self, bench: Bench, batch: Batch) -> None:
        flip(batch.extend_seq_lens, (self.index,), self.bit)

    def _shifted(self, context: Context) -> list[tuple[Live, list[int]]]:
        """Requests and the positions of the tokens that each is given now."""
        positions, first, found = [p for _, p in context.truth.fresh()], 0, []
        for index, live in enumerate(context.truth.live):
            count = max(0, flipped(live.extend, self.bit) if index == self.index else live.extend)
            found.append((live, positions[first : first + count]))
            first += count
        return found

    def demands(self, context: Context) -> list[Demand]:
        if self.index >= len(context.truth.live):
            return []
        broken = any(
            live.prefix and positions != list(range(live.prefix, live.prefix + len(positions)))
            for live, positions in self._shifted(context)
        )
        return [d for group in GROUPS for d in everywhere(group, None, Bits.WRITE_POSITION_MISMATCH)] if broken else []

    def excuse(self, context: Context) -> str | None:
        if self.index >= len(context.truth.live):
            return "a padded entry has no request"
        if self.index == len(context.truth.live) - 1:
            return "behind the last request are no tokens to confuse with its own; some of those may not be written"
        follows = all(
            not live.prefix or positions == list(range(live.prefix, live.prefix + len(positions)))
            for live, positions in self._shifted(context)
        )
        return (
            "the tokens that move to another request go on from its last position, or it has none" if follows else None
        )


@dataclass(frozen=True)
class NewToken(Corruption):
    """The id, the position or the slot of a new token."""

    tensor: str
    index: int

    def apply(self, bench: Bench, batch: Batch) -> None:
        flip(getattr(batch, self.tensor), (self.index,), self.bit)

    def demands(self, context: Context) -> list[Demand]:
        fresh = context.truth.fresh()
        if self.index >= len(fresh):
            return []
        live, position = fresh[self.index]
        slot, found = live.slots[position], []
        if self.tensor == "out_cache_loc":
            wrong = flipped(slot, self.bit)
            if wrong >= context.slots("FULL"):
                found += everywhere("FULL", wrong, Bits.WRITE_SLOT_OUT_OF_RANGE)
            elif wrong in {other.slots[p] for other, p in fresh}:
                found += everywhere("FULL", wrong, Bits.WRITE_SLOT_COLLISION)
        else:
            reason = Bits.WRITE_TOKEN_MISMATCH if self.tensor == "input_ids" else Bits.WRITE_POSITION_MISMATCH
            for group in GROUPS:
                found += everywhere(group, context.truth.place(slot, group), reason)
        return found

    def excuse(self, context: Context) -> str | None:
        fresh = context.truth.fresh()
        if self.index >= len(fresh):
            return "a padded token belongs to nobody"
        if self.tensor == "out_cache_loc":
            return "the fingerprint is in order, if in the wrong slot, or skipped: seen when its slot is read"
        return None
