"""Connections of whoever reaches our ports: so many at once, each with so long to ask and to listen.

aiohttp waits for ever for the head of a request, and keeps every connection that is made. So a connection that has not asked
within a few seconds is cut, none lives longer than a minute (a scraper makes a new one), and where all places are taken the
one that has been silent longest makes room: who asks at once is answered, however many others only hold a line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

MOST: Final = 256
"""Connections of one port. [1]"""
SILENT: Final = 5.0
"""How long a connection may be there before the head of a request has come. [s]"""
LONGEST: Final = 60.0
"""How long it may last. [s]"""
_END: Final = b"\r\n\r\n"


class Visitors:
    """The connections of one port; `asyncio.Server` makes one for each that comes."""

    def __init__(self, make: Callable[[], asyncio.Protocol], most: int = MOST) -> None:
        """`make` makes what speaks HTTP."""
        self._make = make
        self._most = most
        self._silent: dict[asyncio.BaseTransport, _Visitor] = {}
        self._heard: set[asyncio.BaseTransport] = set()

    def __call__(self) -> asyncio.Protocol:
        """Whoever comes next."""
        return _Visitor(self, self._make())

    def came(self, transport: asyncio.Transport, visitor: _Visitor) -> bool:
        """Give it a place; the result says whether there is one."""
        if len(self._silent) + len(self._heard) >= self._most:
            oldest = next(iter(self._silent), None)
            if oldest is None:
                return False
            self._silent.pop(oldest).cut()
        self._silent[transport] = visitor
        return True

    def heard(self, transport: asyncio.BaseTransport | None) -> None:
        """The head of its request has come."""
        if transport is not None and (visitor := self._silent.pop(transport, None)) is not None:
            visitor.heard()
            self._heard.add(transport)

    def gone(self, transport: asyncio.BaseTransport) -> None:
        """Its place is free."""
        self._silent.pop(transport, None)
        self._heard.discard(transport)


class _Visitor(asyncio.Protocol):
    """One connection: what it says goes to what speaks HTTP."""

    def __init__(self, others: Visitors, http: asyncio.Protocol) -> None:
        self._others = others
        self._http = http
        self._transport: asyncio.Transport | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._said = b""  # its last bytes, until the head of a request has come

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._http.connection_made(transport)
        if not self._others.came(self._transport, self):
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
            self._others.gone(self._transport)
        self._http.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if len(self._timers) == 2:
            self._said += data
            if _END in self._said:
                self._others.heard(self._transport)
            self._said = self._said[-len(_END) + 1 :]
        self._http.data_received(data)

    def eof_received(self) -> bool | None:
        return self._http.eof_received()

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()
