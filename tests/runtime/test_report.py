"""The page about a journal: complete, self-contained, and harmless whatever requests call themselves."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvcanary
from kvcanary import CanaryLaunchTag, FailReason
from kvcanary.__main__ import COMMANDS, main
from kvcanary.runtime import FIELDS, REASONS, Journal, ViolationRecord, format_line, journal, parse_violation
from kvcanary.runtime.report import build_page, collect, heat, svg, tables

from .pages import Page, assert_readable, page_of, words
from .records import record, records, tagged

CHAIN, BYTES = "VERIFY_CHAIN_HASH_MISMATCH", "VERIFY_REAL_KV_HASH_MISMATCH"

# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_tells_all() -> None:
    given = [tagged(CanaryLaunchTag.TAIL_K_FULL, step=s, slot=40 + s % 3, request_id=f"req-{s % 4}") for s in range(30)]
    given += [tagged(CanaryLaunchTag.SWEEP_V_SWA, step=29, slot=7, reasons=(BYTES,), request_id=None)]
    page = page_of(given, first=5)
    text = words(page)
    for part in ("31 violations", "It begins in step 0", "req-3", "unknown", "26 violations more in the file", "SWEEP"):
        assert part in text, part
    for name in (BYTES, "VERIFY_TOKEN_MISMATCH"):
        assert REASONS[name].doc in text and REASONS[name].cause in text
    assert "0x8000000000000000" in text and "main" in text


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_rows(count: int) -> None:
    text = words(page_of([record()] * count))
    assert {0: "Nothing was reported.", 1: "1 violation", 2: "2 violations"}[count] in text
    assert "1 violations" not in text and "1 steps" not in text and "1 slots" not in text


def test_the_page_is_the_same_for_the_same_rows() -> None:
    given = [record(step=s, request_id=f"r{s % 7}", slot=s % 11) for s in range(100)]
    assert build_page(collect(given, 5), "x") == build_page(collect(given, 5), "x")


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style></svg><h1>x",
    "&lt;b&gt;&amp;",
    "\u202egnirts\u202c",
    "\ud800",
    "a\x00b\n\r\t\x1b[31m",
    "x" * 100_000,
    "",
]


def test_names_from_outside_are_only_text() -> None:
    given = [
        record(request_id=name, pool=name, forward=name, kind=name, stage=name, half=name, reasons=(name or "none",))
        for name in HOSTILE
        if "," not in name
    ]
    page = page_of(given)
    text = words(page)
    assert "<script>alert(1)</script>" in text and '"><img src=x onerror=alert(1)>' in text
    assert "&lt;b&gt;&amp;" in text and r"\u202egnirts\u202c" in text and r"\ud800" in text
    assert max(map(len, page.text)) < 2000


@settings(max_examples=40)
@given(st.lists(records(), max_size=6), st.integers(0, 3))
def test_any_records_make_a_sound_page(given: list[ViolationRecord], first: int) -> None:
    page = page_of(given, first)
    for rect in page.rects:
        assert all(float(rect[name]) >= 0 for name in ("x", "y", "width", "height"))
        assert float(rect["x"]) + float(rect["width"]) <= 961
    assert_readable(page)


# --- charts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps",
    [[5], [5, 6], [0, 119], [0, 120], [0, 10**6], [-(1 << 63), (1 << 63) - 1], [1 << 62, (1 << 62) + 3], [-7, 0, 7]],
)
def test_ticks_fit_whatever_the_steps(steps: list[int]) -> None:
    page = page_of(record(step=step, slot=step, time=0.0) for step in steps)
    assert_readable(page)
    bars = [rect for rect in page.rects if rect["class"].startswith("c")]
    assert 1 <= len(bars) <= len(steps)


@given(st.integers(-(10**6), 10**6), st.integers(0, 10**9), st.integers(2, 150))
def test_bins_cover_their_range(first: int, span: int, most: int) -> None:
    bins = svg.Bins.over(first, first + span, most)
    assert bins.count <= most
    assert bins.first <= first and first + span < bins.first + bins.width * bins.count
    assert bins.first + bins.width > first, "an empty first bin"


@given(st.integers(-(10**6), 10**6), st.integers(0, 10**9), st.integers(1, 20))
def test_ticks_are_few_and_inside(low: int, span: int, most: int) -> None:
    found = svg.ticks(low, low + span, most)
    assert 1 <= len(found) <= most and found == sorted(set(found))
    assert low <= found[0] and found[-1] <= low + span


def test_forty_reasons_share_the_last_colour() -> None:
    given = [record(step=s, reasons=(f"bit {s % 40}",)) for s in range(200)]
    page = page_of(given)
    styles = {rect["class"] for rect in page.rects if rect["class"].startswith("c")}
    assert styles == {f"c{n}" for n in range(svg.COLOURS - 1)} | {"cx"}
    assert "31 other reasons 155" in words(page)


def test_bars_add_up() -> None:
    given = [record(step=s % 3, reasons=(CHAIN, BYTES) if s % 2 else (CHAIN,)) for s in range(30)]
    text = build_page(collect(given, 0), "x")
    found = re.findall(r"step (\d): (\d+) × (\w+)<", text)
    assert sorted(found) == sorted((str(s), n, name) for s in range(3) for n, name in [("10", CHAIN), ("5", BYTES)])


def test_cells_of_the_heat_strip_add_up() -> None:
    rng = random.Random(1)
    given = [record(step=rng.randrange(400), slot=rng.randrange(3000), pool=rng.choice("ab")) for _ in range(2000)]
    text = heat.heat_strips(collect(given, 0))
    counts = [int(count.replace(",", "")) for count in re.findall(r": ([\d,]+) violations?</title>", text)]
    assert sum(counts) == 2000
    assert text.count('class="track"') <= 64


@given(st.integers(1, 10**6), st.data())
def test_darkness_grows_with_the_count(most: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, most))
    assert 1 <= heat.level(count, most) <= heat.level(most, most) == heat.LEVELS
    assert heat.level(max(1, count // 2), most) <= heat.level(count, most)


def test_the_table_by_endpoint_adds_up() -> None:
    given = [tagged(tag, step=step) for step, tag in enumerate(CanaryLaunchTag) for _ in range(step + 1)]
    text = tables.by_place(collect(given, 0))
    totals = [int(found) for found in re.findall(r"<b>(\d+)</b>", text)]
    assert sum(totals) == len(given) == 78 and len(totals) == 4


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "a.jsonl"
    with Journal(found) as opened:
        opened.append(*[record(step=step) for step in range(9)])
    return found


def test_the_command_writes_beside_the_journal(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(path)]) == 0
    page = path.with_suffix(".html")
    assert capsys.readouterr().out == f"{page}: 9 violations\n"
    Page(page.read_text("utf-8"))
    assert main(["report", str(path), "-o", str(path.parent / "b.html"), "--rows", "0"]) == 0
    assert "9 violations more in the file" in (path.parent / "b.html").read_text("utf-8")


def test_lines_that_are_left_out_are_told_of(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with path.open("a") as file:
        file.write("rubbish\n{}\n" + '{"step":')
    assert main(["report", str(path)]) == 0
    assert "3 lines left out; the first is line 10: no JSON" in capsys.readouterr().out
    text = words(Page(path.with_suffix(".html").read_text("utf-8")))
    assert "3 lines left out." in text and "line 12: the last line was cut short" in text


def test_an_empty_journal_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").touch()
    assert main(["report", str(tmp_path / "a.jsonl")]) == 0
    assert capsys.readouterr().out.endswith("a.html: no violations\n")
    assert "Nothing was reported." in (tmp_path / "a.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("none.jsonl", [], "none.jsonl: No such file or directory"),
        ("", [], "Is a directory"),
        ("a.jsonl", ["-o", "no/such/page.html"], "page.html: No such file or directory"),
        ("a.jsonl", ["-o", "a.jsonl"], "a.jsonl: the page would replace the journal that it is about"),
        ("text.txt", [], "text.txt: it has no violation; line 1: no JSON"),
    ],
)
def test_wrong_files_are_refused_and_nothing_is_written(
    path: Path, capsys: pytest.CaptureFixture[str], name: str, arguments: list[str], problem: str
) -> None:
    (path.parent / "text.txt").write_text("hello\nworld\n")
    before = {file: file.read_bytes() for file in path.parent.iterdir()}
    given = [str(path.parent / text) if "." in text else text for text in arguments]
    assert main(["report", str(path.parent / name), *given]) == 2
    said = capsys.readouterr().err
    assert problem in said and "(KVC-083)" in said
    assert {file: file.read_bytes() for file in path.parent.iterdir()} == before


@pytest.mark.parametrize("arguments", [[], ["reprot"], ["report"], ["report", "x", "--rows", "-1"]])
def test_wrong_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    assert "usage: python -m kvcanary" in capsys.readouterr().err


def test_many_rows_are_aggregated() -> None:
    """The page does not grow with the rows."""
    rng = random.Random(2)
    bits = [reason.name for reason in FailReason]
    sizes = []
    for count in (6000, 12000):
        given = (
            record(
                step=n, slot=rng.randrange(10**6), request_id=f"r{rng.randrange(count)}", reasons=(rng.choice(bits),)
            )
            for n in range(count)
        )
        sizes.append(len(build_page(collect(given, 50), "x")))
    assert sizes[1] < 1.2 * sizes[0] < 10**6


def test_the_reference_page_shows_what_is_written() -> None:
    page = (Path(kvcanary.__file__).parents[1] / "docs" / "violations.md").read_text("utf-8")
    [line] = re.findall(r"^kv-canary violation .*$", page, re.M)
    [data] = re.findall(r'^\{"step".*$', page, re.M)
    shown = parse_violation(line)
    assert format_line(shown) == line
    assert journal.to_json(shown) == data and journal.from_json(data) == shown
    for field in FIELDS:
        assert f"\n| `{field.name}` |" in page
    assert "report" in COMMANDS and "python -m kvcanary report" in page
