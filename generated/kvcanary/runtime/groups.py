# Written by kvcanary-gen from the spec; edit that instead.
"""A pool of KV slots and the canary buffers beside it. Contract §7."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from .. import errors, layout
from ..core import checks, sources
from ..structs import RealKvSource
from .memory import allocating
from .stages import BUFFER_STAGES, HALVES, POOL_KINDS

__all__ = ["CanaryBufferGroup"]


@dataclass(frozen=True, eq=False)
class CanaryBufferGroup:
    """One pool of slots: its canary buffers, the bytes that are hashed, and how its slots are found.

    A pool finds its slots in one of two ways. With `full_to_swa_index_mapping` the engine speaks of slots of its full
    pool, and the mapping translates. Without it the slots that the engine hands out for this pool are its own; a
    pool of this kind may come with a table of its own in every batch.

    Attributes:
        pool_kind (str): One of FULL, SWA.
        name (str): What reports call the pool; the pool kind if empty.
        buffers: Canary buffer (uint8 [num_slots, >= SLOT_BYTES]) by stage, then by half. Stages are those that have
            buffers (HEAD, TAIL), halves those that the pool has: pools with a joint latent have K alone.
        real_kv_sources: Sources to hash, by half: a list, or a RealKvSourceTable for more than a few layers. Missing
            halves hash nothing.
        full_to_swa_index_mapping (int64 [full slots], optional): Slot of this pool for every full slot, 0 where it
            was evicted.
        block_size (int): Slots of a block where the tables of the pool hold block numbers; 1 where they hold slots.
        trash_from (int, optional): Slots from this one on are the engine's trash: tokens stored there are left out.
        window_size (int): Positions that stay cached for a sliding window; 0 keeps all.
        first_has_predecessor (bool): Whether the table still holds the slot before a window's first entry. Engines
            that give that slot away as the window moves say False, and the first link of a window is not checked.
        ring_size (int): Slots of a ring in which each request keeps its last positions; 0 where there is none. A
            forward that adds more tokens than that keeps the last ones alone, so their chain starts anew.
        kv_token_id_vs_position_offset (int): Column of the token history for position p is p plus this.
    """

    pool_kind: str
    buffers: Mapping[str, Mapping[str, torch.Tensor]]
    name: str = ""
    real_kv_sources: Mapping[str, Sequence[RealKvSource]] = field(default_factory=dict)
    full_to_swa_index_mapping: torch.Tensor | None = None
    block_size: int = 1
    trash_from: int | None = None
    window_size: int = 0
    first_has_predecessor: bool = True
    ring_size: int = 0
    kv_token_id_vs_position_offset: int = 0

    def __post_init__(self) -> None:
        _one_of("pool_kind", self.pool_kind, POOL_KINDS)
        checks.kind("name", self.name, str)
        if not self.name:
            object.__setattr__(self, "name", self.pool_kind)
        _check_buffers(self.buffers)
        checks.kind("real_kv_sources", self.real_kv_sources, Mapping)
        for half, given in self.real_kv_sources.items():
            _one_of("real_kv_sources", half, self.halves)
            name = f"real_kv_sources[{half!r}]"
            sources.real_kv_source_kinds(name, given)
            sources.real_kv_source_values(name, given)
            sources.real_kv_source_geometry(name, given)
            sources.real_kv_source_devices(name, given, [("buffers", self.first_buffer, torch.uint8, 2)])
        self._check_numbers()
        if self.block_size < 1 or (self.block_size > 1 and self.full_to_swa_index_mapping is not None):
            name, want, have = "block_size", "be at least 1, and 1 in a pool with a mapping", self.block_size
            raise errors.CanaryValueError("KVC-052", f"kv-canary: CanaryBufferGroup {name} must {want}, got {have}")
        if self.full_to_swa_index_mapping is not None:
            mapping = [("full_to_swa_index_mapping", self.full_to_swa_index_mapping, torch.int64, 1)]
            checks.kinds(mapping)
            checks.dtypes(mapping)
            checks.ranks(mapping)
            checks.contiguous(mapping)
            checks.devices([("buffers", self.first_buffer, torch.uint8, 2), *mapping])

    def _check_numbers(self) -> None:
        """Whole numbers of a size that kernels take."""
        checks.kind("first_has_predecessor", self.first_has_predecessor, bool)
        for name in ("window_size", "ring_size", "block_size", "kv_token_id_vs_position_offset", "trash_from"):
            value = getattr(self, name)
            if name != "trash_from" or value is not None:
                checks.kind(name, value, int)
                checks.int64(name, value)
        for name in ("window_size", "ring_size", "trash_from"):
            have = getattr(self, name)
            if have is not None and have < 0:
                want = "be at least 0"
                raise errors.CanaryValueError("KVC-052", f"kv-canary: CanaryBufferGroup {name} must {want}, got {have}")

    @classmethod
    def allocate(
        cls,
        *,
        pool_kind: str,
        num_slots: int,
        device: torch.device | str,
        halves: Sequence[str] = HALVES,
        name: str = "",
        real_kv_sources: Mapping[str, Sequence[RealKvSource]] | None = None,
        full_to_swa_index_mapping: torch.Tensor | None = None,
        block_size: int = 1,
        trash_from: int | None = None,
        window_size: int = 0,
        first_has_predecessor: bool = True,
        ring_size: int = 0,
        kv_token_id_vs_position_offset: int = 0,
    ) -> CanaryBufferGroup:
        """A group with buffers for `num_slots` slots, every record marked as never written (all bits set).

        Raises CanaryRuntimeError (KVC-063) where there is no such device, or no memory for them.
        """
        checks.kind("num_slots", num_slots, int)
        checks.capacity("CanaryBufferGroup", "num_slots", num_slots)
        checks.kind("halves", halves, Sequence)
        for half in halves:
            _one_of("halves", half, HALVES)
        with allocating(f"canary buffers of {num_slots} slots", device):
            buffers = {
                stage: {
                    half: torch.full([num_slots, layout.SLOT_BYTES], 255, dtype=torch.uint8, device=device)
                    for half in halves
                }
                for stage in BUFFER_STAGES
            }
        return cls(
            pool_kind,
            buffers,
            name,
            {} if real_kv_sources is None else real_kv_sources,
            full_to_swa_index_mapping,
            block_size,
            trash_from,
            window_size,
            first_has_predecessor,
            ring_size,
            kv_token_id_vs_position_offset,
        )

    @property
    def halves(self) -> tuple[str, ...]:
        """Halves that the pool has, in the order of the spec."""
        return tuple(half for half in HALVES if half in self.buffers[BUFFER_STAGES[0]])

    @property
    def first_buffer(self) -> torch.Tensor:
        return self.buffers[BUFFER_STAGES[0]][self.halves[0]]

    @property
    def num_slots(self) -> int:
        return self.first_buffer.shape[0]

    @property
    def device(self) -> torch.device:
        return self.first_buffer.device

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The canary buffers."""
        return tuple(self.buffers[stage][half] for stage in BUFFER_STAGES for half in self.halves)


