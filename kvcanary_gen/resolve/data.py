"""Resolves declarations of data: structs and arguments; checks constants."""

from __future__ import annotations

from dataclasses import replace

from kvcanary_gen.diagnostics import Mark
from kvcanary_gen.expr.constants import STORAGE_RANGES
from kvcanary_gen.expr.nodes import Type
from kvcanary_gen.expr.scope import Scope, Variables
from kvcanary_gen.ir import AxisLength, OffsetValues, ScalarArg, StructFieldIR, StructIR, TensorArg, ValueRange
from kvcanary_gen.located import LocatedStr
from kvcanary_gen.resolve.context import Arguments, Context, size_names
from kvcanary_gen.resolve.names import check_attribute, check_name
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
    found: dict[str, StructIR] = {}
    for name, struct in context.document.section("structs").items():
        fields = [f for f in (_field(context, name, struct, field) for field in struct.fields) if f is not None]
        mark = context.document.mark("structs", name, "capacity")
        check_name(context, struct.capacity, mark)
        if struct.capacity in context.constants:
            context.out.add(mark, "KVG-014", f"'{struct.capacity}' is a constant already")
        if len(fields) < len(struct.fields):
            continue
        if not any(axis.dim == struct.capacity for field in fields for axis in field.shape):
            context.out.add(mark, "KVG-031", f"no field of {name} is {struct.capacity} elements long")
        found[name] = StructIR(name, struct.doc, struct.contract, struct.capacity, tuple(fields))
    return found


def _field(context: Context, name: str, struct: Struct, field: str) -> StructFieldIR | None:
    declared = struct.fields[field]
    document = context.document
    check_attribute(context, field, document.mark("structs", name, "fields", field, key=True), struct=True)
    mark = document.mark("structs", name, "fields", field, "type")
    split = context.split_type(context.located(declared.type, mark))
    if split is None:
        return None
    dtype, axes = split
    if axes is None:
        context.out.add(mark, "KVG-030", f"field '{field}' must be a tensor, as in int64[{struct.capacity}]")
        return None
    if declared.init is not None:
        check_fits(context, declared.init, dtype, document.mark("structs", name, "fields", field, "init"))
    shape = [axis for axis in (context.axis(axis, {struct.capacity}) for axis in axes) if axis is not None]
    if any(axis.at_least for axis in shape):
        context.out.add(mark, "KVG-030", f"field '{field}' must have exact lengths")
    if len(shape) < len(axes) or any(axis.at_least for axis in shape):
        return None
    return StructFieldIR(field, dtype, tuple(shape), declared.doc, declared.init)


def resolve_arguments(context: Context, structs: dict[str, StructIR]) -> Arguments:
    """The vocabulary of arguments. Sizes are whatever names the axes use."""
    declared: dict[str, Argument] = context.document.section("arguments")
    splits = {name: _split(context, name, argument) for name, argument in declared.items()}
    texts = [axis for split in splits.values() if split is not None for axis in split[1] or []]
    dims = size_names(texts, context.document.names("constants")) | {struct.capacity for struct in structs.values()}
    scope = _values_scope(context, declared, dims)
    found: Arguments = {}
    for name, argument in declared.items():
        resolved = _Argument(context, name, argument, scope).resolve(splits[name], structs, dims)
        if resolved is not None:
            found[name] = resolved
    return found


Split = tuple[str, list[LocatedStr] | None] | None


def _split(context: Context, name: str, argument: Argument) -> Split:
    if argument.type is None:
        return None
    return context.split_type(context.located(argument.type, context.document.mark("arguments", name, "type")))


def _values_scope(context: Context, declared: dict[str, Argument], dims: set[str]) -> Scope:
    """What bounds of `values` may name: sizes, scalar arguments and constants."""
    variables: Variables = dict.fromkeys(dims, (Type.INT, "dim"))
    variables |= {n: (Type.INT, "scalar") for n, a in declared.items() if a.type is not None and "[" not in a.type}
    scope = context.dims_scope(())
    broken = context.failed("arguments", declared) | context.failed_sizes(declared) | scope.broken
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

    def resolve(self, split: Split, structs: dict[str, StructIR], dims: set[str]) -> TensorArg | ScalarArg | None:
        argument = self.argument
        if (argument.type is None) == (argument.field is None):
            self._fail(self._mark(), "KVG-013", f"'{self.name}' must have either `type` or `field`")
            return None
        found = self._of_field(structs) if argument.type is None else self._of_type(split, dims)
        if argument.values is not None:
            text = self.context.located(argument.values, self._mark("values"))
            values = self.context.values(text, self.scope)
            if found is not None and values is not None:
                found = self._with_values(found, values)
        if isinstance(found, TensorArg):
            check_fits(self.context, argument.outside, found.dtype, self._mark("outside"))
        return found

    def _of_type(self, split: Split, dims: set[str]) -> TensorArg | ScalarArg | None:
        argument = self.argument
        if argument.doc is None:
            self._fail(self._mark(), "KVG-013", f"'{self.name}' must have a `doc`")
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
        return TensorArg(self.name, dtype, tuple(shape), argument.doc or "", argument.optional, argument.outside)

    def _of_field(self, structs: dict[str, StructIR]) -> TensorArg | None:
        mark = self._mark("field")
        struct_name, _, field_name = str(self.argument.field).partition(".")
        struct = structs.get(struct_name)
        if struct is None:
            if struct_name not in self.context.failed("structs", structs):
                self.context.unknown(mark, "struct", struct_name, structs)
            return None
        field = next((f for f in struct.fields if f.name == field_name), None)
        if field is None:
            self.context.unknown(mark, f"field of {struct_name}", field_name, [f.name for f in struct.fields])
            return None
        doc, optional, outside = self.argument.doc or field.doc, self.argument.optional, self.argument.outside
        place = (struct_name, field_name)
        return TensorArg(self.name, field.dtype, field.shape, doc, optional, outside, field=place)

    def _with_values(self, found: TensorArg | ScalarArg, values: ValueRange | OffsetValues) -> TensorArg | ScalarArg:
        if isinstance(found, ScalarArg):
            if isinstance(values, ValueRange):
                return replace(found, values=values)
        elif isinstance(values, ValueRange) or (found.dtype == "int64" and len(found.shape) == 1):
            return replace(found, values=values)
        self._fail(self._mark("values"), "KVG-061", f"'{self.name}' holds no offsets, as it is no 1-D int64 tensor")
        return found
