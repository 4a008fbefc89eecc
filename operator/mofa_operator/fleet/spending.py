"""GPU-hours of one job: what it held and lost since it started, and what would win them back. Pure.

What is lost has three parts, which do not overlap:

    stuck     since its last step was overdue, where the operator says that it is stuck
    stopped   before that, what interruptions cost with recovery and repeated steps: what the
              account of its pool puts down to it, else
              seconds that the operator saw lost, else
              the restarts that the object counts, each at the usual recovery time of its class
    slow      of the rest, the share by which today's layout is slower than the advised one: by the
              observed throughput, else
              by what both are predicted to take

What is unknown is None, and not zero. A loss is a sum of seconds that were seen; a prediction alone
is no loss.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mofa_model import presets
from mofa_model.advice.choice import keeps
from mofa_model.annotations import PREFIX, UNANSWERED
from mofa_model.errors import InputError
from mofa_model.identity import identify, model_preset
from mofa_model.kinds import JobKind, ReferencedObjects, demand_of
from mofa_model.kinds.kind import Observation
from mofa_model.kinds.shape import NO_OBJECTS, Number, Shape, Text, at, glance, moment_of, under
from mofa_model.spec.account import NodeTime, node_days_lost
from mofa_model.units import DAY, HOUR
from mofa_operator.decide.policy import Handling
from mofa_operator.evidence import date_of
from mofa_operator.fleet.fleet import AnswerTexts, named
from mofa_operator.keys import Key
from mofa_operator.objects import Figure, LiveObject, LiveTrainingJob, figure
from mofa_operator.words import Health, Reason

_MADE_ROOM: Final = ("Eviction", "Preemption")
"""Causes of interruptions after which a job may have been without GPUs."""
MOST: Final = 1e9
"""GPU-hours beyond which a job's clock is wrong. [h]"""
_FAR: Final = 1.5
"""Least ratio of the used to the advised checkpoint interval, either way, that is worth a change.
Ours. [1]"""
_SMALL: Final = 0.02
"""Least share of a job's GPU-hours that is worth a change. Ours. [1]"""


class JobState(StrEnum):
    """What a job does."""

    RUNS = "runs"
    """It holds its GPUs."""
    WAITS = "waits"
    """It is suspended, and holds none."""
    ENDED = "ended"
    """It succeeded or failed."""
    ASKS = "asks"
    """A TrainingJob whose job was not seen to run."""

    @property
    def holds(self) -> bool:
        """Whether it holds GPUs now."""
        return self is JobState.RUNS


