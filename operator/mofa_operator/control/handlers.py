"""Our own kinds, watched by kopf: each change is stored, and the keys that it concerns are queued.

A handler returns at once, and decisions are made from the queue. So kopf needs no finalizer, no
state on objects, no Events and no peering: `kopf.on.event` uses none of them.

Each kind in each namespace has a kopf operator of its own, because kopf stops all its watches with
the first one that fails, as when a definition is removed or a right is taken (kopf issue 1077).
`Watches` starts it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Never

import aiohttp
import kopf

from mofa_model.kinds import Kind
from mofa_operator.api import Api
from mofa_operator.api_errors import Busy
from mofa_operator.control.enqueuer import Enqueuer
from mofa_operator.control.shutdown import Task, end
from mofa_operator.credentials import Credentials, UsedCredentials
from mofa_operator.keys import key_of
from mofa_operator.words import MANAGER

_POLL: Final = 0.5
"""Time between two checks that kopf still watches. [s]"""
_PATIENCE: Final = 15.0
"""How long kopf may take from its start to its watch. [s]"""
_LOGIN_PAUSE: Final = 5.0
"""Wait before credentials that were refused are tried again. [s]"""
_ENDING: Final = 2.0
"""How long kopf may take to end. [s]"""


@dataclass(eq=False)
class KopfWatch:
    """A kopf operator for one kind in one namespace, in our event loop.

    `namespace` is None for all; `on_start` is called after each start, since kopf takes over the
    process's signals.
    """

    kind: Kind
    namespace: str | None
    _: KW_ONLY
    api: Api
    enqueuer: Enqueuer
    credentials: Credentials
    on_start: Callable[[], None]

    def __post_init__(self) -> None:
        self._refused: UsedCredentials | None = None

    def _registry(self) -> kopf.OperatorRegistry:
        """The handlers of this operator, in a registry of their own."""
        registry = kopf.OperatorRegistry()
        kind = self.kind

        @kopf.on.startup(registry=registry)
        def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
            settings.posting.enabled = False
            settings.scanning.disabled = True  # without it kopf needs a right to watch definitions
            settings.persistence.diffbase_storage = _NoDiffs()
            settings.queueing.idle_timeout = 0.5  # kopf's own 5 s keep thousands of tasks
            settings.queueing.exit_timeout = 0.1  # the next list brings what was not handled
            settings.networking.error_backoffs = (0.2, 1.0)  # then `Watches` says what is wrong
            settings.networking.request_timeout = 30.0
            settings.watching.chunk_size = 20  # an object of ours may have 1.5 MB
            settings.process.ultimate_exiting_timeout = None  # it kills the process that hosts kopf

        @kopf.on.login(registry=registry, errors=kopf.ErrorsMode.TEMPORARY, backoff=_LOGIN_PAUSE)
        async def log_in(**_: Any) -> kopf.AiohttpSession:
            return await self._session()

        @kopf.on.event(kind.group, kind.version, kind.plural, registry=registry)
        async def handle_event(event: kopf.RawEvent, **_: Any) -> None:
            body: Any = event["object"]
            if event["type"] == "DELETED":
                self.enqueuer.drop(key_of(kind, body), body["metadata"].get("uid"))
            else:  # the type None means: from the first list, so nobody has just changed it
                self.enqueuer.put(kind, body, urgent=event["type"] is not None)

        return registry

    async def run(self, on_up: Callable[[], None]) -> Never:
        """Run kopf until it ends; calls `on_up` while it watches.

        Before that it raises where the kind is not served: kopf looks for kinds only at its start.
        """
        pages = self.api.pages(self.kind, self.namespace, size=1)
        async for _, version in pages:  # noqa: B007 - used after the loop
            break
        async with self.api.watch(self.kind, self.namespace, version):
            pass  # kopf is slow to say that the right to watch is missing
        if not await self.api.is_discovered(self.kind):
            raise Busy("the API server's discovery does not list this kind yet")
        # Not `kopf.operator`: at its end it cancels every task of this loop that is younger.
        tasks = await kopf.spawn_tasks(
            registry=self._registry(),
            identity=_PEER_NAME,
            standalone=True,
            clusterwide=self.namespace is None,
            namespaces=[] if self.namespace is None else [self.namespace],
        )
        self.on_start()
        try:
            await self._until_end(tasks, on_up)
        finally:
            await end(tasks, _ENDING)
            await end(self._watchers, _ENDING)  # kopf may leave it behind
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        raise Busy("kopf has ended")

    async def _until_end(self, tasks: Any, on_up: Callable[[], None]) -> None:
        """Wait until kopf ends; raises `Busy` where it runs and does not watch."""
        loop = asyncio.get_running_loop()
        deadline, done = loop.time() + _PATIENCE, set[Task]()
        while not done:
            done, _ = await asyncio.wait(tasks, timeout=_POLL, return_when=asyncio.FIRST_COMPLETED)
            if self._watchers:
                on_up()
                deadline = loop.time() + _PATIENCE
            elif loop.time() > deadline:
                raise Busy("kopf runs but watches nothing of this kind")

    @property
    def _watchers(self) -> set[Task]:
        """Kopf's task that watches, found by its name: kopf tells nobody whether it watches."""
        resource = f"{self.kind.plural}.{self.kind.version}.{self.kind.group}"
        name = f"watcher for {resource}@{self.namespace}"
        return {task for task in asyncio.all_tasks() if task.get_name() == name}

    async def _session(self) -> kopf.AiohttpSession:
        """A session with our credentials; kopf asks again when they are refused."""
        if self.credentials.stale:
            await self.credentials.refresh()
        credentials = self.credentials.used
        if credentials == self._refused and not await self.credentials.reload(credentials):
            await asyncio.sleep(_LOGIN_PAUSE)
        access, token = self._refused = self.credentials.used
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=access.context() or True),
            headers={"User-Agent": MANAGER} | ({"Authorization": token} if token else {}),
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=access.proxy,
        )
        return kopf.AiohttpSession(server=access.server, aiohttp_session=session)


_PEER_NAME: Final[Any] = MANAGER
"""Our name as a peer: kopf would ask for our user's name, and a container's user has none."""


class _NoDiffs(kopf.DiffBaseStorage):
    """No diffs: `kopf.on.event` needs none, and they are half of kopf's time for an event."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence({})

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        """Nothing is kept on objects."""
