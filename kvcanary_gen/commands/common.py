"""What every command shares: options, loading the spec, printing findings, and the promise of no traceback."""

from __future__ import annotations

import functools
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from kvcanary_gen.compare import Tree
from kvcanary_gen.diagnostics import Diagnostic, SpecError
from kvcanary_gen.ir import Program
from kvcanary_gen.load import Document, load_document
from kvcanary_gen.write import FolderError

FAILED, USAGE, INTERNAL, INTERRUPTED = 1, 2, 70, 130

DEFAULT_SPEC, DEFAULT_OUT = Path("spec"), Path("generated")
SpecOption = Annotated[Path, typer.Option("--spec", metavar="DIR", help="Folder that holds kvcanary.yaml.")]
OutOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the generated files.")]


class Format(str, Enum):
    text = "text"
    json = "json"
    github = "github"


FormatOption = Annotated[
    Format, typer.Option("--format", help="For people, for programs, or for GitHub's annotations.")
]


def console(*, stderr: bool = False) -> Console:
    """Prints in colour on a terminal; never wraps, so that a path in a log stays one word."""
    return Console(stderr=stderr, soft_wrap=True, highlight=False, markup=False, emoji=False)


def plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


# ---- reading the spec ------------------------------------------------------------------------------------------------


def load(spec: Path, format: Format = Format.text) -> tuple[Program, Document]:
    """Loads and resolves the spec; prints its errors and ends the command where there are any."""
    from kvcanary_gen.resolve import resolve_document

    try:
        document = load_document(spec_root(spec))
        return resolve_document(document), document
    except SpecError as error:
        findings = [localise(found, spec) for found in error.diagnostics]
        if format is Format.json:
            print(json.dumps({"equal": False, "errors": [f.as_dict() for f in findings]}, indent=2))
        else:
            print_findings(findings, format, console(stderr=format is Format.text))
        raise typer.Exit(FAILED) from None


def build(spec: Path, format: Format = Format.text) -> Tree:
    """The files that the spec in folder `spec` builds."""
    from kvcanary_gen.tree import build_tree

    return build_tree(*load(spec, format))


def spec_root(spec: Path) -> Path:
    """The folder with its own name, which `.` and `..` don't show."""
    return Path(os.path.abspath(spec))


def localise(found: Diagnostic, spec: Path) -> Diagnostic:
    """The finding with its file as seen from the working directory."""
    return replace(found, mark=replace(found.mark, file=local_file(found.mark.file, spec)))


def local_file(file: str, spec: Path) -> str:
    """A file of a spec mark, such as spec/layouts.yaml, as seen from the working directory."""
    return local_path(spec_root(spec).parent / file)


def local_path(path: Path) -> str:
    """A path relative to the working directory where it lies below it."""
    absolute, here = os.path.abspath(path), os.getcwd()
    below = absolute.startswith(here.rstrip("/") + "/")
    return os.path.relpath(absolute, here).replace(os.sep, "/") if below else absolute


def command_line(verb: str, spec: Path, out: Path | None = None) -> str:
    """The command as the user would type it, with the options that differ from their defaults."""
    words = ["kvcanary-gen", verb]
    if spec != DEFAULT_SPEC:
        words += ["--spec", str(spec)]
    if out is not None and out != DEFAULT_OUT:
        words += ["--out", str(out)]
    return shlex.join(words)


# ---- printing findings -----------------------------------------------------------------------------------------------


def print_findings(errors: list[Diagnostic], format: Format, where: Console) -> None:
    """Errors in text or GitHub form; text ends with their number."""
    for found in errors:
        if format is Format.github:
            print(found.github())
        else:
            where.print(finding_text(found, "bold red"))
    if format is Format.text:
        where.print(Text(f"{plural(len(errors), 'error')} in {plural(len(files_of(errors)), 'file')}.", style="bold"))


def finding_text(found: Diagnostic, style: str) -> Text:
    return Text.assemble((f"{found.mark}:", "bold"), " ", (found.rule, style), f" {found.message}")


def files_of(findings: Iterable[Diagnostic]) -> set[str]:
    return {found.mark.file for found in findings}


def github_value(text: str, *, name: bool = False) -> str:
    """Text as a workflow command carries it; `name` for the part before the colons."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if name else text


# ---- no traceback ----------------------------------------------------------------------------------------------------


def fail(message: str, code: int = FAILED) -> typer.Exit:
    """Prints one line of error; raise what it returns."""
    console(stderr=True).print(Text.assemble(("error: ", "bold red"), message))
    return typer.Exit(code)


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Ends a command with one line and an exit code, whatever it raises."""

    @functools.wraps(command)
    def run(*args: Any, **keywords: Any) -> None:
        try:
            command(*args, **keywords)
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except FolderError as error:
            raise fail(str(error)) from None
        except OSError as error:
            where = f"{error.filename}: " if error.filename is not None else ""
            raise fail(f"{where}{error.strerror or error}") from None
        except Exception as error:
            raise internal_error(error) from None

    return run


def internal_error(error: Exception) -> typer.Exit:
    """An exception that nobody foresaw: one line, or the traceback with KVCANARY_GEN_TRACEBACK=1."""
    if os.environ.get("KVCANARY_GEN_TRACEBACK") == "1":
        raise error
    first = (str(error).splitlines() or [""])[0]
    what = f"{type(error).__name__}: {first}" if first else type(error).__name__
    hint = "please report it, with the spec and the output under KVCANARY_GEN_TRACEBACK=1"
    return fail(f"internal error ({what}); {hint}", INTERNAL)


def quiet_exit() -> None:
    """Ends the process after the reader of its output went away, without a complaint from the interpreter."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(FAILED)
