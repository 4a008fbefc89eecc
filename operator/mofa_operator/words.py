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
    MEMORY_ACCURATE = "MemoryAccurate"
    """The device memory that is seen agrees with what was predicted, and leaves room."""
    LAUNCH_VERIFIED = "LaunchVerified"
    """In mode Apply: the trainer's own checks took such launches in the version that the target
    names, so it may be written; once it runs, its pods are told them."""
    ASSUMPTIONS_HOLD = "AssumptionsHold"
    """The failures that were counted agree with those that the ClusterProfile assumes."""
    NODES_EXCLUSIVE = "NodesExclusive"
    """No other ClusterProfile selects nodes of this one."""
    ACTIVE = "Active"
    """Of an AdmissionCheck of Kueue that names us: Workloads that wait for it are answered."""


OF_JOBS: Final = tuple(
    aspect
    for aspect in Aspect
    if aspect
    not in {Aspect.LAUNCH_VERIFIED, Aspect.ASSUMPTIONS_HOLD, Aspect.NODES_EXCLUSIVE, Aspect.ACTIVE}
)
"""Conditions of every TrainingJob, Ready before the others."""


class Reason(StrEnum):
    """Reasons of conditions; that of Ready also stands in the column REASON."""

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
    NOT_TRAINING = "NotTraining"
    """The object trains no language model; the message says what it is, and by which of its
    words."""
    NOT_APPLICABLE = "NotApplicable"
    """It trains, but on what is not known here: TPUs, Gaudi, Neuron devices, slices of GPUs."""
    FACTS_MISSING = "FactsMissing"
    """The job does not say what the answer needs; the message says which field would."""
    FACTS_DISAGREE = "FactsDisagree"
    """The job's words contradict each other, its annotation, or the profile of its policy."""
    PROFILE_MISSING = "ProfileMissing"
    """The ClusterProfile that the spec names does not exist."""
    DISABLED = "Disabled"
    """The mode is Disabled; nothing of ours stands on the job."""
    ACTIVE = "Active"
    """Of an AdvisorPolicy: it was understood, and applies to the jobs that its status counts."""
    PAUSED = "Paused"
    """The paused annotation is set; what stands, stands."""
    ANNOTATIONS_REFUSED = "AnnotationsRefused"
    """The job was answered, but the API server does not take the annotations; the message says what
    refuses them."""
    QUARANTINED = "Quarantined"
    """The question needs more memory or time than one may have; it is not asked again until it
    changes."""
    INTERNAL_ERROR = "InternalError"
    """The model failed over this question: our fault, not the question's; what stood before still
    stands."""
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
    NODE_NAMES_DIFFER = "NodeNamesDiffer"
    """The series name nodes that the API server does not know, so nothing is counted; what was
    learned before is used."""
    NOT_CONFIGURED = "NotConfigured"
    """The operator was given no Prometheus; advice rests on assumptions."""
    # ConfidenceSufficient
    SUFFICIENT = "Sufficient"
    """Evidence is enough."""
    # ObservationAvailable, PredictionAccurate
    NOT_RUNNING = "NotRunning"
    """No step advances, and nothing says that the job is there: it waits, was suspended, or has
    ended."""
    OBSERVED = "Observed"
    """Throughput was seen."""
    NO_OBSERVATION = "NoObservation"
    """The job runs, but its throughput source says nothing."""
    WITHIN_BAND = "WithinBand"
    """What is seen lies within the predicted band."""
    DRIFTING = "Drifting"
    """What is seen lies outside the predicted band, by more than the drift threshold."""
    STARTING = "Starting"
    """The job is there, and its first step is not due yet."""
    STUCK = "Stuck"
    """The job is there, its trainer is seen, and a step is overdue: the next one, or the first."""
    NOT_SEEN = "NotSeen"
    """The job is there, but no series of its trainer is, though steps were due: whether it trains,
    nobody can say."""
    SERIES_REFUSED = "SeriesRefused"
    """Its series cannot be asked for, or the answer was refused; the message says why."""
    IMPLAUSIBLE = "Implausible"
    """What is seen is more than its devices can do or hold, or far more than what was predicted: it
    is shown, and teaches nothing."""
    # MemoryAccurate
    OUTSIDE_BAND = "OutsideBand"
    """The device memory that is seen lies outside the predicted band."""
    SHORT_OF_MEMORY = "ShortOfMemory"
    """So much of a device is in use that allocators retry: a run slows before it fails."""
    RUNS_ANYWAY = "RunsAnyway"
    """By the model the layout that runs cannot fit, and it runs: the model is wrong here."""
    # LaunchVerified
    VERIFIED = "Verified"
    """The trainer's own checks took such launches in the version that the target names."""
    NOT_VERIFIED = "NotVerified"
    """They were not asked, or the target names no version; its launch is left as it is, and the
    message says what to name."""
    RUNS_ADVISED = "RunsAdvised"
    """It runs, and its pods are told the advised layout."""
    RUNS_OTHER = "RunsOther"
    """It runs, and its pods are told another layout, with which it is compared; the message says
    which."""
    NOT_LAUNCHED = "NotLaunched"
    """There is no advice, no target, or no trainer whose arguments could be written."""
    # ClusterProfile
    NOT_SHARED = "NotShared"
    """No node belongs to another ClusterProfile as well."""
    NODES_SHARED = "NodesShared"
    """Nodes belong to another ClusterProfile as well, so that their failures count in both; the
    message says which."""
    NO_NODES = "NoNodes"
    """No node matches the selector."""
    NO_READY_NODES = "NoReadyNodes"
    """Nodes match, but none of them is ready."""
    NODES_DIFFER = "NodesDiffer"
    """Nodes offer other GPUs than the profile says."""
    NODES_AS_STATED = "NodesAsStated"
    """Nodes are ready, and offer what the profile says."""
    CONSISTENT = "Consistent"
    """Counted failures agree with the assumption."""
    DRIFTS = "Drifts"
    """The rate moved away from the assumption, by no more than it moves from week to week."""
    HIGHER_THAN_ASSUMED = "HigherThanAssumed"
    """More failures were counted than the assumption allows for."""
    LOWER_THAN_ASSUMED = "LowerThanAssumed"
    """Fewer failures were counted than the assumption allows for."""
    INSUFFICIENT_DATA = "InsufficientData"
    """Too little was watched to say either."""


