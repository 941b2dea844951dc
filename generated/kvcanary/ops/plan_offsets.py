# Written by kvcanary-gen from the spec; edit that instead.
"""Where each request's entries begin, in the verify plan and among the new tokens.

Contract §3.
"""

from __future__ import annotations

import torch
import triton.language as tl

from .. import errors, layout
from ..core import bound, checks, device, dispatch, eager, functions, lang

# --- Public functions -------------------------------------------------------------------------------------------------


def launch_plan_offsets_kernel(
    *,
    req_pool_indices: torch.Tensor,
    prefix_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    full_to_swa_index_mapping: torch.Tensor | None = None,
    out_verify_offsets_scratch: torch.Tensor,
    out_write_offsets: torch.Tensor,
    out_write_seed_slot_indices: torch.Tensor,
    out_verify_num_valid: torch.Tensor,
    out_verify_enable: torch.Tensor,
    out_write_num_valid_reqs: torch.Tensor,
    swa_window_size: int,
    verify_capacity: int,
    backend: str | None = None,
) -> None:
    """Where each request's entries begin, in the verify plan and among the new tokens.

    Contract §3. Outputs change in place; nothing is read back to the host.

    Args:
        req_pool_indices (int64 [bs]): Request row of each request; row 0 is padding.
        prefix_lens (int64 [bs]): Tokens of each request that are cached already.
        extend_seq_lens (int64 [bs]): Tokens of each request that this forward adds.
        req_to_token (int32 [table_rows, table_width]): Slot of every position of every request row.
        full_to_swa_index_mapping (int64 [mapping_len], optional): Slot in the sliding-window pool of every full slot, 0
            where it was evicted; None: slots stay as they are.
        out_verify_offsets_scratch (int64 [>= MAX_PLAN_BATCH + 1]): Scratch; elements 0 to bs receive the verify
            offsets.
        out_write_offsets (int64 [write_req_capacity + 1]): Token range of request r, from element r up to element r +
            1.
        out_write_seed_slot_indices (int64 [write_req_capacity]): Slot of the last cached position, where the request's
            chain goes on; -1 starts from the anchor.
        out_verify_num_valid (int32 [1]): Entries that count, at most the capacity.
        out_verify_enable (int32 [1]): 0 when the entries did not fit the capacity; nothing is verified then.
        out_write_num_valid_reqs (int32 [1]): Requests that count, at most the capacity.
        swa_window_size (int): Positions that the sliding window keeps; 0 or less keeps all.
        verify_capacity (int): Entries that the verify plan holds.
        backend (str, optional): 'triton' or 'reference'; chosen by KVCANARY_BACKEND or the device if None.

    Raises:
        CanaryError: KVC-005, KVC-006, KVC-007, KVC-008, KVC-009, KVC-010 for this operation, and the rules on every
            tensor's dtype, rank, length, contiguity and device; all before anything is launched or written.
    """
    validate(
        "launch_plan_offsets_kernel",
        req_pool_indices=req_pool_indices,
        prefix_lens=prefix_lens,
        extend_seq_lens=extend_seq_lens,
        req_to_token=req_to_token,
        full_to_swa_index_mapping=full_to_swa_index_mapping,
        out_verify_offsets_scratch=out_verify_offsets_scratch,
        out_write_offsets=out_write_offsets,
        out_write_seed_slot_indices=out_write_seed_slot_indices,
        out_verify_num_valid=out_verify_num_valid,
        out_verify_enable=out_verify_enable,
        out_write_num_valid_reqs=out_write_num_valid_reqs,
        swa_window_size=swa_window_size,
        verify_capacity=verify_capacity,
    )
    if dispatch.use_triton(req_pool_indices, backend):
        launch(
            req_pool_indices=req_pool_indices,
            prefix_lens=prefix_lens,
            extend_seq_lens=extend_seq_lens,
            req_to_token=req_to_token,
            full_to_swa_index_mapping=full_to_swa_index_mapping,
            out_verify_offsets_scratch=out_verify_offsets_scratch,
            out_write_offsets=out_write_offsets,
            out_write_seed_slot_indices=out_write_seed_slot_indices,
            out_verify_num_valid=out_verify_num_valid,
            out_verify_enable=out_verify_enable,
            out_write_num_valid_reqs=out_write_num_valid_reqs,
            swa_window_size=swa_window_size,
            verify_capacity=verify_capacity,
        )
    else:
        dispatch.refuse_capture("launch_plan_offsets_kernel", req_pool_indices)
        reference(
            req_pool_indices=req_pool_indices,
            prefix_lens=prefix_lens,
            extend_seq_lens=extend_seq_lens,
            req_to_token=req_to_token,
            full_to_swa_index_mapping=full_to_swa_index_mapping,
            out_verify_offsets_scratch=out_verify_offsets_scratch,
            out_write_offsets=out_write_offsets,
            out_write_seed_slot_indices=out_write_seed_slot_indices,
            out_verify_num_valid=out_verify_num_valid,
            out_verify_enable=out_verify_enable,
            out_write_num_valid_reqs=out_write_num_valid_reqs,
            swa_window_size=eager.scalar(swa_window_size, req_pool_indices),
            verify_capacity=eager.scalar(verify_capacity, req_pool_indices),
        )


