"""`kvcanary-gen check`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from kvcanary_gen.commands.common import (
    DEFAULT_OUT,
    DEFAULT_SPEC,
    FAILED,
    Format,
    FormatOption,
    OutOption,
    SpecOption,
    build,
    command_line,
    console,
    github_value,
    local_path,
    plural,
)
from kvcanary_gen.compare import MANIFEST, Comparison, Difference, State, compare

FILE_LINES, ALL_LINES = 24, 96

_MEANING = {
    State.CHANGED: "changed: the spec builds another text by now",
    State.MISSING: "missing: the spec builds it, but it is not there",
    State.ORPHANED: "orphaned: the spec builds no such file",
    State.EDITED: "edited by hand: it is not as it was generated",
}
_STYLES = {State.CHANGED: "yellow", State.MISSING: "green", State.ORPHANED: "red", State.EDITED: "magenta"}


def check(
    spec: SpecOption = DEFAULT_SPEC,
    out: OutOption = DEFAULT_OUT,
    format: FormatOption = Format.text,
    full: Annotated[bool, typer.Option("--full", help="Show every line of every diff.")] = False,
) -> None:
    """Compare the generated folder with what the spec builds; exit with 1 if anything differs."""
    comparison = compare(build(spec, format), out)
    mend = command_line("generate", spec, out)
    if format is Format.json:
        print(json.dumps(_as_json(comparison, out, mend), indent=2, ensure_ascii=False))
    elif format is Format.github:
        for difference in comparison.differences:
            print(_as_github(difference, out, mend))
    elif comparison.equal:
        console().print(f"{local_path(out)}: {plural(comparison.same, 'file')}, all as the spec says.")
    else:
        _print(comparison, out, mend, full)
    if not comparison.equal:
        raise typer.Exit(FAILED)


def _print(comparison: Comparison, out: Path, mend: str, full: bool) -> None:
    screen = console()
    width = max(len(difference.state.value) for difference in comparison.differences)
    for difference in comparison.differences:
        state = difference.state.value.ljust(width)
        screen.print(Text.assemble((state, _STYLES[difference.state]), f"  {local_path(out / difference.path)}"))
    _print_diffs(comparison, out, screen, full)
    count = len(comparison.differences)
    total = comparison.same + count
    verb = "differs" if count == 1 else "differ"
    screen.print(f"\n{count} of {plural(total, 'file')} {verb} from the spec. To mend it, run:\n")
    screen.print(Text(f"    {mend}", style="bold"))


def _print_diffs(comparison: Comparison, out: Path, screen: Console, full: bool) -> None:
    """Diffs of files that are there but differ; `full` also shows those that are missing or orphaned."""
    shown = comparison.differences if full else comparison.of(State.CHANGED, State.EDITED)
    if len(shown) > 1 and not full:
        shown = [difference for difference in shown if difference.path != MANIFEST]  # it follows from the others
    left = ALL_LINES
    hidden = 0
    for difference in shown:
        lines = _local_diff(difference, out)
        limit = len(lines) if full else min(FILE_LINES, left)
        if limit > 0:
            screen.print()
        for line in lines[:limit]:
            screen.print(Text(line, style=_diff_style(line)))
        left -= limit
        hidden += len(lines) - min(limit, len(lines))
    if hidden:
        screen.print(f"\n… {plural(hidden, 'line')} of diff more; --full shows them.")


def _local_diff(difference: Difference, out: Path) -> list[str]:
    """The diff, with its paths as seen from the working directory."""
    head = [line.replace(difference.path, local_path(out / difference.path), 1) for line in difference.diff()[:2]]
    return head + difference.diff()[2:]


def _diff_style(line: str) -> str:
    if line.startswith(("---", "+++")):
        return "bold"
    return {"-": "red", "+": "green", "@": "cyan"}.get(line[:1], "")


def _as_json(comparison: Comparison, out: Path, mend: str) -> dict[str, object]:
    differences = [
        {"file": local_path(out / d.path), "state": d.state.value, "diff": "\n".join(_local_diff(d, out))}
        for d in comparison.differences
    ]
    return {"equal": comparison.equal, "same": comparison.same, "differences": differences, "mend": mend}


def _as_github(difference: Difference, out: Path, mend: str) -> str:
    file = github_value(local_path(out / difference.path), name=True)
    text = github_value(f"{_MEANING[difference.state]}; run {mend}")
    return f"::error file={file},line={_first_line(difference)},title=kvcanary-gen check::{text}"


def _first_line(difference: Difference) -> int:
    """First line on disk that differs."""
    at = 1
    for line in difference.diff()[2:]:
        hunk = re.match(r"@@ -(\d+)", line)
        if hunk:
            at = max(1, int(hunk[1]))
        elif line.startswith(("-", "+")):
            return at
        else:
            at += 1
    return 1
