"""What is wrong with a spec is said once, by its rule, on the character that causes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvcanary_gen.commands.common import load
from kvcanary_gen.diagnostics import Diagnostic, Diagnostics, Mark, SpecError, suggest
from kvcanary_gen.ir import Program
from kvcanary_gen.lint import WARNINGS, warnings
from kvcanary_gen.located import LocatedStr
from kvcanary_gen.resolve import load_program
from kvcanary_gen.rules import RULES
from kvcanary_gen.source import Source, read_source

from .copies import FILES, HERE, Copy, file_place, place_of, unchanged_files_read_once

SOURCE = Path(__file__).resolve().parents[2] / "kvcanary_gen"
CASES: dict[str, list[dict[str, Any]]] = yaml.safe_load(Path(__file__).with_name("errors.yaml").read_text("utf-8"))
TABLE = [pytest.param(rule, case, id=f"{rule}-{n}") for rule, cases in CASES.items() for n, case in enumerate(cases)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    """One copy for all that put back what they change."""
    copy = Copy.make(tmp_path_factory.mktemp("errors"))
    with unchanged_files_read_once():
        yield copy


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy.make(tmp_path)


def texts(found: list[Diagnostic]) -> list[str]:
    return [diagnostic.text() for diagnostic in found]


# --- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rule", "case"), TABLE)
def test_one_mistake_is_one_finding_in_its_place(shared: Copy, rule: str, case: dict[str, Any]) -> None:
    file = case["file"]
    try:
        place = shared.replace(file, case["old"], case["new"])
        if "at" in case:
            place = _place_at(shared, **case["at"])
        found = shared.findings()
    finally:
        shared.restore([file])
    assert [f"{d.mark} {d.rule}" for d in found] == [f"{place} {rule}"], "\n".join(texts(found))
    assert case["says"] in found[0].message


def _place_at(copy: Copy, file: str, text: str) -> str:
    now = (copy.root / file).read_text("utf-8")
    plain = text.replace(HERE, "")
    assert now.count(plain) == 1
    return place_of(file, now.replace(plain, text))


def test_the_real_spec_is_valid(copy: Copy) -> None:
    assert load_program(copy.root).kernels


def test_every_rule_is_explained_and_provoked() -> None:
    raised = set()
    for path in SOURCE.rglob("*.py"):
        if path.name not in ("rules.py", "lint.py"):
            raised |= set(re.findall(r'"(KVG-\d{3})"', path.read_text("utf-8")))
    assert raised == set(RULES)
    assert set(CASES) == set(RULES)
    assert not RULES.keys() & WARNINGS.keys()
    for rule in RULES.values():
        assert rule.title and rule.meaning.endswith(".") and rule.fix.endswith(".")


# --- several at once --------------------------------------------------------------------------------------------------


def test_errors_of_several_files_and_stages_come_together(copy: Copy) -> None:
    """Of the schema, of names, of types and of whole kernels; none hides another."""
    edits = [
        ("kvcanary.yaml", "version: 0.1.0", "version: ¦0.1", "KVG-010"),
        ("constants.yaml", "value: 0x7FFFFFFF", "value: ¦many", "KVG-010"),
        ("structs.yaml", "init: 1", "init: ¦5000000000", "KVG-027"),
        ("arguments.yaml", "    optional: true\n    outside: -1", "    optional: ¦yes\n    outside: -1", "KVG-004"),
        ("functions.yaml", "value: translate(req_to_token", "value: ¦translat(req_to_token", "KVG-012"),
        ("kernels/plan_entries.yaml", "position: window_start", "position: ¦windw_start", "KVG-012"),
        ("kernels/plan_entries.yaml", "when: verify_enable[0] != 0", "when: ¦verify_enable[0]", "KVG-022"),
        (
            "kernels/plan_offsets.yaml",
            "      live: is_live(row)",
            "      live: is_live(row)\n      ¦mask: 1",
            "KVG-015",
        ),
        ("operations.yaml", "- kernel: plan_entries", "- kernel: ¦plan_entry", "KVG-012"),
        ("invariants.yaml", "rule: swa_window_size <= 0 or", "rule: ¦swa_window_size or", "KVG-022"),
        ("tags.yaml", "- HEAD_K_FULL", "- ¦HEAD_K_FUL", "KVG-050"),
    ]
    expected = [f"{copy.replace(file, old, new)} {rule}" for file, old, new, rule in edits]
    # The operation that calls an unknown kernel is unknown itself, and what is said of it waits.
    expected.remove(next(e for e in expected if "invariants.yaml" in e))
    found = copy.findings()
    assert sorted(f"{d.mark} {d.rule}" for d in found) == sorted(expected), "\n".join(texts(found))
    assert [d.mark for d in found] == sorted(d.mark for d in found)


@pytest.mark.parametrize(
    ("file", "old", "new", "place"),
    [
        ("kernels/verify.yaml", "limit: verify_capacity\n", "limit: verify_capacity - 1\n", "¦verify_planned:"),
        (
            "fused.yaml",
            "out_verify_num_valid: verify_num_valid\n          out_verify_enable: verify_enable\n",
            "out_verify_num_valid: verify_enable\n          out_verify_enable: verify_num_valid\n",
            "- kernel: ¦verify_planned",
        ),
    ],
)
@pytest.mark.parametrize(
    ("other", "right", "wrong"),
    [
        ("kernels/write.yaml", "seed: write_seed_slot_indices[r]", "seed: write_seed_slot_indices[¦rr]"),
        ("kernels/scatter_req_token_ids.yaml", "outputs: [pool_out]", "outputs: [¦pol_out]"),
    ],
)
def test_fusions_are_judged_whatever_is_wrong_elsewhere(
    copy: Copy, file: str, old: str, new: str, place: str, other: str, right: str, wrong: str
) -> None:
    copy.replace(file, old, new)
    expected = [(copy.replace(other, right, wrong), "KVG-012"), (file_place("fused.yaml", place), "KVG-045")]
    assert sorted((str(d.mark), d.rule) for d in copy.findings()) == sorted(expected)


def test_a_size_that_fusing_loses_needs_a_scalar(copy: Copy) -> None:
    """The capacity of a plan that nobody allocates is an argument, by the same name."""
    for file in ("structs.yaml", "kernels/plan_entries.yaml", "kernels/verify.yaml"):
        copy.write(file, FILES[file].replace("verify_capacity", "plan_capacity"))
    message = "no tensor that is left says how long 'plan_capacity' is, nor is there a scalar of that name"
    place = file_place("fused.yaml", "¦verify_planned:")
    assert f"{place}: KVG-045 verify_planned cannot be: {message}" in texts(copy.findings())


def test_what_a_fused_kernel_writes_its_entries_do_not_read(copy: Copy) -> None:
    """One point might see what another has stored."""
    copy.replace("kernels/verify.yaml", "kernel_run_counter]\n", "kernel_run_counter, prefix_lens]\n")
    copy.replace("kernels/verify.yaml", "    counters:\n", "    counters:\n      prefix_lens: {per: point}\n")
    place = file_place("fused.yaml", "¦verify_planned:")
    message = "verify_planned cannot be: verify_entries writes 'prefix_lens', which plan_entries reads"
    assert f"{place}: KVG-045 {message}" in texts(copy.findings())


def test_programs_of_one_launch_read_nothing_that_others_write(copy: Copy) -> None:
    """They run in any order."""
    copy.replace("kernels/verify.yaml", "kernel_run_counter]\n", "kernel_run_counter, extend_seq_lens]\n")
    copy.replace("kernels/verify.yaml", "    counters:\n", "    counters:\n      extend_seq_lens: {per: point}\n")
    place = file_place("fused.yaml", "¦plan_and_verify_alone:")
    message = "plan_and_verify_alone cannot be: plan_offsets reads 'extend_seq_lens', which verify_planned writes"
    assert f"{place}: KVG-045 {message}" in texts(copy.findings())


def test_programs_of_one_launch_store_to_nothing_that_others_do(copy: Copy) -> None:
    copy.replace("kernels/verify.yaml", "kernel_run_counter]\n", "kernel_run_counter, out_verify_offsets_scratch]\n")
    copy.replace(
        "kernels/verify.yaml", "    counters:\n", "    counters:\n      out_verify_offsets_scratch: {per: point}\n"
    )
    place = file_place("fused.yaml", "¦plan_and_verify_alone:")
    message = "verify_planned takes 'out_verify_offsets_scratch', which plan_offsets stores to"
    assert f"{place}: KVG-045 plan_and_verify_alone cannot be: {message}" in texts(copy.findings())


def test_a_fusion_that_no_operation_launches_is_warned_of(copy: Copy) -> None:
    again = "  ¦second:\n    doc: Again.\n    kernel: verify_entries\n    entries: plan_entries\n\noperations:"
    place = copy.replace("fused.yaml", "\noperations:", again)
    program, document = load(copy.root)
    (found,) = warnings(program, document).found
    assert (str(found.mark), found.rule) == (place, "KVG-070")
    assert found.message == "'second' is launched by no operation"


def test_each_mistake_of_one_expression_is_found(copy: Copy) -> None:
    copy.replace(
        "kernels/plan_entries.yaml",
        "position: window_start(prefix_lens[r]) + j",
        "position: window_start(prefix_lns[r]) + min(jj, 1.5) + (2 if rr else k)",
    )
    words = ["unknown name 'prefix_lns'", "unknown name 'jj'", "a float", "unknown name 'rr'", "unknown name 'k'"]
    found = copy.findings()
    assert len(found) == len(words)
    assert all(word in d.message for word, d in zip(words, found, strict=True))


@pytest.mark.parametrize(
    ("early", "late", "message"),
    [
        ("kind", "alignment", "the implied rule 'kind' must stand before KVC-001"),
        ("rank", "contiguous", "the implied rule 'rank' must stand before KVC-014"),
    ],
)
def test_rules_stand_behind_what_they_rely_on(copy: Copy, early: str, late: str, message: str) -> None:
    """Nothing can be asked of what may be no tensor, or of an axis that may not be there."""
    copy.replace("invariants.yaml", f"implied: {late}\n", "implied: later\n")
    copy.replace("invariants.yaml", f"implied: {early}\n", f"implied: {late}\n")
    copy.replace("invariants.yaml", "implied: later\n", f"implied: {early}\n")
    assert any(message in text for text in texts(copy.findings()))


def test_the_rule_of_tables_is_wanted_where_something_takes_one(copy: Copy) -> None:
    rules, _, rule = FILES["invariants.yaml"].partition("  KVC-035:\n")
    assert "implied: many" in rule
    copy.write("invariants.yaml", rules)
    assert [d.message for d in copy.findings()] == ["no entry is `implied` by 'many'"]
    copy.replace("invariants.yaml", "[canary_write, canary_write_endpoints]", "[canary_write]")
    alone, _, endpoints = FILES["operations.yaml"].partition("  canary_verify_endpoints:\n")
    assert "many: true" in endpoints and "many: true" not in alone
    copy.write("operations.yaml", alone)
    copy.replace("invariants.yaml", ", canary_plan_and_verify_endpoints]", "]")
    copy.replace("context.yaml", "    table: VerifyOrWriteContextTable\n", "")
    copy.replace("kvcanary.yaml", "  - fused_endpoints.yaml\n", "")
    (copy.root / "fused_endpoints.yaml").unlink()
    assert isinstance(copy.load(), Program)


def test_unreadable_files_leave_the_others_to_the_schema(copy: Copy) -> None:
    """Names cannot be resolved without all files, but every file's own errors are known."""
    copy.write("tags.yaml", b"axes: [")
    copy.write("structs.yaml", b"\xff")
    place = copy.replace("constants.yaml", "value: 0x7FFFFFFF", "value: ¦many")
    copy.replace("functions.yaml", "value: translate(req_to_token", "value: translat(req_to_token")
    assert [(str(d.mark), d.rule) for d in copy.findings()] == [
        (place, "KVG-010"),
        ("spec/structs.yaml:1:1", "KVG-001"),
        ("spec/tags.yaml:1:8", "KVG-002"),
    ]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("constants.yaml", "value: 4096", "value: ¦x"),
        ("arguments.yaml", "  prefix_lens:\n    type: int64[bs]", "  prefix_lens:\n    ¦typ: int64[bs]"),
        ("arguments.yaml", "type: int64[>= bs + 1]\n", "type: int64[>= ¦bss() + 1]\n"),
        ("structs.yaml", "capacity: write_req_capacity", "¦capacty: write_req_capacity"),
        ("functions.yaml", "      b: (a ^ (a >> 27))", "      b: (a ^ (¦aa >> 27))"),
        ("functions.yaml", "returns: bool", "returns: ¦boolean"),
        ("kernels/plan_offsets.yaml", "live: is_live(row)", "live: ¦is_liv(row)"),
        ("kernels/plan_offsets.yaml", "domain: {scan: r, count: bs}", "domain: {scan: r, count: ¦bz}"),
        ("kernels/plan_offsets.yaml", "- out_write_offsets\n", "- ¦out_write_offset\n"),
        ("kernels/plan_entries.yaml", "- verify_offsets_scratch\n", "- ¦verify_offsets_scrach\n"),
        ("operations.yaml", "verify_plan_out: {type: VerifyPlan, ", "verify_plan_out: {type: ¦VerifyPlans, "),
        ("tags.yaml", "    doc: Which pool of slots.\n", "    ¦dc: Which pool of slots.\n"),
        ("invariants.yaml", "    implied: rank", "    implied: ¦rnk"),
        ("layouts.yaml", "prefix: CANARY_FIELD", "¦prefx: CANARY_FIELD"),
        ("layouts.yaml", "kind: flag", "kind: ¦flags"),
        ("layouts.yaml", "kind: int", "kind: ¦integer"),
        ("layouts.yaml", "      token: {type: int64", "      token: {type: ¦int63"),
        ("kernels/write.yaml", "prev_hash: {type: uint64, ", "prev_hash: {type: ¦uint63, "),
        ("context.yaml", "page_size: {type: int64, at_least: 1", "page_size: {type: int64, at_least: ¦x"),
        ("context.yaml", "page_size: {type: int64, at_least: 1", "page_size: {type: ¦int63, at_least: 1"),
        ("context.yaml", "type: RealKvSource[<= MAX_REAL", "type: ¦RealKvSources[<= MAX_REAL"),
        ("context.yaml", "record: violation", "record: ¦5"),
        ("context.yaml", "violation_ring: {field: VerifyOr", "violation_ring: {¦fild: VerifyOr"),
        ("context.yaml", "canary_buf: {field: VerifyOr", "canary_buf: {¦fild: VerifyOr"),
        ("context.yaml", "real_kv_sources: {field: VerifyOr", "real_kv_sources: {¦fild: VerifyOr"),
        ("context.yaml", "real_kv_hash_mode: {field: VerifyOr", "real_kv_hash_mode: {¦fild: VerifyOr"),
        ("context.yaml", "slot_run_counter: {field: VerifyOr", "slot_run_counter: {¦fild: VerifyOr"),
        ("context.yaml", "combine: splitmix64(total ^ state)", "combine: splitmix64(total ^ ¦stat)"),
        ("context.yaml", "splitmix64_mix3(canary_buf[slot].prev_hash,", "splitmix64_mix3(canary_buf[¦slt].prev_hash,"),
        ("kernels/verify.yaml", "    type: bool", "    type: ¦boo"),
        ("kernels/verify.yaml", "      count: verify_num_valid[0]", "      count: ¦verify_num_vald[0]"),
        ("kernels/verify.yaml", "slot: verify_slot_indices[i]", "slot: verify_slot_indices[¦ii]"),
        ("kernels/verify.yaml", "stored: canary_buf[slot]", "stored: canary_buf[¦slt]"),
        (
            "kernels/write.yaml",
            'previous_position: {first: "canary_buf[seed].position"',
            'previous_position: {first: "canary_buf[¦sed].position"',
        ),
        ("kernels/write.yaml", "seed: write_seed_slot_indices[r]", "seed: write_seed_slot_indices[¦rr]"),
        ("kernels/write.yaml", "found: canary_buf[slot]", "found: canary_buf[¦slt]"),
        # A fusion and the operation that launches it go without another word, too.
        ("functions.yaml", "value: translate(req_to_token", "value: ¦translat(req_to_token"),
        ("arguments.yaml", "  verify_capacity:\n    type: int64\n", "  verify_capacity:\n    ¦typ: int64\n"),
        ("kernels/plan_offsets.yaml", "{sum: verify_count, total", "{sum: ¦verify_cont, total"),
        ("kernels/plan_offsets.yaml", "min(verify_total, verify_capacity)", "min(¦verify_totl, verify_capacity)"),
        ("kernels/verify.yaml", "prev: verify_prev_slot_indices[i]", "prev: verify_prev_slot_indices[¦k]"),
        ("fused.yaml", "out_verify_num_valid: verify_num_valid", "out_verify_num_valid: ¦verify_num"),
        ("fused.yaml", "out_verify_num_valid: verify_num_valid", "¦out_verify_num: verify_num_valid"),
        ("fused.yaml", "    entries: plan_entries\n", "    ¦entris: plan_entries\n"),
    ],
)
def test_what_uses_a_broken_declaration_is_not_reported_too(copy: Copy, file: str, old: str, new: str) -> None:
    place = copy.replace(file, old, new)
    found = copy.findings()
    assert {str(d.mark) for d in found} | {place} == {place} or (
        # A misspelt key is also missing under its right name.
        (len(found) == 2 and found[1].rule == "KVG-013") or found[0].rule == "KVG-013"
    ), "\n".join(texts(found))


