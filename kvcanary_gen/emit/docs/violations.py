"""The page about violations as people read them: lines, journals, pages."""

from __future__ import annotations

import json
from typing import Any

from kvcanary_gen.emit.docs.pages import page
from kvcanary_gen.emit.package import tag_axes
from kvcanary_gen.emit.report_values import report_values
from kvcanary_gen.emit.runtime_templates import program_has_runtime
from kvcanary_gen.emit.violations import reported_layout
from kvcanary_gen.ir import Program

# Values of an example's fields that the spec does not know.
_HOST: dict[str, Any] = {"step": 1204, "time": 1764524155.25, "forward": "target", "pool": "main"}


def violations_pages(program: Program) -> dict[str, str]:
    """The page, where the package has a runtime."""
    if not program_has_runtime(program):
        return {}
    values = report_values(program, reported_layout(program))
    example = _example(program, values)
    hashes = {field["name"] for field in values["carried"] if field["unsigned"]}
    text = page(
        "violations.md.j2",
        package=program.header.package,
        line=_line(values["speaker"], example, hashes),
        json=json.dumps({k: f"0x{v:016x}" if k in hashes else v for k, v in example.items()}, separators=(",", ":")),
        axes={name: program.axes[name] for name in values["axes"]},
        **{name: values[name] for name in ("speaker", "carried", "reasons", "row", "row_layout", "role")},
        layout=program.layouts[values["row_layout"]],
    )
    return {"violations.md": text}


def _example(program: Program, values: dict[str, Any]) -> dict[str, Any]:
    """A record that the first tag and the first reason allow."""
    family = program.tags[values["tag_family"]]
    tag = family.numbers[0]
    found: dict[str, Any] = {**_HOST, "kind": tag, **{a: tag_axes(program, family)[tag][a] for a in values["axes"]}}
    found |= {"slot": 2061, "position": 13, "request_id": "chat 7", "request_row": 3}
    found["reasons"] = [next(iter(values["reasons"]))]
    for place, field in enumerate(values["carried"], 1):
        found[field["name"]] = place * 0x123456789ABCDEF if field["unsigned"] else place * 11
    return found


def _line(speaker: str, example: dict[str, Any], hashes: set[str]) -> str:
    """The example as the runtime writes it."""
    parts = []
    for name, value in example.items():
        text = f"0x{value:016x}" if name in hashes else ",".join(value) if isinstance(value, list) else str(value)
        parts.append(f'{name}="{text}"' if " " in text else f"{name}={text}")
    return " ".join([f"{speaker} violation", *parts])
