"""What the operator serves over HTTP: metrics and the page on one port, health on another.

aiohttp waits for ever for the head of a request, and keeps every connection that is made. So a
connection that has not asked within a few seconds is cut, none lives longer than a minute (a
scraper makes a new one), and where all places are taken the one that has been silent longest makes
room: a client that asks at once is answered, however many others only hold a line.

Who may see what is served, the API server says, as kube-rbac-proxy asks it: a TokenReview says who
it is, a SubjectAccessReview whether a role gives `get` on the path. An answer holds for a minute.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Final, Self, TypeAlias, cast

import orjson
from aiohttp import web

from mofa_model.errors import BadValue, why
from mofa_model.kinds import Kind
from mofa_model.kinds.shape import at, part
from mofa_operator.api import Api
from mofa_operator.api_errors import ApiError
from mofa_operator.lru_cache import LruCache
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.page.server import PATH
from mofa_operator.settings import ServeSettings

MOST: Final = 256
"""Connections of one port. [1]"""
SILENT: Final = 5.0
"""How long a connection may be there before the head of a request has come. [s]"""
LONGEST: Final = 60.0
"""How long it may last. [s]"""
_END: Final = b"\r\n\r\n"


class ConnectionLimit:
    """The connections of one port; called for each new one by `asyncio.Server`."""

    def __init__(self, make: Callable[[], asyncio.Protocol], most: int = MOST) -> None:
        """`make` makes what speaks HTTP."""
        self._make = make
        self._most = most
        self._silent: dict[asyncio.BaseTransport, _Connection] = {}
        self._heard: set[asyncio.BaseTransport] = set()

    def __call__(self) -> asyncio.Protocol:
        """A new connection."""
        return _Connection(self, self._make())

    def add(self, transport: asyncio.Transport, connection: _Connection) -> bool:
        """Give it a place; the result says whether there is one."""
        if len(self._silent) + len(self._heard) >= self._most:
            oldest = next(iter(self._silent), None)
            if oldest is None:
                return False
            self._silent.pop(oldest).cut()
        self._silent[transport] = connection
        return True

    def heard(self, transport: asyncio.BaseTransport | None) -> None:
        """The head of its request has come."""
        if transport is not None and (connection := self._silent.pop(transport, None)) is not None:
            connection.heard()
            self._heard.add(transport)

    def remove(self, transport: asyncio.BaseTransport) -> None:
        """Its place is free."""
        self._silent.pop(transport, None)
        self._heard.discard(transport)


class _Connection(asyncio.Protocol):
    """One connection: what it says goes to what speaks HTTP."""

    def __init__(self, port: ConnectionLimit, http: asyncio.Protocol) -> None:
        self._port = port
        self._http = http
        self._transport: asyncio.Transport | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._tail = b""  # its last bytes, until the head of a request has come

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._http.connection_made(transport)
        if not self._port.add(self._transport, self):
            self.cut()
            return
        loop = asyncio.get_running_loop()
        self._timers = [loop.call_later(wait, self.cut) for wait in (LONGEST, SILENT)]

    def heard(self) -> None:
        self._timers.pop().cancel()

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        for timer in self._timers:
            timer.cancel()
        if self._transport is not None:
            self._port.remove(self._transport)
        self._http.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if len(self._timers) == 2:
            self._tail += data
            if _END in self._tail:
                self._port.heard(self._transport)
            self._tail = self._tail[-len(_END) + 1 :]
        self._http.data_received(data)

    def eof_received(self) -> bool | None:
        return self._http.eof_received()

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()


TOKEN_REVIEW: Final = Kind("authentication.k8s.io", "v1", "TokenReview", "tokenreviews")
ACCESS_REVIEW: Final = Kind(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews"
)
HELD: Final = 60.0
"""How long an answer of the API server holds. [s]"""
_LONGEST: Final = 16_384
"""Characters of a token. [1]"""


Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AccessCheck:
    """Asks the API server, and remembers its answers; `check` is a middleware of aiohttp."""

    def __init__(self, api: Api) -> None:
        """Nobody is known yet."""
        self._api = api
        self._answers: LruCache[tuple[float, int]] = LruCache()

    async def status(self, token: str, path: str) -> int:
        """200 where the path may be seen; 401 unknown token, 403 no right, 503 no answer."""
        key = hashlib.blake2b(f"{path}\n{token}".encode()).digest()
        if key in self._answers and self._answers[key][0] > time.monotonic():
            return self._answers[key][1]
        try:
            status = await self._review(token, path)
        except ApiError:
            return 503
        self._answers[key] = time.monotonic() + HELD, status
        return status

    async def _review(self, token: str, path: str) -> int:
        if not token or len(token) > _LONGEST:
            return 401
        review = await self._api.create(TOKEN_REVIEW, "", _body(TOKEN_REVIEW, {"token": token}))
        user = part(review, "status", "user")
        if at(review, "status", "authenticated") is not True:
            return 401
        who = {"user": user.get("username"), "uid": user.get("uid"), "groups": user.get("groups")}
        wanted = {
            **who,
            "extra": user.get("extra"),
            "nonResourceAttributes": {"verb": "get", "path": path},
        }
        review = await self._api.create(ACCESS_REVIEW, "", _body(ACCESS_REVIEW, wanted))
        return 200 if at(review, "status", "allowed") is True else 403

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request through whose sender may see the path; runbooks are for everybody."""
        if request.path.startswith(PATH):
            return await handler(request)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        status = await self.status(token if scheme.lower() == "bearer" else "", request.path)
        if status == 200:
            return await handler(request)
        return web.Response(
            status=status, headers={"WWW-Authenticate": "Bearer"} if status == 401 else {}
        )


