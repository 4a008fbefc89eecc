"""The answer that an object already has, so that an answered job needs no second search.

    read_answer(snapshot, …)      the answer in the annotations; None if incomplete or changed
    as_answered(question, job)    the question with what jobs had taught when it was answered
    matters(old, new, …)          whether an answer to what they teach now is worth a write

The figures have the digits that were written. What running jobs teach belongs to the pool: a job
takes it over only where that changes its strategy or its interval, or leads out of the band that
was predicted for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import orjson

from mofa_model.advice import Status
from mofa_model.annotations import (
    ODDS,
    OUTPUTS,
    PREFIX,
    UNANSWERED,
    WITHOUT_LAYOUT,
    predicted_in,
)
from mofa_model.kinds.shape import Body, at, part
from mofa_model.units import Range
from mofa_operator.decide.job import COMPUTED, HASH
from mofa_operator.decide.release import consents
from mofa_operator.decide.status import moved, standing
from mofa_operator.decision import Answer
from mofa_operator.objects import LiveObject, LiveTrainingJob, WrittenPart, figure, texts
from mofa_operator.snapshot import JobSnapshot, Question
from mofa_operator.words import Aspect, Reason

_OPERATORS: Final = ("computedTime", "health", "conditions", "observed", "observedGeneration")
"""Fields of a job's status that the operator adds; they are no part of an answer."""
_FIGURES: Final = ("tokens_per_second", "step_seconds", "ettr", "mfu", "memory_bytes")


def ready_reason(outcome: str, advised: str) -> str:
    """The reason of the condition Ready; `advised` is that of advice without caveats."""
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


def read_answer(snapshot: JobSnapshot, new_answer: Answer) -> Answer | None:
    """The answer in a job's annotations; None where it is incomplete or somebody changed it.

    `new_answer` is the answer to the same question without a search.
    """
    job = snapshot.job
    outputs = {name: value for name, value in job.annotations.items() if name in OUTPUTS}
    recommendation = _recommendation(outputs.get(PREFIX + "recommendation", ""))
    if (
        outputs.get(HASH) != new_answer.digest
        or job.foreign
        or not _is_whole(outputs, recommendation)
    ):
        return None
    outcome = outputs[PREFIX + "status"]
    interval = figure(outputs.get(PREFIX + "checkpoint-interval-seconds"))
    strategy = axes_of(outputs.get(PREFIX + "strategy", ""))
    answer = replace(
        new_answer,
        outcome=outcome,
        explanation=outputs[PREFIX + "explanation"],
        annotations={name: value for name, value in outputs.items() if name != COMPUTED},
        reason=ready_reason(outcome, new_answer.reason),
        strategy=strategy,
        checkpoint_interval=interval if strategy else None,
    )
    if isinstance(job, LiveTrainingJob):
        return _of_training_job(job, answer)
    return _of_existing(job, answer, recommendation)


def as_answered(question: Question, job: LiveObject) -> Question:
    """The question with what running jobs had taught when its stored answer was made."""
    factors, profiles = _factors(job), []
    for profile in question.profiles:
        status = dict(part(profile, "status"))
        status.pop("calibration", None)
        status |= {"calibration": factors} if factors else {}
        profiles.append({**profile, "status": status})
    return replace(question, profiles=tuple(profiles))


def matters(old_answer: Answer, answer: Answer, material: float) -> bool:
    """Whether strategy, interval (by `material`) or a figure's band makes a write worth it. [1]"""
    if (old_answer.reason, old_answer.strategy) != (answer.reason, answer.strategy):
        return True
    if moved(old_answer.checkpoint_interval, answer.checkpoint_interval, material):
        return True
    if moved(_steps(old_answer), _steps(answer), material):
        return True
    old, new = old_answer.predicted, answer.predicted
    return not all(_is_within(old.get(name), new.get(name)) for name in _FIGURES)


def _steps(answer: Answer) -> float | None:
    """The checkpoint interval of an answer, in steps. [1]"""
    return figure(answer.annotations.get(PREFIX + "checkpoint-interval-steps"))


