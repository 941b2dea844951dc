"""`kvcanary-gen compile`."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from kvcanary_gen.commands.common import (
    DEFAULT_OUT,
    DEFAULT_SPEC,
    FAILED,
    OutOption,
    SpecOption,
    command_line,
    console,
    fail,
    load,
    local_path,
    plural,
)
from kvcanary_gen.commands.recording import on_record, read_record, report_gains, write_record
from kvcanary_gen.diagnostics import suggest
from kvcanary_gen.ir import Program

if TYPE_CHECKING:
    from kvcanary_gen.aot import Report, Specialisation
    from kvcanary_gen.recorded import Compiled

_COLUMNS = {
    "registers": "registers",
    "spills": "spills",
    "loads": "loads",
    "stores": "stores",
    "atomics": "atomics",
    "local_accesses": "local",
    "shared_bytes": "shared B",
    "code_bytes": "code B",
}


def compile_kernels(
    spec: SpecOption = DEFAULT_SPEC,
    out: OutOption = DEFAULT_OUT,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target", metavar="ARCH", help="sm_80, sm_90, sm_100 or gfx942; may be repeated. [default: all]"
        ),
    ] = None,
    kernel: Annotated[
        list[str] | None,
        typer.Option("--kernel", metavar="NAME", help="Kernel to compile; may be repeated. [default: all]"),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the figures as JSON; - for stdout.")
    ] = None,
    extremes: Annotated[
        bool, typer.Option("--extremes", help="Only the leanest and the richest form of each kernel.")
    ] = False,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Put the figures on record, to compare with later.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="FILE", help="Compile what is on record; fail if any of it gained."),
    ] = None,
) -> None:
    """Compile every kernel ahead of time, in every specialisation, without a GPU; exit with 1 on spills."""
    if against is not None and (record is not None or extremes):
        raise typer.BadParameter("--against compares with a record, --record and --extremes make one: not both")
    recorded = read_record(against) if against is not None else None
    program = _program(spec, out)
    targets = _targets(target)
    every = _jobs(program, out)
    jobs = _chosen(program, every, _kernels(program, kernel), extremes)
    pairs = [(job, target) for job in jobs for target in targets]
    if recorded is not None:
        pairs = on_record(recorded, every, pairs)
    compiled, failures = _compile(pairs)
    reports = _with_tensors(compiled)
    to_stdout = json_file is not None and str(json_file) == "-"
    if not to_stdout:
        _print_tables(reports, console())
    for title, reason in failures:
        fail(f"{title}: {reason}")
    if json_file is not None:
        text = json.dumps([_as_json(given, report) for given, report in reports], indent=2) + "\n"
        if to_stdout:
            print(text, end="")
        else:
            json_file.write_text(text, encoding="utf-8")
    spilling = sum(report.spills > 0 for _, report in reports)
    screen = console(stderr=to_stdout)
    if not to_stdout:
        _print_sum(pairs, spilling, len(failures), screen)
    grew = recorded is not None and report_gains(recorded, compiled, screen)
    if record is not None and not failures:
        write_record(record, compiled, screen)
    if spilling or failures or grew:
        raise typer.Exit(FAILED)


# ---- what to compile -------------------------------------------------------------------------------------------------


def _program(spec: Path, out: Path) -> Program:
    """The program, if the package on disk is what it says; figures of another would be misleading."""
    from kvcanary_gen.compare import compare
    from kvcanary_gen.tree import build_tree

    program, document = load(spec)
    prefix = f"{program.header.package}/"
    stale = [d for d in compare(build_tree(program, document), out).differences if d.path.startswith(prefix)]
    if stale:
        raise fail(f"{local_path(out)} differs from the spec; run {command_line('generate', spec, out)} first")
    return program


def _targets(wanted: list[str] | None) -> list[str]:
    from kvcanary_gen.aot import DEFAULT_TARGETS, KNOWN_TARGETS

    for name in wanted or ():
        if name not in KNOWN_TARGETS:
            raise typer.BadParameter(
                f"unknown target '{name}'{suggest(name, KNOWN_TARGETS)}; known: {_list(KNOWN_TARGETS)}"
            )
    return list(dict.fromkeys(wanted or DEFAULT_TARGETS))


def _kernels(program: Program, wanted: list[str] | None) -> list[str]:
    from kvcanary_gen.many import variants

    kernels = program.kernels | variants(program)
    for name in wanted or ():
        if name not in kernels:
            raise typer.BadParameter(f"no kernel '{name}'{suggest(name, kernels)}; there are: {_list(kernels)}")
    return list(wanted or kernels)


def _list(names: object) -> str:
    assert isinstance(names, dict)
    return ", ".join(names)


def _jobs(program: Program, out: Path) -> list[Specialisation]:
    os.environ.pop("TRITON_INTERPRET", None)  # it would leave Python functions where kernels should be
    try:
        from kvcanary_gen.specialisations import package_loader, specialisations

        return specialisations(program, package_loader(out / program.header.package))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("torch", "triton"):
            raise
        raise fail(f"compiling needs {error.name}, which is not installed: pip install kvcanary") from None


def _chosen(
    program: Program, jobs: list[Specialisation], kernels: list[str], only_extremes: bool
) -> list[Specialisation]:
    from kvcanary_gen.expr.phases import phases
    from kvcanary_gen.many import variants
    from kvcanary_gen.recorded import extremes

    known = program.kernels | variants(program)
    wanted = {phase.name for kernel in kernels for phase in phases(known[kernel])}
    found = [job for job in jobs if job.kernel in wanted]
    return extremes(found) if only_extremes else found


# ---- compiling and telling -------------------------------------------------------------------------------------------

Pairs = list[tuple["Specialisation", str]]
Reports = list[tuple[list[str], "Report"]]


def _compile(pairs: Pairs) -> tuple[list[Compiled], list[tuple[str, str]]]:
    """What each form became on each target, and what did not compile."""
    from kvcanary_gen.aot import compile_one
    from kvcanary_gen.specialisations import given_tensors

    compiled: list[Compiled] = []
    failures: list[tuple[str, str]] = []
    screen = console(stderr=True)
    with Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task("compiling", total=len(pairs))
        for job, target in pairs:
            progress.update(task, description=f"{job.kernel} for {target}")
            try:
                compiled.append((job, compile_one(job, target)))
            except Exception as error:  # whatever a compiler raises
                given = given_tensors(job)
                reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
                failures.append((f"{job.kernel} ({', '.join(given) or 'nothing optional'}) for {target}", reason))
            progress.advance(task)
    return compiled, failures


def _with_tensors(compiled: list[Compiled]) -> Reports:
    """Reports with the optional tensors that were given."""
    from kvcanary_gen.specialisations import given_tensors

    return [(given_tensors(job), report) for job, report in compiled]


def _print_tables(reports: Reports, screen: Console) -> None:
    """A table for each kernel, as wide as it needs to be: a log has no width, and cut-off names help nobody."""
    for kernel in dict.fromkeys(report.kernel for _, report in reports):
        table = _table([(given, report) for given, report in reports if report.kernel == kernel])
        unlimited = screen.options.update(width=10_000)
        wide = Console(width=max(screen.width, screen.measure(table, options=unlimited).maximum))
        screen.print(Text(f"\n{kernel}", style="bold"))
        wide.print(table)


def _table(reports: Reports) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("optional tensors given", no_wrap=True)
    table.add_column("target", no_wrap=True)
    for title in _COLUMNS.values():
        table.add_column(title, justify="right", no_wrap=True)
    for given, group in itertools.groupby(reports, key=lambda entry: entry[0]):
        if table.row_count:
            table.add_row()
        # One name a line, beside the targets.
        for name, entry in itertools.zip_longest(given or ["none"], group):
            figures = _figures(entry[1]) if entry is not None else []
            table.add_row(name or "", *figures)
    return table


def _figures(report: Report) -> list[str | Text]:
    return [report.target, *(Text(str(getattr(report, name)), style=_style(name, report)) for name in _COLUMNS)]


def _style(name: str, report: Report) -> str:
    return "bold red" if name in ("spills", "local_accesses") and getattr(report, name) else ""


def _print_sum(pairs: Pairs, spilling: int, failed: int, screen: Console) -> None:
    jobs, targets = len({id(job) for job, _ in pairs}), len({target for _, target in pairs})
    done = f"{plural(jobs, 'specialisation')} for {plural(targets, 'target')}"
    spills = f"{spilling} spill to local memory" if spilling else "none spills to local memory"
    screen.print(f"\n{done}: {f'{failed} failed, ' if failed else ''}{spills}.")


def _as_json(given: list[str], report: Report) -> dict[str, object]:
    return {"given": given, **dataclasses.asdict(report)}
