"""kopf as the watch of what people set up, profiles, policies and nodes: it brings every event to the intake, and does nothing else.

Jobs come by the thousand, and kopf takes one event a turn of the event loop; the rest wait unread, where nobody can count
them. So `watch` has jobs, of our kind too, and what it reads is in the queue at once.

No finalizers, no state on objects, no Events, no peering: `on.event` alone needs none of them. Each kind has a kopf of its
own, for kopf ends all its watches with the first one that fails. It looks for kinds once, when it starts, and waits for good
where discovery lags behind what is served; so it starts when discovery names the kind, and is held to watching it then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Never

import aiohttp
import kopf

from mofa_model.kinds import Kind
from mofa_operator.api import Api
from mofa_operator.control.intake import Intake
from mofa_operator.control.tasks import Task, end, named
from mofa_operator.control.watch import Tell
from mofa_operator.credentials import Credentials, Known
from mofa_operator.keys import key_of
from mofa_operator.refusals import Busy
from mofa_operator.words import MANAGER

_WHO: Final[Any] = "mofa-advisor"
"""Who we are to kopf's peers, of whom there are none; without it kopf asks for our user's name, and a container's user has none."""
_LOOK: Final = 0.5
"""Time between two looks at whether kopf still watches. [s]"""
_PATIENCE: Final = 15.0
"""How long kopf may take from its start to its watch. [s]"""
_IDLE: Final = 0.5
"""How long kopf keeps a task for an object after its last event; its own 5 s would keep thousands. [s]"""
_LOGIN_PAUSE: Final = 5.0
"""Wait before credentials that were refused are tried again. [s]"""
_ENDING: Final = 2.0
"""How long kopf may take to end. [s]"""

_log = logging.getLogger(__name__)


class KopfWatch:
    """A watch of one kind in one place by a kopf of its own, in our event loop."""

    def __init__(
        self,
        kind: Kind,
        place: str | None,
        *,
        api: Api,
        intake: Intake,
        credentials: Credentials,
        heed: Callable[[], None],
    ) -> None:
        """`place` is a namespace, None for all; `heed` is called after each start, since kopf takes the process's signals."""
        self.kind = kind
        self.place = place
        self._api = api
        self._intake = intake
        self._credentials = credentials
        self._heed = heed
        self._refused: Known | None = None
        self._registry = kopf.OperatorRegistry()
        kopf.on.login(
            registry=self._registry, errors=kopf.ErrorsMode.TEMPORARY, backoff=_LOGIN_PAUSE
        )(self._login)
        kopf.on.event(
            kind.group, kind.version, kind.plural, id=kind.plural, registry=self._registry
        )(self._came)

    async def live(self, tell: Tell) -> Never:
        """One life of kopf, from when the kind is served; its own `run_tasks` would cancel every younger task of this loop."""
        async for _, version in self._api.pages(self.kind, self.place, size=1):  # noqa: B007 - it is asked from there
            break
        async with self._api.watch(self.kind, self.place, version):
            pass  # who may list may not always watch, and kopf takes its time to say so
        if not await self._api.names(self.kind):
            raise Busy("discovery does not name it yet")
        tasks = list(
            await kopf.spawn_tasks(
                registry=self._registry,
                settings=self._settings(),
                identity=_WHO,
                standalone=True,
                clusterwide=self.place is None,
                namespaces=[] if self.place is None else [self.place],
            )
        )
        self._heed()
        try:
            await self._attend(tasks, tell)
        finally:
            await end(tasks, _ENDING)
            await end(self._watching, _ENDING)  # kopf may have left it behind
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        raise Busy("kopf has ended")

    async def _attend(self, tasks: Sequence[Task], tell: Tell) -> None:
        """Until kopf ends; one that does not watch is of no use."""
        loop = asyncio.get_running_loop()
        until, done = loop.time() + _PATIENCE, set[Task]()
        while not done:
            done, _ = await asyncio.wait(tasks, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
            if self._watching:
                tell()
                until = loop.time() + _PATIENCE
            elif loop.time() > until:
                raise Busy("kopf does not watch it")

    @property
    def _watching(self) -> set[Task]:
        """Kopf's task that watches, by the name that kopf gives it."""
        what = f"{self.kind.plural}.{self.kind.version}.{self.kind.group}".strip(".")
        name = f"watcher for {what}@{self.place}"
        return {task for task in named(name) if task.get_name() == name}

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.scanning.disabled = True  # it needs no right to watch definitions then
        settings.persistence.diffbase_storage = _NoDiffs()
        settings.persistence.progress_storage = _NoProgress()
        settings.queueing.idle_timeout = _IDLE
        settings.queueing.exit_timeout = 0.1  # whatever it has not told, the next list will
        settings.networking.error_backoffs = (
            0.2,
            1.0,
        )  # then `Watches` knows better what is the matter
        settings.watching.chunk_size = 500
        settings.networking.request_timeout = 30.0
        settings.process.ultimate_exiting_timeout = (
            None  # it would kill this process after kopf's end
        )
        return settings

    async def _came(self, *, event: kopf.RawEvent, **_: Any) -> None:
        body: Any = event["object"]
        if event["type"] == "DELETED":
            self._intake.gone(key_of(self.kind, body), body["metadata"].get("uid"))
        else:
            self._intake.seen(self.kind, body, urgent=event["type"] is not None)

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
