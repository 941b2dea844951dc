# Written by kvcanary-gen from the spec; edit that instead.
"""Copies each request's token ids into its row of the token pool. Tokens that do not fit the row are dropped.

Contract §6.
"""

from __future__ import annotations

import torch
import triton.language as tl

from ..core import bound, checks, dispatch, eager, lang

# --- Public functions -------------------------------------------------------------------------------------------------


def launch_scatter_req_token_ids_kernel(
    *,
    flat_in: torch.Tensor,
    offsets: torch.Tensor,
    req_pool_indices: torch.Tensor,
    pool_out: torch.Tensor,
    backend: str | None = None,
) -> None:
    """Copies each request's token ids into its row of the token pool. Tokens that do not fit the row are dropped.

    Contract §6. Outputs change in place; nothing is read back to the host.

    Args:
        flat_in (int64 [num_tokens]): Token ids of all requests, one after the other.
        offsets (int64 [bs + 1]): Token range of request r, from element r up to element r + 1.
        req_pool_indices (int64 [bs]): Request row of each request; row 0 is padding.
        pool_out (int32 [pool_rows, pool_width]): Token ids of every request row; the low 32 bits of each are kept.
        backend (str, optional): 'triton' or 'reference'; chosen by KVCANARY_BACKEND or the device if None.

    Raises:
        CanaryError: and the rules on every tensor's dtype, rank, length, contiguity and device; all before anything is
            launched or written.
    """
    validate(
        "launch_scatter_req_token_ids_kernel",
        flat_in=flat_in,
        offsets=offsets,
        req_pool_indices=req_pool_indices,
        pool_out=pool_out,
    )
    if dispatch.use_triton(flat_in, backend):
        launch(flat_in=flat_in, offsets=offsets, req_pool_indices=req_pool_indices, pool_out=pool_out)
    else:
        dispatch.refuse_capture("launch_scatter_req_token_ids_kernel", flat_in)
        reference(flat_in=flat_in, offsets=offsets, req_pool_indices=req_pool_indices, pool_out=pool_out)


def bind_scatter_req_token_ids_kernel(
    *,
    flat_in: torch.Tensor,
    offsets: torch.Tensor,
    req_pool_indices: torch.Tensor,
    pool_out: torch.Tensor,
    backend: str | None = None,
) -> bound.Bound:
    """Checks the arguments of `launch_scatter_req_token_ids_kernel` once, for a launch that is repeated.

    Takes what `launch_scatter_req_token_ids_kernel` takes, and compiles what it would launch, but launches and writes
    nothing. Each call of what it returns then does the same as the launcher would with these arguments, at the cost of
    launching alone.

    Returns:
        Bound: To be called without arguments; says what may change between calls.

    Raises:
        CanaryError: as of `launch_scatter_req_token_ids_kernel`, here; a call checks no argument.
    """
    validate(
        "bind_scatter_req_token_ids_kernel",
        flat_in=flat_in,
        offsets=offsets,
        req_pool_indices=req_pool_indices,
        pool_out=pool_out,
    )
    if dispatch.use_triton(flat_in, backend):
        return bound.kernels(
            "bind_scatter_req_token_ids_kernel",
            flat_in,
            launch,
            flat_in=flat_in,
            offsets=offsets,
            req_pool_indices=req_pool_indices,
            pool_out=pool_out,
        )
    return bound.reference(
        "bind_scatter_req_token_ids_kernel",
        flat_in,
        reference,
        flat_in=flat_in,
        offsets=offsets,
        req_pool_indices=req_pool_indices,
        pool_out=pool_out,
    )


def launch_scatter_req_token_ids_kernel_torch_reference(
    *,
    flat_in: torch.Tensor,
    offsets: torch.Tensor,
    req_pool_indices: torch.Tensor,
    pool_out: torch.Tensor,
) -> None:
    """Copies each request's token ids into its row of the token pool. Tokens that do not fit the row are dropped.

    The reference: same arguments, same result, on any device. Contract §6.

    Raises:
        CanaryError: and the rules on every tensor's dtype, rank, length, contiguity and device; all before anything is
            launched or written.
    """
    validate(
        "launch_scatter_req_token_ids_kernel_torch_reference",
        flat_in=flat_in,
        offsets=offsets,
        req_pool_indices=req_pool_indices,
        pool_out=pool_out,
    )
    dispatch.refuse_capture("launch_scatter_req_token_ids_kernel_torch_reference", flat_in)
    reference(flat_in=flat_in, offsets=offsets, req_pool_indices=req_pool_indices, pool_out=pool_out)


# --- Validation -------------------------------------------------------------------------------------------------------


