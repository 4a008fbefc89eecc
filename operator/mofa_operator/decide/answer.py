"""The model's answer to a question, as annotations and status: the same calls as `mofa annotate` makes.

Runs in a worker process. A question that cannot be understood has an answer too: InvalidInput with its message.
Only our own faults are raised.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from mofa_model import VERSION
from mofa_model.advice import Advice, Request, advise, failure_inputs
from mofa_model.annotations import ASKED, INVALID, PREFIX, hash_of, of_advice, of_bad_input
from mofa_model.errors import InputError, MofaError
from mofa_model.estimate.terms import device_memory_limit
from mofa_model.kinds import asked_of
from mofa_model.kinds.shape import at, glance, part
from mofa_model.launch import Launch
from mofa_model.manifest.advised import failure_rows, launch_of, launch_words, status_of, trainer_of
from mofa_model.manifest.jobs import Asked, request_of
from mofa_model.manifest.stream import Size, digest_of, sizes_of, table_of
from mofa_model.page import AdviceView, view_of
from mofa_model.strategy_text import format_strategy
from mofa_operator.decide.job import HASH
from mofa_operator.decide.question import (
    NoProfile,
    Unanswerable,
    asked,
    by_parameter,
    changed,
    example,
)
from mofa_operator.decide.stored_answer import ready_reason
from mofa_operator.decision import Answer, Unsearched
from mofa_operator.objects import PredictedEnds, figure, texts
from mofa_operator.snapshot import JobSnapshot, Question, Refusal
from mofa_operator.words import Reason

_WORDING: Final = (
    ("or give one with --profile", "see kubectl get cprof"),
    ("give it with --profile FILE", "see kubectl get cprof"),
    ("give it in the same stream", "create it in the job's namespace"),
)
"""What the messages of the command line advise, and what helps in a cluster."""
_OUTGROWN: Final = (
    "spec: the question needs more memory or time than one may have, so it is not asked again until it changes; "
    "state the nodes, and constrain what may be searched"
)


def invalid(question: Question, message: str, reason: Reason) -> Answer:
    """The answer to a question that cannot be answered; its hash covers what its author can mend."""
    for offline, here in _WORDING:
        message = message.replace(offline, here)
    return _without_advice(message, reason, _digest(question))


def outgrown(question: Question) -> Answer:
    """The answer to a question that killed its process, or needs more than one may have."""
    return _without_advice(_OUTGROWN, Reason.QUARANTINED, _digest(question, outgrown=True))


def is_quarantined(snapshot: JobSnapshot) -> bool:
    """Whether a job says that its question, as it still stands, has outgrown what one may have."""
    return snapshot.job.annotations.get(HASH) == _digest(snapshot.question, outgrown=True)


def _digest(question: Question, **more: bool) -> str:
    annotations = texts(at(question.job, "metadata", "annotations"))
    asked = {key: value for key, value in annotations.items() if key in ASKED}
    return hash_of({"spec": asked_of(question.job.get("spec")), "asked": asked, **more}, VERSION)


def _without_advice(message: str, reason: Reason, digest: str) -> Answer:
    told = of_bad_input(message, digest, VERSION, "")
    del told[PREFIX + "computed-at"]
    return Answer(
        digest=digest,
        outcome=INVALID,
        explanation=told[PREFIX + "explanation"],
        annotations=told,
        status={"inputsHash": digest, "modelVersion": VERSION},
        reason=reason.value,
    )


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
        room_bytes=float(device_memory_limit(replace(cluster, reserve=0.0))),
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
        room_bytes=float(device_memory_limit(replace(cluster, reserve=0.0))),
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


def view(question: Question) -> AdviceView | Refusal | None:
    """The answer to a question with everything that a page draws of it; None where there is no answer."""
    try:
        found = asked(question)
        request = request_of(changed(found, question.changes) if question.changes else found)
        advice = advise(request)
        return view_of(request, advice, tuple(launch_words(request, advice)))
    except Unanswerable as error:
        return Refusal(error.why)
    except MofaError as error:
        return Refusal(by_parameter(error)) if question.changes else None
