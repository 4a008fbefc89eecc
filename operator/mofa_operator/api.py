"""Requests to the API server: read, list, watch, apply, patch; each refusal is one of the errors of
`api_errors`.

A session has as many connections as objects are reconciled at once, and never retries: the caller
decides when to ask again.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import lru_cache
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self, TypeAlias
from urllib.parse import quote, urlencode

import aiohttp
import orjson
from yarl import URL

from mofa_model.kinds import Kind
from mofa_model.kinds.patches import Operation
from mofa_model.kinds.shape import Body, at, text_of
from mofa_operator.api_errors import (
    ApiError,
    Busy,
    Conflict,
    Expired,
    Gone,
    Invalid,
    refusal,
    wait_of,
)
from mofa_operator.credentials import Credentials, UsedCredentials
from mofa_operator.objects import UNREAD
from mofa_operator.settings import ApiSettings
from mofa_operator.words import MANAGER

_READS: Final = 4
"""Connections for reads beside the writes."""
_PAGE: Final = 500
"""Objects of one page of a list, at most."""
_FEW: Final = 8
"""A page of at most so many objects is read by its metadata alone if it is too large. [1]"""
PAGE_BYTES: Final = 4 * 2**20
"""Largest page that is read; after one of more than half, the next has fewer objects. [B]"""
LARGEST: Final = 16 * 2**20
"""Largest object that is read: text of 1.5 MiB, with up to six bytes of JSON a character. [B]"""
_WATCH: Final = "290"
"""How long the server keeps a watch, so that load balancers can move connections. [s]"""
_SILENCE: Final = 90.0
"""How long a watch may be silent before its connection counts as dead. [s]"""
_RESTARTS: Final = 3
"""How often a list whose continuation has expired is begun again."""
_JSON: Final = "application/json"
_METADATA: Final = f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{_JSON}"
_UNFIT: Final = "the server rejected our request due to an error in our request"
"""Words of the API server for a JSON patch that does not fit the object."""
Events: TypeAlias = AsyncIterator[tuple[str, Body]]
"""Type and object, in their order; a BOOKMARK's object has a version and nothing else."""
BOOKMARK: Final = "BOOKMARK"
_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", BOOKMARK})
_UNREADABLE: Final = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xef\xbf[\xbe\xbf]|\xef\xbb\xbf")
"""Characters that JSON may hold and YAML may not: an apply is read as YAML."""


