"""An answer that stands, read back from its object: nothing is searched for, and nothing written, where all is done.

    stands(snapshot, known)         the answer as it was written; None where the object does not hold it whole and untouched
    as_answered(question, job)      the question with what running jobs had taught when it was answered
    matters(stood, fresh, …)        whether an answer to what they teach now is worth a write

What is read back has the digits that were written. What running jobs teach belongs to the profile: a job takes it over only where
that changes its strategy or its interval, or leads out of the band that it was told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import orjson

from mofa_model.advice import Status
from mofa_model.annotations import INVALID, ODDS, OUTPUTS, PREFIX, WITHOUT_LAYOUT, predicted_in
from mofa_model.kinds.shape import Body, at, part
from mofa_model.units import Range
from mofa_operator.decide.job import COMPUTED, HASH
from mofa_operator.decide.release import consents
from mofa_operator.decide.status import moved, standing
from mofa_operator.decision import Answer
from mofa_operator.objects import LiveObject, LiveTrainingJob, Written, figure, texts
from mofa_operator.snapshot import JobSnapshot, Question
from mofa_operator.words import Aspect, Reason

_OPERATORS: Final = ("computedTime", "health", "conditions", "observed", "observedGeneration")
"""What of a job's status is the operator's own, and no part of an answer."""
_FIGURES: Final = ("tokens_per_second", "step_seconds", "ettr", "mfu", "memory_bytes")


def ready_reason(outcome: str, advised: str) -> str:
    """Reason of the condition Ready; `advised` is the one of advice without caveats."""
    reasons = {
        Status.NO_RECOMMENDATION.value: Reason.NO_FEASIBLE_LAYOUT.value,
        Status.LOW_CONFIDENCE.value: Reason.LOW_CONFIDENCE.value,
    }
    return reasons.get(outcome, advised)


def axes_of(strategy: str) -> dict[str, str]:
    """Axes of a strategy that is written as one line.

    >>> axes_of("tp=8,pp=2"), axes_of("")
    ({'tp': '8', 'pp': '2'}, {})
    """
    return dict(pair.partition("=")[::2] for pair in strategy.split(",")) if strategy else {}


def stands(snapshot: JobSnapshot, known: Answer) -> Answer | None:
    """The answer that an object carries; None where it is not whole, not untouched or of another hash.

    `known` is what can be said of the same question without a search.
    """
    job = snapshot.job
    said = {name: value for name, value in job.annotations.items() if name in OUTPUTS}
    told = _told(said.get(PREFIX + "recommendation", ""))
    if said.get(HASH) != known.digest or job.foreign or not _is_whole(said, told):
        return None
    outcome = said[PREFIX + "status"]
    interval = figure(said.get(PREFIX + "checkpoint-interval-seconds"))
    strategy = axes_of(said.get(PREFIX + "strategy", ""))
    answer = replace(
        known,
        outcome=outcome,
        explanation=said[PREFIX + "explanation"],
        annotations={name: value for name, value in said.items() if name != COMPUTED},
        reason=ready_reason(outcome, known.reason),
        strategy=strategy,
        checkpoint_interval=interval if strategy else None,
    )
    if isinstance(job, LiveTrainingJob):
        return _of_training_job(job, answer)
    return _of_existing(job, answer, told)


def as_answered(question: Question, job: LiveObject) -> Question:
    """The same question with what running jobs had taught when its standing answer was made."""
    factors = _factors(job)
    return replace(
        question, profiles=tuple(_with(profile, factors) for profile in question.profiles)
    )


def matters(stood: Answer, fresh: Answer, material: float) -> bool:
    """Whether an answer to what running jobs teach now differs in the strategy, by `material` in the interval, or leaves the band. [1]"""
    return (
        stood.reason != fresh.reason
        or stood.strategy != fresh.strategy
        or moved(stood.checkpoint_interval, fresh.checkpoint_interval, material)
        or moved(_steps(stood), _steps(fresh), material)
        or any(
            not _is_within(stood.figures.get(name), fresh.figures.get(name)) for name in _FIGURES
        )
    )


def _steps(answer: Answer) -> float | None:
    """Its checkpoint interval. [1]"""
    return figure(answer.annotations.get(PREFIX + "checkpoint-interval-steps"))


def _is_within(band: Range | None, fresh: Range | None) -> bool:
    if band is None or fresh is None:
        return band is fresh
    return band.lower <= fresh.target <= band.upper


def _is_whole(said: Mapping[str, str], told: Body) -> bool:
    """Whether no key of an answer is missing."""
    if said.get(PREFIX + "status") == INVALID or not told:
        return False
    layout = PREFIX + "strategy" in said or "strategy" in told
    needed = set(OUTPUTS) - {ODDS} if layout else set(WITHOUT_LAYOUT)
    return needed <= said.keys() and ("odds" in told) == (ODDS in said)


def _of_training_job(job: LiveTrainingJob, answer: Answer) -> Answer | None:
    """With what its status says."""
    status = job.kept()
    ready, sure = standing(job, Aspect.READY), standing(job, Aspect.CONFIDENCE_SUFFICIENT)
    if (
        job.status.inputs_hash != answer.digest
        or ready is None
        or sure is None
        or ready.reason != answer.reason
    ):
        return None
    said = {name: value for name, value in status.items() if name not in _OPERATORS}
    inputs = part(said, "inputs")
    rates = [_without_verdict(rate) for rate in inputs.get("failure", ())]
    figures = job.predicted
    if answer.strategy and len(figures) < len(_FIGURES):
        return None
    doubts = answer.reason == Reason.PRIOR_DOMINATED  # of which it speaks instead of caveats
    return replace(
        answer,
        status=said | {"inputs": {**inputs, "failure": rates}},
        figures=figures,
        arguments=_words(at(status, "recommendation", "launch", "args")),
        caveats=(sure.message,) if sure.message and not doubts and answer.strategy else (),
    )


def _of_existing(job: LiveObject, answer: Answer, told: Body) -> Answer | None:
    """With what its annotations say; what had no room in them is not known, where that counts."""
    figures = {name: band for name, band in predicted_in(told).items() if name in _FIGURES}
    is_told = "launch" in told or not answer.trainer or not consents(job)
    if "current" in told or (answer.strategy and (len(figures) < len(_FIGURES) or not is_told)):
        return None
    odds = {
        name: one
        for name in ("fits", "beats")
        if (one := figure(at(told, "odds", name))) is not None
    }
    return replace(
        answer,
        status={**answer.status, "recommendation": {"odds": odds}},
        figures=figures,
        arguments=_words(told.get("launch")),
    )


def _factors(job: LiveObject) -> Written:
    """What running jobs had taught when a job's answer was made, as a profile's status has it; empty where nothing was."""
    if isinstance(job, LiveTrainingJob):
        said = job.status.learned, job.status.learned_memory, job.status.learned_spread
    else:
        told = _told(job.annotations.get(PREFIX + "recommendation", ""))
        step, memory, spread = (
            figure(at(told, "learned", name)) for name in ("step", "memory", "spread")
        )
        said = step, memory, spread
    step, memory, spread = said
    if step is None and spread is None:
        return {}
    held = (
        {}
        if spread is None
        else {"memoryRatio": f"{memory or 1.0:.2f}", "memorySpread": f"{spread:.2f}"}
    )
    return {"stepTimeRatio": f"{step or 1.0:.2f}", **held, "jobs": 0}


def _with(profile: Body, factors: Written) -> Body:
    """A profile whose running jobs taught these factors."""
    status = {name: one for name, one in part(profile, "status").items() if name != "calibration"}
    return {**profile, "status": status | ({"calibration": factors} if factors else {})}


def _told(text: str) -> Body:
    """The annotation `recommendation` as a mapping; empty where it is none."""
    try:
        found: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _without_verdict(rate: object) -> Written:
    return {name: one for name, one in part(rate).items() if name != "verdict"}


def _words(written: object) -> tuple[str, ...]:
    """Arguments, where they are texts."""
    words = written if isinstance(written, list) else []
    return tuple(texts(dict(enumerate(words))).values())
