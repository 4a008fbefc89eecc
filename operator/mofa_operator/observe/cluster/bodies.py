"""Objects as bytes: what is kept of a body, and digests that show whether a new body differs.

Each object has two digests: `theirs` covers what a decision depends on (spec, labels, annotations
that people write), `ours` covers what the operator writes (the other annotations under our prefix,
and the status of our kinds). Neither covers resource versions, managed fields and the status of
foreign kinds.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from mofa_model.annotations import INPUTS, PREFIX
from mofa_model.kinds import Kind
from mofa_model.kinds.shape import Body, at, items, part, text_of
from mofa_operator.api import too_large_alone, too_large_together
from mofa_operator.keys import FAILURE_LEDGER, OURS, Key
from mofa_operator.objects import FOREIGN, STATUS, UNREAD, LiveObject, LiveProfile, WrittenPart
from mofa_operator.settings import ApiSettings
from mofa_operator.words import MANAGER

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation in which kubectl keeps a copy of the whole object."""


def packed(value: Any) -> bytes:
    """A value as JSON with sorted keys; what JSON cannot hold is escaped.

    >>> packed({"b": 1, "a": [True]})
    b'{"a":[true],"b":1}'
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()


def unpacked(text: bytes) -> Any:
    """The value that `packed` wrote."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


def digest(value: Any) -> bytes:
    """A checksum of a value as JSON: equal for equal values alone. Ours."""
    return hashlib.blake2b(packed(value), digest_size=16).digest()


@dataclass(slots=True)
class StoredBody:
    """One object, as it is kept."""

    version: str
    """Its resource version."""
    raw: bytes
    """Its body, packed."""
    theirs: bytes
    """Digest of what others write."""
    ours: bytes
    """Digest of what we write."""
    relevance: bytes = b""
    """Of a ClusterProfile: digest of what jobs take from it."""
    ahead: int = 0
    """Older events that are still ignored while the echo of our write has not come. [1]"""
    unread: bool = False
    """Whether its spec is not kept; the same version may bring it once there is room."""
    settled: bool = False
    """Whether the echo of our write is no news: the API server's answer had no change of others."""

    def is_old(self, version: str) -> bool:
        """Whether an event of this version brings nothing new."""
        if self.ahead and older(version, self.version):
            self.ahead -= 1
            return True
        if not version or version != self.version or (self.ahead and not self.settled):
            return False
        if self.unread:
            return False
        self.ahead = 0
        return True


_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    FOREIGN,
)
_MOST: Final = 32 * 1024
"""Labels, our annotations, owners or status that are kept of a body that is too large. [B]"""
_LEAST: Final = 4 * 1024
"""The same where its namespace has used up its budget. [B]"""


def without_spec(body: Body, why: str, most: int = _MOST) -> Body:
    """An object's body without its spec, and `why` that is not kept.

    Labels, our annotations, owners and status stay where each takes `most` bytes at most.
    """
    metadata = part(body, "metadata")
    annotations = {k: v for k, v in part(metadata, "annotations").items() if k.startswith(PREFIX)}
    large_parts = {
        "labels": metadata.get("labels"),
        "annotations": annotations,
        "ownerReferences": metadata.get("ownerReferences"),
    }

    def is_kept(value: object) -> bool:
        return bool(value) and len(packed(value)) <= most

    kept_metadata = {name: metadata[name] for name in _METADATA if name in metadata}
    kept_metadata |= {name: value for name, value in large_parts.items() if is_kept(value)}
    status = {"status": body["status"]} if is_kept(body.get("status")) else {}
    return {
        "apiVersion": body.get("apiVersion"),
        "kind": body.get("kind"),
        "metadata": kept_metadata,
        UNREAD: why,
        **status,
    }


class BodyBudget:
    """How many bytes are kept of jobs: of one, of a namespace, and of all.

    A job beyond a limit is kept without its spec, and says why. Where all jobs together are at the
    limit, only namespaces that hold less than an equal share may grow.
    """

    def __init__(self, settings: ApiSettings) -> None:
        """Nothing is kept yet."""
        self._settings = settings
        self._held: Counter[str] = Counter()

    def within(self, body: Body, raw: bytes, before: int) -> Body:
        """A slim body as it may be kept; `raw` are its bytes, `before` was kept. [B]"""
        namespace, size = text_of(at(body, "metadata", "namespace")), len(raw)
        largest = self._settings.largest_object
        if size > largest and UNREAD not in body:
            body = without_spec(body, too_large_alone(largest))
            size = len(packed(body))
        if not self._fits(namespace, size - before):
            why = too_large_together(namespace, self._settings.namespace_bytes)
            body = without_spec(body, body.get(UNREAD, why), _LEAST)
        return body

    def add(self, namespace: str, change: int) -> None:
        """Count more bytes as kept for a namespace; fewer where `change` is negative. [B]"""
        self._held[namespace] += change
        if self._held[namespace] <= 0:
            del self._held[namespace]

    def _fits(self, namespace: str, change: int) -> bool:
        held = self._held[namespace]
        if change <= 0 and held <= self._settings.namespace_bytes:
            return True
        if held + change > self._settings.namespace_bytes:
            return False
        limit = self._settings.all_bytes
        return self._held.total() + change <= limit or held + change <= limit / len(self._held)


