"""Calls of verify and write in the form of the golden vectors, run by each of the three meanings."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch

import kvcanary
from kvcanary_gen.ir import Program
from kvcanary_gen.oracle.byte_sources import Source
from kvcanary_gen.oracle.interpreter import run_operation
from kvcanary_gen.oracle.values import Array, Values

GOLDEN = Path(__file__).parent / "golden"
_DTYPES = {"int32": torch.int32, "int64": torch.int64, "uint8": torch.uint8}
COUNTERS = ("slot_run_counter", "kernel_run_counter", "violation_write_index")
Case = dict[str, Any]


def golden(name: str) -> list[Case]:
    cases: list[Case] = json.loads((GOLDEN / f"{name}.json").read_text())
    return cases


# --- what a case holds ------------------------------------------------------------------------------------------------


def array(value: dict[str, Any]) -> Array:
    data = list(bytes.fromhex(value["hex"])) if "hex" in value else list(value["data"])
    return Array(value["dtype"], tuple(value["shape"]), data)


def tensor(value: dict[str, Any]) -> torch.Tensor:
    given = array(value)
    return torch.tensor(given.data, dtype=_DTYPES[given.dtype]).reshape(given.shape)


def aligned(given: torch.Tensor) -> torch.Tensor:
    """The same rows, 16 bytes or a multiple apart."""
    padding = -given.shape[1] % 16
    return torch.nn.functional.pad(given, (0, padding), value=0xEE)[:, : given.shape[1]] if padding else given


def ring(case: Case) -> Array:
    rows = case["context"]["violation_ring_capacity"]
    return Array("int64", (rows, 8), [0] * (8 * rows))


# --- the three meanings -----------------------------------------------------------------------------------------------


def interpret(program: Program, name: str, case: Case) -> Case:
    """The answer of the scalar interpreter, in the form of a case's outputs."""
    operation = program.operations[f"canary_{name}"]
    given = case["context"]
    args: Values = {f"plan.{field}": array(value) for field, value in case["plan"].items()}
    args["context.canary_buf"] = array(case["canary_buf"])
    args["context.violation_ring"] = ring(case)
    args["context.kernel_kind"] = _kind(given["kernel_kind"])
    args["context.real_kv_hash_mode"] = int(kvcanary.RealKvHashMode[given["real_kv_hash_mode"]])
    args["context.real_kv_sources"] = [_source(source) for source in given["real_kv_sources"]]
    for field, dtype in zip(COUNTERS, ("int64", "int64", "int32"), strict=True):
        args[f"context.{field}"] = Array(dtype, (1,), [given[field]])
    args["context.enable_chain_position_assert"] = Array("int32", (1,), [given["enable_chain_position_assert"]])
    for key, value in arguments(name, case).items():
        args[key] = array(value) if isinstance(value, dict) else value if value is None else int(value)
    for workspace in operation.workspaces:
        args[workspace.name] = Array(workspace.dtype, (0, 2), [])
    run_operation(program, operation, args)
    out = {field: args[f"context.{field}"] for field in ("canary_buf", "violation_ring", *COUNTERS)}
    return {field: value.data[0] if field in COUNTERS else value.data for field, value in out.items()}  # type: ignore[union-attr]


def _kind(value: str | int) -> int:
    return int(kvcanary.CanaryLaunchTag[value]) if isinstance(value, str) else value


def _source(source: Case) -> Source:
    given = array(source["tensor"])
    width = len(given.data) // given.shape[0] if given.shape[0] else 0
    rows = [bytes(given.data[k * width : (k + 1) * width]) for k in range(given.shape[0])]
    numbers = {field: source[field] for field in ("page_size", "num_bytes_per_token", "read_bytes")}
    return Source(rows, numbers)


def arguments(name: str, case: Case) -> Case:
    if name == "verify":
        return {"check_verify_expected_token": case["check_verify_expected_token"]}
    return dict(case["inputs"])


def call(name: str, case: Case, side: str) -> Case:
    """The answer of the public function: `triton`, `reference`, or `named` for the reference by its own name."""
    context, plan, args = build(name, case)
    launcher = f"launch_canary_{name}_kernel"
    if side == "named":
        getattr(kvcanary, f"{launcher}_torch_reference")(context=context, plan=plan, **args)
    else:
        getattr(kvcanary, launcher)(context=context, plan=plan, **args, backend=side)
    return outputs(context)


def build(name: str, case: Case) -> tuple[kvcanary.VerifyOrWriteContext, Any, Case]:
    given = case["context"]
    counters = {
        field: torch.tensor([given[field]], dtype=torch.int32 if field == "violation_write_index" else torch.int64)
        for field in COUNTERS
    }
    sources = tuple(
        kvcanary.RealKvSource(**{k: aligned(tensor(v)) if k == "tensor" else v for k, v in source.items()})
        for source in given["real_kv_sources"]
    )
    kind = given["kernel_kind"]
    context = kvcanary.VerifyOrWriteContext(
        canary_buf=tensor(case["canary_buf"]),
        kernel_kind=kvcanary.CanaryLaunchTag[kind] if isinstance(kind, str) else kind,
        violation_ring=torch.zeros([given["violation_ring_capacity"], 8], dtype=torch.int64),
        real_kv_sources=sources,
        real_kv_hash_mode=kvcanary.RealKvHashMode[given["real_kv_hash_mode"]],
        enable_chain_position_assert=torch.tensor([given["enable_chain_position_assert"]], dtype=torch.int32),
        **counters,
    )
    struct = kvcanary.VerifyPlan if name == "verify" else kvcanary.WritePlan
    plan = struct(**{field: tensor(value) for field, value in case["plan"].items()})
    args = {k: tensor(v) if isinstance(v, dict) else v for k, v in arguments(name, case).items()}
    return context, plan, args


def outputs(context: kvcanary.VerifyOrWriteContext) -> Case:
    found: Case = {field: int(getattr(context, field)[0]) for field in COUNTERS}
    found["canary_buf"] = context.canary_buf.reshape(-1).tolist()
    found["violation_ring"] = context.violation_ring.reshape(-1).tolist()
    return found


def expected(case: Case) -> Case:
    """The recorded answer, in the same form."""
    out = copy.deepcopy(case["outputs"])
    return {k: array(v).data if isinstance(v, dict) else v for k, v in out.items()}


# --- comparison -------------------------------------------------------------------------------------------------------


def rows(flat: list[int]) -> list[tuple[int, ...]]:
    return [tuple(flat[k : k + 8]) for k in range(0, len(flat), 8)]


def same(found: Case, want: Case, *, ordered: bool, every: list[tuple[int, ...]] | None = None) -> None:
    """Compares two answers. On a device, rows may come in any order; if not all fit, any of `every` may stay."""
    for field in ("canary_buf", *COUNTERS):
        assert found[field] == want[field], field
    have, right = rows(found["violation_ring"]), rows(want["violation_ring"])
    if ordered:
        assert have == right
    elif every is None:
        assert sorted(have) == sorted(right)
    else:
        left = list(every)
        for row in have:
            if any(row):
                left.remove(row)
        assert sum(any(row) for row in have) == sum(any(row) for row in right)
