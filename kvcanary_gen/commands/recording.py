"""`--record` and `--against` of `kvcanary-gen compile`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from kvcanary_gen.commands.common import fail, local_path, plural

if TYPE_CHECKING:
    from kvcanary_gen.aot import Specialisation
    from kvcanary_gen.recorded import Compiled


def read_record(path: Path) -> dict[str, Any]:
    """A record, or the end of the command."""
    from kvcanary_gen.recorded import RecordError, read

    try:
        return read(path)
    except RecordError as error:
        raise fail(str(error)) from None


def on_record(
    recorded: dict[str, Any], every: list[Specialisation], pairs: list[tuple[Specialisation, str]]
) -> list[tuple[Specialisation, str]]:
    """Those of `pairs` that are on record; ends the command where the record is of other kernels than `every`."""
    from kvcanary_gen.recorded import form, recorded_forms, strays

    wrong = strays(recorded, every)
    if wrong:
        raise fail(f"the record is out of date: {'; '.join(wrong)}; write it anew with --record")
    known = recorded_forms(recorded)
    return [(job, target) for job, target in pairs if (job.kernel, form(job), target) in known]


def write_record(path: Path, compiled: list[Compiled], screen: Console) -> None:
    import triton

    from kvcanary_gen.recorded import make

    path.write_text(make(compiled, triton.__version__), encoding="utf-8")
    screen.print(f"{local_path(path)}: {plural(len(compiled), 'form')} on record.")


def report_gains(recorded: dict[str, Any], compiled: list[Compiled], screen: Console) -> bool:
    """Prints what grew, and what could not be compared; says whether anything grew."""
    import triton

    from kvcanary_gen.recorded import comparable, gains

    version = triton.__version__
    others = [report.target for _, report in compiled if not comparable(recorded, report, version)]
    if others:
        screen.print(
            f"note: loads and stores for {', '.join(dict.fromkeys(others))} are not compared: the record is of Triton "
            f"{recorded['triton']}, this is {version}, or they were counted in something else"
        )
    found = gains(recorded, compiled, version)
    for gain in found:
        fail(str(gain))
    grew = plural(len({(gain.kernel, gain.form, gain.target) for gain in found}), "form")
    text = f"{grew} gained spills, loads or stores" if found else "none gained spills, loads or stores"
    screen.print(f"Against the record of {plural(len(compiled), 'form')}: {text}.")
    return bool(found)