class _Recommendation(Shape):
    """The part of the annotation `recommendation` that is read."""

    gpus: Number = 0.0
    current: Text = under("", "current", "strategy")
    reason: Text = under("", "current", "reason")
    current_seconds: Number = under(0.0, "current", "step_seconds")
    beats: Figure = under(None, "odds", "beats")
    predicted: object = None

    def target(self, name: str) -> float:
        """The middle of a predicted figure; 0 where there is none."""
        band = at(self.predicted, name)
        return (figure(band[1]) or 0.0) if isinstance(band, list) and len(band) == 3 else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Spending:
    """GPU-hours of one job."""

    key: Key
    state: JobState
    """What it does."""
    gpus: int
    """GPUs of all its pods. [1]"""
    hours: float
    """Time in which it held them. [h]"""
    stuck_hours: float = 0.0
    """GPU-hours since its step was overdue. [h]"""
    stopped_hours: float | None = None
    """GPU-hours lost to interruptions and recovery. [h]"""
    since: str = ""
    """Since when the lost hours are counted; empty where no operator counts them."""
    slow_hours: float | None = None
    """GPU-hours lost to its layout. [h]"""
    status: str = ""
    """What its answer says: Recommended, LowConfidence, NoRecommendation, InvalidInput; empty =
    nobody asks."""
    health: str = ""
    """Its health, as the operator says."""
    wrong: str = ""
    """Why its GPUs cannot be read."""

    @property
    def gpu_hours(self) -> float:
        """GPU-hours that the job held. [h]"""
        return self.gpus * self.hours

    @property
    def gpu_hours_lost(self) -> float | None:
        """GPU-hours lost, as far as is known; None where nothing is. [h]"""
        if self.stopped_hours is None and self.slow_hours is None and not self.stuck_hours:
            return None
        return self.stuck_hours + (self.stopped_hours or 0.0) + (self.slow_hours or 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolAccount:
    """The account of a pool that names jobs."""

    rows: tuple[NodeTime, ...]
    gpus_per_node: int
    """[1]"""

    def of(self, key: Key, begun: float = 0.0) -> list[NodeTime]:
        """The ledger's node-time of a job, from the day of a moment on. [s]"""
        name, first = key.full_name, date_of(begun)
        return [row for row in self.rows if row.job == name and row.date >= first]

    def lost(self, key: Key, begun: float, gpus: int) -> float:
        """Time for which all its GPUs stood still or repeated steps. [s]"""
        if not gpus:
            return 0.0
        node_days = sum(node_days_lost(self.of(key, begun)).values())
        return node_days * DAY * min(self.gpus_per_node, gpus) / gpus

    def since(self, key: Key, begun: float) -> str:
        """Date of the first day in the ledger since the job began; empty where the ledger
        has none.
        """
        return min((row.date for row in self.of(key, begun)), default="")


def spending(
    job: LiveObject,
    speaker: LiveTrainingJob | None,
    texts: AnswerTexts,
    now: float,
    beside: ReferencedObjects = NO_OBJECTS,
    pool_account: PoolAccount | None = None,
) -> Spending:
    """What a job held and lost; `texts` is its answer, `speaker` its TrainingJob, `now` in [s].

    `beside` holds the objects that the job names and that say how many GPUs it has. `pool_account`
    is that of the pool on which the job runs, where its ledger names the job.
    """
    recommendation, kind = _recommendation(texts), job.key.kind
    observation = kind.observed(job.body, now) if isinstance(kind, JobKind) else Observation()
    gpus, wrong = _gpus(job, recommendation, beside)
    state = _state(job, speaker, observation)
    seconds = _seconds(job, speaker, observation, state, now)
    begun = now - seconds
    stuck = min(_stuck(speaker, now), seconds) if state is JobState.RUNS else 0.0
    stopped = (
        _stopped(speaker, observation, seconds - stuck, begun)
        if pool_account is None
        else min(pool_account.lost(job.key, begun, gpus), seconds - stuck)
    )
    since = speaker.status.observed.since if speaker is not None else ""
    if pool_account is not None:
        since = pool_account.since(job.key, begun) or since
    share = _slower(speaker, recommendation)
    slow = None if share is None else share * (seconds - stuck - (stopped or 0.0))
    gpu_hours = gpus / HOUR  # of one second
    return Spending(
        key=job.key,
        state=state,
        gpus=gpus,
        hours=min(seconds / HOUR, MOST),
        stuck_hours=stuck * gpu_hours,
        stopped_hours=None if stopped is None else stopped * gpu_hours,
        since=since,
        slow_hours=None if slow is None else slow * gpu_hours,
        status=texts.get("status", ""),
        health=speaker.status.health if speaker is not None else "",
        wrong=wrong,
    )


def _recommendation(texts: AnswerTexts) -> _Recommendation:
    """The annotation `recommendation`; empty where it cannot be read."""
    try:
        return glance(_Recommendation, json.loads(texts.get("recommendation", "{}")))
    except ValueError:
        return _Recommendation()


def _gpus(
    job: LiveObject, recommendation: _Recommendation, beside: ReferencedObjects
) -> tuple[int, str]:
    """GPUs of all pods, and why they cannot be read where they cannot. [1]"""
    if not isinstance(job.key.kind, JobKind):
        return int(recommendation.gpus), ""
    try:
        demand = demand_of(job.body, beside)
    except InputError as error:
        return 0, str(error)
    if demand.gpus:
        return demand.gpus, ""
    return int(recommendation.gpus), "" if recommendation.gpus else demand.unread


def _state(job: LiveObject, speaker: LiveTrainingJob | None, observation: Observation) -> JobState:
    if not isinstance(job.key.kind, JobKind):
        runs = speaker is not None and speaker.status.observed.source
        return JobState.RUNS if runs else JobState.ASKS
    if observation.ended is not None:
        return JobState.ENDED
    path = job.key.kind.suspend
    waits = observation.suspended is not None or (bool(path) and job.holds(("spec", *path)))
    return JobState.WAITS if waits else JobState.RUNS


def _seconds(
    job: LiveObject,
    speaker: LiveTrainingJob | None,
    observation: Observation,
    state: JobState,
    now: float,
) -> float:
    """How long it held its GPUs since it was started or resumed; 0 where it holds none. [s]"""
    if state in {JobState.WAITS, JobState.ASKS}:
        return 0.0
    if not isinstance(job.key.kind, JobKind):
        since = moment_of(speaker.status.observed.since) if speaker is not None else None
    else:
        started = moment_of(at(job.body, "status", "startTime"))
        suspended = job.condition("Suspended")
        resumed = moment_of("" if suspended is None else suspended.since)
        moments = [moment for moment in (job.created, started, resumed) if moment is not None]
        since = max(moments, default=None)
    until = now if observation.ended is None else observation.ended
    return max(0.0, until - since) if since is not None else 0.0


def _stuck(speaker: LiveTrainingJob | None, now: float) -> float:
    """How long it is stuck. [s]"""
    if speaker is None or speaker.status.health != Health.STUCK:
        return 0.0
    rows = (row for row in speaker.conditions if row.reason == Reason.STUCK)
    since = next((moment_of(row.since) for row in rows), None)
    return 0.0 if since is None else max(0.0, now - since)


def _stopped(
    speaker: LiveTrainingJob | None, observation: Observation, trained: float, begun: float
) -> float | None:
    """Time lost to interruptions since the moment `begun`; None where that is unknown. [s]

    A job that was preempted and came back holds its GPUs only since then, but its losses are
    counted from before.
    """
    if speaker is not None and (shown := speaker.status.observed).source:
        room = any(interruption.cause in _MADE_ROOM for interruption in shown.interruptions_by)
        since = moment_of(shown.since)
        return None if room and since is not None and since < begun else min(shown.lost, trained)
    counters = [counter for counter in observation.counters.values() if counter.exact]
    restarts = sum(counter.value * counter.recovery_class.seconds for counter in counters)
    return min(restarts, trained) if counters else None


def _slower(speaker: LiveTrainingJob | None, recommendation: _Recommendation) -> float | None:
    """Share of its training time that the advised layout would save; None = unknown. [1]"""
    if keeps(recommendation.beats):  # today's layout is most likely better
        return 0.0
    advised, step = (
        recommendation.target("tokens_per_second"),
        recommendation.target("step_seconds"),
    )
    observed = None if speaker is None else speaker.status.observed.tokens_per_second
    if observed is not None and advised > 0:
        return max(0.0, 1.0 - observed / advised)
    if recommendation.current_seconds > 0 and step > 0:
        return max(0.0, 1.0 - step / recommendation.current_seconds)
    return None


def change(
    spending: Spending,
    texts: AnswerTexts,
    stance: Handling,
    job: LiveObject,
    speaker: LiveTrainingJob | None,
    *,
    shown: bool = False,
) -> str:
    """What to do about a job; empty where there is nothing to do.

    `shown` says that its interruptions stand beside it.
    """
    if spending.state is JobState.ENDED:
        return ""
    if spending.wrong:
        return spending.wrong
    if not texts:
        return _unasked(stance, job)
    if spending.status in UNANSWERED:
        return texts.get("explanation", "")
    if spending.stuck_hours:
        return "its steps have stopped: look at its pods' logs"
    parts = [
        (spending.slow_hours or 0.0, _layout(texts)),
        (spending.stopped_hours or 0.0, _fails(job.key, shown=shown)),
        _saves(spending, texts, speaker),
    ]
    hours, advice = max(parts)
    is_worth_it = hours > _SMALL * spending.gpu_hours or spending.status == "NoRecommendation"
    return advice if is_worth_it else ""


def _layout(texts: AnswerTexts) -> str:
    return f"take {texts['strategy']}" if "strategy" in texts else texts.get("explanation", "")


def _fails(key: Key, *, shown: bool) -> str:
    """Advice for a job that loses most time to interruptions; `shown`: their causes are
    listed above.
    """
    if shown:
        return "end what interrupts it: the causes stand above"
    return f"see what interrupts it: kubectl mofa why -n {key.namespace} {named(key)}"


def _saves(
    spent: Spending, texts: AnswerTexts, speaker: LiveTrainingJob | None
) -> tuple[float, str]:
    """GPU-hours that another interval of checkpoints would save, and what to do for them. [h]

    At the best interval, saves cost as much as lost steps; at r times that interval both together
    cost (r + 1/r) / 2 times as much.
    """
    advised = figure(texts.get("checkpoint-interval-seconds"))
    ettr = figure(texts.get("predicted-ettr"))
    used = None if speaker is None else speaker.status.observed.checkpoint_interval_seconds
    if not used or not advised or ettr is None or 1 / _FAR < used / advised < _FAR:
        return 0.0, ""
    ratio = used / advised
    costs = (1.0 - ettr) * ((ratio + 1.0 / ratio) / 2.0 - 1.0)
    return min(1.0, costs) * spent.gpu_hours, f"save every {advised:.0f} s, not every {used:.0f} s"


def _unasked(stance: Handling, job: LiveObject) -> str:
    """What makes a job ask for advice; empty where it asks, or wants none."""
    if stance is Handling.DISABLED:
        return ""
    if stance is Handling.PAUSED:
        return f"paused: take away the annotation {PREFIX}paused"
    if stance is not Handling.NOT_ASKED:
        return ""
    if not (model := likely_model(job)):
        return (
            f"say its model in the annotation {PREFIX}model: "
            "one of `mofa presets models`, or its name on a hub"
        )
    return (
        f"say its model: kubectl annotate -n {job.key.namespace} {named(job.key)} "
        f"{PREFIX}model={model}"
    )


def likely_model(job: LiveObject) -> str:
    """The model that a job's command or its name seems to name; empty where none does."""
    if not isinstance(job.key.kind, JobKind):
        return ""
    model = identify(job.body).facts.get("model")
    if model is not None and (preset := model_preset(str(model.value))):
        return preset
    words = job.key.name.split("-")
    ends = range(len(words), 0, -1)
    phrases = ("-".join(words[start:end]) for end in ends for start in range(end))
    meanings = (presets.meanings("models", phrase) for phrase in phrases)
    return next((models[0] for models in meanings if len(models) == 1), "")
