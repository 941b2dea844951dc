"""The module that checks lists of byte sources and takes them apart for kernels."""

from __future__ import annotations

from kvcanary_gen.emit.code import invoke, statement
from kvcanary_gen.emit.frames import environment, render
from kvcanary_gen.emit.names import snake
from kvcanary_gen.ir import Program, StructIR, StructValueIR


def listed_structs(program: Program) -> list[StructIR]:
    """Structs that stand in lists."""
    names = {value.of for struct in program.structs.values() for value in struct.values if value.kind == "list"}
    return [struct for name, struct in program.structs.items() if name in names]


def emit_sources(program: Program, implied: dict[str, dict[str, str]]) -> str:
    environment().filters["prefix_source"] = lambda name: f"source.{name}"
    return render("sources.py.j2", structs=[_struct(struct) for struct in listed_structs(program)], **implied)


def _struct(struct: StructIR) -> dict[str, object]:
    bytes_field = next(value for value in struct.values if value.kind == "bytes")
    numbers = [value for value in struct.values if value.kind == "int64"]
    return {
        "name": struct.name,
        "snake": snake(struct.name),
        "bytes": bytes_field.name,
        "align": bytes_field.multiple_of or 1,
        "numbers": [value.name for value in numbers],
        "rules": [line for value in numbers for line in _rules(value)],
    }


def _rules(value: StructValueIR) -> list[str]:
    name, have = f'f"{{path}}.{value.name}"', f"source.{value.name}"
    lines: list[str] = []
    if value.multiple_of is not None:
        lines += statement("", invoke("multiple", name, have, str(value.multiple_of)), 8)
    elif value.at_least is not None:
        lines += statement("", invoke("below", name, have, str(value.at_least)), 8)
    if value.at_most_field is not None:
        other = value.at_most_field
        lines += statement("", invoke("above", name, have, f'"{other}"', f"source.{other}"), 8)
    return lines
