"""What `kvcanary-gen diff` sees: every kind of change by its kind, nothing where users notice nothing, and versions."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvcanary_gen.cli import app
from kvcanary_gen.diff import Change, Kind, changes, needed, read_version
from kvcanary_gen.ir import Program
from tests.support.program import SPEC

from .copies import FILES, Copy

API, LAYOUT, SEMANTIC = Kind.API, Kind.LAYOUT, Kind.SEMANTIC


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy.make(tmp_path_factory.mktemp("diff"))


@pytest.fixture
def copy(shared: Copy) -> Iterator[Copy]:
    yield shared
    shared.restore(FILES)


def found(copy: Copy) -> list[Change]:
    program = copy.load()
    assert isinstance(program, Program), program
    return changes(SPEC, program)


def shown(change: Change) -> tuple[Kind, str, str, bool]:
    return change.kind, change.place, change.what, change.breaking


CASES: dict[str, tuple[str, str, str, list[tuple[Kind, str, str, bool]]]] = {
    "an argument that need not be given": (
        "operations.yaml",
        "      - kv_token_id_vs_position_offset\n    workspaces:",
        "      - kv_token_id_vs_position_offset\n    workspaces:\n"
        "      scratch: {type: 'int64[>= 8]', doc: Nothing yet.}",
        [(API, "launch_canary_plan_kernels(), argument scratch", "added", False)],
    ),
    "an argument's dtype": (
        "arguments.yaml",
        "  full_to_swa_index_mapping:\n    type: int64[mapping_len]",
        "  full_to_swa_index_mapping:\n    type: int32[mapping_len]",
        [
            (LAYOUT, f"{name}(), argument full_to_swa_index_mapping, tensor", "changed", True)
            for name in (
                "launch_plan_offsets_kernel",
                "launch_plan_entries_kernel",
                "launch_canary_plan_kernels",
                "launch_canary_plan_and_verify_kernels",
                "launch_canary_plan_and_verify_endpoints_kernels",
            )
        ],
    ),
    "a message": (
        "invariants.yaml",
        '"write_offsets_len must be positive, got {len(out_write_offsets)}"',
        '"write_offsets_len must be above 0, got {len(out_write_offsets)}"',
        [(API, "KVC-006", "changed", True)],
    ),
    "a rule of one function less": (
        "invariants.yaml",
        "operations: [canary_write, canary_write_endpoints]",
        "operations: [canary_write_endpoints]",
        [(API, "launch_canary_write_kernel(), rule KVC-034", "removed", True)],
    ),
    "a rule that refuses more": (
        "invariants.yaml",
        "    rule: len(out_write_offsets) > 0",
        "    rule: len(out_write_offsets) > 1",
        [(API, "KVC-006, rule", "changed", True)],
    ),
    "a launcher's name": (
        "operations.yaml",
        "    launcher: launch_canary_plan_kernels",
        "    launcher: launch_canary_plan",
        [
            (API, "launch_canary_plan_kernels()", "removed", True),
            (API, "launch_canary_plan()", "added", False),
        ],
    ),
    "a field at the end": (
        "layouts.yaml",
        '      real_kv_hash: {type: uint64, doc: "Hash of the slot\'s real KV bytes, 0 where none are hashed."}\n',
        '      real_kv_hash: {type: uint64, doc: "Hash of the slot\'s real KV bytes, 0 where none are hashed."}\n'
        "      owner: {type: int64, doc: Nobody's.}\n",
        [
            (LAYOUT, "record slot", "changed", True),
            (LAYOUT, "record slot, field owner", "added", True),
        ],
    ),
    "a bit": (
        "layouts.yaml",
        "      VERIFY_POSITION_MISMATCH:\n        value: 1\n",
        "      VERIFY_POSITION_MISMATCH:\n        value: 40\n",
        [(LAYOUT, "FailReason, member VERIFY_POSITION_MISMATCH", "changed", True)],
    ),
    "a hash": (
        "functions.yaml",
        "    value: b ^ (b >> 31)",
        "    value: b ^ (b >> 30)",
        [(SEMANTIC, "function splitmix64", "changed", True)],
    ),
    "a hash inside a let": (
        "functions.yaml",
        "0xBF58476D1CE4E5B9",
        "0xBF58476D1CE4E5BB",
        [(SEMANTIC, "function splitmix64", "changed", True)],
    ),
    "a constant": (
        "constants.yaml",
        "0xC0FFEE1234567890",
        "0xC0FFEE1234567891",
        [(SEMANTIC, "CANARY_CHAIN_ANCHOR", "changed", True)],
    ),
    "an expression of a kernel": (
        "kernels/plan_entries.yaml",
        "slot_at(row, position - 1) if position > 0 else -1",
        "slot_at(row, position - 1) if position > 0 else -2",
        [(SEMANTIC, "kernel plan_entries, stores out_verify_prev_slot_indices value", "changed", True)],
    ),
    "a let that two stores use": (
        "kernels/plan_entries.yaml",
        "      row: given_row if 0 <= given_row < table_rows else REQ_POOL_IDX_PADDING",
        "      row: given_row if 1 <= given_row < table_rows else REQ_POOL_IDX_PADDING",
        [
            (SEMANTIC, "kernel plan_entries, stores out_verify_slot_indices value", "changed", True),
            (SEMANTIC, "kernel plan_entries, stores out_verify_expected_tokens value", "changed", True),
            (SEMANTIC, "kernel plan_entries, stores out_verify_prev_slot_indices value", "changed", True),
        ],
    ),
    "an initial value": (
        "structs.yaml",
        "      enable:\n        type: int32[1]\n        init: 1",
        "      enable:\n        type: int32[1]\n        init: 0",
        [(SEMANTIC, "VerifyPlan, field enable, initial value", "changed", True)],
    ),
    "tags that changed places": (
        "tags.yaml",
        "      - HEAD_K_FULL\n      - HEAD_V_FULL\n",
        "      - HEAD_V_FULL\n      - HEAD_K_FULL\n",
        [
            (LAYOUT, "CanaryLaunchTag, tag HEAD_V_FULL", "changed", True),
            (LAYOUT, "CanaryLaunchTag, tag HEAD_K_FULL", "changed", True),
        ],
    ),
    "what a stage does": (
        "tags.yaml",
        "HEAD: {when: before, operations: [verify, write], buffer: HEAD, real_kv: false,",
        "HEAD: {when: before, operations: [verify, write], buffer: HEAD, real_kv: true,",
        [(SEMANTIC, "axis stage, value HEAD", "changed", True)],
    ),
    "prose": (
        "functions.yaml",
        "    doc: The finaliser of SplitMix64, a bijection on 64 bits.",
        "    doc: The finaliser of SplitMix64.",
        [],
    ),
    "a schedule": (
        "kernels/plan_entries.yaml",
        "    schedule: {block: 512, num_warps: 4}",
        "    schedule: {block: 256, num_warps: 4}",
        [],
    ),
    "a fusion": (
        "fused.yaml",
        "fusions:\n",
        "fusions:\n  verify_again: {doc: X., kernel: verify_entries, entries: plan_entries}\n",
        [(SEMANTIC, "fusion verify_again", "added", False)],
    ),
    "the kernels of an operation": (
        "fused.yaml",
        "          out_verify_enable: verify_enable\n      - kernel: verify_planned\n",
        "          out_verify_enable: verify_enable\n      - kernel: plan_offsets\n        bind:\n"
        "          out_verify_offsets_scratch: workspace\n          out_verify_num_valid: verify_num_valid\n"
        "          out_verify_enable: verify_enable\n      - kernel: verify_planned\n",
        [(SEMANTIC, "operation canary_plan_and_verify", "changed", True)],
    ),
    "a schedule of a fusion": (
        "fused.yaml",
        "    entries: plan_entries\n    schedule: {block: 64, num_warps: 1,",
        "    entries: plan_entries\n    schedule: {block: 32, num_warps: 1,",
        [],
    ),
    "the name of a let": (
        "functions.yaml",
        "      b: (a ^ (a >> 27)) * 0x94D049BB133111EB\n    value: b ^ (b >> 31)",
        "      second: (a ^ (a >> 27)) * 0x94D049BB133111EB\n    value: second ^ (second >> 31)",
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_changes_are_classified(copy: Copy, name: str) -> None:
    file, old, new, want = CASES[name]
    copy.replace(file, old, new)
    assert sorted(map(shown, found(copy))) == sorted(want)


def test_an_argument_that_need_not_be_given_any_more_breaks_nobody() -> None:
    kernel = SPEC.kernels["scatter_req_token_ids"]
    first, *rest = kernel.inputs
    lax = replace(kernel, inputs=(replace(first, optional=True), *rest))
    relaxed = replace(SPEC, kernels={**SPEC.kernels, kernel.name: lax})
    place = f"{kernel.launcher}(), argument {first.name}"
    assert [shown(change) for change in changes(SPEC, relaxed)] == [(API, place, "changed", False)]
    assert [shown(change) for change in changes(relaxed, SPEC)] == [(API, place, "changed", True)]


def test_a_fusion_of_other_kernels_is_another() -> None:
    """What it computes follows from its two kernels, whose own changes are not told twice."""
    fusion = SPEC.kernels["verify_planned"]
    other = replace(fusion, made_of=("verify_entries", "other_entries"))
    changed = replace(SPEC, kernels={**SPEC.kernels, fusion.name: other})
    (change,) = changes(SPEC, changed)
    assert shown(change) == (SEMANTIC, "fusion verify_planned", "changed", True)
    assert change.before == "verify_entries with entries of plan_entries"
    assert change.after == "verify_entries with entries of other_entries"


def test_a_rule_breaks_callers_of_functions_that_were_there(copy: Copy) -> None:
    """A function that comes with its rules breaks nobody; a rule that comes to a function does."""
    rule = "operations: [canary_write, canary_write_endpoints]"
    copy.replace("invariants.yaml", rule, "operations: [canary_write_endpoints]")
    older = copy.load()
    assert isinstance(older, Program)
    assert [shown(c) for c in changes(older, SPEC)] == [
        (API, "launch_canary_write_kernel(), rule KVC-034", "added", True)
    ]
    del older.operations["canary_write_endpoints"]
    assert (API, "launch_canary_write_endpoints_kernel()", "added", False) in map(shown, changes(older, SPEC))
    assert not [c for c in changes(older, SPEC) if c.place.startswith("launch_canary_write_endpoints_kernel(), ")]


def test_tables_are_classes(copy: Copy) -> None:
    copy.replace("context.yaml", "table: VerifyOrWriteContextTable", "table: ContextTable")
    seen = list(map(shown, found(copy)))
    assert (API, "VerifyOrWriteContextTable", "removed", True) in seen
    assert (API, "ContextTable", "added", False) in seen


def test_the_order_of_rules_matters(copy: Copy) -> None:
    text = FILES["invariants.yaml"]
    first, second, third = (text.index(f"  KVC-00{number}:") for number in (2, 3, 4))
    copy.write("invariants.yaml", text[:first] + text[second:third] + text[first:second] + text[third:])
    (change,) = found(copy)
    assert shown(change) == (API, "order of rules", "changed", True)
    assert "KVC-003, KVC-002" in change.after and "KVC-002, KVC-003" in change.before


def test_every_kind_of_change_back_and_forth(copy: Copy) -> None:
    """What one direction calls added the other calls removed; both see the same places."""
    for file, old, new, want in CASES.values():
        copy.replace(file, old, new)
        program = copy.load()
        assert isinstance(program, Program)
        there, back = changes(SPEC, program), changes(program, SPEC)
        assert sorted(c.place for c in there) == sorted(c.place for c in back) == sorted(w[1] for w in want)
        copy.restore([file])
    assert changes(SPEC, SPEC) == []


# ---- versions --------------------------------------------------------------------------------------------------------

BREAKING = Change(LAYOUT, ("record slot",), "changed", "32 bytes", "40 bytes", True)
ADDING = Change(API, ("f()",), "added", "", "", False)


@pytest.mark.parametrize(
    ("old", "change", "least"),
    [
        ("0.1.3", [], "0.1.3"),
        ("0.1.3", [ADDING], "0.1.4"),
        ("0.1.3", [ADDING, BREAKING], "0.2.0"),
        ("1.2.3", [ADDING], "1.3.0"),
        ("1.2.3", [BREAKING], "2.0.0"),
    ],
)
def test_versions(old: str, change: list[Change], least: str) -> None:
    assert needed(read_version(old), change) == read_version(least)


# ---- the command -----------------------------------------------------------------------------------------------------


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Copy:
    """A repository whose only commit is the spec, below a folder."""
    copy = Copy.make(tmp_path / "project")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "The spec")
    return copy


def run(copy: Copy, *words: str, against: str = "HEAD") -> Any:
    return CliRunner().invoke(app, ["diff", "--spec", str(copy.root), "--against", against, *words])


def test_an_unchanged_spec_needs_no_version(repository: Copy) -> None:
    done = run(repository)
    assert done.exit_code == 0, done.output
    assert "No change that users notice; version 0.1.0 → 0.1.0 says enough." in done.output


def test_the_version_must_say_it(repository: Copy) -> None:
    repository.replace("functions.yaml", "b ^ (b >> 31)", "b ^ (b >> 30)")
    done = run(repository)
    assert done.exit_code == 1
    (line,) = [line for line in done.output.splitlines() if line.startswith("SEMANTIC")]
    assert line.startswith("SEMANTIC breaks function splitmix64 changed: ")
    assert ">> 31" in line and ">> 30" in line and len(line) < 400
    assert "1 change, 1 breaking; version 0.1.0 → 0.1.0 is not enough: 0.2.0 or later." in done.output.replace(
        "\n", " "
    )
    repository.replace("kvcanary.yaml", "version: 0.1.0", "version: 0.1.9")
    assert run(repository).exit_code == 1
    repository.replace("kvcanary.yaml", "version: 0.1.9", "version: 0.2.0")
    done = run(repository)
    assert done.exit_code == 0 and "version 0.1.0 → 0.2.0 says enough" in done.output


def test_formats_for_programs(repository: Copy) -> None:
    repository.replace("constants.yaml", "0xC0FFEE1234567890", "0xC0FFEE1234567891")
    done = run(repository, "--format", "json")
    assert done.exit_code == 1
    given = json.loads(done.output)
    assert (given["old"], given["new"], given["needed"], given["enough"]) == ("0.1.0", "0.1.0", "0.2.0", False)
    (change,) = given["changes"]
    assert change["kind"] == "SEMANTIC" and change["place"] == ["CANARY_CHAIN_ANCHOR"] and change["breaking"]
    assert change["before"].endswith("890") and change["after"].endswith("891")
    done = run(repository, "--format", "github")
    assert done.exit_code == 1
    (line,) = done.output.splitlines()
    assert line.startswith("::error file=") and "kvcanary.yaml,line=3::1 change, 1 breaking" in line


@pytest.mark.parametrize(
    ("against", "text"),
    [("nowhere", "--against: no revision 'nowhere'"), ("--output=x", "--against: no revision '--output=x'")],
)
def test_revisions_that_are_none(repository: Copy, against: str, text: str) -> None:
    done = CliRunner().invoke(app, ["diff", "--spec", str(repository.root), f"--against={against}"])
    assert done.exit_code == 1 and text in done.output
    assert not list(repository.root.glob("x"))


def test_revisions_without_a_spec(repository: Copy) -> None:
    moved = Copy(repository.root.with_name("moved"))
    repository.root.rename(moved.root)
    done = run(moved)
    assert done.exit_code == 1 and "does not exist in 'HEAD'" in done.output


def test_folders_outside_of_a_repository(copy: Copy) -> None:
    done = run(copy)
    assert done.exit_code == 1 and "is in no git repository" in done.output


def test_specs_that_this_generator_cannot_read(repository: Copy) -> None:
    repository.replace("functions.yaml", "b ^ (b >> 31)", "b ^ (c >> 31)")
    git(repository.root, "commit", "--quiet", "-a", "-m", "Broken")
    repository.restore(["functions.yaml"])
    done = run(repository)
    assert done.exit_code == 1
    assert "the spec of 'HEAD' has 1 error for this generator, first spec/functions.yaml" in done.output
