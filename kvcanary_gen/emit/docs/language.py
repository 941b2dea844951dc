"""The reference of the spec language: prose, and tables read off the models that validate it."""

from __future__ import annotations

import types
import typing
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from kvcanary_gen.emit.docs.markdown import anchor, code, listing, table
from kvcanary_gen.emit.docs.pages import page
from kvcanary_gen.ir import STORAGE_TYPES
from kvcanary_gen.schema import SECTIONS, SpecFile
from kvcanary_gen.schema import code as code_models
from kvcanary_gen.schema.meanings import meaning
from kvcanary_gen.schema.text import (
    Doc,
    Expr,
    FieldPath,
    InvariantId,
    Name,
    PathText,
    PowerOfTwo,
    Target,
    Text,
    TypeText,
)
from kvcanary_gen.source import MAX_DEPTH, MAX_FILE_BYTES

_TEXTS: dict[Any, str] = {
    Name: "name",
    PathText: "name or field",
    FieldPath: "field",
    Expr: "expression",
    TypeText: "type",
    Doc: "prose",
    Text: "text",
    InvariantId: "id",
    Target: "element",
    PowerOfTwo: "power of two",
}
_PLAIN = {int: "integer", bool: "true or false", str: "text", Any: "any"}


def language_page() -> str:
    hints = typing.get_type_hints(SpecFile, include_extras=True)
    sections = []
    for name in ("spec", *SECTIONS):
        model = _model(hints[name])
        sections.append({"name": name, "model": model, "doc": _doc(model), "tables": _tables(model)})
    kinds = list(get_args(code_models.ImpliedKind))
    return page(
        "language.md.j2",
        sections=sections,
        dtypes=listing([code(dtype) for dtype in STORAGE_TYPES]),
        implied=listing([code(kind) for kind in kinds]),
        max_kib=MAX_FILE_BYTES // 1024,
        max_depth=MAX_DEPTH,
    )


def _model(hint: Any) -> type[BaseModel] | None:
    """The model that a type speaks of."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return hint
    return next((found for arg in reversed(get_args(hint)) if (found := _model(arg)) is not None), None)


def _doc(model: type[BaseModel] | None) -> str:
    return " ".join((model.__doc__ or "").split()) if model is not None else "Sizes by name, each with a line of prose."


def _tables(model: type[BaseModel] | None) -> list[tuple[str, str, str]]:
    """Tables of a model and of those inside it: (title, meaning, table)."""
    if model is None:
        return []
    found = [("", "", _table(model))]
    for inner in _inner(model):
        found.append((inner.__name__, _doc(inner), _table(inner)))
    return found


def _inner(model: type[BaseModel]) -> list[type[BaseModel]]:
    """Models of a model's keys, depth first."""
    found: list[type[BaseModel]] = []
    for hint in typing.get_type_hints(model, include_extras=True).values():
        part = _model(hint)
        if part is not None and part is not model and part not in found:
            found += [part, *_inner(part)]
    return found


def _table(model: type[BaseModel]) -> str:
    hints = typing.get_type_hints(model, include_extras=True)
    rows = []
    for name, field in model.model_fields.items():
        default = "required" if field.is_required() else _default(field)
        key = field.alias or name
        words = field.description or meaning(model.__name__, key)
        rows.append([code(key), type_words(hints[name]), default, words])
    return table(["key", "value", "default", "meaning"], rows)


def _default(field: FieldInfo) -> str:
    value = field.default
    if isinstance(value, bool):
        return code(str(value).lower())
    if value is PydanticUndefined or value is None or value in ((), {}, "") or isinstance(value, BaseModel):
        return ""
    return code(value)


def type_words(hint: Any) -> str:
    """A type as a person would call it: `list of names`, `int64 or uint64`."""
    for known, word in _TEXTS.items():
        if hint == known:
            return word
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        return type_words(args[0])
    if origin is typing.Literal:
        return listing([code(arg) for arg in args], "or")
    if origin in (Union, types.UnionType):
        return " or ".join(type_words(arg) for arg in args if arg is not type(None))
    if origin is dict:
        return f"{type_words(args[1])} by {type_words(args[0])}"
    if origin is tuple:
        return f"list of {_plural(type_words(args[0]))}"
    model = _model(hint)
    assert model is not None, hint
    return f"[{model.__name__}](#{anchor(model.__name__)})"


def _plural(word: str) -> str:
    return word if word.endswith(("prose", ")", "`")) else f"{word}s"
