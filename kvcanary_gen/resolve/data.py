"""Resolves declarations of data: structs and arguments; checks enums, tags and names."""

from __future__ import annotations

import itertools
import keyword
import string

from kvcanary_gen.diagnostics import Mark, suggest
from kvcanary_gen.expr.nodes import Type
from kvcanary_gen.expr.scope import BUILTINS, Scope
from kvcanary_gen.ir import AxisLength, OffsetValues, ScalarArg, StructFieldIR, StructIR, TensorArg, ValueRange
from kvcanary_gen.resolve.context import Context, size_names
from kvcanary_gen.schema.data import Argument, Struct
from kvcanary_gen.source import LocatedStr

RESERVED = frozenset(
    {"tl", "triton", "torch", "len", "op", "self", "device", "backend", "mask", "range", "int", "bool", "math"}
) | set(BUILTINS)

Arguments = dict[str, TensorArg | ScalarArg]
Values = ValueRange | OffsetValues | None


def check_names(context: Context) -> None:
    """Names that the generated code could not carry, and names that two sections would export."""
    document = context.document
    exported: dict[str, str] = {}
    for section in ("constants", "enums", "tags", "structs", "functions", "kernels", "operations", "arguments", "dims"):
        for name in document.section(section):
            mark = document.mark(section, name)
            check_name(context, name, mark)
            if section in ("constants", "enums", "tags", "structs", "functions"):
                if name in exported:
                    context.out.add(mark, "KVG-014", f"'{name}' is declared already under `{exported[name]}`")
                exported.setdefault(name, section)
    for name, constant in document.section("constants").items():
        low, high = (0, (1 << 64) - 1) if constant.type == "uint64" else (-(1 << 63), (1 << 63) - 1)
        if not low <= constant.value <= high:
            mark = document.mark("constants", name, "value")
            context.out.add(mark, "KVG-027", f"{constant.value} does not fit {constant.type}")


def check_name(context: Context, name: str, mark: Mark) -> None:
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        context.out.add(mark, "KVG-015", f"'{name}' is a Python keyword")
    elif name in RESERVED:
        context.out.add(mark, "KVG-015", f"'{name}' is taken by the language")
    elif name.startswith("_") or "__" in name:
        context.out.add(mark, "KVG-015", f"'{name}' begins with '_' or holds '__', which generated names use")


def check_enums(context: Context) -> None:
    for name, enum in context.document.section("enums").items():
        seen: dict[int, str] = {}
        for member, info in enum.members.items():
            mark = context.document.mark("enums", name, "members", member)
            if info.value in seen:
                context.out.add(mark, "KVG-051", f"{member} has the value {info.value} of {seen[info.value]}")
            if enum.kind == "flag" and info.value > 62:
                context.out.add(mark, "KVG-051", f"bit {info.value} does not fit an int64 row; use 0 to 62")
            seen.setdefault(info.value, member)


def check_tags(context: Context) -> None:
    axes = context.document.section("axes")
    stages = axes["stage"].values if "stage" in axes else {}
    for name, value in stages.items():
        mark = context.document.mark("axes", "stage", "values", name)
        if value.when is None or not value.operations or value.buffer is None:
            context.out.add(mark, "KVG-013", f"stage {name} must say `when`, `operations` and `buffer`")
        elif value.buffer not in stages:
            context.unknown(mark, "stage", value.buffer, list(stages))
    for name, family in context.document.section("tags").items():
        mark = context.document.mark("tags", name, "name")
        try:
            fields = [field for _, field, _, _ in string.Formatter().parse(family.name) if field is not None]
        except ValueError as error:
            context.out.add(mark, "KVG-010", f"name: {error}")
            continue
        unknown = [field for field in fields if field not in axes]
        for field in unknown:
            context.unknown(mark, "axis", field, list(axes))
        if unknown:
            continue
        product = itertools.product(*(axes[field].values for field in fields))
        wanted = {family.name.format(**dict(zip(fields, values, strict=True))) for values in product}
        _check_numbers(context, name, wanted, family.numbers)


def _check_numbers(context: Context, name: str, wanted: set[str], numbers: tuple[str, ...]) -> None:
    seen: set[str] = set()
    for index, number in enumerate(numbers):
        mark = context.document.mark("tags", name, "numbers", index)
        if number not in wanted:
            context.out.add(mark, "KVG-050", f"'{number}' is no combination of the axes{suggest(number, wanted)}")
        elif number in seen:
            context.out.add(mark, "KVG-050", f"'{number}' has two numbers")
        seen.add(number)
    missing = sorted(wanted - seen)
    if missing:
        mark = context.document.mark("tags", name, "numbers", key=True)
        context.out.add(mark, "KVG-050", f"no number for {', '.join(missing)}; append them to `numbers`")


