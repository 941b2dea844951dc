# Written by kvcanary-gen from the spec; edit that instead.
"""Plans one forward and verifies what it finds cached; entries are computed where they are checked, none is stored.

Contract §3, §4.
"""

from __future__ import annotations

import torch

from .. import errors, layout, structs
from ..core import bound, checks, dispatch, eager, sources
from . import plan_and_verify_alone, plan_offsets, verify_planned

# --- Public functions -------------------------------------------------------------------------------------------------


def launch_canary_plan_and_verify_kernels(
    *,
    context: structs.VerifyOrWriteContext,
    write_plan_out: structs.WritePlan,
    req_pool_indices: torch.Tensor,
    prefix_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    swa_window_size: int,
    full_to_swa_index_mapping: torch.Tensor | None = None,
    verify_capacity: int,
    req_to_verify_expected_tokens: torch.Tensor | None = None,
    req_to_verify_expected_tokens_valid_lens: torch.Tensor | None = None,
    kv_token_id_vs_position_offset: int,
    check_verify_expected_token: bool,
    workspace: torch.Tensor | None = None,
    verify_num_valid: torch.Tensor | None = None,
    verify_enable: torch.Tensor | None = None,
    backend: str | None = None,
) -> None:
    """Plans one forward and verifies what it finds cached; entries are computed where they are checked, none is stored.

    Contract §3, §4. Outputs change in place; nothing is read back to the host.

    Args:
        context (VerifyOrWriteContext): The endpoint's buffers.
        write_plan_out (WritePlan): Receives the segments to write.
        req_pool_indices (int64 [bs]): Request row of each request; row 0 is padding.
        prefix_lens (int64 [bs]): Tokens of each request that are cached already.
        extend_seq_lens (int64 [bs]): Tokens of each request that this forward adds.
        req_to_token (int32 [table_rows, table_width]): Slot of every position of every request row.
        swa_window_size (int): Positions that the sliding window keeps; 0 or less keeps all.
        full_to_swa_index_mapping (int64 [mapping_len], optional): Slot in the sliding-window pool of every full slot, 0
            where it was evicted; None: slots stay as they are.
        verify_capacity (int): Entries that the verify plan holds.
        req_to_verify_expected_tokens (int32 [token_rows, token_width], optional): Token history of every request row,
            to check cached tokens against.
        req_to_verify_expected_tokens_valid_lens (int64 [bs], optional): Columns of each request's history that hold its
            own tokens; a recycled row has a stale tail behind them.
        kv_token_id_vs_position_offset (int): Column of the history for position p is p plus this; speculative drafts
            use 1.
        check_verify_expected_token (bool): Whether stored tokens are compared with the request's history.
        workspace (int64 [>= MAX_PLAN_BATCH + 1], optional): Scratch for the verify offsets; allocated when missing, so
            pass your own under graph capture.
        verify_num_valid (int32 [1], optional): Receives how many entries there were; allocated when missing.
        verify_enable (int32 [1], optional): Receives 0 when they were more than the capacity, so that nothing was
            verified, else 1.
        backend (str, optional): 'triton' or 'reference'; chosen by KVCANARY_BACKEND or the device if None.

    Raises:
        CanaryError: KVC-002, KVC-003, KVC-005, KVC-006, KVC-007, KVC-008, KVC-009, KVC-010 for this operation, and the
            rules on every tensor's dtype, rank, length, contiguity and device; all before anything is launched or
            written.
    """
    validate(
        "launch_canary_plan_and_verify_kernels",
        context=context,
        write_plan_out=write_plan_out,
        req_pool_indices=req_pool_indices,
        prefix_lens=prefix_lens,
        extend_seq_lens=extend_seq_lens,
        req_to_token=req_to_token,
        swa_window_size=swa_window_size,
        full_to_swa_index_mapping=full_to_swa_index_mapping,
        verify_capacity=verify_capacity,
        req_to_verify_expected_tokens=req_to_verify_expected_tokens,
        req_to_verify_expected_tokens_valid_lens=req_to_verify_expected_tokens_valid_lens,
        kv_token_id_vs_position_offset=kv_token_id_vs_position_offset,
        check_verify_expected_token=check_verify_expected_token,
        workspace=workspace,
        verify_num_valid=verify_num_valid,
        verify_enable=verify_enable,
    )
    if workspace is None:
        workspace = torch.empty(layout.MAX_PLAN_BATCH + 1, dtype=torch.int64, device=context.canary_buf.device)
    if verify_num_valid is None:
        verify_num_valid = torch.empty(1, dtype=torch.int32, device=context.canary_buf.device)
    if verify_enable is None:
        verify_enable = torch.empty(1, dtype=torch.int32, device=context.canary_buf.device)
    if dispatch.use_triton(context.canary_buf, backend):
        launch(
            context=context,
            write_plan_out=write_plan_out,
            req_pool_indices=req_pool_indices,
            prefix_lens=prefix_lens,
            extend_seq_lens=extend_seq_lens,
            req_to_token=req_to_token,
            swa_window_size=swa_window_size,
            full_to_swa_index_mapping=full_to_swa_index_mapping,
            verify_capacity=verify_capacity,
            req_to_verify_expected_tokens=req_to_verify_expected_tokens,
            req_to_verify_expected_tokens_valid_lens=req_to_verify_expected_tokens_valid_lens,
            kv_token_id_vs_position_offset=kv_token_id_vs_position_offset,
            check_verify_expected_token=check_verify_expected_token,
            workspace=workspace,
            verify_num_valid=verify_num_valid,
            verify_enable=verify_enable,
        )
    else:
        dispatch.refuse_capture("launch_canary_plan_and_verify_kernels", context.canary_buf)
        reference(
            context=context,
            write_plan_out=write_plan_out,
            req_pool_indices=req_pool_indices,
            prefix_lens=prefix_lens,
            extend_seq_lens=extend_seq_lens,
            req_to_token=req_to_token,
            swa_window_size=swa_window_size,
            full_to_swa_index_mapping=full_to_swa_index_mapping,
            verify_capacity=verify_capacity,
            req_to_verify_expected_tokens=req_to_verify_expected_tokens,
            req_to_verify_expected_tokens_valid_lens=req_to_verify_expected_tokens_valid_lens,
            kv_token_id_vs_position_offset=kv_token_id_vs_position_offset,
            check_verify_expected_token=check_verify_expected_token,
            workspace=workspace,
            verify_num_valid=verify_num_valid,
            verify_enable=verify_enable,
        )


