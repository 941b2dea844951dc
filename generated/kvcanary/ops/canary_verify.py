# Written by kvcanary-gen from the spec; edit that instead.
"""Verifies the fingerprints of all planned entries; whatever does not fit becomes a row of the violation ring.

Contract §4.
"""

from __future__ import annotations

import torch

from .. import layout, structs
from ..core import bound, checks, dispatch, eager, sources
from . import verify_entries

# --- Public functions -------------------------------------------------------------------------------------------------


def launch_canary_verify_kernel(
    *,
    context: structs.VerifyOrWriteContext,
    plan: structs.VerifyPlan,
    check_verify_expected_token: bool,
    backend: str | None = None,
) -> None:
    """Verifies the fingerprints of all planned entries; whatever does not fit becomes a row of the violation ring.

    Contract §4. Outputs change in place; nothing is read back to the host.

    Args:
        context (VerifyOrWriteContext): The endpoint's buffers.
        plan (VerifyPlan): The entries to verify.
        check_verify_expected_token (bool): Whether stored tokens are compared with the request's history.
        backend (str, optional): 'triton' or 'reference'; chosen by KVCANARY_BACKEND or the device if None.

    Raises:
        CanaryError: and the rules on every tensor's dtype, rank, length, contiguity and device; all before anything is
            launched or written.
    """
    validate(
        "launch_canary_verify_kernel",
        context=context,
        plan=plan,
        check_verify_expected_token=check_verify_expected_token,
    )
    if dispatch.use_triton(context.canary_buf, backend):
        launch(context=context, plan=plan, check_verify_expected_token=check_verify_expected_token)
    else:
        dispatch.refuse_capture("launch_canary_verify_kernel", context.canary_buf)
        reference(context=context, plan=plan, check_verify_expected_token=check_verify_expected_token)


def bind_canary_verify_kernel(
    *,
    context: structs.VerifyOrWriteContext,
    plan: structs.VerifyPlan,
    check_verify_expected_token: bool,
    backend: str | None = None,
) -> bound.Bound:
    """Checks the arguments of `launch_canary_verify_kernel` once, for a launch that is repeated.

    Takes what `launch_canary_verify_kernel` takes, and compiles what it would launch, but launches and writes nothing.
    Each call of what it returns then does the same as the launcher would with these arguments, at the cost of launching
    alone.

    Returns:
        Bound: To be called without arguments; says what may change between calls.

    Raises:
        CanaryError: as of `launch_canary_verify_kernel`, here; a call checks no argument.
    """
    validate(
        "bind_canary_verify_kernel", context=context, plan=plan, check_verify_expected_token=check_verify_expected_token
    )
    if dispatch.use_triton(context.canary_buf, backend):
        return bound.kernels(
            "bind_canary_verify_kernel",
            context.canary_buf,
            launch,
            context=context,
            plan=plan,
            check_verify_expected_token=check_verify_expected_token,
        )
    return bound.reference(
        "bind_canary_verify_kernel",
        context.canary_buf,
        reference,
        context=context,
        plan=plan,
        check_verify_expected_token=check_verify_expected_token,
    )


def launch_canary_verify_kernel_torch_reference(
    *,
    context: structs.VerifyOrWriteContext,
    plan: structs.VerifyPlan,
    check_verify_expected_token: bool,
) -> None:
    """Verifies the fingerprints of all planned entries; whatever does not fit becomes a row of the violation ring.

    The reference: same arguments, same result, on any device. Contract §4.

    Raises:
        CanaryError: and the rules on every tensor's dtype, rank, length, contiguity and device; all before anything is
            launched or written.
    """
    validate(
        "launch_canary_verify_kernel_torch_reference",
        context=context,
        plan=plan,
        check_verify_expected_token=check_verify_expected_token,
    )
    dispatch.refuse_capture("launch_canary_verify_kernel_torch_reference", context.canary_buf)
    reference(context=context, plan=plan, check_verify_expected_token=check_verify_expected_token)


# --- Validation -------------------------------------------------------------------------------------------------------


