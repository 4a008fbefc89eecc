"""Conditions of our objects: all of them from the first visit on, their times kept while they do not change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from mofa_model.kinds.shape import at, items, text_of
from mofa_operator.decide.reading import moment, seconds, sentence
from mofa_operator.snapshot import Body
from mofa_operator.words import Aspect, Reason

State = Literal["True", "False", "Unknown"]
_NONE: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Found:
    """What was found out about one aspect."""

    aspect: Aspect
    """Which one."""
    state: State
    """Whether it holds."""
    reason: Reason | str
    """Why, in one word."""
    message: str = ""
    """Why, in one sentence."""


def conditions(
    standing: Any, found: Iterable[Found], generation: int | None, now: float
) -> list[dict[str, Any]]:
    """Conditions to write; `now` is the moment in seconds of the epoch. [s]

    >>> first = conditions([], [Found(Aspect.READY, "True", Reason.RECOMMENDED)], 1, 0.0)
    >>> first[0]["lastTransitionTime"], conditions(first, [Found(Aspect.READY, "True", Reason.LOW_CONFIDENCE)], 1, 60.0)[0]["lastTransitionTime"]
    ('1970-01-01T00:00:00Z', '1970-01-01T00:00:00Z')
    """
    stand = {text_of(one.get("type")): one for one in items(standing)}
    return [_condition(stand.get(one.aspect.value, _NONE), one, generation, now) for one in found]


def standing(body: Body, aspect: Aspect) -> Found | None:
    """The same as what was once found out; None where nothing was, or nothing that could be written again."""
    stand = items(at(body, "status", "conditions"))
    given = next((one for one in stand if one.get("type") == aspect.value), _NONE)
    state, reason = given.get("status"), text_of(given.get("reason"))
    if state not in ("True", "False", "Unknown") or not (
        reason.isascii() and reason.isalnum() and reason[:1].isupper()
    ):
        return None
    return Found(aspect, state, reason[:64], text_of(given.get("message")))


def _condition(stands: Mapping[str, Any], found: Found, generation: int | None, now: float) -> dict[str, Any]:
    since = stands.get("lastTransitionTime")
    kept = stands.get("status") == found.state and seconds(since) is not None
    made: dict[str, Any] = {
        "type": found.aspect.value,
        "status": found.state,
        "reason": str(found.reason),
        "message": sentence(found.message),
        "lastTransitionTime": since if kept else moment(now),
    }
    return made if generation is None else made | {"observedGeneration": generation}
