"""What the API server was asked, from its audit log: an oracle for who wrote what, and how often.

The server writes an event when it has answered, so that an event can appear a moment after the
client has its answer: a test that expects one waits for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import orjson

Event = dict[str, Any]

POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/openapi*"]},
        {"level": "None", "users": ["system:apiserver"]},
        {
            "level": "Metadata",
            "resources": [{"group": "", "resources": ["secrets", "serviceaccounts/token"]}],
        },
        {"level": "Request", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
        {"level": "Metadata"},
    ],
}
"""Everything that people and programs ask, and for writes what they sent; not what the server
asks itself.
"""

WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
"""Verbs that change an object."""


class Log:
    """The audit log of an API server that writes on; each line is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0
        self._events: list[Event] = []

    def events(self) -> list[Event]:
        """All events so far, in the order in which requests were answered; a line that is being
        written is left out.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                whole, end, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._read += len(whole) + len(end)
        self._events += [orjson.loads(line) for line in whole.split(b"\n") if line]
        return list(self._events)


def writes(
    events: Iterable[Event],
    *,
    user: str | None = None,
    resource: str | None = None,
    namespace: str | None = None,
    name: str | None = None,
    accepted: bool | None = True,
) -> list[Event]:
    """The writes among events, by part: user name, plural resource (`trainingjobs`, of any
    subresource), namespace, name.

    `accepted=False` gives the refused ones, None both. Dry runs are no writes, and neither are
    reviews (of access, tokens, oneself).
    """
    return [
        event
        for event in events
        if event["verb"] in WRITES
        and event["stage"] == "ResponseComplete"
        and "dryRun=" not in event["requestURI"]
        and not _resource(event).endswith("reviews")
        and (user is None or event["user"]["username"] == user)
        and (resource is None or _resource(event) == resource)
        and (namespace is None or _object(event).get("namespace") == namespace)
        and (name is None or _object(event).get("name") == name)
        and (accepted is None or (event["responseStatus"]["code"] < 400) == accepted)
    ]


def per_object(events: Iterable[Event]) -> Counter[str]:
    """How many events each object had, as `resource/namespace/name`; subresources count for their
    object.

    >>> per_object([{"objectRef": {"resource": "nodes", "name": "a", "subresource": "status"}}])
    Counter({'nodes//a': 1})
    """
    return Counter(
        f"{_resource(event)}/{_object(event).get('namespace', '')}/{_object(event).get('name', '')}"
        for event in events
    )


def per_user(events: Iterable[Event]) -> Counter[str]:
    """How many events each user made."""
    return Counter(event["user"]["username"] for event in events)


def _object(event: Event) -> dict[str, str]:
    reference: dict[str, str] = event.get("objectRef", {})
    return reference


def _resource(event: Event) -> str:
    return _object(event).get("resource", "")
