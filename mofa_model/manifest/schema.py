"""Pydantic models to structural OpenAPI v3 schemas, as the API server wants them: no references, no nulls, no titles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mofa_model.manifest.fields import Part

_KEPT: Final = (
    "type",
    "description",
    "format",
    "enum",
    "default",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
    "x-kubernetes-validations",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
)


def structural(model: type[Part]) -> dict[str, Any]:
    """The schema of a model, self-contained."""
    whole = model.model_json_schema(by_alias=True)
    return _plain(whole, whole.get("$defs", {}))


def _plain(given: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    schema = _resolved(given, shared)
    made: dict[str, Any] = {key: schema[key] for key in _KEPT if key in schema}
    if "const" in schema:
        made |= {"type": "string", "enum": [schema["const"]]}
    if made.get("default", ...) is None:
        del made["default"]
    if made.get("type") == "integer":
        made["format"] = "int64"
    if "items" in schema:
        made["items"] = _plain(schema["items"], shared)
    if "properties" in schema:
        needed = set(schema.get("required", ()))
        made["properties"] = {
            name: _plain(part, shared) if name in needed else _optional(part, shared)
            for name, part in schema["properties"].items()
        }
    elif isinstance(schema.get("additionalProperties"), Mapping):
        made["additionalProperties"] = _plain(schema["additionalProperties"], shared)
    return made


def _optional(given: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """A property that may be missing; a part of defaults alone is there without being written."""
    made = _plain(given, shared)
    nothing = any(option.get("type") == "null" for option in given.get("anyOf", ()))
    if made.get("type") == "object" and not nothing and "required" not in made and "properties" in made:
        made["default"] = {}
    return made


def _resolved(given: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """References followed and the null of optional fields dropped; what stands beside a reference wins over it."""
    beside = {key: value for key, value in given.items() if key not in {"$ref", "anyOf", "allOf"}}
    if "$ref" in given:
        return _resolved(shared[given["$ref"].rpartition("/")[2]], shared) | beside
    if "anyOf" in given:
        (only,) = (option for option in given["anyOf"] if option.get("type") != "null")
        return _resolved(only, shared) | beside
    return beside
