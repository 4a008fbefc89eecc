"""What is remembered between two decisions on an object: writes that somebody undoes, and writes
whose answer was lost.

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
"""Fields that differ each time that the same is written, in JSON."""
_DOUBLINGS: Final = 30

_Marks: TypeAlias = dict[str, bytes]
"""A digest of each part of a write."""


@dataclass(slots=True)
class _LastWrite:
    """The last write of an object."""

    marks: _Marks
    written_at: float
    """When it was written. [s]"""
    repeats: int = 0
    """How often in a row it repeated the write before it. [1]"""


class RewriteBackoff:
    """Waits before a write that somebody undid is repeated: none at first, then waits that double.

    Two programs that overwrite each other for ever then cost one write in `longest` each. A write
    that stood for two such waits was not undone. A write that says anything new never waits.
    """

    def __init__(self, first: float, longest: float) -> None:
        """The first wait, and the longest. [s]"""
        self._first = first
        self._longest = longest
        self._last: dict[Key, _LastWrite] = {}

    def wait(self, decision: Decision, now: float) -> float:
        """How long a decision that repeats an undone write has to wait. [s]"""
        last = self._last.get(decision.key)
        if last is None or decision.release is not None or not _repeats(last, _marks(decision)):
            return 0.0
        if not last.repeats:
            return 0.0
        pause = math.ldexp(self._first, min(last.repeats - 1, _DOUBLINGS))
        return max(0.0, last.written_at + min(self._longest, pause) - now)

    def wrote(self, decision: Decision, now: float) -> None:
        """Note that a decision was written, and whether it repeats the last one."""
        marks, last = _marks(decision), self._last.get(decision.key)
        if not marks:
            return
        if last is None:
            self._last[decision.key] = _LastWrite(marks, now)
            return
        has_stood = now - last.written_at > 2 * self._longest
        last.repeats = last.repeats + 1 if _repeats(last, marks) and not has_stood else 0
        last.marks |= marks
        last.written_at = now

    def forget(self, key: Key) -> None:
        """Forget an object that is gone."""
        self._last.pop(key, None)


def _repeats(last: _LastWrite, marks: _Marks) -> bool:
    """Whether only what was written last is to be written."""
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
    """Releases of jobs of which it is unknown whether they were written: their answer was lost.

    Where the next decision finds the gate open, it has nothing to write and posts no Event, so the
    Event of the release is posted here. A release that was not written is written again, with its
    Event. Other Events come before the write that settles their object, so none is lost.
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
        """Forget an object that is gone."""
        self._decisions.pop(key, None)
