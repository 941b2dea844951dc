"""The self-test finds what is planted, says so where the canary is blind, and where it cries wolf."""

from __future__ import annotations

import argparse
import dataclasses
import logging
from collections import Counter
from typing import Any

import pytest

from kvcanary import CanaryError, FailReason
from kvcanary.runtime import attached, selftest
from kvcanary.runtime.attached import AttachedEngine, canary_config
from kvcanary.runtime.commands import selftest as command
from kvcanary.runtime.engine import Engine
from kvcanary.runtime.fault_kinds import FAULTS
from kvcanary.runtime.faults import FaultInjector, FaultPlan
from kvcanary.runtime.requests import EngineConfig
from kvcanary.runtime.selftest import Selftest, SelftestResult
from kvcanary.runtime.traffic import Traffic


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(given)


# --- what must be seen ------------------------------------------------------------------------------------------------


def test_a_short_run_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(arguments("--steps", "8", "--per-fault", "1", "--seed", "1")) == 0
    out, err = capsys.readouterr()
    assert "8 clean steps" in out and ": 0 false alarms" in out and out.endswith("passed\n")
    for fault in FAULTS:
        assert f"\n{fault} " in out and f"selftest: {fault}\n" in err


def test_the_same_seed_plants_the_same() -> None:
    runs = [planted("table_entries_swapped", seed=3) for _ in range(2)]
    assert runs[0] == runs[1] != planted("table_entries_swapped", seed=4)


def planted(fault: str, seed: int) -> list[str]:
    test = Selftest(steps=4, seed=seed, per_fault=2)
    result = test.run([fault])
    assert result.passed
    return [str(injection) for injection in result.faults[0].injections]


@pytest.mark.parametrize(
    ("fault", "seen_by", "reason"),
    [
        ("table_entries_swapped", {"HEAD", "TAIL"}, FailReason.VERIFY_POSITION_MISMATCH),
        ("byte_flipped_before", {"TAIL"}, FailReason.VERIFY_REAL_KV_HASH_MISMATCH),
        ("unused_byte_flipped_after", {"SWEEP"}, FailReason.VERIFY_REAL_KV_HASH_MISMATCH),
        ("next_tokens_swapped", {"HEAD", "TAIL"}, FailReason.WRITE_TOKEN_MISMATCH),
    ],
)
def test_every_fault_says_who_must_see_it(fault: str, seen_by: set[str], reason: FailReason) -> None:
    result = Selftest(steps=6, seed=2, per_fault=1).run([fault])
    assert result.passed
    injection = result.faults[0].injections[-1]
    assert {expected.stage for expected in injection.planted.expected} == seen_by
    assert {expected.reason for expected in injection.planted.expected} == {reason.name}
    assert set(injection.found) == set(injection.planted.expected) and reason.name in injection.reasons


def test_a_reused_slot_is_seen_at_once_by_its_bytes_and_then_by_its_fingerprint() -> None:
    result = Selftest(steps=8, seed=2, per_fault=1).run(["slot_freed_and_reused"])
    assert result.passed
    injection = [each for each in result.faults[0].injections if each.state == "detected"][-1]
    steps = Counter((expected.reason, step - injection.step) for expected, step in injection.found.items())
    assert set(steps) == {("VERIFY_REAL_KV_HASH_MISMATCH", 0), ("VERIFY_POSITION_MISMATCH", 1)}


def test_what_is_planted_is_logged_with_what_must_be_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="kvcanary"):
        Selftest(steps=4, seed=5, per_fault=1).run(["byte_flipped_after"])
    line = next(text for text in caplog.messages if text.startswith("kv-canary injected"))
    assert "fault=byte_flipped_after step=" in line and "VERIFY_REAL_KV_HASH_MISMATCH" in line.split("expects=")[1]
    assert any(text.startswith("kv-canary settled fault=byte_flipped_after") for text in caplog.messages)
    assert any(text.startswith("kv-canary violation") and "request_id=" in text for text in caplog.messages)


# --- what must fail ---------------------------------------------------------------------------------------------------


def test_a_canary_that_hashes_no_bytes_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def blind(engine: Engine, sweep_interval: int) -> Any:
        return dataclasses.replace(canary_config(engine, sweep_interval), real_kv_mode="NONE")

    monkeypatch.setattr(attached, "canary_config", blind)
    result = Selftest(steps=4, per_fault=1).run(["byte_flipped_before", "table_entries_swapped"])
    assert [each.passed for each in result.faults] == [False, True] and not result.passed
    text = command.report(result)
    assert "not reported: TAIL_" in text and text.endswith("FAILED")