def bind_plan_offsets_kernel(
    *,
    req_pool_indices: torch.Tensor,
    prefix_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    full_to_swa_index_mapping: torch.Tensor | None = None,
    out_verify_offsets_scratch: torch.Tensor,
    out_write_offsets: torch.Tensor,
    out_write_seed_slot_indices: torch.Tensor,
    out_verify_num_valid: torch.Tensor,
    out_verify_enable: torch.Tensor,
    out_write_num_valid_reqs: torch.Tensor,
    swa_window_size: int,
    verify_capacity: int,
    backend: str | None = None,
) -> bound.Bound:
    """Checks the arguments of `launch_plan_offsets_kernel` once, for a launch that is repeated.

    Takes what `launch_plan_offsets_kernel` takes, and compiles what it would launch, but launches and writes nothing.
    Each call of what it returns then does the same as the launcher would with these arguments, at the cost of launching
    alone.

    Returns:
        Bound: To be called without arguments; says what may change between calls.

    Raises:
        CanaryError: as of `launch_plan_offsets_kernel`, here; a call checks no argument.
    """
    validate(
        "bind_plan_offsets_kernel",
        req_pool_indices=req_pool_indices,
        prefix_lens=prefix_lens,
        extend_seq_lens=extend_seq_lens,
        req_to_token=req_to_token,
        full_to_swa_index_mapping=full_to_swa_index_mapping,
        out_verify_offsets_scratch=out_verify_offsets_scratch,
        out_write_offsets=out_write_offsets,
        out_write_seed_slot_indices=out_write_seed_slot_indices,
        out_verify_num_valid=out_verify_num_valid,
        out_verify_enable=out_verify_enable,
        out_write_num_valid_reqs=out_write_num_valid_reqs,
        swa_window_size=swa_window_size,
        verify_capacity=verify_capacity,
    )
    if dispatch.use_triton(req_pool_indices, backend):
        return bound.kernels(
            "bind_plan_offsets_kernel",
            req_pool_indices,
            launch,
            req_pool_indices=req_pool_indices,
            prefix_lens=prefix_lens,
            extend_seq_lens=extend_seq_lens,
            req_to_token=req_to_token,
            full_to_swa_index_mapping=full_to_swa_index_mapping,
            out_verify_offsets_scratch=out_verify_offsets_scratch,
            out_write_offsets=out_write_offsets,
            out_write_seed_slot_indices=out_write_seed_slot_indices,
            out_verify_num_valid=out_verify_num_valid,
            out_verify_enable=out_verify_enable,
            out_write_num_valid_reqs=out_write_num_valid_reqs,
            swa_window_size=swa_window_size,
            verify_capacity=verify_capacity,
        )
    return bound.reference(
        "bind_plan_offsets_kernel",
        req_pool_indices,
        reference,
        req_pool_indices=req_pool_indices,
        prefix_lens=prefix_lens,
        extend_seq_lens=extend_seq_lens,
        req_to_token=req_to_token,
        full_to_swa_index_mapping=full_to_swa_index_mapping,
        out_verify_offsets_scratch=out_verify_offsets_scratch,
        out_write_offsets=out_write_offsets,
        out_write_seed_slot_indices=out_write_seed_slot_indices,
        out_verify_num_valid=out_verify_num_valid,
        out_verify_enable=out_verify_enable,
        out_write_num_valid_reqs=out_write_num_valid_reqs,
        swa_window_size=eager.scalar(swa_window_size, req_pool_indices),
        verify_capacity=eager.scalar(verify_capacity, req_pool_indices),
    )


