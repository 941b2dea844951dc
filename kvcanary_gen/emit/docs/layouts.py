"""One page for data: constants, records, enums, launch tags, structs."""

from __future__ import annotations

import math

from kvcanary_gen.emit.docs.markdown import code, listing, table
from kvcanary_gen.emit.docs.pages import page
from kvcanary_gen.emit.package import tag_axes
from kvcanary_gen.expr.nodes import Binary, Const, Node, Var
from kvcanary_gen.ir import Program, StructFieldIR, StructIR
from kvcanary_gen.load import Document
from kvcanary_gen.schema.data import Enum, Layout, TagFamily
from kvcanary_gen.source import LocatedInt

WORD_BYTES = 8
ITEM_BYTES = {"uint8": 1, "int32": 4, "int64": 8, "uint64": 8}


def layouts_page(program: Program, document: Document) -> str:
    layouts = [(name, layout, layout_table(layout)) for name, layout in program.layouts.items()]
    return page(
        "layouts.md.j2",
        constants=table(
            ["name", "type", "value", "meaning"],
            [[code(n), c.type, code(_spelling(document, n)), c.doc] for n, c in program.constants.items()],
        ),
        layouts=[(name, layout, text, len(layout.fields) * WORD_BYTES) for name, layout, text in layouts],
        enums=[(name, enum, _enum_table(enum)) for name, enum in program.enums.items()],
        axes=program.axes,
        tags=[(name, family, _tag_table(program, family)) for name, family in program.tags.items()],
        stages=_stages(program),
        structs=[(struct, _struct_table(struct), total_bytes(struct)) for struct in program.structs.values()],
    )


def _spelling(document: Document, constant: str) -> str:
    """The number as the spec spells it: 0xC0FFEE stays so."""
    source = document.sources[document.places["constants", constant]]
    value = source.tree["constants"][constant]["value"]
    return str(value.text) if isinstance(value, LocatedInt) else str(value)


def layout_table(layout: Layout) -> str:
    rows = []
    for index, (name, field) in enumerate(layout.fields.items()):
        rows.append([index, index * WORD_BYTES, field.type, code(f"{layout.prefix}_{name.upper()}"), field.doc])
    return table(["word", "byte", "type", "index constant", "meaning"], rows)


def _enum_table(enum: Enum) -> str:
    if enum.kind == "flag":
        rows = [[m.value, code(f"0x{1 << m.value:X}"), code(name), m.doc] for name, m in enum.members.items()]
        return table(["bit", "value", "name", "meaning"], rows)
    return table(["value", "name", "meaning"], [[m.value, code(name), m.doc] for name, m in enum.members.items()])


# ---- tags ------------------------------------------------------------------------------------------------------------


def _tag_table(program: Program, family: TagFamily) -> str:
    axes = tag_axes(program, family)
    names = list(next(iter(axes.values())))
    rows = [[number, code(tag), *(axes[tag][axis] for axis in names)] for number, tag in enumerate(family.numbers)]
    return table(["number", "tag", *names], rows)


def _stages(program: Program) -> str:
    """What the stage axis says of its values; empty without one."""
    if "stage" not in program.axes:
        return ""
    rows = []
    for name, stage in program.axes["stage"].values.items():
        real = "yes" if stage.real_kv else "no"
        rows.append([code(name), stage.when, listing(list(stage.operations)), code(stage.buffer), real, stage.doc])
    return table(["stage", "runs", "does", "buffer", "real KV bytes", "meaning"], rows)


# ---- structs ---------------------------------------------------------------------------------------------------------


def _struct_table(struct: StructIR) -> str:
    rows: list[list[object]] = []
    values = {value.name: value for value in struct.values}
    fields = {field.name: field for field in struct.fields}
    for name in struct.order:
        if name in values:
            value = values[name]
            shape = code(f"[<= {value.at_most}]") if value.kind == "list" else ""
            rows.append([code(name), value.of or value.kind, shape, "", "", value.doc])
            continue
        field = fields[name]
        shape = f"[{', '.join(axis.text for axis in field.shape)}]"
        initial = "" if field.init is None else str(field.init)
        rows.append([code(field.name), field.dtype, code(shape), ITEM_BYTES[field.dtype], initial, field.doc])
    return table(["field", "dtype", "shape", "bytes per element", "initial", "meaning"], rows)


def field_bytes(field: StructFieldIR, capacity: int) -> int | None:
    """Bytes of a field; None where its lengths need more than the capacity."""
    lengths = [_number(axis.length, capacity) for axis in field.shape]
    known = [length for length in lengths if length is not None]
    return ITEM_BYTES[field.dtype] * math.prod(known) if len(known) == len(lengths) else None


def total_bytes(struct: StructIR) -> str:
    """Bytes of the whole struct as `a × capacity + b`; empty where they do not grow that way."""
    if not struct.capacity:
        return ""
    totals = []
    for capacity in (0, 1, 2):
        sizes = [field_bytes(field, capacity) for field in struct.fields]
        if None in sizes:
            return ""
        totals.append(sum(size for size in sizes if size is not None))
    base, step = totals[0], totals[1] - totals[0]
    if totals[2] - totals[1] != step:
        return ""
    return f"{step} × {struct.capacity} + {base}" if base else f"{step} × {struct.capacity}"


def _number(node: Node, capacity: int) -> int | None:
    if isinstance(node, Const):
        return node.value
    if isinstance(node, Var):
        return capacity
    if isinstance(node, Binary) and node.op in ("+", "-", "*"):
        left, right = _number(node.left, capacity), _number(node.right, capacity)
        if left is not None and right is not None:
            return left + right if node.op == "+" else left - right if node.op == "-" else left * right
    return None
