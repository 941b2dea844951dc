# Written by kvcanary-gen from the spec; edit that instead.
"""Verifies the entries of one plan on every endpoint, in one launch; the same as one launch after the other.

Contract §4.
"""

from __future__ import annotations

import torch

from .. import structs
from ..core import bound, checks, dispatch, eager, tables
from . import verify_entries, verify_entries_of_many

# --- Public functions -------------------------------------------------------------------------------------------------


def launch_canary_verify_endpoints_kernel(
    *,
    contexts: tables.VerifyOrWriteContextTable,
    plan: structs.VerifyPlan,
    check_verify_expected_token: bool,
    backend: str | None = None,
) -> None:
    """Verifies the entries of one plan on every endpoint, in one launch; the same as one launch after the other.

    Contract §4. Outputs change in place; nothing is read back to the host.

    Args:
        contexts (VerifyOrWriteContextTable): The endpoints of one pool that verify together.
        plan (VerifyPlan): The entries to verify.
        check_verify_expected_token (bool): Whether stored tokens are compared with the request's history.
        backend (str, optional): 'triton' or 'reference'; chosen by KVCANARY_BACKEND or the device if None.

    Raises:
        CanaryError: and the rules on every tensor's dtype, rank, length, contiguity and device; all before anything is
            launched or written.
    """
    validate(
        "launch_canary_verify_endpoints_kernel",
        contexts=contexts,
        plan=plan,
        check_verify_expected_token=check_verify_expected_token,
    )
    if dispatch.use_triton(contexts.table, backend):
        launch(contexts=contexts, plan=plan, check_verify_expected_token=check_verify_expected_token)
    else:
        dispatch.refuse_capture("launch_canary_verify_endpoints_kernel", contexts.table)
        reference(contexts=contexts, plan=plan, check_verify_expected_token=check_verify_expected_token)


def bind_canary_verify_endpoints_kernel(
    *,
    contexts: tables.VerifyOrWriteContextTable,
    plan: structs.VerifyPlan,
    check_verify_expected_token: bool,
    backend: str | None = None,
) -> bound.Bound:
    """Checks the arguments of `launch_canary_verify_endpoints_kernel` once, for a launch that is repeated.

    Takes what `launch_canary_verify_endpoints_kernel` takes, and compiles what it would launch, but launches and writes
    nothing. Each call of what it returns then does the same as the launcher would with these arguments, at the cost of
    launching alone.

    Returns:
        Bound: To be called without arguments; says what may change between calls.

    Raises:
        CanaryError: as of `launch_canary_verify_endpoints_kernel`, here; a call checks no argument.
    """
    validate(
        "bind_canary_verify_endpoints_kernel",
        contexts=contexts,
        plan=plan,
        check_verify_expected_token=check_verify_expected_token,
    )
    if dispatch.use_triton(contexts.table, backend):
        return bound.kernels(
            "bind_canary_verify_endpoints_kernel",
            contexts.table,
            launch,
            contexts=contexts,
            plan=plan,
            check_verify_expected_token=check_verify_expected_token,
        )
    return bound.reference(
        "bind_canary_verify_endpoints_kernel",
        contexts.table,
        reference,
        contexts=contexts,
        plan=plan,
        check_verify_expected_token=check_verify_expected_token,
    )


def launch_canary_verify_endpoints_kernel_torch_reference(
    *,
    contexts: tables.VerifyOrWriteContextTable,
    plan: structs.VerifyPlan,
    check_verify_expected_token: bool,
) -> None:
    """Verifies the entries of one plan on every endpoint, in one launch; the same as one launch after the other.

    The reference: same arguments, same result, on any device. Contract §4.

    Raises:
        CanaryError: and the rules on every tensor's dtype, rank, length, contiguity and device; all before anything is
            launched or written.
    """
    validate(
        "launch_canary_verify_endpoints_kernel_torch_reference",
        contexts=contexts,
        plan=plan,
        check_verify_expected_token=check_verify_expected_token,
    )
    dispatch.refuse_capture("launch_canary_verify_endpoints_kernel_torch_reference", contexts.table)
    reference(contexts=contexts, plan=plan, check_verify_expected_token=check_verify_expected_token)


# --- Validation -------------------------------------------------------------------------------------------------------


def validate(
    op: str,
    *,
    contexts: tables.VerifyOrWriteContextTable,
    plan: structs.VerifyPlan,
    check_verify_expected_token: bool,
) -> None:
    """Checks metadata alone and raises the first rule broken; `op` is the public function called."""
    checks.table("contexts", contexts, tables.VerifyOrWriteContextTable)
    checks.kind("plan", plan, structs.VerifyPlan)
    tensors: checks.Tensors = [
        ("contexts.table", contexts.table, torch.int64, 2),
        ("plan.verify_slot_indices", plan.verify_slot_indices, torch.int64, 1),
        ("plan.verify_expected_tokens", plan.verify_expected_tokens, torch.int64, 1),
        ("plan.verify_expected_positions", plan.verify_expected_positions, torch.int64, 1),
        ("plan.verify_prev_slot_indices", plan.verify_prev_slot_indices, torch.int64, 1),
        ("plan.verify_num_valid", plan.verify_num_valid, torch.int32, 1),
        ("plan.enable", plan.enable, torch.int32, 1),
    ]
    checks.kinds(tensors)
    checks.kind("check_verify_expected_token", check_verify_expected_token, bool)
    checks.dtypes(tensors)
    checks.ranks(tensors)
    verify_slot_indices_len = checks.size("plan.verify_slot_indices", plan.verify_slot_indices, 1, 0)
    checks.length("plan.verify_expected_tokens", plan.verify_expected_tokens.shape[0], verify_slot_indices_len)
    checks.length("plan.verify_expected_positions", plan.verify_expected_positions.shape[0], verify_slot_indices_len)
    checks.length("plan.verify_prev_slot_indices", plan.verify_prev_slot_indices.shape[0], verify_slot_indices_len)
    checks.length("plan.verify_num_valid", plan.verify_num_valid.shape[0], 1)
    checks.length("plan.enable", plan.enable.shape[0], 1)
    checks.contiguous(tensors)
    checks.devices(tensors)
    checks.aligned(tensors)


# --- Kernels ----------------------------------------------------------------------------------------------------------


def launch(
    *,
    contexts: tables.VerifyOrWriteContextTable,
    plan: structs.VerifyPlan,
    check_verify_expected_token: bool,
    run: dispatch.Run = dispatch.launch,
) -> None:
    """Launches the kernels on valid arguments. Nothing is allocated, and no device data is read."""
    verify_entries_of_many.launch(
        contexts=contexts,
        verify_slot_indices=plan.verify_slot_indices,
        verify_expected_tokens=plan.verify_expected_tokens,
        verify_expected_positions=plan.verify_expected_positions,
        verify_prev_slot_indices=plan.verify_prev_slot_indices,
        verify_num_valid=plan.verify_num_valid,
        verify_enable=plan.enable,
        check_verify_expected_token=check_verify_expected_token,
        run=run,
    )


# --- Reference --------------------------------------------------------------------------------------------------------


def reference(
    *,
    contexts: tables.VerifyOrWriteContextTable,
    plan: structs.VerifyPlan,
    check_verify_expected_token: bool,
) -> None:
    """The kernels' references on valid arguments."""
    for context in contexts:
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
            kernel_kind=eager.scalar(context.kernel_kind, contexts.table),
            real_kv_hash_mode=context.real_kv_hash_mode,
            check_verify_expected_token=check_verify_expected_token,
        )
