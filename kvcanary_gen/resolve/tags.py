"""Checks enums, axes and launch tags."""

from __future__ import annotations

import itertools
import math
import re

from kvcanary_gen.diagnostics import suggest
from kvcanary_gen.resolve.context import Context
from kvcanary_gen.resolve.names import check_attribute
from kvcanary_gen.resolve.placeholders import LoneBrace, split_placeholders
from kvcanary_gen.schema.data import TagFamily

# A flag is a bit of an int64 row of the violation ring.
MAX_BIT = 62
MAX_VALUE = (1 << 63) - 1
MAX_TAGS = 4096
MAX_SHOWN = 6


def check_enums(context: Context) -> None:
    for name, enum in context.document.section("enums").items():
        seen: dict[int, str] = {}
        for member, info in enum.members.items():
            check_attribute(context, member, context.document.mark("enums", name, "members", member, key=True))
            mark = context.document.mark("enums", name, "members", member, "value")
            if info.value in seen:
                context.out.add(mark, "KVG-051", f"{member} has the value {info.value} of {seen[info.value]}")
            if enum.kind == "flag" and info.value > MAX_BIT:
                context.out.add(mark, "KVG-051", f"bit {info.value} does not fit an int64 row; use 0 to {MAX_BIT}")
            if info.value > MAX_VALUE:
                context.out.add(mark, "KVG-051", f"{member} does not fit int64")
            seen.setdefault(info.value, member)


def check_tags(context: Context) -> None:
    _check_axes(context)
    for name, family in context.document.section("tags").items():
        for index, number in enumerate(family.numbers):
            check_attribute(context, number, context.document.mark("tags", name, "numbers", index))
        fields = _fields(context, name, family)
        if fields is not None:
            _check_numbers(context, name, family, fields)


def _check_axes(context: Context) -> None:
    document = context.document
    for axis in document.section("axes"):
        check_attribute(context, axis, document.mark("axes", axis))
    stages = document.section("axes")["stage"].values if "stage" in document.section("axes") else {}
    for name, value in stages.items():
        missing = [key for key in ("when", "operations", "buffer") if not getattr(value, key)]
        if missing:
            mark = document.mark("axes", "stage", "values", name, key=True)
            context.out.add(mark, "KVG-013", f"stage {name} must say {', '.join(f'`{key}`' for key in missing)}")
        elif value.buffer not in stages:
            context.unknown(document.mark("axes", "stage", "values", name, "buffer"), "stage", value.buffer, stages)


def _fields(context: Context, name: str, family: TagFamily) -> list[str] | None:
    """The axes that a family's name pattern speaks of, each once; None where it is wrong."""
    axes = context.document.section("axes")
    text = context.located(family.name, context.document.mark("tags", name, "name"))
    before = len(context.out.found)
    fields: list[str] = []
    try:
        for piece in split_placeholders(text):
            mark = text.mark_at(piece.offset)
            if not piece.placeholder:
                if re.fullmatch(r"\w*", piece.text, re.ASCII) is None:
                    context.out.add(mark, "KVG-010", "a tag's name has letters, digits and underscores")
            elif piece.text in fields:
                context.out.add(mark, "KVG-050", f"axis '{piece.text}' stands twice in the name")
            elif piece.text in axes:
                fields.append(piece.text)
            elif piece.text in context.failed("axes", axes):
                return None
            else:
                context.unknown(mark, "axis", piece.text, axes)
    except LoneBrace as error:
        context.out.add(text.mark_at(error.offset), "KVG-010", str(error))
    return fields if len(context.out.found) == before else None


def _check_numbers(context: Context, name: str, family: TagFamily, fields: list[str]) -> None:
    mark = context.document.mark("tags", name, "numbers", key=True)
    values = [list(context.document.section("axes")[field].values) for field in fields]
    count = math.prod(len(names) for names in values)
    if count > MAX_TAGS:
        context.out.add(mark, "KVG-050", f"the axes make {count} tags; at most {MAX_TAGS}")
        return
    combinations = (dict(zip(fields, chosen, strict=True)) for chosen in itertools.product(*values))
    wanted = {family.name.format(**chosen) for chosen in combinations}
    if len(wanted) < count:
        context.out.add(context.document.mark("tags", name, "name"), "KVG-050", "two combinations have one name")
        return
    if wanted.isdisjoint(family.numbers):
        message = f"the name makes tags such as '{min(wanted)}'; none has a number"
        context.out.add(context.document.mark("tags", name, "name"), "KVG-050", message)
        return
    seen: set[str] = set()
    strangers = 0
    for index, number in enumerate(family.numbers):
        place = context.document.mark("tags", name, "numbers", index)
        if number not in wanted:
            strangers += 1
            context.out.add(place, "KVG-050", f"'{number}' is no combination of the axes{suggest(number, wanted)}")
        elif number in seen:
            context.out.add(place, "KVG-050", f"'{number}' has two numbers")
        seen.add(number)
    missing = sorted(wanted - seen)
    # A misspelt tag is missing, too, but that is one mistake.
    if len(missing) > strangers:
        shown = ", ".join(missing[:MAX_SHOWN]) + (
            f" and {len(missing) - MAX_SHOWN} more" if len(missing) > MAX_SHOWN else ""
        )
        context.out.add(mark, "KVG-050", f"no number for {shown}; append to `numbers`")