def validate(
    op: str,
    *,
    context: structs.VerifyOrWriteContext,
    plan: structs.VerifyPlan,
    check_verify_expected_token: bool,
) -> None:
    """Checks metadata alone and raises the first rule broken; `op` is the public function called."""
    checks.kind("context", context, structs.VerifyOrWriteContext)
    checks.kind("plan", plan, structs.VerifyPlan)
    tensors: checks.Tensors = [
        ("context.canary_buf", context.canary_buf, torch.uint8, 2),
        ("context.violation_ring", context.violation_ring, torch.int64, 2),
        ("context.violation_write_index", context.violation_write_index, torch.int32, 1),
        ("context.slot_run_counter", context.slot_run_counter, torch.int64, 1),
        ("context.kernel_run_counter", context.kernel_run_counter, torch.int64, 1),
        ("context.enable_chain_position_assert", context.enable_chain_position_assert, torch.int32, 1),
        ("plan.verify_slot_indices", plan.verify_slot_indices, torch.int64, 1),
        ("plan.verify_expected_tokens", plan.verify_expected_tokens, torch.int64, 1),
        ("plan.verify_expected_positions", plan.verify_expected_positions, torch.int64, 1),
        ("plan.verify_prev_slot_indices", plan.verify_prev_slot_indices, torch.int64, 1),
        ("plan.verify_num_valid", plan.verify_num_valid, torch.int32, 1),
        ("plan.enable", plan.enable, torch.int32, 1),
    ]
    checks.kinds(tensors)
    checks.kind("check_verify_expected_token", check_verify_expected_token, bool)
    checks.kind("context.kernel_kind", context.kernel_kind, int)
    sources.real_kv_source_kinds("context.real_kv_sources", context.real_kv_sources)
    checks.kind("context.real_kv_hash_mode", context.real_kv_hash_mode, layout.RealKvHashMode)
    checks.int64("context.kernel_kind", context.kernel_kind)
    sources.real_kv_source_sizes("context.real_kv_sources", context.real_kv_sources)
    checks.dtypes(tensors)
    checks.ranks(tensors)
    checks.at_least("context.canary_buf.shape[1]", context.canary_buf.shape[1], layout.SLOT_BYTES)
    checks.length("context.violation_ring.shape[1]", context.violation_ring.shape[1], layout.VIOLATION_NUM_FIELDS)
    checks.length("context.violation_write_index", context.violation_write_index.shape[0], 1)
    checks.length("context.slot_run_counter", context.slot_run_counter.shape[0], 1)
    checks.length("context.kernel_run_counter", context.kernel_run_counter.shape[0], 1)
    checks.length("context.enable_chain_position_assert", context.enable_chain_position_assert.shape[0], 1)
    verify_slot_indices_len = checks.size("plan.verify_slot_indices", plan.verify_slot_indices, 1, 0)
    checks.length("plan.verify_expected_tokens", plan.verify_expected_tokens.shape[0], verify_slot_indices_len)
    checks.length("plan.verify_expected_positions", plan.verify_expected_positions.shape[0], verify_slot_indices_len)
    checks.length("plan.verify_prev_slot_indices", plan.verify_prev_slot_indices.shape[0], verify_slot_indices_len)
    checks.length("plan.verify_num_valid", plan.verify_num_valid.shape[0], 1)
    checks.length("plan.enable", plan.enable.shape[0], 1)
    checks.contiguous(tensors)
    checks.devices(tensors)
    sources.real_kv_source_devices("context.real_kv_sources", context.real_kv_sources, tensors)
    checks.aligned(tensors)
    checks.words("context.canary_buf", context.canary_buf)
    sources.real_kv_source_count("context.real_kv_sources", context.real_kv_sources, 4)
    sources.real_kv_source_values("context.real_kv_sources", context.real_kv_sources)
    sources.real_kv_source_geometry("context.real_kv_sources", context.real_kv_sources)


# --- Kernels ----------------------------------------------------------------------------------------------------------


def launch(
    *,
    context: structs.VerifyOrWriteContext,
    plan: structs.VerifyPlan,
    check_verify_expected_token: bool,
    run: dispatch.Run = dispatch.launch,
) -> None:
    """Launches the kernels on valid arguments. Nothing is allocated, and no device data is read."""
    verify_entries.launch(
        canary_buf=context.canary_buf,
        verify_slot_indices=plan.verify_slot_indices,
        verify_expected_tokens=plan.verify_expected_tokens,
        verify_expected_positions=plan.verify_expected_positions,
        verify_prev_slot_indices=plan.verify_prev_slot_indices,
        verify_num_valid=plan.verify_num_valid,
        verify_enable=plan.enable,
        violation_ring=context.violation_ring,
        violation_write_index=context.violation_write_index,
        slot_run_counter=context.slot_run_counter,
        kernel_run_counter=context.kernel_run_counter,
        real_kv_sources=context.real_kv_sources,
        kernel_kind=context.kernel_kind,
        real_kv_hash_mode=context.real_kv_hash_mode,
        check_verify_expected_token=check_verify_expected_token,
        run=run,
    )


# --- Reference --------------------------------------------------------------------------------------------------------


def reference(
    *,
    context: structs.VerifyOrWriteContext,
    plan: structs.VerifyPlan,
    check_verify_expected_token: bool,
) -> None:
    """The kernels' references on valid arguments."""
    verify_entries.reference(
        canary_buf=context.canary_buf,
        verify_slot_indices=plan.verify_slot_indices,
        verify_expected_tokens=plan.verify_expected_tokens,
        verify_expected_positions=plan.verify_expected_positions,
        verify_prev_slot_indices=plan.verify_prev_slot_indices,
        verify_num_valid=plan.verify_num_valid,
        verify_enable=plan.enable,
        violation_ring=context.violation_ring,
        violation_write_index=context.violation_write_index,
        slot_run_counter=context.slot_run_counter,
        kernel_run_counter=context.kernel_run_counter,
        real_kv_sources=context.real_kv_sources,
        kernel_kind=eager.scalar(context.kernel_kind, context.canary_buf),
        real_kv_hash_mode=context.real_kv_hash_mode,
        check_verify_expected_token=check_verify_expected_token,
    )