@pytest.mark.parametrize("file", [file for file in FILES if file != "kvcanary.yaml"])
def test_a_file_that_is_not_included_is_told_of_once(copy: Copy, file: str) -> None:
    """Not each of its names, wherever they are used."""
    entry = "kernels/*.yaml" if file.startswith("kernels/") else file
    others = "".join(f"  - {name}\n" for name in FILES if name.startswith("kernels/") and name != file)
    copy.replace("kvcanary.yaml", f"  - {entry}\n", others if "kernels/" in file else "")
    found = copy.load()
    if file in ("kernels/scatter_req_token_ids.yaml", "operations.yaml", "tags.yaml"):
        return  # nothing of it is used elsewhere
    assert isinstance(found, list)
    place = file_place("kvcanary.yaml", "¦include:")
    if file not in ("invariants.yaml", "errors.yaml"):
        message = f"{place}: KVG-006 no `include` names spec/{file}, which declares "
        assert [text for text in texts(found) if text.startswith(message)], "\n".join(texts(found))
    assert len(found) < 6, "\n".join(texts(found))


def test_arguments_of_two_structs_are_not_guessed(copy: Copy) -> None:
    place = copy.replace(
        "operations.yaml",
        "      write_plan_out: {type: WritePlan",
        "      other: {type: WritePlan, doc: X.}\n      write_plan_out: {type: WritePlan",
    )
    assert place is None
    found = copy.findings()
    assert {d.rule for d in found} == {"KVG-060"}
    assert any(
        "'out_write_offsets' could be other.write_offsets or write_plan_out.write_offsets" in d.message for d in found
    )
    names = ["out_write_offsets", "out_write_seed_slot_indices", "out_write_num_valid_reqs"]
    bind = ", ".join(f"{name}: write_plan_out.{name.removeprefix('out_')}" for name in names)
    copy.replace(
        "operations.yaml",
        "bind: {out_verify_offsets_scratch: workspace}",
        f"bind: {{{bind}, out_verify_offsets_scratch: workspace}}",
    )
    program = load_program(copy.root)
    assert program.operations["canary_plan"].calls[0].bind["out_write_offsets"] == "write_plan_out.write_offsets"


