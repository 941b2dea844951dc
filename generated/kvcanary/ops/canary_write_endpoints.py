# Written by kvcanary-gen from the spec; edit that instead.
"""Writes the fingerprints of the new tokens on every endpoint at once; the same as one write after the other.

Contract §5.
"""

from __future__ import annotations

import torch

from .. import errors, layout, structs
from ..core import bound, checks, dispatch, eager, tables
from . import write_entries, write_entries_of_many

# --- Public functions -------------------------------------------------------------------------------------------------


def launch_canary_write_endpoints_kernel(
    *,
    contexts: tables.VerifyOrWriteContextTable,
    plan: structs.WritePlan,
    input_ids: torch.Tensor,
    positions: torch.Tensor,
    out_cache_loc: torch.Tensor,
    enable_write_input_assert: bool,
    expected_input_tokens: torch.Tensor | None = None,
    expected_input_positions: torch.Tensor | None = None,
    workspace: torch.Tensor | None = None,
    backend: str | None = None,
) -> None:
    """Writes the fingerprints of the new tokens on every endpoint at once; the same as one write after the other.

    Contract §5. Outputs change in place; nothing is read back to the host.

    Args:
        contexts (VerifyOrWriteContextTable): The endpoints of one pool that write together.
        plan (WritePlan): The segments to write.
        input_ids (int64 [num_new_tokens]): Token ids of the entries.
        positions (int64 [num_new_tokens]): Positions of the entries in their requests.
        out_cache_loc (int64 [num_new_tokens]): Slots of the entries, translated to the group's pool; negative ones are
            skipped.
        enable_write_input_assert (bool): Whether tokens and positions are compared with the expected ones.
        expected_input_tokens (int64 [num_new_tokens], optional): Token ids that the entries should have.
        expected_input_positions (int64 [num_new_tokens], optional): Positions that the entries should have.
        workspace (int64 [>= num_contexts * (num_new_tokens + write_req_capacity), WRITE_CHAIN_NUM_FIELDS], optional):
            Scratch for the chains of each endpoint; allocated when missing, so pass your own under graph capture.
        backend (str, optional): 'triton' or 'reference'; chosen by KVCANARY_BACKEND or the device if None.

    Raises:
        CanaryError: KVC-034 for this operation, and the rules on every tensor's dtype, rank, length, contiguity and
            device; all before anything is launched or written.
    """
    validate(
        "launch_canary_write_endpoints_kernel",
        contexts=contexts,
        plan=plan,
        input_ids=input_ids,
        positions=positions,
        out_cache_loc=out_cache_loc,
        enable_write_input_assert=enable_write_input_assert,
        expected_input_tokens=expected_input_tokens,
        expected_input_positions=expected_input_positions,
        workspace=workspace,
    )
    if workspace is None:
        lengths = [
            contexts.table.shape[0] * (input_ids.shape[0] + plan.write_seed_slot_indices.shape[0]),
            layout.WRITE_CHAIN_NUM_FIELDS,
        ]
        workspace = torch.empty(lengths, dtype=torch.int64, device=contexts.table.device)
    if dispatch.use_triton(contexts.table, backend):
        launch(
            contexts=contexts,
            plan=plan,
            input_ids=input_ids,
            positions=positions,
            out_cache_loc=out_cache_loc,
            enable_write_input_assert=enable_write_input_assert,
            expected_input_tokens=expected_input_tokens,
            expected_input_positions=expected_input_positions,
            workspace=workspace,
        )
    else:
        dispatch.refuse_capture("launch_canary_write_endpoints_kernel", contexts.table)
        reference(
            contexts=contexts,
            plan=plan,
            input_ids=input_ids,
            positions=positions,
            out_cache_loc=out_cache_loc,
            enable_write_input_assert=enable_write_input_assert,
            expected_input_tokens=expected_input_tokens,
            expected_input_positions=expected_input_positions,
            workspace=workspace,
        )


