"""Answers without advice: to a question that cannot be understood, and to one that outgrew what one may have.

The latter stands as quarantine until its author changes something: its hash says so on the object, whoever starts anew.
"""

from __future__ import annotations

from typing import Final

from mofa_model import VERSION
from mofa_model.annotations import ASKED, INVALID, PREFIX, hash_of, of_bad_input
from mofa_model.kinds import asked_of
from mofa_model.kinds.shape import at
from mofa_operator.decide.outputs import HASH
from mofa_operator.decision import Answer
from mofa_operator.shapes import texts
from mofa_operator.snapshot import JobSnapshot, Question
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
