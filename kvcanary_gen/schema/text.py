"""Scalar types of the spec language that keep their place in the file."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, StrictInt
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from kvcanary_gen.diagnostics import quote
from kvcanary_gen.located import LocatedInt

NAME_PATTERN = r"[A-Za-z_][A-Za-z0-9_]*"


class _Text:
    """A string of the spec; its validator hands the located object on untouched."""

    description = "text"
    pattern: str | None = None
    limit = 1000

    def read(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        raise ValueError(f"must be {self.description}")

    def problem(self, text: str) -> str | None:
        """What is wrong with the text besides its pattern."""
        return "must be one line; fold it with >-" if "\n" in text or "\t" in text else None

    def check(self, value: Any) -> str:
        text = self.read(value)
        if len(text) > self.limit:
            raise ValueError(f"is {len(text)} characters long; at most {self.limit}")
        problem = self.problem(text)
        if problem is not None:
            raise ValueError(problem)
        if self.pattern is not None and re.fullmatch(self.pattern, text) is None:
            raise ValueError(f"must be {self.description}, got {quote(text)}")
        return text

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.check, serialization=core_schema.to_string_ser_schema(when_used="json")
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        out: JsonSchemaValue = {"type": "string", "description": self.description}
        return out if self.pattern is None else {**out, "pattern": f"^({self.pattern})$"}


class _Doc(_Text):
    """Prose that lands in docstrings and comments of the generated code."""

    description = "one line or paragraph of prose"

    def problem(self, text: str) -> str | None:
        if not text.strip():
            return "must not be empty"
        return super().problem(text)


class _Name(_Text):
    description = "a name: letters, digits and underscores"
    pattern = NAME_PATTERN
    limit = 80


class _Path(_Text):
    description = "a name, or struct.field"
    pattern = rf"{NAME_PATTERN}(\.{NAME_PATTERN})?"
    limit = 160


class _FieldPath(_Path):
    description = "a field: struct.field"
    pattern = rf"{NAME_PATTERN}\.{NAME_PATTERN}"


class _InvariantId(_Text):
    description = "a stable id such as KVC-012"
    pattern = r"[A-Z]{2,5}-[0-9]{3}"


class _TypeText(_Text):
    description = "a type: dtype, or dtype[length, ...]"


class _Expr(_Text):
    """An expression; a number or a boolean is one as well."""

    description = "an expression"
    limit = 4000

    def read(self, value: Any) -> str:
        if isinstance(value, LocatedInt):
            return value.text
        if isinstance(value, (bool, int)):
            return str(value)
        return super().read(value)

    def problem(self, text: str) -> str | None:
        return "must be an expression, got nothing" if not text.strip() else None

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": ["string", "integer", "boolean"], "description": self.description}


class _Target(_Expr):
    description = "a tensor element: name[index, ...], or name[index].field"
    pattern = rf"{NAME_PATTERN}\[.+\](\.{NAME_PATTERN})?"

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "pattern": f"^({self.pattern})$", "description": self.description}


def _power_of_two(value: int) -> int:
    if value & (value - 1):
        raise ValueError(f"must be a power of two, got {value}")
    return value


Text = Annotated[str, _Text()]
Doc = Annotated[str, _Doc()]
Name = Annotated[str, _Name()]
PathText = Annotated[str, _Path()]
FieldPath = Annotated[str, _FieldPath()]
InvariantId = Annotated[str, _InvariantId()]
TypeText = Annotated[str, _TypeText()]
Expr = Annotated[str, _Expr()]
Target = Annotated[str, _Target()]
PowerOfTwo = Annotated[StrictInt, AfterValidator(_power_of_two)]


class SpecModel(BaseModel):
    """Frozen, and refuses keys that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)
