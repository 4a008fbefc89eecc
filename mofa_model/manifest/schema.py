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
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
)


def structural(model: type[Part], *, defaults: bool = True) -> dict[str, Any]:
    """The schema of a model, self-contained; a status has no defaults: whoever writes it leaves nothing to be filled in."""
    whole = model.model_json_schema(by_alias=True)
    made = _plain(whole, whole.get("$defs", {}))
    return made if defaults else _bare(made)


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
        made.setdefault("x-kubernetes-list-type", "atomic")
    if "properties" in schema:
        needed = set(schema.get("required", ()))
        made["properties"] = {
            name: _plain(part, shared) if name in needed else _optional(part, shared)
            for name, part in schema["properties"].items()
        }
    elif "patternProperties" in schema:
        made |= _mapping(schema, shared)
    return made


def _mapping(schema: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping with keys of its own; structural schemas cannot bound keys, so a rule does."""
    ((pattern, values),) = schema["patternProperties"].items()
    names = schema["propertyNames"]
    least, most = names["minLength"], names["maxLength"]
    return {
        "additionalProperties": _plain(values, shared),
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-validations": [
            {
                "rule": f"self.all(k, k.size() >= {least} && k.size() <= {most} && k.matches('{pattern}'))",
                "message": f"keys have {least} to {most} characters and match {pattern}",
            }
        ],
    }


def _bare(schema: Any) -> Any:
    """A schema without defaults at any depth."""
    if isinstance(schema, list):
        return [_bare(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: _bare(value) for key, value in schema.items() if key not in {"default", "properties"}
    }
    if "properties" in schema:
        made["properties"] = {name: _bare(part) for name, part in schema["properties"].items()}
    return made


def _optional(given: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """A property that may be missing; a part of defaults alone is there without being written."""
    made = _plain(given, shared)
    nothing = any(option.get("type") == "null" for option in given.get("anyOf", ()))
    if (
        made.get("type") == "object"
        and not nothing
        and "required" not in made
        and "properties" in made
    ):
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