def test_a_workspace_of_another_type_is_told_of_each_kernel(copy: Copy) -> None:
    copy.replace("operations.yaml", "type: int64[>= MAX_PLAN_BATCH + 1]", "type: int32[>= MAX_PLAN_BATCH + 1]")
    found = copy.findings()
    assert [d.rule for d in found] == ["KVG-060", "KVG-060"]
    assert (
        "'workspace' cannot be 'out_verify_offsets_scratch' of plan_offsets: dtype int32 is not int64"
        in found[0].message
    )


def test_sizes_of_an_operation_are_read_off_its_own_arguments(copy: Copy) -> None:
    place = copy.replace(
        "operations.yaml",
        "operations:\n",
        "operations:\n  scatter:\n    launcher: launch_scatter\n    doc: X.\n"
        "    arguments: [flat_in, ¦offsets, pool_out]\n    calls: [{kernel: scatter_req_token_ids}]\n",
    )
    message = "KVG-031 size 'bs' of 'offsets' is a whole axis of no argument of scatter"
    assert f"{place}: {message}" in texts(copy.findings())


def test_a_spec_without_kernels_generates_nothing(copy: Copy) -> None:
    for file in FILES:
        if file.startswith("kernels/") or file == "operations.yaml":
            (copy.root / file).unlink()
    copy.replace("kvcanary.yaml", "  - kernels/*.yaml\n  - operations.yaml", "")
    copy.write(
        "invariants.yaml", re.sub(r"  KVC-\d+:\n    rule:(.|\n)*?(?=\n  KVC|\n  #|\Z)", "", FILES["invariants.yaml"])
    )
    found = copy.findings()
    assert [d.rule for d in found if "no kernel is declared" in d.message] == ["KVG-013"]


