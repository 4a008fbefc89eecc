"""Every metric that we export, in one table, with the function that reads its value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeAlias

from mofa_model.spec.account import NodeState, capacity, node_days_lost, summed
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_operator.decision import JobFigures, PoolFigures
from mofa_operator.evidence import bands_held, miscalibrated
from mofa_operator.incidents.incident import PHASES
from mofa_operator.metrics.counts import RECOVERY_BUCKETS, Distribution, JobCounters
from mofa_operator.objects import figure


class Type(StrEnum):
    """Types of metrics; each value is the word of the exposition format."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"


class Loop(StrEnum):
    """Values of the label `loop`: what must succeed again and again."""

    RECONCILE = "reconcile"
    """An object was decided on and written; stands still while there is nothing to do."""
    HISTORY = "history"
    """Prometheus answered for a profile; exported only where a Prometheus is configured."""
    SIGHTINGS = "sightings"
    """Running jobs were looked at; exported from the first look on."""
    WITNESS = "witness"
    """Nodes and objects of jobs were looked at, for what the watch alone sees."""
    RESYNC = "resync"
    """Every kind was listed anew; due every `loop.resync`, whether anything happens or not."""


class Gate(StrEnum):
    """Values of the label `outcome` of waits at the gate."""

    RELEASED = "released"
    """Advice was written, and the job let go."""
    UNADVISED = "unadvised"
    """There was nothing to write, or it was refused, and the job let go without advice; an Event
    says why."""
    EXPIRED = "expired"
    """The longest wait was over, and the job let go without advice."""


Value: TypeAlias = float | Distribution | Mapping[Any, "float | Distribution | None"] | None
"""Value of a metric: a number or a histogram, or those by its own labels (one, or a tuple of
several); None = no series."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricSpec:
    """Declaration of one metric."""

    name: str
    """Name of its series; a histogram's get _bucket, _sum and _count on top."""
    type: Type
    """Its type."""
    labels: tuple[str, ...] = ()
    """Its labels, the object's first."""
    help: str
    """What it says, in one sentence."""
    unit: str
    """Its unit; 1 for pure numbers."""
    buckets: tuple[float, ...] = ()
    """Upper edges of a histogram's buckets, without the last, which is infinite."""
    read: Callable[..., Value] | None = None
    """Reads its value: of a pool from its figures, of a job from its figures and its counters; None
    where the operator counts it itself."""

    @property
    def family(self) -> str:
        """Name of the family: without the suffix that a client library adds."""
        suffix = {Type.COUNTER: "_total", Type.INFO: "_info"}.get(self.type, "")
        return self.name.removesuffix(suffix)

    @property
    def series(self) -> tuple[str, ...]:
        """Names of the series that a query can name."""
        if self.type is not Type.HISTOGRAM:
            return (self.name,)
        return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))


JOB: Final = ("training_namespace", "training_job", "training_kind")
"""Labels of every mofa_job_ series; never job, namespace or instance, which scraping sets."""
AXES: Final = ("tp", "pp", "cp", "ep", "dp", "vpp", "mbs")
"""Axes of a strategy that are labels of its info series."""
DECISION_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
GATE_BUCKETS: Final = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


def _row(
    type_: Type,
    name: str,
    labels: tuple[str, ...],
    unit: str,
    text: str,
    read: Callable[..., Value] | None = None,
    buckets: tuple[float, ...] = (),
) -> MetricSpec:
    return MetricSpec(
        name=name, type=type_, labels=labels, unit=unit, help=text, read=read, buckets=buckets
    )


_gauge, _counter, _histogram, _info = (partial(_row, type_) for type_ in Type)


def _rates(figures: PoolFigures) -> Value:
    """Posterior failure rates by class and bound. [1/d]"""
    return {
        (rate.name, bound): value
        for rate in figures.rates
        for bound, value in (("lower", rate.lower), ("mean", rate.mean), ("upper", rate.upper))
    }


