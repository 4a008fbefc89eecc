"""RayJob, of KubeRay: a Ray cluster, and the command that it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mofa_model.errors import InputError
from mofa_model.kinds.kind import JobKind, PodLabels
from mofa_model.kinds.observation import Counter, Observation, Sign
from mofa_model.kinds.patches import Operation, test
from mofa_model.kinds.pods import Demand, PodTemplate, split, total
from mofa_model.kinds.shape import Body, Count, Many, Moment, Shape, Tally, Text, glance, read, under
from mofa_model.launch import rewritten_line
from mofa_model.spec.recovery_classes import RecoveryClass


class _Workers(Shape):
    replicas: Count = 1
    num_of_hosts: Count = 1
    template: PodTemplate = PodTemplate()


class _Spec(Shape):
    entrypoint: Text = ""
    head: PodTemplate = under(PodTemplate(), "rayClusterSpec", "headGroupSpec", "template")
    workers: Many[_Workers] = under((), "rayClusterSpec", "workerGroupSpecs")


class _Status(Shape):
    job_deployment_status: Text = ""
    job_status: Text = ""
    end_time: Moment = None
    failed: Tally = 0
    ready: Tally = under(0, "rayClusterStatus", "readyWorkerReplicas")
    desired: Tally = under(0, "rayClusterStatus", "desiredWorkerReplicas")


@dataclass(frozen=True, kw_only=True, eq=False)
class RayJob(JobKind):
    """Its containers start Ray; what is trained stands in its entrypoint. Counts its failures (job)."""

    def demand(self, spec: Body) -> Demand:
        """The pods of its cluster, and the words of its entrypoint."""
        found = read(_Spec, spec)
        workers = [(one.replicas * one.num_of_hosts, one.template) for one in found.workers]
        demand = total([(1, found.head), *workers])
        return replace(demand, words=split([found.entrypoint])) if found.entrypoint else demand

    def observed(self, body: Body, now: float) -> Observation:
        """Its deployment, and how many workers are ready."""
        status = glance(_Status, body.get("status"))
        phase, whole = status.job_deployment_status, status.ready >= status.desired
        ended = status.end_time if phase in {"Complete", "Failed"} else None
        return Observation(
            counters={"RayJob.failed": Counter(value=status.failed, level=RecoveryClass.JOB)},
            signs=(Sign(at=ended, level=RecoveryClass.JOB),)
            if ended is not None and phase == "Failed"
            else (),
            suspended=now if phase in {"Suspending", "Suspended"} else None,
            ready=whole and status.job_status == "RUNNING" if phase else None,
            drop=RecoveryClass.POD,
            ended=ended,
        )

    def written(self, body: Body, arguments: Sequence[str], steps: str) -> list[Operation]:
        """Its entrypoint."""
        del steps
        stands, path = read(_Spec, body.get("spec")).entrypoint, "/spec/entrypoint"
        if not stands.strip():
            raise InputError("spec.entrypoint: is missing; there is nothing to add the arguments to")
        after = rewritten_line(stands, arguments)
        if after == stands:
            return []
        return [test(path, stands), {"op": "replace", "path": path, "value": after}]


RAY_JOB = RayJob(
    "ray.io", "v1", "RayJob", "rayjobs",
    word="rayjob",
    setting="RayJob",
    title="RayJob",
    place="`entrypoint`: words of the layout are replaced, every other character of the line stays",
    changes="entrypoint",
    labels=PodLabels(job="ray.io/cluster"),
)  # fmt: skip
