"""Names that people and other programs see; each reason says what its reader should make of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

MANAGER: Final = "mofa-advisor"
"""Field manager of every write, and source component of every Event."""


class Aspect(StrEnum):
    """Types of conditions."""

    READY = "Ready"
    """The summary: there is an outcome, and it is this one."""
    MODEL_VALID = "ModelValid"
    """The question could be understood."""
    HISTORY_COMPLETE = "HistoryComplete"
    """The failure history behind the advice has no gaps that matter."""
    CONFIDENCE_SUFFICIENT = "ConfidenceSufficient"
    """The advice rests on enough evidence."""
    OBSERVATION_AVAILABLE = "ObservationAvailable"
    """The running job can be seen."""
    PREDICTION_ACCURATE = "PredictionAccurate"
    """What is seen agrees with what was predicted."""


class Reason(StrEnum):
    """Reasons of conditions; those of Ready also stand in `status.readyReason` and the column REASON."""

    # Ready
    RECOMMENDED = "Recommended"
    """Advice, and nothing that speaks against it."""
    LOW_CONFIDENCE = "LowConfidence"
    """Advice, with caveats that the explanation names."""
    PRIOR_DOMINATED = "PriorDominated"
    """Advice whose failure rates are mostly assumption."""
    NO_FEASIBLE_LAYOUT = "NoFeasibleLayout"
    """No legal strategy fits; the rejected counts say why."""
    INVALID_INPUT = "InvalidInput"
    """The spec cannot be right; the message names the field."""
    PROFILE_MISSING = "ProfileMissing"
    """The ClusterProfile that the spec names does not exist."""
    DISABLED = "Disabled"
    """The mode is Disabled; nothing of ours stands on the job."""
    PAUSED = "Paused"
    """The paused annotation is set; what stands, stands."""
    INTERNAL_ERROR = "InternalError"
    """The model failed over this question: our fault, not the question's; what stood before still stands."""
    # ModelValid
    UNDERSTOOD = "Understood"
    """Every field was understood."""
    # HistoryComplete
    COMPLETE = "Complete"
    """Prometheus answered, and covers the window."""
    HISTORY_UNAVAILABLE = "HistoryUnavailable"
    """Prometheus did not answer; what was learned before is used."""
    HISTORY_INCOMPLETE = "HistoryIncomplete"
    """Part of the window has no data; exposure counts only what was seen."""
    SERIES_MISSING = "SeriesMissing"
    """A series that the history needs does not exist; that is not the same as no failures."""
    NO_FAILURES_SEEN = "NoFailuresSeen"
    """The window is covered and holds no failure; the rate comes from the assumption."""
    NOT_CONFIGURED = "NotConfigured"
    """The operator was given no Prometheus; advice rests on assumptions."""
    # ConfidenceSufficient
    SUFFICIENT = "Sufficient"
    """Evidence is enough."""
    # ObservationAvailable, PredictionAccurate
    NOT_RUNNING = "NotRunning"
    """No step series advances and no pod runs: there is nothing to see yet."""
    OBSERVED = "Observed"
    """Throughput was seen."""
    NO_OBSERVATION = "NoObservation"
    """The job runs, but its throughput source says nothing."""
    WITHIN_BAND = "WithinBand"
    """What is seen lies within the predicted band."""
    DRIFTING = "Drifting"
    """What is seen lies outside the predicted band, by more than the drift threshold."""
    # ClusterProfile
    NO_NODES = "NoNodes"
    """No node matches the selector."""
    NO_READY_NODES = "NoReadyNodes"
    """Nodes match, but none of them is ready."""
    NODES_DIFFER = "NodesDiffer"
    """Nodes offer other GPUs than the profile says."""
    NODES_AS_STATED = "NodesAsStated"
    """Nodes are ready, and offer what the profile says."""
    CONSISTENT = "Consistent"
    HIGHER_THAN_ASSUMED = "HigherThanAssumed"
    LOWER_THAN_ASSUMED = "LowerThanAssumed"
    INSUFFICIENT_DATA = "InsufficientData"


class Happened(StrEnum):
    """Reasons of Events."""

    RECOMMENDED = "Recommended"
    RECOMMENDATION_CHANGED = "RecommendationChanged"
    NO_FEASIBLE_LAYOUT = "NoFeasibleLayout"
    INVALID_INPUT = "InvalidInput"
    HISTORY_UNAVAILABLE = "HistoryUnavailable"
    HISTORY_INCOMPLETE = "HistoryIncomplete"
    ASSUMPTION_CONTRADICTED = "AssumptionContradicted"
    PREDICTION_DRIFT = "PredictionDrift"
    APPLIED_BEFORE_LAUNCH = "AppliedBeforeLaunch"
    APPLY_SKIPPED = "ApplySkippedRunning"
    GATE_RELEASED = "GateReleased"
    PROFILE_PROPOSED = "ProfileProposed"
