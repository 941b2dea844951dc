# Written by kvcanary-gen from the spec; edit that instead.
"""Endpoints: the launches of one stage on one half of one pool. Contract §7."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import errors, layout
from ..ops import canary_verify, canary_write
from ..structs import RealKvSource, VerifyOrWriteContext, VerifyPlan, WritePlan
from .groups import CanaryBufferGroup
from .scratch import LaunchScratch
from .stages import STAGES, launch_tag, stage_of
from .state import CanaryDeviceState, ExpectedInputs, ViolationLog

__all__ = [
    "CanaryEndpoint",
    "build_endpoints_from_group",
    "launch_endpoints_per_forward",
    "launch_endpoints_sweep",
]


@dataclass(frozen=True, eq=False)
class CanaryEndpoint:
    """One launch tag of one pool: what it verifies, writes and counts.

    Attributes:
        tag (CanaryLaunchTag): Stands in its violation rows.
        canary_buf (uint8 [num_slots, >= SLOT_BYTES]): The fingerprints; stages may share a buffer.
        real_kv_sources: What is hashed; empty for stages without real KV.
        full_to_swa_index_mapping (int64 [full slots], optional): Translates the slots of a forward.
        slot_run_counter (int64 [1]): Entries checked or stored so far.
        kernel_run_counter (int64 [1]): Launches so far.
        enable_chain_position_assert (int32 [1]): Whether write asserts that positions follow each other.
        scratch (LaunchScratch): Room for translated slots and for the seeds of a write.
    """

    tag: layout.CanaryLaunchTag
    canary_buf: torch.Tensor
    real_kv_sources: Sequence[RealKvSource]
    full_to_swa_index_mapping: torch.Tensor | None
    slot_run_counter: torch.Tensor
    kernel_run_counter: torch.Tensor
    enable_chain_position_assert: torch.Tensor
    scratch: LaunchScratch

    def launch_per_forward(
        self,
        *,
        verify_plan: VerifyPlan,
        write_plan: WritePlan,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        out_cache_loc: torch.Tensor,
        enable_write_input_assert: bool,
        enable_verify_token_assert: bool,
        expected_inputs: ExpectedInputs | None,
        violation_log: ViolationLog,
        real_kv_hash_mode: layout.RealKvHashMode,
    ) -> None:
        """Verifies what is cached, then writes what the forward adds; whichever of them the stage does.

        Contract §7. Launches alone: nothing is allocated and nothing read back, so a CUDA graph can hold it.

        Args:
            verify_plan (VerifyPlan): The entries to verify, in slots of this pool.
            write_plan (WritePlan): The segments to write.
            input_ids (int64 [num_new_tokens]): Token ids of the entries.
            positions (int64 [num_new_tokens]): Positions of the entries.
            out_cache_loc (int64 [num_new_tokens]): Slots of the entries as the engine gives them; where the pool has a
                mapping, it translates them first.
            enable_write_input_assert (bool): Whether inputs are compared with `expected_inputs`.
            enable_verify_token_assert (bool): Whether stored tokens are compared with the plan's.
            expected_inputs (ExpectedInputs, optional): What the inputs should be.
            violation_log (ViolationLog): Receives a row for whatever does not fit.
            real_kv_hash_mode (RealKvHashMode): How much of the real KV bytes is hashed.

        Raises:
            CanaryNotImplementedError: KVC-050 on a sweep endpoint.
            CanaryValueError: KVC-053 when there are more entries than scratch; those of the launchers.
        """
        tag = self.tag.name
        if layout.is_sweep_tag(self.tag):
            raise errors.CanaryNotImplementedError(
                "KVC-050", f"kv-canary: launch_per_forward not supported on sweep endpoint {tag}"
            )
        inputs = self.inputs(input_ids, positions, out_cache_loc, enable_write_input_assert, expected_inputs)
        self.launch(
            verify_plan,
            write_plan,
            inputs,
            enable_verify_token_assert,
            violation_log,
            real_kv_hash_mode,
            checked=False,
        )

    def inputs(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        out_cache_loc: torch.Tensor,
        enable_write_input_assert: bool,
        expected_inputs: ExpectedInputs | None,
    ) -> dict[str, Any]:
        """The inputs as the write launcher takes them."""
        return {
            "input_ids": input_ids,
            "positions": positions,
            "out_cache_loc": out_cache_loc,
            "enable_write_input_assert": enable_write_input_assert,
            "expected_input_tokens": expected_inputs.tokens if expected_inputs is not None else None,
            "expected_input_positions": expected_inputs.positions if expected_inputs is not None else None,
            "workspace": self.scratch.write_workspace,
        }

    def launch(
        self,
        verify_plan: VerifyPlan,
        write_plan: WritePlan,
        inputs: dict[str, Any],
        check_tokens: bool,
        log: ViolationLog,
        mode: layout.RealKvHashMode,
        *,
        checked: bool,
    ) -> None:
        """Verifies and writes. Unless the inputs were `checked`, those of write are looked at before verify runs."""
        operations = stage_of(self.tag).operations
        context = self._context(log, mode)
        if "write" in operations and not checked:
            self.scratch.check(inputs["out_cache_loc"])
            canary_write.validate("launch_canary_write_kernel", context=context, plan=write_plan, **inputs)
        if "write" in operations and self.full_to_swa_index_mapping is not None:
            inputs["out_cache_loc"] = self.scratch.translate(inputs["out_cache_loc"], self.full_to_swa_index_mapping)
        if "verify" in operations:
            canary_verify.launch_canary_verify_kernel(
                context=context, plan=verify_plan, check_verify_expected_token=check_tokens
            )
        if "write" in operations:
            canary_write.launch_canary_write_kernel(context=context, plan=write_plan, **inputs)

    def launch_sweep(
        self,
        *,
        verify_plan: VerifyPlan,
        violation_log: ViolationLog,
        real_kv_hash_mode: layout.RealKvHashMode,
        enable_verify_token_assert: bool = False,
    ) -> None:
        """Verifies what the plan names. Contract §7.

        Args:
            verify_plan (VerifyPlan): The entries to verify, in slots of this pool.
            violation_log (ViolationLog): Receives a row for whatever does not fit.
            real_kv_hash_mode (RealKvHashMode): How much of the real KV bytes is hashed; as in the forwards that wrote.
            enable_verify_token_assert (bool): Whether stored tokens are compared with the plan's, for caches that know
                the token of a slot.

        Raises:
            CanaryNotImplementedError: KVC-051 on an endpoint that runs around each forward.
        """
        tag = self.tag.name
        if not layout.is_sweep_tag(self.tag):
            raise errors.CanaryNotImplementedError(
                "KVC-051", f"kv-canary: launch_sweep not supported on non-sweep endpoint {tag}"
            )
        canary_verify.launch_canary_verify_kernel(
            context=self._context(violation_log, real_kv_hash_mode),
            plan=verify_plan,
            check_verify_expected_token=enable_verify_token_assert,
        )

    def _context(self, log: ViolationLog, mode: layout.RealKvHashMode) -> VerifyOrWriteContext:
        return VerifyOrWriteContext(
            canary_buf=self.canary_buf,
            kernel_kind=int(self.tag),
            violation_ring=log.violation_ring,
            violation_write_index=log.violation_write_index,
            slot_run_counter=self.slot_run_counter,
            kernel_run_counter=self.kernel_run_counter,
            real_kv_sources=self.real_kv_sources,
            # Without sources every mode hashes to 0, and one mode is one compiled kernel.
            real_kv_hash_mode=mode if self.real_kv_sources else layout.RealKvHashMode.NONE,
            enable_chain_position_assert=self.enable_chain_position_assert,
        )


def build_endpoints_from_group(
    *, group: CanaryBufferGroup, device_state: CanaryDeviceState
) -> tuple[CanaryEndpoint, ...]:
    """An endpoint for each launch tag that the pool has, stages in the order of the spec. Contract §7.

    Args:
        group (CanaryBufferGroup): The pool's buffers and sources.
        device_state (CanaryDeviceState): Counters, flags and scratch that the endpoints share.
    """
    endpoints = []
    for stage in STAGES:
        for half in group.halves:
            tag = launch_tag(stage.name, half, group.pool_kind)
            endpoints.append(
                CanaryEndpoint(
                    tag=tag,
                    canary_buf=group.buffers[stage.buffer][half],
                    real_kv_sources=group.real_kv_sources.get(half, ()) if stage.real_kv else (),
                    full_to_swa_index_mapping=group.full_to_swa_index_mapping,
                    slot_run_counter=device_state.slot_run_counters[tag : tag + 1],
                    kernel_run_counter=device_state.kernel_run_counters[tag : tag + 1],
                    enable_chain_position_assert=device_state.enable_chain_position_assert,
                    scratch=device_state.scratch,
                )
            )
    return tuple(endpoints)


def launch_endpoints_per_forward(
    *,
    endpoints: Sequence[CanaryEndpoint],
    verify_plan: VerifyPlan,
    write_plan: WritePlan,
    input_ids: torch.Tensor,
    positions: torch.Tensor,
    out_cache_loc: torch.Tensor,
    enable_write_input_assert: bool,
    enable_verify_token_assert: bool,
    expected_inputs: ExpectedInputs | None,
    violation_log: ViolationLog,
    real_kv_hash_mode: layout.RealKvHashMode,
) -> None:
    """`CanaryEndpoint.launch_per_forward` of endpoints of one pool, in their order. Contract §7."""
    for endpoint in endpoints:
        endpoint.launch_per_forward(
            verify_plan=verify_plan,
            write_plan=write_plan,
            input_ids=input_ids,
            positions=positions,
            out_cache_loc=out_cache_loc,
            enable_write_input_assert=enable_write_input_assert,
            enable_verify_token_assert=enable_verify_token_assert,
            expected_inputs=expected_inputs,
            violation_log=violation_log,
            real_kv_hash_mode=real_kv_hash_mode,
        )


def launch_endpoints_sweep(
    *,
    endpoints: Sequence[CanaryEndpoint],
    verify_plan: VerifyPlan,
    violation_log: ViolationLog,
    real_kv_hash_mode: layout.RealKvHashMode,
    enable_verify_token_assert: bool = False,
) -> None:
    """`CanaryEndpoint.launch_sweep` of endpoints of one pool, in their order. Contract §7."""
    for endpoint in endpoints:
        endpoint.launch_sweep(
            verify_plan=verify_plan,
            violation_log=violation_log,
            real_kv_hash_mode=real_kv_hash_mode,
            enable_verify_token_assert=enable_verify_token_assert,
        )
