"""What is read of objects: parts of their metadata, of specs and of statuses, each declared as a type.

What is not as it should be counts as nothing: an object that somebody else wrote must not stop us, and what it says wrong of a spec
is answered by `mofa_model.manifest`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple, TypeAlias

from pydantic import Field, PlainValidator
from pydantic.alias_generators import to_snake

from mofa_model.kinds.shape import Labels, Many, Number, Shape, Text, moment_of, text_of, under
from mofa_model.manifest.advised import FIGURES
from mofa_model.manifest.cluster_profile import EXPORTERS
from mofa_model.manifest.failure_history import evidence_in
from mofa_model.spec.evidence import ByClass, FailureEvidence
from mofa_model.units import Range
from mofa_operator.evidence import JobEvidence

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
    """The moment behind a text as we and the API server write it, in seconds of the epoch; None where it is none. [s]

    >>> seconds("1970-01-01T00:01:00Z")
    60.0
    """
    return moment_of(written) if _MOMENT.fullmatch(text_of(written)) else None


def texts(value: object) -> dict[str, str]:
    """Texts by name; what is none is left out."""
    named = value if isinstance(value, dict) else {}
    return {key: one for key, one in named.items() if isinstance(one, str)}


def _names(value: object) -> tuple[str, ...]:
    many = value if isinstance(value, list | tuple) else ()
    return tuple(one for one in many if isinstance(one, str) and one) or EXPORTERS


def _ratio(value: object) -> float | None:
    return found if (found := figure(value)) is not None and 0 < found < 1e6 else None


def generation(value: object) -> int | None:
    """Generation of a spec; None where it cannot be one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


Names: TypeAlias = Annotated[tuple[str, ...], PlainValidator(_names)]
"""Namespaces; the usual ones where none is named."""
Figure: TypeAlias = Annotated[float | None, PlainValidator(figure)]
"""A number of a status, as number or as text. [1]"""
Ratio: TypeAlias = Annotated[float | None, PlainValidator(_ratio)]
"""A ratio that can be: above zero, and below a million. [1]"""
Stamp: TypeAlias = Annotated[float | None, PlainValidator(seconds)]
"""A moment, in seconds of the epoch. [s]"""


class StandingCondition(NamedTuple):
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


def condition(row: Mapping[str, object]) -> StandingCondition:
    """A row of a status as a condition."""
    return StandingCondition(*(text_of(row.get(name)) for name in _CONDITION))


class AskedJob(Shape):
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


class Ends(Shape):
    """A figure with its bounds; `target` of a prediction, `mean` of a rate."""

    lower: Figure = None
    target: Figure = None
    mean: Figure = None
    upper: Figure = None

    @property
    def band(self) -> Range | None:
        """The figure with its bounds; None where one of them is missing."""
        middle = self.mean if self.target is None else self.target
        if self.lower is None or middle is None or self.upper is None:
            return None
        return Range(lower=self.lower, target=middle, upper=self.upper)


class PredictedEnds(Shape):
    """What a layout is expected to do."""

    tokens_per_second: Ends = Ends()
    ettr: Ends = Ends()
    step_milliseconds: Ends = Ends()
    mfu: Ends = Ends()
    memory_bytes: Ends = Ends()

    @property
    def figures(self) -> dict[str, Range]:
        """Ranges by the fields of an answer's `Predicted`; those of which nothing is missing."""
        return {
            figure.field: ends.band.times(1 / figure.scale)
            for figure in FIGURES
            if (ends := getattr(self, to_snake(figure.key), None)) is not None and ends.band
        }


class StatedOdds(Shape):
    """Chances of a layout, as a status states them."""

    fits: Figure = None
    beats: Figure = None


class _Current(Shape):
    strategy: Text = ""
    predicted: PredictedEnds = PredictedEnds()


class _Loss(Shape):
    cause: Text = ""
    seconds: Figure = None


class _Interrupted(Shape):
    name: Text = ""
    cause: Text = ""
    count: Figure = None


class ShownFigures(Shape):
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
        return sum(one.seconds or 0.0 for one in self.losses)


class _UsedRate(Shape):
    name: Text = ""
    recovery_seconds: Figure = None


class AdvisedStatus(Shape):
    """The status of a TrainingJob: what stands, and what an answer says."""

    inputs_hash: Text = ""
    model_version: Text = ""
    computed_time: Text = ""
    health: Text = ""
    strategy: Text = under("", "recommendation", "strategy", "text")
    summary: Text = under("", "recommendation", "summary")
    odds: StatedOdds = under(StatedOdds(), "recommendation", "odds")
    interval: Figure = under(None, "recommendation", "checkpointIntervalSeconds")
    current: _Current | None = None
    observed: ShownFigures = ShownFigures()
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
    rate: Ends = Ends()
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
        """What each job taught; what cannot be read taught nothing."""
        return [
            JobEvidence(
                job=one.job,
                log_ratio=math.log(one.ratio),
                log_memory=None if one.memory_ratio is None else math.log(one.memory_ratio),
                at=one.time,
            )
            for one in self.evidence
            if one.ratio is not None and one.time is not None
        ]


class LearnedStatus(Shape):
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

    @property
    def present(self) -> ByClass:
        """What the past was worth when it was written, by recovery class."""
        return {
            row.name: FailureEvidence(
                failures=row.present_failures, node_days=row.present_node_days
            )
            for row in self.rows
            if row.present_failures is not None and row.present_node_days is not None
        }


class AskedPool(Shape):
    """Which nodes are a ClusterProfile's, and where its series are."""

    node_selector: Labels = Field(default_factory=dict)
    matchers: Labels = under({}, "prometheus", "matchers")
    shortest_outage: Number = under(0.0, "incidents", "shortestOutageSeconds")
    exporters: Names = under(EXPORTERS, "prometheus", "exporterNamespaces")
    tokens_query: Text = under("", "prometheus", "tokensQuery")
    step_query: Text = under("", "prometheus", "stepQuery")
