"""What a benchmark stands on: its cases, its floors, and checks that see a wrong result before anything is timed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import kvcanary
from benchmarks.measure import cases, checks, floors, goals, growth, machine, results, steps, tables, timing
from benchmarks.measure.cases import Shape, build

SHAPES = [
    Shape("decode", 3, 10, 1),
    Shape("extend", 2, 5, 4),
    Shape("prefill", 1, 0, 7),
    Shape("window", 3, 12, 1, window=4),
    Shape("all bytes", 2, 6, 2, sources=((64, 32), (32, 32)), mode="ALL"),
    Shape("some bytes", 2, 6, 1, sources=((48, 48),), mode="PARTIAL"),
]
by_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)


# ---- cases -----------------------------------------------------------------------------------------------------------


def test_the_baselines_cases() -> None:
    shapes = cases.read_cases()
    assert len(shapes) == len({shape.name for shape in shapes}) == 11
    for shape in shapes:
        assert shape.baseline is not None and {f"{part}_us" for part in cases.PARTS} <= shape.baseline.keys()
        assert kvcanary.RealKvHashMode[shape.mode] is not None
    small = [shape.smaller() for shape in shapes]
    assert all(shape.entries <= 1024 and shape.baseline is None for shape in small)
    assert [bool(s.window) for s in small] == [bool(s.window) for s in shapes]


def test_sizes_that_contradict_a_file_are_refused(tmp_path: Any) -> None:
    text = cases.BASELINE.read_text("utf-8").replace('"verify_entries": 16384', '"verify_entries": 16385')
    (tmp_path / "baseline.json").write_text(text, "utf-8")
    with pytest.raises(ValueError, match="swa decode bs128 p10240 w128: verify_entries or tokens"):
        cases.read_cases(tmp_path / "baseline.json")


@by_shape
def test_a_case_is_as_the_baseline_describes_it(shape: Shape) -> None:
    work = build(shape, "cpu", reference=True)
    slots = work.plan_args["req_to_token"][1:].flatten().tolist()
    assert sorted(slots) == list(range(1, shape.slots)) and slots != sorted(slots)
    assert int(work.verify_plan.verify_num_valid) == shape.entries
    assert work.verify_plan.verify_slot_indices.shape[0] == max(1, shape.entries)
    assert work.write_plan.write_offsets.tolist()[-1] == shape.tokens
    assert int(work.context.violation_write_index) == 0


# ---- checks ----------------------------------------------------------------------------------------------------------


@by_shape
def test_right_results_pass(shape: Shape) -> None:
    work = build(shape, "cpu", reference=True)
    before = work.context.canary_buf.clone()
    assert checks.check(work, against_reference=False) >= 7
    assert torch.equal(work.context.canary_buf, before), "checks change nothing"


@pytest.mark.usefixtures("interpreted")
@by_shape
def test_kernels_equal_their_references(shape: Shape) -> None:
    assert checks.check(build(shape, "cpu"), against_reference=True) > 20


def _plan_skips_one(**given: Any) -> None:
    kvcanary.ops.canary_plan.launch_canary_plan_kernels(**given)
    given["verify_plan_out"].verify_num_valid.sub_(1)


def _verify_sees_nothing(*, context: Any, plan: Any, **_: Any) -> None:
    context.kernel_run_counter.add_(1)
    context.slot_run_counter.add_(plan.verify_num_valid)


def _verify_reports_all(*, context: Any, **given: Any) -> None:
    kvcanary.ops.canary_verify.launch_canary_verify_kernel(context=context, **given)
    context.violation_write_index.add_(1)


def _write_forgets_the_link(*, context: Any, **given: Any) -> None:
    kvcanary.ops.canary_write.launch_canary_write_kernel(context=context, **given)
    context.canary_buf.view(torch.int64)[int(given["out_cache_loc"][0]), kvcanary.CANARY_FIELD_PREV_HASH] = 0


def _write_hashes_otherwise(*, context: Any, **given: Any) -> None:
    kvcanary.ops.canary_write.launch_canary_write_kernel(context=context, **given)
    context.canary_buf.view(torch.int64)[int(given["out_cache_loc"][-1]), kvcanary.CANARY_FIELD_REAL_KV_HASH] += 1


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("launcher", "broken", "text"),
    [
        ("launch_canary_plan_kernels", _plan_skips_one, "plan: verify_num_valid is 29, must be 30"),
        ("launch_canary_verify_kernel", _verify_sees_nothing, r"slots reported for planted faults is \[\]"),
        ("launch_canary_verify_kernel", _verify_reports_all, "violations of a clean step is 1"),
        ("launch_canary_write_kernel", _write_forgets_the_link, "write: the record of new token 0 is"),
        ("launch_canary_write_kernel", _write_hashes_otherwise, r"write: context\.canary_buf differs"),
    ],
)
def test_wrong_results_are_named(
    launcher: str, broken: Callable[..., None], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = build(SHAPES[0], "cpu")
    monkeypatch.setattr(kvcanary, launcher, broken)
    with pytest.raises(checks.WrongResult, match=f"^decode: {text}"):
        checks.check(work, against_reference=True)


def test_every_way_of_a_step_does_the_same() -> None:
    for way in steps.steps(build(SHAPES[1], "cpu", reference=True)):
        work = build(SHAPES[1], "cpu", reference=True)
        want = work.twin(reference=True)
        want.step()
        steps.steps(work)[way]()
        assert torch.equal(work.context.canary_buf, want.context.canary_buf), way
        assert int(work.context.slot_run_counter) == int(want.context.slot_run_counter), way


# ---- floors and summaries --------------------------------------------------------------------------------------------


def test_bytes_that_must_move() -> None:
    decode = floors.moved_bytes(Shape("decode", 2, 10, 1, sources=((64, 32),), mode="ALL"))
    assert decode["verify"] == 20 * (24 + 32 + 32)
    assert decode["plan"] == 3 * 2 * 8 + 20 * (4 + 32) + 2 * 3 * 8
    assert decode["write"] == 2 * 3 * 8 + 2 * 32 + 2 * (24 + 32 + 32)
    assert decode["step"] < sum(decode[part] for part in cases.PARTS), "a fused step moves no plan"
    partial = floors.moved_bytes(Shape("partial", 2, 10, 1, sources=((64, 32),), mode="PARTIAL"))
    assert decode["verify"] - partial["verify"] == 20 * 16


def test_the_chain_is_a_floor_of_its_own() -> None:
    found = floors.floors_us(Shape("prefill", 1, 0, 4096), copy_gb_per_s=2770, sm_clock_ghz=1.98)
    assert found["write"] == found["step"] == pytest.approx(4096 * 157 / 1980)
    many = floors.floors_us(Shape("prefill", 4096, 0, 1), copy_gb_per_s=1, sm_clock_ghz=1.98)
    assert many["write"] == pytest.approx(floors.moved_bytes(Shape("prefill", 4096, 0, 1))["write"] / 1e3)


def figures(value: float) -> dict[str, float]:
    return dict.fromkeys(results.TIMED, value)


RESULT: dict[str, Any] = {
    "machine": {
        "card": "A Card", "torch": "1", "triton": "2", "date": "2026-01-01T00:00:00+00:00", "device": "cuda",
        "driver": "7", "copy_gb_per_s": 2770.0, "sm_clock_ghz": 1.98,
    },
    "cases": [
        {"name": "one", "us": figures(10.0), "baseline_us": figures(40.0), "floor_us": figures(5.0),
         "host_us": {"plan": 30.0}, "baseline_host_us": {"plan": 60.0}, "host_step_us": {"launchers": 70.0},
         "launches": {"launchers": 5}},
        {"name": "two", "us": figures(20.0), "baseline_us": figures(20.0) | {"write": 10.0}, "floor_us": figures(5.0)},
    ],
    "growth": [{"title": "a curve", "over": "tokens", "points": [[100, 1.0], [1000, 10.0]]}],
}  # fmt: skip


def test_summaries() -> None:
    assert results.summary(RESULT["cases"]) == {
        "cases": 2,
        "step_times_faster": 2.0,
        "step_times_floor": 2.828,
        "slower_than_baseline": ["two: write"],
        "steps_slower_than_baseline": [],
    }
    assert results.summary([{"name": "cpu", "us": figures(1.0)}]) == {}


def test_tables_show_every_figure_beside_its_rivals() -> None:
    text = tables.text({**RESULT, "summary": results.summary(RESULT["cases"])})
    lines = {" ".join(line.split()) for line in text.splitlines()}
    assert "A Card, torch 1, Triton 2, 2026-01-01T00:00:00+00:00, driver 7" in lines
    assert "one plan 10.0 40.0 4.00× 5.0 2.0" in lines
    assert "whole step 10.0 40.0 4.00× 5.0 2.0 launchers 5" in lines
    assert "host, plan 30.0 60.0 2.00×" in lines
    assert "host, step by launchers 70.0" in lines
    assert "1000 10.0 10.000" in lines
    assert "Slower than the baseline: two: write." in lines


def test_goals_are_about_one_card() -> None:
    known = {shape.name: shape for shape in cases.read_cases()}
    case = {"name": "decode bs1 p5120", "us": figures(9.9), "host_step_us": {"launchers": 80.0, "bound": 40.0}}
    result = {**RESULT, "cases": [case], "machine": {**RESULT["machine"], "card": "NVIDIA H200"}}
    found = {row[0]: row[1:] for row in goals.rows(result)}
    assert found == {
        "whole step, decode 1 x 5120": ("13.7", "9", "9.9", "missed by 10%"),
        "host, whole step, the slowest case": ("", "50", "40.0", "reached"),
    }
    summary = {"step_times_faster": 3.6, "steps_slower_than_baseline": ["one"]}
    last = [row[-1] for row in goals.rows({**result, "summary": summary})][-2:]
    assert last == ["reached", "missed"]
    assert list(goals.rows(RESULT)) == []
    parts = {*results.TIMED, "plan_and_verify_two"}
    for goal in json.loads(goals.GOALS.read_text("utf-8"))["goals"]:
        assert goal["case"] in known and goal["part"] in parts and goal["at_most"] < goal["baseline"]
    assert "missed by 10%" in tables.text(result)


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[3], SHAPES[4]], ids=lambda shape: shape.name)
def test_two_endpoints_verify_one_plan(shape: Shape) -> None:
    work = build(shape, "cpu", reference=True)
    second = work.second_endpoint()
    assert (second is None) == bool(shape.sources)
    if second is not None:
        before = [int(context.slot_run_counter) for context in (work.context, second)]
        steps.plan_and_verify_two(work, second)()
        after = [int(context.slot_run_counter) for context in (work.context, second)]
        assert [b - a for a, b in zip(before, after, strict=True)] == [shape.entries] * 2
        assert int(work.context.violation_write_index) == int(second.violation_write_index) == 0


def test_curves_reach_from_ten_thousand_entries_to_ten_million() -> None:
    entries, *tokens = growth.CURVES
    counts = [shape.entries for shape in entries.shapes()]
    assert counts[0] == pytest.approx(1e4, rel=0.01) and counts[-1] == pytest.approx(1e7, rel=0.01)
    assert all(shape.tokens > 0 and shape.prefix == 0 for curve in tokens for shape in curve.shapes())
    curve = growth.Curve("few", "write", 2, (4, 8), "tokens")
    found = growth.measure((curve,), lambda s: build(s, "cpu", reference=True), lambda call: call() or 1.5, [].append)
    assert found == [{"title": "few", "over": "tokens", "points": [[4, 1.5], [8, 1.5]]}]


def test_a_run_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is done on a GPU, with the references on the CPU and a clock that stands still."""

    def once(call: Callable[[], None], **_: int) -> float:
        call()
        return 2.0

    for name, instead in {"warm_up": lambda: None, "device_us": once, "host_us": once, "launches": once}.items():
        monkeypatch.setattr(timing, name, instead)
    monkeypatch.setattr(machine, "describe", lambda device: {**RESULT["machine"], "device": device, "card": "H200"})
    monkeypatch.setattr(machine, "speeds", lambda: {"copy_gb_per_s": 2000.0, "sm_clock_ghz": 2.0})
    monkeypatch.setattr(results, "build", lambda shape, device, reference=False: build(shape, "cpu", reference=True))
    monkeypatch.setattr(checks, "_same_as_reference", lambda work: 100)
    curve = growth.Curve("few", "write", 2, (4, 8), "tokens")
    monkeypatch.setattr(growth, "CURVES", (curve,))
    parts = dict.fromkeys(("plan_us", "verify_us", "write_us"), 4.0)
    baseline = {**parts, "host_plan_us": 8.0, "host_verify_us": 8.0}
    shapes = [replace(shape, baseline=baseline) for shape in SHAPES]
    result = results.measure(shapes, "cuda", curves=True, say=lambda what: None)
    for case in result["cases"]:
        assert set(results.TIMED) == case["floor_us"].keys() == case["baseline_us"].keys()
        assert case["us"]["step"] == 2.0 and case["host_us"] == dict.fromkeys(cases.PARTS, 2.0)
        assert case["step_us"].keys() == case["host_step_us"].keys() == case["launches"].keys()
        assert case["comparisons"] > 100
    assert result["summary"]["step_times_faster"] == 6.0
    assert result["growth"] == [{"title": "few", "over": "tokens", "points": [[4, 2.0], [8, 2.0]]}]
    text = tables.text(json.loads(json.dumps(result)))
    assert "copies 2000.0 GB/s, SM clock 2.0 GHz" in text and "6.00 times" in text
