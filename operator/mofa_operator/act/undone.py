"""What we wrote and somebody undid: it is put back at once; where it is undone again and again, after waits that double.

Two that overwrite each other for ever cost a write in `longest` each, and no storm. What stood for longer than two such waits
was no fight. A write that says anything new never waits; a process that dies forgets.
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
from mofa_operator.decision import Decision
from mofa_operator.keys import Key

_MOMENTS: Final = re.compile(
    rb'"(?:lastTransitionTime|computedTime|historyTime|time|%s)":(?:"(?:[^"\\]|\\.)*"|null)'
    % re.escape(PREFIX + "computed-at").encode()
)
"""What is another each time that the same is written, as JSON."""
_DOUBLINGS: Final = 30

_Marks: TypeAlias = dict[str, bytes]


@dataclass(slots=True)
class _Put:
    """What was written last of an object."""

    marks: _Marks
    at: float
    """When. [s]"""
    again: int = 0
    """How often it was the same as before. [1]"""


class Undone:
    """What was written last, by object."""

    def __init__(self, first: float, longest: float) -> None:
        """The first wait, and the longest. [s]"""
        self._first = first
        self._longest = longest
        self._put: dict[Key, _Put] = {}

    def wait(self, decision: Decision, now: float) -> float:
        """How long a decision has to wait, because it says what was written before, and undone; `now` in seconds. [s]"""
        put = self._put.get(decision.key)
        if put is None or decision.release is not None or not self._repeats(put, decision):
            return 0.0
        return max(0.0, put.at + self._pause(put) - now)

    def wrote(self, decision: Decision, now: float) -> None:
        """It was written."""
        marks, put = _marks(decision), self._put.get(decision.key)
        if not marks:
            return
        if put is None:
            self._put[decision.key] = _Put(marks, now)
            return
        stood = now - put.at > 2 * self._longest
        put.again = put.again + 1 if self._repeats(put, decision) and not stood else 0
        put.marks |= marks
        put.at = now

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._put.pop(key, None)

    def _pause(self, put: _Put) -> float:
        """How long what was written must have stood before it is written again. [s]"""
        if not put.again:
            return 0.0
        return min(self._longest, math.ldexp(self._first, min(put.again - 1, _DOUBLINGS)))

    def _repeats(self, put: _Put, decision: Decision) -> bool:
        """Whether nothing is to be written but what was written last."""
        marks = _marks(decision)
        return bool(marks) and marks.items() <= put.marks.items()


def _marks(decision: Decision) -> _Marks:
    """What a decision writes, part by part, without its moments."""
    marks = {f"{one.key} {one.uid}": _mark(one.hold) for one in decision.annotate}
    if decision.ledger is not None:
        marks[f"ledger {decision.uid}"] = _mark(decision.ledger)
    if decision.status is not None:
        marks[f"status {decision.uid}"] = _mark(decision.status)
    return marks


def _mark(value: Mapping[str, Any]) -> bytes:
    """Equal for equal values, and for no others."""
    text = orjson.dumps(dict(value), option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.blake2b(_MOMENTS.sub(b"", text), digest_size=16).digest()
