# Written by kvcanary-gen from the spec; edit that instead.
"""A KV-cache canary for LLM servers, declared once and generated."""

from __future__ import annotations

from .core.sources import RealKvSourceTable
from .errors import CanaryError, CanaryRuntimeError, CanaryTypeError, CanaryValueError
from .hashing import splitmix64, splitmix64_mix3
from .layout import (
    CANARY_CHAIN_ANCHOR,
    CANARY_FIELD_POSITION,
    CANARY_FIELD_PREV_HASH,
    CANARY_FIELD_REAL_KV_HASH,
    CANARY_FIELD_TOKEN,
    INT32_MAX,
    MAX_PLAN_BATCH,
    MAX_REAL_KV_SOURCES,
    PARTIAL_REAL_KV_BYTES,
    REQ_POOL_IDX_PADDING,
    SLOT_BYTES,
    SLOT_NUM_FIELDS,
    TOKEN_TO_KV_SLOT_PADDING,
    VIOLATION_BYTES,
    VIOLATION_FIELD_EXPECTED_AUX,
    VIOLATION_FIELD_EXPECTED_TOKEN,
    VIOLATION_FIELD_FAIL_REASON_BITS,
    VIOLATION_FIELD_KERNEL_KIND,
    VIOLATION_FIELD_POSITION,
    VIOLATION_FIELD_SLOT_IDX,
    VIOLATION_FIELD_STORED_CHAIN_HASH,
    VIOLATION_FIELD_STORED_TOKEN,
    VIOLATION_NUM_FIELDS,
    WRITE_CHAIN_BYTES,
    WRITE_CHAIN_FIELD_PREV_HASH,
    WRITE_CHAIN_FIELD_PREVIOUS_POSITION,
    WRITE_CHAIN_NUM_FIELDS,
    CanaryLaunchTag,
    FailReason,
    RealKvHashMode,
    is_sweep_tag,
)
from .ops.canary_plan import launch_canary_plan_kernels, launch_canary_plan_kernels_torch_reference
from .ops.canary_verify import launch_canary_verify_kernel, launch_canary_verify_kernel_torch_reference
from .ops.canary_write import launch_canary_write_kernel, launch_canary_write_kernel_torch_reference
from .ops.plan_entries import launch_plan_entries_kernel, launch_plan_entries_kernel_torch_reference
from .ops.plan_offsets import launch_plan_offsets_kernel, launch_plan_offsets_kernel_torch_reference
from .ops.scatter_req_token_ids import (
    launch_scatter_req_token_ids_kernel,
    launch_scatter_req_token_ids_kernel_torch_reference,
)
from .structs import RealKvSource, VerifyOrWriteContext, VerifyPlan, WritePlan
from .violations import Violation, decode_violations

_is_sweep_tag = is_sweep_tag

__all__ = [
    "CANARY_CHAIN_ANCHOR",
    "CANARY_FIELD_POSITION",
    "CANARY_FIELD_PREV_HASH",
    "CANARY_FIELD_REAL_KV_HASH",
    "CANARY_FIELD_TOKEN",
    "CanaryError",
    "CanaryLaunchTag",
    "CanaryRuntimeError",
    "CanaryTypeError",
    "CanaryValueError",
    "FailReason",
    "INT32_MAX",
    "MAX_PLAN_BATCH",
    "MAX_REAL_KV_SOURCES",
    "PARTIAL_REAL_KV_BYTES",
    "REQ_POOL_IDX_PADDING",
    "RealKvHashMode",
    "RealKvSource",
    "RealKvSourceTable",
    "SLOT_BYTES",
    "SLOT_NUM_FIELDS",
    "TOKEN_TO_KV_SLOT_PADDING",
    "VIOLATION_BYTES",
    "VIOLATION_FIELD_EXPECTED_AUX",
    "VIOLATION_FIELD_EXPECTED_TOKEN",
    "VIOLATION_FIELD_FAIL_REASON_BITS",
    "VIOLATION_FIELD_KERNEL_KIND",
    "VIOLATION_FIELD_POSITION",
    "VIOLATION_FIELD_SLOT_IDX",
    "VIOLATION_FIELD_STORED_CHAIN_HASH",
    "VIOLATION_FIELD_STORED_TOKEN",
    "VIOLATION_NUM_FIELDS",
    "VerifyOrWriteContext",
    "VerifyPlan",
    "Violation",
    "WRITE_CHAIN_BYTES",
    "WRITE_CHAIN_FIELD_PREVIOUS_POSITION",
    "WRITE_CHAIN_FIELD_PREV_HASH",
    "WRITE_CHAIN_NUM_FIELDS",
    "WritePlan",
    "decode_violations",
    "is_sweep_tag",
    "launch_canary_plan_kernels",
    "launch_canary_plan_kernels_torch_reference",
    "launch_canary_verify_kernel",
    "launch_canary_verify_kernel_torch_reference",
    "launch_canary_write_kernel",
    "launch_canary_write_kernel_torch_reference",
    "launch_plan_entries_kernel",
    "launch_plan_entries_kernel_torch_reference",
    "launch_plan_offsets_kernel",
    "launch_plan_offsets_kernel_torch_reference",
    "launch_scatter_req_token_ids_kernel",
    "launch_scatter_req_token_ids_kernel_torch_reference",
    "splitmix64",
    "splitmix64_mix3",
]