def bind_canary_plan_and_verify_kernels(
    *,
    context: structs.VerifyOrWriteContext,
    write_plan_out: structs.WritePlan,
    req_pool_indices: torch.Tensor,
    prefix_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    swa_window_size: int,
    full_to_swa_index_mapping: torch.Tensor | None = None,
    verify_capacity: int,
    req_to_verify_expected_tokens: torch.Tensor | None = None,
    req_to_verify_expected_tokens_valid_lens: torch.Tensor | None = None,
    kv_token_id_vs_position_offset: int,
    check_verify_expected_token: bool,
    workspace: torch.Tensor | None = None,
    verify_num_valid: torch.Tensor | None = None,
    verify_enable: torch.Tensor | None = None,
    backend: str | None = None,
) -> bound.Bound:
    """Checks the arguments of `launch_canary_plan_and_verify_kernels` once, for a launch that is repeated.

    Takes what `launch_canary_plan_and_verify_kernels` takes, and compiles what it would launch, but launches and writes
    nothing. Each call of what it returns then does the same as the launcher would with these arguments, at the cost of
    launching alone.

    Returns:
        Bound: To be called without arguments; says what may change between calls.

    Raises:
        CanaryError: as of `launch_canary_plan_and_verify_kernels`, here; a call checks no argument.
    """
    validate(
        "bind_canary_plan_and_verify_kernels",
        context=context,
        write_plan_out=write_plan_out,
        req_pool_indices=req_pool_indices,
        prefix_lens=prefix_lens,
        extend_seq_lens=extend_seq_lens,
        req_to_token=req_to_token,
        swa_window_size=swa_window_size,
        full_to_swa_index_mapping=full_to_swa_index_mapping,
        verify_capacity=verify_capacity,
        req_to_verify_expected_tokens=req_to_verify_expected_tokens,
        req_to_verify_expected_tokens_valid_lens=req_to_verify_expected_tokens_valid_lens,
        kv_token_id_vs_position_offset=kv_token_id_vs_position_offset,
        check_verify_expected_token=check_verify_expected_token,
        workspace=workspace,
        verify_num_valid=verify_num_valid,
        verify_enable=verify_enable,
    )
    if workspace is None:
        workspace = torch.empty(layout.MAX_PLAN_BATCH + 1, dtype=torch.int64, device=context.canary_buf.device)
    if verify_num_valid is None:
        verify_num_valid = torch.empty(1, dtype=torch.int32, device=context.canary_buf.device)
    if verify_enable is None:
        verify_enable = torch.empty(1, dtype=torch.int32, device=context.canary_buf.device)
    if dispatch.use_triton(context.canary_buf, backend):
        return bound.kernels(
            "bind_canary_plan_and_verify_kernels",
            context.canary_buf,
            launch,
            context=context,
            write_plan_out=write_plan_out,
            req_pool_indices=req_pool_indices,
            prefix_lens=prefix_lens,
            extend_seq_lens=extend_seq_lens,
            req_to_token=req_to_token,
            swa_window_size=swa_window_size,
            full_to_swa_index_mapping=full_to_swa_index_mapping,
            verify_capacity=verify_capacity,
            req_to_verify_expected_tokens=req_to_verify_expected_tokens,
            req_to_verify_expected_tokens_valid_lens=req_to_verify_expected_tokens_valid_lens,
            kv_token_id_vs_position_offset=kv_token_id_vs_position_offset,
            check_verify_expected_token=check_verify_expected_token,
            workspace=workspace,
            verify_num_valid=verify_num_valid,
            verify_enable=verify_enable,
        )
    return bound.reference(
        "bind_canary_plan_and_verify_kernels",
        context.canary_buf,
        reference,
        context=context,
        write_plan_out=write_plan_out,
        req_pool_indices=req_pool_indices,
        prefix_lens=prefix_lens,
        extend_seq_lens=extend_seq_lens,
        req_to_token=req_to_token,
        swa_window_size=swa_window_size,
        full_to_swa_index_mapping=full_to_swa_index_mapping,
        verify_capacity=verify_capacity,
        req_to_verify_expected_tokens=req_to_verify_expected_tokens,
        req_to_verify_expected_tokens_valid_lens=req_to_verify_expected_tokens_valid_lens,
        kv_token_id_vs_position_offset=kv_token_id_vs_position_offset,
        check_verify_expected_token=check_verify_expected_token,
        workspace=workspace,
        verify_num_valid=verify_num_valid,
        verify_enable=verify_enable,
    )


