# Written by kvcanary-gen from the spec; edit that instead.
"""Sweeps: from time to time, everything that the prefix cache holds is verified, whoever uses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from .. import errors, layout
from ..core import checks
from ..structs import VerifyPlan
from .config import CanaryConfig
from .endpoints import build_endpoints_from_group, launch_endpoints_sweep
from .exclusions import SlotExclusions
from .groups import CanaryBufferGroup
from .state import CanaryDeviceState
from .transfers import Slots, slots_on

__all__ = ["CacheWalk", "CacheWalker", "plan_sweep"]


@dataclass(frozen=True, eq=False)
class CacheWalk:
    """What a cache holds: one entry for every cached position, in any order. Tensors or lists of the same length.

    Attributes:
        slots (int64 [n]): Slots as the engine names them; where the pool has a mapping, it translates them.
        positions (int64 [n]): The position that each slot holds.
        predecessors (int64 [n]): Slot of the position before, -1 at the start of a sequence, 0 where it is not known.
        tokens (int64 [n], optional): The token that each slot belongs to, -1 where the cache does not know it.
    """

    slots: Slots
    positions: Slots
    predecessors: Slots
    tokens: Slots | None = None


class CacheWalker(Protocol):
    """What an engine's prefix cache must be able to tell."""

    def walk(self, pool: str) -> CacheWalk | None:
        """Everything that the cache holds in a pool, by the pool's name; None where it holds nothing."""


class LoadedWalk:
    """A walk on the device."""

    def __init__(self, walk: CacheWalk, device: torch.device) -> None:
        checks.kind("walk", walk, CacheWalk)
        self.slots = slots_on(device, "walk.slots", walk.slots)
        self.positions = slots_on(device, "walk.positions", walk.positions)
        self.predecessors = slots_on(device, "walk.predecessors", walk.predecessors)
        self.tokens = None if walk.tokens is None else slots_on(device, "walk.tokens", walk.tokens)
        for name in ("positions", "predecessors", "tokens"):
            tensor = getattr(self, name)
            if tensor is not None:
                checks.length(f"walk.{name}", tensor.shape[0], self.slots.shape[0])


def plan_sweep(
    *,
    walk: CacheWalk,
    verify_plan_out: VerifyPlan,
    full_to_swa_index_mapping: torch.Tensor | None = None,
    begin: int = 0,
) -> int:
    """Plans the entries of a walk from `begin` on, as many as the plan holds, in one pass.

    Slots that the mapping sends to 0 were evicted from the window: they are not verified, and a predecessor there makes
    a link unverifiable. Contract §3, §4.

    Args:
        walk (CacheWalk): The cache's entries.
        verify_plan_out (VerifyPlan): Receives them.
        full_to_swa_index_mapping (int64 [full slots], optional): Translates slots and predecessors.
        begin (int): First entry to plan.

    Returns:
        How many entries were planned, known to the host.
    """
    checks.kind("verify_plan_out", verify_plan_out, VerifyPlan)
    checks.kind("begin", begin, int)
    if begin < 0:
        name, want, have = "begin", "be at least 0", f"{begin}"
        raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
    if full_to_swa_index_mapping is not None:
        mapping = [("full_to_swa_index_mapping", full_to_swa_index_mapping, torch.int64, 1)]
        checks.kinds(mapping)
        checks.dtypes(mapping)
        checks.ranks(mapping)
        checks.devices([("verify_plan_out", verify_plan_out.verify_slot_indices, torch.int64, 1), *mapping])
    loaded = LoadedWalk(walk, verify_plan_out.verify_slot_indices.device)
    return plan_loaded(loaded, verify_plan_out, full_to_swa_index_mapping, begin)


def plan_loaded(walk: LoadedWalk, plan: VerifyPlan, mapping: torch.Tensor | None, begin: int) -> int:
    end = min(walk.slots.shape[0], begin + plan.verify_slot_indices.shape[0])
    count = max(0, end - begin)
    plan.verify_slot_indices[:count].copy_(translated(walk.slots[begin:end], mapping))
    plan.verify_prev_slot_indices[:count].copy_(translated(walk.predecessors[begin:end], mapping))
    plan.verify_expected_positions[:count].copy_(walk.positions[begin:end])
    if walk.tokens is None:
        plan.verify_expected_tokens[:count].fill_(-1)
    else:
        plan.verify_expected_tokens[:count].copy_(walk.tokens[begin:end])
    plan.verify_num_valid.fill_(count)
    plan.enable.fill_(1)
    return count


def translated(slots: torch.Tensor, mapping: torch.Tensor | None) -> torch.Tensor:
    """As `translate` in the contract's §3."""
    if mapping is None:
        return slots
    if mapping.shape[0] == 0:
        return slots.clamp(max=0)
    places = slots.clamp(min=0, max=mapping.shape[0] - 1)
    return torch.where(slots < 0, slots, mapping.index_select(0, places))


class Sweeper:
    """Sweep endpoints of one pool; pools share a plan, as their launches follow each other on one stream."""

    def __init__(
        self,
        group: CanaryBufferGroup,
        config: CanaryConfig,
        state: CanaryDeviceState,
        plan: VerifyPlan,
        exclusions: SlotExclusions | None,
    ) -> None:
        self._group, self._config, self._plan, self._exclusions = group, config, plan, exclusions
        self._log = state.log
        endpoints = build_endpoints_from_group(group=group, device_state=state)
        self.endpoints = [endpoint for endpoint in endpoints if layout.is_sweep_tag(endpoint.tag)]

    def sweep(self, loaded: LoadedWalk) -> int:
        """Verifies all entries of a walk, in as many launches as the plan needs; answers how many launches."""
        mapping = self._group.full_to_swa_index_mapping
        if self._exclusions is not None:
            mapping = self._exclusions.mapping()
        begin = launches = 0
        while begin < loaded.slots.shape[0]:
            begin += plan_loaded(loaded, self._plan, mapping, begin)
            launch_endpoints_sweep(
                endpoints=self.endpoints,
                verify_plan=self._plan,
                violation_log=self._log,
                real_kv_hash_mode=self._config.hash_mode,
                enable_verify_token_assert=loaded.tokens is not None,
            )
            launches += 1
        return launches


def check_sweeps(config: CanaryConfig, walks: Sequence[str], pools: Sequence[str]) -> None:
    """Sweeps were configured, and walks are of pools that are there."""
    if config.sweep_capacity < 1:
        name, want, have = "sweep_capacity", "be at least 1 for sweeps", f"{config.sweep_capacity}"
        raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
    for pool in walks:
        if pool not in pools:
            name, want, have = "walks", f"name pools: {', '.join(pools)}", repr(pool)
            raise errors.CanaryValueError("KVC-060", f"kv-canary: {name} must {want}, got {have}")