def bind_canary_write_endpoints_kernel(
    *,
    contexts: tables.VerifyOrWriteContextTable,
    plan: structs.WritePlan,
    input_ids: torch.Tensor,
    positions: torch.Tensor,
    out_cache_loc: torch.Tensor,
    enable_write_input_assert: bool,
    expected_input_tokens: torch.Tensor | None = None,
    expected_input_positions: torch.Tensor | None = None,
    workspace: torch.Tensor | None = None,
    backend: str | None = None,
) -> bound.Bound:
    """Checks the arguments of `launch_canary_write_endpoints_kernel` once, for a launch that is repeated.

    Takes what `launch_canary_write_endpoints_kernel` takes, and compiles what it would launch, but launches and writes
    nothing. Each call of what it returns then does the same as the launcher would with these arguments, at the cost of
    launching alone.

    Returns:
        Bound: To be called without arguments; says what may change between calls.

    Raises:
        CanaryError: as of `launch_canary_write_endpoints_kernel`, here; a call checks no argument.
    """
    validate(
        "bind_canary_write_endpoints_kernel",
        contexts=contexts,
        plan=plan,
        input_ids=input_ids,
        positions=positions,
        out_cache_loc=out_cache_loc,
        enable_write_input_assert=enable_write_input_assert,
        expected_input_tokens=expected_input_tokens,
        expected_input_positions=expected_input_positions,
        workspace=workspace,
    )
    if workspace is None:
        lengths = [
            contexts.table.shape[0] * (input_ids.shape[0] + plan.write_seed_slot_indices.shape[0]),
            layout.WRITE_CHAIN_NUM_FIELDS,
        ]
        workspace = torch.empty(lengths, dtype=torch.int64, device=contexts.table.device)
    if dispatch.use_triton(contexts.table, backend):
        return bound.kernels(
            "bind_canary_write_endpoints_kernel",
            contexts.table,
            launch,
            contexts=contexts,
            plan=plan,
            input_ids=input_ids,
            positions=positions,
            out_cache_loc=out_cache_loc,
            enable_write_input_assert=enable_write_input_assert,
            expected_input_tokens=expected_input_tokens,
            expected_input_positions=expected_input_positions,
            workspace=workspace,
        )
    return bound.reference(
        "bind_canary_write_endpoints_kernel",
        contexts.table,
        reference,
        contexts=contexts,
        plan=plan,
        input_ids=input_ids,
        positions=positions,
        out_cache_loc=out_cache_loc,
        enable_write_input_assert=enable_write_input_assert,
        expected_input_tokens=expected_input_tokens,
        expected_input_positions=expected_input_positions,
        workspace=workspace,
    )


def launch_canary_write_endpoints_kernel_torch_reference(
    *,
    contexts: tables.VerifyOrWriteContextTable,
    plan: structs.WritePlan,
    input_ids: torch.Tensor,
    positions: torch.Tensor,
    out_cache_loc: torch.Tensor,
    enable_write_input_assert: bool,
    expected_input_tokens: torch.Tensor | None = None,
    expected_input_positions: torch.Tensor | None = None,
    workspace: torch.Tensor | None = None,
) -> None:
    """Writes the fingerprints of the new tokens on every endpoint at once; the same as one write after the other.

    The reference: same arguments, same result, on any device. Contract §5.

    Raises:
        CanaryError: KVC-034 for this operation, and the rules on every tensor's dtype, rank, length, contiguity and
            device; all before anything is launched or written.
    """
    validate(
        "launch_canary_write_endpoints_kernel_torch_reference",
        contexts=contexts,
        plan=plan,
        input_ids=input_ids,
        positions=positions,
        out_cache_loc=out_cache_loc,
        enable_write_input_assert=enable_write_input_assert,
        expected_input_tokens=expected_input_tokens,
        expected_input_positions=expected_input_positions,
        workspace=workspace,
    )
    dispatch.refuse_capture("launch_canary_write_endpoints_kernel_torch_reference", contexts.table)
    if workspace is None:
        lengths = [
            contexts.table.shape[0] * (input_ids.shape[0] + plan.write_seed_slot_indices.shape[0]),
            layout.WRITE_CHAIN_NUM_FIELDS,
        ]
        workspace = torch.empty(lengths, dtype=torch.int64, device=contexts.table.device)
    reference(
        contexts=contexts,
        plan=plan,
        input_ids=input_ids,
        positions=positions,
        out_cache_loc=out_cache_loc,
        enable_write_input_assert=enable_write_input_assert,
        expected_input_tokens=expected_input_tokens,
        expected_input_positions=expected_input_positions,
        workspace=workspace,
    )


# --- Validation -------------------------------------------------------------------------------------------------------