def launch_plan_offsets_kernel_torch_reference(
    *,
    req_pool_indices: torch.Tensor,
    prefix_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    full_to_swa_index_mapping: torch.Tensor | None = None,
    out_verify_offsets_scratch: torch.Tensor,
    out_write_offsets: torch.Tensor,
    out_write_seed_slot_indices: torch.Tensor,
    out_verify_num_valid: torch.Tensor,
    out_verify_enable: torch.Tensor,
    out_write_num_valid_reqs: torch.Tensor,
    swa_window_size: int,
    verify_capacity: int,
) -> None:
    """Where each request's entries begin, in the verify plan and among the new tokens.

    The reference: same arguments, same result, on any device. Contract §3.

    Raises:
        CanaryError: KVC-005, KVC-006, KVC-007, KVC-008, KVC-009, KVC-010 for this operation, and the rules on every
            tensor's dtype, rank, length, contiguity and device; all before anything is launched or written.
    """
    validate(
        "launch_plan_offsets_kernel_torch_reference",
        req_pool_indices=req_pool_indices,
        prefix_lens=prefix_lens,
        extend_seq_lens=extend_seq_lens,
        req_to_token=req_to_token,
        full_to_swa_index_mapping=full_to_swa_index_mapping,
        out_verify_offsets_scratch=out_verify_offsets_scratch,
        out_write_offsets=out_write_offsets,
        out_write_seed_slot_indices=out_write_seed_slot_indices,
        out_verify_num_valid=out_verify_num_valid,
        out_verify_enable=out_verify_enable,
        out_write_num_valid_reqs=out_write_num_valid_reqs,
        swa_window_size=swa_window_size,
        verify_capacity=verify_capacity,
    )
    dispatch.refuse_capture("launch_plan_offsets_kernel_torch_reference", req_pool_indices)
    reference(
        req_pool_indices=req_pool_indices,
        prefix_lens=prefix_lens,
        extend_seq_lens=extend_seq_lens,
        req_to_token=req_to_token,
        full_to_swa_index_mapping=full_to_swa_index_mapping,
        out_verify_offsets_scratch=out_verify_offsets_scratch,
        out_write_offsets=out_write_offsets,
        out_write_seed_slot_indices=out_write_seed_slot_indices,
        out_verify_num_valid=out_verify_num_valid,
        out_verify_enable=out_verify_enable,
        out_write_num_valid_reqs=out_write_num_valid_reqs,
        swa_window_size=eager.scalar(swa_window_size, req_pool_indices),
        verify_capacity=eager.scalar(verify_capacity, req_pool_indices),
    )


# --- Validation -------------------------------------------------------------------------------------------------------


