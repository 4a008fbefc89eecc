"""Objects of the cluster as types: what the API server gives becomes one of these when it comes in, and nobody walks it again.

    LiveObject         any object: its metadata, its conditions, and itself as it came
    LiveTrainingJob    what a TrainingJob asks, and what stands in its status
    LiveProfile        a ClusterProfile; its status is the memory of its pool, and its FailureLedger that of days

A part is read once, when somebody asks for it, and of it what `shapes` declares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

from mofa_model.annotations import RECORD
from mofa_model.kinds import Kind
from mofa_model.kinds.shape import Body, at, glance, items, part, text_of
from mofa_model.spec.evidence import DatedEvidence
from mofa_operator.evidence import Day, days_in, weeks_in
from mofa_operator.keys import CLUSTER_PROFILE, TRAINING_JOB, Key, key_of, target_of
from mofa_operator.shapes import (
    AdvisedStatus,
    AskedJob,
    AskedPool,
    LearnedStatus,
    PredictedEnds,
    StandingCondition,
    condition,
    generation,
    seconds,
    texts,
)

Written: TypeAlias = dict[str, Any]
"""A part of an object as it is to be written."""
FOREIGN: Final = "foreign"
"""Key in the metadata of a stored body: what of ours somebody else wrote last, and who; missing = nothing."""
STATUS: Final = "status"
"""What stands there for the status of a kind of ours, beside the names of annotations."""

_TAUGHT: Final = ("stepTimeRatio", "memoryRatio", "memorySpread")
"""What running jobs taught that an answer counts with."""


@dataclass(frozen=True)
class LiveObject:
    """An object as it stands."""

    key: Key
    """Which object."""
    body: Body
    """Itself as it came: for those who parse it as a whole."""

    @cached_property
    def uid(self) -> str:
        """Which object of its name it is."""
        return text_of(at(self.body, "metadata", "uid"))

    @cached_property
    def generation(self) -> int | None:
        """Generation of its spec."""
        return generation(at(self.body, "metadata", "generation"))

    @cached_property
    def made(self) -> float | None:
        """When it was made, in seconds of the epoch. [s]"""
        return seconds(at(self.body, "metadata", "creationTimestamp"))

    @property
    def is_going(self) -> bool:
        """Whether it is being deleted."""
        return at(self.body, "metadata", "deletionTimestamp") is not None

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        return texts(at(self.body, "metadata", "labels"))

    @cached_property
    def annotations(self) -> Mapping[str, str]:
        """Its annotations."""
        return texts(at(self.body, "metadata", "annotations"))

    @cached_property
    def foreign(self) -> Mapping[str, str]:
        """Annotations under our prefix, and `STATUS`, that are not of our hand, and of whose; empty text = of nobody's that is known."""
        return texts(at(self.body, "metadata", FOREIGN))

    @property
    def owners(self) -> frozenset[str]:
        """Objects that made it, by uid."""
        return frozenset(
            text_of(one.get("uid")) for one in items(at(self.body, "metadata", "ownerReferences"))
        )

    @cached_property
    def conditions(self) -> tuple[StandingCondition, ...]:
        """Conditions of its status."""
        return tuple(map(condition, items(at(self.body, "status", "conditions"))))

    @property
    def record(self) -> str:
        """The record of a run that stands on a job."""
        return self.annotations.get(RECORD, "")

    @property
    def standing(self) -> object:
        """Its status as it stands, to be held against the one that is wanted."""
        return self.body.get("status")

    def kept(self, *names: str) -> Written:
        """Parts of its status as they stand, to be written again; all of it where none is named."""
        status = part(self.body, "status")
        return {name: status[name] for name in names or status if name in status}

    def holds(self, path: tuple[str, ...]) -> bool:
        """Whether it says true at the end of a path; never at the end of none."""
        return bool(path) and at(self.body, *path) is True


