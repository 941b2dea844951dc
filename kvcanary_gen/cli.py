"""The command line of the generator."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from kvcanary_gen.commands.bench import bench
from kvcanary_gen.commands.check import check
from kvcanary_gen.commands.common import DEFAULT_SPEC, INTERRUPTED, guarded, quiet_exit
from kvcanary_gen.commands.compile import compile_kernels
from kvcanary_gen.commands.diff import diff
from kvcanary_gen.commands.explain import explain
from kvcanary_gen.commands.generate import generate
from kvcanary_gen.commands.lint import lint
from kvcanary_gen.commands.schema import schema

# Help and usage errors are framed and coloured on a terminal alone; in a log they are plain lines.
_FRAMED = sys.stdout.isatty() and sys.stderr.isatty()

app = typer.Typer(
    name="kvcanary-gen",
    help="Writes kernels, references, validators and reference pages from the spec, and proves that they agree.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich" if _FRAMED else None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for _name, _command, _help in (
    ("generate", generate, "Write the generated folder from the spec."),
    ("check", check, "Compare the generated folder with the spec."),
    ("lint", lint, "Report every error of the spec on its line."),
    ("diff", diff, "Classify what changed in the spec since a revision."),
    ("explain", explain, "Show what a name means and what it becomes."),
    ("compile", compile_kernels, "Compile every kernel ahead of time."),
    ("bench", bench, "Time the kernels beside a baseline and the machine's limits."),
    ("schema", schema, "Print the JSON Schema of spec files."),
):
    app.command(_name, short_help=_help)(guarded(_command))


def _version() -> str:
    """Version of the installed distribution, else that of the spec in the working directory."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("kvcanary")
    except PackageNotFoundError:
        from kvcanary_gen.diagnostics import SpecError
        from kvcanary_gen.load import load_document

        try:
            return load_document(Path.cwd() / DEFAULT_SPEC).header.version
        except SpecError:
            return "of unknown version"


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"kvcanary-gen {_version()}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def run() -> None:
    """Runs the command line of this process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a log that cannot show a character must not end the command
    try:
        app(prog_name="kvcanary-gen")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        quiet_exit()
