"""A thin client of Prometheus: instant queries by POST, limited in bytes, series, time and number.

    async with Prometheus(settings) as prometheus:
        answer = await prometheus.query("up")
        answer.samples      # finite numbers, no series twice
        answer.warnings     # what the server warned of, a partial answer included

Every failure is a `SourceUnreachable` of one line, or `TooMuch` where a smaller query may be
answered. Temporary failures (the network, 429, 502, 503, 504) are tried three times, permanent ones
once; after a 401 the token is read again, once. Redirects are refused, answers are read as a stream
and cut off at the limit, and messages hold no secret. In an answer:

    NaN or infinite value   left out, and a warning counts them
    the same series twice   a failure: either one may be wrong
    more series than asked  too much
    warnings, isPartial     become warnings
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import ssl
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from itertools import chain, pairwise
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlencode, urlsplit, urlunsplit

import aiohttp
import orjson

from mofa_model.errors import BadFile, BadValue, InputError, SourceUnreachable
from mofa_operator.incidents.timelines import Point
from mofa_operator.observe.prometheus.flavours import TRAITS, PrometheusCredentials, flavour
from mofa_operator.settings import PrometheusSettings

ATTEMPTS: Final = 3
"""How often a query is asked before its temporary failure counts. [1]"""
PAUSE: Final = 0.5
"""Wait before the second attempt; it doubles. [s]"""
AT_ONCE: Final = 4
"""Most queries of one client at the same time, because the server has others to serve. [1]"""
_TEMPORARY: Final = frozenset({408, 429, 502, 503, 504})
_FORM: Final = "application/x-www-form-urlencoded"
_LARGE: Final = 1 << 18
"""Size from which answers are parsed in a thread beside the event loop, one at a time. [B]"""
_PART: Final = 1 << 17
"""How much of a large answer is decoded at once. [B]"""
_ITEM: Final = b',{"metric":'
"""How each series of an answer begins, except the first."""
_DECODER: Final = json.JSONDecoder()
_PARSER: Final = ThreadPoolExecutor(1, "answers")
T = TypeVar("T")
_PER_TURN: Final = 1000
"""Items after which other tasks have their turn. [1]"""
_SHOWN: Final = 300
_OF_SIZE: Final = frozenset({400, 422, 500, 503, 504})
"""Statuses with which servers refuse a query for its size, if their words say so."""
_LIMIT: Final = re.compile(
    r"too many|too large|more than|exceed|limit|timed out|deadline", re.IGNORECASE
)
"""Words with which servers of all flavours refuse a query for its size or its time."""


class TooMuch(SourceUnreachable):
    """A query exceeds a limit of samples, series, bytes or time; a smaller one may be answered."""


class FailedQuery(Exception):
    """A request brought no answer that can be used; the message says why."""

    def __init__(self, why: str, *, temporary: bool = False, too_much: bool = False) -> None:
        super().__init__(why)
        self.temporary = temporary
        self.too_much = too_much


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of an answer."""

    labels: Mapping[str, str]
    points: tuple[Point, ...]
    """Moments in seconds of the epoch, and values; one point but for subqueries. [(s, …)]"""

    @property
    def value(self) -> float:
        """The last value."""
        return self.points[-1][1]

    def label(self, name: str) -> str:
        """A label's value; empty where it has none, as in Prometheus."""
        return self.labels.get(name, "")


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryResult:
    """The answer to a query."""

    samples: tuple[Sample, ...]
    """Series with finite values."""
    warnings: tuple[str, ...] = ()
    """Doubts about it, in sentences."""

    def by(self, *labels: str) -> dict[tuple[str, ...], float]:
        """Values by some labels, of an aggregation that has no others."""
        return {
            tuple(sample.label(name) for name in labels): sample.value for sample in self.samples
        }

    def number(self) -> float | None:
        """The only value; None where there is no series."""
        return self.samples[0].value if self.samples else None


def parsed(raw: bytes | bytearray, query: str, most_series: int) -> QueryResult:
    """An answer from its bytes."""
    if raw.count(_ITEM) >= most_series:
        raise _too_many(query, most_series)
    body, items = _in_parts(raw)
    if (
        not isinstance(body, dict)
        or body.get("status") != "success"
        or not isinstance(body.get("data"), dict)
    ):
        raise FailedQuery("answers with JSON that is not Prometheus'; check its address")
    data = body["data"]
    kind, result = data.get("resultType"), data.get("result")
    if kind == "scalar":
        kind, result = "vector", [{"metric": {}, "value": result}]
    if kind not in {"vector", "matrix"} or not isinstance(result, list):
        raise FailedQuery(f"answers with {str(kind)[:40]!r} where a vector was expected")
    if len(result) > most_series:
        raise _too_many(query, most_series)
    samples, names, infinite = list[Sample](), set[int](), 0
    equal_texts, equal_points = dict[str, str](), dict[tuple[float, str], tuple[Point, ...]]()
    try:
        for item in chain(result, items):
            sample = _series(item, kind, equal_texts, equal_points)
            if not all(map(_is_finite, sample.points)):
                points = tuple(filter(_is_finite, sample.points))
                infinite += len(sample.points) - len(points)
                sample = Sample(sample.labels, points)
            if sample.points:
                samples.append(sample)
                names.add(hash(frozenset(sample.labels.items())))
    except (TypeError, ValueError, KeyError, AttributeError):
        raise FailedQuery("answers with a series that cannot be read") from None
    if len(names) < len(samples) and _has_duplicates(samples):
        raise FailedQuery("answers with the same series twice")
    return QueryResult(samples=tuple(samples), warnings=_warnings(body, infinite))


