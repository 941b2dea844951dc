"""The comparison of a whole step with the scalar interpreter: same inputs, same results, and a difference shows."""

from __future__ import annotations

import pytest

from benchmarks import reference_step
from benchmarks.measure import cases
from kvcanary_gen.oracle.values import Array
from tests.support.program import PROGRAM

SHAPES = [
    cases.Shape("plain", 2, 6, 1),
    cases.Shape("bytes", 2, 5, 2, sources=((32, 32),), mode="ALL"),
    cases.Shape("window", 2, 9, 1, window=3),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_both_sides_leave_the_same(shape: cases.Shape) -> None:
    work = cases.build(shape, "cpu", reference=True)
    done = work.twin(reference=True)
    done.step()
    seconds, left = reference_step.interpreted_step(PROGRAM, work)
    assert seconds > 0
    assert reference_step.same(left, done)
    ring = left["context.slot_run_counter"]
    assert isinstance(ring, Array) and ring.data[0] >= shape.entries + shape.tokens
    done.context.canary_buf[1, 0] ^= 1
    assert not reference_step.same(left, done)


def test_a_difference_ends_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(reference_step, "same", lambda left, work: False)
    assert reference_step.main(["--requests", "2", "--positions", "4"]) == 1
    assert "the references and the interpreter differ" in capsys.readouterr().out
