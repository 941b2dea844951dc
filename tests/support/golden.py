"""Golden vectors as cases: a public function's arguments before the call, and what they must be after it.

A file has one reader. It turns the file's own words into paths of a surface; everything behind that is shared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvcanary_gen.oracle.case import Case, poisoned
from kvcanary_gen.oracle.evaluate import evaluate
from kvcanary_gen.oracle.listed import Layout, Listed
from kvcanary_gen.oracle.values import Array, Value, Values
from tests.support.program import PROGRAM, SURFACES

FOLDER = Path(__file__).resolve().parents[1] / "golden"


@dataclass(frozen=True)
class Golden:
    """One recorded call. `after` holds the arguments whose values were recorded."""

    name: str
    case: Case
    after: Values


def read(file: str) -> Any:
    return json.loads((FOLDER / f"{file}.json").read_text("utf-8"))


def value(recorded: Any) -> Value:
    """A recorded tensor, number or null."""
    if not isinstance(recorded, dict):
        return recorded
    shape = tuple(recorded["shape"])
    if "hex" in recorded:
        return Array(recorded["dtype"], shape, list(bytes.fromhex(recorded["hex"])))
    assert len(recorded["data"]) == math.prod(shape)
    return Array(recorded["dtype"], shape, list(recorded["data"]))


def _plan(recorded: Any) -> Golden:
    """Every output element was poisoned before the call, so what still is must not be written."""
    surface = SURFACES["canary_plan"]
    args: Values = {name: value(given) for name, given in recorded["inputs"].items()}
    after: Values = {}
    for name, struct, _ in surface.structs:
        for field in struct.fields:
            path = f"{name}.{field.name}"
            after[path] = value(recorded["outputs"][field.name])
            args[path] = _poisoned_like(after[path])
    for workspace in surface.workspaces:
        args[workspace.name] = poisoned(workspace.dtype, (evaluate(workspace.shape[0].length, {}),))
    return Golden(recorded["name"], Case(surface.name, args), after)


def _scatter(recorded: Any) -> Golden:
    args: Values = {name: value(given) for name, given in recorded["inputs"].items()}
    after: Values = {name: value(given) for name, given in recorded["outputs"].items()}
    return Golden(recorded["name"], Case("scatter_req_token_ids", args), after)


def _poisoned_like(array: Value) -> Array:
    assert isinstance(array, Array)
    return poisoned(array.dtype, array.shape)


COUNTERS = ("violation_write_index", "slot_run_counter", "kernel_run_counter")


def _work(recorded: Any, name: str, own: dict[str, Any]) -> Golden:
    """A call on a context and a plan. The recorded ring was empty, and of its length."""
    surface, given = SURFACES[name], recorded["context"]
    args: Values = {f"plan.{field}": value(tensor) for field, tensor in recorded["plan"].items()}
    args |= {path: value(argument) for path, argument in own.items()}
    args |= {workspace.name: None for workspace in surface.workspaces}
    args["context.canary_buf"] = value(recorded["canary_buf"])
    kind = given["kernel_kind"]
    args["context.kernel_kind"] = _number("CanaryLaunchTag", kind) if isinstance(kind, str) else kind
    args["context.real_kv_hash_mode"] = _number("RealKvHashMode", given["real_kv_hash_mode"])
    args["context.real_kv_sources"] = [_source(source) for source in given["real_kv_sources"]]
    args["context.enable_chain_position_assert"] = Array("int32", (1,), [given["enable_chain_position_assert"]])
    after: Values = {
        f"context.{field}": value(recorded["outputs"][field]) for field in ("canary_buf", "violation_ring")
    }
    ring = after["context.violation_ring"]
    assert isinstance(ring, Array)
    args["context.violation_ring"] = Array(ring.dtype, ring.shape, [0] * len(ring.data))
    for field in COUNTERS:
        dtype = surface.tensor(f"context.{field}").dtype
        args[f"context.{field}"] = Array(dtype, (1,), [given[field]])
        after[f"context.{field}"] = Array(dtype, (1,), [recorded["outputs"][field]])
    return Golden(recorded["name"], Case(name, args), after)


def _number(enum: str, member: str) -> int:
    tags = PROGRAM.tags.get(enum)
    return int(PROGRAM.enums[enum].members[member].value) if tags is None else tags.numbers.index(member)


def _source(recorded: Any) -> Listed:
    """Rows lie a multiple of 16 bytes apart, whatever they were."""
    tensor = value(recorded["tensor"])
    assert isinstance(tensor, Array)
    count, width = tensor.shape
    rows = [bytes(tensor.data[row * width : (row + 1) * width]) for row in range(count)]
    numbers = {name: number for name, number in recorded.items() if name != "tensor"}
    return Listed(
        rows, numbers, Layout("RealKvSource", "tensor", numbers, "uint8", count, (width,), -(-width // 16) * 16)
    )


def _verify(recorded: Any) -> Golden:
    return _work(
        recorded, "canary_verify", {"check_verify_expected_token": int(recorded["check_verify_expected_token"])}
    )


def _write(recorded: Any) -> Golden:
    flags = {name: int(given) for name, given in recorded["inputs"].items() if isinstance(given, bool)}
    return _work(recorded, "canary_write", {**recorded["inputs"], **flags})


READERS: dict[str, Callable[[Any], Golden]] = {
    "plan": _plan,
    "scatter": _scatter,
    "verify": _verify,
    "write": _write,
}


def goldens(file: str) -> list[Golden]:
    return [READERS[file](recorded) for recorded in read(file)]