def _too_many(query: str, most_series: int) -> FailedQuery:
    return FailedQuery(
        f"answers with more than {most_series} series, the most that are read, to {query[:80]}",
        too_much=True,
    )


def _in_parts(raw: bytes | bytearray) -> tuple[Any, Iterator[dict[str, Any]]]:
    """An answer without its series, and its series one by one.

    A large one is decoded in parts, because the objects of 10,000 series are ten times as large as
    their bytes. No text in it can look like `_ITEM`, as its quotes would be escaped.
    """
    begin = raw.find(b"[" + _ITEM[1:]) if len(raw) > _PART else -1
    if begin < 0:
        return _json(raw), iter(())
    last = raw.rfind(_ITEM, begin)
    cuts = [begin]
    while cuts[-1] < last:
        cut = raw.find(_ITEM, cuts[-1] + _PART, last)
        cuts.append(last if cut < 0 else cut)
    try:
        text = raw[cuts[-1] + 1 :].decode()
        item, end = _DECODER.raw_decode(text)
        body = orjson.loads(raw[:begin] + b"[" + text[end:].encode())
        parts = (orjson.loads(b"[" + raw[a + 1 : b] + b"]") for a, b in pairwise(cuts))
    except ValueError:
        return _json(raw), iter(())
    return body, chain(chain.from_iterable(parts), [item])


def _has_duplicates(samples: Iterable[Sample]) -> bool:
    """Whether two series have the same labels, and not only equal hashes."""
    names = [frozenset(sample.labels.items()) for sample in samples]
    return len(set(names)) < len(names)


def refusal(code: int, raw: bytes | bytearray) -> str:
    """Why a server refused, with its own words where it has some."""
    try:
        body = _json(raw)
    except FailedQuery:
        body = None
    error = body.get("error") if isinstance(body, dict) else None
    words = {
        401: "does not know us (401)",
        403: "does not let us in (403)",
        404: "has no query API there (404)",
    }
    answer = words.get(code, f"refuses with status {code}")
    return f"{answer}: {error[:_SHOWN]}" if isinstance(error, str) and error else answer


def is_too_much(code: int, why: str) -> bool:
    """Whether a refusal is for the size of a query, or the time that it takes.

    >>> is_too_much(422, "query processing would load too many samples into memory")
    True
    >>> is_too_much(422, "found duplicate series for the match group")
    False
    """
    return code == 413 or (code in _OF_SIZE and _LIMIT.search(why) is not None)


def _json(raw: bytes | bytearray) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise FailedQuery("answers with something that is not JSON; check its address") from None


def _series(
    item: dict[str, Any],
    kind: str,
    equal_texts: dict[str, str],
    equal_points: dict[tuple[float, str], tuple[Point, ...]],
) -> Sample:
    """A series; equal values of labels are one text of `texts`, and equal points one of `known`."""
    labels = item["metric"]
    if not all(isinstance(value, str) for value in labels.values()):
        raise TypeError
    for label, value in labels.items():
        labels[label] = equal_texts.setdefault(value, value)
    if kind == "matrix":
        return Sample(
            labels, tuple((float(moment), float(value)) for moment, value in item["values"])
        )
    moment, value = item["value"]
    points = equal_points.get((moment, value))
    if points is None:
        points = equal_points[moment, value] = ((float(moment), float(value)),)
    return Sample(labels, points)


def _is_finite(point: Point) -> bool:
    return math.isfinite(point[0]) and math.isfinite(point[1])


def _warnings(body: dict[str, Any], infinite: int) -> tuple[str, ...]:
    stated = body.get("warnings")
    warnings = (
        [" ".join(str(text).split())[:_SHOWN] for text in stated[:8]]
        if isinstance(stated, list)
        else []
    )
    if body.get("isPartial") is True:
        warnings.append("the answer is partial")
    if infinite:
        warnings.append(f"{infinite} values are not finite numbers and were left out")
    return tuple(warnings)


