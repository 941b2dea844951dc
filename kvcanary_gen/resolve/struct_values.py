"""Fields of structs that are no plain tensors: numbers, flags, enums, raw bytes, lists of structs."""

from __future__ import annotations

import re
from collections.abc import Container

from kvcanary_gen.ir import StructValueIR
from kvcanary_gen.resolve.context import Context
from kvcanary_gen.schema.data import Struct

_LIST = re.compile(r"(\w+)\s*\[\s*<=\s*(\w+)\s*\]\Z")


def is_value_type(context: Context, text: str) -> bool:
    """Whether a field's type is one of those that this module reads."""
    return (
        text in ("int64", "bool", "bytes")
        or text in context.document.names("enums")
        or ((match := _LIST.match(text)) is not None and match.group(1) in context.document.names("structs"))
    )


def holds_lists(struct: Struct) -> bool:
    return any(_LIST.match(str(field.type)) for field in struct.fields.values())


def resolve_value(
    context: Context, name: str, struct: Struct, field: str, resolved: Container[str]
) -> StructValueIR | None:
    """Resolves a field of `struct`; `resolved` are the structs without lists that have no errors."""
    declared = struct.fields[field]
    mark = context.document.mark("structs", name, "fields", field)
    text = str(declared.type)
    for key in ("init", "record"):
        if getattr(declared, key) is not None:
            context.out.add(mark, "KVG-030", f"'{key}' belongs to a tensor, and '{field}' is none")
    sibling = declared.at_most
    if sibling is not None and (sibling not in struct.fields or str(struct.fields[sibling].type) != "int64"):
        context.out.add(mark, "KVG-030", f"`at_most` names an int64 field of {name}, not '{sibling}'")
    match = _LIST.match(text)
    if match is None:
        kind = text if text in ("int64", "bool", "bytes") else "enum"
        return StructValueIR(
            field,
            kind,  # type: ignore[arg-type]
            declared.doc,
            of=text if kind == "enum" else "",
            at_least=declared.at_least,
            at_most_field=sibling,
            multiple_of=declared.multiple_of,
        )
    limit = match.group(2)
    constants = context.constants
    if not limit.isdigit() and limit not in constants:
        if limit not in context.failed_constants:
            context.unknown(mark, "constant", limit, list(constants))
        return None
    count = int(limit) if limit.isdigit() else constants[limit][1]
    element = context.document.section("structs").get(match.group(1))
    if element is None or (match.group(1) not in resolved and not holds_lists(element)):
        return None
    if sum(str(f.type) == "bytes" for f in element.fields.values()) != 1 or not all(
        str(f.type) in ("bytes", "int64") for f in element.fields.values()
    ):
        context.out.add(
            mark, "KVG-030", f"{match.group(1)} must hold one `bytes` field, and int64 fields, to be listed"
        )
        return None
    return StructValueIR(field, "list", declared.doc, of=match.group(1), at_most=count)