def validate(
    op: str,
    *,
    contexts: tables.VerifyOrWriteContextTable,
    plan: structs.WritePlan,
    input_ids: torch.Tensor,
    positions: torch.Tensor,
    out_cache_loc: torch.Tensor,
    enable_write_input_assert: bool,
    expected_input_tokens: torch.Tensor | None,
    expected_input_positions: torch.Tensor | None,
    workspace: torch.Tensor | None,
) -> None:
    """Checks metadata alone and raises the first rule broken; `op` is the public function called."""
    checks.table("contexts", contexts, tables.VerifyOrWriteContextTable)
    checks.kind("plan", plan, structs.WritePlan)
    tensors: checks.Tensors = [
        ("contexts.table", contexts.table, torch.int64, 2),
        ("plan.write_offsets", plan.write_offsets, torch.int64, 1),
        ("plan.write_seed_slot_indices", plan.write_seed_slot_indices, torch.int64, 1),
        ("plan.write_num_valid_reqs", plan.write_num_valid_reqs, torch.int32, 1),
        ("input_ids", input_ids, torch.int64, 1),
        ("positions", positions, torch.int64, 1),
        ("out_cache_loc", out_cache_loc, torch.int64, 1),
    ]
    if expected_input_tokens is not None:
        tensors.append(("expected_input_tokens", expected_input_tokens, torch.int64, 1))
    if expected_input_positions is not None:
        tensors.append(("expected_input_positions", expected_input_positions, torch.int64, 1))
    if workspace is not None:
        tensors.append(("workspace", workspace, torch.int64, 2))
    checks.kinds(tensors)
    checks.kind("enable_write_input_assert", enable_write_input_assert, bool)
    checks.dtypes(tensors)
    checks.ranks(tensors)
    write_seed_slot_indices_len = checks.size("plan.write_seed_slot_indices", plan.write_seed_slot_indices, 1, 0)
    checks.length("plan.write_offsets", plan.write_offsets.shape[0], write_seed_slot_indices_len + 1)
    checks.length("plan.write_num_valid_reqs", plan.write_num_valid_reqs.shape[0], 1)
    num_new_tokens = checks.size("input_ids", input_ids, 1, 0)
    checks.length("positions", positions.shape[0], num_new_tokens)
    checks.length("out_cache_loc", out_cache_loc.shape[0], num_new_tokens)
    if expected_input_tokens is not None:
        checks.length("expected_input_tokens", expected_input_tokens.shape[0], num_new_tokens)
    if expected_input_positions is not None:
        checks.length("expected_input_positions", expected_input_positions.shape[0], num_new_tokens)
    num_contexts = checks.size("contexts.table", contexts.table, 2, 0)
    if workspace is not None:
        checks.at_least("workspace", workspace.shape[0], num_contexts * (num_new_tokens + write_seed_slot_indices_len))
    if workspace is not None:
        checks.length("workspace.shape[1]", workspace.shape[1], layout.WRITE_CHAIN_NUM_FIELDS)
    checks.contiguous(tensors)
    checks.devices(tensors)
    checks.aligned(tensors)
    if enable_write_input_assert and (expected_input_tokens is None or expected_input_positions is None):
        raise errors.CanaryValueError(
            "KVC-034",
            f"kv-canary: {op} requires expected_input_tokens and expected_input_positions when "
            "enable_write_input_assert is set",
        )
    contexts.apart("contexts", "canary_buf")


# --- Kernels ----------------------------------------------------------------------------------------------------------


def launch(
    *,
    contexts: tables.VerifyOrWriteContextTable,
    plan: structs.WritePlan,
    input_ids: torch.Tensor,
    positions: torch.Tensor,
    out_cache_loc: torch.Tensor,
    enable_write_input_assert: bool,
    expected_input_tokens: torch.Tensor | None,
    expected_input_positions: torch.Tensor | None,
    workspace: torch.Tensor,
    run: dispatch.Run = dispatch.launch,
) -> None:
    """Launches the kernels on valid arguments. Nothing is allocated, and no device data is read."""
    write_entries_of_many.launch(
        contexts=contexts,
        write_offsets=plan.write_offsets,
        write_seed_slot_indices=plan.write_seed_slot_indices,
        write_num_valid_reqs=plan.write_num_valid_reqs,
        input_ids=input_ids,
        positions=positions,
        out_cache_loc=out_cache_loc,
        expected_input_tokens=expected_input_tokens,
        expected_input_positions=expected_input_positions,
        write_chain=workspace,
        enable_write_input_assert=enable_write_input_assert,
        run=run,
    )


# --- Reference --------------------------------------------------------------------------------------------------------


def reference(
    *,
    contexts: tables.VerifyOrWriteContextTable,
    plan: structs.WritePlan,
    input_ids: torch.Tensor,
    positions: torch.Tensor,
    out_cache_loc: torch.Tensor,
    enable_write_input_assert: bool,
    expected_input_tokens: torch.Tensor | None,
    expected_input_positions: torch.Tensor | None,
    workspace: torch.Tensor,
) -> None:
    """The kernels' references on valid arguments."""
    for context in contexts:
        write_entries.reference(
            write_offsets=plan.write_offsets,
            write_seed_slot_indices=plan.write_seed_slot_indices,
            write_num_valid_reqs=plan.write_num_valid_reqs,
            input_ids=input_ids,
            positions=positions,
            out_cache_loc=out_cache_loc,
            expected_input_tokens=expected_input_tokens,
            expected_input_positions=expected_input_positions,
            enable_chain_position_assert=context.enable_chain_position_assert,
            canary_buf=context.canary_buf,
            write_chain=workspace,
            violation_ring=context.violation_ring,
            violation_write_index=context.violation_write_index,
            slot_run_counter=context.slot_run_counter,
            kernel_run_counter=context.kernel_run_counter,
            real_kv_sources=context.real_kv_sources,
            kernel_kind=eager.scalar(context.kernel_kind, contexts.table),
            real_kv_hash_mode=context.real_kv_hash_mode,
            enable_write_input_assert=enable_write_input_assert,
        )
