"""Objects as bytes: what is kept of a body, and marks that tell whether a new one says anything new.

A mark is a digest. Of each object two are kept, because they are nobody else's and ours: `theirs` covers what a decision
depends on (spec, labels, the annotations that people write), `ours` covers what we write (the other annotations under our
prefix, and the status of our kinds). Resource versions, managed fields and the status of foreign kinds are in neither.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final

import orjson

from mofa_model.annotations import INPUTS, PREFIX
from mofa_model.kinds import Kind
from mofa_model.kinds.shape import Body, at, items, part, text_of
from mofa_operator.keys import FAILURE_LEDGER, OURS, Key
from mofa_operator.objects import FOREIGN, STATUS, LiveObject, LiveProfile, Written
from mofa_operator.words import MANAGER

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""Where kubectl keeps a copy of the whole object."""


def packed(value: Any) -> bytes:
    """A value as JSON with sorted keys; what JSON proper cannot hold (a lone surrogate, a huge number) is escaped.

    >>> packed({"b": 1, "a": [True]})
    b'{"a":[true],"b":1}'
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()


@dataclass(slots=True)
class StoredBody:
    """One object, as it is kept."""

    version: str
    """Its resource version."""
    raw: bytes
    """Its body, packed."""
    theirs: bytes
    """Mark of what others write."""
    ours: bytes
    """Mark of what we write."""
    relevance: bytes = b""
    """Of a ClusterProfile: mark of what jobs take from it."""
    ahead: int = 0
    """Above zero while the echo of our own write is outstanding: how many older events are still let pass."""
    told: bool = False
    """Whether that echo has nothing to say: what the API server answered held no news of others."""

    def is_old(self, version: str) -> bool:
        """Whether an event that brings this version says nothing new."""
        if self.ahead and older(version, self.version):
            self.ahead -= 1
            return True
        if not version or version != self.version or (self.ahead and not self.told):
            return False
        self.ahead = 0
        return True


def stored(kind: Kind, body: Body) -> StoredBody:
    """What is kept of a slim body."""
    return StoredBody(version_of(body), kept(body), theirs(kind, body), ours(kind, body))


def kept(body: Body) -> bytes:
    """A body as JSON in exactly as many bytes as it needs: the buffer that the packer hands out is a multiple of that."""
    return bytes(memoryview(packed(body)))


def unpacked(text: bytes) -> Any:
    """The value again."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


def digest(value: Any) -> bytes:
    """Equal for equal values, and for no others. Ours."""
    return hashlib.blake2b(packed(value), digest_size=16).digest()


def slim(kind: Kind, body: Body) -> Body:
    """A body without kubectl's copy of itself; lists leave kind and version out, here they are. Of managed fields it keeps
    whose hand our annotations are of, where it is not ours.
    """
    metadata = {
        key: value
        for key, value in part(body, "metadata").items()
        if key not in {"managedFields", FOREIGN}
    }
    if foreign := _foreign(kind, part(body, "metadata")):
        metadata[FOREIGN] = foreign
    annotations = part(metadata, "annotations")
    if _LAST_APPLIED in annotations:
        metadata["annotations"] = {
            key: value for key, value in annotations.items() if key != _LAST_APPLIED
        }
    return {**body, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


def theirs(kind: Kind, body: Body) -> bytes:
    """Mark of what others write and a decision depends on."""
    metadata, annotations = part(body, "metadata"), part(body, "metadata", "annotations")
    return digest(
        [
            metadata.get("uid"),
            metadata.get("deletionTimestamp"),
            metadata.get("generation") if kind in OURS else None,
            None if kind in OURS else metadata.get("labels"),
            {key: annotations[key] for key in INPUTS if key in annotations},
            body.get("spec"),
        ]
    )


def ours(kind: Kind, body: Body) -> bytes:
    """Mark of what we write: where somebody else changed it, it has to be put right."""
    annotations = part(body, "metadata", "annotations")
    written = {key: value for key, value in annotations.items() if is_output(key)}
    return digest([written, body.get("status") if kind in OURS else None])


def _foreign(kind: Kind, metadata: Body) -> dict[str, str]:
    """Annotations under our prefix whose value is not of our hand, and of our kinds the status, where anybody else wrote a part
    of it; and whose it is. The API server keeps account of that.
    """
    written = [name for name in part(metadata, "annotations") if is_output(name)]
    if not written:
        return {}
    hands, status = dict[str, Written](), dict[str, str]()
    for entry in items(metadata.get("managedFields")):
        manager = text_of(entry.get("manager"))
        fields = part(entry, "fieldsV1")
        hands.setdefault(manager, {}).update(part(fields, "f:metadata", "f:annotations"))
        if kind in OURS and "f:status" in fields and manager != MANAGER:
            status[STATUS] = manager
    own = hands.pop(MANAGER, {})
    return status | {
        name: next((manager for manager, owned in hands.items() if f"f:{name}" in owned), "")
        for name in written
        if f"f:{name}" not in own
    }


def is_output(annotation: str) -> bool:
    """Whether an annotation is one that we write."""
    return annotation.startswith(PREFIX) and annotation not in INPUTS


def version_of(body: Body) -> str:
    """The resource version; empty where there is none."""
    return text_of(at(body, "metadata", "resourceVersion"))


def older(version: str, than: str) -> bool:
    """Whether one resource version came before another; versions that are no numbers cannot be compared."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


# ClusterProfiles as they stand, unpacked once and not for every job that asks.


class Unpacked:
    """The last one of each name."""

    def __init__(self) -> None:
        """None was asked for yet."""
        self._held: dict[Key, tuple[bytes, bytes, LiveProfile]] = {}

    def profile(
        self, key: Key, stands: StoredBody | None, ledger: StoredBody | None
    ) -> LiveProfile | None:
        """A profile and its ledger, as they are kept; None where there is no profile."""
        if stands is None:
            return None
        beside = b"" if ledger is None else ledger.raw
        held = self._held.get(key)
        if held is None or held[0] is not stands.raw or held[1] is not beside:
            named = Key(FAILURE_LEDGER, "", key.name)
            counted = None if ledger is None else LiveObject(named, unpacked(beside))
            found = LiveProfile(key, unpacked(stands.raw), counted)
            self._held[key] = held = stands.raw, beside, found
        return held[2]

    def forget(self, key: Key) -> None:
        """It is no more."""
        self._held.pop(key, None)
