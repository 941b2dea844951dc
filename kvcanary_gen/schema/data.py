"""Declarations of data: constants, layouts, enums, axes, tags, structs, arguments."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, StrictBool, StrictInt

from kvcanary_gen.schema.text import Doc, Expr, FieldPath, Name, SpecModel, Text, TypeText


class Constant(SpecModel):
    """A number with a name, visible in every expression and exported by the package."""

    type: Literal["int64", "uint64"] = "int64"
    value: StrictInt
    doc: Doc


class LayoutField(SpecModel):
    """One 8-byte word of a record."""

    type: Literal["int64", "uint64"] = "int64"
    doc: Doc
    role: Literal["tag", "slot", "position"] | None = Field(
        default=None, description="What the runtime takes the field of a violation row for; it has one of each."
    )
    unknown: StrictInt | None = Field(default=None, description="A value that says that nothing is known.")


class Layout(SpecModel):
    """A record in device memory: fields in order; sizes and offsets are derived."""

    doc: Doc
    prefix: Name = Field(description="Prefix of the exported index constants, e.g. CANARY_FIELD.")
    fields: dict[Name, LayoutField] = Field(min_length=1)


class EnumMember(SpecModel):
    """A member; the value is a bit number in a flag enum."""

    value: StrictInt = Field(ge=0)
    doc: Doc
    cause: Doc | None = Field(default=None, description="What usually brings it about, for who reads a report.")


class Enum(SpecModel):
    """An enumeration exported by the package."""

    doc: Doc
    kind: Literal["int", "flag"]
    members: dict[Name, EnumMember] = Field(min_length=1)


class AxisValue(SpecModel):
    """One value of an axis. The stage axis also says when it runs and what it does."""

    doc: Doc
    when: Literal["before", "after", "periodic"] | None = None
    operations: tuple[Literal["verify", "write"], ...] = ()
    buffer: Name | None = Field(default=None, description="Stage whose buffer this one works on.")
    real_kv: StrictBool = Field(default=True, description="Whether real KV bytes are hashed.")


class Axis(SpecModel):
    """One direction in which launches differ."""

    doc: Doc
    values: dict[Name, AxisValue] = Field(min_length=1)


class TagFamily(SpecModel):
    """Launch tags: the product of the axes, with fixed numbers."""

    doc: Doc
    name: Text = Field(description="Pattern over axis names, e.g. {stage}_{half}_{group}.")
    numbers: tuple[Name, ...] = Field(min_length=1, description="Tag names; the place is the number.")


class StructField(SpecModel):
    """A tensor of a struct."""

    type: TypeText
    doc: Doc
    init: StrictInt | None = Field(default=None, description="Value after allocate(); uninitialised when missing.")
    record: Name | None = Field(default=None, description="Layout of each row; the tensor is then read by fields.")
    at_least: StrictInt | None = Field(default=None, description="Least value of a number.")
    at_most: Name | None = Field(default=None, description="Field of the same struct that a number must not exceed.")
    multiple_of: StrictInt | None = Field(default=None, ge=1, description="What divides a number, or a row's bytes.")


class Struct(SpecModel):
    """Device tensors that travel together, sized by one capacity."""

    doc: Doc
    contract: Doc = ""
    capacity: Name | None = Field(default=None, description="Name of the size that allocation takes, if any.")
    table: Name | None = Field(
        default=None, description="Class that holds any number of them on the device, byte sources at any alignment."
    )
    fields: dict[Name, StructField] = Field(min_length=1)


class Argument(SpecModel):
    """A kernel argument: a tensor, a scalar, or a struct's field."""

    type: TypeText | None = None
    field: FieldPath | None = Field(default=None, description="Struct.field whose type and meaning the argument has.")
    doc: Doc | None = None
    optional: StrictBool = False
    record: Name | None = Field(default=None, description="Layout of each row; the tensor is then read by fields.")
    outside: StrictInt = Field(default=0, description="What a load outside the tensor reads.")
    values: Expr | None = Field(
        default=None, description="Valid values: 'LOW .. HIGH', or 'offsets of N up to M'. Tests draw from them."
    )
