"""Records, their lines, and what is said of them in prose."""

from __future__ import annotations

import importlib
import pickle
import re
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import kvcanary
from kvcanary import CanaryLaunchTag, FailReason
from kvcanary.runtime import (
    FIELDS,
    REASONS,
    CanaryViolationError,
    Summary,
    Tally,
    ViolationRecord,
    describe,
    format_line,
    parse_violation,
)
from kvcanary.violations import Violation, decode_violations
from tests.maintainer.workshop import Workshop

from .records import ROW, record, records

LINE = (
    "kv-canary violation step=12 time=1796060000.25 forward=target pool=main kind=TAIL_K_FULL stage=TAIL half=K "
    "group=FULL slot=17 position=4 request_id=req-1 request_row=3 reasons=VERIFY_TOKEN_MISMATCH stored_token=99 "
    "expected_token=100 stored_chain_hash=0x8000000000000000 expected_aux=0x0000000000000005"
)

# --- records ----------------------------------------------------------------------------------------------------------


def test_a_row_of_the_ring_becomes_a_record() -> None:
    ring = torch.full((3, kvcanary.VIOLATION_NUM_FIELDS), -1, dtype=torch.int64)
    bits = int(FailReason.VERIFY_CHAIN_HASH_MISMATCH | FailReason.VERIFY_POSITION_MISMATCH) | 1 << 40
    ring[0] = torch.tensor([int(CanaryLaunchTag.SWEEP_V_SWA), 7, 5, 11, -1, -2, -3, bits])
    [row] = decode_violations(ring, 1)
    found = ViolationRecord.from_row(row, step=9, time=1.5, forward="draft", pool="p", request_id=None, request_row=0)
    assert (found.kind, found.stage, found.half, found.group) == ("SWEEP_V_SWA", "SWEEP", "V", "SWA")
    assert (found.slot, found.position, found.stored_token, found.expected_token) == (7, 5, 11, -1)
    assert (found.stored_chain_hash, found.expected_aux) == (2**64 - 2, 2**64 - 3)
    assert found.reasons == ("VERIFY_CHAIN_HASH_MISMATCH", "VERIFY_POSITION_MISMATCH", "bit 40")
    assert (found.step, found.forward, found.request_id, found.request_row) == (9, "draft", None, 0)


def test_a_damaged_row_is_a_record_too() -> None:
    row = ROW._replace(kernel_kind=-7, fail_reason_bits=-(1 << 63))
    found = ViolationRecord.from_row(row, step=0, time=0.0, forward="", pool="")
    assert (found.kind, found.stage, found.half, found.group) == ("-7", "?", "?", "?")
    assert found.reasons == ("bit 63",)
    assert parse_violation(format_line(found)) == found


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"step": True}, "ViolationRecord.step must be an int of 64 bits, got True (bool)"),
        ({"slot": 1 << 63}, "ViolationRecord.slot must be an int of 64 bits, got 9223372036854775808 (int)"),
        ({"slot": CanaryLaunchTag.HEAD_K_FULL}, "ViolationRecord.slot must be an int of 64 bits"),
        ({"time": 12}, "ViolationRecord.time must be a finite float, got 12 (int)"),
        ({"time": float("nan")}, "ViolationRecord.time must be a finite float, got nan (float)"),
        ({"pool": None}, "ViolationRecord.pool must be a str, got None (NoneType)"),
        ({"reasons": ["A"]}, "ViolationRecord.reasons must be a tuple of names without commas, got ['A'] (list)"),
        ({"reasons": ("A,B",)}, "ViolationRecord.reasons must be a tuple of names without commas"),
        ({"stored_chain_hash": -1}, "ViolationRecord.stored_chain_hash must be an int from 0 to 2**64 - 1, got -1"),
        ({"request_row": torch.tensor(3)}, "ViolationRecord.request_row must be an int of 64 bits, got tensor(3)"),
    ],
)
def test_a_field_of_another_type_is_refused(changes: dict[str, object], text: str) -> None:
    with pytest.raises(kvcanary.CanaryValueError) as raised:
        record(**changes)
    assert raised.value.id == "KVC-080"
    assert str(raised.value).startswith(f"kv-canary: {text}")


# --- lines ------------------------------------------------------------------------------------------------------------


def test_the_line_is_stable() -> None:
    assert format_line(record()) == LINE
    odd = format_line(record(request_id='a "b"\n=é\U0001f600\\', request_row=None, pool="-", reasons=()))
    assert r' pool="-" ' in odd and " request_row=- " in odd and ' reasons="" ' in odd
    assert r' request_id="a \"b\"\n=\u00e9\U0001f600\\" ' in odd


@given(records())
@example(record(request_id="-"))
@example(record(request_id=""))
@example(record(request_id="\ud83d\ude00 \udc00"))
@example(record(request_id=" x=1 slot=2 "))
@example(record(time=-0.0))
@example(record(time=5e-324))
def test_every_record_comes_back_from_its_line(given: ViolationRecord) -> None:
    line = format_line(given)
    assert line.isascii() and line.isprintable()
    found = parse_violation(line)
    assert found == given and repr(found) == repr(given)
    assert parse_violation(line + "\n") == parse_violation(line + "\r\n") == given


