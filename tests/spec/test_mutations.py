"""Whatever the files hold: a program, or findings with places, soon and without a traceback."""

from __future__ import annotations

import os
import random
import re
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml

from kvcanary_gen import load, source
from kvcanary_gen.diagnostics import Diagnostic, SpecError
from kvcanary_gen.ir import Program
from kvcanary_gen.located import LocatedStr
from kvcanary_gen.resolve import resolve_document
from kvcanary_gen.rules import RULES

from .copies import FILES, Copy, unchanged_files_read_once
from .mutations import expressions, files, garbled, line_deletions, random_edits

# Loading takes a fiftieth of a second; the rest is for a loaded machine.
SECONDS = 2.0
SEED = 20_250_807

Mutations = Iterable[tuple[str, str | bytes]]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    """A copy whose unchanged files are read once; that is half of the work."""
    copy = Copy.make(tmp_path_factory.mktemp("mutations"))
    with unchanged_files_read_once():
        yield copy


def check(copy: Copy, what: str) -> Program | list[Diagnostic]:
    """Loads the spec and checks what comes out."""
    start = time.process_time()
    found: Program | list[Diagnostic]
    try:
        document = load.load_document(copy.root)
        found = resolve_document(document)
    except SpecError as error:
        found = error.diagnostics
    assert time.process_time() - start < SECONDS, f"{what}: slow"
    if isinstance(found, Program):
        # Nothing that is declared was left out without a word.
        for section in ("structs", "functions", "operations"):
            assert set(getattr(found, section)) == set(document.names(section)), what
        assert set(found.kernels) == {*document.names("kernels"), *document.names("fusions")}, what
        return found
    assert found, what
    for diagnostic in found:
        _check_finding(copy, diagnostic, what)
    assert found == sorted(set(found))
    return found


