"""`kvcanary-gen bench`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from kvcanary_gen.commands.common import DEFAULT_OUT, OutOption, fail

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "bench.py"


def bench(
    out: OutOption = DEFAULT_OUT,
    device: Annotated[
        str | None, typer.Option("--device", metavar="cuda|cpu", help="[default: cuda where there is a GPU]")
    ] = None,
    case: Annotated[
        list[str] | None, typer.Option("--case", metavar="NAME", help="Case to time; may be repeated. [default: all]")
    ] = None,
    growth: Annotated[bool, typer.Option("--growth", help="Also how cost grows; --plot implies it.")] = False,
    json_out: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Write the figures to a file, or into a folder.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="OUT.png", help="Draw all cases and curves; needs matplotlib.")
    ] = None,
    recorded: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Show a result instead of measuring.")
    ] = None,
) -> None:
    """Time the kernels beside a baseline and the machine's limits; exit with 1 if a result is wrong."""
    if not SCRIPT.is_file():
        raise fail(f"the benchmarks are part of the source tree, not of the installed package: no {SCRIPT}")
    options = {"--device": device, "--json": json_out, "--plot": plot, "--from": recorded, "--package": out}
    words = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    words += [word for name in case or () for word in ("--case", name)]
    words += ["--growth"] if growth else []
    # A process of its own: Triton decides at import whether kernels are interpreted, and there they are not.
    clean = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, str(SCRIPT), *words], env=clean, check=False)
    if done.returncode:
        raise typer.Exit(done.returncode)
