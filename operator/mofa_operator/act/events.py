"""Events: one for each (object, reason, inputs hash), before the write that settles its object, so
that a crash loses none. Where the API server does not take one at once, it waits in a queue.

Each namespace has a queue of its own, and namespaces take turns, so that a quota which refuses the
Events of one delays no other's.

An Event's name is made of the object's name and a hash of the object and the text. So a repeat
meets its own name (409) and is the same Event, until the API server forgets it after an hour.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Self

from mofa_model.kinds import Kind
from mofa_operator.api import Api
from mofa_operator.api_errors import ApiError, Busy, Conflict, Refused, Taken
from mofa_operator.decision import Note
from mofa_operator.keys import Key
from mofa_operator.objects import WrittenPart
from mofa_operator.words import MANAGER

EVENT: Final = Kind("", "v1", "Event", "events")
"""Events of the core group, which `kubectl describe` shows."""
_MESSAGE: Final = 1024
"""Longest message of an Event. [B]"""
_PATIENCE: Final = 300.0
"""How long an Event is tried while the API server is busy or away. [s]"""
_LONGEST: Final = 15.0
"""Longest wait between two tries. [s]"""
_MOMENT: Final = 1.0
"""Wait after a refusal. [s]"""
_TRIES: Final = 3
"""How often an Event is tried that the API server refuses. [1]"""
_AT_ONCE: Final = 2.0
"""How long the next write may wait for an Event. [s]"""
_EACH: Final = 1000
"""Most Events of one namespace that may wait. [1]"""
_ENDING: Final = "being terminated"
"""How the API server says that a namespace takes nothing new."""


class EventPoster:
    """A queue of Events and the task that empties it; use it as `async with`."""

    def __init__(
        self, api: Api, *, most: int = 10_000, pause: float = 0.02, grace: float = 2.0
    ) -> None:
        """At most `most` Events wait [1]; a `pause` after each, `grace` for all at the end. [s]"""
        self._api = api
        self._most = most
        self._pause = pause
        self._grace = grace
        self._waiting: dict[str, deque[_Posting]] = {}
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._task: asyncio.Task[None] | None = None
        self.count: Callable[[int], None] = lambda _: None
        """Called with the number of Events that found no room, or that the API server would not
        take.
        """

    async def __aenter__(self) -> Self:
        """Begin to post."""
        self._task = asyncio.create_task(self._run(), name="events")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Post what waits, as long as the grace lasts."""
        if self._task is None:
            return
        self._pause = 0.0
        try:
            async with asyncio.timeout(self._grace):
                await self._emptied.wait()
        except TimeoutError:
            self.count(len(self))
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    def __len__(self) -> int:
        """Events that wait. [1]"""
        return sum(map(len, self._waiting.values()))

    def post(self, key: Key, uid: str, note: Note | None, digest: str = "") -> None:
        """Queue an Event; `digest` is its inputs hash, and without one its message counts."""
        if note is None:
            return
        body = event(key, uid, note, digest, datetime.now(UTC))
        queue = self._waiting.get(body["metadata"]["namespace"], ())
        if len(self) >= self._most or len(queue) >= _EACH:
            self.count(1)
            return
        posting = _Posting(body, asyncio.get_running_loop().time() + _PATIENCE)
        self._waiting.setdefault(posting.namespace, deque()).append(posting)
        self._emptied.clear()
        self._filled.set()

    async def post_at_once(self, key: Key, uid: str, note: Note, digest: str = "") -> None:
        """Post an Event before the next write, or queue it where that takes long."""
        body = event(key, uid, note, digest, datetime.now(UTC))
        namespace = body["metadata"]["namespace"]
        if namespace not in self._waiting:
            try:
                async with asyncio.timeout(_AT_ONCE):
                    await self._api.create(EVENT, namespace, body)
            except Taken:
                pass  # a repeat of an Event that stands
            except (ApiError, TimeoutError):
                self.post(key, uid, note, digest)
        else:
            self.post(key, uid, note, digest)

    async def _run(self) -> None:
        """Post what waits, for ever: in each namespace the oldest Event first, once it is due."""
        loop = asyncio.get_running_loop()
        while True:
            await self._filled.wait()
            while self._waiting:
                due = min(queue[0].due for queue in self._waiting.values())
                if due > loop.time():
                    self._filled.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(due - loop.time()):
                            await self._filled.wait()  # another namespace may have one meanwhile
                for namespace in list(self._waiting):
                    queue = self._waiting[namespace]
                    if queue[0].due <= loop.time() and await self._try_to_post(queue[0]):
                        queue.popleft()
                        await asyncio.sleep(self._pause)
                    if not queue:
                        del self._waiting[namespace]
            self._filled.clear()
            self._emptied.set()

    async def _try_to_post(self, posting: _Posting) -> bool:
        """Try once to post an Event: True once it is posted or dropped, False to try again later.

        A refusal is tried again too: an API server that starts refuses everything for a moment.
        """
        try:
            async with asyncio.timeout(_LONGEST):
                await self._api.create(EVENT, posting.namespace, posting.body)
        except Taken:
            pass  # a repeat of an Event that stands
        except (Busy, Conflict, Refused, TimeoutError) as error:
            # A quota that another request has just used is a `Conflict`.
            moment = asyncio.get_running_loop().time()
            posting.refusals += isinstance(error, Refused)
            if moment > posting.deadline or posting.refusals == _TRIES or _ENDING in str(error):
                self.count(1)
                return True
            wait = None if isinstance(error, TimeoutError) else _MOMENT
            wait = error.retry_after if isinstance(error, Busy) else wait
            posting.due = moment + (wait or min(2.0**posting.tries, _LONGEST))
            posting.tries += 1
            return False
        except ApiError:
            self.count(1)
        return True


@dataclass(slots=True)
class _Posting:
    """An Event that waits."""

    body: WrittenPart
    deadline: float
    """Moment after which it is given up. [s]"""
    due: float = 0.0
    """Moment from which on it is tried again. [s]"""
    tries: int = 0
    refusals: int = 0

    @property
    def namespace(self) -> str:
        namespace: str = self.body["metadata"]["namespace"]
        return namespace


def event(key: Key, uid: str, note: Note, digest: str, now: datetime) -> WrittenPart:
    """The Event of a note on an object; of a cluster-scoped one in `default`, where kubectl looks.

    >>> from mofa_operator.keys import CLUSTER_PROFILE
    >>> note = Note(reason="Recommended", message="m")
    >>> body = event(Key(CLUSTER_PROFILE, "", "east"), "1", note, "", datetime.now(UTC))
    >>> body["metadata"]
    {'name': 'east.22ac8a950141b536', 'namespace': 'default'}
    """
    content = "\0".join((uid, note.reason, digest or note.message))
    name = f"{key.name[:200].rstrip('.-')}.{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    moment = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    involved = {
        "apiVersion": key.kind.api_version,
        "kind": key.kind.kind,
        "name": key.name,
        "uid": uid,
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": key.namespace or "default"},
        "involvedObject": involved | ({"namespace": key.namespace} if key.namespace else {}),
        "reason": note.reason,
        "message": note.message.encode()[:_MESSAGE].decode(errors="ignore"),
        "type": "Warning" if note.warning else "Normal",
        "source": {"component": MANAGER},
        "reportingComponent": MANAGER,
        "reportingInstance": MANAGER,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