class LiveTrainingJob(LiveObject):
    """A TrainingJob as it stands."""

    @cached_property
    def asked(self) -> AskedJob:
        """What of its spec is read beside the question."""
        return glance(AskedJob, self.body.get("spec"))

    @cached_property
    def status(self) -> AdvisedStatus:
        """Its status."""
        return glance(AdvisedStatus, self.body.get("status"))

    @property
    def predicted(self) -> PredictedEnds:
        """What its status predicts of the advised layout."""
        return glance(PredictedEnds, part(self.body, "status", "recommendation").get("predicted"))

    @cached_property
    def target(self) -> Key | None:
        """The job that its targetRef names, where it is of a kind that can be annotated."""
        asked = self.asked
        return target_of(
            self.key.namespace, asked.target_version, asked.target_kind, asked.target_name
        )

    @property
    def observed(self) -> Written:
        """`status.observed` as it stands, without what version 0.1.0 kept there for itself."""
        stands = part(self.body, "status", "observed")
        return {name: value for name, value in stands.items() if name != "life"}

    @property
    def objective(self) -> float | None:
        """Least acceptable effective training time ratio. [1]"""
        share = self.asked.objective
        return share if share is not None and 0 < share <= 1 else None

    @property
    def names_a_target(self) -> bool:
        """Whether it has a targetRef, of whatever kind."""
        return bool(part(self.body, "spec", "targetRef"))

    @property
    def record(self) -> str:
        """The record of its run: in our annotation, or where version 0.1.0 kept it; empty where there is none."""
        return super().record or self.status.observed.life


@dataclass(frozen=True)
class LiveProfile(LiveObject):
    """A ClusterProfile as it stands, with its ledger.

    Version 0.1.0 kept days and weeks in the profile's status. What stands there counts until the ledger was written after it.
    """

    ledger: LiveObject | None = None
    """The FailureLedger of its name, as it stands; None where there is none."""

    @cached_property
    def asked(self) -> AskedPool:
        """Which nodes are its own, and where its series are."""
        return glance(AskedPool, self.body.get("spec"))

    @cached_property
    def status(self) -> LearnedStatus:
        """Its status."""
        return glance(LearnedStatus, self.body.get("status"))

    @property
    def calibration(self) -> Written:
        """`status.calibration` as it stands, to be written again."""
        return dict(part(self.body, "status", "calibration"))

    @property
    def factors(self) -> Mapping[str, str]:
        """What running jobs taught that an answer counts with."""
        return taught_factors(self.calibration)

    @property
    def is_asked(self) -> bool:
        """Whether every job of it was asked with these factors."""
        return text_of(self.calibration.get("asked")) == " ".join(self.factors.values())

    @cached_property
    def counted(self) -> Body:
        """The status of its ledger; that of a profile of its name that went before it is none."""
        if self.ledger is None or self.uid not in self.ledger.owners:
            return {}
        return part(self.ledger.body, "status")

    @cached_property
    def unmoved(self) -> Written:
        """Days and weeks of its own status that its ledger does not hold yet."""
        old = self.kept("days", "weeks")
        written, learned = seconds(self.counted.get("time")), seconds(self.status.history_time)
        return old if written is None or (learned is not None and learned > written) else {}

    @cached_property
    def days(self) -> tuple[Day, ...]:
        """What was counted by days; of two entries of a witness for a day, the one that covers more."""
        every = (*days_in(self.unmoved.get("days")), *days_in(self.counted.get("days")))
        found = {
            (day.date, day.witness): day
            for day in sorted(every, key=lambda day: (day.date, day.witness, day.covered))
        }
        return tuple(found.values())

    @cached_property
    def weeks(self) -> tuple[DatedEvidence, ...]:
        """What was counted before these days; of two entries for a week, the one that covers more."""
        every = (*weeks_in(self.unmoved.get("weeks")), *weeks_in(self.counted.get("weeks")))
        return tuple(
            {
                week.date: week for week in sorted(every, key=lambda week: (week.date, week.days))
            }.values()
        )


def taught_factors(calibration: Body) -> Mapping[str, str]:
    """Of what running jobs taught the factors alone, as a status has them; none where nothing was learned."""
    found = {name: str(one) for name in _TAUGHT if (one := calibration.get(name)) is not None}
    return found if _TAUGHT[0] in found else {}


_LIVE: Final[Mapping[Kind, type[LiveObject]]] = {
    TRAINING_JOB: LiveTrainingJob,
    CLUSTER_PROFILE: LiveProfile,
}


def live(kind: Kind, body: Body) -> LiveObject:
    """An object of a kind, as it stands."""
    return _LIVE.get(kind, LiveObject)(key_of(kind, body), body)
