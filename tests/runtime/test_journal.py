"""The journal: what is appended is read back, whoever wrote it and whatever happened meanwhile."""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given

import kvcanary
from kvcanary.runtime import BadLine, Journal, ViolationRecord, journal, read_journal

from .records import UNICODE, record, records


def read_all(path: Path) -> tuple[list[ViolationRecord], list[BadLine]]:
    bad: list[BadLine] = []
    return list(read_journal(path, bad.append)), bad


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "violations.jsonl"


# --- lines ------------------------------------------------------------------------------------------------------------


@given(records(UNICODE))
def test_every_record_comes_back(given: ViolationRecord) -> None:
    line = journal.to_json(given)
    assert line.isascii() and "\n" not in line
    assert journal.from_json(line) == given


@given(records(UNICODE))
def test_readers_that_know_only_doubles_lose_nothing(given: ViolationRecord) -> None:
    text = journal.to_json(given)
    doubles = json.loads(text, parse_int=lambda digits: int(float(digits)))
    assert doubles == json.loads(text)


def test_a_line_has_every_field_by_name(path: Path) -> None:
    with Journal(path) as opened:
        opened.append(record(slot=1 << 60, request_id='"\n\u2028é'))
    assert path.read_bytes() == (
        b'{"step":12,"time":1796060000.25,"forward":"target","pool":"main","kind":"TAIL_K_FULL","stage":"TAIL",'
        b'"half":"K","group":"FULL","slot":"1152921504606846976","position":4,"request_id":"\\"\\n\\u2028\\u00e9",'
        b'"request_row":3,"reasons":["VERIFY_TOKEN_MISMATCH"],"stored_token":99,"expected_token":100,'
        b'"stored_chain_hash":"0x8000000000000000","expected_aux":"0x0000000000000005"}\n'
    )


# --- writing ----------------------------------------------------------------------------------------------------------


def test_reopening_appends(path: Path) -> None:
    for step in range(3):
        with Journal(path) as opened:
            opened.append(record(step=step), record(step=step + 10))
            opened.append()
            opened.sync()
    assert [found.step for found in read_journal(path)] == [0, 10, 1, 11, 2, 12]


def test_threads_do_not_mix_their_lines(path: Path) -> None:
    opened = Journal(path)

    def work(row: int) -> None:
        for step in range(50):
            opened.append(record(step=step, request_row=row, request_id="x" * (row * 700)), record(step=step, slot=row))

    threads = [threading.Thread(target=work, args=(row,)) for row in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    opened.close()
    found = list(read_journal(path))
    assert len(found) == 800
    for row in range(8):
        assert [f.step for f in found if f.request_id == "x" * (row * 700)] == list(range(50))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_writes_too_even_if_a_thread_held_the_lock(path: Path) -> None:
    opened = Journal(path)
    opened.append(record(step=1))
    with opened._lock:  # as a thread of the parent would at that moment
        child = os.fork()
        if child == 0:
            try:
                opened.append(record(step=2))
                opened.close()
            except BaseException:
                os._exit(1)
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    opened.append(record(step=3))
    assert [found.step for found in read_journal(path)] == [1, 2, 3]


def test_a_closed_journal_says_so(path: Path) -> None:
    opened = Journal(path)
    opened.close()
    opened.close()
    opened.sync()
    with pytest.raises(kvcanary.CanaryValueError) as raised:
        opened.append(record())
    assert (raised.value.id, str(raised.value)) == ("KVC-083", f"kv-canary: cannot use {path}: it was closed")


@pytest.mark.parametrize(("name", "problem"), [("no/such.jsonl", "No such file"), ("", "Is a directory")])
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, name: str, problem: str) -> None:
    place = tmp_path / name
    for attempt in (Journal, lambda p: list(read_journal(p))):
        with pytest.raises(kvcanary.CanaryValueError) as raised:
            attempt(place)
        assert raised.value.id == "KVC-083"
        assert str(raised.value).startswith(f"kv-canary: cannot use {place}: {problem}")