def validate(
    op: str,
    *,
    req_pool_indices: torch.Tensor,
    prefix_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    full_to_swa_index_mapping: torch.Tensor | None,
    out_verify_offsets_scratch: torch.Tensor,
    out_write_offsets: torch.Tensor,
    out_write_seed_slot_indices: torch.Tensor,
    out_verify_num_valid: torch.Tensor,
    out_verify_enable: torch.Tensor,
    out_write_num_valid_reqs: torch.Tensor,
    swa_window_size: int,
    verify_capacity: int,
) -> None:
    """Checks metadata alone and raises the first rule broken; `op` is the public function called."""
    tensors: checks.Tensors = [
        ("req_pool_indices", req_pool_indices, torch.int64, 1),
        ("prefix_lens", prefix_lens, torch.int64, 1),
        ("extend_seq_lens", extend_seq_lens, torch.int64, 1),
        ("req_to_token", req_to_token, torch.int32, 2),
        ("out_verify_offsets_scratch", out_verify_offsets_scratch, torch.int64, 1),
        ("out_write_offsets", out_write_offsets, torch.int64, 1),
        ("out_write_seed_slot_indices", out_write_seed_slot_indices, torch.int64, 1),
        ("out_verify_num_valid", out_verify_num_valid, torch.int32, 1),
        ("out_verify_enable", out_verify_enable, torch.int32, 1),
        ("out_write_num_valid_reqs", out_write_num_valid_reqs, torch.int32, 1),
    ]
    if full_to_swa_index_mapping is not None:
        tensors.append(("full_to_swa_index_mapping", full_to_swa_index_mapping, torch.int64, 1))
    checks.kinds(tensors)
    checks.kind("swa_window_size", swa_window_size, int)
    checks.kind("verify_capacity", verify_capacity, int)
    bs = checks.size("req_pool_indices", req_pool_indices, 1, 0)
    if bs > layout.MAX_PLAN_BATCH:
        raise errors.CanaryValueError(
            "KVC-005",
            f"kv-canary: launch_canary_plan_kernels supports at most bs={layout.MAX_PLAN_BATCH} reqs per launch, got "
            f"bs={bs}. To raise the limit, set MAX_PLAN_BATCH in spec/constants.yaml and run kvcanary-gen generate.",
        )
    out_write_offsets_len = checks.size("out_write_offsets", out_write_offsets, 1, 0)
    if out_write_offsets_len <= 0:
        raise errors.CanaryValueError(
            "KVC-006", f"kv-canary: write_offsets_len must be positive, got {out_write_offsets_len}"
        )
    if verify_capacity < 0:
        raise errors.CanaryValueError(
            "KVC-007", f"kv-canary: verify_capacity must be non-negative, got {verify_capacity}"
        )
    write_req_capacity = checks.size("out_write_seed_slot_indices", out_write_seed_slot_indices, 1, 0)
    if out_write_offsets_len != write_req_capacity + 1:
        raise errors.CanaryValueError(
            "KVC-008",
            f"kv-canary: write_offsets_len must equal write_req_capacity + 1, got {out_write_offsets_len} and "
            f"{write_req_capacity}",
        )
    if bs > write_req_capacity:
        raise errors.CanaryValueError("KVC-009", f"kv-canary: bs={bs} exceeds write_req_capacity={write_req_capacity}")
    if verify_capacity > layout.INT32_MAX:
        raise errors.CanaryValueError(
            "KVC-010", f"kv-canary: verify_capacity must be at most {layout.INT32_MAX}, got {verify_capacity}"
        )
    checks.int64("swa_window_size", swa_window_size)
    checks.int64("verify_capacity", verify_capacity)
    checks.dtypes(tensors)
    checks.ranks(tensors)
    checks.length("prefix_lens", prefix_lens.shape[0], bs)
    checks.length("extend_seq_lens", extend_seq_lens.shape[0], bs)
    checks.at_least("out_verify_offsets_scratch", out_verify_offsets_scratch.shape[0], layout.MAX_PLAN_BATCH + 1)
    checks.length("out_write_offsets", out_write_offsets.shape[0], write_req_capacity + 1)
    checks.length("out_verify_num_valid", out_verify_num_valid.shape[0], 1)
    checks.length("out_verify_enable", out_verify_enable.shape[0], 1)
    checks.length("out_write_num_valid_reqs", out_write_num_valid_reqs.shape[0], 1)
    checks.contiguous(tensors)
    checks.devices(tensors)
    checks.aligned(tensors)


# --- Triton -----------------------------------------------------------------------------------------------------------


