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
from kvcanary_gen.oracle.values import Array, Value, Values
from tests.support.program import SURFACES

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


READERS: dict[str, Callable[[Any], Golden]] = {"plan": _plan, "scatter": _scatter}


def goldens(file: str) -> list[Golden]:
    return [READERS[file](recorded) for recorded in read(file)]