# `¦` stands where the error must point.
BAD_LINES = [
    ("¦", "expected 'kv-canary violation ', got ''"),
    ("¦step=1", "expected 'kv-canary violation ', got 'step=1'"),
    ("¦ " + LINE, "expected 'kv-canary violation '"),
    (LINE + " ¦", "expected key=value, got ''"),
    (LINE.replace(" step", " ¦ step"), "expected key=value, got ' step=12"),
    (LINE.replace("slot=17", "slot=¦x"), "slot must be a whole number, got 'x'"),
    (LINE.replace("slot=17", "slot=¦-"), "slot must be a whole number, got '-'"),
    (LINE.replace("slot=17", "¦slot"), "expected key=value, got 'slot position=4"),
    (LINE.replace("slot=17", "¦slots=17"), "unknown key 'slots'"),
    (LINE.replace("slot=17 ", "") + "¦", "the line ends without slot"),
    (LINE[: LINE.index(" stored_token")] + "¦", "the line ends without stored_token, expected_token, stored_chain"),
    (LINE + " ¦slot=17", "repeated key 'slot'"),
    (LINE.replace("aux=", "aux=¦")[:-1], "expected_aux must be 0x and 16 hexadecimal digits, got '0x000000000000000'"),
    (LINE.replace("0x8", "¦0xg"), "stored_chain_hash must be 0x and 16 hexadecimal digits"),
    (LINE.replace("time=1796060000.25", "time=¦nan"), "time must be a number of seconds, got 'nan'"),
    (LINE.replace("pool=main", "pool=¦-"), "pool cannot be unknown"),
    (LINE.replace("pool=main", '¦pool="main'), "expected key=value, got 'pool=\"main kind"),
    (LINE.replace("=main", r'="ma¦\in"'), r"'\\i' is no escape"),
    (LINE.replace("=main", r'="¦\uD8"'), r"'\\u' is no escape"),
    (LINE.replace("=main", r'="¦\Uffffffff"'), r"'\\Uffffffff' is no escape"),
    (
        LINE.replace("step", "¦step", 1).replace("slot=17", f"slot={1 << 63}"),
        "ViolationRecord.slot must be an int of 64",
    ),
]


@pytest.mark.parametrize(("line", "problem"), BAD_LINES)
def test_other_lines_are_refused_with_the_place(line: str, problem: str) -> None:
    with pytest.raises(kvcanary.CanaryValueError) as raised:
        parse_violation(line.replace("¦", ""))
    assert raised.value.id == "KVC-081"
    prefix = f"kv-canary: not a violation line, at column {line.index('¦') + 1}: "
    assert str(raised.value).startswith(prefix), str(raised.value)
    assert problem in str(raised.value)


@given(records(), st.data())
def test_damage_is_refused_or_reads_as_another_record(given: ViolationRecord, data: st.DataObject) -> None:
    line = format_line(given)
    cut = data.draw(st.integers(0, len(line) - 1))
    patch = data.draw(st.text(max_size=3))
    damaged = line[:cut] + patch + line[cut + 1 :]
    found, problem = _outcome(damaged)
    if found is not None:
        assert parse_violation(format_line(found)) == found
    else:
        place = re.search(r"^kv-canary: not a violation line, at column (\d+): .", problem)
        assert place is not None and 1 <= int(place[1]) <= len(damaged) + 2


def _outcome(line: str) -> tuple[ViolationRecord | None, str]:
    """The record, or why there is none."""
    try:
        return parse_violation(line), ""
    except kvcanary.CanaryValueError as error:
        return None, str(error)


# --- prose, exception, summary ----------------------------------------------------------------------------------------


def test_prose_says_what_is_stored_and_why_it_matters() -> None:
    text = describe(record(request_id="evil\nid", reasons=("VERIFY_TOKEN_MISMATCH", "bit 40")))
    assert "0x8000000000000000" in text and "0x0000000000000005" in text
    assert REASONS["VERIFY_TOKEN_MISMATCH"].doc in text
    assert " ".join(REASONS["VERIFY_TOKEN_MISMATCH"].cause.split()) in " ".join(text.split())
    assert r"'evil\nid', row 3 of the batch" in text and "bit 40: Not a reason of this spec." in text


def test_prose_shows_positions_as_numbers_and_unknown_tokens_as_unknown() -> None:
    written = record(reasons=("WRITE_POSITION_MISMATCH",), expected_aux=2**64 - 1, expected_token=-1)
    found = {line.split("  ")[1]: line.split() for line in describe(written).splitlines() if line.startswith("  e")}
    assert found["expected aux"][2] == "-1" and found["expected token"][2] == "unknown"
    mixed = record(reasons=("WRITE_POSITION_MISMATCH", "WRITE_SLOT_COLLISION"))
    assert "0x0000000000000005" in describe(mixed)