class Health(StrEnum):
    """How a running job does, in one word: `status.health`, the column HEALTH, and the page.

    Empty where none runs, or it starts.
    """

    HEALTHY = "Healthy"
    """Steps advance, and nothing that is seen speaks against the prediction."""
    DRIFTING = "Drifting"
    """Steps advance, and throughput has left the predicted band, or what is seen of throughput or
    device memory cannot be."""
    STUCK = "Stuck"
    """A step is overdue although the job is there and its trainer is seen."""
    NOT_SEEN = "NotSeen"
    """The job is there and should train, and nobody sees its steps."""


class Happened(StrEnum):
    """Reasons of Events."""

    RECOMMENDED = "Recommended"
    """A job was advised for the first time."""
    LOW_CONFIDENCE = "LowConfidence"
    """The same with something that speaks against the advice, which the message names first:
    today's layout may be the better one."""
    RECOMMENDATION_CHANGED = "RecommendationChanged"
    """The inputs have changed, and with them strategy, checkpoint interval or outcome."""
    MODEL_CHANGED = "ModelChanged"
    """Another version of the model answered anew, after an upgrade, and what it advises stays; the
    message says which."""
    NO_FEASIBLE_LAYOUT = "NoFeasibleLayout"
    """No legal strategy fits."""
    INVALID_INPUT = "InvalidInput"
    """The question cannot be answered; the message names the field."""
    HISTORY_UNAVAILABLE = "HistoryUnavailable"
    """The history of a profile cannot be read, or not be used; what was learned before stays."""
    HISTORY_INCOMPLETE = "HistoryIncomplete"
    """The history of a profile has gaps; only what was seen counts."""
    ASSUMPTION_CONTRADICTED = "AssumptionContradicted"
    """Counted failures contradict what the profile assumes."""
    OVERWRITTEN = "Overwritten"
    """Somebody changed what we had written; it was put back."""
    ANNOTATIONS_REFUSED = "AnnotationsRefused"
    """The API server did not take the annotations; the message says what refused them, and why."""
    PREDICTION_DRIFT = "PredictionDrift"
    """A running job left the predicted band."""
    APPLIED_BEFORE_LAUNCH = "AppliedBeforeLaunch"
    """The advised arguments were written into a job that waits in mode Apply; the message says to
    which field."""
    STARTED_AS_ADVISED = "StartedAsAdvised"
    """A job in mode Apply runs, and its pods are told the advised arguments."""
    STARTED_OTHERWISE = "StartedOtherwise"
    """A job in mode Apply runs another layout than the advised one; the message says which, and in
    which pod."""
    APPLY_SKIPPED = "ApplySkippedRunning"
    """The launch of a job in mode Apply was left alone, because it did not wait for it."""
    SIZED = "SizedBeforeAdmission"
    """A job that states no size got one, with its launch arguments, while it waited."""
    GATE_RELEASED = "GateReleased"
    """A job that waited at our gate may start."""
    PROFILE_PROPOSED = "ProfileProposed"
    """The job's ClusterProfile does not exist; the message says how to make one."""
