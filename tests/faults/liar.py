"""A Prometheus that lies: in front of a real one, it answers as servers and gateways do on their
worst days.

What it is asked is recorded, so that every query can be given to the real server's own parser.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import math
import zlib
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
from aiohttp import web
from faults.loopback import Loopback, hang_up

LARGE = 100 << 20
"""Bytes of an answer without sense. [B]"""
Truth: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
Lie: TypeAlias = Callable[[web.Request, Truth], Awaitable[web.StreamResponse]]


class Liar(Loopback):
    """Tells the truth as long as `lie` is None; with `token`, only to those who show it."""

    def __init__(self, upstream: str) -> None:
        super().__init__(self._asked)
        self._upstream = upstream
        self._session: aiohttp.ClientSession | None = None
        self.lie: Lie | None = None
        self.token = ""
        self.queries: list[str] = []
        """What was asked, in order."""
        self.refused = 0
        """Requests without the token. [1]"""

    def looks(self, since: int) -> int:
        """Looks at the history of a profile that began since so many queries. [1]"""
        return sum("count by (cluster)" in query for query in self.queries[since:])

    async def _asked(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            self.refused += 1
            return web.json_response({"status": "error", "error": "who are you?"}, status=401)
        self.queries.append(str(form.get("query", "")))

        async def truth() -> dict[str, Any]:
            if self._session is None:
                self._session = aiohttp.ClientSession()
            async with self._session.post(
                self._upstream + request.path, data=dict(form)
            ) as response:
                answer: dict[str, Any] = await response.json(content_type=None)
                return answer

        return await self.lie(request, truth) if self.lie else web.json_response(await truth())

    def __exit__(self, *how: object) -> None:
        if self._session is not None:
            self.call(self._session.close())
        super().__exit__()


# ------------------------------------------------------------------------------------------------- lies


def says(status: int, text: str = "", kind: str = "application/json", **headers: str) -> Lie:
    """The same answer to everything."""

    async def lie(_: web.Request, __: Truth) -> web.StreamResponse:
        return web.Response(status=status, text=text, content_type=kind, headers=headers)

    return lie


def values(change: Callable[[int, str], str]) -> Lie:
    """The truth with other numbers."""

    async def lie(_: web.Request, truth: Truth) -> web.StreamResponse:
        answer = await truth()
        for number, series in enumerate(answer["data"]["result"]):
            if isinstance(series, dict) and "value" in series:
                series["value"][1] = change(number, series["value"][1])
            elif isinstance(series, dict):
                series["values"] = [[at, change(number, value)] for at, value in series["values"]]
        return web.json_response(answer)

    return lie


async def slow(_: web.Request, __: Truth) -> web.StreamResponse:
    await asyncio.sleep(600)
    raise AssertionError


async def twice(_: web.Request, truth: Truth) -> web.StreamResponse:
    answer = await truth()
    answer["data"]["result"] = answer["data"]["result"] * 2
    return web.json_response(answer)


async def cut_off(request: web.Request, truth: Truth) -> web.StreamResponse:
    body = json.dumps(await truth()).encode()
    half = web.StreamResponse(headers={"Content-Type": "application/json"})
    half.content_length = len(body)
    await half.prepare(request)
    await half.write(body[: len(body) // 2])
    return await hang_up(request)


async def half_of_the_json(_: web.Request, truth: Truth) -> web.StreamResponse:
    body = json.dumps(await truth())
    return web.Response(text=body[: len(body) // 2], content_type="application/json")


async def enormous(request: web.Request, _: Truth) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(b'{"status":"success","data":{"resultType":"vector","result":[')
    series = b'{"metric":{"node":"%d"},"value":[1,"1"]},' * 1000
    with contextlib.suppress(ConnectionError):  # whoever asked has had enough
        for number in range(math.ceil(LARGE / len(series))):
            await response.write(series.replace(b"%d", str(number).encode()))
    return response


@functools.cache
def _bomb() -> bytes:
    """The beginning of an answer and a gigabyte of spaces. Gzip packs both into one megabyte."""
    packed = zlib.compressobj(wbits=31)
    parts = [packed.compress(b'{"status":"success","data":')]
    parts += [packed.compress(b" " * 2**20) for _ in range(1024)]
    return b"".join([*parts, packed.flush()])


async def packed(_: web.Request, __: Truth) -> web.StreamResponse:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    return web.Response(body=await asyncio.to_thread(_bomb), headers=headers)


async def endless(request: web.Request, _: Truth) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.2)
    return response


async def hangs_up(request: web.Request, _: Truth) -> web.StreamResponse:
    return await hang_up(request)


EMPTY = json.dumps({"status": "success", "data": {"resultType": "vector", "result": []}})
LIES: dict[str, tuple[Lie, str | None]] = {
    "500": (says(500, '{"status":"error","error":"storage is broken"}'), "HistoryUnavailable"),
    "503": (says(503, "no healthy upstream", "text/plain"), "HistoryUnavailable"),
    "hangs up": (hangs_up, "HistoryUnavailable"),
    "slow": (slow, "HistoryUnavailable"),
    "cut off": (cut_off, "HistoryUnavailable"),
    "half of the JSON": (half_of_the_json, "HistoryUnavailable"),
    "twice": (twice, "HistoryUnavailable"),
    "100 MB": (enormous, "HistoryUnavailable"),
    "gzip bomb": (packed, "HistoryUnavailable"),
    "endless": (endless, "HistoryUnavailable"),
    "login page": (says(200, "<html>Please log in</html>", "text/html"), "HistoryUnavailable"),
    "redirect": (says(302, Location="http://127.0.0.1:9/login"), "HistoryUnavailable"),
    "401": (says(401, "{}"), "HistoryUnavailable"),
    "null": (says(200, "null"), "HistoryUnavailable"),
    "a string": (
        says(200, '{"status":"success","data":{"resultType":"string","result":[1,"x"]}}'),
        "HistoryUnavailable",
    ),
    "empty": (says(200, EMPTY), "SeriesMissing"),
    "all NaN": (values(lambda _, __: "NaN"), "SeriesMissing"),
    "all infinite": (values(lambda _, __: "+Inf"), "SeriesMissing"),
    "every second NaN": (values(lambda number, value: "NaN" if number % 2 else value), None),
    "negative": (values(lambda _, value: f"-{value}"), None),
    "a million times": (values(lambda _, value: str(float(value) * 1e6)), None),
}
"""Lies by name, and the reason that the profile's condition then has; None where it may
have several.
"""
QUICK = (
    "500",
    "slow",
    "half of the JSON",
    "twice",
    "100 MB",
    "login page",
    "redirect",
    "401",
    "empty",
    "all NaN",
)
"""Those of `make test`."""


def bad_connection(random: Any, share: float = 0.3, names: Iterable[str] = LIES) -> Lie:
    """A share of all queries meets one of the lies, another one each time."""
    drawn = [LIES[name][0] for name in names if name not in {"slow", "100 MB", "endless"}]

    async def lie(request: web.Request, truth: Truth) -> web.StreamResponse:
        if random.random() >= share:
            return web.json_response(await truth())
        return await random.choice(drawn)(request, truth)

    return lie


def rotate(liar: Liar, path: Path, token: str) -> None:
    """From now on another token opens the door; the file has it."""
    liar.token = token
    path.write_text(token)
