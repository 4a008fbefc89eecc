"""What is sent as bytes, and a watch's bytes as events: a line each, however they are cut on their way."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import aiohttp
import orjson

from mofa_model.kinds.shape import Body, at
from mofa_operator.refusals import Busy, refusal

Events: TypeAlias = AsyncIterator[tuple[str, Body]]
"""Type and object, in the order in which they happened; a BOOKMARK's object has a version and nothing else."""
BOOKMARK: Final = "BOOKMARK"
_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", BOOKMARK})


_UNREADABLE: Final = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xef\xbf[\xbe\xbf]|\xef\xbb\xbf")
"""Characters that JSON may hold as they are and YAML may not: an apply is read as YAML, and people write anything."""


def sent(body: Body | Sequence[Body]) -> bytes:
    """What is written to the API server, readable as JSON and as YAML."""
    return _UNREADABLE.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), orjson.dumps(body))


@contextlib.contextmanager
def as_busy(what: str) -> Iterator[None]:
    """Failures of the network, told as what they mean."""
    try:
        yield
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Busy(f"{what}: {type(error).__name__} {error}") from error


def listed(page: Body, path: str) -> Sequence[Body]:
    """The objects of a page of a list."""
    items = page.get("items") or []
    if isinstance(items, list) and all(
        isinstance(one, dict) and at(one, "metadata", "name") for one in items
    ):
        return items
    raise Busy(f"GET {path}: the answer is no list of Kubernetes")


async def events(chunks: AsyncIterator[bytes], path: str) -> Events:
    """The events of an open watch; `Expired` and the other refusals where the server says so in its midst."""
    rest = b""
    while True:
        with as_busy(f"WATCH {path}"):
            chunk = await anext(chunks, b"")
        if not chunk:
            return
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield _event(line, path)


def _event(line: bytes, path: str) -> tuple[str, Body]:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        found = None
    body = found.get("object") if isinstance(found, Mapping) else None
    if isinstance(found, Mapping) and isinstance(body, dict):
        if found.get("type") == "ERROR":
            code = body.get("code")
            raise refusal(
                code if isinstance(code, int) else 500, orjson.dumps(body), None, "WATCH", path
            )
        meta = body.get("metadata")
        what = found.get("type")
        if what in _TYPES and isinstance(meta, dict) and (what == BOOKMARK or meta.get("name")):
            return str(what), body
    raise Busy(f"WATCH {path.partition('?')[0]}: the answer is no watch of Kubernetes")
