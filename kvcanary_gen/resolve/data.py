"""Resolves declarations of data: structs and arguments; checks constants."""

from __future__ import annotations

from dataclasses import replace

from kvcanary_gen.diagnostics import Mark
from kvcanary_gen.expr.constants import STORAGE_RANGES
from kvcanary_gen.expr.nodes import Type
from kvcanary_gen.expr.scope import Scope, Variables
from kvcanary_gen.ir import (
    AxisLength,
    OffsetValues,
    ScalarArg,
    SourcesArg,
    StructFieldIR,
    StructIR,
    StructValueIR,
    TensorArg,
    ValueRange,
)
from kvcanary_gen.located import LocatedStr
from kvcanary_gen.resolve.context import Arguments, Context, size_names
from kvcanary_gen.resolve.names import check_attribute, check_name
from kvcanary_gen.resolve.struct_values import TENSOR_KEYS, check_keys, holds_lists, is_value_type, resolve_value
from kvcanary_gen.schema.data import Argument, Struct

Values = ValueRange | OffsetValues | None


def check_fits(context: Context, value: int, dtype: str, mark: Mark) -> bool:
    low, high = STORAGE_RANGES[dtype]
    if not low <= value <= high:
        context.out.add(mark, "KVG-027", f"{value} does not fit {dtype}")
        return False
    return True


def check_constants(context: Context) -> None:
    for name, constant in context.document.section("constants").items():
        check_fits(context, constant.value, constant.type, context.document.mark("constants", name, "value"))


def resolve_structs(context: Context) -> dict[str, StructIR]:
    declared: dict[str, Struct] = context.document.section("structs")
    found: dict[str, StructIR] = {}
    # Elements of lists before the structs that list them.
    for name, struct in sorted(declared.items(), key=lambda item: holds_lists(item[1])):
        for field in struct.fields:
            check_attribute(
                context, field, context.document.mark("structs", name, "fields", field, key=True), struct=True
            )
        plain = [field for field, info in struct.fields.items() if not is_value_type(context, str(info.type))]
        fields = [f for f in (_field(context, name, struct, field) for field in plain) if f is not None]
        others = [resolve_value(context, name, struct, field, found) for field in struct.fields if field not in plain]
        values, order = tuple(value for value in others if value is not None), tuple(struct.fields)
        if struct.capacity is None:
            if len(fields) + len(values) == len(struct.fields):
                table = _table(context, name, struct, values)
                found[name] = StructIR(name, struct.doc, struct.contract, "", tuple(fields), values, order, table)
            continue
        for value in values:
            place = context.document.mark("structs", name, "fields", value.name, "type")
            context.out.add(place, "KVG-030", f"'{value.name}' must be a tensor; {name} is allocated by its capacity")
        mark = context.document.mark("structs", name, "capacity")
        check_name(context, struct.capacity, mark)
        if struct.capacity in context.constants:
            context.out.add(mark, "KVG-014", f"'{struct.capacity}' is a constant already")
        if len(fields) < len(struct.fields):
            continue
        if not any(axis.dim == struct.capacity for field in fields for axis in field.shape):
            context.out.add(mark, "KVG-031", f"no field of {name} is {struct.capacity} elements long")
        found[name] = StructIR(name, struct.doc, struct.contract, struct.capacity, tuple(fields), (), order)
    return {name: found[name] for name in declared if name in found}


def _table(context: Context, name: str, struct: Struct, values: tuple[StructValueIR, ...]) -> str:
    """Name of the class that holds any number of the struct, if it has one."""
    if struct.table is None:
        return ""
    mark = context.document.mark("structs", name, "table")
    taken = next((s for s in ("structs", "enums", "tags") if struct.table in context.document.names(s)), None)
    if taken is not None:
        context.out.add(mark, "KVG-014", f"'{struct.table}' is declared already under `{taken}`")
    elif check_name(context, struct.table, mark) and not any(value.kind == "bytes" for value in values):
        operations = context.document.section("operations").values()
        if not any(taken.many and taken.type == name for o in operations for taken in o.structs.values()):
            message = f"a table holds byte sources, or structs of which an operation takes many, and {name} is neither"
            context.out.add(mark, "KVG-030", message)
    return struct.table


