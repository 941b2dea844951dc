"""A record of what kernels cost: what it holds, and that growth, strangers and other compilers are seen in it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvcanary_gen import aot, recorded
from kvcanary_gen.aot import Report, Specialisation
from kvcanary_gen.cli import app

pytestmark = pytest.mark.aot  # the command drops TRITON_INTERPRET from its process

JOB = Specialisation(
    "plan", None, {}, {"HAS_MAPPING": True, "mapping_ptr": None, "BLOCK": 256, "SCAN": 1024}, num_warps=4, num_stages=1
)
OTHER = replace(JOB, constants={**JOB.constants, "HAS_MAPPING": False})
REPORT = Report("plan", "", "sm_90", 40, 0, 10, 6, 0, 0, 0, 900, "sass")
RECORD = json.loads(recorded.make([(JOB, REPORT), (JOB, replace(REPORT, target="gfx942"))], "3.9.0"))


def test_what_a_record_holds() -> None:
    assert RECORD["triton"] == "3.9.0"
    figures = {"registers": 40, "spills": 0, "loads": 10, "stores": 6, "block": 256, "counted_in": "sass"}
    assert RECORD["kernels"] == {
        "plan": {"HAS_MAPPING=True": {"sm_90": {**figures, "threads": 128}, "gfx942": {**figures, "threads": 256}}}
    }
    assert recorded.recorded_forms(RECORD) == {
        ("plan", "HAS_MAPPING=True", "sm_90"), ("plan", "HAS_MAPPING=True", "gfx942")
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"spills": 8}, "spills 8 bytes a thread, 0 on record"),
        ({"loads": 11}, "11 loads, 10 on record"),
        ({"stores": 7}, "7 stores, 6 on record"),
    ],
)
def test_growth_is_named(change: dict[str, int], text: str) -> None:
    (gain,) = recorded.gains(RECORD, [(JOB, replace(REPORT, **change))], "3.9.0")
    assert str(gain) == f"plan (HAS_MAPPING=True) for sm_90: {text}"


def test_what_does_not_grow_passes() -> None:
    fewer = replace(REPORT, registers=200, loads=9, stores=6, code_bytes=9999)
    assert recorded.gains(RECORD, [(JOB, REPORT), (JOB, fewer), (OTHER, replace(REPORT, loads=99))], "3.9.0") == []


def test_loads_count_for_each_entry() -> None:
    """A thread of a block twice as large may load twice as much, and no more."""
    twice = replace(JOB, constants={**JOB.constants, "BLOCK": 512})
    assert recorded.gains(RECORD, [(twice, replace(REPORT, loads=20, stores=12))], "3.9.0") == []
    (gain,) = recorded.gains(RECORD, [(twice, replace(REPORT, loads=21, stores=12))], "3.9.0")
    assert str(gain).endswith("21 loads, 10 on record; an entry 5.25 instead of 5.00")
    half = replace(JOB, num_warps=8)
    assert len(recorded.gains(RECORD, [(half, REPORT)], "3.9.0")) == 2


def test_other_compilers_are_held_to_spills_alone() -> None:
    grown = replace(REPORT, spills=4, loads=99, stores=99)
    for triton, report in (("3.8.0", grown), ("3.9.0", replace(grown, source="ptx"))):
        assert not recorded.comparable(RECORD, report, triton)
        assert [gain.what for gain in recorded.gains(RECORD, [(JOB, report)], triton)] == ["spills"]


def test_strays() -> None:
    assert recorded.strays(RECORD, [JOB, OTHER]) == []
    assert recorded.strays(RECORD, [JOB, replace(JOB, kernel="write")]) == ["nothing is on record of write"]
    assert recorded.strays(RECORD, [OTHER]) == ["plan has no form HAS_MAPPING=True any more"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"triton": 3, "kernels": {}}', '{"triton": "3", "kernels": [1]}'])
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(text, "utf-8")
    with pytest.raises(recorded.RecordError, match=r"r\.json is no record of kernels"):
        recorded.read(tmp_path / "r.json")
    done = CliRunner().invoke(app, ["compile", "--against", str(tmp_path / "r.json")])
    assert done.exit_code == 1 and "is no record of kernels" in done.output


def test_the_command_records_and_compares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a compiler that costs nothing."""
    costs = {"loads": 10}
    monkeypatch.setattr(
        aot, "compile_one", lambda job, target: replace(REPORT, kernel=job.kernel, target=target, **costs)
    )
    file = str(tmp_path / "record.json")

    def compile_(*words: str) -> Any:
        return CliRunner().invoke(app, ["compile", *words])

    done = compile_("--extremes", "--target", "sm_90", "--record", file)
    assert done.exit_code == 0, done.output
    forms = recorded.recorded_forms(recorded.read(Path(file)))
    assert f"{len(forms)} forms on record" in done.output
    done = compile_("--against", file)
    assert done.exit_code == 0, done.output
    assert "none gained spills, loads or stores" in done.output
    costs["loads"] = 12
    done = compile_("--against", file, "--kernel", "plan_offsets")
    assert done.exit_code == 1
    form = "HAS_FULL_TO_SWA_INDEX_MAPPING=True BLOCK=1024"
    assert f"plan_offsets ({form}) for sm_90: 12 loads, 10 on record" in done.output
    assert "verify" not in done.output
    assert compile_("--against", file, "--record", file).exit_code == 2


def test_records_of_other_kernels_are_out_of_date(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    file.write_text(json.dumps(RECORD), "utf-8")
    done = CliRunner().invoke(app, ["compile", "--against", str(file)])
    assert done.exit_code == 1
    assert "nothing is on record of plan_entries" in done.output and "write it anew with --record" in done.output


def test_extremes() -> None:
    jobs = [JOB, OTHER, replace(JOB, num_warps=2), replace(JOB, kernel="write")]
    assert recorded.extremes(jobs) == [jobs[0], jobs[2], jobs[3]]
