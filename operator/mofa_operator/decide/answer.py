"""The model's answer to a question: the same calls as `mofa annotate` makes, so that command and operator cannot disagree.

Runs in a worker process. Whatever the question holds, the outcome is an answer: what cannot be understood is InvalidInput
with its message. The one exception is a fault of ours, which is raised, for whoever asked to report as such.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from mofa_model import VERSION
from mofa_model.advice import Advice, Request, advise, failure_inputs
from mofa_model.annotations import PREFIX, of_advice
from mofa_model.errors import InputError, MofaError
from mofa_model.estimate.footprint import room
from mofa_model.kinds.shape import glance, part
from mofa_model.launch import Launch
from mofa_model.manifest.advised import failure_rows, status_of
from mofa_model.manifest.jobs import Asked, request_of
from mofa_model.manifest.launches import launch_of, launch_words, trainer_of
from mofa_model.manifest.stream import Size, digest_of, sizes_of, table_of
from mofa_model.strategy_text import format_strategy
from mofa_operator.decide.asked import NoProfile, asked, example
from mofa_operator.decide.settled import ready_reason
from mofa_operator.decide.unanswered import invalid
from mofa_operator.decision import Answer, Unsearched
from mofa_operator.shapes import PredictedEnds, figure
from mofa_operator.snapshot import Question
from mofa_operator.words import Reason

MOSTLY: Final = 0.5
"""Share of assumption above which failure rates are said to be mostly that. Ours. [1]"""
_KEPT: Final = 512
"""Answers that are kept by their hash: questions that differ in what is rounded away need no second search. [1]"""


@dataclass(frozen=True, slots=True)
class _Hashed:
    """A request that is told from others by its hash alone."""

    digest: str
    request: Request = field(compare=False)
    sizes: tuple[Size, ...] = field(compare=False)


def answer(question: Question) -> Answer:
    """The answer to a question; equal for equal questions."""
    try:
        found = asked(question)
        request, sizes = request_of(found), sizes_of(found)
        known = _unsearched(found, request, sizes)
        told = _advised(_Hashed(known.digest, request, sizes))
    except MofaError as error:
        return _refused(question, error)
    return replace(
        told,
        reason=ready_reason(told.outcome, known).value,
        prior_weight=known.prior_weight,
        profile=known.profile,
        framework_version=known.framework_version,
    )


def unsearched(question: Question) -> Unsearched | Answer:
    """What is known of the answer without a search; the answer itself where none is needed, because nothing can be understood."""
    try:
        found = asked(question)
        return _unsearched(found, request_of(found), sizes_of(found))
    except MofaError as error:
        return _refused(question, error)


def warm() -> None:
    """Import and read what every answer needs, so that the first one is as quick as the others."""
    advise(example())


@lru_cache(maxsize=_KEPT)
def _advised(hashed: _Hashed) -> Answer:
    """The answer to a request, and everything that is said of it.

    Its figures have the digits of the status: what was written is what the next look compares with (`settled.stands`).
    """
    request, digest = hashed.request, hashed.digest
    advice = advise(request)
    words = launch_words(request, advice)
    told = of_advice(advice, digest, "", words, table_of(hashed.sizes, advise, {request: advice}))
    del told[PREFIX + "computed-at"]
    status = status_of(advice, digest, "", _launch(request, advice))
    del status["computedTime"]
    cluster = request.of(advice.trainer).problems[0].cluster
    text = "" if advice.strategy is None else format_strategy(advice.strategy)
    return Answer(
        digest=digest,
        outcome=advice.status.value,
        explanation=told[PREFIX + "explanation"],
        annotations=told,
        status=status,
        figures=glance(PredictedEnds, part(status, "recommendation").get("predicted")).figures,
        device_bytes=float(cluster.device.memory),
        room_bytes=float(room(replace(cluster, reserve=0.0))),
        strategy=dict(pair.partition("=")[::2] for pair in text.split(",")) if text else {},
        trainer=trainer_of(request.framework),
        arguments=words,
        checkpoint_interval=figure(told.get(PREFIX + "checkpoint-interval-seconds")),
        caveats=advice.caveats,
    )


def _refused(question: Question, error: MofaError) -> Answer:
    reason = Reason.PROFILE_MISSING if isinstance(error, NoProfile) else Reason.INVALID_INPUT
    return invalid(question, str(error), reason)


def _unsearched(found: Asked, request: Request, sizes: tuple[Size, ...]) -> Unsearched:
    weight, cluster = _prior_weight(found), request.problems[0].cluster
    return Unsearched(
        digest=digest_of(request, sizes, VERSION),
        mostly_assumed=weight > MOSTLY and found.spec.failure_assumptions.source != "Assumed",
        prior_weight=weight,
        profile=found.profile.name,
        trainer=trainer_of(request.framework),
        framework_version=found.spec.training.framework_version or "",
        device_bytes=float(cluster.device.memory),
        room_bytes=float(room(replace(cluster, reserve=0.0))),
        rates=tuple(failure_rows(failure_inputs(request))),
    )


def _launch(request: Request, advice: Advice) -> Launch | None:
    trainer = trainer_of(request.framework)
    if advice.strategy is None or not trainer:
        return None
    try:
        return launch_of(request, advice, trainer)
    except InputError:
        return None


def _prior_weight(found: Asked) -> float:
    """Share of the failures behind the rates, over all classes, that is assumption. [1]"""
    source = found.spec.failure_assumptions.source
    counted = sum(seen.failures for seen in found.profile.status.evidence().values())
    if source == "Live":
        return 0.0
    weight = float(found.profile.spec.failures.prior_weight)
    return 1.0 if source == "Assumed" or not counted else weight / (weight + counted)
