"""What the object of a job says of its life. Only what its public API states is read.

JobSet       restarts (job), jobRestarts (pod), currentInPlaceRestartAttempt (process); Suspended, Completed, Failed
TrainJob     jobsStatus; Suspended, Complete, Failed; trainerStatus.metrics
PyTorchJob   replicaStatuses; Restarting, Suspended, Succeeded, Failed
Volcano Job  retryCount (job); state.phase
RayJob       failed (job); jobDeploymentStatus, rayClusterStatus
batch Job    failed (pod); Suspended, Complete, Failed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from mofa_operator.observe.life import Counter, Observation, Sign
from mofa_operator.snapshot import Body

_TOKENS: Final = (
    "tokens_per_second",
    "tokens_per_sec",
    "train_tokens_per_second",
    "mofa_train_tokens_per_second",
)
_STEP: Final = ("step", "global_step", "train_step", "mofa_train_step")
_STEP_SECONDS: Final = ("step_seconds", "step_time_seconds", "mofa_train_step_seconds")


def of_job(body: Body, now: float) -> Observation:
    """What the object of a job says, whatever its kind; a kind that is not known says nothing."""
    group = str(body.get("apiVersion", "")).partition("/")[0]
    reader = _READERS.get((group, str(body.get("kind", ""))))
    return Observation() if reader is None else reader(_map(body.get("spec")), _map(body.get("status")), now)


def trained(body: Body) -> tuple[float | None, Observation]:
    """Tokens per second of the job, and its steps, where a TrainJob's trainer reports them to its status. [1/s]"""
    told = _map(_map(body.get("status")).get("trainerStatus"))
    values: dict[str, float] = {}
    for metric in _maps(told.get("metrics")):
        try:
            values[str(metric.get("name"))] = float(str(metric.get("value")))
        except ValueError:
            continue
    finite = {name: value for name, value in values.items() if 0 < value < 1e15}

    def first(names: tuple[str, ...]) -> float | None:
        return next((finite[name] for name in names if name in finite), None)

    step, at = first(_STEP), moment_of(told.get("lastUpdatedTime"))
    return first(_TOKENS), Observation(
        step=None if step is None or at is None else int(step), step_at=at, step_seconds=first(_STEP_SECONDS)
    )


def _job_set(spec: Body, status: Body, _: float) -> Observation:
    replicated = _maps(status.get("replicatedJobsStatus"))
    restarts = [n for one in replicated for n in one.get("jobRestarts") or () if isinstance(n, int)]
    wanted = {
        str(one.get("name")): _count(one.get("replicas", 1)) for one in _maps(spec.get("replicatedJobs"))
    }
    running = {
        str(one.get("name")): _count(one.get("ready")) + _count(one.get("succeeded")) for one in replicated
    }
    return _conditioned(
        status,
        done=("Completed", "Failed"),
        counters={
            "JobSet.restarts": Counter(value=_count(status.get("restarts")), level="job"),
            "JobSet.jobRestarts": Counter(value=sum(restarts), level="pod", exact=False),
            "JobSet.inPlace": Counter(
                value=_count(status.get("currentInPlaceRestartAttempt")), level="process"
            ),
        },
        ready=all(running.get(name, 0) >= n for name, n in wanted.items()) if replicated else None,
    )


def _train_job(_: Body, status: Body, __: float) -> Observation:
    jobs = [
        {k: _count(one.get(k)) for k in ("ready", "succeeded", "failed", "active")}
        for one in _maps(status.get("jobsStatus"))
    ]
    ready = all(
        j["ready"] + j["succeeded"] >= max(1, j["active"] + j["succeeded"] + j["failed"]) for j in jobs
    )
    return _conditioned(status, done=("Complete", "Failed"), ready=ready if jobs else None, drop="pod")


