"""Annotations to write: what should stand, what should go, and nothing while the inputs hash is equal.

What we wrote stands while the hash is equal, though a fresh answer may differ in what the hash does not cover (the longer a
pool is watched, the narrower are the bands). A value that is not of our hand has to be the answer's: another one is put right.
"""

from __future__ import annotations

from collections.abc import Mapping

from mofa_model.annotations import PREFIX, RECORD, removal
from mofa_operator.decide.reading import moment
from mofa_operator.decide.stance import is_paused
from mofa_operator.decision import Annotate, Answer
from mofa_operator.objects import LiveObject, LiveTrainingJob
from mofa_operator.shapes import seconds
from mofa_operator.snapshot import JobSnapshot

HASH, COMPUTED = PREFIX + "inputs-hash", PREFIX + "computed-at"


def computed_at(snapshot: JobSnapshot, digest: str) -> str:
    """When an answer was computed: as it was said before while the hash is equal, in the status or on the job, else now."""
    job, stands = snapshot.job, snapshot.job.annotations
    told = [(stands.get(HASH), stands.get(COMPUTED, ""))]
    if isinstance(job, LiveTrainingJob):
        told.insert(0, (job.status.inputs_hash, job.status.computed_time))
    dated = (at for of, at in told if of == digest and seconds(at) is not None)
    return next(dated, moment(snapshot.now))


def held(job: LiveObject, answer: Answer, computed: str, record: str = "") -> Annotate | None:
    """What to write so that an answer and the record of a run stand on an object; None where both do, the answer whole,
    untouched and with the same hash. A record that is new is written beside the answer that stands.
    """
    stands, hold = job.annotations, {**answer.annotations, COMPUTED: computed}
    if stands.get(HASH) == answer.digest and not _differing(job, hold):
        if stands.get(RECORD, "") == record:
            return None
        hold = {name: stands[name] for name in hold}
    if record:
        hold[RECORD] = record
    stale = tuple(name for name in removal(stands) if name not in hold)
    return Annotate(key=job.key, uid=job.uid, hold=hold, drop=stale)


def overwritten(job: LiveObject, answer: Answer, computed: str) -> Mapping[str, str]:
    """Keys of an answer that stood on an object, whose values somebody changed or took away, and who; none where it is new."""
    differing = _differing(job, {**answer.annotations, COMPUTED: computed})
    stood = job.annotations.get(HASH) == answer.digest or set(differing) == {HASH}
    return differing if stood else {}


def _differing(job: LiveObject, hold: Mapping[str, str]) -> dict[str, str]:
    """Keys that are missing, or have a value that is neither the answer's nor of our hand; and of whose."""
    stands, foreign = job.annotations, job.foreign
    return {
        name: foreign.get(name, "")
        for name, value in hold.items()
        if name not in stands or (name in foreign and stands[name] != value)
    }


def removed(job: LiveObject) -> Annotate | None:
    """What to write so that nothing of ours stands on an object; None where nothing does."""
    gone = tuple(removal(job.annotations))
    return Annotate(key=job.key, uid=job.uid, hold={}, drop=gone) if gone else None


def takes(job: LiveObject) -> bool:
    """Whether a target may be written to: not while it is being deleted, nor while it is paused."""
    return not job.is_going and not is_paused(job)
