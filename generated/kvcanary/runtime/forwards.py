# Written by kvcanary-gen from the spec; edit that instead.
"""One forward of one pool: its plans, its endpoints, and the launches around the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from .. import errors, layout
from ..core import checks
from ..ops.plan_entries import launch_plan_entries_kernel
from ..ops.plan_offsets import launch_plan_offsets_kernel
from ..structs import VerifyPlan, WritePlan
from .config import CanaryConfig
from .endpoints import CanaryEndpoint, build_endpoints_from_group
from .exclusions import SlotExclusions
from .groups import CanaryBufferGroup
from .inputs import Inputs
from .scratch import LaunchScratch
from .stages import stage_of
from .state import CanaryDeviceState, PlanInput, ViolationLog


class PoolForward:
    """Plans and endpoints of one pool in one of the configured forwards."""

    def __init__(
        self,
        group: CanaryBufferGroup,
        config: CanaryConfig,
        state: CanaryDeviceState,
        counts: torch.Tensor,
        exclusions: SlotExclusions | None,
    ) -> None:
        self.group, self.config, self.exclusions = group, config, exclusions
        self.log = state.log
        device = group.device
        # Made and fitting plans are counted by one addition: the flag that planning sets lies behind a 1.
        self._counts = counts
        self._one_and_enable = torch.ones([2], dtype=torch.int32, device=device)
        # One element more than the capacity, for what must not go anywhere.
        self._prev = torch.empty([config.verify_capacity + 1], dtype=torch.int64, device=device)
        self.verify_plan = dataclasses.replace(
            VerifyPlan.allocate(verify_capacity=config.verify_capacity, device=device),
            verify_prev_slot_indices=self._prev[:-1],
            enable=self._one_and_enable[1:],
        )
        self.write_plan = WritePlan.allocate(write_req_capacity=config.max_requests, device=device)
        self.offsets = torch.zeros([layout.MAX_PLAN_BATCH + 1], dtype=torch.int64, device=device)
        self._first = torch.empty([config.max_requests], dtype=torch.int64, device=device)
        self._keep = torch.empty([config.max_requests], dtype=torch.bool, device=device)
        self._slots = torch.empty([config.max_tokens], dtype=torch.int64, device=device)
        self._trash = torch.empty([config.max_tokens], dtype=torch.bool, device=device)
        self._scratch = state.scratch
        # What stages after the forward verify; the whole plan, unless slots of it were written anew.
        self._later_plan = self.verify_plan
        self._rewritten: _RewrittenSlots | None = None
        # Slots are translated once for all endpoints, so these have no mapping.
        unmapped = dataclasses.replace(group, full_to_swa_index_mapping=None)
        self.endpoints = build_endpoints_from_group(group=unmapped, device_state=state)
        self._quiet_state = self._made_quiet(state.scratch, device)
        self._quiet = build_endpoints_from_group(group=unmapped, device_state=self._quiet_state)

    @staticmethod
    def _made_quiet(scratch: LaunchScratch, device: torch.device) -> CanaryDeviceState:
        """Where passes report that are not the last: nobody looks there."""
        counters = torch.zeros([2, len(layout.CanaryLaunchTag)], dtype=torch.int64, device=device)
        chain = torch.zeros([1], dtype=torch.int32, device=device)
        log = ViolationLog.allocate(ring_capacity=1, device=device)
        return CanaryDeviceState(log, counters[0], counters[1], chain, scratch)

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Everything that was allocated here."""
        plans = [getattr(p, f.name) for p in (self.verify_plan, self.write_plan) for f in dataclasses.fields(p)]
        own = (self._one_and_enable, self._prev, self.offsets, self._first, self._keep, self._slots, self._trash)
        rewritten = self._rewritten.tensors() if self._rewritten is not None else ()
        return (*plans, *own, *self._quiet_state.tensors(), *rewritten)

    # --- planning -----------------------------------------------------------------------------------------------------

    def plan(self, given: PlanInput, token_offset: int) -> None:
        """Plans the forward; nothing is allocated, nothing read back."""
        group, exclusions = self.group, self.exclusions
        mapping = group.full_to_swa_index_mapping
        launch_plan_offsets_kernel(
            req_pool_indices=given.req_pool_indices,
            prefix_lens=given.prefix_lens,
            extend_seq_lens=given.extend_seq_lens,
            req_to_token=given.req_to_token,
            full_to_swa_index_mapping=mapping,
            out_verify_offsets_scratch=self.offsets,
            out_write_offsets=self.write_plan.write_offsets,
            out_write_seed_slot_indices=self.write_plan.write_seed_slot_indices,
            out_verify_num_valid=self.verify_plan.verify_num_valid,
            out_verify_enable=self.verify_plan.enable,
            out_write_num_valid_reqs=self.write_plan.write_num_valid_reqs,
            swa_window_size=group.window_size,
            verify_capacity=self.config.verify_capacity,
        )
        if group.ring_size > 0:
            self._start_rings_anew(given.extend_seq_lens)
        if exclusions is not None:
            bs = given.req_pool_indices.shape[0]
            exclusions.start_anew(self.write_plan.write_seed_slot_indices[:bs])
            mapping = exclusions.mapping()
        launch_plan_entries_kernel(
            req_pool_indices=given.req_pool_indices,
            prefix_lens=given.prefix_lens,
            req_to_token=given.req_to_token,
            full_to_swa_index_mapping=mapping,
            verify_offsets_scratch=self.offsets,
            verify_enable=self.verify_plan.enable,
            req_to_verify_expected_tokens=given.expected_tokens,
            req_to_verify_expected_tokens_valid_lens=given.expected_tokens_valid_lens,
            out_verify_slot_indices=self.verify_plan.verify_slot_indices,
            out_verify_expected_tokens=self.verify_plan.verify_expected_tokens,
            out_verify_expected_positions=self.verify_plan.verify_expected_positions,
            out_verify_prev_slot_indices=self.verify_plan.verify_prev_slot_indices,
            kv_token_id_vs_position_offset=token_offset,
            swa_window_size=group.window_size,
        )
        if group.window_size > 0 and not group.first_has_predecessor:
            self._forget_predecessors(given.prefix_lens)
        self._counts.add_(self._one_and_enable)

    def _forget_predecessors(self, prefix_lens: torch.Tensor) -> None:
        """The slot before a window's first entry is gone: 0 in its place makes the link unverifiable."""
        bs, capacity = prefix_lens.shape[0], self.config.verify_capacity
        first, keep = self._first[:bs], self._keep[:bs]
        torch.clamp(self.offsets[:bs], min=0, max=capacity, out=first)
        # Requests whose window still begins at position 0, and those without entries, keep what they have.
        torch.le(prefix_lens, self.group.window_size, out=keep)
        first.masked_fill_(keep, capacity)
        torch.le(self.offsets[1 : bs + 1], self.offsets[:bs], out=keep)
        first.masked_fill_(keep, capacity)
        self._prev.scatter_(0, first, layout.TOKEN_TO_KV_SLOT_PADDING)

    def _start_rings_anew(self, extend_lens: torch.Tensor) -> None:
        """A request that goes round its ring stores no token that follows the one before: -1 begins its chain."""
        bs = extend_lens.shape[0]
        torch.gt(extend_lens, self.group.ring_size, out=self._keep[:bs])
        self.write_plan.write_seed_slot_indices[:bs].masked_fill_(self._keep[:bs], -1)

    def forget_rewritten(self, slots: torch.Tensor | None) -> None:
        """Leaves slots that the forward has written out of what is verified after it; None leaves nothing out."""
        self._later_plan = self.verify_plan
        if slots is not None:
            if self._rewritten is None:
                self._rewritten = _RewrittenSlots(self.group.num_slots, self.config.verify_capacity, self.group.device)
            planned = self._rewritten.without(self.verify_plan.verify_slot_indices, slots)
            self._later_plan = dataclasses.replace(self.verify_plan, verify_slot_indices=planned)

    def own_slots(self, slots: torch.Tensor) -> torch.Tensor:
        """Slots of the new tokens in this pool; -1 for what goes to the engine's trash."""
        found, count = slots, slots.shape[0]
        if self.group.full_to_swa_index_mapping is not None:
            found = self._slots[:count]
            found.copy_(self._scratch.translate(slots, self.group.full_to_swa_index_mapping))
        if self.group.trash_from is not None:
            if found is slots:
                found = self._slots[:count]
                found.copy_(slots)
            torch.ge(found, self.group.trash_from, out=self._trash[:count])
            found.masked_fill_(self._trash[:count], -1)
        return found

    # --- launching ----------------------------------------------------------------------------------------------------

    def launch(self, when: str, inputs: Inputs, slots: torch.Tensor, *, tokens: bool, passes: int) -> None:
        """Launches all stages that run `when`: before or after the forward."""
        for endpoint, quiet in zip(self.endpoints, self._quiet, strict=True):
            if stage_of(endpoint.tag).when == when:
                # A request that goes on from a slot of this very batch finds it written in a later pass.
                for _ in range(passes - 1):
                    self._launch(quiet, self._quiet_state.log, inputs, slots, tokens=False, asserts=False)
                asserts = self.config.assert_inputs and inputs.expected is not None
                self._launch(endpoint, self.log, inputs, slots, tokens=tokens, asserts=asserts)

    def _launch(
        self,
        endpoint: CanaryEndpoint,
        log: ViolationLog,
        inputs: Inputs,
        slots: torch.Tensor,
        *,
        tokens: bool,
        asserts: bool,
    ) -> None:
        given = endpoint.inputs(inputs.input_ids, inputs.positions, slots, asserts, inputs.expected)
        verify_plan = self.verify_plan if stage_of(endpoint.tag).when == "before" else self._later_plan
        plans = (verify_plan, self.write_plan)
        # The batch was checked as a whole, before anything was launched.
        endpoint.launch(*plans, given, tokens, log, self.config.hash_mode, checked=True)

    def request_of(self, wanted: Sequence[tuple[int, int | None]], bs: int, written: torch.Tensor) -> list[int | None]:
        """Which of the last batch's `bs` requests each slot belongs to; of several, one that expects this token there.

        Reads the plan, so it waits for the device.
        """
        count = min(max(0, int(self.verify_plan.verify_num_valid)), self.config.verify_capacity)
        count = count if int(self.verify_plan.enable) else 0
        planned = self.verify_plan.verify_slot_indices[:count]
        expected = self.verify_plan.verify_expected_tokens[:count]
        verified, stored = self.offsets[: bs + 1], self.write_plan.write_offsets[: bs + 1]
        found = []
        for slot, token in wanted:
            places = (planned == slot).nonzero().view(-1)
            fitting = places if token is None else places[expected[places] == token]
            owner = _owner(fitting if fitting.shape[0] else places, verified)
            found.append(_owner((written == slot).nonzero().view(-1), stored) if owner is None else owner)
        return found