def _pytorch_job(spec: Body, status: Body, _: float) -> Observation:
    wanted = [_count(_map(one).get("replicas", 1)) for one in _map(spec.get("pytorchReplicaSpecs")).values()]
    replicas = [_map(one) for one in _map(status.get("replicaStatuses")).values()]
    running = sum(_count(one.get("active")) + _count(one.get("succeeded")) for one in replicas)
    again = _turned({"status": status}, "Restarting", "True")
    return _conditioned(
        status,
        done=("Succeeded", "Failed"),
        signs=() if again is None else (Sign(at=again, level="pod"),),
        ready=running >= sum(wanted) if replicas else None,
        drop="pod",
    )


def _volcano_job(spec: Body, status: Body, now: float) -> Observation:
    state = _map(status.get("state"))
    phase, at = str(state.get("phase", "")), moment_of(state.get("lastTransitionTime")) or now
    wanted = sum(_count(one.get("replicas", 1)) for one in _maps(spec.get("tasks")))
    running = _count(status.get("running")) + _count(status.get("succeeded"))
    signs = (Sign(at=at, level="job"),) if phase in ("Restarting", "Failed") else ()
    return Observation(
        counters={"Volcano.retryCount": Counter(value=_count(status.get("retryCount")), level="job")},
        signs=signs,
        suspended=at if phase in ("Aborting", "Aborted") else None,
        ready=running >= wanted if phase else None,
        drop="pod",
        ended=at if phase in ("Completed", "Failed", "Terminated") else None,
    )


def _ray_job(_: Body, status: Body, now: float) -> Observation:
    phase, cluster = str(status.get("jobDeploymentStatus", "")), _map(status.get("rayClusterStatus"))
    ended = moment_of(status.get("endTime")) if phase in ("Complete", "Failed") else None
    whole = _count(cluster.get("readyWorkerReplicas")) >= _count(cluster.get("desiredWorkerReplicas"))
    return Observation(
        counters={"RayJob.failed": Counter(value=_count(status.get("failed")), level="job")},
        signs=(Sign(at=ended, level="job"),) if ended is not None and phase == "Failed" else (),
        suspended=now if phase in ("Suspending", "Suspended") else None,
        ready=whole and status.get("jobStatus") == "RUNNING" if phase else None,
        drop="pod",
        ended=ended,
    )


def _batch_job(spec: Body, status: Body, _: float) -> Observation:
    running = _count(status.get("ready")) + _count(status.get("succeeded"))
    return _conditioned(
        status,
        done=("Complete", "Failed"),
        counters={"Job.failed": Counter(value=_count(status.get("failed")), level="pod", exact=False)},
        ready=running >= _count(spec.get("parallelism", 1)) if status else None,
    )


_READERS: Final[Mapping[tuple[str, str], Callable[[Body, Body, float], Observation]]] = {
    ("jobset.x-k8s.io", "JobSet"): _job_set,
    ("trainer.kubeflow.org", "TrainJob"): _train_job,
    ("kubeflow.org", "PyTorchJob"): _pytorch_job,
    ("batch.volcano.sh", "Job"): _volcano_job,
    ("ray.io", "RayJob"): _ray_job,
    ("batch", "Job"): _batch_job,
}


def _conditioned(
    status: Body, *, done: tuple[str, str], signs: tuple[Sign, ...] = (), **told: Any
) -> Observation:
    """An observation with what the conditions say: suspended, done well, or failed, which is an interruption too."""
    body = {"status": status}
    failed = _turned(body, done[1], "True")
    return Observation(
        signs=signs if failed is None else (*signs, Sign(at=failed, level="job")),
        suspended=_turned(body, "Suspended", "True"),
        ended=failed if failed is not None else _turned(body, done[0], "True"),
        **told,
    )


def _turned(body: Body, kind: str, *states: str) -> float | None:
    """Since when a condition has one of the states; None = it has not. [s]"""
    for condition in _maps(_map(body.get("status")).get("conditions")):
        if condition.get("type") == kind and condition.get("status") in states:
            return moment_of(condition.get("lastTransitionTime"))
    return None


def moment_of(text: Any) -> float | None:
    """A moment as objects write it, in seconds of the epoch; None where it is none. [s]"""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else 0


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _maps(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