@lang.kernel
def _plan_offsets_kernel(
    # inputs
    req_pool_indices_ptr,  # [bs] int64
    prefix_lens_ptr,  # [bs] int64
    extend_seq_lens_ptr,  # [bs] int64
    req_to_token_ptr,  # [table_rows, table_width] int32
    full_to_swa_index_mapping_ptr,  # [mapping_len] int64
    # outputs
    out_verify_offsets_scratch_ptr,  # [>= MAX_PLAN_BATCH + 1] int64
    out_write_offsets_ptr,  # [write_req_capacity + 1] int64
    out_write_seed_slot_indices_ptr,  # [write_req_capacity] int64
    out_verify_num_valid_ptr,  # [1] int32
    out_verify_enable_ptr,  # [1] int32
    out_write_num_valid_reqs_ptr,  # [1] int32
    # sizes and scalars
    bs: tl.int64,
    table_rows: tl.int64,
    mapping_len: tl.int64,
    table_width: tl.int64,
    out_verify_offsets_scratch_len: tl.int64,
    out_write_offsets_len: tl.int64,
    write_req_capacity: tl.int64,
    swa_window_size: tl.int64,
    verify_capacity: tl.int64,
    # constants
    HAS_FULL_TO_SWA_INDEX_MAPPING: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Where each request's entries begin, in the verify plan and among the new tokens."""
    # The interpreter passes small integers as int32; the sum forces 64 bits and costs nothing compiled.
    bs = bs.to(tl.int64) + 0
    table_rows = table_rows.to(tl.int64) + 0
    mapping_len = mapping_len.to(tl.int64) + 0
    table_width = table_width.to(tl.int64) + 0
    out_verify_offsets_scratch_len = out_verify_offsets_scratch_len.to(tl.int64) + 0
    out_write_offsets_len = out_write_offsets_len.to(tl.int64) + 0
    write_req_capacity = write_req_capacity.to(tl.int64) + 0
    swa_window_size = swa_window_size.to(tl.int64) + 0
    verify_capacity = verify_capacity.to(tl.int64) + 0
    lang.begin(OVERLAPS)
    verify_total = tl.zeros([], tl.int64)
    write_total = tl.zeros([], tl.int64)
    start = tl.zeros([], tl.int64)
    while start < bs:
        r = start + tl.arange(0, BLOCK)
        mask = r < bs
        row = tl.load(req_pool_indices_ptr + r, mask=mask, other=0)
        live = device.is_live(row, table_rows)
        prefix_len = tl.load(prefix_lens_ptr + r, mask=mask, other=0)
        verify_count = tl.where(live, tl.maximum(0, prefix_len - device.window_start(prefix_len, swa_window_size)), 0)
        write_count = tl.where(live, tl.maximum(0, tl.load(extend_seq_lens_ptr + r, mask=mask & live, other=0)), 0)
        chosen = (write_count > 0) & (prefix_len > 0)
        seed = tl.where(
            chosen,
            device.slot_at(
                row,
                prefix_len - 1,
                mask & chosen,
                full_to_swa_index_mapping_ptr,
                req_to_token_ptr,
                mapping_len,
                table_rows,
                table_width,
                HAS_FULL_TO_SWA_INDEX_MAPPING,
            ),
            -1,
        )
        verify_offsets_scratch_ends = lang.running_sum(tl.where(mask, verify_count, 0), verify_total)
        tl.store(
            out_verify_offsets_scratch_ptr + r + 1,
            verify_offsets_scratch_ends,
            mask=mask & (r + 1 < out_verify_offsets_scratch_len),
        )
        verify_total = tl.max(verify_offsets_scratch_ends, axis=0)
        write_offsets_ends = lang.running_sum(tl.where(mask, write_count, 0), write_total)
        tl.store(out_write_offsets_ptr + r + 1, write_offsets_ends, mask=mask & (r + 1 < out_write_offsets_len))
        write_total = tl.max(write_offsets_ends, axis=0)
        tl.store(out_write_seed_slot_indices_ptr + r, seed, mask=mask & (r < write_req_capacity))
        start += BLOCK
    tl.store(out_verify_offsets_scratch_ptr, tl.zeros([], tl.int64), mask=out_verify_offsets_scratch_len > 0)
    tl.store(out_write_offsets_ptr, tl.zeros([], tl.int64), mask=out_write_offsets_len > 0)
    start_2 = tl.maximum(bs, 0) + 1
    while start_2 < out_write_offsets_len:
        place = start_2 + tl.arange(0, BLOCK)
        tl.store(out_write_offsets_ptr + place, tl.full([BLOCK], 0, tl.int64), mask=place < out_write_offsets_len)
        start_2 += BLOCK
    verify_num_valid = tl.minimum(verify_total, verify_capacity)
    tl.store(out_verify_num_valid_ptr, verify_num_valid)
    verify_enable = (verify_total <= verify_capacity).to(tl.int64)
    tl.store(out_verify_enable_ptr, verify_enable)
    tl.store(out_write_num_valid_reqs_ptr, bs)


def launch(
    *,
    req_pool_indices: torch.Tensor,
    prefix_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    full_to_swa_index_mapping: torch.Tensor | None,
    out_verify_offsets_scratch: torch.Tensor,
    out_write_offsets: torch.Tensor,
    out_write_seed_slot_indices: torch.Tensor,
    out_verify_num_valid: torch.Tensor,
    out_verify_enable: torch.Tensor,
    out_write_num_valid_reqs: torch.Tensor,
    swa_window_size: int,
    verify_capacity: int,
    run: dispatch.Run = dispatch.launch,
) -> None:
    """Launches the kernel on valid arguments. Nothing is allocated, and no device data is read."""
    bs = req_pool_indices.shape[0]
    table_rows = req_to_token.shape[0]
    mapping_len = full_to_swa_index_mapping.shape[0] if full_to_swa_index_mapping is not None else 0
    table_width = req_to_token.shape[1]
    out_verify_offsets_scratch_len = out_verify_offsets_scratch.shape[0]
    out_write_offsets_len = out_write_offsets.shape[0]
    write_req_capacity = out_write_seed_slot_indices.shape[0]
    block, num_warps, registers = dispatch.one_round(bs, [(128, 4, None), (256, 8, None), (1024, 16, None)])
    programs = 1
    if programs <= 0:
        return
    with dispatch.on_device(req_pool_indices):
        run(
            _plan_offsets_kernel,
            (programs,),
            req_pool_indices,
            prefix_lens,
            extend_seq_lens,
            req_to_token,
            full_to_swa_index_mapping,
            out_verify_offsets_scratch,
            out_write_offsets,
            out_write_seed_slot_indices,
            out_verify_num_valid,
            out_verify_enable,
            out_write_num_valid_reqs,
            bs,
            table_rows,
            mapping_len,
            table_width,
            out_verify_offsets_scratch_len,
            out_write_offsets_len,
            write_req_capacity,
            swa_window_size,
            verify_capacity,
            HAS_FULL_TO_SWA_INDEX_MAPPING=full_to_swa_index_mapping is not None,
            BLOCK=block,
            num_warps=num_warps,
            **dispatch.at_most(registers),
            **dispatch.overlapping(req_pool_indices),
        )


# --- Reference --------------------------------------------------------------------------------------------------------


def reference(
    *,
    req_pool_indices: torch.Tensor,
    prefix_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    full_to_swa_index_mapping: torch.Tensor | None,
    out_verify_offsets_scratch: torch.Tensor,
    out_write_offsets: torch.Tensor,
    out_write_seed_slot_indices: torch.Tensor,
    out_verify_num_valid: torch.Tensor,
    out_verify_enable: torch.Tensor,
    out_write_num_valid_reqs: torch.Tensor,
    swa_window_size: torch.Tensor,
    verify_capacity: torch.Tensor,
) -> None:
    """The kernel in vectorised torch, on any device; scalars are 0-d tensors, so that they wrap."""
    bs = req_pool_indices.shape[0]
    table_rows = req_to_token.shape[0]
    mapping_len = full_to_swa_index_mapping.shape[0] if full_to_swa_index_mapping is not None else 0
    table_width = req_to_token.shape[1]
    r = torch.arange(bs, device=req_pool_indices.device)
    row = eager.load(req_pool_indices, r)
    live = functions.is_live(row, table_rows)
    prefix_len = eager.load(prefix_lens, r)
    verify_count = torch.where(live, (prefix_len - functions.window_start(prefix_len, swa_window_size)).clamp(min=0), 0)
    write_count = torch.where(live, eager.load(extend_seq_lens, r).clamp(min=0), 0)
    seed = torch.where(
        (write_count > 0) & (prefix_len > 0),
        functions.slot_at(row, prefix_len - 1, full_to_swa_index_mapping, req_to_token, mapping_len, table_width),
        -1,
    )
    verify_offsets_scratch_ends = eager.running_sum(verify_count.expand_as(r))
    eager.store_offsets(out_verify_offsets_scratch, verify_offsets_scratch_ends)
    verify_total = eager.total(verify_offsets_scratch_ends)
    write_offsets_ends = eager.running_sum(write_count.expand_as(r))
    eager.store_offsets(out_write_offsets, write_offsets_ends, rest=0)
    eager.store(out_write_seed_slot_indices, (r,), seed, unique=True)
    verify_num_valid = torch.minimum(verify_total, verify_capacity)
    eager.store(out_verify_num_valid, (0,), verify_num_valid, unique=True)
    verify_enable = torch.where(verify_total <= verify_capacity, 1, 0)
    eager.store(out_verify_enable, (0,), verify_enable, unique=True)
    eager.store(out_write_num_valid_reqs, (0,), bs, unique=True)
