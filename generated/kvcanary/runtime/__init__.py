# Written by kvcanary-gen from the spec; edit that instead.
"""What stands around the kernels: everything that an engine attaches, and reports that people read."""

from __future__ import annotations

from .batch import CanaryBatch
from .config import CanaryConfig
from .describe import describe, headline
from .endpoints import CanaryEndpoint, build_endpoints_from_group, launch_endpoints_per_forward, launch_endpoints_sweep
from .failure import CanaryViolationError
from .groups import CanaryBufferGroup
from .journal import BadLine, Journal, read_journal
from .lines import format_line, parse_violation
from .manager import CanaryManager
from .meanings import REASONS, Reason
from .metrics import CanaryMetrics
from .records import FIELDS, Field, ViolationRecord
from .stages import HALVES, POOL_KINDS, STAGES, Stage, launch_tag
from .state import CanaryDeviceState, ExpectedInputs, PlanInput, ViolationLog
from .summary import Summary, Tally
from .sweep import CacheWalk, CacheWalker, plan_sweep
from .transfers import ExportedSlots

__all__ = [
    "BadLine",
    "CacheWalk",
    "CacheWalker",
    "CanaryBatch",
    "CanaryBufferGroup",
    "CanaryConfig",
    "CanaryDeviceState",
    "CanaryEndpoint",
    "CanaryManager",
    "CanaryMetrics",
    "CanaryViolationError",
    "ExpectedInputs",
    "ExportedSlots",
    "FIELDS",
    "Field",
    "HALVES",
    "Journal",
    "POOL_KINDS",
    "PlanInput",
    "REASONS",
    "Reason",
    "STAGES",
    "Stage",
    "Summary",
    "Tally",
    "ViolationLog",
    "ViolationRecord",
    "build_endpoints_from_group",
    "describe",
    "format_line",
    "headline",
    "launch_endpoints_per_forward",
    "launch_endpoints_sweep",
    "launch_tag",
    "parse_violation",
    "plan_sweep",
    "read_journal",
]
