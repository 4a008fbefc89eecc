"""The model's answer to a question, by the same calls as `mofa annotate` makes.

It runs in a worker process. A question that cannot be understood has an answer too, such as
InvalidInput or NotTraining, with a message. Only faults of the program are raised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from mofa_model import VERSION
from mofa_model.advice import Advice, Request, advise
from mofa_model.annotations import (
    ASKED,
    PREFIX,
    hash_of,
    of_advice,
    of_bad_input,
    of_batches,
)
from mofa_model.errors import (
    FactsDisagree,
    FactsMissing,
    InputError,
    MofaError,
    NotApplicable,
    NotTraining,
)
from mofa_model.estimate.terms import device_memory_limit
from mofa_model.kinds import without_suspension
from mofa_model.kinds.shape import at, part
from mofa_model.launch import Launch
from mofa_model.manifest.advised import failure_rows, launch_of, launch_words, status_of, trainer_of
from mofa_model.manifest.draft import BatchMissing
from mofa_model.manifest.jobs import JobQuestion, request_of, requests_by_batch
from mofa_model.manifest.sizing import at_best_size, at_every_size
from mofa_model.manifest.stream import (
    Sizes,
    batch_rows,
    batches_digest,
    digest_of,
    sizes_of,
    table_of,
)
from mofa_model.page import AdviceView, view_of
from mofa_model.spec import Cluster
from mofa_model.strategy import format_strategy
from mofa_operator.decide.job import HASH
from mofa_operator.decide.question import (
    NoProfile,
    by_parameter,
    changed,
    example,
    parsed_question,
    placed,
)
from mofa_operator.decide.stored_answer import axes_of, ready_reason
from mofa_operator.decision import Answer
from mofa_operator.objects import figure, predicted_ranges, texts
from mofa_operator.snapshot import JobSnapshot, Question, Refusal
from mofa_operator.words import Reason

MOSTLY: Final = 0.5
"""Above this share of assumption, failure rates are said to be mostly assumption. Ours. [1]"""
FOUND: Final[dict[str, Answer]] = {}
"""Answers by inputs hash. The hash rounds, so that nearly equal questions need one search."""
MOST: Final = 512
"""Answers that are kept; the oldest goes first. [1]"""
_WORDING: Final = (
    ("or give one with --profile", "see kubectl get cprof"),
    ("give it with --profile FILE", "see kubectl get cprof"),
    ("give it beside the job", "create it in the job's namespace"),
)
"""Advice in messages of the command line, and what to say in a cluster instead."""
REASONS: Final = {
    InputError.status: Reason.INVALID_INPUT,
    NotTraining.status: Reason.NOT_TRAINING,
    NotApplicable.status: Reason.NOT_APPLICABLE,
    FactsMissing.status: Reason.FACTS_MISSING,
    FactsDisagree.status: Reason.FACTS_DISAGREE,
}
"""Reasons of the statuses that are `UNANSWERED`."""
_OUTGROWN: Final = (
    "spec: the question needs more memory or time than one may have, so it is not asked again "
    "until it changes; "
    "state the nodes, and constrain what may be searched"
)


def answer(question: Question) -> Answer:
    """The answer to a question; equal for equal questions."""
    try:
        job_question = parsed_question(question)
        preliminary = _before_search(job_question)
        if preliminary.digest not in FOUND:
            chosen = at_best_size(job_question)
            request, sizes = request_of(chosen), sizes_of(chosen)
            FOUND[preliminary.digest] = _searched(preliminary.digest, request, sizes)
            for oldest in list(FOUND)[:-MOST]:
                del FOUND[oldest]
        result = FOUND[preliminary.digest]
    except BatchMissing as error:
        return _by_batch(question, error, advise)
    except MofaError as error:
        return _invalid_input_answer(question, error)
    return replace(
        result,
        reason=ready_reason(result.outcome, preliminary.reason),
        profile=preliminary.profile,
        framework_version=preliminary.framework_version,
    )


def unsearched(question: Question) -> Answer:
    """What can be said without a search: an answer without outcome, or InvalidInput."""
    try:
        job_question = parsed_question(question)
        return _before_search(job_question)
    except BatchMissing as error:
        return _by_batch(question, error, None)
    except MofaError as error:
        return _invalid_input_answer(question, error)


def warm() -> None:
    """Import and read what every answer needs, so that the first one is as quick as the others."""
    advise(example())


def view(question: Question) -> AdviceView | Refusal | None:
    """The advice in full, for the page; None for a job's own question that cannot be understood."""
    try:
        job_question = at_best_size(parsed_question(question))
        request = request_of(
            changed(job_question, question.changes) if question.changes else job_question
        )
        advice = advise(request)
        return view_of(request, advice, tuple(launch_words(request, advice)))
    except MofaError as error:
        return Refusal(by_parameter(error, question.changes)) if question.changes else None


def outgrown(question: Question) -> Answer:
    """The answer to a question that killed its worker process: it asks too much.

    Its hash marks the object until the author changes something.
    """
    return _without_advice(_OUTGROWN, Reason.QUARANTINED, _digest(question, outgrown=True))


