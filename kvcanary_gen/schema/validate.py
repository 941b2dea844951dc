"""Runs the models over one file, and says what is wrong in the spec's words instead of Pydantic's."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from kvcanary_gen.diagnostics import Diagnostics, Mark, quote, suggest
from kvcanary_gen.schema import SECTIONS, SpecFile
from kvcanary_gen.source import PathKey, Source

# A section and a name in it; ("spec", "") is the header.
Declaration = tuple[str, str]

_PROBLEMS = {
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "tuple_type": "must be a list",
    "string_type": "must be text",
    "int_type": "must be an integer",
    "bool_type": "must be true or false",
    "too_short": "must not be empty",
    "literal_error": "must be {expected}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "string_pattern_mismatch": "must look like 1.2.3",
}


def validate(source: Source, out: Diagnostics) -> tuple[SpecFile | None, set[Declaration]]:
    """The file's model without the declarations that have errors, and these.

    None where the errors are not in single declarations.
    """
    tree = source.tree
    if not isinstance(tree, dict):
        if not source.is_refused(()):
            what = "is empty" if tree is None else "is not a mapping"
            message = f"the file {what}; it must hold sections such as `kernels:`"
            out.add(Mark(source.file, 1, 1), "KVG-010", message)
        return None, set()
    paths = list(source.refused)
    try:
        model = SpecFile.model_validate(tree)
    except ValidationError as error:
        model = None
        missing: dict[PathKey, list[str]] = {}
        for details in error.errors(include_url=False):
            path: PathKey = tuple(part for part in details["loc"] if part != "[key]")
            paths.append(path)
            if source.is_refused(path):
                continue
            if details["type"] == "missing":
                missing.setdefault(path[:-1], []).append(f"'{path[-1]}'")
            else:
                _report(source, path, details, out)
        for path, keys in missing.items():
            verb = "is" if len(keys) == 1 else "are"
            message = f"{', '.join(keys)} {verb} missing in {'.'.join(map(str, path))}"
            out.add(source.locate(path, key=True), "KVG-013", message)
    broken = {_declaration(path) for path in paths}
    if None in broken:
        return None, set()
    found = {declaration for declaration in broken if declaration is not None}
    return model if not found else SpecFile.model_validate(_without(tree, found)), found


def _declaration(path: PathKey) -> Declaration | None:
    """The declaration that holds `path`; None for sections as a whole."""
    if path[:1] == ("spec",):
        return "spec", ""
    return (str(path[0]), str(path[1])) if len(path) > 1 and path[0] in SECTIONS else None


def _without(tree: dict[Any, Any], broken: set[Declaration]) -> dict[Any, Any]:
    kept: dict[Any, Any] = {}
    for section, content in tree.items():
        if (section, "") in broken:
            continue
        names = {name for place, name in broken if place == section}
        kept[section] = {k: v for k, v in content.items() if k not in names} if names else content
    return kept


def _report(source: Source, path: PathKey, details: ErrorDetails, out: Diagnostics) -> None:
    kind = details["type"]
    mark = source.locate(path, key=kind == "extra_forbidden" or "[key]" in details["loc"])
    if kind == "extra_forbidden":
        out.add(mark, "KVG-011", f"unknown key {quote(str(path[-1]))}{suggest(str(path[-1]), _known_keys(path[:-1]))}")
        return
    given = details["input"]
    known = kind in _PROBLEMS
    message = (
        _PROBLEMS[kind].format(**details.get("ctx", {})) if known else details["msg"].removeprefix("Value error, ")
    )
    if known and kind != "too_short":
        message += f", got {_shown(given)}"
    if kind == "literal_error" and isinstance(given, str):
        message += suggest(given, details["ctx"]["expected"].replace(" or ", ", ").replace("'", "").split(", "))
    out.add(mark, "KVG-010", f"{'.'.join(map(str, path))}: {message}")


def _shown(value: object) -> str:
    """What a value is, in a few words."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else quote(str(value))


def _known_keys(path: PathKey) -> list[str]:
    """Keys that the schema knows at `path`."""
    kind: Any = SpecFile
    for part in path:
        if not _is_model(kind):
            kind = _inner(kind)
            continue
        fields = {info.alias or name: info.annotation for name, info in kind.model_fields.items()}
        kind = fields.get(str(part))
        if type(None) in get_args(kind):
            kind = _inner(kind)
    return [info.alias or name for name, info in kind.model_fields.items()] if _is_model(kind) else []


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _inner(kind: Any) -> Any:
    """The model in dict[…, Model], tuple[Model, …] or Model | None."""
    return next((argument for argument in get_args(kind) if _is_model(argument)), None)