def resolve_structs(context: Context) -> dict[str, StructIR]:
    found: dict[str, StructIR] = {}
    for name, struct in context.document.section("structs").items():
        fields = [f for f in (_field(context, name, struct, field) for field in struct.fields) if f is not None]
        check_name(context, struct.capacity, context.document.mark("structs", name, "capacity"))
        if fields and not any(axis.dim == struct.capacity for field in fields for axis in field.shape):
            mark = context.document.mark("structs", name, "capacity")
            context.out.add(mark, "KVG-031", f"no field of {name} is {struct.capacity} elements long")
        if len(fields) == len(struct.fields):
            found[name] = StructIR(name, struct.doc, struct.contract, struct.capacity, tuple(fields))
    return found


def _field(context: Context, name: str, struct: Struct, field: str) -> StructFieldIR | None:
    declared = struct.fields[field]
    mark = context.document.mark("structs", name, "fields", field)
    check_name(context, field, mark)
    split = context.split_type(context.located(declared.type, mark))
    if split is None:
        return None
    dtype, axes = split
    if axes is None:
        context.out.add(mark, "KVG-030", f"field '{field}' must be a tensor, as in int64[{struct.capacity}]")
        return None
    shape = [context.axis(axis, {struct.capacity}) for axis in axes]
    exact = [axis for axis in shape if axis is not None and not axis.at_least]
    if len(exact) != len(axes):
        if all(axis is not None for axis in shape):
            context.out.add(mark, "KVG-030", f"field '{field}' must have exact lengths")
        return None
    return StructFieldIR(field, dtype, tuple(exact), declared.doc, declared.init)


def resolve_arguments(context: Context, structs: dict[str, StructIR]) -> Arguments:
    """The vocabulary of arguments. Sizes are whatever names the axes use."""
    document = context.document
    constants = set(context.constants())
    declared: dict[str, Argument] = document.section("arguments")
    texts: list[LocatedStr] = []
    for name, argument in declared.items():
        if argument.type is not None:
            split = context.split_type(context.located(argument.type, document.mark("arguments", name)))
            texts += (split[1] or []) if split else []
    dims = size_names(texts, constants) | {struct.capacity for struct in structs.values()}
    scalars = {n: (Type.INT, "scalar") for n, a in declared.items() if a.type is not None and "[" not in a.type}
    scope = context.dims_scope(dims - set(scalars))
    scope = Scope({**scope.variables, **scalars}, scope.constants, host=True)  # type: ignore[dict-item]
    found: Arguments = {}
    for name, argument in declared.items():
        resolved = _argument(context, name, argument, structs, dims, scope)
        if resolved is not None:
            found[name] = resolved
    return found


def _argument(
    context: Context, name: str, argument: Argument, structs: dict[str, StructIR], dims: set[str], scope: Scope
) -> TensorArg | ScalarArg | None:
    mark = context.document.mark("arguments", name)
    values = None
    if argument.values is not None:
        values = context.values(context.located(argument.values, mark), scope)
    if (argument.type is None) == (argument.field is None):
        context.out.add(mark, "KVG-013", f"'{name}' must have either `type` or `field`")
        return None
    if argument.type is None:
        return _field_argument(context, name, argument, structs, values)
    if argument.doc is None:
        context.out.add(mark, "KVG-013", f"'{name}' must have a `doc`")
        return None
    split = context.split_type(context.located(argument.type, mark))
    if split is None:
        return None
    dtype, axes = split
    if axes is None:
        if dtype != "int64" or argument.optional or isinstance(values, OffsetValues):
            context.out.add(mark, "KVG-030", f"scalar '{name}' must be a plain int64 that is never missing")
            return None
        return ScalarArg(name, Type.INT, argument.doc, values)
    shape = [context.axis(axis, dims) for axis in axes]
    known: list[AxisLength] = [axis for axis in shape if axis is not None]
    if len(known) != len(shape):
        return None
    return TensorArg(name, dtype, tuple(known), argument.doc, argument.optional, argument.outside, values)


def _field_argument(
    context: Context, name: str, argument: Argument, structs: dict[str, StructIR], values: Values
) -> TensorArg | None:
    mark = context.document.mark("arguments", name, "field")
    struct_name, _, field_name = str(argument.field).partition(".")
    struct = structs.get(struct_name)
    if struct is None:
        if struct_name not in context.document.section("structs"):
            context.unknown(mark, "struct", struct_name, list(structs))
        return None
    field = next((f for f in struct.fields if f.name == field_name), None)
    if field is None:
        context.unknown(mark, f"field of {struct_name}", field_name, [f.name for f in struct.fields])
        return None
    return TensorArg(
        name,
        field.dtype,
        field.shape,
        argument.doc or field.doc,
        argument.optional,
        argument.outside,
        values,
        (struct_name, field_name),
    )
