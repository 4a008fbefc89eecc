"""Conditions of our objects: all of them from the first visit on, their times kept while they do not change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from mofa_operator.decide.reading import moment, sentence
from mofa_operator.objects import LiveObject, Written
from mofa_operator.shapes import StandingCondition, seconds
from mofa_operator.words import Aspect, Reason

State = Literal["True", "False", "Unknown"]


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


def conditions(stands: LiveObject, found: Iterable[Found], now: float) -> list[Written]:
    """Conditions to write, given those that stand; `now` is the moment in seconds of the epoch. [s]"""
    known = {one.type: one for one in stands.conditions}
    made = [_condition(known.get(one.aspect.value), one, now) for one in found]
    return [of_generation(stands, one) for one in made]


def of_generation(stands: LiveObject, status: Written) -> Written:
    """A status with the generation of the spec that it is of."""
    generation = stands.generation
    return status if generation is None else status | {"observedGeneration": generation}


def standing(stands: LiveObject, aspect: Aspect) -> Found | None:
    """The same as what was once found out; None where nothing was, or nothing that could be written again."""
    one = next((given for given in stands.conditions if given.type == aspect.value), None)
    if one is None or one.status not in ("True", "False", "Unknown"):
        return None
    if not (one.reason.isascii() and one.reason.isalnum() and one.reason[:1].isupper()):
        return None
    return Found(aspect, one.status, one.reason[:64], one.message)  # type: ignore[arg-type]


def _condition(stands: StandingCondition | None, found: Found, now: float) -> Written:
    is_kept = stands is not None and stands.status == found.state
    since = stands.since if stands is not None and is_kept else ""
    return {
        "type": found.aspect.value,
        "status": found.state,
        "reason": str(found.reason),
        "message": sentence(found.message),
        "lastTransitionTime": moment(now) if seconds(since) is None else since,
    }
