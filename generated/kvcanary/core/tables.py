# Written by kvcanary-gen from the spec; edit that instead.
"""Tables of structs that one launch works on together, each a row on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import overload

import torch

from .. import errors, layout, structs
from . import checks, dispatch, sources

# Most structs of a table: a launch has no more programs on its second axis.
MOST = 65535


# --- VerifyOrWriteContext --------------------------------------------------------------------------------------------

_VERIFY_OR_WRITE_CONTEXT_TENSORS = (
    "canary_buf",
    "violation_ring",
    "violation_write_index",
    "slot_run_counter",
    "kernel_run_counter",
    "enable_chain_position_assert",
)
_VERIFY_OR_WRITE_CONTEXT_RECORDS = (
    "canary_buf",
    "violation_ring",
)


@dataclass(frozen=True, eq=False)
class VerifyOrWriteContextTable(Sequence[structs.VerifyOrWriteContext]):
    """VerifyOrWriteContexts that one launch works on together, as a table on the device.

    Make it once with `build`, outside CUDA graphs. It keeps the structs, and so their tensors, alive; kernels read the
    addresses from the table.

    Attributes:
        contexts (tuple of VerifyOrWriteContext): The structs, in order.
        table (int64 [n, 12]): Of each its addresses, sizes and numbers.
        shared (dict): Tensors of the struct whose memory two of them share, and the places of these two.
        paired (frozenset): Tensors of records whose words kernels load two at a time, in all contexts.
        real_kv_sources (tuple of RealKvSource, or RealKvSourceTable): Those of all contexts, one after the other.
        real_kv_hash_mode (RealKvHashMode): The same for all.
    """

    contexts: tuple[structs.VerifyOrWriteContext, ...]
    table: torch.Tensor
    shared: dict[str, tuple[int, int]]
    paired: frozenset[str]
    real_kv_sources: Sequence[structs.RealKvSource]
    real_kv_hash_mode: layout.RealKvHashMode

    @classmethod
    def build(cls, contexts: Sequence[structs.VerifyOrWriteContext]) -> VerifyOrWriteContextTable:
        """Checks the structs, one after the other and then all of them together, and writes their table.

        Args:
            contexts: at least one, on one device, with one real_kv_hash_mode. They may share counters and a
                violation ring. Their tensors must not be reallocated while the table is in use.

        Raises:
            CanaryError: a struct breaks a rule of the functions that take it alone, or they do not go together.
        """
        name = "contexts"
        if isinstance(contexts, VerifyOrWriteContextTable):
            contexts = contexts.contexts
        if not isinstance(contexts, (tuple, list)):
            want, have = "a tuple of VerifyOrWriteContext", type(contexts).__name__
            raise errors.CanaryTypeError("KVC-001", f"kv-canary: {name} must be {want}, got {have}")
        if not 1 <= len(contexts) <= MOST:
            want, have = f"hold 1 to {MOST} structs", f"{len(contexts)}"
            raise errors.CanaryValueError("KVC-035", f"kv-canary: {name} must {want}, got {have}")
        firsts: checks.Tensors = []
        for place, context in enumerate(contexts):
            path = f"{name}[{place}]"
            _check_verify_or_write_context(path, context)
            first = context.canary_buf
            firsts.append((f"{path}.canary_buf", first, first.dtype, first.dim()))
        checks.devices(firsts)
        _alike(name, "real_kv_hash_mode", contexts)
        real_kv_sources_table = None
        if listed := [source for context in contexts for source in context.real_kv_sources]:
            real_kv_sources_table = sources.RealKvSourceTable.build(listed)
        first_of_real_kv_sources = 0
        rows = []
        for context in contexts:
            row = [
                context.canary_buf.data_ptr(),
                context.canary_buf.shape[0],
                context.canary_buf.shape[1] // 8,
                context.kernel_kind,
                context.violation_ring.data_ptr(),
                context.violation_ring.shape[0],
                context.violation_write_index.data_ptr(),
                context.slot_run_counter.data_ptr(),
                context.kernel_run_counter.data_ptr(),
                _address(real_kv_sources_table, first_of_real_kv_sources),
                len(context.real_kv_sources),
                context.enable_chain_position_assert.data_ptr(),
            ]
            rows.append(row)
            first_of_real_kv_sources += len(context.real_kv_sources)
        return cls(
            contexts=tuple(contexts),
            table=torch.tensor(rows, dtype=torch.int64, device=firsts[0][1].device),
            shared=_shared(contexts, _VERIFY_OR_WRITE_CONTEXT_TENSORS),
            paired=_paired(contexts, _VERIFY_OR_WRITE_CONTEXT_RECORDS),
            real_kv_sources=real_kv_sources_table or (),
            real_kv_hash_mode=contexts[0].real_kv_hash_mode,
        )

    def __len__(self) -> int:
        return len(self.contexts)

    @overload
    def __getitem__(self, place: int) -> structs.VerifyOrWriteContext: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[structs.VerifyOrWriteContext, ...]: ...

    def __getitem__(
        self, place: int | slice
    ) -> structs.VerifyOrWriteContext | tuple[structs.VerifyOrWriteContext, ...]:
        return self.contexts[place]

    def apart(self, name: str, field: str) -> None:
        """The tensors of a field share no memory, so that it does not matter who stores to them first."""
        if field in self.shared:
            one, other = self.shared[field]
            name, want = f"{name}[{other}].{field}", f"share no memory with {name}[{one}].{field}"
            have = "bytes of both"
            raise errors.CanaryValueError("KVC-035", f"kv-canary: {name} must {want}, got {have}")


def _check_verify_or_write_context(path: str, context: structs.VerifyOrWriteContext) -> None:
    """Checks one struct as the functions do that take it alone."""
    checks.kind(path, context, structs.VerifyOrWriteContext)
    tensors: checks.Tensors = [
        (f"{path}.canary_buf", context.canary_buf, torch.uint8, 2),
        (f"{path}.violation_ring", context.violation_ring, torch.int64, 2),
        (f"{path}.violation_write_index", context.violation_write_index, torch.int32, 1),
        (f"{path}.slot_run_counter", context.slot_run_counter, torch.int64, 1),
        (f"{path}.kernel_run_counter", context.kernel_run_counter, torch.int64, 1),
        (f"{path}.enable_chain_position_assert", context.enable_chain_position_assert, torch.int32, 1),
    ]
    checks.kinds(tensors)
    checks.kind(f"{path}.kernel_kind", context.kernel_kind, int)
    sources.real_kv_source_kinds(f"{path}.real_kv_sources", context.real_kv_sources)
    checks.kind(f"{path}.real_kv_hash_mode", context.real_kv_hash_mode, layout.RealKvHashMode)
    checks.int64(f"{path}.kernel_kind", context.kernel_kind)
    sources.real_kv_source_sizes(f"{path}.real_kv_sources", context.real_kv_sources)
    checks.dtypes(tensors)
    checks.ranks(tensors)
    checks.at_least(f"{path}.canary_buf.shape[1]", context.canary_buf.shape[1], layout.SLOT_BYTES)
    checks.length(f"{path}.violation_ring.shape[1]", context.violation_ring.shape[1], layout.VIOLATION_NUM_FIELDS)
    checks.length(f"{path}.violation_write_index", context.violation_write_index.shape[0], 1)
    checks.length(f"{path}.slot_run_counter", context.slot_run_counter.shape[0], 1)
    checks.length(f"{path}.kernel_run_counter", context.kernel_run_counter.shape[0], 1)
    checks.length(f"{path}.enable_chain_position_assert", context.enable_chain_position_assert.shape[0], 1)
    checks.contiguous(tensors)
    checks.devices(tensors)
    sources.real_kv_source_devices(f"{path}.real_kv_sources", context.real_kv_sources, tensors)
    checks.aligned(tensors)
    checks.words(f"{path}.canary_buf", context.canary_buf)
    sources.real_kv_source_count(f"{path}.real_kv_sources", context.real_kv_sources, 4)
    sources.real_kv_source_values(f"{path}.real_kv_sources", context.real_kv_sources)
    sources.real_kv_source_geometry(f"{path}.real_kv_sources", context.real_kv_sources)


# --- Shared -----------------------------------------------------------------------------------------------------------


def _alike(many: str, field: str, given: Sequence[object]) -> None:
    """A flag or a mode is the same for all, as kernels are compiled for it."""
    values = [getattr(struct, field) for struct in given]
    for place, value in enumerate(values):
        if value != values[0]:
            name, want = f"{many}[{place}].{field}", f"be {many}[0].{field}={_shown(values[0])}"
            have = _shown(value)
            raise errors.CanaryValueError("KVC-035", f"kv-canary: {name} must {want}, got {have}")


def _shown(value: object) -> str:
    """A member of an enum by its name."""
    return str(getattr(value, "name", value))


def _shared(given: Sequence[object], fields: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Of each field whose tensors share memory, two structs that do."""
    found = {field: _sharing([getattr(struct, field) for struct in given]) for field in fields}
    return {field: places for field, places in found.items() if places is not None}


def _paired(given: Sequence[object], fields: Sequence[str]) -> frozenset[str]:
    """Fields whose rows begin at multiples of 16 bytes in every struct."""
    words = {field: [getattr(struct, field).view(torch.int64) for struct in given] for field in fields}
    return frozenset(field for field, tensors in words.items() if all(map(dispatch.paired, tensors)))


def _sharing(tensors: Sequence[torch.Tensor]) -> tuple[int, int] | None:
    """Places of two contiguous tensors that share memory, if any do."""
    spans = sorted(
        (tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size(), place)
        for place, tensor in enumerate(tensors)
        if tensor.numel()
    )
    for (_, end, one), (start, _, other) in pairwise(spans):
        if start < end:
            return min(one, other), max(one, other)
    return None


def _address(table: sources.RealKvSourceTable | None, first: int) -> int:
    """Where a struct's part of the sources begins."""
    return 0 if table is None else table.table[first:].data_ptr()
