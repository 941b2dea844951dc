"""The module that reads violation rows back, from the layout of the ring that kernels report to."""

from __future__ import annotations

from typing import Any

from kvcanary_gen.emit.frames import render
from kvcanary_gen.ir import Program

ROW = "Violation"
DECODE = "decode_violations"


def reported_layout(program: Program) -> str | None:
    """Layout of the rows that checks append; None where no kernel reports."""
    for kernel in program.kernels.values():
        if kernel.report is not None:
            return kernel.tensors[kernel.report.ring].record
    return None


def emit_violations(program: Program) -> str:
    return render("violations.py.j2", row=row_values(program))


def row_values(program: Program) -> dict[str, Any]:
    """The row as templates take it: fields in order, the enum of its reasons, tag families by field."""
    name = reported_layout(program)
    assert name is not None
    layout = program.layouts[name]
    kernel = next(kernel for kernel in program.kernels.values() if kernel.report is not None)
    assert kernel.report is not None and kernel.report.checks
    check = kernel.report.checks[0]
    into = next(field for field, value in check.row if value is None)
    bit = check.reasons[0].bit.name
    assert bit is not None
    tag = next((name for name, field in layout.fields.items() if field.role == "tag"), None)
    return {
        "class_name": ROW,
        "doc": layout.doc,
        "fields": [
            {"name": field, "doc": info.doc, "unsigned": info.type == "uint64", "unknown": info.unknown}
            for field, info in layout.fields.items()
        ],
        "enum": bit.partition(".")[0],
        "into": into,
        "tags": {tag: next(iter(program.tags))} if program.tags and tag is not None else {},
        "length": len(layout.fields),
    }
