"""Where a job's answer comes from: from memory, from its own object where that still holds, or from a search."""

from __future__ import annotations

import logging
from typing import Final

from mofa_model.annotations import INVALID, PREFIX
from mofa_operator.control.decider import KEPT, Decider, Wanted
from mofa_operator.control.process import Outgrown
from mofa_operator.decide.answer import is_quarantined, outgrown
from mofa_operator.decide.job import HASH
from mofa_operator.decide.stored_answer import as_answered, matters, stands
from mofa_operator.decision import Answer
from mofa_operator.recent import Recent
from mofa_operator.snapshot import JobSnapshot

_log: Final = logging.getLogger(__name__)


class Answers:
    """Answers to jobs, each with as little work as it needs."""

    def __init__(self, decider: Decider, material: float) -> None:
        """`material` is the least relative change of an interval that counts. [1]"""
        self._decider = decider
        self._material = material
        self._outgrown: Recent[bool] = Recent(KEPT)

    def at_hand(self, snapshot: JobSnapshot) -> Answer | None:
        """The answer, where nobody has to wait for it: the job has not changed meanwhile."""
        return None if self._is_suspect(snapshot) else self._remembered(snapshot)

    async def of(self, snapshot: JobSnapshot, *, urgent: bool, wanted: Wanted) -> Answer:
        """The answer to a job's question; to one that outgrew what it may have, that it did, until it changes."""
        if self._is_suspect(snapshot):
            told = outgrown(snapshot.question)
            if told.digest in self._outgrown or is_quarantined(snapshot):
                return told
        try:
            return await self._of(snapshot, urgent, wanted)
        except Outgrown as error:
            _log.warning("%s: quarantined until it changes: %s", snapshot.job.key, error)
            told = outgrown(snapshot.question)
            self._outgrown[told.digest] = True
            return told

    async def _of(self, snapshot: JobSnapshot, urgent: bool, wanted: Wanted) -> Answer:
        if (known := self._remembered(snapshot)) is not None:
            return known
        question, decider, place = snapshot.question, self._decider, snapshot.job.key.namespace
        digest, stood = snapshot.job.annotations.get(HASH), None
        if digest:
            found = await decider.unsearched(question, place=place, urgent=urgent, wanted=wanted)
            if isinstance(found, Answer):
                return found
            if found.digest == digest and (held := stands(snapshot, found)) is not None:
                return held
            stood = (
                None if found.digest == digest else await self._with_then(snapshot, urgent, wanted)
            )
            if stood is not None and not snapshot.asks_anew:
                return stood
        fresh = await decider.answer(question, place=place, urgent=urgent, wanted=wanted)
        return fresh if stood is None or matters(stood, fresh, self._material) else stood

    def _is_suspect(self, snapshot: JobSnapshot) -> bool:
        """Whether its question may be one that outgrew what it may have: few are, and to look costs as much as all else."""
        return bool(self._outgrown) or snapshot.job.annotations.get(PREFIX + "status") == INVALID

    def _remembered(self, snapshot: JobSnapshot) -> Answer | None:
        """The answer from memory, where no other one stands on the job."""
        known = self._decider.known(snapshot.question)
        return (
            known
            if known is not None and snapshot.job.annotations.get(HASH) in {None, known.digest}
            else None
        )

    async def _with_then(
        self, snapshot: JobSnapshot, urgent: bool, wanted: Wanted
    ) -> Answer | None:
        """What stands, where nothing has changed since but what running jobs teach."""
        then, place = as_answered(snapshot.question, snapshot.job), snapshot.job.key.namespace
        if then == snapshot.question:
            return None
        found = await self._decider.unsearched(then, place=place, urgent=urgent, wanted=wanted)
        return None if isinstance(found, Answer) else stands(snapshot, found)
