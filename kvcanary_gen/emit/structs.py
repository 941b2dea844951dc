"""Structs as frozen dataclasses that allocate themselves."""

from __future__ import annotations

from kvcanary_gen.emit.code import Code, invoke, operator, statement
from kvcanary_gen.emit.frames import render, wrap
from kvcanary_gen.emit.torch_expr import TorchBlock
from kvcanary_gen.ir import Program, StructFieldIR, StructIR

_ITEM_BYTES = {"int32": 4, "int64": 8, "uint64": 8, "uint8": 1}


def emit_structs(program: Program) -> str:
    structs = [_struct(struct) for struct in program.structs.values()]
    text = "\n".join(line for struct in structs for line in (*struct["allocate"], *struct["bytes"]))  # type: ignore[misc]
    return render("structs.py.j2", structs=structs, layout="layout." in text)


def _struct(struct: StructIR) -> dict[str, object]:
    allocate: list[str] = []
    for field in struct.fields:
        allocate += statement(f"{field.name}=", _tensor(field), 12, ",")
    return {
        "name": struct.name,
        "doc": struct.doc,
        "contract": struct.contract,
        "capacity": struct.capacity,
        "fields": struct.fields,
        "attributes": _attributes(struct),
        "allocate": allocate,
        "bytes": _bytes(struct),
    }


def _attributes(struct: StructIR) -> list[str]:
    lines: list[str] = []
    for field in struct.fields:
        shape = ", ".join(axis.text for axis in field.shape)
        lines += wrap(f"{field.name} ({field.dtype} [{shape}]): {field.doc}", 8, hang=4)
    return lines


def _lengths(field: StructFieldIR) -> list[Code]:
    reader = TorchBlock(tensors={}, functions={})
    return [reader.value(axis.length) for axis in field.shape]


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