def _check_buffers(buffers: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
    """Every stage that has buffers has one for each of the same halves, all for the same slots on one device."""
    checks.kind("buffers", buffers, Mapping)
    for stage, given in buffers.items():
        _one_of("buffers", stage, BUFFER_STAGES)
        checks.kind(f"buffers[{stage!r}]", given, Mapping)
    tensors: checks.Tensors = []
    first: tuple[str, ...] | None = None
    for stage in BUFFER_STAGES:
        halves = tuple(buffers.get(stage, {}))
        name, want, have = f"buffers[{stage!r}]", f"hold a buffer for each of {first or HALVES}", f"{halves}"
        if not halves or (first is not None and set(halves) != set(first)):
            raise errors.CanaryValueError("KVC-052", f"kv-canary: CanaryBufferGroup {name} must {want}, got {have}")
        first = halves
        for half in halves:
            _one_of(name, half, HALVES)
            tensors.append((f"{name}[{half!r}]", buffers[stage][half], torch.uint8, 2))
    checks.kinds(tensors)
    checks.dtypes(tensors)
    checks.ranks(tensors)
    for name, tensor, _, _ in tensors:
        checks.length(name, tensor.shape[0], tensors[0][1].shape[0])
        checks.at_least(f"{name}.shape[1]", tensor.shape[1], layout.SLOT_BYTES)
        checks.words(name, tensor)
    checks.contiguous(tensors)
    checks.devices(tensors)


def _one_of(name: str, have: object, known: Sequence[str]) -> None:
    if not isinstance(have, str) or have not in known:
        want, have = f"name one of {', '.join(known)}", repr(have)
        raise errors.CanaryValueError("KVC-052", f"kv-canary: CanaryBufferGroup {name} must {want}, got {have}")
