"""Pydantic models of the spec language."""

from __future__ import annotations

from pydantic import Field

from kvcanary_gen.schema.checks import Fold
from kvcanary_gen.schema.code import Errors, Function, Fusion, Invariants, Kernel, Operation
from kvcanary_gen.schema.data import Argument, Axis, Constant, Enum, Layout, Struct, TagFamily
from kvcanary_gen.schema.text import Doc, Name, SpecModel, Text


class Header(SpecModel):
    """The spec's identity, in the root file alone."""

    version: str = Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")
    package: Name
    message_prefix: Text
    doc: Doc


class SpecFile(SpecModel):
    """One file of the spec; every section may stand in any file."""

    spec: Header | None = None
    include: tuple[Text, ...] = ()
    constants: dict[Name, Constant] = Field(default_factory=dict)
    layouts: dict[Name, Layout] = Field(default_factory=dict)
    enums: dict[Name, Enum] = Field(default_factory=dict)
    axes: dict[Name, Axis] = Field(default_factory=dict)
    tags: dict[Name, TagFamily] = Field(default_factory=dict)
    structs: dict[Name, Struct] = Field(default_factory=dict)
    dims: dict[Name, Doc] = Field(default_factory=dict)
    arguments: dict[Name, Argument] = Field(default_factory=dict)
    functions: dict[Name, Function] = Field(default_factory=dict)
    folds: dict[Name, Fold] = Field(default_factory=dict)
    kernels: dict[Name, Kernel] = Field(default_factory=dict)
    fusions: dict[Name, Fusion] = Field(default_factory=dict)
    operations: dict[Name, Operation] = Field(default_factory=dict)
    invariants: Invariants = Field(default_factory=dict)
    errors: Errors = Field(default_factory=dict)


SECTIONS = (
    "constants",
    "layouts",
    "enums",
    "axes",
    "tags",
    "structs",
    "dims",
    "arguments",
    "functions",
    "folds",
    "kernels",
    "fusions",
    "operations",
    "invariants",
    "errors",
)