def launch_canary_plan_and_verify_kernels_torch_reference(
    *,
    context: structs.VerifyOrWriteContext,
    write_plan_out: structs.WritePlan,
    req_pool_indices: torch.Tensor,
    prefix_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    swa_window_size: int,
    full_to_swa_index_mapping: torch.Tensor | None = None,
    verify_capacity: int,
    req_to_verify_expected_tokens: torch.Tensor | None = None,
    req_to_verify_expected_tokens_valid_lens: torch.Tensor | None = None,
    kv_token_id_vs_position_offset: int,
    check_verify_expected_token: bool,
    workspace: torch.Tensor | None = None,
    verify_num_valid: torch.Tensor | None = None,
    verify_enable: torch.Tensor | None = None,
) -> None:
    """Plans one forward and verifies what it finds cached; entries are computed where they are checked, none is stored.

    The reference: same arguments, same result, on any device. Contract §3, §4.

    Raises:
        CanaryError: KVC-002, KVC-003, KVC-005, KVC-006, KVC-007, KVC-008, KVC-009, KVC-010 for this operation, and the
            rules on every tensor's dtype, rank, length, contiguity and device; all before anything is launched or
            written.
    """
    validate(
        "launch_canary_plan_and_verify_kernels_torch_reference",
        context=context,
        write_plan_out=write_plan_out,
        req_pool_indices=req_pool_indices,
        prefix_lens=prefix_lens,
        extend_seq_lens=extend_seq_lens,
        req_to_token=req_to_token,
        swa_window_size=swa_window_size,
        full_to_swa_index_mapping=full_to_swa_index_mapping,
        verify_capacity=verify_capacity,
        req_to_verify_expected_tokens=req_to_verify_expected_tokens,
        req_to_verify_expected_tokens_valid_lens=req_to_verify_expected_tokens_valid_lens,
        kv_token_id_vs_position_offset=kv_token_id_vs_position_offset,
        check_verify_expected_token=check_verify_expected_token,
        workspace=workspace,
        verify_num_valid=verify_num_valid,
        verify_enable=verify_enable,
    )
    dispatch.refuse_capture("launch_canary_plan_and_verify_kernels_torch_reference", context.canary_buf)
    if workspace is None:
        workspace = torch.empty(layout.MAX_PLAN_BATCH + 1, dtype=torch.int64, device=context.canary_buf.device)
    if verify_num_valid is None:
        verify_num_valid = torch.empty(1, dtype=torch.int32, device=context.canary_buf.device)
    if verify_enable is None:
        verify_enable = torch.empty(1, dtype=torch.int32, device=context.canary_buf.device)
    reference(
        context=context,
        write_plan_out=write_plan_out,
        req_pool_indices=req_pool_indices,
        prefix_lens=prefix_lens,
        extend_seq_lens=extend_seq_lens,
        req_to_token=req_to_token,
        swa_window_size=swa_window_size,
        full_to_swa_index_mapping=full_to_swa_index_mapping,
        verify_capacity=verify_capacity,
        req_to_verify_expected_tokens=req_to_verify_expected_tokens,
        req_to_verify_expected_tokens_valid_lens=req_to_verify_expected_tokens_valid_lens,
        kv_token_id_vs_position_offset=kv_token_id_vs_position_offset,
        check_verify_expected_token=check_verify_expected_token,
        workspace=workspace,
        verify_num_valid=verify_num_valid,
        verify_enable=verify_enable,
    )


