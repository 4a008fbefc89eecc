"""A proxy between the operator and the API server, which does to requests what networks and tired
servers do.

    with Proxy(cluster) as proxy:
        proxy.fault = Refusing(Random(7), share=0.3, status=500)

A fault sees every request and either answers it itself or passes it on; what it draws comes from
its own seed. Requests are recorded as they came from the operator, refused or not: a storm shows
here, whatever the API server took.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import aiohttp
import orjson
from aiohttp import web
from faults.loopback import Loopback, hang_up
from yarl import URL

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
HOP = frozenset(
    {"host", "connection", "transfer-encoding", "content-length", "accept-encoding", "keep-alive"}
)
Lines: TypeAlias = Callable[[bytes], Iterable[bytes]]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request of the operator."""

    request: web.Request
    body: bytes
    number: int

    @property
    def is_write(self) -> bool:
        return self.request.method in WRITES

    @property
    def is_watch(self) -> bool:
        return "watch" in self.request.query

    @property
    def what(self) -> str:
        """The object or list, without the subresource."""
        return self.request.path.removesuffix("/status")


class Fault:
    """What happens to requests; this one lets everything through."""

    async def answer(self, asked: Asked, proxy: Proxy) -> web.StreamResponse:
        return await proxy.through(asked)


def behind(kubeconfig: Path, server: str, user: dict[str, Any] | None = None) -> Path:
    """A kubeconfig with another server, and where it is given another way to say who one is."""
    made = orjson.loads(kubeconfig.read_bytes())
    made["clusters"][0]["cluster"] = {"server": server}
    if user is not None:
        made["users"][0]["user"] = user
    path = kubeconfig.with_name(f"{kubeconfig.stem}-behind-{URL(server).port}.kubeconfig")
    path.write_bytes(orjson.dumps(made))
    return path


class Proxy(Loopback):
    """In front of the API server of a cluster; what the operator shows as its token is
    passed on.
    """

    def __init__(self, cluster: Any) -> None:
        super().__init__(self._came)
        self._upstream = cluster.server
        self._trust = ssl.create_default_context(cadata=cluster.signer)
        self._session: aiohttp.ClientSession | None = None
        self._answers: set[aiohttp.ClientResponse] = set()
        self.fault = Fault()
        self.asked: list[tuple[str, str]] = []
        """Method (or WATCH) and object of every request."""

    def attempts(self, since: int = 0) -> Counter[str]:
        """How often the operator tried to write each object, Events left out."""
        return Counter(
            what
            for method, what in self.asked[since:]
            if method in WRITES and "/events" not in what and "/advisorpolicies" not in what
        )

    def cut(self) -> None:
        """End what is open to the API server: watches break off, and are asked for again."""
        self.call(self._cut())

    async def _cut(self) -> None:
        for response in self._answers:
            response.close()  # the session's end leaves those waiting that read from it
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _came(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(request=request, body=await request.read(), number=len(self.asked))
        self.asked.append(("WATCH" if asked.is_watch else request.method, asked.what))
        return await self.fault.answer(asked, self)

    async def through(self, asked: Asked, lines: Lines | None = None) -> web.StreamResponse:
        """Pass a request on; of a watch, line by line through `lines`."""
        try:
            async with self._ask(asked) as response:
                if asked.is_watch and response.status == 200:
                    return await _stream(asked, response, lines)
                return _copied(response, await response.read())
        except (aiohttp.ClientError, OSError):
            return await hang_up(asked.request)

    @contextlib.asynccontextmanager
    async def _ask(self, asked: Asked) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=self._trust),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
            )
        async with self._session.request(
            asked.request.method,
            URL(self._upstream + asked.request.raw_path, encoded=True),
            data=asked.body or None,
            headers={
                name: value
                for name, value in asked.request.headers.items()
                if name.lower() not in HOP
            },
            skip_auto_headers=("Accept-Encoding",),
        ) as response:
            self._answers.add(response)
            try:
                yield response
            finally:
                self._answers.discard(response)

    def __exit__(self, *how: object) -> None:
        self.cut()
        super().__exit__(*how)


def _copied(response: aiohttp.ClientResponse, body: bytes) -> web.Response:
    headers = {name: value for name, value in response.headers.items() if name.lower() not in HOP}
    return web.Response(status=response.status, body=body, headers=headers)


