"""Where the API server has an object or a kind, and which version of it."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote

from mofa_model.kinds import Kind


def path_of(kind: Kind, namespace: str, name: str = "", *, status: bool = False) -> str:
    """Where an object or a kind is.

    >>> from mofa_operator.keys import TRAINING_JOB
    >>> path_of(TRAINING_JOB, "ml", "llama", status=True)
    '/apis/mofa.dev/v1alpha1/namespaces/ml/trainingjobs/llama/status'
    """
    item = f"/{quote(name, safe='')}" if name else ""
    return f"{_root(kind, namespace)}{item}{'/status' if status else ''}"


class Versions:
    """Which version of a kind a server was last seen to serve."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self._found: dict[Kind, Kind] = {}

    def of(self, kind: Kind) -> Kind:
        """The kind in that version."""
        return self._found.get(kind, kind)

    def path(self, kind: Kind, namespace: str, name: str = "", *, status: bool = False) -> str:
        """Where an object or a kind is, in that version."""
        return path_of(self.of(kind), namespace, name, status=status)

    def versions(self, kind: Kind) -> list[Kind]:
        """The kind in every version that says the same, the one that was found first."""
        named = (kind.version, *kind.others)
        every = [
            Kind(kind.group, version, kind.kind, kind.plural, kind.namespaced) for version in named
        ]
        return sorted(every, key=lambda one: one.version != self.of(kind).version)

    def note(self, kind: Kind, served: Kind) -> None:
        """A server has served it."""
        if kind.others:
            self._found[kind] = served


@lru_cache(maxsize=1024)
def _root(kind: Kind, namespace: str) -> str:
    group = f"/apis/{kind.group}" if kind.group else "/api"
    inside = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{group}/{kind.version}{inside}/{kind.plural}"