def validate(
    op: str,
    *,
    flat_in: torch.Tensor,
    offsets: torch.Tensor,
    req_pool_indices: torch.Tensor,
    pool_out: torch.Tensor,
) -> None:
    """Checks metadata alone and raises the first rule broken; `op` is the public function called."""
    tensors: checks.Tensors = [
        ("flat_in", flat_in, torch.int64, 1),
        ("offsets", offsets, torch.int64, 1),
        ("req_pool_indices", req_pool_indices, torch.int64, 1),
        ("pool_out", pool_out, torch.int32, 2),
    ]
    checks.kinds(tensors)
    checks.dtypes(tensors)
    checks.ranks(tensors)
    bs = checks.size("req_pool_indices", req_pool_indices, 1, 0)
    checks.length("offsets", offsets.shape[0], bs + 1)
    checks.contiguous(tensors)
    checks.devices(tensors)
    checks.aligned(tensors)


# --- Triton -----------------------------------------------------------------------------------------------------------


@lang.kernel
def _scatter_req_token_ids_kernel(
    # inputs
    flat_in_ptr,  # [num_tokens] int64
    offsets_ptr,  # [bs + 1] int64
    req_pool_indices_ptr,  # [bs] int64
    # outputs
    pool_out_ptr,  # [pool_rows, pool_width] int32
    # sizes and scalars
    bs: tl.int64,
    num_tokens: tl.int64,
    pool_rows: tl.int64,
    pool_width: tl.int64,
    lanes: tl.int64,  # programs for each segment
    # constants
    BLOCK: tl.constexpr,
    SCAN: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """Copies each request's token ids into its row of the token pool. Tokens that do not fit the row are dropped."""
    # The interpreter passes small integers as int32; the sum forces 64 bits and costs nothing compiled.
    bs = bs.to(tl.int64) + 0
    num_tokens = num_tokens.to(tl.int64) + 0
    pool_rows = pool_rows.to(tl.int64) + 0
    pool_width = pool_width.to(tl.int64) + 0
    lanes = lanes.to(tl.int64) + 0
    lang.begin(OVERLAPS)
    program = tl.program_id(0).to(tl.int64)
    segment = program // lanes
    first, end = lang.segment_bounds(segment, True, offsets_ptr, num_tokens)
    place = tl.load(req_pool_indices_ptr + segment)
    # Where a later segment stores to the same place, it has the last word.
    overwritten = tl.zeros([], tl.int64)
    begin = segment + 1
    while begin < bs:
        later = begin + tl.arange(0, SCAN)
        later_mask = later < bs
        later_first, later_end = lang.segment_bounds(later, later_mask, offsets_ptr, num_tokens)
        length = tl.where(
            later_mask & (tl.load(req_pool_indices_ptr + later, mask=later_mask, other=0) == place),
            later_end - later_first,
            0,
        )
        overwritten = tl.maximum(overwritten, tl.max(length, axis=0))
        begin += SCAN
    r = segment + tl.zeros([BLOCK], tl.int64)
    start = (program % lanes) * BLOCK
    while start < end - first:
        j = start + tl.arange(0, BLOCK)
        t = first + j
        mask = t < end
        kept = mask & (j >= overwritten)
        pool_out = tl.load(flat_in_ptr + t, mask=kept, other=0)
        row = tl.load(req_pool_indices_ptr + r, mask=kept, other=0)
        tl.store(
            pool_out_ptr + row * pool_width + j, pool_out, mask=kept & (row >= 0) & (row < pool_rows) & (j < pool_width)
        )
        start += lanes * BLOCK


def launch(
    *,
    flat_in: torch.Tensor,
    offsets: torch.Tensor,
    req_pool_indices: torch.Tensor,
    pool_out: torch.Tensor,
    run: dispatch.Run = dispatch.launch,
) -> None:
    """Launches the kernel on valid arguments. Nothing is allocated, and no device data is read."""
    bs = req_pool_indices.shape[0]
    num_tokens = flat_in.shape[0]
    pool_rows = pool_out.shape[0]
    pool_width = pool_out.shape[1]
    # Few segments get several programs each, so that they still fill the device.
    lanes = max(1, min(dispatch.cdiv(num_tokens, 1024), 2048 // max(1, bs)))
    programs = bs * lanes
    if programs <= 0:
        return
    with dispatch.on_device(flat_in):
        run(
            _scatter_req_token_ids_kernel,
            (programs,),
            flat_in,
            offsets,
            req_pool_indices,
            pool_out,
            bs,
            num_tokens,
            pool_rows,
            pool_width,
            lanes,
            BLOCK=1024,
            SCAN=1024,
            num_warps=4,
            **dispatch.overlapping(flat_in),
        )


# --- Reference --------------------------------------------------------------------------------------------------------


def reference(
    *,
    flat_in: torch.Tensor,
    offsets: torch.Tensor,
    req_pool_indices: torch.Tensor,
    pool_out: torch.Tensor,
) -> None:
    """The kernel in vectorised torch, on any device; scalars are 0-d tensors, so that they wrap."""
    bs = req_pool_indices.shape[0]
    num_tokens = flat_in.shape[0]
    segments = eager.segments(offsets, bs, num_tokens)
    r, j, t = segments.owner, segments.within, segments.index
    value = eager.load(flat_in, t)
    eager.store(pool_out, (eager.load(req_pool_indices, r), j), value, unique=False)