async def _stream(
    asked: Asked, upstream: aiohttp.ClientResponse, lines: Lines | None
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(asked.request)
    rest = b""
    async for chunk in upstream.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            for out in (line,) if lines is None else lines(line):
                await response.write(out + b"\n")
    return response


def refusal(status: int, reason: str, **headers: str) -> web.Response:
    """What an API server says when it says no."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "code": status,
    }
    return web.json_response(
        body | {"message": f"{reason}, says the proxy"}, status=status, headers=headers
    )


# --------------------------------------------------------------------------------------------- requests


@dataclass
class Refusing(Fault):
    """A share of all requests, watches too, is refused before it reaches the API server."""

    random: Random
    share: float = 0.3
    status: int = 500
    reason: str = "InternalError"
    retry_after: str = ""
    writes_only: bool = False

    async def answer(self, asked: Asked, proxy: Proxy) -> web.StreamResponse:
        if self.random.random() < self.share and (asked.is_write or not self.writes_only):
            return refusal(
                self.status,
                self.reason,
                **({"Retry-After": self.retry_after} if self.retry_after else {}),
            )
        return await proxy.through(asked)


@dataclass
class Breaking(Fault):
    """A share of all answers breaks off in the middle: the request was done, and its sender
    cannot know.
    """

    random: Random
    share: float = 0.3

    async def answer(self, asked: Asked, proxy: Proxy) -> web.StreamResponse:
        if asked.is_watch or self.random.random() >= self.share:
            return await proxy.through(asked)
        whole = await proxy.through(asked)
        body = getattr(whole, "body", b"") or b""
        half = web.StreamResponse(status=whole.status, headers={"Content-Type": "application/json"})
        half.content_length = len(body)
        await half.prepare(asked.request)
        await half.write(body[: len(body) // 2])
        return await hang_up(asked.request)


@dataclass
class Garbling(Fault):
    """A share of all answers is something else: the login page of a gateway, another's
    JSON, nothing.
    """

    random: Random
    share: float = 0.3
    pages: tuple[str, ...] = (
        "<html>Please log in</html>",
        "[]",
        "null",
        "{}",
        "",
        '"ok"',
        '{"items": {}}',
    )

    async def answer(self, asked: Asked, proxy: Proxy) -> web.StreamResponse:
        if asked.is_watch or self.random.random() >= self.share:
            return await proxy.through(asked)
        await proxy.through(asked)
        return web.Response(
            body=self.random.choice(self.pages).encode(), content_type="application/json"
        )


@dataclass
class Slow(Fault):
    """Every answer takes its time."""

    random: Random
    longest: float = 2.0

    async def answer(self, asked: Asked, proxy: Proxy) -> web.StreamResponse:
        if not asked.is_watch:
            await asyncio.sleep(self.random.uniform(0, self.longest))
        return await proxy.through(asked)


MOMENT = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?=(\.\d+)?Z)")
"""A time as Kubernetes writes it, without parts of a second."""


@dataclass
class Skewed(Fault):
    """The clock of the API server is some hours ahead: times in answers move forward, times in
    requests back.
    """

    hours: float

    async def answer(self, asked: Asked, proxy: Proxy) -> web.StreamResponse:
        asked = replace(asked, body=self._moved(asked.body, -self.hours))
        response = await proxy.through(asked, lambda line: (self._moved(line, self.hours),))
        if isinstance(response, web.Response) and isinstance(response.body, bytes):
            response.body = self._moved(response.body, self.hours)
        return response

    @staticmethod
    def _moved(text: bytes, hours: float) -> bytes:
        def moved(match: re.Match[bytes]) -> bytes:
            then = datetime.fromisoformat(match[0].decode()) + timedelta(hours=hours)
            return then.isoformat(timespec="seconds").encode()

        return MOMENT.sub(moved, text)


# ---------------------------------------------------------------------------------------------- watches


class Watching(Fault):
    """Faults of watches; everything else passes."""

    async def answer(self, asked: Asked, proxy: Proxy) -> web.StreamResponse:
        return await (self.watch(asked, proxy) if asked.is_watch else proxy.through(asked))

    async def watch(self, asked: Asked, proxy: Proxy) -> web.StreamResponse:
        raise NotImplementedError


@dataclass
class Expired(Watching):
    """Watches end with 410 after a few events, as a line of theirs or as their whole answer."""

    random: Random
    most: int = 4

    async def watch(self, asked: Asked, proxy: Proxy) -> web.StreamResponse:
        left = self.random.randint(0, self.most)
        if not left:
            return refusal(410, "Expired")

        def lines(line: bytes) -> Iterable[bytes]:
            nonlocal left
            left -= 1
            if left >= 0:
                yield line
            if left == 0:
                status = {"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired"}
                yield orjson.dumps({"type": "ERROR", "object": status | {"message": "too old"}})

        return await proxy.through(asked, lines)


@dataclass
class Dropped(Watching):
    """Watches are cut: after a while, and in the middle of an event."""

    random: Random
    most: int = 4

    async def watch(self, asked: Asked, proxy: Proxy) -> web.StreamResponse:
        left = self.random.randint(0, self.most)

        def lines(line: bytes) -> Iterable[bytes]:
            nonlocal left
            left -= 1
            if left < 0:
                assert asked.request.transport is not None
                yield line[: len(line) // 2]
                asked.request.transport.abort()
            else:
                yield line

        return await proxy.through(asked, lines)


@dataclass
class Silent(Watching):
    """Watches are accepted, and then no byte comes: a firewall forgot the connection."""

    async def watch(self, asked: Asked, proxy: Proxy) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(asked.request)
        await asyncio.Event().wait()
        return response


@dataclass
class Twice(Watching):
    """Every event comes twice, and old ones come again."""

    random: Random

    async def watch(self, asked: Asked, proxy: Proxy) -> web.StreamResponse:
        seen: list[bytes] = []

        def lines(line: bytes) -> Iterable[bytes]:
            seen.append(line)
            return line, line, self.random.choice(seen[-8:])

        return await proxy.through(asked, lines)


@dataclass
class Reordered(Watching):
    """Some events are held back and come after the next one."""

    random: Random

    async def watch(self, asked: Asked, proxy: Proxy) -> web.StreamResponse:
        held: list[bytes] = []

        def lines(line: bytes) -> Iterable[bytes]:
            if not held and self.random.random() < 0.5:
                held.append(line)
                return ()
            out = (line, *held)
            held.clear()
            return out

        return await proxy.through(asked, lines)


# ---------------------------------------------------------------------------------------------- crashes


@dataclass
class Killing(Fault):
    """Calls `kill` before or after a request is done, once every so many requests,
    `times` times.
    """

    random: Random
    kill: Callable[[], None]
    times: int
    every: tuple[int, int] = (5, 45)
    breaks: bool = True
    """Whether the request breaks off with it."""
    killed: int = 0
    _next: int | None = None

    async def answer(self, asked: Asked, proxy: Proxy) -> web.StreamResponse:
        if self._next is None:
            self._next = asked.number + self.random.randint(*self.every)
        if self.killed == self.times or asked.number < self._next:
            return await proxy.through(asked)
        self.killed += 1
        self._next = asked.number + self.random.randint(*self.every)
        if self.breaks and self.random.random() < 0.5 and not asked.is_watch:
            await proxy.through(asked)
        await asyncio.to_thread(self.kill)
        return await (hang_up(asked.request) if self.breaks else proxy.through(asked))


# ---------------------------------------------------------------------------------------------- mixtures


@dataclass
class Mixed(Fault):
    """For every request one of several faults is drawn; None lets it through."""

    random: Random
    faults: tuple[Fault | None, ...]

    async def answer(self, asked: Asked, proxy: Proxy) -> web.StreamResponse:
        fault = self.random.choice(self.faults)
        return await (proxy.through(asked) if fault is None else fault.answer(asked, proxy))


def conflict(random: Random, share: float = 0.3) -> Fault:
    """Somebody else was faster."""
    return Refusing(random, share, 409, "Conflict", writes_only=True)


def full(random: Random, share: float = 0.3) -> Fault:
    """Too many requests; the server says when to come again."""
    return Refusing(random, share, 429, "TooManyRequests", retry_after="1")


def error(random: Random, share: float = 0.3) -> Fault:
    """The server has failed."""
    return Refusing(random, share, 500, "InternalError")


def bad_day(random: Random) -> Fault:
    """Every third request meets one of the faults of requests."""
    made = [make(random, 1.0) for make in (conflict, full, error, Breaking, Garbling)]
    return Mixed(random, (*made, Slow(random), *[None] * 12))


def bad_watches(random: Random) -> Fault:
    """Every watch meets one of the faults of watches."""
    return Mixed(
        random, (Expired(random), Dropped(random), Twice(random), Reordered(random), Silent())
    )