def _check_finding(copy: Copy, found: Diagnostic, what: str) -> None:
    place = f"{what}: {found.text()}"
    assert re.fullmatch(r"spec/\S+:\d+:\d+: KVG-\d{3} \S[^\n]*", found.text()), place
    assert found.rule in RULES, place
    assert len(found.message) <= 400 and found.message.isprintable(), place
    path = copy.root.parent / found.mark.file
    if not path.is_file():
        assert (found.mark.line, found.mark.column) == (1, 1), place
        return
    text = path.read_bytes().decode("utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    assert 1 <= found.mark.line <= len(lines), place
    assert 1 <= found.mark.column <= len(lines[found.mark.line - 1]) + 1, place


def check_all(copy: Copy, mutations: Mutations) -> dict[str, int]:
    """How many mutations were refused, and how many are harmless."""
    count = {"refused": 0, "harmless": 0}
    for number, (file, text) in enumerate(mutations):
        if text == FILES.get(file):
            continue
        copy.write(file, text)
        try:
            found = check(copy, f"{number} of {file}:\n{_difference(file, text)}")
        finally:
            copy.restore([file])
        count["harmless" if isinstance(found, Program) else "refused"] += 1
    return count


def _difference(file: str, text: str | bytes) -> str:
    if isinstance(text, bytes):
        return repr(text[:100])
    old = FILES.get(file, "").splitlines()
    return "\n".join(line[:200] for line in text.splitlines() if line not in old)[:1000]


# --- edits of the real spec -------------------------------------------------------------------------------------------


def test_lines_left_out(copy: Copy) -> None:
    count = check_all(copy, line_deletions(step=4))
    assert count["refused"] > 150, count


@pytest.mark.parametrize("part", range(4))
def test_random_edits(copy: Copy, part: int) -> None:
    count = check_all(copy, random_edits(random.Random(SEED + part), 100))
    assert count["refused"] > 50, count


def test_odd_expressions(copy: Copy) -> None:
    count = check_all(copy, expressions(random.Random(SEED), 2))
    assert count["refused"] > 150, count


def test_garbled_expressions(copy: Copy) -> None:
    count = check_all(copy, garbled(random.Random(SEED), 120))
    assert count["refused"] > 90, count


def test_two_edits_at_once(copy: Copy) -> None:
    """Findings of one file don't depend on errors of another, unless this one cannot be read."""
    rng = random.Random(SEED)
    edits = list(random_edits(rng, 80))
    for (first, text), (second, other) in zip(edits[::2], edits[1::2], strict=True):
        copy.write(first, text)
        copy.write(second, other)
        check(copy, f"{_difference(first, text)}\n{_difference(second, other)}")
        copy.restore([first, second])


# --- one mistake, one finding -----------------------------------------------------------------------------------------

KEYWORDS = frozenset({"if", "else", "and", "or", "not", "is", "None", "True", "False", "offsets", "of", "up", "to"})


def expression_texts() -> Iterator[LocatedStr]:
    """Every expression of the real spec."""
    document = load.load_document(Path(__file__).resolve().parents[2] / "spec")
    texts: list[object] = [argument.values for argument in document.section("arguments").values()]
    for function in document.section("functions").values():
        texts += [function.value, *function.let.values()]
    for kernel in document.section("kernels").values():
        domain = kernel.domain
        texts += [domain.count, domain.limit, domain.when, *kernel.let.values(), *kernel.store.values()]
        texts += [*kernel.store, *kernel.finally_, *kernel.finally_.values(), *(o.sum for o in kernel.offsets.values())]
    texts += [invariant.rule for invariant in document.section("invariants").values()]
    return (text for text in texts if isinstance(text, LocatedStr))


def test_every_misspelt_name_is_one_finding_on_its_character(copy: Copy) -> None:
    """Each name of each expression in turn: nothing else is reported, and the place is exact."""
    tried = 0
    for text in expression_texts():
        for word in re.finditer(r"(?<![\w.])[A-Za-z_]\w*(?:\.\w+)?", text):
            if word.group() in KEYWORDS:
                continue
            mark = text.mark_at(word.start())
            file = mark.file.removeprefix("spec/")
            lines = FILES[file].split("\n")
            line = lines[mark.line - 1]
            end = mark.column - 1 + len(word.group())
            assert line[mark.column - 1 : end] == word.group()
            lines[mark.line - 1] = f"{line[:end]}zq{line[end:]}"
            copy.write(file, "\n".join(lines))
            found = check(copy, word.group())
            copy.restore([file])
            assert isinstance(found, list)
            assert [(d.mark, d.rule) for d in found] == [(mark, "KVG-012")], [d.text() for d in found]
            owner, _, name = word.group().rpartition(".")
            shown = (f"'{word.group()}zq'", f"'{owner}' has no field '{name}zq'")
            assert any(text in found[0].message for text in shown)
            tried += 1
    assert tried >= 140


# --- files ------------------------------------------------------------------------------------------------------------

ODD_FILES = list(files())


@pytest.fixture(scope="module", params=["libyaml", "Python"])
def loader(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both of PyYAML's parsers; a source build of PyYAML may lack libyaml."""
    before = source._LOADER
    source._LOADER = {"libyaml": before, "Python": yaml.SafeLoader}[request.param]
    yield request.param
    source._LOADER = before


@pytest.mark.parametrize(("name", "file", "text"), ODD_FILES, ids=[name for name, _, _ in ODD_FILES])
def test_odd_files(copy: Copy, loader: str, name: str, file: str, text: str | bytes) -> None:
    if file not in FILES:
        copy.write("kvcanary.yaml", FILES["kvcanary.yaml"] + f"  - {file}\n")
    copy.write(file, text)
    try:
        found = check(copy, name)
    finally:
        copy.restore({"kvcanary.yaml", file})
    assert isinstance(found, Program) == (name in HARMLESS), name


HARMLESS = {
    "document markers",
    "byte-order mark",
    "Windows lines",
    "old Mac lines",
    "no last newline",
    "many constants",
    "many lets",
}
HARMLESS |= {"a long chain of functions", "a directive"}


@pytest.mark.parametrize("file", ["kvcanary.yaml", "functions.yaml", "kernels/plan_offsets.yaml"])
@pytest.mark.parametrize(
    "what", ["missing", "folder", "link to itself", "circle of links", "link to nothing", "pipe", "closed"]
)
def test_what_is_no_file(tmp_path: Path, file: str, what: str) -> None:
    copy = Copy.make(tmp_path)
    path = copy.root / file
    if what == "closed":
        path.chmod(0)
        if os.access(path, os.R_OK):
            pytest.skip("this user reads everything")
    else:
        path.unlink()
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "link to itself":
        path.symlink_to(path)
    elif what == "circle of links":
        path.symlink_to(path.with_name("other.yaml"))
        path.with_name("other.yaml").symlink_to(path)
    elif what == "link to nothing":
        path.symlink_to("nothing.yaml")
    found = check(copy, what)
    assert isinstance(found, list)
    if "kernels" not in file:
        assert [d.rule for d in found] == ["KVG-006" if file != "kvcanary.yaml" else "KVG-001"]


@pytest.mark.parametrize("root", [".", "nowhere", "kvcanary.yaml", "a\0b", "x" * 300])
def test_folders_that_hold_no_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kvcanary.yaml").mkdir()
    found = Copy(Path(root)).load()
    assert isinstance(found, list)
    assert [(d.mark.line, d.mark.column, d.rule) for d in found] == [(1, 1, "KVG-001")]


def test_the_folder_has_its_own_name_whatever_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = Copy.make(tmp_path)
    place = copy.replace("functions.yaml", "value: translate(", "value: ¦translat(")
    for folder, root in (
        (tmp_path, "spec"),
        (copy.root, "."),
        (copy.root / "kernels", ".."),
        (tmp_path, "spec/../spec/"),
    ):
        monkeypatch.chdir(folder)
        found = Copy(Path(root)).load()
        assert isinstance(found, list)
        assert [str(d.mark) for d in found] == [place]


def test_files_of_a_linked_folder_are_read(tmp_path: Path) -> None:
    copy = Copy.make(tmp_path)
    (copy.root / "kernels").rename(tmp_path / "elsewhere")
    (copy.root / "kernels").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert isinstance(copy.load(), Program)


# --- the command line -------------------------------------------------------------------------------------------------


def test_lint_never_shows_a_traceback(copy: Copy) -> None:
    typer_testing = pytest.importorskip("typer.testing")
    cli = pytest.importorskip("kvcanary_gen.cli")
    runner = typer_testing.CliRunner()
    odd = {name: (file, text) for name, file, text in ODD_FILES if name.endswith("as root")}
    edits = [
        *odd.values(),
        *list(random_edits(random.Random(SEED), 16)),
        *list(expressions(random.Random(SEED), 1))[:90:6],
    ]
    codes = []
    for number, (file, text) in enumerate(edits):
        copy.write(file, text)
        for output in ("text", "json", "github")[number % 3 :][:1]:
            result = runner.invoke(cli.app, ["lint", "--spec", str(copy.root), "--format", output])
            assert result.exit_code in (0, 1), (file, result.output)
            assert result.exception is None or isinstance(result.exception, SystemExit), (file, text)
            assert "Traceback" not in result.output
            assert "internal error" not in result.output
            codes.append(result.exit_code)
        copy.restore([file])
    assert len(codes) >= 30
    assert codes.count(1) > 20
    assert "Traceback" not in repr(sys.exc_info())
