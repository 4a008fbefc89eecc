"""Texts that jobs name: read when they are needed and kept for seconds, since nobody watches every ConfigMap."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final

from mofa_operator.api import Api
from mofa_operator.keys import CONFIG_MAP
from mofa_operator.refusals import Refused

KEPT: Final = 10.0
"""How long a text is taken as it was read. [s]"""
_MOST: Final = 256
"""Texts that are kept. [1]"""

_log = logging.getLogger(__name__)


class ConfigMaps:
    """ConfigMaps by namespace and name."""

    def __init__(self, api: Api) -> None:
        """Nothing was read yet."""
        self._api = api
        self._kept: dict[tuple[str, str], tuple[float, Mapping[str, str] | None]] = {}

    async def read(self, namespace: str, names: Iterable[str]) -> dict[str, Mapping[str, str]]:
        """Data of those that exist, by name."""
        found = {name: await self._one(namespace, name) for name in names}
        return {name: data for name, data in found.items() if data is not None}

    async def _one(self, namespace: str, name: str) -> Mapping[str, str] | None:
        now = asyncio.get_running_loop().time()
        until, data = self._kept.get((namespace, name), (now, None))
        if until > now:
            return data
        try:
            body = await self._api.get(CONFIG_MAP, namespace, name)
        except Refused as error:
            _log.warning("ConfigMap %s/%s counts as missing: %s", namespace, name, error)
            body = None
        data = None if body is None else body.get("data") or {}
        if len(self._kept) >= _MOST:
            self._kept = {which: one for which, one in self._kept.items() if one[0] > now}
        self._kept[namespace, name] = now + KEPT, data
        return data