def stored(kind: Kind, body: Body) -> StoredBody:
    """What is kept of a slim body."""
    unread = UNREAD in body
    raw = kept(body)
    return StoredBody(version_of(body), raw, theirs(kind, body), ours(kind, body), unread=unread)


def kept(body: Body) -> bytes:
    """A body as JSON in exactly as many bytes as it needs; the packer's buffer would be larger."""
    return bytes(memoryview(packed(body)))


def slim(kind: Kind, body: Body) -> Body:
    """A body with kind and version, without kubectl's copy and useless managed fields."""
    metadata = {
        key: value
        for key, value in part(body, "metadata").items()
        if key not in {"managedFields", FOREIGN}
    }
    if foreign := _foreign(kind, part(body, "metadata")):
        metadata[FOREIGN] = foreign
    annotations = part(metadata, "annotations")
    if _LAST_APPLIED in annotations:
        metadata["annotations"] = {k: v for k, v in annotations.items() if k != _LAST_APPLIED}
    return {**body, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


def theirs(kind: Kind, body: Body) -> bytes:
    """Digest of what others write and a decision depends on."""
    metadata, annotations = part(body, "metadata"), part(body, "metadata", "annotations")
    return digest(
        [
            metadata.get("uid"),
            metadata.get("deletionTimestamp"),
            metadata.get("generation") if kind in OURS else None,
            None if kind in OURS else metadata.get("labels"),
            {key: annotations[key] for key in INPUTS if key in annotations},
            body.get("spec"),
            *([body[UNREAD]] if UNREAD in body else ()),
        ]
    )


def ours(kind: Kind, body: Body) -> bytes:
    """Digest of the annotations and status that the operator writes into an object."""
    annotations = part(body, "metadata", "annotations")
    written = {key: value for key, value in annotations.items() if is_output(key)}
    return digest([written, body.get("status") if kind in OURS else None])


def _foreign(kind: Kind, metadata: Body) -> dict[str, str]:
    """Our annotations, and our kinds' status, that another manager wrote, with its name."""
    output_names = [name for name in part(metadata, "annotations") if is_output(name)]
    if not output_names:
        return {}
    managers, status = dict[str, WrittenPart](), dict[str, str]()
    for entry in items(metadata.get("managedFields")):
        manager = text_of(entry.get("manager"))
        fields = part(entry, "fieldsV1")
        managers.setdefault(manager, {}).update(part(fields, "f:metadata", "f:annotations"))
        if kind in OURS and "f:status" in fields and manager != MANAGER:
            status[STATUS] = manager
    own = managers.pop(MANAGER, {})
    return status | {
        name: next((manager for manager, owned in managers.items() if f"f:{name}" in owned), "")
        for name in output_names
        if f"f:{name}" not in own
    }


def is_output(annotation: str) -> bool:
    """Whether an annotation is one that we write."""
    return annotation.startswith(PREFIX) and annotation not in INPUTS


def version_of(body: Body) -> str:
    """The resource version; empty where there is none."""
    return text_of(at(body, "metadata", "resourceVersion"))


def older(version: str, than: str) -> bool:
    """Whether one resource version came before another; False where they are no numbers."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


class _Unpacked(NamedTuple):
    """A ClusterProfile, and the bytes that it and its ledger were unpacked from."""

    raw: bytes
    ledger: bytes
    profile: LiveProfile


class ProfileCache:
    """ClusterProfiles, unpacked once and not for every job that asks."""

    def __init__(self) -> None:
        self._profiles: dict[Key, _Unpacked] = {}

    def profile(
        self, key: Key, stored_body: StoredBody | None, ledger: StoredBody | None
    ) -> LiveProfile | None:
        """A profile with its ledger; None where there is no profile."""
        if stored_body is None:
            return None
        ledger_raw = b"" if ledger is None else ledger.raw
        cached = self._profiles.get(key)
        if cached is None or cached.raw is not stored_body.raw or cached.ledger is not ledger_raw:
            ledger_key = Key(FAILURE_LEDGER, "", key.name)
            ledger_object = None if ledger is None else LiveObject(ledger_key, unpacked(ledger_raw))
            profile = LiveProfile(key, unpacked(stored_body.raw), ledger_object)
            self._profiles[key] = cached = _Unpacked(stored_body.raw, ledger_raw, profile)
        return cached.profile

    def forget(self, key: Key) -> None:
        """Drop a profile that was deleted."""
        self._profiles.pop(key, None)
