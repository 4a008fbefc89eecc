"""Objects of the cluster as types: what the API server gives becomes one of these when it comes in,
and nobody walks it again.

    LiveObject         any object: its metadata, its conditions, and itself as it came
    LiveTrainingJob    a TrainingJob: what is read of its spec, and its status
    LiveProfile        a ClusterProfile; its status remembers its pool, its FailureLedger the days

A part is read once, when somebody asks for it. A value that is not as it should be counts as
missing: an object that somebody else wrote must not stop us, and `mofa_model.manifest` says what is
wrong in a spec.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from pydantic import Field, PlainValidator

from mofa_model.annotations import RECORD
from mofa_model.kinds import Kind
from mofa_model.kinds.shape import (
    Body,
    Labels,
    Many,
    Number,
    Shape,
    Text,
    at,
    glance,
    items,
    moment_of,
    part,
    text_of,
    under,
)
from mofa_model.manifest.advised import FIGURES
from mofa_model.manifest.cluster_profile import EXPORTERS
from mofa_model.manifest.failure_history import evidence_in
from mofa_model.spec.account import NodeTime
from mofa_model.spec.evidence import ByClass, DatedEvidence, FailureEvidence
from mofa_model.units import Range
from mofa_operator.evidence import (
    Day,
    Forecast,
    JobEvidence,
    account_of,
    days_in,
    forecasts_in,
    weeks_in,
)
from mofa_operator.keys import CLUSTER_PROFILE, TRAINING_JOB, Key, key_of, target_of

_CONDITION: Final = ("type", "status", "reason", "message", "lastTransitionTime")
_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z", re.ASCII)


def figure(value: object) -> float | None:
    """A number, or a text that is one, which can be shown; None where it is none."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and abs(number) < 1e15 else None


def seconds(written: object) -> float | None:
    """The moment behind a text as we and the API server write it, in seconds of the epoch; None
    where it is none. [s]

    >>> seconds("1970-01-01T00:01:00Z")
    60.0
    """
    return moment_of(written) if _MOMENT.fullmatch(text_of(written)) else None


def texts(value: object) -> dict[str, str]:
    """Texts by name; other values are left out."""
    return {name: text for name, text in part(value).items() if isinstance(text, str)}


def _names(value: object) -> tuple[str, ...]:
    names = value if isinstance(value, list | tuple) else ()
    return tuple(name for name in names if isinstance(name, str) and name) or EXPORTERS


def _ratio(value: object) -> float | None:
    return ratio if (ratio := figure(value)) is not None and 0 < ratio < 1e6 else None


def generation(value: object) -> int | None:
    """Generation of a spec; None where it cannot be one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _range(value: object) -> Range | None:
    """A figure (`target` or `mean`) with its bounds; None where one of them is missing."""
    fields = part(value)
    middle = figure(fields.get("target"))
    target = figure(fields.get("mean")) if middle is None else middle
    lower, upper = figure(fields.get("lower")), figure(fields.get("upper"))
    if lower is None or target is None or upper is None:
        return None
    return Range(lower=lower, target=target, upper=upper)


def predicted_ranges(value: object) -> dict[str, Range]:
    """Complete predicted figures, by the fields of an answer's `Predicted`."""
    figures = part(value)
    return {
        figure.field: figure_range.times(1 / figure.scale)
        for figure in FIGURES
        if figure.field != "duration_seconds"  # it is of the job's tokens, not of the layout
        and (figure_range := _range(figures.get(figure.key))) is not None
    }


Names: TypeAlias = Annotated[tuple[str, ...], PlainValidator(_names)]
"""Namespaces; the usual ones where none is named."""
Figure: TypeAlias = Annotated[float | None, PlainValidator(figure)]
"""A number of a status, as number or as text. [1]"""
Ratio: TypeAlias = Annotated[float | None, PlainValidator(_ratio)]
"""A ratio that can be: above zero, and below a million. [1]"""
Ranges: TypeAlias = Annotated[dict[str, Range], PlainValidator(predicted_ranges)]
"""Predicted figures by name."""
Stamp: TypeAlias = Annotated[float | None, PlainValidator(seconds)]
"""A moment, in seconds of the epoch. [s]"""