class _RewrittenSlots:
    """Room to leave slots out of a plan; made when a batch first writes slots that it has cached."""

    def __init__(self, num_slots: int, capacity: int, device: torch.device) -> None:
        self._flags = torch.zeros([num_slots + 1], dtype=torch.bool, device=device)
        self._planned = torch.empty([capacity], dtype=torch.int64, device=device)
        self._found = torch.empty([capacity], dtype=torch.bool, device=device)

    def tensors(self) -> tuple[torch.Tensor, ...]:
        return self._flags, self._planned, self._found

    def without(self, planned: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """The planned slots with the padding slot, which is never verified, in place of those in `slots`."""
        behind = self._flags.shape[0] - 1
        written = slots.clamp(min=0, max=behind)
        self._flags.index_fill_(0, written, True)
        # What is out of range stays a violation.
        self._flags[behind:].fill_(False)
        torch.clamp(planned, min=0, max=behind, out=self._planned)
        torch.index_select(self._flags, 0, self._planned, out=self._found)
        self._planned.copy_(planned).masked_fill_(self._found, layout.TOKEN_TO_KV_SLOT_PADDING)
        self._flags.index_fill_(0, written, False)
        return self._planned


def _owner(places: torch.Tensor, starts: torch.Tensor) -> int | None:
    """The segment in which the first of these places lies."""
    if places.shape[0] == 0:
        return None
    segment = int((starts <= places[0]).sum()) - 1
    return segment if segment < starts.shape[0] - 1 else None


def check_capacity(what: str, have: int, name: str, want: int) -> None:
    """A batch fits what was allocated."""
    checks.kind(what, have, int)
    if have > want:
        raise errors.CanaryValueError(
            "KVC-053",
            f"kv-canary: {what} {have} exceeds {name}={want}; allocate more with {name}={have}, or split the batch",
        )
