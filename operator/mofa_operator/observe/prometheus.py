"""A thin client of Prometheus: instant queries by POST, bounded in bytes, series, time and number, typed at once.

    async with Prometheus(settings) as prometheus:
        answer = await prometheus.query("up")
        answer.samples      # what it said: finite numbers, no series twice
        answer.warnings     # what it warned of, a partial answer included

Every way to fail ends in one `SourceUnreachable` with one line. Temporary failures (the network, 429, 502, 503, 504) are
tried three times; permanent ones once; a 401 makes the token be read anew, once. Redirects are refused, answers are read as
a stream and cut off at the limit, and no secret stands in a message.
"""

from __future__ import annotations

import asyncio
import ssl
from copy import copy
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlencode, urlsplit, urlunsplit

import aiohttp

from mofa_model.errors import BadFile, BadValue, InputError, SourceUnreachable
from mofa_operator.observe.answers import NotAnAnswer, QueryResult, parsed, refusal
from mofa_operator.observe.flavours import MANNERS, PrometheusCredentials, flavour
from mofa_operator.settings import PrometheusSettings

ATTEMPTS: Final = 3
"""How often a query is asked before its temporary failure counts. [1]"""
PAUSE: Final = 0.5
"""Wait before the second attempt; it doubles. [s]"""
AT_ONCE: Final = 4
"""Queries of one asker that are under way at the same time, so that we are a light guest. [1]"""
_TEMPORARY: Final = frozenset({408, 429, 502, 503, 504})
_FORM: Final = "application/x-www-form-urlencoded"
_LARGE: Final = 1 << 18
"""Answers from here on are parsed beside the event loop. [B]"""


class _Failed(Exception):
    """One attempt that failed."""

    def __init__(self, why: str, *, temporary: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.temporary = temporary


class Prometheus:
    """A server that answers PromQL."""

    def __init__(self, settings: PrometheusSettings, *, pause: float = PAUSE) -> None:
        self._settings = settings
        self._manner = MANNERS[flavour(settings.flavour)]
        self._credentials = PrometheusCredentials(settings)
        self._address = _address(settings.url)
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._pause = pause
        self._client: aiohttp.ClientSession | None = None

    @property
    def longest(self) -> float:
        """Longest stretch of time that one query may look at. [s]"""
        return self._manner.longest

    @property
    def address(self) -> str:
        """The server, as messages name it: no user, no password."""
        return self._address

    async def __aenter__(self) -> Self:
        trust = _trust(self._settings) if self._address.startswith("https:") else True
        self._client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trust),
            timeout=aiohttp.ClientTimeout(),  # an attempt has one limit, in `_attempt`
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._client is not None:
            await self._client.close()

    def beside(self) -> Prometheus:
        """The same server by the same connections, for questions that wait for none of those asked here."""
        other = copy(self)
        other._gate = asyncio.Semaphore(AT_ONCE)  # noqa: SLF001 - it is one of us
        return other

    async def query(self, promql: str, at: float | None = None) -> QueryResult:
        """What a query answers at a moment (missing = now): a vector, a scalar, or the points of a subquery."""
        form = {
            "query": promql,
            "timeout": f"{self._settings.timeout:g}s",
            **self._manner.parameters,
        }
        if at is not None:
            form["time"] = f"{at:.3f}"
        body = urlencode(form).encode()
        async with self._gate:
            raw = await self._persistent(body)
        reading = (promql, self._settings.most_series)
        try:
            if len(raw) < _LARGE:
                return parsed(raw, *reading)
            return await asyncio.to_thread(parsed, raw, *reading)
        except NotAnAnswer as error:
            raise self._unreachable(str(error)) from None

    async def _persistent(self, body: bytes) -> bytes:
        """The bytes of an answer, after as many attempts as are due."""
        anew = False
        for attempt in range(1, ATTEMPTS + 1):
            try:
                status, raw = await self._attempt(body, anew=False)
                if status == 401 and not anew:
                    anew = True
                    status, raw = await self._attempt(body, anew=True)
            except _Failed as failure:
                why, temporary = failure.why, failure.temporary
            else:
                if status == 200:
                    return raw
                why, temporary = refusal(status, raw), status in _TEMPORARY
            if not temporary or attempt == ATTEMPTS:
                raise self._unreachable(why)
            await asyncio.sleep(self._pause * 2 ** (attempt - 1))
        raise AssertionError  # the loop returns or raises

    async def _attempt(self, body: bytes, *, anew: bool) -> tuple[int, bytes]:
        """Status and bytes of one request."""
        if self._client is None:
            raise RuntimeError("use it as a context manager")
        url = f"{self._address}/api/v1/query"
        headers = {
            **self._credentials.headers(anew=anew),
            **self._credentials.signature(url, body, _FORM),
            "Content-Type": _FORM,
            "Accept": "application/json",
            "Accept-Encoding": "identity",
        }
        try:
            async with (
                asyncio.timeout(self._settings.timeout),
                self._client.post(
                    url, data=body, headers=headers, allow_redirects=False
                ) as response,
            ):
                return response.status, await self._read(response)
        except TimeoutError:
            raise _Failed(
                f"no answer within {self._settings.timeout:g} s", temporary=True
            ) from None
        except aiohttp.InvalidURL as error:
            raise _Failed(type(error).__name__) from None
        except (aiohttp.ClientError, OSError) as error:
            raise _Failed(_network(error), temporary=True) from None

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        if 300 <= response.status < 400:
            raise _Failed(
                "sends us elsewhere (a redirect), which is refused; configure its final address"
            )
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise _Failed("sends a compressed answer that was not asked for")
        most = self._settings.largest_answer
        found = bytearray()
        async for part in response.content.iter_any():
            found += part
            if len(found) > most:
                raise _Failed(f"answers with more than {most} bytes")
        return bytes(found)

    def _unreachable(self, why: str) -> SourceUnreachable:
        line = " ".join(f"Prometheus at {self._address}: {why}".split())
        return SourceUnreachable(self._credentials.struck(line))


def _network(error: Exception) -> str:
    """What the network did, in words."""
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ClientSSLError | ssl.SSLError):
        return "certificate refused" if "CERTIFICATE" in str(error) else "cannot be connected to"
    return "broke off in the middle of its answer"


def _address(url: str | None) -> str:
    """The server's address without user, query and fragment."""
    if not url:
        raise InputError("prometheus url: is missing; give the server's address")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    host = parts.hostname
    if parts.scheme not in {"http", "https"} or not host or not host.isprintable() or " " in url:
        raise BadValue(
            "prometheus url", url.rpartition("@")[2], "give http://host:port or https://host"
        )
    named = f"[{host}]" if ":" in host else host
    place = named if port is None else f"{named}:{port}"
    return urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))


def _trust(settings: PrometheusSettings) -> ssl.SSLContext:
    """Whose certificates are believed."""
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
    except (OSError, ssl.SSLError):
        raise BadFile(settings.ca_file, "is no certificate authority that can be read") from None
    if settings.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
