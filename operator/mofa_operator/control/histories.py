"""What history says of one profile, put into the store; the profile is queued where that is news."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from mofa_operator.control.intake import Intake
from mofa_operator.control.rounds import Rounds
from mofa_operator.keys import Key
from mofa_operator.metrics.declared import Loop
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.objects import LiveObject
from mofa_operator.observe.cluster.store import Store
from mofa_operator.observe.history.history import KnownDays, history
from mofa_operator.observe.history.node_names import RecentNodes
from mofa_operator.observe.prometheus.client import Prometheus
from mofa_operator.settings import PrometheusSettings
from mofa_operator.snapshot import History, NoHistory
from mofa_operator.words import Reason

Asked: TypeAlias = Callable[[LiveObject, float], Awaitable[History | NoHistory]]
"""The history of a profile up to a moment."""

_log = logging.getLogger(__name__)


class Histories:
    """Looks at the history of profiles; `look` is what `Rounds` calls."""

    def __init__(
        self, *, store: Store, intake: Intake, exporter: Exporter, ask: Asked, flavour: str
    ) -> None:
        """`ask` is what Prometheus is asked with, `flavour` what it is, for the counters."""
        self._store = store
        self._intake = intake
        self._exporter = exporter
        self._ask = ask
        self._flavour = flavour
        self._said: dict[Key, str] = {}

    async def look(self, key: Key) -> bool:
        """Ask once; whether the profile is still there."""
        profile = self._store.live(key)
        if profile is None:
            self._said.pop(key, None)
            return False
        found = await self._asked(profile)
        self._intake.concern(self._store.set_history(key.name, found))
        outcome = found.reason if isinstance(found, NoHistory) else "Answered"
        self._exporter.count_history(self._flavour, outcome)
        if isinstance(found, History):
            self._exporter.success(Loop.HISTORY)
            self._said.pop(key, None)
        elif self._said.get(key) != found.message:
            self._said[key] = found.message
            _log.warning("%s: %s: %s", key, found.reason, found.message)
        return True

    async def _asked(self, profile: LiveObject) -> History | NoHistory:
        try:
            return await self._ask(profile, time.time())
        except Exception as error:  # noqa: BLE001 - what Prometheus says must not end the loop
            _log.exception("the history could not be read")
            return NoHistory(
                reason=Reason.HISTORY_UNAVAILABLE, message=f"{type(error).__name__}: {error}"
            )


def rounds(
    prometheus: Prometheus,
    store: Store,
    intake: Intake,
    exporter: Exporter,
    settings: PrometheusSettings,
) -> Rounds:
    """Looks at the history of every profile, again and again."""
    known, lately = KnownDays(), RecentNodes(store)

    async def ask(profile: LiveObject, now: float) -> History | NoHistory:
        return await history(
            prometheus, profile.body, now, known, lately.known(profile.key.name, now)
        )

    histories = Histories(
        store=store, intake=intake, exporter=exporter, ask=ask, flavour=settings.flavour
    )
    return Rounds(histories.look, settings.interval)
