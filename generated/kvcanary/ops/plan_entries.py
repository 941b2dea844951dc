# Written by kvcanary-gen from the spec; edit that instead.
"""One verify entry for every cached position of every live request.

Contract §3.
"""

from __future__ import annotations

import torch
import triton.language as tl

from .. import errors, layout
from ..core import bound, checks, device, dispatch, eager, functions, lang

# --- Public functions -------------------------------------------------------------------------------------------------


def launch_plan_entries_kernel(
    *,
    req_pool_indices: torch.Tensor,
    prefix_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    full_to_swa_index_mapping: torch.Tensor | None = None,
    verify_offsets_scratch: torch.Tensor,
    verify_enable: torch.Tensor,
    req_to_verify_expected_tokens: torch.Tensor | None = None,
    req_to_verify_expected_tokens_valid_lens: torch.Tensor | None = None,
    out_verify_slot_indices: torch.Tensor,
    out_verify_expected_tokens: torch.Tensor,
    out_verify_expected_positions: torch.Tensor,
    out_verify_prev_slot_indices: torch.Tensor,
    kv_token_id_vs_position_offset: int,
    swa_window_size: int,
    backend: str | None = None,
) -> None:
    """One verify entry for every cached position of every live request.

    Contract §3. Outputs change in place; nothing is read back to the host.

    Args:
        req_pool_indices (int64 [bs]): Request row of each request; row 0 is padding.
        prefix_lens (int64 [bs]): Tokens of each request that are cached already.
        req_to_token (int32 [table_rows, table_width]): Slot of every position of every request row.
        full_to_swa_index_mapping (int64 [mapping_len], optional): Slot in the sliding-window pool of every full slot, 0
            where it was evicted; None: slots stay as they are.
        verify_offsets_scratch (int64 [>= bs + 1]): Entry range of request r, from element r up to element r + 1.
        verify_enable (int32 [1]): 0 when the entries did not fit the capacity; nothing is verified then.
        req_to_verify_expected_tokens (int32 [token_rows, token_width], optional): Token history of every request row,
            to check cached tokens against.
        req_to_verify_expected_tokens_valid_lens (int64 [bs], optional): Columns of each request's history that hold its
            own tokens; a recycled row has a stale tail behind them.
        out_verify_slot_indices (int64 [verify_capacity]): Slot of the entry, translated to the group's pool.
        out_verify_expected_tokens (int64 [verify_capacity]): Token of the request's history at that position, -1 where
            it is not known.
        out_verify_expected_positions (int64 [verify_capacity]): Position of the entry in its request.
        out_verify_prev_slot_indices (int64 [verify_capacity]): Slot of the position before it, -1 at the start of the
            chain.
        kv_token_id_vs_position_offset (int): Column of the history for position p is p plus this; speculative drafts
            use 1.
        swa_window_size (int): Positions that the sliding window keeps; 0 or less keeps all.
        backend (str, optional): 'triton' or 'reference'; chosen by KVCANARY_BACKEND or the device if None.

    Raises:
        CanaryError: KVC-003 for this operation, and the rules on every tensor's dtype, rank, length, contiguity and
            device; all before anything is launched or written.
    """
    validate(
        "launch_plan_entries_kernel",
        req_pool_indices=req_pool_indices,
        prefix_lens=prefix_lens,
        req_to_token=req_to_token,
        full_to_swa_index_mapping=full_to_swa_index_mapping,
        verify_offsets_scratch=verify_offsets_scratch,
        verify_enable=verify_enable,
        req_to_verify_expected_tokens=req_to_verify_expected_tokens,
        req_to_verify_expected_tokens_valid_lens=req_to_verify_expected_tokens_valid_lens,
        out_verify_slot_indices=out_verify_slot_indices,
        out_verify_expected_tokens=out_verify_expected_tokens,
        out_verify_expected_positions=out_verify_expected_positions,
        out_verify_prev_slot_indices=out_verify_prev_slot_indices,
        kv_token_id_vs_position_offset=kv_token_id_vs_position_offset,
        swa_window_size=swa_window_size,
    )
    if dispatch.use_triton(req_pool_indices, backend):
        launch(
            req_pool_indices=req_pool_indices,
            prefix_lens=prefix_lens,
            req_to_token=req_to_token,
            full_to_swa_index_mapping=full_to_swa_index_mapping,
            verify_offsets_scratch=verify_offsets_scratch,
            verify_enable=verify_enable,
            req_to_verify_expected_tokens=req_to_verify_expected_tokens,
            req_to_verify_expected_tokens_valid_lens=req_to_verify_expected_tokens_valid_lens,
            out_verify_slot_indices=out_verify_slot_indices,
            out_verify_expected_tokens=out_verify_expected_tokens,
            out_verify_expected_positions=out_verify_expected_positions,
            out_verify_prev_slot_indices=out_verify_prev_slot_indices,
            kv_token_id_vs_position_offset=kv_token_id_vs_position_offset,
            swa_window_size=swa_window_size,
        )
    else:
        dispatch.refuse_capture("launch_plan_entries_kernel", req_pool_indices)
        reference(
            req_pool_indices=req_pool_indices,
            prefix_lens=prefix_lens,
            req_to_token=req_to_token,
            full_to_swa_index_mapping=full_to_swa_index_mapping,
            verify_offsets_scratch=verify_offsets_scratch,
            verify_enable=verify_enable,
            req_to_verify_expected_tokens=req_to_verify_expected_tokens,
            req_to_verify_expected_tokens_valid_lens=req_to_verify_expected_tokens_valid_lens,
            out_verify_slot_indices=out_verify_slot_indices,
            out_verify_expected_tokens=out_verify_expected_tokens,
            out_verify_expected_positions=out_verify_expected_positions,
            out_verify_prev_slot_indices=out_verify_prev_slot_indices,
            kv_token_id_vs_position_offset=eager.scalar(kv_token_id_vs_position_offset, req_pool_indices),
            swa_window_size=eager.scalar(swa_window_size, req_pool_indices),
        )


