"""Watches of all kinds, each by itself: one that fails, is forbidden or has no kind to watch ends no other.

A kind that the cluster does not have, or that we may not see, is tried again every few seconds, for good: its definition
may come late, and come again. That costs a request, and needs no right to watch definitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, Never

from mofa_model.kinds import Kind
from mofa_operator.api import Api
from mofa_operator.control.intake import Intake
from mofa_operator.control.watch import Life, Watch, known
from mofa_operator.keys import FAILURE_LEDGER, JOBS, NEEDED
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.observe.cluster.store import Store
from mofa_operator.refusals import ApiError, Expired, Gone, Refused

REST: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Waits before a watch that was cut is begun again; the last one holds. [s]"""
LATE: Final = 3.0
"""When a kind that the cluster does not have, or that we may not see, is tried again. [s]"""
_STEADY: Final = 30.0
"""After standing so long, the next end counts as the first. [s]"""

_log = logging.getLogger(__name__)


class State(Enum):
    """How a watch stands."""

    BEGINS = "begins"
    UP = "stands"
    CUT = "was cut"
    ABSENT = "has nothing to watch"
    REFUSED = "is forbidden"


class Watches:
    """A life for each kind and place, begun again whenever it ends."""

    def __init__(
        self, lives: Sequence[Life], *, store: Store, intake: Intake, exporter: Exporter
    ) -> None:
        """None stands yet."""
        self._lives = lives
        self._store = store
        self._intake = intake
        self._exporter = exporter
        self._states = dict.fromkeys(lives, State.BEGINS)
        self._ended: set[Life] = set()
        self._faults: set[tuple[Life, str]] = set()
        for life in lives:
            exporter.watch(life.kind, up=False)

    @classmethod
    def of(
        cls,
        kinds: Iterable[Kind],
        namespaces: Sequence[str],
        *,
        api: Api,
        store: Store,
        intake: Intake,
        exporter: Exporter,
        kopf: Callable[[Kind, str | None], Life],
    ) -> Watches:
        """Of kinds in namespaces, none for all: kopf's for what people set up and for nodes, one of ours for jobs and ledgers."""
        places = {True: namespaces or (None,), False: (None,)}
        lives = [
            Watch(kind, place, api=api, store=store, intake=intake)
            if kind in (*JOBS, FAILURE_LEDGER)
            else kopf(kind, place)
            for kind in kinds
            for place in places[kind.namespaced]
        ]
        return cls(lives, store=store, intake=intake, exporter=exporter)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for life in self._lives:
                group.create_task(self._keep(life))

    async def _keep(self, life: Life) -> Never:
        loop, attempt, absent = asyncio.get_running_loop(), -1, 0
        while True:
            since = loop.time()
            try:
                await life.live(lambda: self._tell(life))
            except Expired:
                state, why = State.CUT, "its version is too old"
            except Gone:
                absent = absent + 1 if self._states[life] is State.ABSENT else 0
                if absent == 1:  # not only while a server starts
                    self._forget(life)
                state, why = State.ABSENT, "the cluster does not have them"
            except Refused as error:
                state, why = State.REFUSED, str(error)
            except Exception as error:  # noqa: BLE001 - whatever it was, the watch must go on
                state = State.CUT
                why = str(error) if isinstance(error, ApiError) else self._blamed(life, error)
            if state is State.CUT:
                attempt = 0 if loop.time() - since > _STEADY else attempt + 1
                wait = REST[min(attempt, len(REST) - 1)]
            else:
                attempt, wait = -1, LATE
            self._log(life, state, f"{why}; again in {wait:g} s")
            self._set(life, state)
            await asyncio.sleep(wait)

    def _blamed(self, life: Life, error: Exception) -> str:
        """What no API server says is a fault of ours; it is told once for each kind, however the watch was before."""
        why = f"{type(error).__name__}: {error}"
        if (life, why) not in self._faults:
            self._faults.add((life, why))
            _log.warning("%s: the watch fails by a fault of this program: %s", _named(life), why)
        return why

    def _tell(self, life: Life) -> None:
        if life in self._ended:
            self._ended.discard(life)
            _log.info("%s: watched now", _named(life))
        self._set(life, State.UP)

    def _log(self, life: Life, state: State, why: str) -> None:
        """An end, said once; that a kind is not there at the start, the first lists have said."""
        before = self._states[life]
        silent = {
            State.CUT: {State.BEGINS, State.CUT, State.ABSENT, State.REFUSED},
            State.ABSENT: {State.BEGINS},
        }
        is_news = before is not state and before not in silent.get(state, ())
        if is_news or state is State.ABSENT:
            self._ended.add(life)
        level = logging.WARNING if is_news else logging.DEBUG
        _log.log(level, "%s: the watch %s: %s", _named(life), state.value, why)

    def _set(self, life: Life, state: State) -> None:
        self._states[life] = state
        every = {found for one, found in self._states.items() if one.kind == life.kind}
        absent = every == {State.ABSENT} and life.kind not in NEEDED
        self._exporter.watch(life.kind, up=None if absent else every == {State.UP})

    def _forget(self, life: Life) -> None:
        """The kind is no more, and its objects with it."""
        for key in list(known(self._store, life.kind, life.place)):
            self._intake.gone(key)


def _named(life: Life) -> str:
    return life.kind.resource + (f" in {life.place}" if life.place else "")
