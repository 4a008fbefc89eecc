"""What jobs name: read when it is needed and kept for seconds, since nobody watches every ConfigMap and every runtime."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, NamedTuple

from mofa_model.kinds.shape import Body
from mofa_operator.api import Api
from mofa_operator.keys import CONFIG_MAP, Key
from mofa_operator.observe.cluster.store import Store
from mofa_operator.refusals import Refused
from mofa_operator.snapshot import Named

KEPT: Final = 10.0
"""How long an object is taken as it was read. [s]"""
_MOST: Final = 256
"""Objects that are kept. [1]"""
_HOPS: Final = 4
"""From a job to its runtime, from its pods to a claim's template, from that to a class; and one to see that there are no more. [1]"""

_log = logging.getLogger(__name__)


class Read(NamedTuple):
    """What was read for a job."""

    named: Named
    """What exists."""
    whole: bool
    """Whether that is all that it names."""


class NamedObjects:
    """Objects that jobs name."""

    def __init__(self, api: Api, store: Store) -> None:
        """Nothing was read yet; the store knows what a job names."""
        self._api = api
        self._store = store
        self._kept: dict[Key, tuple[float, Body | None]] = {}

    async def read(self, key: Key) -> Read:
        """What a job names, and what that names in turn."""
        found, asked = Named(), set[Key]()
        for _ in range(_HOPS):
            wanted = self._store.wanted(key, found)
            fresh = [one for one in wanted if one not in asked]
            if not fresh:
                return Read(found, whole=not wanted)
            asked |= {*fresh}
            texts, beside = dict(found.config_maps), list(found.beside)
            for one in fresh:
                if (body := await self._one(one)) is None:
                    continue
                if one.kind == CONFIG_MAP:
                    texts[one.name] = body.get("data") or {}
                else:
                    beside.append(body)
            found = Named(config_maps=texts, beside=tuple(beside))
        return Read(found, whole=False)

    async def _one(self, wanted: Key) -> Body | None:
        now = asyncio.get_running_loop().time()
        until, body = self._kept.get(wanted, (now, None))
        if until > now:
            return body
        try:
            body = await self._api.get(wanted.kind, wanted.namespace, wanted.name)
        except Refused as error:
            _log.warning("%s counts as missing: %s", wanted, error)
            body = None
        if len(self._kept) >= _MOST:
            self._kept = {which: one for which, one in self._kept.items() if one[0] > now}
        self._kept[wanted] = now + KEPT, body
        return body
