"""Events that are owed: their write may have been done, but its answer was lost on the way.

The next look then finds the object as it should be, has nothing to write, and so nothing to tell. What was to be told is
told after that look, where the object stands as the lost write would have it; a write that was not done is done again, and
tells by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mofa_operator.act.events import EventPoster
from mofa_operator.act.perform import tell
from mofa_operator.decision import Decision
from mofa_operator.keys import Key
from mofa_operator.objects import LiveObject

Standing: TypeAlias = Callable[[Key], LiveObject | None]
"""An object as it was last seen."""


class Owed:
    """Decisions whose Events are owed, by object; a process that dies forgets them."""

    def __init__(self, events: EventPoster) -> None:
        """`events` is where they are paid."""
        self._events = events
        self._decisions: dict[Key, Decision] = {}

    def remember(self, decision: Decision) -> None:
        """Nobody knows whether this was done."""
        if decision.notes or decision.release is not None:
            self._decisions[decision.key] = decision

    def settle(self, decision: Decision, standing: Standing) -> None:
        """Pay, where the new decision finds nothing to do and what stands is what was to be."""
        owed = self._decisions.pop(decision.key, None)
        if owed is not None and owed.uid == decision.uid and decision.is_silent and _stands(owed, standing):
            tell(owed, self._events)
            if owed.release is not None:
                self._events.post(owed.release.key, owed.release.uid, owed.release.note)

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._decisions.pop(key, None)


def _stands(owed: Decision, standing: Standing) -> bool:
    """Whether all that a decision wrote stands; a gate is gone where nobody wants to release it any more."""
    found = standing(owed.key)
    if owed.status is not None and (found is None or found.standing != owed.status):
        return False
    stand = ((each, standing(each.key)) for each in owed.annotate)
    return all(each.hold.items() <= ({} if one is None else one.annotations).items() for each, one in stand)
