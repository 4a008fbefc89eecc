"""A small HTTP server in a thread of its own, which misbehaves on command while the test
goes on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Self

from aiohttp import web
from mofa_local.ports import HOST

LARGEST = 1 << 25


class Loopback:
    """Every request goes to `handle`; a client that goes away ends its handler."""

    def __init__(self, handle: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> None:
        self._handle = handle
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self.call(self._open())
        return self

    def __exit__(self, *how: object) -> None:
        self.call(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something in the server's own loop; the result is its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _open(self) -> None:
        app = web.Application(client_max_size=LARGEST)

        async def handle(request: web.Request) -> web.StreamResponse:
            return await self._handle(request)

        app.router.add_route("*", "/{path:.*}", handle)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.2, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, 0)
        await site.start()
        self.url = f"http://{HOST}:{self._runner.addresses[0][1]}"


async def hang_up(request: web.Request) -> web.StreamResponse:
    """Reset the connection; aiohttp then ends the handler."""
    if request.transport is not None:
        request.transport.abort()
    await asyncio.Event().wait()
    raise AssertionError
