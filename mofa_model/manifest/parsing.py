"""Our objects from plain values; an error names the first wrong field and what would be right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Generic, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from mofa_model.errors import BadValue, InputError, UnknownName
from mofa_model.manifest.advisor_policy import AdvisorPolicySpec
from mofa_model.manifest.cluster_profile import ClusterProfileSpec, ClusterProfileStatus
from mofa_model.manifest.crds import API_VERSION, GROUP
from mofa_model.manifest.fields import Part
from mofa_model.manifest.training_job import TrainingJobSpec
from mofa_model.records import dataclass

P = TypeVar("P", bound=Part)

_GONE: Final = ("display", "readyReason")
"""What version 0.1.0 wrote into a profile's status beside what it learned."""
_RIGHT: Final = {
    "string_type": "give text",
    "int_type": "give a whole number",
    "bool_type": "give true or false",
    "list_type": "give a list",
    "dict_type": "give a mapping",
    "model_type": "give a mapping",
    "model_attributes_type": "give a mapping",
    "greater_than_equal": "give {ge} or more",
    "less_than_equal": "give {le} or less",
    "string_too_short": "give at least {min_length} characters",
    "string_too_long": "give at most {max_length} characters",
    "too_short": "give at least {min_length}",
    "too_long": "give at most {max_length}",
    "literal_error": "one of {expected}",
    "string_pattern_mismatch": "give text that matches {pattern}",
}


@dataclass(frozen=True, kw_only=True)
class Object(Generic[P]):
    """An object of ours: where it is, and what it says."""

    name: str
    """metadata.name."""
    namespace: str = "default"
    """metadata.namespace."""
    spec: P
    """The spec."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """metadata.labels."""


@dataclass(frozen=True, kw_only=True)
class Profile(Object[ClusterProfileSpec]):
    """A ClusterProfile, with what its status remembers."""

    status: ClusterProfileStatus = field(default_factory=ClusterProfileStatus)
    """History and node counts; empty where the manifest has none."""


def training_job(value: Mapping[str, Any]) -> Object[TrainingJobSpec]:
    """A TrainingJob from its manifest."""
    return _object(value, "TrainingJob", TrainingJobSpec)


def advisor_policy(value: Mapping[str, Any]) -> Object[AdvisorPolicySpec]:
    """An AdvisorPolicy from its manifest."""
    return _object(value, "AdvisorPolicy", AdvisorPolicySpec)


def cluster_profile(value: Mapping[str, Any]) -> Profile:
    """A ClusterProfile from its manifest, status included."""
    profile = _object(value, "ClusterProfile", ClusterProfileSpec)
    status = value.get("status")
    if status is None:
        return Profile(name=profile.name, spec=profile.spec)
    if isinstance(status, Mapping):
        status = {name: part for name, part in status.items() if name not in _GONE}
    checked = parse(ClusterProfileStatus, status, f"ClusterProfile {profile.name}: status")
    return Profile(name=profile.name, spec=profile.spec, status=checked)


def is_ours(value: Mapping[str, Any]) -> bool:
    """Whether an object is of our group, whatever the version."""
    return str(value.get("apiVersion", "")).partition("/")[0] == GROUP


def parse(model: type[P], value: Any, path: str) -> P:
    """A mapping as a model; `path` is what the error calls its root."""
    if value is None:
        raise InputError(f"{path}: is missing; give a mapping")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _first_error(error, model, path) from None
    except RecursionError:
        raise BadValue(path, "…", "it is nested too deeply; give fewer levels") from None


def _object(value: Mapping[str, Any], kind: str, model: type[P]) -> Object[P]:
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else metadata
    if not isinstance(metadata, Mapping) or not isinstance(name, str) or not name:
        raise BadValue(f"{kind}: metadata.name", name, "give the object a name")
    version, namespace = value.get("apiVersion"), metadata.get("namespace")
    if version != API_VERSION:
        raise BadValue(f"{kind} {name}: apiVersion", version, f"this version knows {API_VERSION}")
    spec = parse(model, value.get("spec"), f"{kind} {name}: spec")
    return Object(
        name=name,
        namespace=namespace if isinstance(namespace, str) and namespace else "default",
        spec=spec,
    )


def _first_error(error: ValidationError, model: type[Part], path: str) -> InputError:
    """The first problem as one of our errors."""
    problems = error.errors(include_url=False)
    # A misspelt field is missing too, and to say that would lead astray: unknown fields come first.
    unknown = (problem for problem in problems if problem["type"] == "extra_forbidden")
    first = next(unknown, problems[0])
    location: Sequence[int | str] = first["loc"]
    field_path = path + "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in location if step != "[key]"
    )
    kind, value, context = first["type"], first.get("input"), first.get("ctx", {})
    if kind == "extra_forbidden":
        names = _field_names(model, location[:-1])
        return UnknownName(field_path.rpartition(".")[0], location[-1], names)
    example = f", {text}" if (text := _example(model, location)) else ""
    if kind == "missing":
        return InputError(f"{field_path}: is missing; give it{example}")
    if kind == "rule":
        right = str(context["right"])
        if isinstance(value, Part):
            value = sorted(value.model_fields_set)
        elif isinstance(value, Mapping):
            value = ", ".join(map(str, value))
    else:
        right = _RIGHT.get(kind, first["msg"]).format(**context)
    more = f" ({len(problems) - 1} more to mend)" if len(problems) > 1 else ""
    return BadValue(field_path, value, right + example + more)


def _field(model: type[Part], location: Sequence[int | str]) -> FieldInfo | None:
    """The field that a path of an error leads to."""
    part: type[Part] | None = model
    info: FieldInfo | None = None
    for step in location:
        if isinstance(step, int):
            continue
        if part is None:
            return None
        info = next((f for f in part.model_fields.values() if f.alias == step), None)
        part = None if info is None else _part(info.annotation)
    return info


def _part(annotation: Any) -> type[Part] | None:
    """The model inside a field's type: itself, optional, or the items of a list."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return annotation
    inner = (_part(argument) for argument in getattr(annotation, "__args__", ()))
    return next((part for part in inner if part is not None), None)


def _field_names(model: type[Part], location: Sequence[int | str]) -> list[str]:
    field = _field(model, location)
    part = model if not location else _part(field.annotation) if field is not None else None
    return [str(f.alias) for f in part.model_fields.values()] if part is not None else []


def _example(model: type[Part], location: Sequence[int | str]) -> str:
    """The example of the field at a location, as a phrase; empty where it has none. The example of
    a wrong key is that of its mapping.
    """
    field = _field(model, location[:-2] if location[-1:] == ("[key]",) else location)
    if field is None:
        return ""
    examples = field.examples or next(
        (m.examples for m in field.metadata if isinstance(m, FieldInfo)), None
    )
    examples = examples or _examples(field.annotation)
    return f"for example {examples[0]!r}" if examples else ""


def _examples(annotation: Any) -> list[Any]:
    """The examples inside a type: of an optional field, or of the items of a list."""
    for metadata in getattr(annotation, "__metadata__", ()):
        if isinstance(metadata, FieldInfo) and metadata.examples:
            return list(metadata.examples)
    inner = (_examples(argument) for argument in getattr(annotation, "__args__", ()))
    return next((examples for examples in inner if examples), [])