class ConditionRow(NamedTuple):
    """A condition as it stands."""

    type: str
    """Which aspect."""
    status: str
    """Whether it holds."""
    reason: str
    """Why, in one word."""
    message: str
    """Why, in one sentence."""
    since: str
    """When the status last changed."""


class JobSpec(Shape):
    """What of a TrainingJob's spec is read beside the question."""

    mode: Text = ""
    profile: Text = under("", "cluster", "profile")
    config_map: Text = under("", "model", "configMapRef", "name")
    config_key: Text = under("", "model", "configMapRef", "key")
    target_version: Text = under("", "targetRef", "apiVersion")
    target_kind: Text = under("", "targetRef", "kind")
    target_name: Text = under("", "targetRef", "name")
    objective: Figure = under(None, "slo", "ettr")
    preset: Text = under("", "throughput", "preset")
    matchers: Labels = under({}, "throughput", "matchers")


class Chances(Shape):
    """Chances of a layout, as a status states them."""

    fits: Figure = None
    beats: Figure = None


class _Current(Shape):
    strategy: Text = ""
    predicted: Ranges = Field(default_factory=dict)


class _Loss(Shape):
    cause: Text = ""
    seconds: Figure = None


class _Interrupted(Shape):
    name: Text = ""
    cause: Text = ""
    count: Figure = None


class ObservedFigures(Shape):
    """Figures of `status.observed`."""

    source: Text = ""
    tokens_per_second: Figure = None
    step_milliseconds: Figure = None
    checkpoint_interval_seconds: Figure = None
    ettr: Figure = None
    residual: Figure = None
    memory_bytes: Figure = None
    memory_source: Text = ""
    interruptions: Figure = None
    losses: Many[_Loss] = under((), "lost")
    interruptions_by: Many[_Interrupted] = ()
    since: Text = ""
    time: Stamp = None
    life: Text = ""

    @property
    def lost(self) -> float:
        """Lost time, whatever it went into. [s]"""
        return sum(loss.seconds or 0.0 for loss in self.losses)


class _UsedRate(Shape):
    name: Text = ""
    recovery_seconds: Figure = None


class JobStatus(Shape):
    """The status of a TrainingJob: what stands, and what an answer says."""

    inputs_hash: Text = ""
    model_version: Text = ""
    computed_time: Text = ""
    health: Text = ""
    strategy: Text = under("", "recommendation", "strategy", "text")
    summary: Text = under("", "recommendation", "summary")
    odds: Chances = under(Chances(), "recommendation", "odds")
    interval: Figure = under(None, "recommendation", "checkpointIntervalSeconds")
    current: _Current | None = None
    observed: ObservedFigures = ObservedFigures()
    nodes: Figure = under(None, "inputs", "nodes")
    learned: Ratio = under(None, "inputs", "learned")
    learned_memory: Ratio = under(None, "inputs", "learnedMemory")
    learned_spread: Ratio = under(None, "inputs", "learnedSpread")
    rates: Many[_UsedRate] = under((), "inputs", "failure")


class _Counted(Shape):
    name: Text = ""
    failures: Figure = None
    exposure_node_days: Figure = None
    window_seconds: Figure = None
    coverage_percent: Figure = 100.0
    recovery_seconds: Figure = None
    present_failures: Figure = None
    present_node_days: Figure = None
    assumed: Figure = None
    rate: Annotated[Range | None, PlainValidator(_range)] = None
    verdict: Text = ""


class _Taught(Shape):
    job: Text = ""
    ratio: Ratio = under(None, "stepTimeRatio")
    memory_ratio: Ratio = None
    time: Stamp = None


class _Calibration(Shape):
    ratio: Ratio = under(None, "stepTimeRatio")
    step_time_ratio: Text = ""
    memory_ratio: Ratio = None
    jobs: Figure = None
    time: Stamp = None
    moved_time: Stamp = None
    evidence: Many[_Taught] = ()

    @property
    def taught(self) -> list[JobEvidence]:
        """What each job taught; a row that cannot be read taught nothing."""
        return [
            JobEvidence(
                job=row.job,
                log_ratio=math.log(row.ratio),
                log_memory=None if row.memory_ratio is None else math.log(row.memory_ratio),
                at=row.time,
            )
            for row in self.evidence
            if row.ratio is not None and row.time is not None
        ]


class _Helpful(Shape):
    change: Text = ""
    gained: Annotated[Range | None, PlainValidator(_range)] = None
    says: Text = ""