class Prometheus:
    """A server that answers PromQL."""

    def __init__(self, settings: PrometheusSettings, *, pause: float = PAUSE) -> None:
        self._settings = settings
        self._traits = TRAITS[flavour(settings.flavour)]
        self._credentials = PrometheusCredentials(settings)
        self._address = _address(settings.url)
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._pause = pause
        self._client: aiohttp.ClientSession | None = None

    @property
    def longest(self) -> float:
        """Longest stretch of time that one query may look at. [s]"""
        return self._traits.longest

    @property
    def address(self) -> str:
        """The server's address without user and password."""
        return self._address

    async def __aenter__(self) -> Self:
        trust = _trust(self._settings) if self._address.startswith("https:") else True
        self._client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trust),
            timeout=aiohttp.ClientTimeout(),  # none here: `_attempt` limits each attempt
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

    def with_own_limit(self) -> Prometheus:
        """A client that shares this one's connections and has its own limit of queries at once."""
        other = copy(self)
        other._gate = asyncio.Semaphore(AT_ONCE)  # noqa: SLF001 - it is one of us
        return other

    async def query(self, promql: str, at: float | None = None) -> QueryResult:
        """The answer at a moment, None = now: a vector, a scalar, or a subquery's points."""
        form = {
            "query": promql,
            "timeout": f"{self._settings.timeout:g}s",
            **self._traits.parameters,
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
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(_PARSER, parsed, raw, *reading)
        except FailedQuery as error:
            raise self._unreachable(str(error), too_much=error.too_much) from None

    async def _persistent(self, body: bytes) -> bytearray:
        """The bytes of an answer, after up to `ATTEMPTS` attempts."""
        anew = False
        for attempt in range(1, ATTEMPTS + 1):
            try:
                status, raw = await self._attempt(body, anew=False)
                if status == 401 and not anew:
                    anew = True
                    status, raw = await self._attempt(body, anew=True)
            except FailedQuery as error:
                why, temporary, too_much = str(error), error.temporary, error.too_much
            else:
                if status == 200:
                    return raw
                why, temporary = refusal(status, raw), status in _TEMPORARY
                too_much = is_too_much(status, why)
            if not temporary or attempt == ATTEMPTS:
                raise self._unreachable(why, too_much=too_much)
            await asyncio.sleep(self._pause * 2 ** (attempt - 1))
        raise AssertionError  # the loop returns or raises

    async def _attempt(self, body: bytes, *, anew: bool) -> tuple[int, bytearray]:
        """Status and bytes of one request."""
        if self._client is None:
            raise RuntimeError("the client is not open; use it in `with`")
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
            raise FailedQuery(
                f"no answer within {self._settings.timeout:g} s", temporary=True, too_much=True
            ) from None
        except aiohttp.InvalidURL as error:
            raise FailedQuery(type(error).__name__) from None
        except (aiohttp.ClientError, OSError) as error:
            raise FailedQuery(_network(error), temporary=True) from None

    async def _read(self, response: aiohttp.ClientResponse) -> bytearray:
        if 300 <= response.status < 400:
            raise FailedQuery(
                "redirects to another address, which is not followed; configure its final address"
            )
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise FailedQuery("sends a compressed answer that was not asked for")
        largest = self._settings.largest_answer
        raw = bytearray()
        async for part in response.content.iter_any():
            raw += part
            if len(raw) > largest:
                raise FailedQuery(f"answers with more than {largest} bytes", too_much=True)
        return raw

    def _unreachable(self, why: str, *, too_much: bool = False) -> SourceUnreachable:
        line = " ".join(f"Prometheus at {self._address}: {why}".split())
        kind = TooMuch if too_much else SourceUnreachable
        return kind(self._credentials.without_secrets(line))


def _network(error: Exception) -> str:
    """A failure of the network, in words."""
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
    hostname = f"[{host}]" if ":" in host else host
    place = hostname if port is None else f"{hostname}:{port}"
    return urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))


def _trust(settings: PrometheusSettings) -> ssl.SSLContext:
    """The trusted certificate authorities."""
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
    except (OSError, ssl.SSLError):
        raise BadFile(
            settings.ca_file, "cannot be read as certificates of an authority; give them in PEM"
        ) from None
    if settings.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Asking:
    """Queries at one moment, and all their warnings."""

    def __init__(self, prometheus: Prometheus, at: float) -> None:
        """`at` is the moment, in seconds of the epoch. [s]"""
        self.prometheus = prometheus
        self.at = at
        self.warnings: list[str] = []

    async def __call__(self, query: str) -> QueryResult:
        """The answer to a query."""
        answer = await self.prometheus.query(query, self.at)
        self.warnings.extend(answer.warnings)
        return answer


async def together(*coroutines: Coroutine[Any, Any, T]) -> list[T]:
    """Run coroutines at once and return their results; the first failure cancels the others."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Items one by one, with turns for other tasks in between: an answer may have many series."""
    for number, item in enumerate(items):
        if number % _PER_TURN == _PER_TURN - 1:
            await asyncio.sleep(0)
        yield item
