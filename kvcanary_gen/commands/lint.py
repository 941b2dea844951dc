"""`kvcanary-gen lint`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from kvcanary_gen.commands.common import (
    DEFAULT_SPEC,
    FAILED,
    Format,
    FormatOption,
    SpecOption,
    console,
    files_of,
    finding_text,
    local_path,
    localise,
    plural,
    spec_root,
)
from kvcanary_gen.diagnostics import Diagnostic, SpecError
from kvcanary_gen.ir import Program
from kvcanary_gen.lint import warnings
from kvcanary_gen.load import load_document
from kvcanary_gen.resolve import resolve_document


def lint(
    spec: SpecOption = DEFAULT_SPEC,
    format: FormatOption = Format.text,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings too.")] = False,
) -> None:
    """Report every error of the spec on its line, and declarations that nothing uses; exit with 1 on errors."""
    errors: list[Diagnostic] = []
    notes: list[Diagnostic] = []
    program = None
    try:
        document = load_document(spec_root(spec))
        program = resolve_document(document)
        notes = [localise(found, spec) for found in sorted(warnings(program, document).found)]
    except SpecError as error:
        errors = [localise(found, spec) for found in error.diagnostics]
    if format is Format.json:
        print(
            json.dumps(
                [_as_json(found, "error") for found in errors] + [_as_json(f, "warning") for f in notes], indent=2
            )
        )
    elif format is Format.github:
        for found in errors:
            print(found.github())
        for found in notes:
            print("::warning" + found.github().removeprefix("::error"))
    else:
        _print(errors, notes, program, spec)
    if errors or (strict and notes):
        raise typer.Exit(FAILED)


def _as_json(found: Diagnostic, severity: str) -> dict[str, object]:
    return {"severity": severity, **found.as_dict()}


def _print(errors: list[Diagnostic], notes: list[Diagnostic], program: Program | None, spec: Path) -> None:
    screen = console()
    for found in errors:
        screen.print(finding_text(found, "bold red"))
    for found in notes:
        screen.print(
            Text.assemble((f"{found.mark}:", "bold"), " ", (f"{found.rule} warning:", "yellow"), f" {found.message}")
        )
    if errors:
        count = f"{plural(len(errors), 'error')} in {plural(len(files_of(errors)), 'file')}"
        screen.print(Text.assemble((f"{count}.", "bold"), f" More on a rule: kvcanary-gen explain {errors[0].rule}"))
        return
    assert program is not None
    parts = (
        plural(len(program.kernels), "kernel"),
        plural(len(program.operations), "operation"),
        plural(len(program.functions), "function"),
        plural(len(program.invariants), "invariant"),
    )
    found_text = plural(len(notes), "warning") if notes else "no errors"
    screen.print(f"{local_path(spec)}: {found_text} in {', '.join(parts)}.")