class Helps(Shape):
    """What would have helped a pool, as its status has it."""

    outcome: Text = ""
    doubt: Text = ""
    days: Figure = None
    paid: Figure = under(None, "paidGpuHours")
    effective: Figure = under(None, "effectiveGpuHours")
    changes: Many[_Helpful] = ()
    time: Stamp = None


class PoolStatus(Shape):
    """The status of a ClusterProfile, without its days."""

    total: Figure = under(None, "nodes", "total")
    ready: Figure = under(None, "nodes", "ready")
    steady: Figure = under(None, "nodes", "steady")
    since: Text = under("", "nodes", "since")
    generation: Figure = under(None, "observedGeneration")
    assumed: Text = under("", "total", "assumed")
    observed: Text = under("", "total", "observed")
    coverage_percent: Figure = under(None, "total", "coveragePercent")
    rows: Many[_Counted] = under((), "failures")
    evidence: Annotated[ByClass, PlainValidator(evidence_in)] = under({}, "failures")
    history_time: Text = ""
    calibration: _Calibration = _Calibration()
    residual: Text = ""
    what_would_help: Helps = Helps()

    @property
    def present(self) -> ByClass:
        """What the past was worth when it was written, by recovery class."""
        return {
            row.name: FailureEvidence(failures=failures, node_days=node_days)
            for row in self.rows
            if (failures := row.present_failures) is not None
            and (node_days := row.present_node_days) is not None
        }


class PoolSpec(Shape):
    """Which nodes are a ClusterProfile's, and where its series are."""

    node_selector: Labels = Field(default_factory=dict)
    matchers: Labels = under({}, "prometheus", "matchers")
    shortest_outage: Number = under(0.0, "incidents", "shortestOutageSeconds")
    exporters: Names = under(EXPORTERS, "prometheus", "exporterNamespaces")
    tokens_query: Text = under("", "prometheus", "tokensQuery")
    step_query: Text = under("", "prometheus", "stepQuery")


WrittenPart: TypeAlias = dict[str, Any]
"""A part of an object as it is to be written."""
FOREIGN: Final = "foreign"
"""Key in a stored body's metadata: fields of ours that somebody else wrote, and who."""
UNREAD: Final = "unread"
"""Part of a body of which the metadata alone were read or kept: why."""
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
    def created(self) -> float | None:
        """When the object was created, in seconds of the epoch. [s]"""
        return seconds(at(self.body, "metadata", "creationTimestamp"))

    @property
    def trains(self) -> Key:
        """The job whose pods train: itself, or the one that a TrainingJob speaks for."""
        return self.key

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
        """Our annotations and `STATUS` that somebody else wrote, and who; empty = unknown."""
        return texts(at(self.body, "metadata", FOREIGN))

    @property
    def owners(self) -> frozenset[str]:
        """Objects that made it, by uid."""
        references = items(at(self.body, "metadata", "ownerReferences"))
        return frozenset(text_of(reference.get("uid")) for reference in references)

    @cached_property
    def conditions(self) -> tuple[ConditionRow, ...]:
        """Conditions of its status."""
        return tuple(
            ConditionRow(*(text_of(row.get(name)) for name in _CONDITION))
            for row in items(at(self.body, "status", "conditions"))
        )

    def condition(self, type_: str) -> ConditionRow | None:
        """The condition of a type; None where it has none."""
        return next((row for row in self.conditions if row.type == type_), None)

    @property
    def record(self) -> str:
        """The record of a run that stands on a job."""
        return self.annotations.get(RECORD, "")

    @property
    def standing(self) -> object:
        """Its status as it stands, to be held against the one that is wanted."""
        return self.body.get("status")

    def kept(self, *names: str) -> WrittenPart:
        """Parts of its status as they stand, to be written again; all of it where none is named."""
        status = part(self.body, "status")
        return {name: status[name] for name in names or status if name in status}

    def holds(self, path: tuple[str, ...]) -> bool:
        """Whether it says true at the end of a path; never at the end of none."""
        return bool(path) and at(self.body, *path) is True


