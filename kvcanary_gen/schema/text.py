"""Scalar types of the spec language that keep their place in the file."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from kvcanary_gen.source import LocatedInt, LocatedStr

NAME_PATTERN = r"[A-Za-z_][A-Za-z0-9_]*"


def _located_text(value: Any) -> str:
    """The text of a scalar as written; numbers and null keep their spelling."""
    if isinstance(value, LocatedInt):
        return value.text
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, int):
        return str(value)
    raise ValueError("must be text or a number")


class _Kept:
    """Base for annotations whose validator hands the located object on untouched."""

    description = "text"
    pattern: str | None = None

    def check(self, value: Any) -> str:
        text = _located_text(value)
        if self.pattern is not None and re.fullmatch(self.pattern, text) is None:
            raise ValueError(f"must be {self.description}, got '{text}'")
        return text

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.check, serialization=core_schema.to_string_ser_schema(when_used="json")
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        out: JsonSchemaValue = {"type": ["string", "integer", "boolean"], "description": self.description}
        if self.pattern is not None:
            out = {"type": "string", "pattern": f"^({self.pattern})$", "description": self.description}
        return out


class _Name(_Kept):
    description = "a name: letters, digits and underscores"
    pattern = NAME_PATTERN


class _Expr(_Kept):
    description = "an expression"


class _TypeText(_Kept):
    description = "a type: dtype, or dtype[length, ...]"

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "description": self.description}


class _Doc(_Kept):
    description = "one line or paragraph of prose"

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "description": self.description}


class _InvariantId(_Kept):
    description = "a stable id such as KVC-012"
    pattern = r"[A-Z]{2,5}-[0-9]{3}"


class _Target(_Kept):
    description = "a tensor element: name[index, ...]"
    pattern = rf"{NAME_PATTERN}\[.+\]"


Name = Annotated[str, _Name()]
Expr = Annotated[str, _Expr()]
TypeText = Annotated[str, _TypeText()]
Doc = Annotated[str, _Doc()]
InvariantId = Annotated[str, _InvariantId()]
Target = Annotated[str, _Target()]


class SpecModel(BaseModel):
    """Frozen, and refuses keys that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def mark_text(value: str) -> LocatedStr:
    """The located form of a validated scalar."""
    assert isinstance(value, LocatedStr)
    return value
