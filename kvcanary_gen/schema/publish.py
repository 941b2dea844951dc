"""The JSON Schema that editors read, without what Pydantic adds for its own use."""

from __future__ import annotations

from typing import Any

from kvcanary_gen.schema import SpecFile
from kvcanary_gen.schema.meanings import meaning
from kvcanary_gen.schema.text import _Doc, _Expr, _InvariantId, _Name, _Target, _TypeText

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Descriptions of a scalar type, which say less than the meaning of a key.
_GENERIC = {"", *(kind.description for kind in (_Doc, _Expr, _InvariantId, _Name, _Target, _TypeText))}


def spec_schema() -> dict[str, Any]:
    """JSON Schema of one spec file; the same for every version of Pydantic that the generator runs with."""
    found = _tidy(SpecFile.model_json_schema())
    definitions = found.pop("$defs")
    for model, definition in definitions.items():
        for key, part in definition["properties"].items():
            words = meaning(model, key)
            if words and part.get("description", "") in _GENERIC:
                part["description"] = words
    return {
        "$schema": _DIALECT,
        "title": "kvcanary spec file",
        **found,
        "$defs": dict(sorted(definitions.items())),
    }


def _tidy(schema: dict[str, Any]) -> dict[str, Any]:
    """Drops titles, which only repeat names, and folds `null` alternatives: a key that has no value is left out."""
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs", "patternProperties"):
            out[key] = {name: _tidy(part) for name, part in value.items()}
        elif key == "title" or (key == "default" and value in (None, [], {})):
            continue
        elif isinstance(value, dict):
            out[key] = _tidy(value)
        elif isinstance(value, list):
            out[key] = [_tidy(part) if isinstance(part, dict) else part for part in value]
        else:
            out[key] = value
    patterns = out.pop("patternProperties", {})
    for pattern, part in patterns.items():
        # As a rule on names, so that an editor refuses those that no pattern fits.
        out["propertyNames"] = {**out.get("propertyNames", {}), "pattern": pattern}
        out["additionalProperties"] = part
    choices = [part for part in out.get("anyOf", []) if part != {"type": "null"}]
    if len(choices) == 1 and len(out["anyOf"]) == 2:
        del out["anyOf"]
        out = {**choices[0], **out}
    return out
