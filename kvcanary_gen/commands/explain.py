"""`kvcanary-gen explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from kvcanary_gen.commands.common import (
    DEFAULT_OUT,
    DEFAULT_SPEC,
    OutOption,
    SpecOption,
    command_line,
    console,
    fail,
    load,
    local_file,
    local_path,
)
from kvcanary_gen.compare import Tree, compare
from kvcanary_gen.diagnostics import suggest
from kvcanary_gen.explain import (
    Excerpt,
    Subject,
    explain_name,
    generated_excerpts,
    generator_rules,
    known_names,
    spec_excerpt,
)
from kvcanary_gen.tree import build_tree


def explain(
    name: Annotated[str, typer.Argument(help="A kernel, function, argument, field, constant, tag, KVC-… or KVG-….")],
    spec: SpecOption = DEFAULT_SPEC,
    out: OutOption = DEFAULT_OUT,
) -> None:
    """Show what a name means, the lines of the spec that declare it, and the generated lines that it becomes."""
    rule = next((rule for rule in generator_rules() if rule.name == name.upper()), None)
    if rule is not None:
        _print_head(console(), rule)
        return
    program, document = load(spec)
    found = explain_name(program, name)
    if not found:
        raise fail(f"nothing in the spec is called '{name}'{suggest(name, known_names(program))}")
    tree = build_tree(program, document)
    screen = console()
    for index, subject in enumerate(found):
        if index:
            screen.print()
        _print_head(screen, subject)
        declared = spec_excerpt(document, subject)
        if declared is not None:
            _print_excerpt(screen, declared, local_file(declared.file, spec))
        for excerpt in generated_excerpts(program, tree, subject):
            _print_excerpt(screen, excerpt, local_path(out / excerpt.file))
    _print_note(screen, tree, spec, out)


def _print_head(screen: Console, subject: Subject) -> None:
    screen.print(Text.assemble(f"{subject.kind} ", (subject.name, "bold")))
    screen.print(f"  {subject.meaning}")
    facts = [(label, text) for label, text in subject.facts if text]
    width = max((len(label) for label, _ in facts), default=0)
    for label, text in facts:
        screen.print(Text.assemble((f"  {label.ljust(width)}  ", "dim"), text))


def _print_excerpt(screen: Console, excerpt: Excerpt, file: str) -> None:
    title = f"  {excerpt.title}" if excerpt.title else ""
    screen.print()
    screen.print(Text.assemble((f"{file}:{excerpt.numbers[0]}", "bold cyan"), (title, "dim")))
    width = len(str(excerpt.numbers[-1]))
    before = excerpt.numbers[0]
    for number, line in zip(excerpt.numbers, excerpt.lines, strict=False):
        if number > before + 1:
            screen.print(Text(f"  {'…'.rjust(width)}", style="dim"))
        screen.print(Text.assemble((f"  {str(number).rjust(width)} ", "dim"), (f"│ {line}".rstrip(), "")))
        before = number


def _print_note(screen: Console, tree: Tree, spec: Path, out: Path) -> None:
    """Line numbers are those of the tree that the spec builds, which may not be written yet."""
    if not compare(tree, out).equal:
        command = command_line("generate", spec, out)
        screen.print()
        screen.print(
            Text(f"{local_path(out)} differs from the spec; lines are those after `{command}`.", style="yellow")
        )
