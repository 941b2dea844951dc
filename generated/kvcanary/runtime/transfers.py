# Written by kvcanary-gen from the spec; edit that instead.
"""Fingerprints that move with their slots: copied within the pool, brought to the host and back."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch

from .. import errors, layout
from ..core import checks
from .groups import CanaryBufferGroup
from .stages import BUFFER_STAGES

__all__ = ["ExportedSlots"]

Slots = torch.Tensor | Iterable[int]


@dataclass(frozen=True, eq=False)
class ExportedSlots:
    """Fingerprints of some slots on the host, as they were when exported. May be pickled once `wait` has returned.

    Attributes:
        pool_kind (str): Kind of the pool that they come from.
        records: The records (uint8 [slots, SLOT_BYTES]) by stage and half.
        dropped (bool [slots]): Slots that had no fingerprint of their own.
    """

    pool_kind: str
    records: dict[tuple[str, str], torch.Tensor]
    dropped: torch.Tensor
    _arrived: list[torch.cuda.Event] = field(default_factory=list, repr=False)

    def wait(self) -> ExportedSlots:
        """Waits until the copy has arrived; needed before the host looks at it, not for importing it again."""
        while self._arrived:
            self._arrived.pop().synchronize()
        return self

    def __len__(self) -> int:
        return self.dropped.shape[0]


def slots_on(device: torch.device, name: str, slots: Slots) -> torch.Tensor:
    """Slots as int64 on the pool's device, from wherever they are; a list goes there without waiting for the device."""
    if not isinstance(slots, torch.Tensor):
        slots = _listed(name, slots, device.type == "cuda")
    if slots.device.type == "meta":
        want, have = "hold slots", "a tensor on meta, which holds nothing"
        raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
    if slots.dtype not in (torch.int32, torch.int64):
        want, have = "be of int32 or int64", f"{slots.dtype}"
        raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
    return slots.reshape(-1).to(device=device, dtype=torch.int64, non_blocking=True)


def _listed(name: str, slots: Iterable[int], pinned: bool) -> torch.Tensor:
    try:
        # A float with a fraction, or text, is no index; a number of NumPy's is one.
        found = [operator.index(slot) for slot in slots]
        return torch.tensor(found, dtype=torch.int64, pin_memory=pinned)
    except (TypeError, ValueError, OverflowError):
        want, have = "be a tensor or a list of ints that fit int64", f"{slots!r:.80}"
        raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}") from None


def records_of(group: CanaryBufferGroup, stage: str, half: str) -> torch.Tensor:
    """The records of one buffer, without what a longer row may hold behind them."""
    return group.buffers[stage][half][:, : layout.SLOT_BYTES]


def inside(group: CanaryBufferGroup, slots: torch.Tensor) -> torch.Tensor:
    """Slots as rows of the buffers; those outside the pool meet in the dummy slot, which nobody verifies."""
    return slots.where((slots >= 0) & (slots < group.num_slots), layout.TOKEN_TO_KV_SLOT_PADDING)


def copy_records(source: CanaryBufferGroup, target: CanaryBufferGroup, slots: torch.Tensor, to: torch.Tensor) -> None:
    """Copies records of all stages and halves; all are read before any is written."""
    checks.length("target slots", to.shape[0], slots.shape[0])
    if source.halves != target.halves:
        name, want, have = "target_pool", f"have the halves {source.halves}", f"{target.halves}"
        raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
    here, there = inside(source, slots), inside(target, to)
    for stage in BUFFER_STAGES:
        for half in source.halves:
            moved = records_of(source, stage, half).index_select(0, here)
            records_of(target, stage, half).index_copy_(0, there, moved)


def export_records(group: CanaryBufferGroup, slots: torch.Tensor, dropped: torch.Tensor | None) -> ExportedSlots:
    """Brings records to pinned memory, without waiting."""
    cuda = group.device.type == "cuda"
    here = inside(group, slots)
    if dropped is None:
        dropped = torch.zeros([slots.shape[0]], dtype=torch.bool, device=group.device)

    def to_host(tensor: torch.Tensor) -> torch.Tensor:
        if not cuda:
            return tensor
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return host.copy_(tensor, non_blocking=True)

    records = {
        (stage, half): to_host(records_of(group, stage, half).index_select(0, here))
        for stage in BUFFER_STAGES
        for half in group.halves
    }
    exported = ExportedSlots(group.pool_kind, records, to_host(dropped))
    if cuda:
        arrived = torch.cuda.Event()
        arrived.record()
        exported._arrived.append(arrived)
    return exported


def import_records(group: CanaryBufferGroup, slots: torch.Tensor, exported: ExportedSlots) -> torch.Tensor:
    """Writes records back, at these slots; answers which of them were exported without a fingerprint."""
    checks.kind("exported", exported, ExportedSlots)
    checks.kind("exported.records", exported.records, Mapping)
    checks.kind("exported.dropped", exported.dropped, torch.Tensor)
    checks.dtypes([("exported.dropped", exported.dropped, torch.bool, 1)])
    checks.length("slots", slots.shape[0], len(exported))
    wanted = {(stage, half) for stage in BUFFER_STAGES for half in group.halves}
    if set(exported.records) != wanted:
        name, want, have = "exported", f"hold records for {sorted(wanted)}", f"{list(exported.records)}"
        raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
    there = inside(group, slots)
    for (stage, half), records in exported.records.items():
        name = f"exported.records[{stage!r}, {half!r}]"
        given = [(name, records, torch.uint8, 2)]
        checks.kinds(given)
        checks.dtypes(given)
        checks.ranks(given)
        checks.length(name, records.shape[0], len(exported))
        checks.length(f"{name}.shape[1]", records.shape[1], layout.SLOT_BYTES)
    for (stage, half), records in exported.records.items():
        records_of(group, stage, half).index_copy_(0, there, records.to(group.device, non_blocking=True))
    return exported.dropped.to(group.device, non_blocking=True)
