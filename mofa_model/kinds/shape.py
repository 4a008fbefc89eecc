"""Objects that somebody else wrote, read as declared types; and objects that a job names.

Only declared fields are read. A value that is not as it should be counts as nothing, except a
`Count`: a number of replicas or GPUs that cannot be is refused, because an answer would rest on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, TypeVar

from pydantic import (
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from mofa_model.errors import FactsMissing, InputError
from mofa_model.records import dataclass

Body: TypeAlias = Mapping[str, Any]
"""An object as it came: from a manifest, or from the API server."""
MOST: Final = 10_000_000
"""No job has as many pods or GPUs. [1]"""
_MAPPINGS: Final = (dict, Mapping)
"""What a part of an object is; a dict nearly always, which is told at once."""
PLACEHOLDER: Final = re.compile(r"\$\{?\w+\}?|\{\{[^}]*\}\}|<[\w -]+>|__\w+__")
"""What templates leave open, as people write it: `$NODES`, `{{ .Values.nodes }}`, `<nodes>`."""
T = TypeVar("T")


class Shape(BaseModel):
    """A part of an object."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _of_mapping(cls, value: object) -> object:
        return mapping(value)


S = TypeVar("S", bound=Shape)


def under(default: object, *path: str) -> Any:
    """A field that stands further down: at the end of a path."""
    return Field(default=default, validation_alias=AliasPath(*path))


def read(shape: type[S], value: object, path: str = "spec") -> S:
    """A part of an object at `path`; an `InputError` where a number in it cannot be."""
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(
            f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"]
        )
        why = first["ctx"]["error"]
        kind = FactsMissing if isinstance(why, FactsMissing) else InputError
        raise kind(f"{path}{place}: {why}") from None


def glance(shape: type[S], value: object) -> S:
    """A part of a body, read without errors; empty where a number in it is impossible."""
    try:
        return read(shape, value)
    except InputError:
        return shape()


def at(value: object, *path: str) -> object:
    """The value at the end of a path; None where the path does not exist.

    >>> at({"runPolicy": {"suspend": True}}, "runPolicy", "suspend")
    True
    """
    for step in path:
        value = value.get(step) if isinstance(value, _MAPPINGS) else None
    return value


def part(value: object, *path: str) -> Mapping[str, Any]:
    """The mapping at the end of a path; empty where there is none, whatever stands in its place.

    >>> part({"spec": {"cluster": 5}}, "spec", "cluster")
    {}
    """
    for step in path:  # as `at` does it, without its call: every look asks this many times
        value = value.get(step) if isinstance(value, _MAPPINGS) else None
    return value if isinstance(value, _MAPPINGS) else {}


def items(value: object) -> list[Mapping[str, Any]]:
    """The mappings of a list; none where it is no list."""
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, _MAPPINGS)]


def mapping(value: object) -> dict[Any, Any]:
    """A mapping; empty where there is none."""
    return dict(value) if isinstance(value, Mapping) else {}


def text_of(value: object) -> str:
    """Text; empty where there is none."""
    return value if isinstance(value, str) else ""


def whole(value: object) -> int:
    """A whole number, also as text; 0 where there is none that could be meant."""
    if (
        isinstance(value, str)
        and value.isascii()
        and value.isdigit()
        and len(value) < len(str(MOST))
    ):
        return int(value)
    return count_of(value) if isinstance(value, int) and not isinstance(value, bool) else 0


def count_of(value: object) -> int:
    """A number of replicas or GPUs; anything else is refused."""
    if isinstance(value, str) and (open_ := PLACEHOLDER.search(value)):
        raise FactsMissing(
            f"nothing gives the placeholder {open_.group()[:60]} a value; write the number there"
        )
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise InputError(f"a number of replicas or GPUs cannot be {value!r}; give a whole number")
    return value


def moment_of(value: object) -> float | None:
    """A moment as objects write it, in seconds of the epoch; None where it is none. [s]"""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _tally(value: object) -> int:
    """A count as the API server keeps it, in 32 bits; 0 where the value is none."""
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
        else 0
    )


