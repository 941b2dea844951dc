"""`kvcanary-gen generate`."""

from __future__ import annotations

import time
from pathlib import Path

import typer
from rich.text import Text

from kvcanary_gen.commands.common import (
    DEFAULT_OUT,
    DEFAULT_SPEC,
    OutOption,
    SpecOption,
    build,
    console,
    local_path,
    plural,
)
from kvcanary_gen.compare import Comparison, State
from kvcanary_gen.write import write_tree

_SIGNS = {
    State.MISSING: ("+", "green"),
    State.CHANGED: ("~", "yellow"),
    State.EDITED: ("~", "yellow"),
    State.ORPHANED: ("-", "red"),
}


def generate(spec: SpecOption = DEFAULT_SPEC, out: OutOption = DEFAULT_OUT) -> None:
    """Write the generated folder from the spec: what changed alone, all of it or nothing."""
    started = time.perf_counter()
    refuse_overlap(spec, out)
    comparison = write_tree(build(spec), out)
    _report(comparison, out, time.perf_counter() - started)


def refuse_overlap(spec: Path, out: Path) -> None:
    """A generated folder holds nothing else, so a spec inside it would be removed."""
    inner, outer = spec.resolve(), out.resolve()
    if inner == outer or outer in inner.parents:
        verb = "is" if inner == outer else "holds"
        raise typer.BadParameter(f"{out} {verb} the spec itself; generated files need a folder of their own")


def _report(comparison: Comparison, out: Path, seconds: float) -> None:
    screen = console()
    for difference in comparison.differences:
        sign, style = _SIGNS[difference.state]
        note = " (was edited by hand)" if difference.state is State.EDITED else ""
        screen.print(Text.assemble((sign, style), f" {local_path(out / difference.path)}{note}"))
    removed = len(comparison.of(State.ORPHANED))
    written = len(comparison.differences) - removed
    parts = [f"{plural(written, 'file')} written"] if written else []
    parts += [f"{plural(removed, 'file')} removed"] if removed else []
    parts.append(f"{plural(comparison.same, 'file')} up to date")
    screen.print(f"{local_path(out)}: {', '.join(parts)} ({seconds:.1f} s)")