def _recoveries(figures: PoolFigures) -> Value:
    """Recovery times by class and bound. [s]"""
    return {
        (name, bound): value
        for name, time in figures.recovery.items()
        for bound, value in (("lower", time.lower), ("mean", time.target), ("upper", time.upper))
    }


def _effective(figures: PoolFigures) -> float | None:
    """Share of a pool's node-time that became lasting training. [1]"""
    whole = capacity(figures.account)
    kept = sum(row.node_days for row in figures.account if row.state is NodeState.KEPT)
    return kept / whole if whole else None


def _week_ahead(figures: PoolFigures) -> Value:
    """Today's forecast of the pool, by percentile. [1]"""
    forecasts = [forecast for forecast in figures.forecasts if not forecast.job]
    if not forecasts:
        return None
    ettr = max(forecasts, key=lambda forecast: forecast.date).ettr
    return {"p10": ettr.lower, "p50": ettr.target, "p90": ettr.upper}


def _helps(figures: PoolFigures) -> Value:
    """GPU-hours that the best changes would have gained, by change and bound. [h]"""
    return {
        (row.change, bound): value
        for row in figures.snapshot.profile.status.what_would_help.changes
        if row.gained is not None
        for bound, value in asdict(row.gained).items()
    }


def _spent(figures: PoolFigures) -> Value:
    """Node-days by state. [d]"""
    return {row.state.value: row.node_days for row in summed(figures.account)}


def _predicted(name: str) -> Callable[..., Value]:
    """A reader of a prediction with its bounds; None where there is none."""

    def read(figures: JobFigures, _: JobCounters) -> Value:
        band = figures.predicted.get(name)
        return None if band is None else asdict(band)

    return read


def _seen(name: str) -> Callable[..., Value]:
    """A reader of one figure of a running job; None where it does not run."""
    return lambda figures, _: getattr(figures.running, name, None)


def _strategy(figures: JobFigures, _: JobCounters) -> Value:
    """The advised strategy, all of it in the labels."""
    if not figures.strategy:
        return None
    return {(figures.profile, *(figures.strategy.get(axis, "") for axis in AXES)): 1.0}


BOUND: Final = (*JOB, "bound")
CLASS: Final = ("pool", "class")

