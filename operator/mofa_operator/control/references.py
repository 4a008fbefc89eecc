"""Objects that jobs name: not watched, but read when they are needed, and kept for seconds."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Final

from mofa_model.kinds.shape import Body
from mofa_operator.api import Api
from mofa_operator.api_errors import Refused
from mofa_operator.keys import CONFIG_MAP, Key
from mofa_operator.observe.cluster.store import Store
from mofa_operator.snapshot import Named

KEPT: Final = 10.0
"""How long an object counts as it was read. [s]"""
_MOST: Final = 256
"""Objects that are kept. [1]"""
_HOPS: Final = 4
"""A job names a runtime, its pods a claim's template, that a class; one more finds no name. [1]"""

_log = logging.getLogger(__name__)


class References:
    """Objects that jobs name."""

    def __init__(self, api: Api, store: Store) -> None:
        """`api` reads the objects; `store` knows which names a job has."""
        self._api = api
        self._store = store
        self._kept: dict[Key, tuple[float, Body | None]] = {}

    async def read(self, key: Key) -> Named:
        """What a job names, and what that names in turn, as far as it exists."""
        named, read = Named(), set[Key]()
        for _ in range(_HOPS):
            wanted = self._store.unread_objects(key, named)
            fresh = [reference for reference in wanted if reference not in read]
            if not fresh:
                return replace(named, is_whole=not wanted)
            read |= {*fresh}
            texts, beside = dict(named.config_maps), list(named.beside)
            for reference in fresh:
                if (body := await self._read(reference)) is None:
                    continue
                if reference.kind == CONFIG_MAP:
                    texts[reference.name] = body.get("data") or {}
                else:
                    beside.append(body)
            named = Named(config_maps=texts, beside=tuple(beside))
        return replace(named, is_whole=False)

    async def _read(self, reference: Key) -> Body | None:
        now = asyncio.get_running_loop().time()
        expires, body = self._kept.get(reference, (now, None))
        if expires > now:
            return body
        try:
            body = await self._api.get(reference.kind, reference.namespace, reference.name)
        except Refused as error:
            _log.warning("%s may not be read, so it is treated as missing: %s", reference, error)
            body = None
        if len(self._kept) >= _MOST:
            self._kept = {key: kept for key, kept in self._kept.items() if kept[0] > now}
        self._kept[reference] = now + KEPT, body
        return body