def _is_within(band: Range | None, new_band: Range | None) -> bool:
    if band is None or new_band is None:
        return band is new_band
    return band.lower <= new_band.target <= band.upper


def _is_whole(outputs: Mapping[str, str], recommendation: Body) -> bool:
    """Whether no key of an answer is missing."""
    if outputs.get(PREFIX + "status") in UNANSWERED or not recommendation:
        return False
    layout = PREFIX + "strategy" in outputs or "strategy" in recommendation
    needed = set(OUTPUTS) - {ODDS} if layout else set(WITHOUT_LAYOUT)
    return needed <= outputs.keys() and ("odds" in recommendation) == (ODDS in outputs)


def _of_training_job(job: LiveTrainingJob, answer: Answer) -> Answer | None:
    """The answer, completed from a TrainingJob's status; None where the status has another one."""
    status = job.kept()
    ready, sure = standing(job, Aspect.READY), standing(job, Aspect.CONFIDENCE_SUFFICIENT)
    if ready is None or sure is None or ready.reason != answer.reason:
        return None
    if job.status.inputs_hash != answer.digest:
        return None
    written = {name: value for name, value in status.items() if name not in _OPERATORS}
    inputs = part(written, "inputs")
    rates = [
        {name: value for name, value in part(rate).items() if name != "verdict"}
        for rate in inputs.get("failure", ())
    ]
    figures = job.predicted
    if answer.strategy and len(figures) < len(_FIGURES):
        return None
    doubts = answer.reason == Reason.PRIOR_DOMINATED  # then the condition speaks of that alone
    return replace(
        answer,
        status=written | {"inputs": {**inputs, "failure": rates}},
        predicted=figures,
        arguments=_words(at(status, "recommendation", "launch", "args")),
        caveats=(sure.message,) if sure.message and not doubts and answer.strategy else (),
    )


def _of_existing(job: LiveObject, answer: Answer, recommendation: Body) -> Answer | None:
    """The answer, completed from the annotation `recommendation`; None where that lacks something
    for want of room.
    """
    predicted = predicted_in(recommendation)
    figures = {name: band for name, band in predicted.items() if name in _FIGURES}
    lacks_launch = answer.trainer and consents(job) and "launch" not in recommendation
    if "current" in recommendation:
        return None
    if answer.strategy and (len(figures) < len(_FIGURES) or lacks_launch):
        return None
    odds = {
        name: chance
        for name in ("fits", "beats")
        if (chance := figure(at(recommendation, "odds", name))) is not None
    }
    return replace(
        answer,
        status={**answer.status, "recommendation": {"odds": odds}},
        predicted=figures,
        nodes=int(figure(recommendation.get("nodes")) or 0),
        gpus=int(figure(recommendation.get("gpus")) or 0),
        arguments=_words(recommendation.get("launch")),
    )


def _factors(job: LiveObject) -> WrittenPart:
    """`status.calibration` as it was when the job was answered; empty where there was none."""
    if isinstance(job, LiveTrainingJob):
        step, memory = job.status.learned, job.status.learned_memory
        spread = job.status.learned_spread
    else:
        learned = part(
            _recommendation(job.annotations.get(PREFIX + "recommendation", "")), "learned"
        )
        step, memory = figure(learned.get("step")), figure(learned.get("memory"))
        spread = figure(learned.get("spread"))
    if step is None and spread is None:
        return {}
    factors: WrittenPart = {"stepTimeRatio": f"{step or 1.0:.2f}", "jobs": 0}
    if spread is not None:
        factors |= {"memoryRatio": f"{memory or 1.0:.2f}", "memorySpread": f"{spread:.2f}"}
    return factors


def _recommendation(text: str) -> Body:
    """The annotation `recommendation` as a mapping; empty where it is no mapping."""
    try:
        parsed: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _words(written: object) -> tuple[str, ...]:
    """Launch arguments that were written as a list; empty where they are no texts."""
    words = written if isinstance(written, list) else []
    return tuple(texts(dict(enumerate(words))).values())
