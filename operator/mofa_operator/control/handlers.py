"""kopf as transport: its watches bring every event of every kind to the intake, and it does nothing else.

No finalizers, no state on objects, no Events, no peering: `on.event` alone needs none of them. kopf ends when a watch
fails for good (its kind was deleted, the API server was away for a minute); it is then started anew, and lists again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import aiohttp
import kopf

from mofa_operator.control.intake import Intake
from mofa_operator.credentials import Credentials, Known
from mofa_operator.keys import Key, Kind
from mofa_operator.words import MANAGER

REST: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Waits before kopf is started again; the last one holds. [s]"""
_STEADY: Final = 300.0
"""After running so long, the next end counts as the first. [s]"""
_IDLE: Final = 0.5
"""How long kopf keeps a task for an object after its last event; its own 5 s would keep thousands. [s]"""
_LOGIN_PAUSE: Final = 5.0
"""Wait before credentials that were refused are tried again. [s]"""

_log = logging.getLogger(__name__)


class Watches:
    """Watches of all kinds, in our event loop."""

    def __init__(
        self, *, kinds: Sequence[Kind], namespaces: Sequence[str], intake: Intake, credentials: Credentials
    ) -> None:
        """`namespaces` empty for all; kinds that the cluster does not have are watched once they appear."""
        self._namespaces = namespaces
        self._intake = intake
        self._credentials = credentials
        self._refused: Known | None = None
        self._registry = kopf.OperatorRegistry()
        kopf.on.login(registry=self._registry, errors=kopf.ErrorsMode.TEMPORARY, backoff=_LOGIN_PAUSE)(
            self._login
        )
        for kind in kinds:
            kopf.on.event(
                kind.group, kind.version, kind.plural, param=kind, id=kind.plural, registry=self._registry
            )(self._came)

    async def run(self, started: Callable[[], None]) -> None:
        """Watch until cancelled; `started` is called after each start, since kopf takes the process's signals."""
        attempt = 0
        loop = asyncio.get_running_loop()
        while True:
            since = loop.time()
            try:
                await self._watch(started)
                why = "ended"
            except Exception as error:  # noqa: BLE001 - whatever it was, the watches must go on
                why = f"{type(error).__name__}: {error}"
            attempt = 0 if loop.time() - since > _STEADY else attempt + 1
            rest = REST[min(attempt, len(REST) - 1)]
            _log.warning("the watches have ended (%s); again in %g s", why, rest)
            await asyncio.sleep(rest)

    async def _watch(self, started: Callable[[], None]) -> None:
        """One life of kopf. Its own `run_tasks` would cancel every younger task of this loop when it ends."""
        everywhere: dict[str, Any] = (
            {"clusterwide": True} if not self._namespaces else {"namespaces": self._namespaces}
        )
        tasks = await kopf.spawn_tasks(
            registry=self._registry,
            settings=self._settings(),
            standalone=True,
            **everywhere,
        )
        started()
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.scanning.disabled = bool(
            self._namespaces
        )  # then it needs no right to watch the whole cluster
        settings.persistence.diffbase_storage = _NoDiffs()
        settings.persistence.progress_storage = _NoProgress()
        settings.queueing.idle_timeout = _IDLE
        settings.watching.chunk_size = 500
        settings.networking.request_timeout = 30.0
        settings.process.ultimate_exiting_timeout = None  # it would kill this process after kopf's end
        return settings

    async def _came(self, *, event: kopf.RawEvent, param: Any = None, **_: Any) -> None:
        body: Any = event["object"]
        if event["type"] == "DELETED":
            meta = body["metadata"]
            self._intake.gone(Key(param, meta.get("namespace", ""), meta["name"]), meta.get("uid"))
        else:
            self._intake.seen(param, body, urgent=event["type"] is not None)

    async def _login(self, **_: Any) -> kopf.AiohttpSession:
        """A session with the credentials that our own requests use; called again when they are refused."""
        if self._credentials.stale:
            await self._credentials.refresh()
        known = self._credentials.known
        if known == self._refused and not await self._credentials.reload(known):
            await asyncio.sleep(_LOGIN_PAUSE)
        access, token = self._refused = self._credentials.known
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=access.context() or True),
            headers={"User-Agent": MANAGER} | ({"Authorization": token} if token else {}),
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=access.proxy,
        )
        return kopf.AiohttpSession(server=access.server, aiohttp_session=session)


class _NoDiffs(kopf.DiffBaseStorage):
    """Nothing is compared with what was handled last: `on.event` does not ask, and it is most of kopf's work."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence({})

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        """No state on objects."""


class _NoProgress(kopf.ProgressStorage):
    """No handler has progress that would have to be remembered."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        """No state on objects."""

    def purge(self, **_: Any) -> None:
        """As above."""

    def touch(self, **_: Any) -> None:
        """As above."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence
