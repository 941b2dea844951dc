"""The manager on the host: what it refuses, reports, counts and survives."""

from __future__ import annotations

import dataclasses
import gc
import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import kvcanary
from kvcanary import (
    CanaryBatch,
    CanaryConfig,
    CanaryManager,
    CanaryRuntimeError,
    CanaryValueError,
    CanaryViolationError,
    ExpectedInputs,
)

from .worlds import World, batch_of, config, run


class Scene:
    """A world, its only pool and a manager that is warm."""

    def __init__(self, **other: Any) -> None:
        self.world = World()
        self.group = self.world.group()
        self.manager = CanaryManager([self.group], config(**other))
        self.manager.mark_warm()

    def step(self, lengths: dict[int, int], **other: Any) -> list[kvcanary.ViolationRecord]:
        return run(self.manager, batch_of(self.world, self.world.add(lengths), **other))

    def flip(self, slot: int, half: str = "K") -> None:
        self.world.kv[half][slot, 3] ^= 4


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.manager.close()


def test_a_clean_run(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    for lengths in ({1: 3, 2: 9}, {1: 1, 2: 1, 3: 7}, {3: 1}, {1: 2, 4: 1}):
        assert scene.step(lengths) == []
    assert caplog.records == []


def test_a_violation_is_told_with_all_that_is_known(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.step({1: 3, 2: 4})
    scene.flip(5)
    (found,) = scene.step({2: 1, 1: 1})
    assert (found.step, found.forward, found.pool, found.kind) == (2, "target", "FULL", "TAIL_K_FULL")
    assert (found.slot, found.position, found.request_id, found.request_row) == (5, 1, "request-2", 0)
    assert found.reasons == ("VERIFY_REAL_KV_HASH_MISMATCH",)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert kvcanary.parse_violation(line) == found


def test_the_clock_and_the_steps_are_the_engines() -> None:
    world = World()
    manager = CanaryManager([world.group()], config(), clock=lambda: 1234.5)
    for step in (10, 20, 40):
        if step == 40:
            world.kv["K"][2, 0] ^= 1
        with manager.forward(batch_of(world, world.add({1: 3}))):
            pass
        found = manager.step_end(step)
    assert [(record.step, record.time) for record in found] == [(40, 1234.5)]
    assert manager.step == 40
    manager.close()


def test_requests_of_written_tokens_are_named(scene: Scene) -> None:
    step = scene.world.add({1: 2, 2: 3})
    expected = ExpectedInputs(tokens=step.ids.clone(), positions=step.positions.clone())
    expected.tokens[3] += 1
    found = run(scene.manager, batch_of(scene.world, step, expected=expected))
    assert {(r.request_id, r.request_row, r.slot, r.position) for r in found} == {("request-2", 1, 4, 1)}
    assert {r.reasons for r in found} == {("WRITE_TOKEN_MISMATCH",)}


def test_false_prefix_hits_show_against_the_history(scene: Scene) -> None:
    scene.step({1: 4})
    scene.world.history[1, 2] += 1
    found = scene.step({1: 1})
    assert {r.reasons for r in found} == {("VERIFY_TOKEN_MISMATCH",)}
    assert {r.slot for r in found} == {3} and len(found) == 4


def test_asserts_can_be_switched_off() -> None:
    scene = Scene(assert_tokens=False, assert_inputs=False, assert_chain=False)
    scene.step({1: 4})
    scene.world.history[1, 2] += 1
    step = scene.world.add({1: 2})
    wrong = ExpectedInputs(step.ids + 1, step.positions)
    skewed = dataclasses.replace(step, positions=step.positions + 5)
    assert run(scene.manager, batch_of(scene.world, skewed, expected=wrong)) == []
    scene.manager.close()


def test_positions_must_follow_each_other_once_warm() -> None:
    world = World()
    manager = CanaryManager([world.group()], config())

    def skewed(row: int) -> list[kvcanary.ViolationRecord]:
        """Two more tokens of a request that has three, at positions 3 and 7 instead of 3 and 4."""
        run(manager, batch_of(world, world.add({row: 3})))
        step = world.add({row: 2})
        return run(manager, batch_of(world, dataclasses.replace(step, positions=torch.tensor([3, 7]))))

    assert skewed(1) == []
    manager.mark_warm()
    found = skewed(2)
    assert {(r.position, r.expected_aux, r.reasons) for r in found} == {(7, 4, ("WRITE_POSITION_MISMATCH",))}
    assert {r.request_id for r in found} == {"request-2"} and len(found) == 4
    manager.close()


# --- modes ------------------------------------------------------------------------------------------------------------


def test_raise_carries_the_records() -> None:
    scene = Scene(mode="raise")
    scene.step({1: 3})
    scene.flip(2)
    with pytest.raises(CanaryViolationError) as caught:
        scene.step({1: 1})
    error = caught.value
    assert (error.id, [record.slot for record in error.records]) == ("KVC-084", [2])
    assert "slot 2 of pool 'FULL'" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert again.records == error.records and str(again) == str(error)
    # The manager goes on; the flipped byte is still there.
    with pytest.raises(CanaryViolationError):
        scene.step({1: 1})
    scene.flip(2)
    assert scene.step({1: 1}) == []
    scene.manager.close()


def test_mode_none_does_nothing() -> None:
    scene = Scene(mode="none")
    before = [tensor.clone() for tensor in scene.group.tensors()]
    scene.step({1: 3})
    scene.flip(2)
    assert scene.step({1: 1}) == scene.manager.flush() == []
    assert all(torch.equal(a, b) for a, b in zip(before, scene.group.tensors(), strict=True))
    scene.manager.close()


def test_wrap(scene: Scene) -> None:
    """One call site: the forward breaks a byte of a cached slot, which shows after it, in the same step."""
    calls = []

    def model(step: Any, spoil: int = 0) -> str:
        calls.append(step)
        if spoil:
            scene.flip(spoil)
        return "logits"

    wrapped = scene.manager.wrap(model, lambda step, spoil=0: batch_of(scene.world, step) if step else None)
    assert wrapped(scene.world.add({1: 3})) == "logits"
    assert wrapped(None) == "logits"
    assert scene.manager.step == 1
    assert wrapped(scene.world.add({1: 1}), spoil=2) == "logits"
    assert scene.manager.statistics()["violations"] == 1
    assert len(calls) == 3


# --- exceptions and order ---------------------------------------------------------------------------------------------


def test_an_exception_out_of_the_forward(scene: Scene) -> None:
    scene.step({1: 3})
    step = scene.world.add({1: 1, 2: 2})
    with pytest.raises(ZeroDivisionError), scene.manager.forward(batch_of(scene.world, step)):
        _ = 1 // 0
    assert scene.manager.step_end() == []
    with pytest.raises(CanaryRuntimeError, match="after_forward of target without a before_forward") as caught:
        scene.manager.after_forward()
    assert caught.value.id == "KVC-061"
    # The same step tried again.
    assert run(scene.manager, batch_of(scene.world, step)) == []
    assert scene.step({1: 1, 2: 1}) == []


def test_a_forward_that_never_ended(scene: Scene) -> None:
    scene.step({1: 3})
    scene.manager.before_forward(batch_of(scene.world, scene.world.add({1: 1})))
    # The engine goes on with another batch; what was never finished is not verified as if it had been.
    assert scene.step({2: 2}) == []


def test_closed_twice(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    scene = Scene()
    scene.step({1: 3})
    scene.manager.close()
    scene.manager.close()
    summaries = [record.getMessage() for record in caplog.records]
    assert summaries == ["kv-canary: closed after 1 steps\nkv-canary: no violations"]
    step = scene.world.add({1: 1})
    for call in (
        lambda: scene.manager.before_forward(batch_of(scene.world, step)),
        scene.manager.after_forward,
        scene.manager.step_end,
        scene.manager.flush,
        scene.manager.mark_warm,
    ):
        with pytest.raises(CanaryRuntimeError, match="called on a manager that is closed") as caught:
            call()
        assert caught.value.id == "KVC-056"


def test_nothing_is_lost_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    scene = Scene()
    scene.step({1: 3})
    scene.flip(2)
    with scene.manager.forward(batch_of(scene.world, scene.world.add({1: 1}))):
        pass
    scene.manager.close()
    messages = [record.getMessage() for record in caplog.records]
    assert any("slot=2" in message for message in messages)
    assert "kv-canary: 1 violation in step 1" in messages[-1]
    assert "VERIFY_REAL_KV_HASH_MISMATCH ×1" in messages[-1]


def spoilt_within(error: Exception | None) -> None:
    """A manager as a context, with a violation that was not handed out when the engine stops."""
    scene = Scene(mode="raise")
    scene.step({1: 3})
    scene.flip(2)
    with scene.manager as manager:
        manager.before_forward(batch_of(scene.world, scene.world.add({1: 1})))
        manager.after_forward()
        if error is not None:
            raise error


def test_closing_raises_what_is_left() -> None:
    with pytest.raises(CanaryViolationError):
        spoilt_within(None)
    # The engine's own exception is not hidden by it.
    with pytest.raises(KeyError):
        spoilt_within(KeyError("engine"))


def forget() -> None:
    Scene()
    gc.collect()


def test_a_manager_that_nobody_closed() -> None:
    with pytest.warns(ResourceWarning, match="was not closed"):
        forget()


# --- capacities -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "text"),
    [
        (
            {1: 30, 2: 3},
            "new tokens of the batch: 33 exceeds max_tokens=32; allocate more with max_tokens=33",
        ),
        (dict.fromkeys(range(9), 1), "requests of the batch: 9 exceeds max_requests=8"),
    ],
)
def test_a_batch_larger_than_capacity(scene: Scene, lengths: dict[int, int], text: str) -> None:
    scene.step({1: 1})
    before = [tensor.clone() for tensor in scene.manager.tensors()]
    with pytest.raises(CanaryValueError) as caught:
        scene.manager.before_forward(batch_of(scene.world, scene.world.add(lengths)))
    assert caught.value.id == "KVC-053" and text in str(caught.value)
    assert all(torch.equal(a, b) for a, b in zip(before, scene.manager.tensors(), strict=True))


def test_plans_that_do_not_fit_are_skipped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(verify_capacity=4, warn_interval=3)
    scene.step({1: 5})
    scene.flip(2)
    for _ in range(7):
        assert scene.step({1: 1}) == []
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [text.split(" plans")[0] for text in warnings] == ["kv-canary: 1", "kv-canary: 4", "kv-canary: 7"]
    assert all("raise verify_capacity (KVCANARY_VERIFY_CAPACITY)" in text for text in warnings)
    assert scene.manager.statistics()["skipped_plans"] == 7
    assert scene.manager.statistics()["plans"] == 8
    # A batch that fits is verified again.
    assert scene.step({2: 4}) == []
    scene.world.kv["V"][scene.world.next_slot - 1, 0] ^= 1
    assert [found.kind for found in scene.step({2: 1})] == ["TAIL_V_FULL"]
    scene.manager.close()


@pytest.mark.parametrize("mode", ["log", "raise"])
def test_a_ring_that_overflows(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(ring_capacity=3, mode=mode)
    scene.step({1: 9})
    for slot in range(1, 9):
        scene.flip(slot)
    if mode == "raise":
        with pytest.raises(CanaryViolationError, match="and 2 more") as caught:
            scene.step({1: 1})
        assert len(caught.value.records) == 3
    else:
        assert len(scene.step({1: 1})) == 3
    assert any("5 violations up to step 2 did not fit the ring of 3 rows" in r.getMessage() for r in caplog.records)
    assert (scene.manager.statistics()["violations"], scene.manager.statistics()["lost"]) == (3, 5)
    # The ring is empty again.
    for slot in range(1, 9):
        scene.flip(slot)
    assert scene.step({1: 1}) == []
    assert scene.manager.statistics()["lost"] == 5
    scene.manager.close()


def test_a_flood_is_counted_beyond_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(log_limit=2)
    scene.step({1: 9})
    for slot in range(1, 6):
        scene.flip(slot)
    found = scene.step({1: 1})
    assert len(found) == 5
    assert [record.request_id for record in found] == ["request-1"] * 2 + [None] * 3
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 3 and texts[-1] == "kv-canary: 3 more violations up to step 2"
    scene.manager.close()


# --- what is refused --------------------------------------------------------------------------------------------------


def broken(**changes: Any) -> Any:
    def make(scene: Scene) -> CanaryBatch:
        return batch_of(scene.world, scene.world.add({1: 2, 2: 1}), **changes)

    return make


NOT_BATCHES = {
    "neither prefix nor sequence lengths": (broken(prefix_lens=None), "KVC-060", "batch.prefix_lens must be given"),
    "both new lengths": (
        broken(query_start_loc=torch.tensor([0, 2, 3])),
        "KVC-060",
        "batch.extend_lens must be given, or batch.query_start_loc in its place, got both",
    ),
    "a pool that is not there": (
        broken(slots={"SWA": torch.zeros(3, dtype=torch.int64)}),
        "KVC-060",
        "batch.slots must name pools: FULL, got 'SWA'",
    ),
    "no slots": (broken(slots={}), "KVC-060", "batch.slots must give a tensor for pool FULL"),
    "slots of another length": (broken(slots=torch.zeros(2, dtype=torch.int64)), "KVC-014", "length must be 3, got 2"),
    "no table": (broken(tables={}), "KVC-060", "batch.tables must give a tensor for pool FULL"),
    "a flat table": (broken(tables=torch.zeros(3, dtype=torch.int32)), "KVC-060", "must be 2-D, of int32 or int64"),
    "a table by request without room": (
        broken(rows=None, tables=torch.zeros([2, 4], dtype=torch.int32)),
        "KVC-060",
        "max_length must be configured",
    ),
    "tokens that are no integers": (broken(input_ids=torch.zeros(3)), "KVC-060", "batch.input_ids must be of int32"),
    "tokens that are no tensor": (broken(input_ids=[1, 2, 3]), "KVC-001", "batch.input_ids must be a torch.Tensor"),
    "another forward": (broken(forward="draft"), "KVC-060", "batch.forward must be one of target, as configured"),
    "no pass": (broken(write_passes=0), "KVC-060", "batch.write_passes must be at least 1, got 0"),
    "too few names": (broken(request_ids=["a"]), "KVC-060", "batch.request_ids must name all 2 requests, got 1 names"),
    "a history of another dtype": (
        broken(history=torch.zeros([9, 32], dtype=torch.int64)),
        "KVC-060",
        "batch.history must be of int32",
    ),
    "positions of another length": (broken(positions=torch.zeros(2, dtype=torch.int64)), "KVC-014", "positions"),
}


@pytest.mark.parametrize("case", NOT_BATCHES.values(), ids=NOT_BATCHES)
def test_batches_refused(scene: Scene, case: tuple[Any, str, str]) -> None:
    make, id_, text = case
    scene.step({1: 1})
    before = [tensor.clone() for tensor in (*scene.group.tensors(), scene.manager.tensors()[1])]
    with pytest.raises(kvcanary.CanaryError) as caught:
        scene.manager.before_forward(make(scene))
    assert caught.value.id == id_, caught.value
    assert text in str(caught.value)
    # Nothing was launched.
    after = (*scene.group.tensors(), scene.manager.tensors()[1])
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_pools_refused() -> None:
    group = World().group()
    for groups in ([], [group, World().group()]):
        with pytest.raises(CanaryValueError, match="groups must hold at least one pool, each with a name of its own"):
            CanaryManager(groups, CanaryConfig())
    with pytest.raises(kvcanary.CanaryTypeError, match=r"groups\[0\] must be a CanaryBufferGroup, got str"):
        CanaryManager(["FULL"], CanaryConfig())  # type: ignore[list-item]


# --- health -----------------------------------------------------------------------------------------------------------


def test_a_stage_that_stood_still(scene: Scene) -> None:
    """The engine replays a graph that was captured without the canary."""
    scene.step({1: 3})
    scene.manager.replayed()
    scene.manager.replayed("target", ["request-1"])
    with pytest.raises(CanaryRuntimeError) as caught:
        scene.manager.step_end()
    assert caught.value.id == "KVC-058"
    text = "stage HEAD of pool FULL stood still: HEAD_K_FULL was launched 0 times in 2 forwards target up to step 2"
    assert text in str(caught.value)
    assert scene.step({1: 1}) == []


def test_a_single_stage_that_stood_still(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named by the endpoint whose counter did not move, the others go on."""
    scene.step({1: 3})
    launch = kvcanary.CanaryEndpoint.launch

    def but_one(self: kvcanary.CanaryEndpoint, *given: Any, **flags: Any) -> None:
        if self.tag.name != "TAIL_V_FULL":
            launch(self, *given, **flags)

    monkeypatch.setattr(kvcanary.CanaryEndpoint, "launch", but_one)
    with pytest.raises(CanaryRuntimeError, match="stage TAIL of pool FULL stood still: TAIL_V_FULL"):
        scene.step({1: 1})


def test_a_forward_given_up_is_not_missed(scene: Scene) -> None:
    scene.step({1: 3})
    scene.manager.before_forward(batch_of(scene.world, scene.world.add({1: 1})))
    scene.manager.give_up()
    assert scene.manager.step_end() == []