class LiveTrainingJob(LiveObject):
    """A TrainingJob as it stands."""

    @cached_property
    def spec(self) -> JobSpec:
        """What is read of its spec beside the question."""
        return glance(JobSpec, self.body.get("spec"))

    @cached_property
    def status(self) -> JobStatus:
        """Its status."""
        return glance(JobStatus, self.body.get("status"))

    @property
    def predicted(self) -> dict[str, Range]:
        """What its status predicts of the advised layout."""
        return predicted_ranges(part(self.body, "status", "recommendation").get("predicted"))

    @cached_property
    def target(self) -> Key | None:
        """The job that its targetRef names, where it is of a kind that can be annotated."""
        spec, namespace = self.spec, self.key.namespace
        return target_of(namespace, spec.target_version, spec.target_kind, spec.target_name)

    @property
    def trains(self) -> Key:
        """The job that its targetRef names, else itself."""
        return self.target or self.key

    @property
    def observed(self) -> WrittenPart:
        """`status.observed` as it stands, without what version 0.1.0 kept there for itself."""
        status = part(self.body, "status", "observed")
        return {name: value for name, value in status.items() if name != "life"}

    @property
    def objective(self) -> float | None:
        """Least acceptable effective training time ratio. [1]"""
        share = self.spec.objective
        return share if share is not None and 0 < share <= 1 else None

    @property
    def names_a_target(self) -> bool:
        """Whether it has a targetRef, of whatever kind."""
        return bool(part(self.body, "spec", "targetRef"))

    @property
    def record(self) -> str:
        """The record of its run, also where version 0.1.0 kept it; empty where there is none."""
        return super().record or self.status.observed.life


@dataclass(frozen=True)
class LiveProfile(LiveObject):
    """A ClusterProfile as it stands, with its ledger.

    Version 0.1.0 kept days and weeks in the profile's status. What stands there counts until the
    ledger was written after it.
    """

    ledger: LiveObject | None = None
    """The FailureLedger of its name, as it stands; None where there is none."""

    @cached_property
    def spec(self) -> PoolSpec:
        """Which nodes are its own, and where its series are."""
        return glance(PoolSpec, self.body.get("spec"))

    @cached_property
    def status(self) -> PoolStatus:
        """Its status."""
        return glance(PoolStatus, self.body.get("status"))

    @property
    def calibration(self) -> WrittenPart:
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
    def unmoved(self) -> WrittenPart:
        """Days and weeks of its own status that its ledger does not hold yet."""
        old = self.kept("days", "weeks")
        written, learned = seconds(self.counted.get("time")), seconds(self.status.history_time)
        return old if written is None or (learned is not None and learned > written) else {}

    @cached_property
    def days(self) -> tuple[Day, ...]:
        """Evidence by day; of two entries of a witness for a day, the one that covers more."""
        days = (*days_in(self.unmoved.get("days")), *days_in(self.counted.get("days")))
        days_sorted = sorted(days, key=lambda day: (day.date, day.witness, day.covered))
        return tuple({(day.date, day.witness): day for day in days_sorted}.values())

    @cached_property
    def account(self) -> tuple[NodeTime, ...]:
        """Where the node-time of its days went: the one account that metrics and pages show."""
        return account_of(self.days)

    @cached_property
    def forecasts(self) -> tuple[Forecast, ...]:
        """Forecasts of its weeks, with what came."""
        return forecasts_in(self.counted.get("forecasts"))

    @cached_property
    def weeks(self) -> tuple[DatedEvidence, ...]:
        """Evidence by week, before these days; of two entries, the one that covers more."""
        weeks = (*weeks_in(self.unmoved.get("weeks")), *weeks_in(self.counted.get("weeks")))
        weeks_sorted = sorted(weeks, key=lambda week: (week.date, week.days))
        return tuple({week.date: week for week in weeks_sorted}.values())


def taught_factors(calibration: Body) -> Mapping[str, str]:
    """The factors that running jobs taught, as a status has them; none where none."""
    factors = {
        name: str(calibration[name]) for name in _TAUGHT if calibration.get(name) is not None
    }
    return factors if _TAUGHT[0] in factors else {}


_LIVE: Final[Mapping[Kind, type[LiveObject]]] = {
    TRAINING_JOB: LiveTrainingJob,
    CLUSTER_PROFILE: LiveProfile,
}


def live(kind: Kind, body: Body) -> LiveObject:
    """An object of a kind, as it stands."""
    return _LIVE.get(kind, LiveObject)(key_of(kind, body), body)