JOBS: Final = (
    _gauge("mofa_job_predicted_tokens_per_second", BOUND, "1/s",
        "Tokens per second that the advised strategy should reach while it runs; bound is lower, "
        "target or upper.",
        _predicted("tokens_per_second")),
    _gauge("mofa_job_predicted_step_seconds", BOUND, "s",
        "Time that an optimizer step of the advised strategy "
        "should take; bound is lower, target or upper.",
        _predicted("step_seconds")),
    _gauge("mofa_job_predicted_ettr_ratio", BOUND, "1",
        "Effective training time ratio that the advice expects; bound is lower, target or upper.",
        _predicted("ettr")),
    _gauge("mofa_job_predicted_mfu_ratio", BOUND, "1",
        "Model FLOPs utilisation that the advice expects; bound is lower, target or upper.",
        _predicted("mfu")),
    _gauge("mofa_job_predicted_memory_bytes", BOUND, "B",
        "Peak device memory of the fullest stage that the advice "
        "expects; bound is lower, target or upper.",
        _predicted("memory_bytes")),
    _gauge("mofa_job_odds_ratio", (*JOB, "outcome"), "1",
        "Chance by measured runs that the advised strategy fits the devices (outcome fits), or is "
        "better than today's layout (outcome beats; only where spec.current says one).",
        lambda f, _: {"fits": f.chances.fits, "beats": f.chances.beats}),
    _gauge("mofa_job_observed_tokens_per_second", (*JOB, "source"), "1/s",
        "Tokens per second of the whole job, as its throughput source says; source names it.",
        lambda f, _: f.running and {f.running.source: f.running.tokens_per_second}),
    _gauge("mofa_job_observed_memory_bytes", JOB, "B",
        "Most device memory in use on one of the job's devices, as the DCGM exporter says of its "
        "pods; without that what the trainer's allocator reserved.",
        _seen("memory_bytes")),
    _gauge("mofa_job_memory_limit_bytes", (*JOB, "limit"), "B",
        "Device memory above which a running job is worth a look: the upper end of the predicted "
        "band of the layout that runs (limit prediction), and from where on an allocator that "
        "runs short slows it (limit device). None while what is seen cannot be.",
        lambda f, _: f.memory_limits),
    _gauge("mofa_job_observed_step_seconds", JOB, "s",
        "Time of an optimizer step, as observed.",
        _seen("step_seconds")),
    _gauge("mofa_job_observed_step", JOB, "1",
        "Last finished optimizer step that was seen of a running job.",
        lambda f, c: f.running and c.last_step),
    _gauge("mofa_job_last_step_timestamp_seconds", JOB, "s",
        "When the last finished step of a running job was last "
        "seen to change, in seconds of the epoch.",
        lambda f, c: f.running and c.stepped_at),
    _gauge("mofa_job_step_due_timestamp_seconds", JOB, "s",
        "Until when the next step of a job that is there is due, the first one included, in "
        "seconds of the epoch; after that it is stuck. Only where steps would be seen.",
        lambda f, _: f.step_due),
    _gauge("mofa_job_should_train", JOB, "1",
        "1 while a job should make steps that would be seen: its pods have nodes, and it is "
        "neither suspended nor over; 0 while it waits, or nobody can see its steps.",
        lambda f, _: None if f.should_train is None else float(f.should_train)),
    _gauge("mofa_job_observed_ettr_ratio", JOB, "1",
        "Effective training time ratio since the job was first seen, of the time in which it "
        "should train: what it waits in a queue or is suspended is left out.",
        _seen("ettr")),
    _gauge("mofa_job_ettr_objective_ratio", JOB, "1",
        "Least acceptable effective training time ratio: spec.slo.ettr of the TrainingJob.",
        lambda f, _: f.objective_ettr),
    _gauge("mofa_job_throughput_residual_ratio", JOB, "1",
        "Observed over predicted tokens per second of the layout that runs, minus one.",
        lambda f, _: f.residual),
    _gauge("mofa_job_checkpoint_interval_seconds", (*JOB, "source"), "s",
        "Time between checkpoints; source is recommended or observed.",
        lambda f, _: {
            "recommended": f.checkpoint_interval,
            "observed": getattr(f.running, "checkpoint_interval", None),
        }),
    _counter("mofa_job_interruptions_total", (*JOB, "class", "cause"), "1",
        f"Interruptions seen, by recovery class ({', '.join(RecoveryClass)}) and cause (failure, "
        "preemption, eviction).",
        lambda _, c: c.interruptions),
    _histogram("mofa_job_recovery_seconds", (*JOB, "class"), "s",
        "Time of finished recoveries, by recovery class.",
        lambda _, c: c.recoveries, RECOVERY_BUCKETS),
    _counter("mofa_job_lost_seconds_total", (*JOB, "cause"), "s",
        "Time in which the job itself stood still or trained again what it had lost, by cause, "
        "since it is watched; not the node-time of mofa_pool_lost_node_days.",
        lambda _, c: c.lost),
    _info("mofa_job_strategy_info", (*JOB, "pool", *AXES), "1",
        "The advised strategy, axis by axis, and the ClusterProfile that it is for.",
        _strategy),
)  # fmt: skip
"""Metrics of one job each; a series ends with its job."""