def is_quarantined(snapshot: JobSnapshot) -> bool:
    """Whether an object says that this same question has killed its process before."""
    return snapshot.job.annotations.get(HASH) == _digest(snapshot.question, outgrown=True)


def prior_weight(job_question: JobQuestion) -> float:
    """Share of the failures behind the rates, over all classes, that is assumption. [1]"""
    source = job_question.spec.failure_assumptions.source
    counted = sum(evidence.failures for evidence in job_question.profile.status.evidence().values())
    if source == "Live":
        return 0.0
    weight = float(job_question.profile.spec.failures.prior_weight)
    return 1.0 if source == "Assumed" or not counted else weight / (weight + counted)


def _before_search(job_question: JobQuestion) -> Answer:
    choices = [request_of(choice) for choice in at_every_size(job_question)]
    request, sizes = choices[0] if choices else request_of(job_question), sizes_of(job_question)
    cluster = request.problems[0].cluster
    is_assumed = (
        prior_weight(job_question) > MOSTLY
        and job_question.spec.failure_assumptions.source != "Assumed"
    )
    return Answer(
        digest=digest_of(request, sizes, VERSION, choices),
        status={"inputs": {"failure": failure_rows(request.reliability.classes)}},
        reason=(Reason.PRIOR_DOMINATED if is_assumed else Reason.RECOMMENDED).value,
        profile=job_question.profile.name,
        trainer=trainer_of(request.framework),
        framework_version=job_question.spec.training.framework_version or "",
        gpu=cluster.device.name,
        device_bytes=float(cluster.device.memory),
        room_bytes=_usable(cluster),
    )


def _searched(digest: str, request: Request, sizes: Sizes) -> Answer:
    """The answer to a request.

    Its figures are rounded as in the status, because the next look compares with that.
    """
    advice = advise(request)
    cluster = request.for_trainer(advice.trainer).problems[0].cluster
    words = launch_words(request, advice)
    annotations = of_advice(advice, digest, "", words, table_of(sizes, advise, (request, advice)))
    status = status_of(advice, digest, "", _launch(request, advice))
    del annotations[PREFIX + "computed-at"], status["computedTime"]
    return Answer(
        digest=digest,
        outcome=advice.status.value,
        explanation=annotations[PREFIX + "explanation"],
        annotations=annotations,
        status=status,
        predicted=predicted_ranges(part(status, "recommendation").get("predicted")),
        strategy=axes_of("" if advice.strategy is None else format_strategy(advice.strategy)),
        trainer=trainer_of(request.framework),
        nodes=advice.nodes,
        gpus=advice.gpus,
        arguments=words,
        checkpoint_interval=figure(annotations.get(PREFIX + "checkpoint-interval-seconds")),
        caveats=advice.caveats,
        gpu=cluster.device.name,
        device_bytes=float(cluster.device.memory),
        room_bytes=_usable(cluster),
    )


def _usable(cluster: Cluster) -> float:
    """Device memory that a trainer can use, before any reserve that somebody asks for. [B]"""
    return float(device_memory_limit(replace(cluster, reserve=0.0)))


def _launch(request: Request, advice: Advice) -> Launch | None:
    trainer = trainer_of(request.framework)
    if advice.strategy is None or not trainer:
        return None
    try:
        return launch_of(request, advice, trainer)
    except InputError:
        return None


def _invalid_input_answer(question: Question, error: MofaError) -> Answer:
    """The answer that carries an input error; its hash covers the spec and the annotations."""
    message = str(error)
    for offline, in_cluster in _WORDING:
        message = message.replace(offline, in_cluster)
    status = error.status if isinstance(error, InputError) else InputError.status
    reason = Reason.PROFILE_MISSING if isinstance(error, NoProfile) else REASONS[status]
    return _without_advice(message, reason, _digest(question), status)


def _by_batch(
    question: Question, error: BatchMissing, answer: Callable[[Request], Advice] | None
) -> Answer:
    """The answer to a job that does not say its batch; without outcome where nobody searches."""
    item, around = placed(question)
    requests = requests_by_batch(item, around, error)
    digest = batches_digest(_digest(question), requests, VERSION)
    result = _without_advice(str(error), Reason.FACTS_MISSING, digest, error.status)
    if answer is None:
        return replace(result, outcome="", explanation="", annotations={})
    annotations = of_batches(str(error), digest, VERSION, "", batch_rows(requests, answer))
    del annotations[PREFIX + "computed-at"]
    return replace(result, explanation=annotations[PREFIX + "explanation"], annotations=annotations)


def _digest(question: Question, **more: bool) -> str:
    annotations = texts(at(question.job, "metadata", "annotations"))
    inputs = {key: value for key, value in annotations.items() if key in ASKED}
    return hash_of(
        {"spec": without_suspension(question.job.get("spec")), "asked": inputs, **more}, VERSION
    )


def _without_advice(
    message: str, reason: Reason, digest: str, status: str = InputError.status
) -> Answer:
    annotations = of_bad_input(message, digest, VERSION, "", status)
    del annotations[PREFIX + "computed-at"]
    return Answer(
        digest=digest,
        outcome=status,
        explanation=annotations[PREFIX + "explanation"],
        annotations=annotations,
        status={"inputsHash": digest, "modelVersion": VERSION},
        reason=reason.value,
    )
