"""What the operator serves over HTTP: metrics and the page on one port, health on another.

`connections` bounds how many connections a port holds, and for how long. A probe's connection ends
with its answer, so that nobody keeps a place on the health port by asking again. Scrapes that come
at once share one text, and at most half of the time is spent on writing it.

The API server says who may see what is served, asked as kube-rbac-proxy does: a TokenReview says
who asks, a SubjectAccessReview whether a role gives `get` on the path. Answers hold for a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Final, Self, TypeAlias

import orjson
from aiohttp import web

from mofa_model.errors import BadValue, why
from mofa_model.kinds import Kind
from mofa_model.kinds.shape import at, part
from mofa_operator.api import Api
from mofa_operator.api_errors import ApiError
from mofa_operator.control.connections import AT_ONCE, ConnectionLimit
from mofa_operator.lru_cache import LruCache
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.page.server import PATH
from mofa_operator.settings import ServeSettings

TOKEN_REVIEW: Final = Kind("authentication.k8s.io", "v1", "TokenReview", "tokenreviews")
ACCESS_REVIEW: Final = Kind(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews"
)
HELD: Final = 60.0
"""How long an answer of the API server holds. [s]"""
_LONGEST: Final = 16_384
"""Most characters of a token. [1]"""


Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AccessCheck:
    """Asks the API server who may see a path; `check` is a middleware of aiohttp."""

    def __init__(self, api: Api) -> None:
        """Ask the API server through `api`."""
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
        access = {
            "user": user.get("username"),
            "uid": user.get("uid"),
            "groups": user.get("groups"),
            "extra": user.get("extra"),
            "nonResourceAttributes": {"verb": "get", "path": path},
        }
        review = await self._api.create(ACCESS_REVIEW, "", _body(ACCESS_REVIEW, access))
        return 200 if at(review, "status", "allowed") is True else 403

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Pass on a request whose sender may see the path; runbooks are for everybody."""
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
"""Answers whether all is well, with the reasons where it is not."""

IDLE: Final = 15.0
"""How long a connection that was answered may wait for its next request. [s]"""
_WAITING: Final = 1024
"""Connections that the kernel holds until they are taken. [1]"""
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
        self._page: asyncio.Task[tuple[bytes, str]] | None = None
        self._fresh_until = 0.0
        page_routes = list(routes)
        checks = [access.check] if access is not None else []
        self._limits = [ConnectionLimit(_unopened), ConnectionLimit(_unopened)]
        metrics, health = (web.Application(middlewares=[limit.send]) for limit in self._limits)
        metrics.middlewares.extend(checks)
        metrics.add_routes([web.get("/metrics", self._metrics), *page_routes])
        if not any(isinstance(route, web.RouteDef) and route.path == "/" for route in page_routes):
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
        """Start to listen on the port."""
        ports = (self._settings.metrics_port, self._settings.health_port)
        flags = ("--metrics-port", "--health-port")
        for runner, flag, port, connections in zip(
            self._runners, flags, ports, self._limits, strict=True
        ):
            await runner.setup()
            if runner.server is None:
                raise RuntimeError(f"{flag} {port}: aiohttp set up no server to listen with")
            connections.make = runner.server
            loop, address = asyncio.get_running_loop(), self._settings.address
            try:
                server = await loop.create_server(connections, address, port, backlog=AT_ONCE)
                self._listening.append(server)
                _let_wait(server)
            except OSError as error:
                await self._close()
                hint = f"{why(error)}; give a free port of an address of this machine"
                raise BadValue(flag, port, hint) from error
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
        if self._page is None or (self._page.done() and time.monotonic() > self._fresh_until):
            self._measure()  # here, because the text is made in another thread
            self._page = asyncio.create_task(self._write_metrics())
        body, content_type = await asyncio.shield(self._page)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _write_metrics(self) -> tuple[bytes, str]:
        started = time.monotonic()
        try:
            return await asyncio.to_thread(self._exporter.page)
        finally:
            ended = time.monotonic()
            self._fresh_until = ended + (ended - started)


def _unopened() -> asyncio.Protocol:
    raise RuntimeError("the port is not open yet")


def _let_wait(server: asyncio.Server) -> None:
    """Let more connections wait in the kernel than one turn accepts: `backlog` sets both."""
    for listener in server.sockets:
        with contextlib.closing(socket.socket(fileno=os.dup(listener.fileno()))) as duplicate:
            duplicate.listen(_WAITING)


async def _index(_: web.Request) -> web.Response:
    return web.Response(text=_INDEX)


def _handler(probe: Probe) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        is_well, reasons = probe()
        body = orjson.dumps({"ok": is_well, "reasons": list(reasons)})
        status = 200 if is_well else 503
        response = web.Response(body=body, status=status, content_type="application/json")
        response.force_close()
        return response

    return answer
