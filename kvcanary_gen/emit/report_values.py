"""What templates of reports need of the spec: fields of a row, meanings of reasons, axes of tags."""

from __future__ import annotations

from typing import Any

from kvcanary_gen.emit.runtime_templates import roles
from kvcanary_gen.emit.violations import row_values
from kvcanary_gen.expr.nodes import Call, Const, Node
from kvcanary_gen.ir import Program

# Fields of a record that do not come from the row as they are.
_OWN = (
    "step",
    "time",
    "forward",
    "pool",
    "kind",
    "slot",
    "position",
    "request_id",
    "request_row",
    "reasons",
)


def report_values(program: Program, layout: str | None) -> dict[str, Any]:
    assert layout is not None
    row = row_values(program)
    role = roles(program.layouts[layout])
    enum = program.enums[row["enum"]]
    family = next(iter(program.tags.values()))
    axes = [name for name in program.axes if "{" + name + "}" in family.name]
    taken = {*_OWN, *axes}
    carried = [
        {**field, "row": field["name"], "name": f"row_{field['name']}" if field["name"] in taken else field["name"]}
        for field in row["fields"]
        if field["name"] not in {*role.values(), row["into"]}
    ]
    return {
        "row": row,
        "role": role,
        "row_layout": layout,
        "axes": axes,
        "tag_family": next(iter(program.tags)),
        "carried": carried,
        "reasons": enum.members,
        "numeric": {field["name"]: _numeric(program, field["row"]) for field in carried if field["unsigned"]},
    }


def _numeric(program: Program, field: str) -> list[str]:
    """Reasons for which an unsigned field holds a plain number: in every row that can carry them, it is one."""
    found: dict[str, list[bool]] = {}
    for kernel in program.kernels.values():
        for check in kernel.report.checks if kernel.report is not None else ():
            value = dict(check.row)[field]
            for reason in check.reasons:
                name = str(reason.bit.name).rpartition(".")[2]
                found.setdefault(name, []).append(_is_number(value))
    return [name for name, kinds in found.items() if all(kinds)]


def _is_number(node: Node | None) -> bool:
    """Whether a value is an int64 that was cast, as opposed to a hash or to a constant that stands for no hash."""
    return isinstance(node, Call) and node.builtin and node.function == "u64" and not isinstance(node.args[0], Const)