def test_a_hundred_mistakes_end_somewhere(copy: Copy) -> None:
    copy.replace(
        "kernels/plan_offsets.yaml",
        "inputs: [req_pool_indices,",
        "inputs: [" + "prefix_lans, " * 9000 + "req_pool_indices,",
    )
    found = copy.findings()
    assert len(found) == 200
    assert "did you mean 'prefix_lens'" in found[0].message


# --- places -----------------------------------------------------------------------------------------------------------


def scalar(text: str, tmp_path: Path) -> LocatedStr:
    """The value of `key` in a file of this text."""
    path = tmp_path / "a.yaml"
    path.write_bytes(text.encode("utf-8"))
    out = Diagnostics()
    source = read_source(path, "a.yaml", out)
    assert isinstance(source, Source) and not out.found
    found = source.tree["key"]
    assert isinstance(found, LocatedStr)
    return found


@pytest.mark.parametrize(
    ("text", "value", "places"),
    [
        ("key: ab cd\n", "ab cd", "a 1:6, b 1:7, c 1:9, d 1:10"),
        ("\ufeffkey: ab\n", "ab", "a 1:6, b 1:7"),
        ("x: 1\r\nkey: ab\r\n", "ab", "a 2:6, b 2:7"),
        ("x: 1\rkey: ab\r", "ab", "a 2:6, b 2:7"),
        ("é: ü\nkey: ab\n", "ab", "a 2:6, b 2:7"),
        ("key: ab\n  cd\n\n  ef\n", "ab cd\nef", "b 1:7, c 2:3, f 4:4"),
        ("key: >-\n  ab\n  cd\n", "ab cd", "a 2:3, b 2:4, c 3:3, d 3:4"),
        ("key: >-  # why\n\n    ab\n    cd\n", "\nab cd", "a 3:5, d 4:6"),
        ("key: |\n  ab\n   cd\n", "ab\n cd\n", "a 2:3, c 3:4"),
        ("key: 'ab'\n", "ab", "a 1:7, b 1:8"),
        ("key: 'a''b''''c'\n", "a'b''c", "a 1:7, b 1:10, c 1:15"),
        ("key: 'a\n  b'\n", "a b", "a 1:7, b 2:3"),
        ('key: "ab"\n', "ab", "a 1:7, b 1:8"),
        ('key: "\\ta\\x41\\u0042\\"c\\\nd"\n', '\taAB"cd', 'a 1:9, A 1:10, B 1:14, " 1:20, c 1:22, d 2:1'),
        ("key: [ab]\nkey2: 1\n".replace("[ab]", "a:b"), "a:b", "a 1:6, b 1:8"),
    ],
)
def test_places_inside_scalars(text: str, value: str, places: str, tmp_path: Path) -> None:
    found = scalar(text, tmp_path)
    assert found == value
    for place in places.split(", "):
        character, _, where = place.partition(" ")
        assert str(found.mark_at(value.index(character))) == f"a.yaml:{where}", place


