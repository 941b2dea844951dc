"""Layouts, tags, bits and constants as a C header, for tools that read device memory without Python."""

from __future__ import annotations

from kvcanary_gen.emit.frames import render
from kvcanary_gen.emit.names import snake
from kvcanary_gen.ir import Program
from kvcanary_gen.schema.data import Constant


def build_header(program: Program) -> dict[str, str]:
    """The header by its path below the generated folder."""
    package = program.header.package
    text = render(
        "header.h.j2",
        doc=program.header.doc,
        version=program.header.version,
        package=package,
        guard=package.upper(),
        constants={name: _number(constant) for name, constant in program.constants.items()},
        comments={name: constant.doc for name, constant in program.constants.items()},
        layouts=program.layouts,
        enums=program.enums,
        tags=program.tags,
        snake=snake,
    )
    return {f"include/{package}.h": text}


def _number(constant: Constant) -> str:
    suffix = "UINT64_C" if constant.type == "uint64" else "INT64_C"
    value = int(constant.value)
    return f"{suffix}(0x{value:X})" if value > 0xFFFF else f"{suffix}({value})"
