"""What was let go, and nobody knows it: the write may have been done, but its answer was lost on the way.

The next look then finds the gate open, has nothing to write, and so nothing to tell. What was to be told is told after that
look; a write that was not done is done again, and tells by itself. Other Events come before the write that settles their object.
"""

from __future__ import annotations

from mofa_operator.act.events import EventPoster
from mofa_operator.decision import Decision
from mofa_operator.keys import Key


class Owed:
    """Decisions whose release is not told, by object; a process that dies forgets them."""

    def __init__(self, events: EventPoster) -> None:
        """`events` is where they are paid."""
        self._events = events
        self._decisions: dict[Key, Decision] = {}

    def remember(self, decision: Decision) -> None:
        """Nobody knows whether this was done."""
        if decision.release is not None:
            self._decisions[decision.key] = decision

    def settle(self, decision: Decision) -> None:
        """Pay, where the new decision finds nothing to do any more: nobody wants to release what was released."""
        owed = self._decisions.pop(decision.key, None)
        release = None if owed is None else owed.release
        if (
            release is not None
            and owed is not None
            and owed.uid == decision.uid
            and decision.is_silent
        ):
            self._events.post(release.key, release.uid, release.note)

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._decisions.pop(key, None)
