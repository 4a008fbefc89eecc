"""An API server's list of jobs of megabytes: pages, continuation, and metadata alone where that is
asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web

SIZE = 1_380_000
"""Of one giant, below the largest that etcd takes. [B]"""
Body = dict[str, Any]


def giant(namespace: str, name: str, *, empty: bool = False, size: int = SIZE) -> Body:
    """A Job of that size [B]; with `empty` values that cost forty times their bytes once they
    are read.
    """
    filler: Any = [{}] * (size // 3) if empty else "x" * size
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "resourceVersion": "7",
            "annotations": {"advisor.mofa.dev/advise": "true"},
        },
        "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}, "filler": filler},
    }


class Lists:
    """Objects of a kind as the API server pages them."""

    def __init__(self, version: str, kind: str, objects: Mapping[tuple[str, str], Body]) -> None:
        self._identity = {"apiVersion": version, "kind": kind}
        self._names = sorted(objects)
        self.objects = objects
        self.sent = 0
        """Bytes of all answers. [B]"""

    async def answer(self, request: web.Request, more: str = "") -> web.StreamResponse:
        """A list, or one object; `more` begins the text by which a list goes on."""
        *_, last = request.path.split("/")
        key = (request.path.split("/namespaces/")[-1].split("/")[0], last)
        if key in self.objects:
            return await self._send(request, [orjson.dumps(self._identity | self.objects[key])])
        limit, at = int(request.query.get("limit", 500)), int(request.query.get("continue") or 0)
        partial = "as=PartialObjectMetadataList" in request.headers.get("Accept", "")
        names = self._names[at : at + limit]
        more = f"{more}{at + limit}" if at + limit < len(self._names) else ""
        kind = "PartialObjectMetadataList" if partial else f"{self._identity['kind']}List"
        head = {"kind": kind, "metadata": {"resourceVersion": "9", "continue": more}}
        pieces = [orjson.dumps(head)[:-1] + b',"items":[']
        for number, name in enumerate(names):
            body = self.objects[name]
            shown = {"metadata": body["metadata"]} if partial else body
            pieces.append(b"," * bool(number) + orjson.dumps(shown))
        return await self._send(request, [*pieces, b"]}"])

    async def _send(self, request: web.Request, pieces: list[bytes]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for piece in pieces:
            try:
                await response.write(piece)
            except ConnectionError:
                break
            self.sent += len(piece)
            await asyncio.sleep(0)
        return response