def _field(context: Context, name: str, struct: Struct, field: str) -> StructFieldIR | None:
    declared = struct.fields[field]
    document = context.document
    mark = document.mark("structs", name, "fields", field, "type")
    split = context.split_type(context.located(declared.type, mark))
    if split is None:
        return None
    dtype, axes = split
    if axes is None:
        context.out.add(mark, "KVG-030", f"field '{field}' must be a tensor, as in {dtype}[{struct.capacity or 1}]")
        return None
    check_keys(context, name, struct, field, TENSOR_KEYS, f"and '{field}' is a tensor")
    if declared.init is not None:
        check_fits(context, declared.init, dtype, document.mark("structs", name, "fields", field, "init"))
    dims = {struct.capacity} if struct.capacity is not None else size_names(axes, context.constant_names)
    shape = [axis for axis in (context.axis(axis, dims) for axis in axes) if axis is not None]
    allocated = struct.capacity is not None
    if allocated and any(axis.at_least for axis in shape):
        context.out.add(mark, "KVG-030", f"field '{field}' must have exact lengths")
    if len(shape) < len(axes) or (allocated and any(axis.at_least for axis in shape)):
        return None
    marks = (mark, document.mark("structs", name, "fields", field, "record"))
    if declared.record is not None and not check_record(context, marks, field, declared.record, dtype, shape):
        return None
    return StructFieldIR(field, dtype, tuple(shape), declared.doc, declared.init, declared.record)


def check_record(
    context: Context, marks: tuple[Mark, Mark], name: str, record: str, dtype: str, shape: list[AxisLength]
) -> bool:
    """A tensor of records has rows of int64 words, or of bytes, and the last axis says of how many.

    `marks` are the places of its type and of its record.
    """
    layouts = context.document.section("layouts")
    if record not in layouts:
        if record not in context.failed("layouts", layouts):
            context.unknown(marks[1], "layout", record, layouts)
        return False
    unit = {"int64": "NUM_FIELDS", "uint8": "BYTES"}.get(dtype)
    last = shape[-1].length if shape else None
    if unit is None or len(shape) < 2 or getattr(last, "name", None) != f"{record.upper()}_{unit}":
        upper = record.upper()
        message = f"'{name}' must end in an axis {upper}_NUM_FIELDS of int64, or {upper}_BYTES of uint8"
        context.out.add(marks[0], "KVG-044", message)
        return False
    return True


def resolve_arguments(context: Context, structs: dict[str, StructIR]) -> Arguments:
    """The vocabulary of arguments. Sizes are whatever names the axes use."""
    declared: dict[str, Argument] = context.document.section("arguments")
    splits = {name: _split(context, name, argument) for name, argument in declared.items()}
    texts = [axis for split in splits.values() if split is not None for axis in split[1] or []]
    dims = size_names(texts, context.constant_names)
    dims |= {struct.capacity for struct in structs.values() if struct.capacity}
    dims |= {axis.dim for struct in structs.values() for f in struct.fields for axis in f.shape if axis.dim is not None}
    scope = _values_scope(context, declared, structs, dims)
    found: Arguments = {}
    for name, argument in declared.items():
        resolved = _Argument(context, name, argument, scope).resolve(splits[name], structs, dims)
        if resolved is not None:
            found[name] = resolved
    return found


Split = tuple[str, list[LocatedStr] | None] | None


def _split(context: Context, name: str, argument: Argument) -> Split:
    if argument.type is None or _is_static_type(context, argument.type):
        return None
    return context.split_type(context.located(argument.type, context.document.mark("arguments", name, "type")))


def _is_static_type(context: Context, type_: str) -> bool:
    return type_ == "bool" or type_ in context.document.names("enums")


def _values_scope(
    context: Context, declared: dict[str, Argument], structs: dict[str, StructIR], dims: set[str]
) -> Scope:
    """What bounds of `values` may name: sizes, scalar arguments and constants."""
    variables: Variables = dict.fromkeys(dims, (Type.INT, "dim"))
    variables |= {n: (Type.INT, "scalar") for n, a in declared.items() if a.type is not None and "[" not in a.type}
    scope = context.dims_scope(())
    broken = context.failed("arguments", declared) | context.failed_sizes(declared, structs) | scope.broken
    return replace(scope, variables=variables, broken=broken)


