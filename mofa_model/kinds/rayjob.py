"""RayJob, of KubeRay: a Ray cluster, and the command that it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mofa_model.errors import InputError
from mofa_model.kinds.kind import JobKind, PodLabels
from mofa_model.kinds.observation import Counter, Observation, Sign
from mofa_model.kinds.patches import Operation, test
from mofa_model.kinds.pods import Demand, Pods, PodTemplate, split, total
from mofa_model.kinds.shape import Body, Count, Many, Moment, Shape, Tally, Text, glance, read
from mofa_model.launch import rewritten_line
from mofa_model.spec.recovery_classes import RecoveryClass


class RayHead(Shape):
    """The pod that the others follow."""

    template: PodTemplate = PodTemplate()


class RayWorkers(Shape):
    """Workers that are all alike."""

    replicas: Count = 1
    num_of_hosts: Count = 1
    template: PodTemplate = PodTemplate()


class RayClusterSpec(Shape):
    """The pods of a RayJob."""

    head_group_spec: RayHead = RayHead()
    worker_group_specs: Many[RayWorkers] = ()

    @property
    def pods(self) -> Iterator[Pods]:
        """The head, and the workers."""
        yield Pods(count=1, template=self.head_group_spec.template)
        for group in self.worker_group_specs:
            yield Pods(count=group.replicas * group.num_of_hosts, template=group.template)


class RayJobSpec(Shape):
    """What a RayJob shall be."""

    entrypoint: Text = ""
    ray_cluster_spec: RayClusterSpec = RayClusterSpec()


class RayClusterStatus(Shape):
    """How many workers there are."""

    ready_worker_replicas: Tally = 0
    desired_worker_replicas: Tally = 0


class RayJobStatus(Shape):
    """What became of a RayJob."""

    job_deployment_status: Text = ""
    job_status: Text = ""
    end_time: Moment = None
    failed: Tally = 0
    ray_cluster_status: RayClusterStatus = RayClusterStatus()


@dataclass(frozen=True, kw_only=True, eq=False)
class RayJob(JobKind):
    """Its containers start Ray; what is trained stands in its entrypoint. Counts its failures (job)."""

    def demand(self, spec: Body) -> Demand:
        """The pods of its cluster, and the words of its entrypoint."""
        found = read(RayJobSpec, spec)
        demand = total(found.ray_cluster_spec.pods)
        return replace(demand, words=split([found.entrypoint])) if found.entrypoint else demand

    def observed(self, body: Body, now: float) -> Observation:
        """Its deployment, and how many workers are ready."""
        status = glance(RayJobStatus, body.get("status"))
        phase, cluster = status.job_deployment_status, status.ray_cluster_status
        ended = status.end_time if phase in {"Complete", "Failed"} else None
        whole = cluster.ready_worker_replicas >= cluster.desired_worker_replicas
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
        stands, path = read(RayJobSpec, body.get("spec")).entrypoint, "/spec/entrypoint"
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