def bind_plan_entries_kernel(
    *,
    req_pool_indices: torch.Tensor,
    prefix_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    full_to_swa_index_mapping: torch.Tensor | None = None,
    verify_offsets_scratch: torch.Tensor,
    verify_enable: torch.Tensor,
    req_to_verify_expected_tokens: torch.Tensor | None = None,
    req_to_verify_expected_tokens_valid_lens: torch.Tensor | None = None,
    out_verify_slot_indices: torch.Tensor,
    out_verify_expected_tokens: torch.Tensor,
    out_verify_expected_positions: torch.Tensor,
    out_verify_prev_slot_indices: torch.Tensor,
    kv_token_id_vs_position_offset: int,
    swa_window_size: int,
    backend: str | None = None,
) -> bound.Bound:
    """Checks the arguments of `launch_plan_entries_kernel` once, for a launch that is repeated.

    Takes what `launch_plan_entries_kernel` takes, and compiles what it would launch, but launches and writes nothing.
    Each call of what it returns then does the same as the launcher would with these arguments, at the cost of launching
    alone.

    Returns:
        Bound: To be called without arguments; says what may change between calls.

    Raises:
        CanaryError: as of `launch_plan_entries_kernel`, here; a call checks no argument.
    """
    validate(
        "bind_plan_entries_kernel",
        req_pool_indices=req_pool_indices,
        prefix_lens=prefix_lens,
        req_to_token=req_to_token,
        full_to_swa_index_mapping=full_to_swa_index_mapping,
        verify_offsets_scratch=verify_offsets_scratch,
        verify_enable=verify_enable,
        req_to_verify_expected_tokens=req_to_verify_expected_tokens,
        req_to_verify_expected_tokens_valid_lens=req_to_verify_expected_tokens_valid_lens,
        out_verify_slot_indices=out_verify_slot_indices,
        out_verify_expected_tokens=out_verify_expected_tokens,
        out_verify_expected_positions=out_verify_expected_positions,
        out_verify_prev_slot_indices=out_verify_prev_slot_indices,
        kv_token_id_vs_position_offset=kv_token_id_vs_position_offset,
        swa_window_size=swa_window_size,
    )
    if dispatch.use_triton(req_pool_indices, backend):
        return bound.kernels(
            "bind_plan_entries_kernel",
            req_pool_indices,
            launch,
            req_pool_indices=req_pool_indices,
            prefix_lens=prefix_lens,
            req_to_token=req_to_token,
            full_to_swa_index_mapping=full_to_swa_index_mapping,
            verify_offsets_scratch=verify_offsets_scratch,
            verify_enable=verify_enable,
            req_to_verify_expected_tokens=req_to_verify_expected_tokens,
            req_to_verify_expected_tokens_valid_lens=req_to_verify_expected_tokens_valid_lens,
            out_verify_slot_indices=out_verify_slot_indices,
            out_verify_expected_tokens=out_verify_expected_tokens,
            out_verify_expected_positions=out_verify_expected_positions,
            out_verify_prev_slot_indices=out_verify_prev_slot_indices,
            kv_token_id_vs_position_offset=kv_token_id_vs_position_offset,
            swa_window_size=swa_window_size,
        )
    return bound.reference(
        "bind_plan_entries_kernel",
        req_pool_indices,
        reference,
        req_pool_indices=req_pool_indices,
        prefix_lens=prefix_lens,
        req_to_token=req_to_token,
        full_to_swa_index_mapping=full_to_swa_index_mapping,
        verify_offsets_scratch=verify_offsets_scratch,
        verify_enable=verify_enable,
        req_to_verify_expected_tokens=req_to_verify_expected_tokens,
        req_to_verify_expected_tokens_valid_lens=req_to_verify_expected_tokens_valid_lens,
        out_verify_slot_indices=out_verify_slot_indices,
        out_verify_expected_tokens=out_verify_expected_tokens,
        out_verify_expected_positions=out_verify_expected_positions,
        out_verify_prev_slot_indices=out_verify_prev_slot_indices,
        kv_token_id_vs_position_offset=eager.scalar(kv_token_id_vs_position_offset, req_pool_indices),
        swa_window_size=eager.scalar(swa_window_size, req_pool_indices),
    )


