"""Byte for byte what SGLang 0.5.23 answers, in all three meanings. `golden/` is described in the contract."""

from __future__ import annotations

import pytest

import kvcanary
from kvcanary_gen.oracle.case import run_case
from kvcanary_gen.oracle.interpreter import evaluate_function
from kvcanary_gen.oracle.values import Values
from tests.support.calls import SIDES, run, wrong
from tests.support.functions import in_torch, in_triton
from tests.support.golden import READERS, Golden, goldens, read
from tests.support.program import PROGRAM, SURFACES
from tests.support.verdicts import differences

pytestmark = [pytest.mark.golden, pytest.mark.usefixtures("interpreted")]

RECORDED = [golden for file in READERS for golden in goldens(file)]
HASHES = read("hash")


@pytest.mark.parametrize("side", [*SIDES, "interpreter"])
@pytest.mark.parametrize("golden", RECORDED, ids=lambda golden: golden.name)
def test_recorded_calls(golden: Golden, side: str) -> None:
    after = run_case(PROGRAM, golden.case)
    assert differences(golden.after, after) == []
    assert differences(_only_read(golden), after) == []
    if side != "interpreter":
        assert wrong(golden.case, side, run(golden.case, side)) == []


def _only_read(golden: Golden) -> Values:
    """Arguments that the call must leave alone; scratch is nobody's business."""
    scratch = {workspace.name for workspace in SURFACES[golden.case.surface].workspaces}
    return {path: v for path, v in golden.case.args.items() if path not in golden.after and path not in scratch}


def test_all_recorded_calls_are_here() -> None:
    assert {file: len(goldens(file)) for file in READERS} == {"plan": 60, "scatter": 15, "verify": 60, "write": 60}


@pytest.mark.parametrize("name", HASHES)
def test_recorded_hashes(name: str) -> None:
    """In the interpreter, on Python integers, in the references' torch and in Triton."""
    rows = [row[:-1] for row in HASHES[name]]
    want = [row[-1] for row in HASHES[name]]
    assert [evaluate_function(PROGRAM, name, *row) for row in rows] == want
    assert [getattr(kvcanary, name)(*row) for row in rows] == want
    assert in_torch(name, rows) == want
    assert in_triton(name, rows) == want