def test_the_spec_explains_every_reason() -> None:
    assert list(REASONS) == [reason.name for reason in FailReason]
    assert all(reason.doc and reason.cause for reason in REASONS.values())
    assert {name for name, reason in REASONS.items() if reason.real_bytes} == {"VERIFY_REAL_KV_HASH_MISMATCH"}
    assert {name for name, reason in REASONS.items() if reason.writing} == {n for n in REASONS if n.startswith("WRITE")}


def test_the_exception_carries_the_records() -> None:
    error = CanaryViolationError([record(), record(slot=18), record(slot=19)])
    assert (error.id, len(error.records)) == ("KVC-084", 3)
    assert str(error) == (
        "kv-canary: VERIFY_TOKEN_MISMATCH at slot 17 of pool 'main', position 4 of request 'req-1', step 12 "
        "(TAIL_K_FULL) (and 2 more)"
    )
    assert "report" in error.fix
    assert isinstance(error, RuntimeError) and isinstance(error, kvcanary.CanaryError)
    again = pickle.loads(pickle.dumps(error))
    assert again.records == error.records and str(again) == str(error)
    assert error.describe(most=1).endswith("… and 2 more")
    assert "more" not in str(CanaryViolationError([record()]))
    with pytest.raises(kvcanary.CanaryValueError) as raised:
        CanaryViolationError([])
    assert raised.value.id == "KVC-085"


def test_a_summary_counts() -> None:
    summary = Summary.of(
        [record(), record(step=11, slot=18, stage="HEAD"), record(request_id=None, reasons=("A", "B"))]
    )
    assert (summary.count, summary.first_step, summary.last_step) == (3, 11, 12)
    summary.note_dropped(5)
    assert str(summary).splitlines() == [
        "kv-canary: 3 violations in steps 11 to 12, and 5 rows more that a full ring dropped",
        "  reasons   VERIFY_TOKEN_MISMATCH ×2, A ×1, B ×1",
        "  stages    TAIL ×2, HEAD ×1",
        "  slots     17 ×2, 18 ×1",
        "  requests  'req-1' ×2, unknown ×1",
    ]
    assert Summary().lines() == ["kv-canary: no violations"]
    many = Summary.of(record(slot=slot, pool=f"p{slot % 2}") for slot in range(9))
    assert "'p0':0 ×1, 'p1':1 ×1, 'p0':2 ×1, 'p1':3 ×1, 'p0':4 ×1 and 4 more" in str(many)


def test_a_tally_is_bounded() -> None:
    tally: Tally[int] = Tally(limit=3)
    for key in [1, 2, 3, 4, 5, 1]:
        tally.add(key)
    assert tally.most_common() == [(1, 2), (2, 1), (3, 1)] and tally.others == 2


# --- the spec alone decides -------------------------------------------------------------------------------------------


def test_a_field_more_in_the_row_is_carried_through(tmp_path: Path) -> None:
    """The row's owner, and a field whose name the record has already; a half of the cache more; another prefix."""
    workshop = Workshop(tmp_path)
    workshop.replace('message_prefix: "kv-canary: "', 'message_prefix: "cache canary: "')
    workshop.add_after(
        'expected_aux: {type: uint64, doc: "Link that should be there in verify; expected position in write."}',
        "owner: {type: uint64, doc: Who owns the slot.}",
        "step: {type: int64, doc: Step of the writer.}",
    )
    for path in workshop.files():
        path.write_text(
            re.sub(r"^( +)expected_aux: ([^{\n]+)$", r"\g<0>\n\1owner: 3\n\1step: 4", path.read_text(), flags=re.M)
        )
    workshop.add_after("V: {doc: Values.}", "INDEX: {doc: Keys of an indexer.}")
    numbers = [f"- {stage}_INDEX_{group}" for group in ("FULL", "SWA") for stage in ("HEAD", "TAIL", "SWEEP")]
    workshop.add_after("- SWEEP_V_SWA", *numbers)
    built = workshop.build()
    runtime, rows = (importlib.import_module(f"{built.module.__name__}.{name}") for name in ("runtime", "violations"))
    row = rows.Violation(int(built.CanaryLaunchTag.TAIL_INDEX_SWA), 1, 2, 3, 4, 5, 6, 1 << 63, -9, 1)
    found = runtime.ViolationRecord.from_row(row, step=7, time=0.5, forward="f", pool="p")
    assert (found.half, found.owner, found.row_step, found.step) == ("INDEX", 1 << 63, -9, 7)
    line = runtime.format_line(found)
    assert line.startswith("cache canary violation step=7 ")
    assert line.endswith(" expected_aux=0x0000000000000006 owner=0x8000000000000000 row_step=-9")
    assert runtime.parse_violation(line) == found
    assert "Who owns the slot." in runtime.describe(found)
    assert str(runtime.Summary.of([found])).startswith("cache canary: 1 violation in step 7\n")


def test_fields_are_those_of_the_record() -> None:
    assert [field.name for field in FIELDS] == list(ViolationRecord.__dataclass_fields__)
    assert Violation._fields[0] == "kernel_kind"
