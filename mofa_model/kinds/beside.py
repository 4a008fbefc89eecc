"""Kinds of objects, and objects that a job names and that are read beside it: a TrainJob's runtime, what its pods claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mofa_model.kinds.shape import Body, at, part


@dataclass(frozen=True, slots=True)
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
    """Other versions of the group that say the same, for clusters that do not serve this one; the likeliest first."""

    def __lt__(self, other: Kind) -> bool:
        """By names, whatever is known of a kind beside them."""
        return (self.group, self.version, self.kind) < (other.group, other.version, other.kind)

    @property
    def api_version(self) -> str:
        """As manifests write it.

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
        """As messages show it."""
        return f"{self.kind.kind} {self.name!r}"


class Beside:
    """Objects that a job may name, as far as they are here."""

    def __init__(self, objects: Iterable[Body] = ()) -> None:
        """The objects, as they came."""
        self._specs = {_named(one): part(one, "spec") for one in objects}

    def spec(self, wanted: Reference) -> Mapping[str, Any] | None:
        """The spec of an object, whatever the version of its group; None where it is not here."""
        return self._specs.get((wanted.kind.group, wanted.kind.kind, wanted.name))


def _named(body: Body) -> tuple[str, str, str]:
    group = str(body.get("apiVersion", "")).rpartition("/")[0]
    return group, str(body.get("kind", "")), str(at(body, "metadata", "name"))


NOTHING: Final = Beside()
"""Nothing is here beside the job."""