def launch_plan_entries_kernel_torch_reference(
    *,
    req_pool_indices: torch.Tensor,
    prefix_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    full_to_swa_index_mapping: torch.Tensor | None = None,
    verify_offsets_scratch: torch.Tensor,
    verify_enable: torch.Tensor,
    req_to_verify_expected_tokens: torch.Tensor | None = None,
    req_to_verify_expected_tokens_valid_lens: torch.Tensor | None = None,
    out_verify_slot_indices: torch.Tensor,
    out_verify_expected_tokens: torch.Tensor,
    out_verify_expected_positions: torch.Tensor,
    out_verify_prev_slot_indices: torch.Tensor,
    kv_token_id_vs_position_offset: int,
    swa_window_size: int,
) -> None:
    """One verify entry for every cached position of every live request.

    The reference: same arguments, same result, on any device. Contract §3.

    Raises:
        CanaryError: KVC-003 for this operation, and the rules on every tensor's dtype, rank, length, contiguity and
            device; all before anything is launched or written.
    """
    validate(
        "launch_plan_entries_kernel_torch_reference",
        req_pool_indices=req_pool_indices,
        prefix_lens=prefix_lens,
        req_to_token=req_to_token,
        full_to_swa_index_mapping=full_to_swa_index_mapping,
        verify_offsets_scratch=verify_offsets_scratch,
        verify_enable=verify_enable,
        req_to_verify_expected_tokens=req_to_verify_expected_tokens,
        req_to_verify_expected_tokens_valid_lens=req_to_verify_expected_tokens_valid_lens,
        out_verify_slot_indices=out_verify_slot_indices,
        out_verify_expected_tokens=out_verify_expected_tokens,
        out_verify_expected_positions=out_verify_expected_positions,
        out_verify_prev_slot_indices=out_verify_prev_slot_indices,
        kv_token_id_vs_position_offset=kv_token_id_vs_position_offset,
        swa_window_size=swa_window_size,
    )
    dispatch.refuse_capture("launch_plan_entries_kernel_torch_reference", req_pool_indices)
    reference(
        req_pool_indices=req_pool_indices,
        prefix_lens=prefix_lens,
        req_to_token=req_to_token,
        full_to_swa_index_mapping=full_to_swa_index_mapping,
        verify_offsets_scratch=verify_offsets_scratch,
        verify_enable=verify_enable,
        req_to_verify_expected_tokens=req_to_verify_expected_tokens,
        req_to_verify_expected_tokens_valid_lens=req_to_verify_expected_tokens_valid_lens,
        out_verify_slot_indices=out_verify_slot_indices,
        out_verify_expected_tokens=out_verify_expected_tokens,
        out_verify_expected_positions=out_verify_expected_positions,
        out_verify_prev_slot_indices=out_verify_prev_slot_indices,
        kv_token_id_vs_position_offset=eager.scalar(kv_token_id_vs_position_offset, req_pool_indices),
        swa_window_size=eager.scalar(swa_window_size, req_pool_indices),
    )


