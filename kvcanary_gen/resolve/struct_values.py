"""Fields of structs that are no plain tensors: numbers, flags, enums, raw bytes, lists of structs."""

from __future__ import annotations

import re
from collections.abc import Container

from kvcanary_gen.ir import StructValueIR
from kvcanary_gen.resolve.context import Context
from kvcanary_gen.schema.data import Struct

MAX_LISTED = 64
# Keys that only go with some types of fields, and what these are.
_OWNERS = {"init": "a tensor", "record": "a tensor", "at_least": "a number", "at_most": "a number"}
_OWNERS["multiple_of"] = "a number, or bytes"
TENSOR_KEYS = ("init", "record")
_KEYS = {"int64": ("at_least", "at_most", "multiple_of"), "bytes": ("multiple_of",)}

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
    mark = context.document.mark("structs", name, "fields", field, "type")
    text = str(declared.type)
    check_keys(context, name, struct, field, _KEYS.get(text, ()), f"and '{field}' is none")
    sibling = declared.at_most
    known = [other for other, info in struct.fields.items() if str(info.type) == "int64" and other != field]
    if sibling is not None and text == "int64" and sibling not in known:
        place = context.document.mark("structs", name, "fields", field, "at_most")
        context.unknown(place, f"number of {name}", sibling, known)
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
    if not limit.isdecimal() and limit not in constants:
        if limit not in context.failed_constants:
            context.unknown(mark, "constant", limit, constants)
        return None
    count = int(limit) if limit.isdecimal() else constants[limit][1]
    if not 1 <= count <= MAX_LISTED:
        context.out.add(mark, "KVG-030", f"a list holds at most 1 to {MAX_LISTED} structs, not {limit}")
        return None
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


def check_keys(context: Context, name: str, struct: Struct, field: str, good: Container[str], otherwise: str) -> None:
    """Reports keys of a field that do not go with its type."""
    for key, owner in _OWNERS.items():
        if key in struct.fields[field].model_fields_set and key not in good:
            mark = context.document.mark("structs", name, "fields", field, key, key=True)
            context.out.add(mark, "KVG-030", f"`{key}` belongs to {owner}, {otherwise}")