class _Argument:
    """One argument being resolved."""

    def __init__(self, context: Context, name: str, argument: Argument, scope: Scope) -> None:
        self.context = context
        self.name = name
        self.argument = argument
        self.scope = scope

    def _mark(self, *path: str) -> Mark:
        return self.context.document.mark("arguments", self.name, *path)

    def _fail(self, mark: Mark, rule: str, message: str) -> None:
        self.context.out.add(mark, rule, message)

    def resolve(
        self, split: Split, structs: dict[str, StructIR], dims: set[str]
    ) -> TensorArg | ScalarArg | SourcesArg | None:
        argument = self.argument
        if (argument.type is None) == (argument.field is None):
            self._fail(self._mark(), "KVG-013", f"'{self.name}' must have either `type` or `field`")
            return None
        found = self._of_field(structs) if argument.type is None else self._of_type(split, dims)
        if argument.values is not None:
            text = self.context.located(argument.values, self._mark("values"))
            values = self.context.values(text, self.scope)
            if found is not None and values is not None and not isinstance(found, SourcesArg):
                found = self._with_values(found, values)
        if isinstance(found, TensorArg):
            check_fits(self.context, argument.outside, found.dtype, self._mark("outside"))
        return found

    def _of_type(self, split: Split, dims: set[str]) -> TensorArg | ScalarArg | None:
        argument = self.argument
        if argument.doc is None:
            self._fail(self._mark(), "KVG-013", f"'{self.name}' must have a `doc`")
        if argument.type is not None and _is_static_type(self.context, argument.type):
            if argument.optional:
                self._fail(self._mark("optional"), "KVG-030", f"scalar '{self.name}' is never missing")
            enum = None if argument.type == "bool" else str(argument.type)
            return ScalarArg(self.name, Type.BOOL if enum is None else Type.INT, argument.doc or "", enum=enum)
        if split is None:
            return None
        dtype, axes = split
        if axes is None:
            if dtype != "int64" or argument.optional:
                self._fail(
                    self._mark("type"), "KVG-030", f"scalar '{self.name}' must be a plain int64 that is never missing"
                )
            return ScalarArg(self.name, Type.INT, argument.doc or "")
        shape: list[AxisLength] = [a for a in (self.context.axis(axis, dims) for axis in axes) if a is not None]
        if len(shape) < len(axes):
            return None
        record = argument.record
        marks = (self._mark("type"), self._mark("record"))
        if record is not None and not check_record(self.context, marks, self.name, record, dtype, shape):
            return None
        return TensorArg(
            self.name, dtype, tuple(shape), argument.doc or "", argument.optional, argument.outside, record=record
        )

    def _of_field(self, structs: dict[str, StructIR]) -> TensorArg | ScalarArg | SourcesArg | None:
        mark = self._mark("field")
        struct_name, _, field_name = str(self.argument.field).partition(".")
        struct = structs.get(struct_name)
        if struct is None:
            if struct_name not in self.context.failed("structs", structs):
                self.context.unknown(mark, "struct", struct_name, structs)
            return None
        value = next((v for v in struct.values if v.name == field_name), None)
        if value is not None:
            return value_argument(self.name, self.argument.doc or value.doc, struct_name, value)
        field = next((f for f in struct.fields if f.name == field_name), None)
        if field is None:
            self.context.unknown(mark, f"field of {struct_name}", field_name, struct.order)
            return None
        doc, optional, outside = self.argument.doc or field.doc, self.argument.optional, self.argument.outside
        place = (struct_name, field_name)
        return TensorArg(self.name, field.dtype, field.shape, doc, optional, outside, field=place, record=field.record)

    def _with_values(self, found: TensorArg | ScalarArg, values: ValueRange | OffsetValues) -> TensorArg | ScalarArg:
        if isinstance(found, ScalarArg):
            if isinstance(values, ValueRange):
                return replace(found, values=values)
        elif isinstance(values, ValueRange) or (found.dtype == "int64" and len(found.shape) == 1):
            return replace(found, values=values)
        self._fail(self._mark("values"), "KVG-061", f"'{self.name}' holds no offsets, as it is no 1-D int64 tensor")
        return found


def value_argument(name: str, doc: str, struct: str, value: StructValueIR) -> ScalarArg | SourcesArg:
    """A kernel argument that a struct supplies and that is no plain tensor."""
    place = (struct, value.name)
    if value.kind == "list":
        return SourcesArg(name, value.of, value.at_most or 0, doc, place)
    type_ = Type.BOOL if value.kind == "bool" else Type.INT
    return ScalarArg(name, type_, doc, field=place, enum=value.of or None)