# --- Validation -------------------------------------------------------------------------------------------------------


def validate(
    op: str,
    *,
    req_pool_indices: torch.Tensor,
    prefix_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    full_to_swa_index_mapping: torch.Tensor | None,
    verify_offsets_scratch: torch.Tensor,
    verify_enable: torch.Tensor,
    req_to_verify_expected_tokens: torch.Tensor | None,
    req_to_verify_expected_tokens_valid_lens: torch.Tensor | None,
    out_verify_slot_indices: torch.Tensor,
    out_verify_expected_tokens: torch.Tensor,
    out_verify_expected_positions: torch.Tensor,
    out_verify_prev_slot_indices: torch.Tensor,
    kv_token_id_vs_position_offset: int,
    swa_window_size: int,
) -> None:
    """Checks metadata alone and raises the first rule broken; `op` is the public function called."""
    tensors: checks.Tensors = [
        ("req_pool_indices", req_pool_indices, torch.int64, 1),
        ("prefix_lens", prefix_lens, torch.int64, 1),
        ("req_to_token", req_to_token, torch.int32, 2),
        ("verify_offsets_scratch", verify_offsets_scratch, torch.int64, 1),
        ("verify_enable", verify_enable, torch.int32, 1),
        ("out_verify_slot_indices", out_verify_slot_indices, torch.int64, 1),
        ("out_verify_expected_tokens", out_verify_expected_tokens, torch.int64, 1),
        ("out_verify_expected_positions", out_verify_expected_positions, torch.int64, 1),
        ("out_verify_prev_slot_indices", out_verify_prev_slot_indices, torch.int64, 1),
    ]
    if full_to_swa_index_mapping is not None:
        tensors.append(("full_to_swa_index_mapping", full_to_swa_index_mapping, torch.int64, 1))
    if req_to_verify_expected_tokens is not None:
        tensors.append(("req_to_verify_expected_tokens", req_to_verify_expected_tokens, torch.int32, 2))
    if req_to_verify_expected_tokens_valid_lens is not None:
        tensors.append(
            ("req_to_verify_expected_tokens_valid_lens", req_to_verify_expected_tokens_valid_lens, torch.int64, 1)
        )
    checks.kinds(tensors)
    checks.kind("kv_token_id_vs_position_offset", kv_token_id_vs_position_offset, int)
    checks.kind("swa_window_size", swa_window_size, int)
    if req_to_verify_expected_tokens is not None and req_to_verify_expected_tokens_valid_lens is None:
        raise errors.CanaryValueError(
            "KVC-003",
            f"kv-canary: {op} requires req_to_verify_expected_tokens_valid_lens when req_to_verify_expected_tokens "
            "is set",
        )
    checks.int64("kv_token_id_vs_position_offset", kv_token_id_vs_position_offset)
    checks.int64("swa_window_size", swa_window_size)
    checks.dtypes(tensors)
    checks.ranks(tensors)
    bs = checks.size("req_pool_indices", req_pool_indices, 1, 0)
    checks.length("prefix_lens", prefix_lens.shape[0], bs)
    checks.at_least("verify_offsets_scratch", verify_offsets_scratch.shape[0], bs + 1)
    checks.length("verify_enable", verify_enable.shape[0], 1)
    if req_to_verify_expected_tokens_valid_lens is not None:
        checks.length("req_to_verify_expected_tokens_valid_lens", req_to_verify_expected_tokens_valid_lens.shape[0], bs)
    verify_capacity = checks.size("out_verify_slot_indices", out_verify_slot_indices, 1, 0)
    checks.length("out_verify_expected_tokens", out_verify_expected_tokens.shape[0], verify_capacity)
    checks.length("out_verify_expected_positions", out_verify_expected_positions.shape[0], verify_capacity)
    checks.length("out_verify_prev_slot_indices", out_verify_prev_slot_indices.shape[0], verify_capacity)
    checks.contiguous(tensors)
    checks.devices(tensors)
    checks.aligned(tensors)


