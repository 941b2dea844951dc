"""Records, enums and the constants that layouts imply, as expressions see them."""

from __future__ import annotations

from kvcanary_gen.expr.nodes import Type
from kvcanary_gen.load import Document


def layout_constants(document: Document) -> dict[str, tuple[Type, int]]:
    """Index of every field, and length and bytes of every record, by the names that the package exports."""
    found: dict[str, tuple[Type, int]] = {}
    for name, layout in document.section("layouts").items():
        for index, field in enumerate(layout.fields):
            found[field_constant(layout.prefix, field)] = (Type.INT, index)
        found[f"{name.upper()}_NUM_FIELDS"] = (Type.INT, len(layout.fields))
        found[f"{name.upper()}_BYTES"] = (Type.INT, 8 * len(layout.fields))
    return found


def implied_names(name: str, given: object) -> set[str]:
    """Names of the constants that a layout with errors would imply, as far as it can be read."""
    fields = given.get("fields") if isinstance(given, dict) else None
    prefix = given.get("prefix") if isinstance(given, dict) else None
    found = {field_constant(str(prefix), str(field)) for field in fields} if isinstance(fields, dict) else set()
    return found | {f"{name.upper()}_NUM_FIELDS", f"{name.upper()}_BYTES"}


def field_constant(prefix: str, field: str) -> str:
    return f"{prefix}_{field.upper()}"


def record_fields(document: Document, layout: str) -> dict[str, tuple[Type, str]]:
    """Type of each field, and the name of its index."""
    declared = document.section("layouts")[layout]
    return {f: (Type(info.type), field_constant(declared.prefix, f)) for f, info in declared.fields.items()}


def enum_members(document: Document) -> dict[str, int]:
    """Value of every member as 'Enum.MEMBER'; of a flag, its bit."""
    found: dict[str, int] = {}
    for name, enum in document.section("enums").items():
        for member, info in enum.members.items():
            found[f"{name}.{member}"] = 1 << info.value if enum.kind == "flag" else int(info.value)
    return found