def _tallies(value: object) -> int:
    return sum(count for count in value if isinstance(count, int)) if isinstance(value, list) else 0


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return 0.0


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _line(value: object) -> list[object] | None:
    return value if isinstance(value, list) else None


def _named(value: object) -> dict[str, Any]:
    return {str(name): item for name, item in mapping(value).items()}


def _labels(value: object) -> dict[str, str]:
    return {str(name): str(item) for name, item in mapping(value).items()}


Truth: TypeAlias = Annotated[bool, PlainValidator(lambda value: value is True)]
"""True, or anything else."""
Text: TypeAlias = Annotated[str, PlainValidator(text_of)]
"""Text."""
Count: TypeAlias = Annotated[int, PlainValidator(count_of)]
"""A number of replicas or GPUs that an answer rests on. [1]"""
Whole: TypeAlias = Annotated[int, PlainValidator(whole)]
"""A number that may be written as text, or be none. [1]"""
Tally: TypeAlias = Annotated[int, PlainValidator(_tally)]
"""A number that a controller counted; 0 where it cannot be. [1]"""
Tallies: TypeAlias = Annotated[int, PlainValidator(_tallies)]
"""The sum of such a list. [1]"""
Number: TypeAlias = Annotated[float, PlainValidator(_number)]
"""A number as text; 0 where it is none. [1]"""
Moment: TypeAlias = Annotated[float | None, PlainValidator(moment_of)]
"""A moment, in seconds of the epoch. [s]"""
Line: TypeAlias = Annotated[list[object] | None, PlainValidator(_line)]
"""Words of a command as they stand; None where there is no list."""
Labels: TypeAlias = Annotated[dict[str, str], PlainValidator(_labels)]
"""Labels or annotations."""
Many: TypeAlias = Annotated[tuple[T, ...], BeforeValidator(_list)]
"""Items of a list, each in its place."""
ByName: TypeAlias = Annotated[dict[str, T], BeforeValidator(_named)]
"""Items of a mapping."""


@dataclass(frozen=True)
class Kind:
    """A kind of objects, as the API server names it."""

    group: str
    """API group; empty for the core group."""
    version: str
    """Version of the group."""
    kind: str
    """The singular, in CamelCase."""
    plural: str
    """The resource in URLs."""
    namespaced: bool = True
    """Whether its objects live in namespaces."""
    others: tuple[str, ...] = ()
    """Other versions that say the same, for clusters without this one; the likeliest first."""

    def __lt__(self, other: Kind) -> bool:
        """By names, whatever is known of a kind beside them."""
        return (self.group, self.version, self.kind) < (other.group, other.version, other.kind)

    @property
    def api_version(self) -> str:
        """Group and version, as manifests write them.

        >>> Kind("batch", "v1", "Job", "jobs").api_version
        'batch/v1'
        """
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """As kubectl tells it from others of the same name.

        >>> Kind("batch", "v1", "Job", "jobs").resource
        'jobs.batch'
        """
        return f"{self.plural}.{self.group}" if self.group else self.plural


class Reference(NamedTuple):
    """An object that another one names, in its own namespace where it has one."""

    kind: Kind
    """Its kind."""
    name: str
    """Its name."""

    def __str__(self) -> str:
        """The kind as messages show it."""
        return f"{self.kind.kind} {self.name!r}"


class ReferencedObjects:
    """Objects that a job may name, as far as they are here."""

    def __init__(self, objects: Iterable[Body] = ()) -> None:
        """Keep objects that a job names, to be found by reference."""
        self._specs = {_identity(body): part(body, "spec") for body in objects}

    def spec(self, reference: Reference) -> Mapping[str, Any] | None:
        """The spec of an object, whatever the version of its group; None where it is not here."""
        return self._specs.get((reference.kind.group, reference.kind.kind, reference.name))


def _identity(body: Body) -> tuple[str, str, str]:
    group = str(body.get("apiVersion", "")).rpartition("/")[0]
    return group, str(body.get("kind", "")), str(at(body, "metadata", "name"))


NO_OBJECTS: Final = ReferencedObjects()
"""Nothing is here beside the job."""
