"""Structs as frozen dataclasses that allocate themselves."""

from __future__ import annotations

from kvcanary_gen.emit.code import Code, invoke, operator, statement
from kvcanary_gen.emit.frames import prose, render, speaks_of, wrap
from kvcanary_gen.emit.host import python_string
from kvcanary_gen.emit.host_expr import host_code
from kvcanary_gen.ir import Program, StructFieldIR, StructIR

_ITEM_BYTES = {"int32": 4, "int64": 8, "uint64": 8, "uint8": 1}


def emit_structs(program: Program) -> str:
    structs = [_struct(struct) for struct in program.structs.values()]
    text = "\n".join(line for struct in structs for line in (*struct["allocate"], *struct["bytes"]))  # type: ignore[misc]
    text += "".join(annotation for struct in structs for _, annotation in struct["fields"])  # type: ignore[attr-defined]
    layout, sequence = speaks_of(text, "layout"), "Sequence[" in text
    return render("structs.py.j2", structs=structs, layout=layout, sequence=sequence)


def _struct(struct: StructIR) -> dict[str, object]:
    allocate: list[str] = []
    for field in struct.fields if struct.capacity else ():
        allocate += statement(f"{field.name}=", _tensor(field), 12, ",")
    return {
        "name": struct.name,
        "doc": struct.doc,
        "contract": struct.contract,
        "capacity": struct.capacity,
        "fields": [(name, _annotation(struct, name)) for name in struct.order],
        "attributes": _attributes(struct),
        "signature": _signature(struct),
        "checks": _checks(struct),
        "allocate": allocate,
        "bytes": _bytes(struct) if struct.capacity else [],
    }


def _annotation(struct: StructIR, name: str) -> str:
    value = next((value for value in struct.values if value.name == name), None)
    if value is None or value.kind == "bytes":
        return "torch.Tensor"
    if value.kind == "list":
        return f"Sequence[{value.of}]"
    return f"layout.{value.of}" if value.kind == "enum" else {"int64": "int", "bool": "bool"}[value.kind]


def _attributes(struct: StructIR) -> list[str]:
    lines: list[str] = []
    values = {value.name: value for value in struct.values}
    notes = {"int64": "int", "bool": "bool", "bytes": "any dtype, at least 2-D"}
    for name in struct.order:
        if name in values:
            value = values[name]
            note = notes.get(value.kind) or value.of + (f", at most {value.at_most}" if value.kind == "list" else "")
            lines += wrap(f"{name} ({note}): {value.doc}", 8, hang=4)
            continue
        field = next(field for field in struct.fields if field.name == name)
        shape = ", ".join(axis.text for axis in field.shape)
        lines += wrap(f"{field.name} ({field.dtype} [{shape}]): {prose(field.doc)}", 8, hang=4)
    return lines


def _signature(struct: StructIR) -> list[str]:
    head = invoke("def allocate", "cls", "*", f"{struct.capacity}: int", "device: torch.device | str")
    return statement("", head, 4, f" -> {struct.name}:")


def _checks(struct: StructIR) -> list[str]:
    name, owner = python_string(struct.capacity), python_string(struct.name)
    lines = statement("", invoke("checks.kind", name, struct.capacity, "int"), 8)
    return lines + statement("", invoke("checks.capacity", owner, name, struct.capacity), 8)


def _lengths(field: StructFieldIR) -> list[Code]:
    return [host_code(axis.length) for axis in field.shape]


def _tensor(field: StructFieldIR) -> Code:
    shape = f"[{', '.join(code.flat() for code in _lengths(field))}]"
    options = {"dtype": f"torch.{field.dtype}", "device": "device"}
    if field.init is None:
        return invoke("torch.empty", shape, **options)
    if field.init == 0:
        return invoke("torch.zeros", shape, **options)
    return invoke("torch.full", shape, str(field.init), **options)


def _bytes(struct: StructIR) -> list[str]:
    terms: list[Code] = []
    for field in struct.fields:
        terms.append(operator("*", *_lengths(field), str(_ITEM_BYTES[field.dtype])))
    return statement("return ", operator("+", *terms), 8)