def test_the_end_of_a_scalar_is_behind_its_last_character(tmp_path: Path) -> None:
    assert str(scalar("key: ab\n", tmp_path).mark_at(2)) == "a.yaml:1:8"
    assert str(scalar("key: >-\n  ab\n  cd\nx: 1\n", tmp_path).mark_at(5)) == "a.yaml:3:5"
    assert str(scalar("key: 'a''b '\n", tmp_path).mark_at(4)) == "a.yaml:1:11"


def test_parts_of_a_scalar_know_their_place(tmp_path: Path) -> None:
    found = scalar("key: >-\n  int64[>=\n  bs + 1]\n", tmp_path)
    part = found.part(6, len(found) - 1)
    assert part == ">= bs + 1"
    assert [str(part.mark_at(i)) for i in (0, 3, 8)] == ["a.yaml:2:9", "a.yaml:3:3", "a.yaml:3:8"]
    assert str(part.part(2, len(part)).mark_at(0)) == "a.yaml:3:3"


def test_places_in_folded_quoted_and_windows_text(copy: Copy) -> None:
    """The same word in each way to write it."""
    old = "out_verify_slot_indices[i]: slot_at(row, position)"
    folded = "out_verify_slot_indices[i]: >-\n        slot_at(row,\n        ¦positn)"
    for new in (folded, folded.replace(">-", "|-"), 'out_verify_slot_indices[i]: "slot_at(row, ¦positn)"'):
        place = copy.replace("kernels/plan_entries.yaml", old, new)
        assert [str(d.mark) for d in copy.findings()] == [place]
        crlf = (copy.root / "kernels/plan_entries.yaml").read_text("utf-8").replace("\n", "\r\n")
        copy.write("kernels/plan_entries.yaml", "\ufeff" + crlf)
        assert [str(d.mark) for d in copy.findings()] == [place]
        copy.restore(["kernels/plan_entries.yaml"])


