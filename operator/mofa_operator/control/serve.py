"""What the operator serves: metrics and the page on one port, health on another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Final, Self, TypeAlias

import orjson
from aiohttp import web

from mofa_model.errors import BadValue, why
from mofa_operator.control.admission import Admission
from mofa_operator.control.visitors import Visitors
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.settings import ServeSettings

Asked: TypeAlias = Callable[[], tuple[bool, Sequence[str]]]
"""Whether all is well, and what there is to say."""

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
        live: Asked,
        ready: Asked,
        measure: Callable[[], None],
        routes: Iterable[web.AbstractRouteDef] = (),
        admission: Admission | None = None,
    ) -> None:
        """`live` and `ready` answer the probes, `measure` is called before each scrape; `routes` are the page's.

        `admission` says who may see metrics and page; None = whoever reaches the port.
        """
        self._settings = settings
        self._exporter = exporter
        self._measure = measure
        given = list(routes)
        metrics = web.Application(middlewares=[] if admission is None else [admission.check])
        health = web.Application()
        metrics.add_routes([web.get("/metrics", self._metrics), *given])
        if not any(isinstance(route, web.RouteDef) and route.path == "/" for route in given):
            metrics.add_routes([web.get("/", _index)])
        health.add_routes([web.get("/healthz", _probe(live)), web.get("/readyz", _probe(ready))])
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
                raise RuntimeError("aiohttp made no server")
            visitors = Visitors(runner.server)
            loop, address = asyncio.get_running_loop(), self._settings.address
            try:
                self._listening.append(
                    await loop.create_server(visitors, address, port, backlog=1024)
                )
            except OSError as error:
                await self._close()
                raise BadValue(flag, port, f"{why(error)}; give a free port of an address of this machine") from error  # fmt: skip
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


def _probe(asked: Asked) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def probe(_: web.Request) -> web.Response:
        well, says = asked()
        body = orjson.dumps({"ok": well, "reasons": list(says)})
        return web.Response(body=body, status=200 if well else 503, content_type="application/json")

    return probe