POOLS: Final = (
    _gauge("mofa_pool_nodes", ("pool",), "1",
        "Nodes that match the profile's selector.",
        lambda f: f.snapshot.node_count.total),
    _gauge("mofa_pool_ready_nodes", ("pool",), "1",
        "Nodes of the profile that are ready and not cordoned.",
        lambda f: f.snapshot.node_count.ready),
    _gauge("mofa_pool_member", ("pool", "node"), "1",
        "1 for every node of the profile: the series that rules and dashboards join on.",
        lambda f: dict.fromkeys(f.snapshot.node_count.names, 1.0)),
    _gauge("mofa_pool_assumed_failures_per_node_day", CLASS, "1/d",
        "Failures per node and day that the profile assumes, by recovery class.",
        lambda f: {rate.name: rate.assumed for rate in f.rates}),
    _gauge("mofa_pool_failures_per_node_day", (*CLASS, "bound"), "1/d",
        "Failures per node and day after history and assumption "
        "are blended; bound is lower, mean or upper.",
        _rates),
    _gauge("mofa_pool_exposure_node_days", ("pool",), "d",
        "Node-days of history in which a failure would have been seen.",
        lambda f: f.history and f.history.node_days),
    _gauge("mofa_pool_verdict", (*CLASS, "verdict"), "1",
        "1 for the verdict that history gives on the assumption: Consistent, Drifts, "
        "HigherThanAssumed, LowerThanAssumed or InsufficientData.",
        lambda f: {(rate.name, rate.verdict.value): 1.0 for rate in f.rates}),
    _gauge("mofa_pool_contradiction_ratio", CLASS, "1",
        "Evidence that the assumption is wrong over what that verdict needs, by recovery class "
        "and of their total; at 1 the verdict turns.",
        lambda f: {rate.name: rate.evidence for rate in f.rates}),
    _gauge("mofa_pool_recovery_seconds", (*CLASS, "bound"), "s",
        "Recovery time by recovery class; bound is lower, mean or upper.",
        _recoveries),
    _gauge("mofa_pool_recovery_phase_seconds", ("pool", "phase"), "s",
        "Median time of a phase of the recovery of jobs in the history window, where it was "
        f"seen; phase is {', '.join(PHASES)}.",
        lambda f: f.reading and f.reading.phases),
    _gauge("mofa_pool_node_days", ("pool", "state"), "d",
        "Node-days of the days in the FailureLedger, by what the nodes were good for; they add up "
        f"to the capacity; state is {', '.join(NodeState)}.",
        _spent),
    _gauge("mofa_pool_lost_node_days", ("pool", "cause"), "d",
        "Node-days of these that were neither kept nor idle, by the cause of the incident; "
        "docs/incidents.md lists them.",
        lambda f: node_days_lost(f.account)),
    _gauge("mofa_pool_effective_ratio", ("pool",), "1",
        "Node-time of the days in the FailureLedger that trained and was kept, "
        "of all that was paid.",
        _effective),
    _gauge("mofa_pool_would_help_gpu_hours", ("pool", "change", "bound"), "h",
        "GPU-hours that one change would have gained in the window, by the last daily replay of "
        "the pool's own account: of the best five at most; bound is lower, target or upper.",
        _helps),
    _gauge("mofa_pool_forecast_ettr_ratio", ("pool", "percentile"), "1",
        "Share of the time held that jobs of the pool will keep in the seven days from today, by "
        "today's forecast.",
        _week_ahead),
    _gauge("mofa_pool_forecast_held_ratio", ("pool", "of"), "1",
        "Of the forecasts that ended in the last sixty days, the share whose 80 % band held: of "
        "ettr and of interruptions.",
        lambda f: {name: band.share for name, band in bands_held(f.forecasts).items()}),
    _gauge("mofa_pool_forecast_miscalibrated", ("pool",), "1",
        "1 where the bands of ETTR hold less or more often than chance allows, else 0.",
        lambda f: float(miscalibrated(f.forecasts) is not None) if f.forecasts else None),
    _gauge("mofa_pool_history_coverage_ratio", ("pool",), "1",
        "Share of the history window for which there is data.",
        lambda f: f.history and f.history.coverage),
    _gauge("mofa_pool_prior_weight_ratio", CLASS, "1",
        "Share of the failure rate that is assumption and not history, by recovery class.",
        lambda f: {rate.name: rate.prior_weight for rate in f.rates}),
    _gauge("mofa_pool_calibration_ratio", ("pool",), "1",
        "Observed over predicted step time that running jobs of the profile taught.",
        lambda f: figure(f.calibration.get("stepTimeRatio"))),
    _gauge("mofa_pool_memory_calibration_ratio", ("pool",), "1",
        "Observed over predicted peak of device memory that running jobs of the profile taught.",
        lambda f: figure(f.calibration.get("memoryRatio"))),
)  # fmt: skip
"""Metrics of one ClusterProfile each; pool is its name."""