def test_a_failed_write_does_not_spoil_the_next_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk may leave half a line behind."""
    opened, real, room = Journal(path), os.write, [30]

    def write(file: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        count = real(file, data[: room[0]])
        room[0] -= count
        return count

    monkeypatch.setattr(journal.os, "write", write)
    with pytest.raises(OSError, match="No space left"):
        opened.append(record(step=1))
    monkeypatch.undo()
    opened.append(record(step=2))
    found, bad = read_all(path)
    assert [f.step for f in found] == [2] and [line.number for line in bad] == [1]


# --- reading ----------------------------------------------------------------------------------------------------------


def test_a_last_line_that_was_cut_is_warned_of_and_left_out(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = [journal.to_json(record(step=step)) for step in range(3)]
    path.write_text("\n".join(lines)[:-20])
    with caplog.at_level(logging.WARNING, "kvcanary"):
        assert [found.step for found in read_journal(path)] == [0, 1]
    [entry] = caplog.records
    assert f"{path}:3: the last line was cut short: no JSON" in entry.getMessage()
    with Journal(path) as opened:  # the next process goes on in the same file
        opened.append(record(step=7))
    found, bad = read_all(path)
    assert [f.step for f in found] == [0, 1, 7] and [line.number for line in bad] == [3]


def test_a_last_line_without_its_end_counts(path: Path) -> None:
    path.write_text(journal.to_json(record()))
    assert list(read_journal(path)) == [record()]


GOOD = journal.to_json(record())
BAD = [
    ("{", "no JSON: "),
    ("[]", "expected an object, got list"),
    ("7", "expected an object, got int"),
    ("{}", "no step, time, forward"),
    (GOOD.replace('"slot":17', '"slots":17'), "no slot"),
    (GOOD.replace("{", '{"more":1,'), "unknown 'more'"),
    (GOOD.replace('"slot":17', '"slot":"17x"'), "slot must be a whole number, got '17x'"),
    (GOOD.replace('"slot":17', '"slot":17.0'), "ViolationRecord.slot must be an int of 64 bits, got 17.0 (float)"),
    (GOOD.replace('"slot":17', '"slot":null'), "ViolationRecord.slot must be an int of 64 bits, got None"),
    (GOOD.replace("1796060000.25", "NaN"), "ViolationRecord.time must be a finite float, got nan"),
    (GOOD.replace('"0x8000000000000000"', "9223372036854775808"), "stored_chain_hash must be 0x and 16 hexadecimal"),
    (GOOD.replace("0x8000", "0x8_00"), "stored_chain_hash must be 0x and 16 hexadecimal"),
    (GOOD.replace('["VERIFY', '[1,"VERIFY'), "ViolationRecord.reasons must be a tuple of names"),
    ("[" * 100_000, "no JSON: it is nested too deeply"),
    ('"\udc00"', "no UTF-8 at byte 2"),
]


@pytest.mark.parametrize(("line", "problem"), BAD)
def test_a_bad_line_is_named_with_its_number(path: Path, line: str, problem: str) -> None:
    text = f"{GOOD}\n\n{line}\n{GOOD}\n"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    found, bad = read_all(path)
    assert len(found) == 2 and [entry.number for entry in bad] == [3]
    assert problem in bad[0].problem
    with pytest.raises(kvcanary.CanaryValueError) as raised:
        list(read_journal(path))
    assert raised.value.id == "KVC-082"
    assert str(raised.value).startswith(f"kv-canary: {path}, line 3, is no violation: ")


def test_a_line_without_an_end_does_not_fill_the_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_MOST_BYTES", 1000)
    path.write_bytes(b"x" * 5000 + b"\n" + GOOD.encode() + b"\n" + b"y" * 3001)
    found, bad = read_all(path)
    assert len(found) == 1
    assert bad == [(1, "longer than 1000 bytes"), (3, "longer than 1000 bytes")]


def test_an_empty_journal_has_no_records(path: Path) -> None:
    Journal(path).close()
    assert read_all(path) == ([], [])
