"""One bit flipped in memory or in a table; what must be seen of it, and what cannot be.

Both are said from the truth of the batch and the contract, before anything is verified. `demands` are violations that
must be reported, whatever else is; where there are none and nothing is reported, `excuse` has to give the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from kvcanary import FailReason as Bits
from kvcanary import RealKvHashMode
from kvcanary.runtime.requests import Batch, EngineConfig
from kvcanary.runtime.toy_model import HALVES

from .canary import GROUPS, MODES, STAGES, UNDECLARED_BYTES, VERIFY_CAPACITY
from .contract import Record
from .moments import Bench, Live, Truth

FIELDS = ("token", "position", "prev_hash", "real_kv_hash")


class Demand(NamedTuple):
    """A row that must be there: its endpoint, slot and one of its reasons; None where more than one will do."""

    stage: str
    half: str
    group: str
    slot: int | None
    reason: Bits | None


def everywhere(group: str, slot: int | None, reason: Bits | None) -> list[Demand]:
    """The same row from every endpoint of a group."""
    return [Demand(stage, half, group, slot, reason) for stage in STAGES for half in HALVES]


def flipped(value: int, bit: int, width: int = 64) -> int:
    """A signed integer with one bit turned."""
    value = (value ^ 1 << bit) & (1 << width) - 1
    return value - (1 << width) if value >> width - 1 else value


def flip(tensor: torch.Tensor, place: tuple[int, ...], bit: int) -> None:
    value = flipped(int(tensor[place]), bit, 8 * tensor.element_size())
    tensor[place] = value & 255 if tensor.dtype == torch.uint8 else value


@dataclass(frozen=True)
class Context:
    """What a corruption is judged by: the truth, and the fingerprints as they were before it."""

    truth: Truth
    memory: dict[tuple[str, str, str], list[Record]]
    capacity: int = VERIFY_CAPACITY

    def slots(self, group: str) -> int:
        return len(self.memory["HEAD", HALVES[0], group])

    def alike(self, group: str, one: int, other: int) -> bool:
        """Whether two slots have fingerprints that nobody can tell apart, such as those of a page computed twice."""
        return all(
            self.memory[stage, half, group][one].link == self.memory[stage, half, group][other].link
            for stage in STAGES
            for half in HALVES
        )

    def redirected(self, group: str, right: int, wrong: int) -> list[Demand]:
        """An entry reads `wrong` instead of `right`: a row for it, unless it is the dummy slot or looks the same."""
        if not 0 <= wrong < self.slots(group):
            return everywhere(group, wrong, Bits.VERIFY_SLOT_OUT_OF_RANGE)
        if wrong == 0 or wrong == right or self.alike(group, right, wrong):
            return []
        return everywhere(group, wrong, None)


@dataclass(frozen=True)
class Corruption:
    """One bit to flip. `late`: after the forward instead of before HEAD."""

    bit: int

    late = False

    def apply(self, bench: Bench, batch: Batch) -> None:
        raise NotImplementedError

    def demands(self, context: Context) -> list[Demand]:
        raise NotImplementedError

    def excuse(self, context: Context) -> str | None:
        raise NotImplementedError


@dataclass(frozen=True)
class SlotField(Corruption):
    """A field of a fingerprint."""

    stage: str
    half: str
    group: str
    slot: int
    field: int

    def apply(self, bench: Bench, batch: Batch) -> None:
        flip(
            bench.canary.buffers[self.stage, self.half, self.group].view(torch.int64), (self.slot, self.field), self.bit
        )

    def demands(self, context: Context) -> list[Demand]:
        name, here = FIELDS[self.field], (self.stage, self.half, self.group)
        own = {
            "token": Bits.VERIFY_TOKEN_MISMATCH,
            "position": Bits.VERIFY_POSITION_MISMATCH,
            "prev_hash": Bits.VERIFY_CHAIN_HASH_MISMATCH,
            "real_kv_hash": Bits.VERIFY_REAL_KV_HASH_MISMATCH,
        }[name]
        found = []
        for slot, before in context.truth.entries(self.group):
            if slot == self.slot and (name != "prev_hash" or before != 0):
                found.append(Demand(*here, slot, own))
            if before == self.slot and before != 0 and name != "real_kv_hash":
                found.append(Demand(*here, slot, Bits.VERIFY_CHAIN_HASH_MISMATCH))
        for live in context.truth.live:
            if name == "position" and live.prefix and self._place(context, live, live.prefix - 1) == self.slot:
                found.append(Demand(*here, self._place(context, live, live.prefix), Bits.WRITE_POSITION_MISMATCH))
        return found

    def _place(self, context: Context, live: Live, position: int) -> int:
        return context.truth.place(live.slots[position], self.group)

    def excuse(self, context: Context) -> str | None:
        entries = context.truth.entries(self.group)
        own = [before for slot, before in entries if slot == self.slot]
        following = [slot for slot, before in entries if before == self.slot]
        if self.slot == 0:
            return "the dummy slot is never checked"
        if not own and not following:
            return "no request of the batch has the slot cached"
        if not own and FIELDS[self.field] == "real_kv_hash":
            return "a link does not cover the real-KV hash"
        if not following and FIELDS[self.field] == "prev_hash" and not any(own):
            return "what comes before it has left the window"
        return None


@dataclass(frozen=True)
class RealByte(Corruption):
    """A byte of real KV, before the forward or after it."""

    half: str
    group: str
    layer: int
    slot: int
    byte: int
    late: bool

    def apply(self, bench: Bench, batch: Batch) -> None:
        layer = bench.engine.layers(self.group)[self.layer]
        place = self.slot * bench.engine.config.bytes_per_token + self.byte
        flip(layer.kv[self.half].reshape(-1), (place,), self.bit)

    def _hashed(self) -> bool:
        declared = EngineConfig.bytes_per_token - UNDECLARED_BYTES
        return self.byte < (min(16, declared) if MODES[self.half] == RealKvHashMode.PARTIAL else declared)

    def demands(self, context: Context) -> list[Demand]:
        cached = self.slot in {slot for slot, _ in context.truth.entries(self.group)}
        reason = Bits.VERIFY_REAL_KV_HASH_MISMATCH
        return [Demand("TAIL", self.half, self.group, self.slot, reason)] if cached and self._hashed() else []

    def excuse(self, context: Context) -> str | None:
        if not self._hashed():
            return "the source does not declare this byte, or mode PARTIAL leaves it out"
        if self.slot not in {slot for slot, _ in context.truth.entries(self.group)}:
            return "no request of the batch has the slot cached; if it is new, its bytes are fingerprinted as they are"
        return None


@dataclass(frozen=True)
class TableEntry(Corruption):
    """An entry of the token table."""

    row: int
    position: int
    slot: int  # what stands there

    def apply(self, bench: Bench, batch: Batch) -> None:
        flip(bench.engine.req_to_token, (self.row, self.position), self.bit)

    def _wrong(self, context: Context, group: str) -> int:
        slot = flipped(self.slot, self.bit, 32)
        last = len(context.truth.swa) - 1
        return slot if slot < 0 or group == "FULL" else context.truth.swa[min(slot, last)]

    def demands(self, context: Context) -> list[Demand]:
        found = []
        for group in GROUPS:
            if any(live.row == self.row and p == self.position for live, p in context.truth.cached(group)):
                right = context.truth.place(self.slot, group)
                found += context.redirected(group, right, self._wrong(context, group))
        return found

    def excuse(self, context: Context) -> str | None:
        if not any(live.row == self.row and p == self.position for live, p in context.truth.cached("FULL")):
            return "the position is not cached: whoever computes it now wrote to the right slot, and reads it next time"
        wrong = self._wrong(context, "FULL")
        if wrong == 0:
            return "the entry points to the dummy slot"
        if context.alike("FULL", self.slot, wrong):
            return "the entry points to a slot with the same fingerprint"
        return None


@dataclass(frozen=True)
class MappingEntry(Corruption):
    """An entry of the mapping from full slots to those of the window."""

    slot: int

    def apply(self, bench: Bench, batch: Batch) -> None:
        mapping = bench.engine.pools.mapping
        assert mapping is not None
        flip(mapping, (self.slot,), self.bit)

    def _reads(self, context: Context) -> bool:
        return any(live.slots[p] == self.slot for live, p in context.truth.cached("SWA"))

    def demands(self, context: Context) -> list[Demand]:
        right = context.truth.swa[self.slot]
        wrong = flipped(right, self.bit)
        found = context.redirected("SWA", right, wrong) if self._reads(context) else []
        if wrong >= context.slots("SWA") and any(live.slots[p] == self.slot for live, p in context.truth.fresh()):
            found += everywhere("SWA", wrong, Bits.WRITE_SLOT_OUT_OF_RANGE)
        return found

    def excuse(self, context: Context) -> str | None:
        right = context.truth.swa[self.slot]
        wrong = flipped(right, self.bit)
        cached = context.truth.cached("SWA")
        before = any(p and live.slots[p - 1] == self.slot for live, p in cached)
        if any(live.slots[p] == self.slot for live, p in context.truth.fresh()):
            others = [context.truth.swa[live.slots[p]] for live, p in context.truth.fresh()]
            if wrong < 0:
                return "a negative slot to write to is skipped"
            return "the fingerprint is in order, if in the wrong slot" if wrong not in others else None
        if not self._reads(context) and not before:
            return "no request of the batch has the slot in its window, or just before it"
        if wrong == 0:
            return "the entry points to the dummy slot"
        return (
            "the slots look the same"
            if 0 < wrong < context.slots("SWA") and context.alike("SWA", right, wrong)
            else None
        )