def _body(kind: Kind, spec: dict[str, object]) -> dict[str, object]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}


Probe: TypeAlias = Callable[[], tuple[bool, Sequence[str]]]
"""Whether all is well, and the reasons where it is not."""

IDLE: Final = 15.0
"""How long a connection that was answered may wait for its next request. [s]"""
_INDEX = "MoFa Advisor: /metrics here, /healthz and /readyz on the health port\n"


class Server:
    """Two small HTTP servers; use it as `async with`."""

    def __init__(
        self,
        settings: ServeSettings,
        *,
        exporter: Exporter,
        live: Probe,
        ready: Probe,
        measure: Callable[[], None],
        routes: Iterable[web.AbstractRouteDef] = (),
        access: AccessCheck | None = None,
    ) -> None:
        """`live` and `ready` answer the probes, `measure` is called before each scrape; `routes`
        are the page's.

        `access` says who may see metrics and page; None = whoever reaches the port.
        """
        self._settings = settings
        self._exporter = exporter
        self._measure = measure
        given = list(routes)
        metrics = web.Application(middlewares=[access.check] if access is not None else [])
        health = web.Application()
        metrics.add_routes([web.get("/metrics", self._metrics), *given])
        if not any(isinstance(route, web.RouteDef) and route.path == "/" for route in given):
            metrics.add_routes([web.get("/", _index)])
        health.add_routes(
            [web.get("/healthz", _handler(live)), web.get("/readyz", _handler(ready))]
        )
        self._runners = [
            web.AppRunner(app, access_log=None, shutdown_timeout=0.3, keepalive_timeout=IDLE)
            for app in (metrics, health)
        ]
        self._listening: list[asyncio.Server] = []

    async def __aenter__(self) -> Self:
        """Listen."""
        ports = (self._settings.metrics_port, self._settings.health_port)
        for runner, flag, port in zip(
            self._runners, ("--metrics-port", "--health-port"), ports, strict=True
        ):
            await runner.setup()
            if runner.server is None:
                raise RuntimeError(f"{flag} {port}: aiohttp set up no server to listen with")
            connections = ConnectionLimit(runner.server)
            loop, address = asyncio.get_running_loop(), self._settings.address
            try:
                self._listening.append(
                    await loop.create_server(connections, address, port, backlog=1024)
                )
            except OSError as error:
                await self._close()
                right = f"{why(error)}; give a free port of an address of this machine"
                raise BadValue(flag, port, right) from error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self._close()

    async def _close(self) -> None:
        for server in self._listening:
            server.close()
        await asyncio.gather(*(runner.cleanup() for runner in self._runners))

    async def _metrics(self, _: web.Request) -> web.Response:
        self._measure()  # here, because the text is made in another thread
        body, content_type = await asyncio.to_thread(self._exporter.page)
        return web.Response(body=body, headers={"Content-Type": content_type})


async def _index(_: web.Request) -> web.Response:
    return web.Response(text=_INDEX)


def _handler(probe: Probe) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        is_well, reasons = probe()
        body = orjson.dumps({"ok": is_well, "reasons": list(reasons)})
        status = 200 if is_well else 503
        return web.Response(body=body, status=status, content_type="application/json")

    return answer
