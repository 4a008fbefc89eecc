"""The connections of one port: how many there may be, how long each may last, how much is sent.

aiohttp waits for ever for the head of a request, keeps every connection, and copies whole answers
for clients that do not read. So each of these has a bound:

    a connection that sends no request within seconds is cut, and none lives longer than a minute;
    one address has a share of the places, and its own longest idle connection makes room there;
    where all places are taken, the address with most of them gives up its longest idle one;
    an answer is sent piece by piece, and all answers that are being sent have a budget of bytes.

So a client that asks at once is answered, however many others hold connections, ask again and
again, or do not read their answers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, cast

from aiohttp import web

MOST: Final = 256
"""Connections of one port. [1]"""
EACH: Final = 64
"""Connections of one address. [1]"""
AT_ONCE: Final = 32
"""Connections that are accepted in one turn of the event loop, so that none is cut unheard. [1]"""
SILENT: Final = 5.0
"""How long a connection may stand before the head of a request has come. [s]"""
LONGEST: Final = 60.0
"""How long a connection may last. [s]"""
SENDING: Final = 64 * 2**20
"""Size of all answers that are being sent at the same time. [B]"""
_PIECE: Final = 1 << 16
"""Size of the pieces in which an answer is sent. [B]"""
_HEAD_END: Final = b"\r\n\r\n"


class ConnectionLimit:
    """The connections of one port; called for each new one by `asyncio.Server`."""

    def __init__(
        self, make: Callable[[], asyncio.Protocol], most: int = MOST, each: int = EACH
    ) -> None:
        """At most `most` [1] connections, `each` [1] of one address; `make` may be set later."""
        self.make = make
        """Makes the protocol that speaks HTTP."""
        self._most = most
        self._each = each
        self._open: dict[_Connection, None] = {}  # the longest idle one first
        self._answering: dict[asyncio.BaseTransport | None, bytes] = {}

    def __call__(self) -> asyncio.Protocol:
        """The protocol of a new connection, for `asyncio.Server`."""
        return _Connection(self, self.make())

    def add(self, connection: _Connection) -> None:
        """Give a new connection a place; where none is free, cut another one."""
        counts = Counter(other.source for other in self._open)
        address = connection.source
        if counts[address] >= self._each or len(self._open) >= self._most:
            if counts[address] < self._each:
                most = max(counts.values())
                crowded = {other for other, count in counts.items() if count == most}
            else:
                crowded = {address}
            rivals = [other for other in self._open if other.source in crowded]
            idle = (other for other in rivals if other.transport not in self._answering)
            next(idle, rivals[0]).cut()
        self._open[connection] = None

    def heard(self, connection: _Connection) -> None:
        """Note that a connection sent something just now."""
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def remove(self, connection: _Connection) -> None:
        """Forget a connection that was closed."""
        self._open.pop(connection, None)

    @web.middleware
    async def send(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Answer a request piece by piece, as its client reads."""
        transport = request.transport
        self._answering[transport] = b""
        try:
            answer = await handler(request)
            body = answer.body if isinstance(answer, web.Response) else None
            if not isinstance(body, bytes) or len(body) <= _PIECE or request.method == "HEAD":
                return answer
            stream = web.StreamResponse(status=answer.status, headers=answer.headers)
            stream.content_length = len(body)
            self._answering[transport] = body
            while self._sent_at_once() > SENDING:
                oldest = next(other for other, held in self._answering.items() if held)
                if oldest is transport or oldest is None:
                    break
                del self._answering[oldest]
                cast("asyncio.Transport", oldest).abort()
            view = memoryview(body)
            with contextlib.suppress(ConnectionError):  # it was cut, or went away
                await stream.prepare(request)
                for start in range(0, len(body), _PIECE):
                    await stream.write(view[start : start + _PIECE])
                await stream.write_eof()
            return stream
        finally:
            self._answering.pop(transport, None)

    def _sent_at_once(self) -> int:
        """Bytes of all answers that are being sent, each different one once. [B]"""
        return sum({id(body): len(body) for body in self._answering.values()}.values())


class _Connection(asyncio.Protocol):
    """One connection: what it sends is passed on to the protocol that speaks HTTP."""

    def __init__(self, port: ConnectionLimit, http: asyncio.Protocol) -> None:
        self._port = port
        self._http = http
        self.transport: asyncio.Transport | None = None
        self.source = ""
        self._longest: asyncio.TimerHandle | None = None
        self._silent: asyncio.TimerHandle | None = None
        self._tail = b""  # its last bytes, until the head of a request has come

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.source = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        self._http.connection_made(transport)
        self._port.add(self)
        loop = asyncio.get_running_loop()
        self._longest = loop.call_later(LONGEST, self.cut)
        self._silent = loop.call_later(SILENT, self.cut)

    def cut(self) -> None:
        self._port.remove(self)
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        for timer in (self._longest, self._silent):
            if timer is not None:
                timer.cancel()
        self._port.remove(self)
        self._http.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self._port.heard(self)
        if self._silent is not None:
            self._tail += data
            if _HEAD_END in self._tail:
                self._silent.cancel()
                self._silent = None
            self._tail = self._tail[-len(_HEAD_END) + 1 :]
        self._http.data_received(data)

    def eof_received(self) -> bool | None:
        return self._http.eof_received()

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()
