"""What was measured of objects, beside what the API server says of them: histories of pools, running jobs, what they taught."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from mofa_operator.evidence import Day, JobEvidence
from mofa_operator.keys import Key
from mofa_operator.snapshot import Alive, History, NoHistory, Running

_SAME: Final = 0.01
"""Change of the logarithm of a step time up to which a job says the same of its profile. [1]"""


class Measured:
    """The last measurement of each; every `set` says whether it brings anything new."""

    def __init__(self) -> None:
        """Nothing was measured yet."""
        self._histories: dict[str, History | NoHistory] = {}
        self._watched: dict[str, tuple[Day, ...]] = {}
        self._running: dict[Key, tuple[Running | None, Alive | None]] = {}
        self._unseen: dict[Key, str] = {}
        self._taught: dict[Key, tuple[str, JobEvidence]] = {}

    def of_profile(self, profile: str) -> dict[str, Any]:
        """What was measured of a pool, as fields of its snapshot."""
        return {
            "history": self._histories.get(profile),
            "watched": self._watched.get(profile, ()),
            "taught": tuple(said for name, said in self._taught.values() if name == profile),
        }

    def sighted(self, key: Key) -> dict[str, Any]:
        """What the last look at a job brought, as fields of its snapshot; where nobody looked, why."""
        if key not in self._running:
            return {"unseen": self._unseen.get(key, "")}
        running, alive = self._running[key]
        return {"running": running, "alive": alive, "looked": True}

    def set_history(self, profile: str, history: History | NoHistory) -> bool:
        """Take in what Prometheus said; when it was asked is no news."""
        before = self._histories.get(profile)
        self._histories[profile] = history
        if isinstance(before, History) and isinstance(history, History):
            before = replace(before, at=history.at)
        return before != history

    def set_watched(self, profile: str, days: tuple[Day, ...]) -> bool:
        """Take in what the watch saw of a pool."""
        before = self._watched.get(profile, ())
        self._watched[profile] = days
        return before != days

    def set_running(
        self, key: Key, running: Running | None, alive: Alive | None, unseen: str | None = None
    ) -> bool:
        """Take in what a job was seen to do; that time passes is news of one that is there, and may be due a step.

        `unseen` says that nobody knows it any more, and why, where that is the job's own doing; empty where it is not.
        """
        before = self._running.get(key), self._unseen.get(key, "")
        self._running.pop(key, None)
        self._unseen.pop(key, None)
        if unseen is None:
            self._running[key] = running, alive
        elif unseen:
            self._unseen[key] = unseen
        return before != (self._running.get(key), self._unseen.get(key, ""))

    def set_taught(self, key: Key, profile: str, evidence: JobEvidence | None) -> bool:
        """Take in what a running job says of its profile, None where it says nothing; an end is no news."""
        _, before = self._taught.pop(key, (profile, None))
        if evidence is None:
            return False
        self._taught[key] = profile, evidence
        if before is None or (before.log_memory is None) != (evidence.log_memory is None):
            return True
        by = (
            evidence.log_ratio - before.log_ratio,
            (evidence.log_memory or 0.0) - (before.log_memory or 0.0),
        )
        return max(map(abs, by)) > _SAME

    def forget(self, key: Key) -> None:
        """A job is no more."""
        self._running.pop(key, None)
        self._unseen.pop(key, None)
        self._taught.pop(key, None)

    def forget_profile(self, profile: str) -> None:
        """A profile is no more."""
        self._histories.pop(profile, None)
        self._watched.pop(profile, None)
