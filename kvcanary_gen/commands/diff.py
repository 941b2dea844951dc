"""`kvcanary-gen diff`."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from kvcanary_gen.commands.common import (
    DEFAULT_SPEC,
    FAILED,
    Format,
    FormatOption,
    SpecOption,
    console,
    fail,
    github_value,
    load,
    local_file,
    local_path,
    plural,
    spec_root,
)
from kvcanary_gen.diagnostics import SpecError
from kvcanary_gen.diff import Change, changes, needed, read_version
from kvcanary_gen.ir import Program

_SHOWN = 60
_STYLES = {"API": "cyan", "LAYOUT": "magenta", "SEMANTIC": "yellow"}


def diff(
    against: Annotated[str, typer.Option("--against", metavar="REV", help="Revision of git to compare with.")],
    spec: SpecOption = DEFAULT_SPEC,
    format: FormatOption = Format.text,
) -> None:
    """Classify what changed in the spec since a revision; exit with 1 if its version was not raised enough.

    API: names, arguments, messages. LAYOUT: bytes, tags, bits. SEMANTIC: hashes, sentinels, expressions.
    """
    new, document = load(spec, format)
    old = _program_at(against, spec)
    found = changes(old, new)
    least = needed(read_version(old.header.version), found)
    enough = read_version(new.header.version) >= least
    verdict = _verdict(old, new, found, ".".join(map(str, least)), enough)
    if format is Format.json:
        shown: dict[str, object] = {"against": against, "old": old.header.version, "new": new.header.version}
        shown |= {"needed": ".".join(map(str, least)), "enough": enough}
        print(json.dumps({**shown, "changes": list(map(_as_dict, found))}, indent=2, ensure_ascii=False))
    elif format is Format.github:
        mark = document.header_mark
        if not enough:
            file = github_value(local_file(mark.file, spec), name=True)
            print(f"::error file={file},line={mark.line}::{github_value(verdict)}")
    else:
        _print(found, verdict, f"{local_path(spec)} against {against}", console())
    if not enough:
        raise typer.Exit(FAILED)


def _program_at(revision: str, spec: Path) -> Program:
    from kvcanary_gen.diff.revision import RevisionError, extract
    from kvcanary_gen.resolve import load_program

    if not spec.is_dir():
        raise fail(f"{local_path(spec)} is no folder")
    with tempfile.TemporaryDirectory(prefix="kvcanary-diff-") as folder:
        try:
            return load_program(extract(spec_root(spec), revision, Path(folder)))
        except RevisionError as error:
            raise fail(f"--against: {error}") from None
        except SpecError as error:
            first = error.diagnostics[0]
            count = plural(len(error.diagnostics), "error")
            text = f"the spec of '{revision}' has {count} for this generator, first {first.mark}: {first.rule}"
            raise fail(f"--against: {text} {first.message}") from None


def _verdict(old: Program, new: Program, found: list[Change], least: str, enough: bool) -> str:
    before, now = old.header.version, new.header.version
    breaking = sum(change.breaking for change in found)
    count = f"{plural(len(found), 'change')}, {breaking} breaking" if found else "no change that users notice"
    if enough:
        return f"{count}; version {before} → {now} says enough"
    return f"{count}; version {before} → {now} is not enough: {least} or later"


def _print(found: list[Change], verdict: str, title: str, screen: Console) -> None:
    screen.print(Text(f"{title}\n", style="bold"))
    for change in found:
        style = _STYLES[change.kind.value]
        breaks = Text(f"{'breaks' if change.breaking else 'adds':<7}", style="red" if change.breaking else "green")
        screen.print(Text.assemble((f"{change.kind.value:<9}", style), breaks, f"{change.place} {_what(change)}"))
    screen.print(Text(f"{verdict[0].upper()}{verdict[1:]}.", style="bold"))


def _what(change: Change) -> str:
    if change.what != "changed":
        text = change.before or change.after
        return f"{change.what}: {_clipped(text, 0)}" if text else change.what
    place = next(
        (k for k, (a, b) in enumerate(zip(change.before, change.after, strict=False)) if a != b),
        min(len(change.before), len(change.after)),
    )
    return f"changed: {_clipped(change.before, place)} → {_clipped(change.after, place)}"


def _clipped(text: str, place: int) -> str:
    """The text around a place where it is too long to be read whole."""
    if len(text) <= 2 * _SHOWN:
        return text or "nothing"
    low = max(0, place - _SHOWN)
    part = text[low : place + _SHOWN]
    return f"{'…' if low else ''}{part}{'…' if place + _SHOWN < len(text) else ''}"


def _as_dict(change: Change) -> dict[str, object]:
    return {
        "kind": change.kind.value,
        "breaking": change.breaking,
        "place": list(change.path),
        "what": change.what,
        "before": change.before,
        "after": change.after,
    }
