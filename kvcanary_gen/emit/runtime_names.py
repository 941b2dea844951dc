"""Names of the spec that the runtime speaks, and which of them a spec lacks.

The runtime's stages, halves, pool kinds, tags and records follow from whatever the spec says of them, and arguments
that the spec adds to planning and writing come from the engine's batches. What the runtime itself says to the
operations is text of its own, though: a spec in which these arguments have other names goes without a runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvcanary_gen.ir import CallIR, OperationIR, Program, StructIR

# Axes of a launch tag.
AXES = ("stage", "half", "group")
# Fields that the runtime reads or fills by name. Plans may have more; a context has these alone.
FIELDS: dict[str, frozenset[str]] = {
    "VerifyPlan": frozenset(
        {
            "verify_slot_indices",
            "verify_expected_tokens",
            "verify_expected_positions",
            "verify_prev_slot_indices",
            "verify_num_valid",
            "enable",
        }
    ),
    "WritePlan": frozenset({"write_offsets", "write_seed_slot_indices"}),
    "RealKvSource": frozenset({"tensor", "page_size", "num_bytes_per_token", "read_bytes"}),
    "VerifyOrWriteContext": frozenset(
        {
            "canary_buf",
            "kernel_kind",
            "violation_ring",
            "violation_write_index",
            "slot_run_counter",
            "kernel_run_counter",
            "real_kv_sources",
            "real_kv_hash_mode",
            "enable_chain_position_assert",
        }
    ),
}
WHOLE = frozenset({"RealKvSource", "VerifyOrWriteContext"})
# What planning takes, and where the runtime has it.
PLANNING = {
    "req_pool_indices": "given.req_pool_indices",
    "prefix_lens": "given.prefix_lens",
    "extend_seq_lens": "given.extend_seq_lens",
    "req_to_token": "given.req_to_token",
    "swa_window_size": "group.window_size",
    "full_to_swa_index_mapping": "mapping",
    "verify_capacity": "self.config.verify_capacity",
    "req_to_verify_expected_tokens": "given.expected_tokens",
    "req_to_verify_expected_tokens_valid_lens": "given.expected_tokens_valid_lens",
    "kv_token_id_vs_position_offset": "token_offset",
}
ARGUMENTS: dict[str, frozenset[str]] = {
    "canary_plan": frozenset(PLANNING),
    "canary_verify": frozenset({"check_verify_expected_token"}),
    "canary_write": frozenset(
        {
            "input_ids",
            "positions",
            "out_cache_loc",
            "enable_write_input_assert",
            "expected_input_tokens",
            "expected_input_positions",
        }
    ),
}
# What a spec may leave out, and operations to which it may add arguments: batches then have `more` of these.
OPTIONAL = frozenset({"req_to_verify_expected_tokens_valid_lens"})
EXTENSIBLE = frozenset({"canary_plan", "canary_write"})
# Kernels of canary_plan: between them, seeds and the mapping change.
PLAN_CALLS = ["plan_offsets", "plan_entries"]


def lacking(tags: Mapping[str, Any], structs: Mapping[str, StructIR], operations: Mapping[str, OperationIR]) -> str:
    """The first name that the runtime misses in a spec, in words; empty where there is none."""
    pattern = next((family.name for family in tags.values()), "")
    for axis in AXES:
        if "{" + axis + "}" not in pattern:
            return f"launch tags do not name their {axis}"
    for struct, fields in FIELDS.items():
        have = set(structs[struct].order) if struct in structs else set()
        if not fields <= have or (struct in WHOLE and have != fields):
            return f"{struct} has other fields: {_difference(fields, have)}"
    for operation, names in ARGUMENTS.items():
        given = {argument.name for argument in operations[operation].arguments} if operation in operations else set()
        if not names - OPTIONAL <= given or (operation not in EXTENSIBLE and given != names):
            return f"{operation} takes other arguments: {_difference(names, given)}"
    if [call.kernel.name for call in operations["canary_plan"].calls] != PLAN_CALLS:
        return f"canary_plan does not call {' and '.join(PLAN_CALLS)}"
    return ""


def _difference(want: frozenset[str], have: set[str]) -> str:
    parts = [f"no '{name}'" for name in sorted(want - have)] + [f"'{name}' as well" for name in sorted(have - want)]
    return ", ".join(parts)


def planned(operation: OperationIR, call: CallIR) -> dict[str, str]:
    """Arguments of one of the kernels that plan, as the runtime gives them."""
    plans = {name: {"VerifyPlan": "verify_plan", "WritePlan": "write_plan"}[s.name] for name, s, _ in operation.structs}
    workspaces = {workspace.name for workspace in operation.workspaces}
    found = {}
    for argument in call.kernel.arguments:
        path = call.bind[argument.name]
        struct, _, field = path.partition(".")
        if field:
            found[argument.name] = f"self.{plans[struct]}.{field}"
        else:
            found[argument.name] = "self.offsets" if path in workspaces else PLANNING.get(path, f'given.more["{path}"]')
    return found


def extras(program: Program) -> dict[str, list[str]]:
    """What a spec has beyond what the runtime knows: arguments of operations, and fields of the entries to verify."""
    found = {
        operation: [a.name for a in program.operations[operation].arguments if a.name not in ARGUMENTS[operation]]
        for operation in EXTENSIBLE
    }
    plan = program.structs["VerifyPlan"]
    fields = [f.name for f in plan.fields if f.name not in FIELDS["VerifyPlan"] and f.dtype == "int64"]
    return {"plan": found["canary_plan"], "write": found["canary_write"], "fields": fields}
