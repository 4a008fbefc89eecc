"""Watches of all kinds, each restarted alone: one that fails or is forbidden stops no other.

Kopf watches our own kinds (`handlers`); `Watch` watches nodes and the kinds of other projects,
because kopf stops for good where a kind is absent or forbidden, and reads one event in a turn of
the event loop.

A kind that the cluster does not have, or that we may not see, is tried again every few seconds for
ever, since its definition may come later. Each try costs one request, and no right to watch
definitions is needed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import Final, Never, TypeAlias

from mofa_model.kinds import Kind
from mofa_operator.api import BOOKMARK, Api
from mofa_operator.api_errors import ApiError, Busy, Expired, Gone, Refused
from mofa_operator.control.enqueuer import Enqueuer
from mofa_operator.control.handlers import KopfWatch
from mofa_operator.keys import NEEDED, Key, key_of
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.observe.cluster.store import Store

WAITS: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Waits before a watch that was cut is begun again; the last one repeats. [s]"""
LATE: Final = 3.0
"""When a kind that the cluster does not have, or that we may not see, is tried again. [s]"""
_STEADY: Final = 30.0
"""After a watch has stood so long, its next end counts as the first. [s]"""
_BRIEF: Final = 1.0
"""A watch that the server ends sooner counts as failed. [s]"""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Watch:
    """A list of one kind in one namespace, then every change from its version on.

    After a cut, the next connection goes on from the version that was read last. `namespace` is
    None for all.
    """

    kind: Kind
    namespace: str | None
    _: KW_ONLY
    api: Api
    store: Store
    enqueuer: Enqueuer

    def __post_init__(self) -> None:
        self._version = ""

    async def run(self, on_up: Callable[[], None]) -> Never:
        """List where no version is known, then follow; calls `on_up` when the watch stands.

        `Gone` (no such kind, or `Expired`) forgets the version.
        """
        try:
            if not self._version:
                self._version = await self._list()
            while True:
                await self._follow(on_up)
        except Gone:
            self._version = ""
            raise

    async def _list(self) -> str:
        """Store every listed object, forget all others; the result is the list's version."""
        unlisted, version = set(_stored(self.store, self)), ""
        async for items, version in self.api.pages(self.kind, self.namespace):  # noqa: B007
            for body in items:
                self.enqueuer.put(self.kind, body, urgent=False)
                unlisted.discard(key_of(self.kind, body))
        for key in unlisted:
            self.enqueuer.drop(key)
        return version

    async def _follow(self, on_up: Callable[[], None]) -> None:
        """Handle one connection's events until the server ends it, as it does every few minutes."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with self.api.watch(self.kind, self.namespace, self._version) as events:
            on_up()
            async for event, body in events:
                if event == "DELETED":
                    self.enqueuer.drop(key_of(self.kind, body), body["metadata"].get("uid"))
                elif event != BOOKMARK:
                    kind = {"apiVersion": self.kind.api_version, "kind": self.kind.kind}
                    self.enqueuer.put(self.kind, {**kind, **body})
                self._version = body["metadata"].get("resourceVersion") or self._version
        if loop.time() - started < _BRIEF:
            raise Busy("the API server ends the watch at once")


AnyWatch: TypeAlias = Watch | KopfWatch
"""Watches one kind in one namespace until it cannot."""


class State(Enum):
    """State of a watch; the values are words of the log."""

    BEGINS = "begins"
    UP = "stands"
    CUT = "was cut"
    ABSENT = "has nothing to watch"
    REFUSED = "is forbidden"


class Watches:
    """Restarts each watch whenever it ends."""

    def __init__(
        self, watches: Sequence[AnyWatch], *, store: Store, enqueuer: Enqueuer, exporter: Exporter
    ) -> None:
        """Hold the watches, none of which is open yet."""
        self._store = store
        self._enqueuer = enqueuer
        self._exporter = exporter
        self._states = dict.fromkeys(watches, State.BEGINS)
        self._logged: set[AnyWatch] = set()  # watches whose end was logged
        self._faults: set[tuple[AnyWatch, str]] = set()
        for watch in watches:
            exporter.watch(watch.kind, up=False)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for watch in self._states:
                group.create_task(self._keep(watch))

    async def _keep(self, watch: AnyWatch) -> Never:
        """Keep one watch open for ever: after each end it is opened anew, later after failures."""
        loop, cuts, absences = asyncio.get_running_loop(), -1, 0
        while True:
            started = loop.time()
            try:
                await watch.run(lambda: self._stands(watch))
            except Expired:
                state, why = State.CUT, "its version is too old"
            except Gone:
                absences = absences + 1 if self._states[watch] is State.ABSENT else 0
                if absences == 1:  # the first time may be a server that is only starting
                    for key in list(_stored(self._store, watch)):
                        self._enqueuer.drop(key)
                state, why = State.ABSENT, "the cluster does not have them"
            except Refused as error:
                state, why = State.REFUSED, str(error)
            except Exception as error:  # noqa: BLE001 - whatever it was, the watch must go on
                state = State.CUT
                why = str(error) if isinstance(error, ApiError) else self._fault(watch, error)
            if state is State.CUT:
                cuts = 0 if loop.time() - started > _STEADY else cuts + 1
                wait = WAITS[min(cuts, len(WAITS) - 1)]
            else:
                cuts, wait = -1, LATE
            self._log_end(watch, state, f"{why}; again in {wait:g} s")
            self._set(watch, state)
            await asyncio.sleep(wait)

    def _fault(self, watch: AnyWatch, error: Exception) -> str:
        """Warn of an error that is not the API server's, once for each watch."""
        why = f"{type(error).__name__}: {error}"
        if (watch, why) not in self._faults:
            self._faults.add((watch, why))
            _log.warning(
                "%s: the watch failed by a fault of this program, which please report: %s",
                _name(watch),
                why,
            )
        return why

    def _stands(self, watch: AnyWatch) -> None:
        if watch in self._logged:
            self._logged.discard(watch)
            _log.info("%s: watched now", _name(watch))
        self._set(watch, State.UP)

    def _log_end(self, watch: AnyWatch, state: State, why: str) -> None:
        """Warn of an end once; the first lists have warned of kinds that are absent."""
        before = self._states[watch]
        silent = {
            State.CUT: {State.BEGINS, State.CUT, State.ABSENT, State.REFUSED},
            State.ABSENT: {State.BEGINS},
        }
        is_new = before is not state and before not in silent.get(state, ())
        if is_new or state is State.ABSENT:
            self._logged.add(watch)
        level = logging.WARNING if is_new else logging.DEBUG
        _log.log(level, "%s: the watch %s: %s", _name(watch), state.value, why)

    def _set(self, watch: AnyWatch, state: State) -> None:
        self._states[watch] = state
        states = {state for other, state in self._states.items() if other.kind == watch.kind}
        absent = states == {State.ABSENT} and watch.kind not in NEEDED
        self._exporter.watch(watch.kind, up=None if absent else states == {State.UP})


def _stored(store: Store, watch: AnyWatch) -> list[Key]:
    """Stored objects of the kind and namespace of a watch."""
    return [key for key in store.keys(watch.kind) if watch.namespace in {None, key.namespace}]


def _name(watch: AnyWatch) -> str:
    return watch.kind.resource + (f" in {watch.namespace}" if watch.namespace else "")