def test_a_fault_that_finds_no_occasion_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "PATIENCE", 0)
    result = Selftest(steps=2).run(["byte_flipped_before"])
    assert not result.passed and "no occasion" in command.report(result)


def test_a_false_alarm_in_a_clean_step_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    test = Selftest(steps=12)
    steps = test.attached.step

    def broken(*hooks: Any) -> Any:
        test.attached.manager.groups[0].buffers["HEAD"]["K"].view(-1)[8::32] ^= 1
        return steps(*hooks)

    monkeypatch.setattr(test.attached, "step", broken)
    result = test.run(())
    assert result.clean_alarms and not result.passed
    assert "false alarm in a clean step: step" in command.report(result)


def test_a_report_that_no_fault_explains_is_a_false_alarm() -> None:
    engine = Engine(EngineConfig())
    attached_engine, traffic = AttachedEngine(engine), Traffic(engine, 1)
    injector = FaultInjector(engine, FaultPlan("byte_flipped_before", warm_up=100))
    for _ in range(4):
        traffic.feed()
        attached_engine.step()
    # A bit that no injector turned.
    engine.layers("FULL")[0].kv["K"].view(-1)[:] ^= 1
    injector.step_end(attached_engine.step(injector.before, injector.after))
    attached_engine.manager.close()
    assert injector.unexplained and not injector.injections


WRONG: list[dict[str, Any]] = [
    {"fault": "byte_fliped"},
    {"fault": "byte_flipped_after", "probability": 50.0},
    {"fault": "byte_flipped_after", "warm_up": -1},
]


@pytest.mark.parametrize("given", WRONG)
def test_plans_that_cannot_be_are_refused_by_name(given: dict[str, Any]) -> None:
    with pytest.raises(CanaryError, match=f"FaultPlan {list(given)[-1]} must") as caught:
        FaultPlan(**given)
    assert caught.value.id == "KVC-093"


def test_faults_wait_for_the_warm_up_and_for_their_probability() -> None:
    engine = Engine(EngineConfig(rows=4, decode_sizes=(1, 3)))
    traffic = Traffic(engine, 1)
    late = FaultInjector(engine, FaultPlan("table_entries_swapped", warm_up=6))
    never = FaultInjector(engine, FaultPlan("table_entries_swapped", probability=0.0))
    for step in range(8):
        traffic.feed()
        while (batch := engine.schedule()) is not None:
            engine.copy(batch)
            late.before(batch)
            never.before(batch)
            engine.forward(batch)
            engine.finish(batch)
        late.step_end([])
        assert bool(late.injections) == (step >= 6)
    assert not never.injections
    # Nobody reported anything, so what was planted was missed.
    assert {injection.state for injection in late.injections} == {"missed"}


def test_arguments_that_are_no_counts_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments("--steps", "0")
    assert "must be an int of at least 1, got '0'" in capsys.readouterr().err


# --- the engine that it runs ------------------------------------------------------------------------------------------


def test_the_clean_run_does_all_that_the_engine_can() -> None:
    result = Selftest(steps=40, seed=1).run(())
    assert result.passed and isinstance(result, SelftestResult)
    for name in ("prefill", "decode", "padded batches", "copies on write", "shared pages", "preemptions"):
        assert result.counts[name], name


def test_a_replay_is_named_by_the_batch_that_its_graph_was_captured_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server has a graph for each batch size; what the last one was captured with says nothing of the others."""
    engine = Engine(EngineConfig())
    attached_engine, kept = AttachedEngine(engine), []
    monkeypatch.setattr(attached_engine.manager, "_capturing", lambda: True)
    for prompt in ([1, 2, 3], [4, 5, 6], [7, 8, 9]):
        engine.submit(prompt, max_new=20)
        while (batch := engine.schedule()) is not None:
            given = attached_engine.canary_batch(batch)
            attached_engine.manager.before_forward(given)
            engine.forward(batch)
            attached_engine.manager.after_forward(given)
            if batch.kind == "decode":
                kept.append(given)
            engine.finish(batch)
    manager, place = attached_engine.manager, attached_engine.manager.config.forward_index("decode")
    sizes = [given.num_requests for given in kept]
    assert len(set(sizes)) > 1
    for given in kept:
        manager.replayed(request_ids=["replayed"] * given.num_requests, captured=given)
        last = manager._last[place]
        assert last is not None and last.requests == given.num_requests == len(last.request_ids or ())
    monkeypatch.undo()
    manager.close()