# --- formats ----------------------------------------------------------------------------------------------------------

FINDING = Diagnostic(Mark("spec/a,b:c.yaml", 3, 14), "KVG-012", "100% 'x'")


def test_a_finding_in_every_format() -> None:
    assert FINDING.text() == "spec/a,b:c.yaml:3:14: KVG-012 100% 'x'"
    assert FINDING.github() == "::error file=spec/a%2Cb%3Ac.yaml,line=3,col=14,title=KVG-012::100%25 'x'"
    assert json.loads(json.dumps(FINDING.as_dict())) == {
        "file": "spec/a,b:c.yaml",
        "line": 3,
        "column": 14,
        "rule": "KVG-012",
        "message": "100% 'x'",
    }


def test_an_error_carries_sorted_findings_once() -> None:
    first, last = Diagnostic(Mark("a", 2, 1), "KVG-012", "y"), Diagnostic(Mark("a", 10, 1), "KVG-010", "x")
    error = SpecError([last, first, last])
    assert error.diagnostics == [first, last]
    assert str(error) == "a:2:1: KVG-012 y\na:10:1: KVG-010 x"


def test_messages_are_one_line_of_bounded_length() -> None:
    out = Diagnostics(limit=2)
    out.add(FINDING.mark, "KVG-012", "a\n  b\tc " + "x" * 1000)
    assert out.found[0].message.startswith("a b c xxx")
    assert len(out.found[0].message) == 400
    with pytest.raises(SpecError) as caught:
        out.add(FINDING.mark, "KVG-012", "the limit")
    assert len(caught.value.diagnostics) == 2
    Diagnostics().raise_if_any()


@pytest.mark.parametrize(
    ("word", "known", "expected"),
    [
        ("prefix_len", ["prefix_lens", "position"], " (did you mean 'prefix_lens'?)"),
        ("BS", ["bs", "bases"], " (did you mean 'bs'?)"),
        ("zebra", ["prefix_lens"], ""),
        ("x" * 5000, ["x" * 5001], ""),
        ("a", [], ""),
    ],
)
def test_suggestions(word: str, known: list[str], expected: str) -> None:
    assert suggest(word, known) == expected


def test_file_places_of_the_real_spec() -> None:
    """The helper of these tests, by a place that a person counted."""
    assert file_place("kvcanary.yaml", "spec:\n  ¦version") == "spec/kvcanary.yaml:4:3"
