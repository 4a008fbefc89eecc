"""What is remembered between two looks at an object, for writes that somebody undoes, and for
writes whose answer was lost.

A process that dies forgets both.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import orjson

from mofa_model.annotations import PREFIX
from mofa_operator.act.events import EventPoster
from mofa_operator.decision import Decision
from mofa_operator.keys import Key

_MOMENTS: Final = re.compile(
    rb'"(?:lastTransitionTime|computedTime|historyTime|time|%s)":(?:"(?:[^"\\]|\\.)*"|null)'
    % re.escape(PREFIX + "computed-at").encode()
)
"""What differs each time that the same is written, as JSON."""
_DOUBLINGS: Final = 30

_Marks: TypeAlias = dict[str, bytes]
"""A digest of each part of a write."""


@dataclass(slots=True)
class _LastWrite:
    """What was written last of an object."""

    marks: _Marks
    at: float
    """When. [s]"""
    repeats: int = 0
    """How often it was the same as before. [1]"""


class RewriteBackoff:
    """Waits before what somebody undid is written again: none the first time, then waits that
    double.

    Two that overwrite each other for ever cost a write in `longest` each, and no storm. What stood
    for longer than two such waits was no fight. A write that says anything new never waits.
    """

    def __init__(self, first: float, longest: float) -> None:
        """The first wait, and the longest. [s]"""
        self._first = first
        self._longest = longest
        self._last: dict[Key, _LastWrite] = {}

    def wait(self, decision: Decision, now: float) -> float:
        """How long a decision waits that repeats a write which was undone; `now` in seconds. [s]"""
        last = self._last.get(decision.key)
        if last is None or decision.release is not None or not _repeats(last, _marks(decision)):
            return 0.0
        if not last.repeats:
            return 0.0
        pause = math.ldexp(self._first, min(last.repeats - 1, _DOUBLINGS))
        return max(0.0, last.at + min(self._longest, pause) - now)

    def wrote(self, decision: Decision, now: float) -> None:
        """Note that a decision was written, and whether it repeats the last one."""
        marks, last = _marks(decision), self._last.get(decision.key)
        if not marks:
            return
        if last is None:
            self._last[decision.key] = _LastWrite(marks, now)
            return
        stood = now - last.at > 2 * self._longest
        last.repeats = last.repeats + 1 if _repeats(last, marks) and not stood else 0
        last.marks |= marks
        last.at = now

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._last.pop(key, None)


def _repeats(last: _LastWrite, marks: _Marks) -> bool:
    """Whether nothing is to be written but what was written last."""
    return bool(marks) and marks.items() <= last.marks.items()


def _marks(decision: Decision) -> _Marks:
    marks = {f"{write.key} {write.uid}": _mark(write.hold or {}) for write in decision.annotate}
    if decision.ledger is not None:
        marks[f"ledger {decision.uid}"] = _mark(decision.ledger)
    if decision.status is not None:
        marks[f"status {decision.uid}"] = _mark(decision.status)
    return marks


def _mark(value: Mapping[str, Any]) -> bytes:
    """A checksum of what is written, in which moments do not count."""
    text = orjson.dumps(dict(value), option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.blake2b(_MOMENTS.sub(b"", text), digest_size=16).digest()


class UnconfirmedReleases:
    """Releases of jobs whose write may have been done, though its answer was lost on the way.

    The next look then finds the gate open, has nothing to write, and so nothing to tell. Its Event
    is posted after that look; a write that was not done is done again, and tells by itself. Other
    Events come before the write that settles their object.
    """

    def __init__(self, events: EventPoster) -> None:
        """`events` posts them."""
        self._events = events
        self._decisions: dict[Key, Decision] = {}

    def remember(self, decision: Decision) -> None:
        """Keep a release of which it is unknown whether it was done."""
        if decision.release is not None:
            self._decisions[decision.key] = decision

    def settle(self, decision: Decision) -> None:
        """Post the Event, where the new decision finds nothing to do any more."""
        before = self._decisions.pop(decision.key, None)
        if before is None or before.release is None:
            return
        if before.uid == decision.uid and decision.is_silent:
            self._events.post(before.release.key, before.release.uid, before.release.note)

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._decisions.pop(key, None)
