"""Pydantic models of the spec language."""

from __future__ import annotations

from pydantic import Field

from kvcanary_gen.schema.code import Function, Invariants, Kernel, Operation
from kvcanary_gen.schema.data import Argument, Axis, Constant, Enum, Layout, Struct, TagFamily
from kvcanary_gen.schema.text import Doc, Name, SpecModel


class Header(SpecModel):
    """The spec's identity, in the root file alone."""

    version: str = Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")
    package: Name
    message_prefix: Doc
    doc: Doc


class SpecFile(SpecModel):
    """One file of the spec; every section may stand in any file."""

    spec: Header | None = None
    include: tuple[str, ...] = ()
    constants: dict[Name, Constant] = {}
    layouts: dict[Name, Layout] = {}
    enums: dict[Name, Enum] = {}
    axes: dict[Name, Axis] = {}
    tags: dict[Name, TagFamily] = {}
    structs: dict[Name, Struct] = {}
    dims: dict[Name, Doc] = {}
    arguments: dict[Name, Argument] = {}
    functions: dict[Name, Function] = {}
    kernels: dict[Name, Kernel] = {}
    operations: dict[Name, Operation] = {}
    invariants: Invariants = {}


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
    "kernels",
    "operations",
    "invariants",
)