ADVISOR: Final = (
    _counter("mofa_advisor_recommendations_total", ("training_kind", "outcome", "reason"), "1",
        "Answers given, by kind of job, outcome and reason."),
    _counter("mofa_advisor_searches_total", (), "1",
        "Answers that the model searched for; the others were "
        "remembered, or read back from their objects."),
    _histogram("mofa_advisor_recommendation_duration_seconds", (), "s",
        "Time from taking an object off the queue to the decision on it.",
        None, DECISION_BUCKETS),
    _counter("mofa_advisor_history_requests_total", ("flavour", "outcome"), "1",
        "Requests to Prometheus, by flavour of the server and outcome."),
    _gauge("mofa_advisor_last_success_timestamp_seconds", ("loop",), "s",
        "When a loop last succeeded, in seconds of the epoch; loop is reconcile, history, "
        "sightings, witness or resync."),
    _counter("mofa_advisor_api_writes_total", ("verb", "outcome"), "1",
        "Writes to the API server, by verb and outcome."),
    _counter("mofa_advisor_events_dropped_total", (), "1",
        "Events that are lost: the queue had no room for them, or the API server did not take "
        "them."),
    _histogram("mofa_advisor_gate_wait_seconds", ("outcome",), "s",
        "Time that jobs in mode Apply waited at our gate, by outcome.",
        None, GATE_BUCKETS),
    _counter("mofa_advisor_admission_checks_total", ("state",), "1",
        "Workloads of Kueue that our AdmissionCheck was asked about, by what it said: Ready, "
        "Retry or Rejected."),
    _info("mofa_advisor_build_info", ("version", "model_version"), "1",
        "Versions of the operator and of the model."),
    _gauge("mofa_advisor_jobs", ("training_kind",), "1",
        "Jobs that the operator advises, by kind."),
    _gauge("mofa_advisor_jobs_without_series", ("training_kind",), "1",
        "Jobs beyond the cap on series, which are only counted here, by kind."),
    _counter("mofa_advisor_series_dropped_total", (), "1",
        "Jobs that were refused series of their own because the cap was reached."),
    _gauge("mofa_advisor_queue_depth", (), "1",
        "Objects that wait in the queue; all jobs that a watch reads join it at once."),
    _gauge("mofa_advisor_queue_oldest_age_seconds", (), "s",
        "How long the object that is due longest has waited in the queue."),
    _gauge("mofa_advisor_watch_up", ("kind",), "1",
        "1 where a kind is watched, 0 where its watch was cut or forbidden, or nodes or a kind of "
        "ours is not there; absent for kinds of others that the cluster does not have. kind is as "
        "kubectl names it (jobsets.jobset.x-k8s.io)."),
    _counter("mofa_advisor_watch_resync_differences_total", (), "1",
        "Objects that a full list showed otherwise than the watch had left them."),
    _gauge("mofa_advisor_leader", (), "1",
        "1 where this operator may write, 0 where another one holds the Lease."),
    _gauge("mofa_advisor_fence_holds", (), "1",
        "1 where the admission policy was proved to refuse what is not ours to write, 0 where it "
        "does not and nothing is written; absent where no fence was asked for."),
)  # fmt: skip
"""Metrics of the operator itself."""

TABLE: Final = (*JOBS, *POOLS, *ADVISOR)
"""Every metric, in the order in which it is exported."""
