"""What templates of reports need of the spec: fields of a row, meanings of reasons, axes of tags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvcanary_gen.emit.runtime_templates import roles
from kvcanary_gen.emit.violations import row_values
from kvcanary_gen.expr.nodes import Call, Const, Fold, Node, Var
from kvcanary_gen.ir import CheckIR, KernelIR, Program

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
        "prefix": program.header.message_prefix,
        "speaker": program.header.message_prefix.rstrip(": "),
        "row": row,
        "role": role,
        "row_layout": layout,
        "axes": axes,
        "tag_family": next(iter(program.tags)),
        "carried": carried,
        "reasons": enum.members,
        "real_bytes": {name for name in enum.members if _reads_bytes(program, name)},
        "writing": {name for name in enum.members if _found_by_writing(program, name)},
        "numeric": {field["name"]: _numeric(program, field["row"]) for field in carried if field["unsigned"]},
    }


def _numeric(program: Program, field: str) -> list[str]:
    """Reasons for which an unsigned field holds a plain number: in every row that can carry them, it is one."""
    found: dict[str, list[bool]] = {}
    for kernel in program.kernels.values():
        for check in _all_checks(kernel):
            value = dict(check.row)[field]
            for reason in check.reasons:
                name = str(reason.bit.name).rpartition(".")[2]
                found.setdefault(name, []).append(_is_number(value))
    return [name for name, kinds in found.items() if all(kinds)]


def _all_checks(kernel: KernelIR) -> tuple[CheckIR, ...]:
    """Checks of a kernel: before anything is stored, of each point, and once all is stored."""
    report = kernel.report
    return () if report is None else (*report.before, *report.checks, *report.after)


def _checks(program: Program, reason: str) -> Iterator[tuple[KernelIR, Node]]:
    """Kernels that find a reason, with what makes it one."""
    for kernel in program.kernels.values():
        for check in _all_checks(kernel):
            for found in check.reasons:
                if str(found.bit.name).rpartition(".")[2] == reason:
                    yield kernel, found.fails


def _reads_bytes(program: Program, reason: str) -> bool:
    """Whether a reason depends on the bytes of the real KV cache."""
    return any(
        _folds(node, dict([*kernel.segment_lets, *kernel.lets, *kernel.after_lets]))
        for kernel, node in _checks(program, reason)
    )


def _folds(node: Node, lets: dict[str, Node]) -> bool:
    """Whether an expression or a value that it names is a fold over bytes."""
    return any(
        isinstance(part, Fold) or (isinstance(part, Var) and part.name in lets and _folds(lets[part.name], lets))
        for part in node.walk()
    )


def _found_by_writing(program: Program, reason: str) -> bool:
    """Whether only operations that store something find a reason."""
    kernels = {kernel.name for kernel, _ in _checks(program, reason)}
    finders = [o for o in program.operations.values() if any(call.kernel.name in kernels for call in o.calls)]
    return bool(finders) and all(any(call.kernel.stores for call in o.calls) for o in finders)


def _is_number(node: Node | None) -> bool:
    """Whether a value is an int64 that was cast, as opposed to a hash or to a constant that stands for no hash."""
    return isinstance(node, Call) and node.builtin and node.function == "u64" and not isinstance(node.args[0], Const)
