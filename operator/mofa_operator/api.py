"""The API server, as far as we use it: read, list, apply, patch, and every refusal as one of the errors of `refusals`.

One session, as many connections as objects are reconciled at once, no retries: who asked decides when to ask again.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode

import aiohttp
import orjson
from yarl import URL

from mofa_model.kinds import Kind
from mofa_model.kinds.patches import Operation
from mofa_model.kinds.shape import Body
from mofa_operator.bucket import Bucket
from mofa_operator.credentials import Credentials, Known
from mofa_operator.paths import Versions, path_of
from mofa_operator.refusals import ApiError, Busy, Conflict, Gone, Invalid, refusal, wait_of
from mofa_operator.settings import ApiSettings
from mofa_operator.streams import Events, as_busy, events, listed, sent
from mofa_operator.words import MANAGER

_READS: Final = 4
"""Connections for reads beside the writes."""
_PAGE: Final = 500
"""Objects of one page of a list."""
_WATCH: Final = "290"
"""How long the server is asked to keep a watch, in seconds: connections that a load balancer moves are made anew."""
_SILENCE: Final = 90.0
"""How long a watch may be silent before its connection counts as dead. [s]"""
_RESTARTS: Final = 3
"""How often a list whose continuation has expired is begun again."""
_JSON: Final = "application/json"
_MERGE: Final = "application/merge-patch+json"
_PATCH: Final = "application/json-patch+json"
_UNFIT: Final = "the server rejected our request due to an error in our request"
"""How the API server says that a JSON patch does not fit the object; what the object may not become, it says by field."""
_DRY: Final = "&dryRun=All"
_APPLY: Final = "application/apply-patch+yaml"
_VERBS: Final = {
    _APPLY: "apply", _MERGE: "merge", _PATCH: "patch", "POST": "create", "PUT": "replace", "DELETE": "delete",
}  # fmt: skip


class Api:
    """A session with the API server; use it as `async with`."""

    def __init__(
        self,
        credentials: Credentials,
        settings: ApiSettings | None = None,
        connections: int | None = None,
    ) -> None:
        """A session that is not open yet; `connections` at once, enough for its writes and some reads by default."""
        self._settings = settings or ApiSettings()
        self._connections = connections or self._settings.concurrency + _READS
        self._credentials = credentials
        self._session: aiohttp.ClientSession | None = None
        self._opened_with = credentials.access
        self.bucket = Bucket(self._settings.writes_per_second, self._settings.burst)
        """What writes wait for; reads do not."""
        self.served = Versions()
        self.count: Callable[[str, str], None] = lambda _verb, _outcome: None
        """Told of every write: its verb, and ok or the name of the error."""

    @classmethod
    def from_environment(cls, settings: ApiSettings | None = None) -> Api:
        """With the credentials of the kubeconfig, else of the pod's service account."""
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
        for one in self.served.versions(kind):
            with contextlib.suppress(Gone):
                found = await self._ask("GET", path_of(one, namespace, name))
                self.served.note(kind, one)
                return found
        return None

    async def list(
        self, kind: Kind, namespace: str | None = None, label_selector: str | None = None
    ) -> AsyncIterator[Body]:
        """All objects of a kind, page by page; some come twice where the server lost the continuation meanwhile."""
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
        """The same list as pages, each with its version: a watch from the last page's version misses nothing."""
        wanted = {"limit": str(size)} | (
            {"labelSelector": label_selector} if label_selector else {}
        )
        (here, *versions), restarts, more = self.served.versions(kind), 0, ""
        while True:
            path = path_of(here, namespace or "")
            query = wanted | ({"continue": more} if more else {})
            try:
                page = await self._ask("GET", f"{path}?{urlencode(query)}")
            except Gone:
                if not more and versions:  # the cluster may serve another version
                    here, *versions = versions
                    continue
                if not more or restarts == _RESTARTS:
                    raise
                restarts, more = restarts + 1, ""
                continue
            self.served.note(kind, here)
            said = {"apiVersion": kind.api_version, "kind": kind.kind}
            items = [{**said, **item} for item in listed(page, path)]
            yield items, str(page["metadata"].get("resourceVersion", ""))
            more = page["metadata"].get("continue", "")
            if not more:
                return

    async def names(self, kind: Kind) -> bool:
        """Whether discovery names a kind; for a moment it may lag behind what is served."""
        path = self.served.path(kind, "").rpartition("/")[0]
        try:
            found = await self._ask("GET", path, part="resources", kind=list)
        except Gone:
            return False
        return any(
            isinstance(one, dict) and one.get("name") == kind.plural for one in found["resources"]
        )

    @contextlib.asynccontextmanager
    async def watch(self, kind: Kind, namespace: str | None, version: str) -> AsyncIterator[Events]:
        """What happens to objects of a kind after a version; the events end when the server ends them.

        `Expired` where the version is too old. No event follows another one for long: the server sends a bookmark a minute.
        """
        wanted = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": _WATCH}
        path = f"{self.served.path(kind, namespace or '')}?{urlencode(wanted | {'resourceVersion': version})}"
        if self._credentials.stale:
            await self._credentials.refresh()
        known, limits = (
            self._credentials.known,
            aiohttp.ClientTimeout(sock_connect=10.0, sock_read=_SILENCE),
        )
        with as_busy(f"WATCH {path}"):
            response = await self._request("GET", path, None, _JSON, timeout=limits)
        async with response:
            if response.status != 200:
                if response.status == 401:
                    await self._renewed(known)
                with as_busy(f"WATCH {path}"):
                    raw = await response.read()
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
        """Server-side apply as our field manager, by force; with metadata.uid it reaches that very object or none.
        A `rehearsal` is checked like any write, and changes nothing.
        """
        path = f"{self.served.path(kind, namespace, name, status=status)}?fieldManager={MANAGER}&force=true{_DRY * rehearsal}"
        said = {**body, "apiVersion": self.served.of(kind).api_version} if kind.others else body
        return await self._write("PATCH", path, said, _APPLY)

    async def merge(
        self, kind: Kind, namespace: str, name: str, patch: Body, *, status: bool = False
    ) -> Body:
        """Merge-patch: a null removes a key, whoever owns it."""
        path = f"{self.served.path(kind, namespace, name, status=status)}?fieldManager={MANAGER}"
        return await self._write("PATCH", path, patch, _MERGE)

    async def patch(
        self, kind: Kind, namespace: str, name: str, operations: Sequence[Operation]
    ) -> Body:
        """JSON patch; `Conflict` where a test fails or a path is not there. A field that the kind does not have is refused."""
        path = f"{self.served.path(kind, namespace, name)}?fieldManager={MANAGER}&fieldValidation=Strict"
        try:
            return await self._write("PATCH", path, operations, _PATCH)
        except Invalid as error:
            if _UNFIT in str(error):
                raise Conflict(str(error)) from None
            raise

    async def create(self, kind: Kind, namespace: str, body: Body) -> Body:
        """A new object; `Taken` where there is one of this name."""
        return await self._write(
            "POST", f"{self.served.path(kind, namespace)}?fieldManager={MANAGER}", body, _JSON
        )

    async def replace(self, kind: Kind, namespace: str, name: str, body: Body) -> Body:
        """An object as a whole; `Conflict` where its resourceVersion is not the current one."""
        path = f"{self.served.path(kind, namespace, name)}?fieldManager={MANAGER}"
        return await self._write("PUT", path, body, _JSON)

    async def _write(
        self, method: str, path: str, body: Body | Sequence[Operation] | None, content: str
    ) -> Body:
        await self.bucket.take()
        data = None if body is None else sent(body)
        outcome = "ok"
        try:
            return await self._ask(method, path, data, content)
        except ApiError as error:
            outcome = type(error).__name__
            raise
        finally:
            self.count(_VERBS.get(content) or _VERBS[method], outcome)

    async def _ask(
        self,
        method: str,
        path: str,
        data: bytes | None = None,
        content: str = _JSON,
        *,
        part: str = "metadata",
        kind: type = dict,
    ) -> Body:
        """What is answered: an object that has this part, of this kind."""
        if self._credentials.stale:
            await self._credentials.refresh()
        known = self._credentials.known
        status, raw, wait = await self._exchange(method, path, data, content)
        if status == 401 and await self._renewed(known):
            status, raw, wait = await self._exchange(method, path, data, content)
        if status >= 300:
            if status == 429 and data is not None:
                self.bucket.hold(wait or 1.0)
            raise refusal(status, raw, wait, method, path)
        try:
            answer = orjson.loads(raw)
        except orjson.JSONDecodeError:
            raise Busy(f"{method} {path}: the answer is not JSON") from None
        if isinstance(answer, dict) and isinstance(answer.get(part), kind):
            return answer
        raise Busy(
            f"{method} {path}: the answer is no object of Kubernetes"
        )  # a gateway's, not the server's

    async def _exchange(
        self, method: str, path: str, data: bytes | None, content: str
    ) -> tuple[int, bytes, float | None]:
        """One request: status, body, and how long the server asks to wait. [s]"""
        with as_busy(f"{method} {path}"):
            async with await self._request(method, path, data, content) as response:
                return (
                    response.status,
                    await response.read(),
                    wait_of(response.headers.get("Retry-After")),
                )

    async def _request(
        self, method: str, path: str, data: bytes | None, content: str, **how: Any
    ) -> aiohttp.ClientResponse:
        session, credentials = self._session, self._credentials
        if session is None:
            raise Busy(f"{method} {path}: the session is not open")
        headers = {"Content-Type": content}
        if credentials.token:
            headers["Authorization"] = credentials.token
        return await session.request(
            method,
            URL(credentials.access.server + path, encoded=True),
            data=data,
            headers=headers,
            allow_redirects=False,  # an API server sends nobody elsewhere; a gateway's login page is no answer
            server_hostname=credentials.access.server_name,
            **how,
        )

    async def _renewed(self, refused: Known) -> bool:
        """Whether there are others than the refused credentials; connections with the old certificate are closed."""
        if not await self._credentials.reload(refused):
            return False
        if self._session is not None and self._credentials.access != self._opened_with:
            old = self._session
            self._open()
            await old.close()
        return True

    def _open(self) -> None:
        self._opened_with = access = self._credentials.access
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._connections,
                ssl=access.context() or True,
                keepalive_timeout=60.0,
            ),
            headers={"Accept": _JSON, "User-Agent": MANAGER},
            timeout=aiohttp.ClientTimeout(total=self._settings.timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=access.proxy,
        )