# --- Validation -------------------------------------------------------------------------------------------------------


def validate(
    op: str,
    *,
    context: structs.VerifyOrWriteContext,
    write_plan_out: structs.WritePlan,
    req_pool_indices: torch.Tensor,
    prefix_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    swa_window_size: int,
    full_to_swa_index_mapping: torch.Tensor | None,
    verify_capacity: int,
    req_to_verify_expected_tokens: torch.Tensor | None,
    req_to_verify_expected_tokens_valid_lens: torch.Tensor | None,
    kv_token_id_vs_position_offset: int,
    check_verify_expected_token: bool,
    workspace: torch.Tensor | None,
    verify_num_valid: torch.Tensor | None,
    verify_enable: torch.Tensor | None,
) -> None:
    """Checks metadata alone and raises the first rule broken; `op` is the public function called."""
    checks.kind("context", context, structs.VerifyOrWriteContext)
    checks.kind("write_plan_out", write_plan_out, structs.WritePlan)
    tensors: checks.Tensors = [
        ("context.canary_buf", context.canary_buf, torch.uint8, 2),
        ("context.violation_ring", context.violation_ring, torch.int64, 2),
        ("context.violation_write_index", context.violation_write_index, torch.int32, 1),
        ("context.slot_run_counter", context.slot_run_counter, torch.int64, 1),
        ("context.kernel_run_counter", context.kernel_run_counter, torch.int64, 1),
        ("context.enable_chain_position_assert", context.enable_chain_position_assert, torch.int32, 1),
        ("write_plan_out.write_offsets", write_plan_out.write_offsets, torch.int64, 1),
        ("write_plan_out.write_seed_slot_indices", write_plan_out.write_seed_slot_indices, torch.int64, 1),
        ("write_plan_out.write_num_valid_reqs", write_plan_out.write_num_valid_reqs, torch.int32, 1),
        ("req_pool_indices", req_pool_indices, torch.int64, 1),
        ("prefix_lens", prefix_lens, torch.int64, 1),
        ("extend_seq_lens", extend_seq_lens, torch.int64, 1),
        ("req_to_token", req_to_token, torch.int32, 2),
    ]
    if full_to_swa_index_mapping is not None:
        tensors.append(("full_to_swa_index_mapping", full_to_swa_index_mapping, torch.int64, 1))
    if req_to_verify_expected_tokens is not None:
        tensors.append(("req_to_verify_expected_tokens", req_to_verify_expected_tokens, torch.int32, 2))
    if req_to_verify_expected_tokens_valid_lens is not None:
        tensors.append(
            ("req_to_verify_expected_tokens_valid_lens", req_to_verify_expected_tokens_valid_lens, torch.int64, 1)
        )
    if workspace is not None:
        tensors.append(("workspace", workspace, torch.int64, 1))
    if verify_num_valid is not None:
        tensors.append(("verify_num_valid", verify_num_valid, torch.int32, 1))
    if verify_enable is not None:
        tensors.append(("verify_enable", verify_enable, torch.int32, 1))
    checks.kinds(tensors)
    checks.kind("swa_window_size", swa_window_size, int)
    checks.kind("verify_capacity", verify_capacity, int)
    checks.kind("kv_token_id_vs_position_offset", kv_token_id_vs_position_offset, int)
    checks.kind("check_verify_expected_token", check_verify_expected_token, bool)
    checks.kind("context.kernel_kind", context.kernel_kind, int)
    sources.real_kv_source_kinds("context.real_kv_sources", context.real_kv_sources)
    checks.kind("context.real_kv_hash_mode", context.real_kv_hash_mode, layout.RealKvHashMode)
    if swa_window_size > 0 and full_to_swa_index_mapping is None:
        raise errors.CanaryValueError(
            "KVC-002", f"kv-canary: {op} requires full_to_swa_index_mapping when swa_window_size > 0"
        )
    named = "launch_plan_entries_kernel" if op == "launch_canary_plan_and_verify_kernels" else op
    if req_to_verify_expected_tokens is not None and req_to_verify_expected_tokens_valid_lens is None:
        raise errors.CanaryValueError(
            "KVC-003",
            f"kv-canary: {named} requires req_to_verify_expected_tokens_valid_lens when "
            "req_to_verify_expected_tokens is set",
        )
    bs = checks.size("req_pool_indices", req_pool_indices, 1, 0)
    if bs > layout.MAX_PLAN_BATCH:
        raise errors.CanaryValueError(
            "KVC-005",
            f"kv-canary: launch_canary_plan_kernels supports at most bs={layout.MAX_PLAN_BATCH} reqs per launch, got "
            f"bs={bs}. To raise the limit, set MAX_PLAN_BATCH in spec/constants.yaml and run kvcanary-gen generate.",
        )
    write_offsets_len = checks.size("write_plan_out.write_offsets", write_plan_out.write_offsets, 1, 0)
    if write_offsets_len <= 0:
        raise errors.CanaryValueError(
            "KVC-006", f"kv-canary: write_offsets_len must be positive, got {write_offsets_len}"
        )
    if verify_capacity < 0:
        raise errors.CanaryValueError(
            "KVC-007", f"kv-canary: verify_capacity must be non-negative, got {verify_capacity}"
        )
    write_seed_slot_indices_len = checks.size(
        "write_plan_out.write_seed_slot_indices", write_plan_out.write_seed_slot_indices, 1, 0
    )
    if write_offsets_len != write_seed_slot_indices_len + 1:
        raise errors.CanaryValueError(
            "KVC-008",
            f"kv-canary: write_offsets_len must equal write_req_capacity + 1, got {write_offsets_len} and "
            f"{write_seed_slot_indices_len}",
        )
    if bs > write_seed_slot_indices_len:
        raise errors.CanaryValueError(
            "KVC-009", f"kv-canary: bs={bs} exceeds write_req_capacity={write_seed_slot_indices_len}"
        )
    if verify_capacity > layout.INT32_MAX:
        raise errors.CanaryValueError(
            "KVC-010", f"kv-canary: verify_capacity must be at most {layout.INT32_MAX}, got {verify_capacity}"
        )
    checks.int64("swa_window_size", swa_window_size)
    checks.int64("verify_capacity", verify_capacity)
    checks.int64("kv_token_id_vs_position_offset", kv_token_id_vs_position_offset)
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
    checks.length(
        "write_plan_out.write_offsets", write_plan_out.write_offsets.shape[0], write_seed_slot_indices_len + 1
    )
    checks.length("write_plan_out.write_num_valid_reqs", write_plan_out.write_num_valid_reqs.shape[0], 1)
    checks.length("prefix_lens", prefix_lens.shape[0], bs)
    checks.length("extend_seq_lens", extend_seq_lens.shape[0], bs)
    if req_to_verify_expected_tokens_valid_lens is not None:
        checks.length("req_to_verify_expected_tokens_valid_lens", req_to_verify_expected_tokens_valid_lens.shape[0], bs)
    if workspace is not None:
        checks.at_least("workspace", workspace.shape[0], layout.MAX_PLAN_BATCH + 1)
    if verify_num_valid is not None:
        checks.length("verify_num_valid", verify_num_valid.shape[0], 1)
    if verify_enable is not None:
        checks.length("verify_enable", verify_enable.shape[0], 1)
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
    write_plan_out: structs.WritePlan,
    req_pool_indices: torch.Tensor,
    prefix_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    swa_window_size: int,
    full_to_swa_index_mapping: torch.Tensor | None,
    verify_capacity: int,
    req_to_verify_expected_tokens: torch.Tensor | None,
    req_to_verify_expected_tokens_valid_lens: torch.Tensor | None,
    kv_token_id_vs_position_offset: int,
    check_verify_expected_token: bool,
    workspace: torch.Tensor,
    verify_num_valid: torch.Tensor,
    verify_enable: torch.Tensor,
    run: dispatch.Run = dispatch.launch,
) -> None:
    """Launches the kernels on valid arguments. Nothing is allocated, and no device data is read."""
    if dispatch.one_launch(req_pool_indices.shape[0], 128):
        plan_and_verify_alone.launch(
            req_pool_indices=req_pool_indices,
            prefix_lens=prefix_lens,
            extend_seq_lens=extend_seq_lens,
            req_to_token=req_to_token,
            full_to_swa_index_mapping=full_to_swa_index_mapping,
            req_to_verify_expected_tokens=req_to_verify_expected_tokens,
            req_to_verify_expected_tokens_valid_lens=req_to_verify_expected_tokens_valid_lens,
            canary_buf=context.canary_buf,
            out_verify_offsets_scratch=workspace,
            out_write_offsets=write_plan_out.write_offsets,
            out_write_seed_slot_indices=write_plan_out.write_seed_slot_indices,
            out_verify_num_valid=verify_num_valid,
            out_verify_enable=verify_enable,
            out_write_num_valid_reqs=write_plan_out.write_num_valid_reqs,
            violation_ring=context.violation_ring,
            violation_write_index=context.violation_write_index,
            slot_run_counter=context.slot_run_counter,
            kernel_run_counter=context.kernel_run_counter,
            real_kv_sources=context.real_kv_sources,
            swa_window_size=swa_window_size,
            verify_capacity=verify_capacity,
            kernel_kind=context.kernel_kind,
            real_kv_hash_mode=context.real_kv_hash_mode,
            check_verify_expected_token=check_verify_expected_token,
            kv_token_id_vs_position_offset=kv_token_id_vs_position_offset,
            run=run,
        )
        return
    plan_offsets.launch(
        req_pool_indices=req_pool_indices,
        prefix_lens=prefix_lens,
        extend_seq_lens=extend_seq_lens,
        req_to_token=req_to_token,
        full_to_swa_index_mapping=full_to_swa_index_mapping,
        out_verify_offsets_scratch=workspace,
        out_write_offsets=write_plan_out.write_offsets,
        out_write_seed_slot_indices=write_plan_out.write_seed_slot_indices,
        out_verify_num_valid=verify_num_valid,
        out_verify_enable=verify_enable,
        out_write_num_valid_reqs=write_plan_out.write_num_valid_reqs,
        swa_window_size=swa_window_size,
        verify_capacity=verify_capacity,
        run=run,
    )
    verify_planned.launch(
        req_pool_indices=req_pool_indices,
        prefix_lens=prefix_lens,
        req_to_token=req_to_token,
        full_to_swa_index_mapping=full_to_swa_index_mapping,
        verify_offsets_scratch=workspace,
        verify_enable=verify_enable,
        req_to_verify_expected_tokens=req_to_verify_expected_tokens,
        req_to_verify_expected_tokens_valid_lens=req_to_verify_expected_tokens_valid_lens,
        canary_buf=context.canary_buf,
        verify_num_valid=verify_num_valid,
        violation_ring=context.violation_ring,
        violation_write_index=context.violation_write_index,
        slot_run_counter=context.slot_run_counter,
        kernel_run_counter=context.kernel_run_counter,
        real_kv_sources=context.real_kv_sources,
        kernel_kind=context.kernel_kind,
        real_kv_hash_mode=context.real_kv_hash_mode,
        check_verify_expected_token=check_verify_expected_token,
        kv_token_id_vs_position_offset=kv_token_id_vs_position_offset,
        swa_window_size=swa_window_size,
        verify_capacity=verify_capacity,
        run=run,
    )