class TokenBucket:
    """Limits requests to a rate, with some at once; whoever waits is served in order.

    It holds no tokens, but the moment when the next turn is due, and how far ahead of that a turn
    may be taken.
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = monotonic) -> None:
        """`rate` in the long run [1/s], `burst` turns at once [1]."""
        self._gap = 1.0 / rate
        self._ahead = (burst - 1) * self._gap
        self._clock = clock
        self._due = float("-inf")
        self._shut = float("-inf")

    def next_turn(self) -> float:
        """Take the next turn; returns how long to wait for it. [s]

        >>> bucket = TokenBucket(2.0, 1, clock=lambda: 0.0)
        >>> [bucket.next_turn() for _ in range(3)]
        [0.0, 0.5, 1.0]
        """
        now = self._clock()
        due = max(self._due, now)
        self._due = due + self._gap
        return max(0.0, due - self._ahead - now, self._shut - now)

    async def take(self) -> None:
        """Wait for the next turn."""
        wait = self.next_turn()
        if wait > 0:
            await asyncio.sleep(wait)

    def hold(self, seconds: float) -> None:
        """Let all requests wait for a time, because the API server asked for it. [s]"""
        self._shut = max(self._shut, self._clock() + seconds)


def path_of(kind: Kind, namespace: str, name: str = "", *, status: bool = False) -> str:
    """The URL path of an object, or of a kind.

    >>> from mofa_operator.keys import TRAINING_JOB
    >>> path_of(TRAINING_JOB, "ml", "llama", status=True)
    '/apis/mofa.dev/v1alpha1/namespaces/ml/trainingjobs/llama/status'
    """
    item = f"/{quote(name, safe='')}" if name else ""
    return f"{_root(kind, namespace)}{item}{'/status' if status else ''}"


class Versions:
    """Which version of a kind a server was last seen to serve."""

    def __init__(self) -> None:
        """Begin with no version known of any kind."""
        self._found: dict[Kind, Kind] = {}

    def of(self, kind: Kind) -> Kind:
        """The kind in the version that the server serves."""
        return self._found.get(kind, kind)

    def path(self, kind: Kind, namespace: str, name: str = "", *, status: bool = False) -> str:
        """The URL path of an object or a kind, in the version that the server serves."""
        return path_of(self.of(kind), namespace, name, status=status)

    def versions(self, kind: Kind) -> list[Kind]:
        """The kind in all its equivalent versions; first the one that the server last served."""
        versions = [
            Kind(kind.group, version, kind.kind, kind.plural, kind.namespaced)
            for version in (kind.version, *kind.others)
        ]
        return sorted(versions, key=lambda version: version.version != self.of(kind).version)

    def note(self, kind: Kind, served: Kind) -> None:
        """Note the version in which the API server served a kind."""
        if kind.others:
            self._found[kind] = served


@lru_cache(maxsize=1024)
def _root(kind: Kind, namespace: str) -> str:
    group = f"/apis/{kind.group}" if kind.group else "/api"
    inside = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{group}/{kind.version}{inside}/{kind.plural}"


def request_bytes(body: Body | Sequence[Body]) -> bytes:
    """The body of a request as JSON that is valid YAML too."""
    return _UNREADABLE.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), orjson.dumps(body))


@contextlib.contextmanager
def as_busy(what: str) -> Iterator[None]:
    """Raise `Busy` where the network fails inside."""
    try:
        yield
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Busy(f"{what}: {type(error).__name__} {error}") from error


def items_of(page: Body, path: str) -> Sequence[Body]:
    """The objects of a page of a list."""
    items = page.get("items") or []
    if isinstance(items, list) and all(
        isinstance(item, dict) and at(item, "metadata", "name") for item in items
    ):
        return items
    raise Busy(f"GET {path}: the answer is not a Kubernetes list; a proxy may have sent it")


async def events(chunks: AsyncIterator[bytes], path: str) -> Events:
    """The events of an open watch; raises `Expired` or another refusal when it comes.

    A line that is too long for an object is `Expired` too: the next list then reads the object's
    metadata alone, and a new watch goes on from there.
    """
    rest = bytearray()
    while True:
        with as_busy(f"WATCH {path}"):
            chunk = await anext(chunks, b"")
        if not chunk:
            return
        *lines, last = chunk.split(b"\n")
        for line in lines:
            rest += line
            yield _event(bytes(rest), path)
            rest.clear()
        rest += last
        if len(rest) > LARGEST:
            raise Expired(f"WATCH {path.partition('?')[0]}: an event has more than {LARGEST} bytes")


def _event(line: bytes, path: str) -> tuple[str, Body]:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        event = None
    body = event.get("object") if isinstance(event, dict) else None
    if isinstance(event, dict) and isinstance(body, dict):
        kind, meta = event.get("type"), body.get("metadata")
        if kind == "ERROR":
            code = body.get("code")
            status = code if isinstance(code, int) else 500
            raise refusal(status, orjson.dumps(body), None, "WATCH", path)
        if kind in _TYPES and isinstance(meta, dict) and (kind == BOOKMARK or meta.get("name")):
            return str(kind), body
    raise Busy(
        f"WATCH {path.partition('?')[0]}: the answer is not a Kubernetes watch; "
        "a proxy may have sent it"
    )


class _TooLarge(Busy):
    """An answer has more bytes than may be read."""


def too_large_alone(most: int) -> str:
    """Why an object of more than so many bytes is not read.

    >>> too_large_alone(524288)
    'too large to read: it has more than 512 KiB; what its pods need can stand in a ConfigMap'
    """
    return (
        f"too large to read: it has more than {most // 1024} KiB; "
        "what its pods need can stand in a ConfigMap"
    )


def too_large_together(namespace: str, budget: int) -> str:
    """Why an object is not read where its namespace has used up its `budget`. [B]"""
    return (
        f"too large to read: the jobs of namespace {namespace} have more than "
        f"{budget // 1024} KiB together; make them smaller or fewer"
    )


class Api:
    """A session with the API server; use it as `async with`."""

    def __init__(
        self,
        credentials: Credentials,
        settings: ApiSettings | None = None,
        connections: int | None = None,
    ) -> None:
        """A session that is not open yet; by default `connections` suffice for writes and reads."""
        self._settings = settings or ApiSettings()
        self._connections = connections or self._settings.concurrency + _READS
        self._credentials = credentials
        self._session: aiohttp.ClientSession | None = None
        self._opened_with = credentials.access
        self.bucket = TokenBucket(self._settings.writes_per_second, self._settings.burst)
        """Limits the rate of writes, and not of reads."""
        self._sizes: dict[Kind, int] = {}  # objects of a page, as adapted by the last list
        self._length = 0  # bytes of the last answer
        self.served = Versions()
        self.count: Callable[[str, str], None] = lambda _verb, _outcome: None
        """Called for every write: its verb, and ok or the name of the error."""

    @classmethod
    def from_environment(cls, settings: ApiSettings | None = None) -> Api:
        """A client with the credentials of the kubeconfig, else of the pod's service account."""
        return cls(Credentials.from_environment(), settings)

    async def __aenter__(self) -> Self:
        """Open the session; the first request opens the first connection."""
        self._open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, kind: Kind, namespace: str, name: str) -> Body | None:
        """An object, or None where there is none."""
        for version in self.served.versions(kind):
            with contextlib.suppress(Gone):
                body = await self._ask("GET", path_of(version, namespace, name))
                self.served.note(kind, version)
                return body
        return None

    async def list(
        self, kind: Kind, namespace: str | None = None, label_selector: str | None = None
    ) -> AsyncIterator[Body]:
        """All objects of a kind; some come twice where the list had to begin again."""
        async for items, _ in self.pages(kind, namespace, label_selector):
            for item in items:
                yield item

    async def pages(
        self,
        kind: Kind,
        namespace: str | None = None,
        label_selector: str | None = None,
        size: int = _PAGE,
    ) -> AsyncIterator[tuple[Sequence[Body], str]]:
        """The objects of a kind, page by page, each page with the version to watch from.

        A page is bounded in bytes. Where even a few objects are too large, their metadata are read
        first, and then whole objects as far as the budget of their namespace lasts; the others have
        only metadata, and say why in `UNREAD`.
        """
        (version, *other_versions), restarts, token = self.served.versions(kind), 0, ""
        page_size, by_metadata = min(size, self._sizes.get(kind, size)), False
        spent = Counter[str]()
        while True:
            path = path_of(version, namespace or "")
            parameters = {
                "limit": str(page_size),
                "labelSelector": label_selector,
                "continue": token,
            }
            query = urlencode({name: value for name, value in parameters.items() if value})
            accept = _METADATA if by_metadata else _JSON
            largest = PAGE_BYTES if page_size > 1 else LARGEST
            try:
                page = await self._ask("GET", f"{path}?{query}", accept=accept, largest=largest)
            except Gone:
                if not token and other_versions:  # the cluster may serve another version
                    version, *other_versions = other_versions
                    continue
                if not token or restarts == _RESTARTS:
                    raise
                restarts, token = restarts + 1, ""
                continue
            except _TooLarge as error:
                if page_size == 1 and by_metadata:
                    raise Busy(str(error)) from None
                by_metadata = by_metadata or page_size <= _FEW
                page_size = max(1, page_size // _FEW)
                continue
            self.served.note(kind, version)
            identity = {"apiVersion": kind.api_version, "kind": kind.kind}  # a list leaves it out
            items: list[Body] = [{**item, **identity} for item in items_of(page, path)]
            is_partial = page.get("kind") == "PartialObjectMetadataList"
            if is_partial:
                before = spent.total()
                items = [await self._within_budget(version, item, spent) for item in items]
                mean = (spent.total() - before) / max(1, len(items))
                by_metadata = not 0 < mean < PAGE_BYTES / _PAGE
            used = self._length / max(1, len(items))
            page_size = max(1, min(size, 4 * page_size, int(PAGE_BYTES / 2 / max(1.0, used))))
            if size == _PAGE:
                self._sizes[kind] = page_size
            yield items, str(page["metadata"].get("resourceVersion", ""))
            token = page["metadata"].get("continue", "")
            if not token:
                return

    async def _within_budget(self, kind: Kind, item: Body, spent: Counter[str]) -> Body:
        """The whole object of which `item` has the metadata, if its namespace's budget lasts."""
        metadata = item["metadata"]
        namespace, name = text_of(metadata.get("namespace")), text_of(metadata.get("name"))
        if spent[namespace] >= self._settings.namespace_bytes:
            return {**item, UNREAD: too_large_together(namespace, self._settings.namespace_bytes)}
        try:
            whole = await self._ask("GET", path_of(kind, namespace, name), largest=LARGEST)
            spent[namespace] += self._length
        except _TooLarge:
            spent[namespace] += LARGEST
            return {**item, UNREAD: too_large_alone(self._settings.largest_object)}
        except Gone:
            return item  # it went meanwhile, as the watch will say
        return {**whole, "apiVersion": item["apiVersion"], "kind": item["kind"]}

    async def is_discovered(self, kind: Kind) -> bool:
        """Whether the API server's discovery lists a kind; it can lag behind what is served."""
        path = self.served.path(kind, "").rpartition("/")[0]
        try:
            resources = await self._ask("GET", path, part="resources", kind=list)
        except Gone:
            return False
        names = [row.get("name") for row in resources["resources"] if isinstance(row, dict)]
        return kind.plural in names

    @contextlib.asynccontextmanager
    async def watch(self, kind: Kind, namespace: str | None, version: str) -> AsyncIterator[Events]:
        """The events of a kind's objects after a version, until the server ends them; raises
        `Expired` where the version is too old. The server sends a bookmark a minute.
        """
        parameters = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": _WATCH}
        parameters["resourceVersion"] = version
        path = f"{self.served.path(kind, namespace or '')}?{urlencode(parameters)}"
        if self._credentials.stale:
            await self._credentials.refresh()
        credentials_used = self._credentials.used
        limits = aiohttp.ClientTimeout(sock_connect=10.0, sock_read=_SILENCE)
        with as_busy(f"WATCH {path}"):
            response = await self._request("GET", path, None, _JSON, timeout=limits)
        async with response:
            if response.status != 200:
                if response.status == 401:
                    await self._renewed(credentials_used)
                with as_busy(f"WATCH {path}"):
                    raw = await response.content.read(PAGE_BYTES)
                raise refusal(response.status, raw, None, "WATCH", path)
            yield events(response.content.iter_any(), path)

    async def apply(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Body,
        *,
        status: bool = False,
        rehearsal: bool = False,
    ) -> Body:
        """Server-side apply as our field manager, by force; a body with metadata.uid changes only
        the object of that uid. A `rehearsal` is checked like any write, and changes nothing.
        """
        path = self._path(kind, namespace, name, "force=true", status=status)
        path += "&dryRun=All" * rehearsal
        served = {**body, "apiVersion": self.served.of(kind).api_version} if kind.others else body
        return await self._write("apply", "PATCH", path, served, "application/apply-patch+yaml")

    async def merge(
        self, kind: Kind, namespace: str, name: str, patch: Body, *, status: bool = False
    ) -> Body:
        """JSON merge patch; a null removes a key, whoever owns it."""
        path = self._path(kind, namespace, name, status=status)
        return await self._write("merge", "PATCH", path, patch, "application/merge-patch+json")

    async def patch(
        self, kind: Kind, namespace: str, name: str, operations: Sequence[Operation]
    ) -> Body:
        """JSON patch; `Conflict` where a test fails or a path is missing."""
        path = self._path(kind, namespace, name, "fieldValidation=Strict")
        try:
            return await self._write(
                "patch", "PATCH", path, operations, "application/json-patch+json"
            )
        except Invalid as error:
            if _UNFIT in str(error):
                raise Conflict(str(error)) from None
            raise

    async def create(self, kind: Kind, namespace: str, body: Body) -> Body:
        """Create an object; `Taken` where there is one of this name."""
        return await self._write("create", "POST", self._path(kind, namespace), body)

    async def replace(self, kind: Kind, namespace: str, name: str, body: Body) -> Body:
        """Replace an object; `Conflict` where `body` has an old resourceVersion."""
        return await self._write("replace", "PUT", self._path(kind, namespace, name), body)

    async def delete(
        self, kind: Kind, namespace: str, name: str, uid: str, *, rehearsal: bool = False
    ) -> None:
        """Delete the object of this uid after all that it owns; a rehearsal changes nothing."""
        options: dict[str, Any] = {"preconditions": {"uid": uid}, "propagationPolicy": "Foreground"}
        if rehearsal:
            options["dryRun"] = ["All"]
        await self._write("delete", "DELETE", self._path(kind, namespace, name), options)

    def _path(
        self, kind: Kind, namespace: str, name: str = "", query: str = "", *, status: bool = False
    ) -> str:
        """The path of a write, with our field manager."""
        path = f"{self.served.path(kind, namespace, name, status=status)}?fieldManager={MANAGER}"
        return f"{path}&{query}" if query else path

    async def _write(
        self,
        verb: str,
        method: str,
        path: str,
        body: Body | Sequence[Operation],
        content: str = _JSON,
    ) -> Body:
        await self.bucket.take()
        outcome = "ok"
        try:
            return await self._ask(method, path, request_bytes(body), content)
        except ApiError as error:
            outcome = type(error).__name__
            raise
        finally:
            self.count(verb, outcome)

    async def _ask(
        self,
        method: str,
        path: str,
        data: bytes | None = None,
        content: str = _JSON,
        *,
        part: str = "metadata",
        kind: type = dict,
        accept: str = _JSON,
        largest: int = LARGEST,
    ) -> Body:
        """The answer to a request: an object whose field `part` is of the type `kind`."""
        if self._credentials.stale:
            await self._credentials.refresh()
        credentials_used = self._credentials.used
        request = (method, path, data, content, accept, largest)
        status, raw, wait = await self._exchange(*request)
        if status == 401 and await self._renewed(credentials_used):
            status, raw, wait = await self._exchange(*request)
        if status >= 300:
            if status == 429 and data is not None:
                self.bucket.hold(wait or 1.0)
            raise refusal(status, raw, wait, method, path)
        try:
            answer = orjson.loads(raw)
        except orjson.JSONDecodeError:
            raise Busy(
                f"{method} {path}: the answer is not JSON; a proxy may have sent it"
            ) from None
        if isinstance(answer, dict) and isinstance(answer.get(part), kind):
            self._length = len(raw)
            return answer
        raise Busy(
            f"{method} {path}: the answer is not a Kubernetes object; a proxy may have sent it"
        )

    async def _exchange(
        self, method: str, path: str, data: bytes | None, content: str, accept: str, largest: int
    ) -> tuple[int, bytes, float | None]:
        """One request: status, body, and how long the server asks to wait. [s]"""
        with as_busy(f"{method} {path}"):
            request = self._request(method, path, data, content, accept)
            async with await request as response:
                raw = bytearray()
                async for piece in response.content.iter_any():
                    raw += piece
                    if len(raw) > largest:
                        response.close()
                        raise _TooLarge(
                            f"{method} {path}: the answer has more than {largest} bytes"
                        )
                return response.status, bytes(raw), wait_of(response.headers.get("Retry-After"))

    async def _request(
        self,
        method: str,
        path: str,
        data: bytes | None,
        content: str,
        accept: str = _JSON,
        **how: Any,
    ) -> aiohttp.ClientResponse:
        session, credentials = self._session, self._credentials
        if session is None:
            raise Busy(f"{method} {path}: the session is not open")
        headers = {"Content-Type": content, "Accept": accept}
        if credentials.token:
            headers["Authorization"] = credentials.token
        return await session.request(
            method,
            URL(credentials.access.server + path, encoded=True),
            data=data,
            headers=headers,
            # An API server sends nobody elsewhere; a gateway's login page is no answer.
            allow_redirects=False,
            server_hostname=credentials.access.server_name,
            **how,
        )

    async def _renewed(self, refused: UsedCredentials) -> bool:
        """Whether new credentials were found; connections with an old certificate are closed."""
        if not await self._credentials.reload(refused):
            return False
        if self._session is not None and self._credentials.access != self._opened_with:
            old_session = self._session
            self._open()
            await old_session.close()
        return True

    def _open(self) -> None:
        self._opened_with = access = self._credentials.access
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._connections, ssl=access.context() or True, keepalive_timeout=60.0
            ),
            headers={"User-Agent": MANAGER},
            timeout=aiohttp.ClientTimeout(total=self._settings.timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=access.proxy,
        )