# --- Triton -----------------------------------------------------------------------------------------------------------


@lang.kernel
def _plan_entries_kernel(
    # inputs
    req_pool_indices_ptr,  # [bs] int64
    prefix_lens_ptr,  # [bs] int64
    req_to_token_ptr,  # [table_rows, table_width] int32
    full_to_swa_index_mapping_ptr,  # [mapping_len] int64
    verify_offsets_scratch_ptr,  # [>= bs + 1] int64
    verify_enable_ptr,  # [1] int32
    req_to_verify_expected_tokens_ptr,  # [token_rows, token_width] int32
    req_to_verify_expected_tokens_valid_lens_ptr,  # [bs] int64
    # outputs
    out_verify_slot_indices_ptr,  # [verify_capacity] int64
    out_verify_expected_tokens_ptr,  # [verify_capacity] int64
    out_verify_expected_positions_ptr,  # [verify_capacity] int64
    out_verify_prev_slot_indices_ptr,  # [verify_capacity] int64
    # sizes and scalars
    bs: tl.int64,
    verify_capacity: tl.int64,
    table_rows: tl.int64,
    mapping_len: tl.int64,
    table_width: tl.int64,
    token_rows: tl.int64,
    token_width: tl.int64,
    kv_token_id_vs_position_offset: tl.int64,
    swa_window_size: tl.int64,
    # constants
    HAS_FULL_TO_SWA_INDEX_MAPPING: tl.constexpr,
    HAS_REQ_TO_VERIFY_EXPECTED_TOKENS: tl.constexpr,
    HAS_REQ_TO_VERIFY_EXPECTED_TOKENS_VALID_LENS: tl.constexpr,
    BLOCK: tl.constexpr,
    SCAN: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """One verify entry for every cached position of every live request."""
    # The interpreter passes small integers as int32; the sum forces 64 bits and costs nothing compiled.
    bs = bs.to(tl.int64) + 0
    verify_capacity = verify_capacity.to(tl.int64) + 0
    table_rows = table_rows.to(tl.int64) + 0
    mapping_len = mapping_len.to(tl.int64) + 0
    table_width = table_width.to(tl.int64) + 0
    token_rows = token_rows.to(tl.int64) + 0
    token_width = token_width.to(tl.int64) + 0
    kv_token_id_vs_position_offset = kv_token_id_vs_position_offset.to(tl.int64) + 0
    swa_window_size = swa_window_size.to(tl.int64) + 0
    lang.begin(OVERLAPS)
    if tl.load(verify_enable_ptr).to(tl.int64) == 0:
        return
    start = tl.program_id(0).to(tl.int64) * BLOCK
    i = start + tl.arange(0, BLOCK)
    r, first, found = lang.find_segment(i, start, verify_offsets_scratch_ptr, bs, SCAN)
    mask = found & (i < verify_capacity)
    j = i - first
    given_row = tl.load(req_pool_indices_ptr + r, mask=mask, other=0)
    row = tl.where((given_row >= 0) & (given_row < table_rows), given_row, device.REQ_POOL_IDX_PADDING)
    position = device.window_start(tl.load(prefix_lens_ptr + r, mask=mask, other=0), swa_window_size) + j
    token_column = position + kv_token_id_vs_position_offset
    verify_slot_indices = device.slot_at(
        row,
        position,
        mask,
        full_to_swa_index_mapping_ptr,
        req_to_token_ptr,
        mapping_len,
        table_rows,
        table_width,
        HAS_FULL_TO_SWA_INDEX_MAPPING,
    )
    tl.store(out_verify_slot_indices_ptr + i, verify_slot_indices, mask=mask)
    if HAS_REQ_TO_VERIFY_EXPECTED_TOKENS and HAS_REQ_TO_VERIFY_EXPECTED_TOKENS_VALID_LENS:
        chosen = (
            (row == given_row)
            & (token_column >= 0)
            & (token_column < tl.load(req_to_verify_expected_tokens_valid_lens_ptr + r, mask=mask, other=0))
        )
        req_to_verify_expected_tokens_value = tl.load(
            req_to_verify_expected_tokens_ptr + row * token_width + token_column,
            mask=mask & chosen & (row < token_rows) & (token_column < token_width),
            other=-1,
        ).to(tl.int64)
        verify_expected_tokens = tl.where(chosen, req_to_verify_expected_tokens_value, -1)
    else:
        verify_expected_tokens = tl.full([], -1, tl.int64)
    tl.store(out_verify_expected_tokens_ptr + i, verify_expected_tokens, mask=mask)
    tl.store(out_verify_expected_positions_ptr + i, position, mask=mask)
    verify_prev_slot_indices = tl.where(
        position > 0,
        device.slot_at(
            row,
            position - 1,
            mask & (position > 0),
            full_to_swa_index_mapping_ptr,
            req_to_token_ptr,
            mapping_len,
            table_rows,
            table_width,
            HAS_FULL_TO_SWA_INDEX_MAPPING,
        ),
        -1,
    )
    tl.store(out_verify_prev_slot_indices_ptr + i, verify_prev_slot_indices, mask=mask)


def launch(
    *,
    req_pool_indices: torch.Tensor,
    prefix_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    full_to_swa_index_mapping: torch.Tensor | None,
    verify_offsets_scratch: torch.Tensor,
    verify_enable: torch.Tensor,
    req_to_verify_expected_tokens: torch.Tensor | None,
    req_to_verify_expected_tokens_valid_lens: torch.Tensor | None,
    out_verify_slot_indices: torch.Tensor,
    out_verify_expected_tokens: torch.Tensor,
    out_verify_expected_positions: torch.Tensor,
    out_verify_prev_slot_indices: torch.Tensor,
    kv_token_id_vs_position_offset: int,
    swa_window_size: int,
    run: dispatch.Run = dispatch.launch,
) -> None:
    """Launches the kernel on valid arguments. Nothing is allocated, and no device data is read."""
    bs = req_pool_indices.shape[0]
    verify_capacity = out_verify_slot_indices.shape[0]
    table_rows = req_to_token.shape[0]
    mapping_len = full_to_swa_index_mapping.shape[0] if full_to_swa_index_mapping is not None else 0
    table_width = req_to_token.shape[1]
    token_rows = req_to_verify_expected_tokens.shape[0] if req_to_verify_expected_tokens is not None else 0
    token_width = req_to_verify_expected_tokens.shape[1] if req_to_verify_expected_tokens is not None else 0
    programs = dispatch.cdiv(verify_capacity, 512)
    if programs <= 0:
        return
    with dispatch.on_device(req_pool_indices):
        run(
            _plan_entries_kernel,
            (programs,),
            req_pool_indices,
            prefix_lens,
            req_to_token,
            full_to_swa_index_mapping,
            verify_offsets_scratch,
            verify_enable,
            req_to_verify_expected_tokens,
            req_to_verify_expected_tokens_valid_lens,
            out_verify_slot_indices,
            out_verify_expected_tokens,
            out_verify_expected_positions,
            out_verify_prev_slot_indices,
            bs,
            verify_capacity,
            table_rows,
            mapping_len,
            table_width,
            token_rows,
            token_width,
            kv_token_id_vs_position_offset,
            swa_window_size,
            HAS_FULL_TO_SWA_INDEX_MAPPING=full_to_swa_index_mapping is not None,
            HAS_REQ_TO_VERIFY_EXPECTED_TOKENS=req_to_verify_expected_tokens is not None,
            HAS_REQ_TO_VERIFY_EXPECTED_TOKENS_VALID_LENS=req_to_verify_expected_tokens_valid_lens is not None,
            BLOCK=512,
            SCAN=1024,
            num_warps=4,
            **dispatch.overlapping(req_pool_indices),
        )


# --- Reference --------------------------------------------------------------------------------------------------------


def reference(
    *,
    req_pool_indices: torch.Tensor,
    prefix_lens: torch.Tensor,
    req_to_token: torch.Tensor,
    full_to_swa_index_mapping: torch.Tensor | None,
    verify_offsets_scratch: torch.Tensor,
    verify_enable: torch.Tensor,
    req_to_verify_expected_tokens: torch.Tensor | None,
    req_to_verify_expected_tokens_valid_lens: torch.Tensor | None,
    out_verify_slot_indices: torch.Tensor,
    out_verify_expected_tokens: torch.Tensor,
    out_verify_expected_positions: torch.Tensor,
    out_verify_prev_slot_indices: torch.Tensor,
    kv_token_id_vs_position_offset: torch.Tensor,
    swa_window_size: torch.Tensor,
) -> None:
    """The kernel in vectorised torch, on any device; scalars are 0-d tensors, so that they wrap."""
    bs = req_pool_indices.shape[0]
    verify_capacity = out_verify_slot_indices.shape[0]
    table_rows = req_to_token.shape[0]
    mapping_len = full_to_swa_index_mapping.shape[0] if full_to_swa_index_mapping is not None else 0
    table_width = req_to_token.shape[1]
    if not bool(eager.load(verify_enable, 0) != 0):
        return
    segments = eager.segments(verify_offsets_scratch, bs, verify_capacity)
    r, j, i = segments.owner, segments.within, segments.index
    given_row = eager.load(req_pool_indices, r)
    row = torch.where((given_row >= 0) & (given_row < table_rows), given_row, layout.REQ_POOL_IDX_PADDING)
    position = functions.window_start(eager.load(prefix_lens, r), swa_window_size) + j
    token_column = position + kv_token_id_vs_position_offset
    verify_slot_indices = functions.slot_at(
        row, position, full_to_swa_index_mapping, req_to_token, mapping_len, table_width
    )
    eager.store(out_verify_slot_indices, (i,), verify_slot_indices, unique=segments.disjoint)
    if req_to_verify_expected_tokens is not None and req_to_verify_expected_tokens_valid_lens is not None:
        chosen = (
            (row == given_row)
            & (token_column >= 0)
            & (token_column < eager.load(req_to_verify_expected_tokens_valid_lens, r))
        )
        verify_expected_tokens = torch.where(
            chosen, eager.load(req_to_verify_expected_tokens, row, token_column, outside=-1), -1
        )
    else:
        verify_expected_tokens = torch.tensor(-1)
    eager.store(out_verify_expected_tokens, (i,), verify_expected_tokens, unique=segments.disjoint)
    eager.store(out_verify_expected_positions, (i,), position, unique=segments.disjoint)
    verify_prev_slot_indices = torch.where(
        position > 0,
        functions.slot_at(row, position - 1, full_to_swa_index_mapping, req_to_token, mapping_len, table_width),
        -1,
    )
    eager.store(out_verify_prev_slot_indices, (i,), verify_prev_slot_indices, unique=segments.disjoint)