# --- Reference --------------------------------------------------------------------------------------------------------


def reference(
    *,
    context: structs.VerifyOrWriteContext,
    write_plan_out: structs.WritePlan,
    req_pool_indices: torch.Tensor,
    prefix_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    swa_window_size: int,
    full_to_swa_index_mapping: torch.Tensor | None,
    verify_capacity: int,
    req_to_verify_expected_tokens: torch.Tensor | None,
    req_to_verify_expected_tokens_valid_lens: torch.Tensor | None,
    kv_token_id_vs_position_offset: int,
    check_verify_expected_token: bool,
    workspace: torch.Tensor,
    verify_num_valid: torch.Tensor,
    verify_enable: torch.Tensor,
) -> None:
    """The kernels' references on valid arguments."""
    plan_offsets.reference(
        req_pool_indices=req_pool_indices,
        prefix_lens=prefix_lens,
        extend_seq_lens=extend_seq_lens,
        req_to_token=req_to_token,
        full_to_swa_index_mapping=full_to_swa_index_mapping,
        out_verify_offsets_scratch=workspace,
        out_write_offsets=write_plan_out.write_offsets,
        out_write_seed_slot_indices=write_plan_out.write_seed_slot_indices,
        out_verify_num_valid=verify_num_valid,
        out_verify_enable=verify_enable,
        out_write_num_valid_reqs=write_plan_out.write_num_valid_reqs,
        swa_window_size=eager.scalar(swa_window_size, context.canary_buf),
        verify_capacity=eager.scalar(verify_capacity, context.canary_buf),
    )
    verify_planned.reference(
        req_pool_indices=req_pool_indices,
        prefix_lens=prefix_lens,
        req_to_token=req_to_token,
        full_to_swa_index_mapping=full_to_swa_index_mapping,
        verify_offsets_scratch=workspace,
        verify_enable=verify_enable,
        req_to_verify_expected_tokens=req_to_verify_expected_tokens,
        req_to_verify_expected_tokens_valid_lens=req_to_verify_expected_tokens_valid_lens,
        canary_buf=context.canary_buf,
        verify_num_valid=verify_num_valid,
        violation_ring=context.violation_ring,
        violation_write_index=context.violation_write_index,
        slot_run_counter=context.slot_run_counter,
        kernel_run_counter=context.kernel_run_counter,
        real_kv_sources=context.real_kv_sources,
        kernel_kind=eager.scalar(context.kernel_kind, context.canary_buf),
        real_kv_hash_mode=context.real_kv_hash_mode,
        check_verify_expected_token=check_verify_expected_token,
        kv_token_id_vs_position_offset=eager.scalar(kv_token_id_vs_position_offset, context.canary_buf),
        swa_window_size=eager.scalar(swa_window_size, context.canary_buf),
        verify_capacity=eager.scalar(verify_capacity, context.canary_buf),
    )
