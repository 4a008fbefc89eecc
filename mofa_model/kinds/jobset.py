"""JobSet, of the Kubernetes project: replicated batch Jobs that start again together."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent
from typing import Any, Final

from mofa_model.errors import InputError
from mofa_model.kinds.batch import at_once
from mofa_model.kinds.demand import PodSet
from mofa_model.kinds.kind import (
    ATTEMPTS,
    ConditionedStatus,
    Counter,
    JobKind,
    NewJob,
    Observation,
    PodLabels,
    RestartLimit,
)
from mofa_model.kinds.patches import (
    Operation,
    annotated,
    pod_annotations,
    pointer,
    same,
    same_pods,
    test,
)
from mofa_model.kinds.pods import PodTemplate
from mofa_model.kinds.reads import read_by
from mofa_model.kinds.shape import (
    NO_OBJECTS,
    Body,
    Count,
    Many,
    ReferencedObjects,
    Shape,
    Tallies,
    Tally,
    Text,
    at,
    glance,
    items,
    read,
    under,
)
from mofa_model.spec.recovery_classes import RecoveryClass

JOB_SET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
"""Label of a JobSet's pods."""
_TRAINER: Final = "trainer"
"""The Job, and the container, of a JobSet that is made here."""


class ReplicatedJob(Shape):
    """Batch Jobs that are all alike."""

    name: Text = ""
    replicas: Count = 1
    parallelism: Count = under(1, "template", "spec", "parallelism")
    completions: Count | None = under(None, "template", "spec", "completions")
    pods: PodTemplate | None = under(None, "template", "spec", "template")


def replicated_pods(jobs: Sequence[ReplicatedJob], path: str) -> list[PodSet]:
    """Pods of replicated Jobs; `path` is what they stand under."""
    pod_sets = list[PodSet]()
    for number, job in enumerate(jobs):
        place, each = f"{path}.replicatedJobs[{number}]", at_once(job.parallelism, job.completions)
        counted = f"{place}.template.spec.parallelism" if job.replicas else f"{place}.replicas"
        where, count = f"{place}.template.spec.template", job.replicas * each
        pod_sets.append(PodSet(where=where, template=job.pods, counted=counted, count=count))
    return pod_sets


class _Spec(Shape):
    replicated_jobs: Many[ReplicatedJob] = ()


class _ReplicatedStatus(Shape):
    name: Text = ""
    ready: Tally = 0
    succeeded: Tally = 0
    job_restarts: Tallies = 0


class _Status(ConditionedStatus):
    restarts: Tally = 0
    replicated_jobs_status: Many[_ReplicatedStatus] = ()
    current_in_place_restart_attempt: Tally = 0


class JobSet(JobKind):
    """Counts its restarts (job), those of its Jobs (pod) and those in place (process)."""

    def pod_sets(self, spec: Body) -> list[PodSet]:
        """All pods of all Jobs."""
        return replicated_pods(read(_Spec, spec).replicated_jobs, "spec")

    def observed(self, body: Body, now: float) -> Observation:
        """Its conditions and counts."""
        del now
        spec, status = glance(_Spec, body.get("spec")), glance(_Status, body.get("status"))
        job_statuses = status.replicated_jobs_status
        running = {job.name: job.ready + job.succeeded for job in job_statuses}
        is_whole = all(running.get(job.name, 0) >= job.replicas for job in spec.replicated_jobs)
        restarts = sum(job.job_restarts for job in job_statuses)
        return status.observation(
            ready=is_whole if job_statuses else None,
            counters={
                ATTEMPTS: Counter(value=status.restarts, recovery_class=RecoveryClass.JOB),
                "JobSet.jobRestarts": Counter(
                    value=restarts, recovery_class=RecoveryClass.POD, exact=False
                ),
                "JobSet.inPlace": Counter(
                    value=status.current_in_place_restart_attempt,
                    recovery_class=RecoveryClass.PROCESS,
                ),
            },
        )

    def visible_classes(self, body: Body) -> frozenset[RecoveryClass]:
        """The recovery classes that this job can show; restarts of a process alone only where its
        controller counts them.
        """
        counted = (
            "current_in_place_restart_attempt"
            in glance(_Status, body.get("status")).model_fields_set
        )
        return super().visible_classes(body) | ({RecoveryClass.PROCESS} if counted else frozenset())

    def manifests(self, job: NewJob) -> list[dict[str, Any]]:
        """One Job with a pod a node; the first pod is where they meet."""
        first = f"{job.name}-{_TRAINER}-0-0.{job.name}"
        starter, *args = job.command(rank="$(JOB_COMPLETION_INDEX)", address=first)
        pod = job.pod(_TRAINER, [starter], args) | {"restartPolicy": "Never"}
        sizes = {"parallelism": job.nodes, "completions": job.nodes, "backoffLimit": 0}
        batch = {"spec": {**sizes, "template": {"spec": pod}}}
        spec = {
            "failurePolicy": {"maxRestarts": self.restarts_of(job)},
            "replicatedJobs": [{"name": _TRAINER, "replicas": 1, "template": batch}],
        }
        return [{**job.head(self.api_version, self.kind), "spec": spec}, *job.configs()]

    def states_size(self, spec: Body) -> bool:
        """Whether one of its Jobs states its pods, or a pod asks for GPUs."""
        counted = (
            at(job, "template", "spec", "parallelism") for job in items(at(spec, "replicatedJobs"))
        )
        pods = (job.pods.spec for job in read(_Spec, spec).replicated_jobs if job.pods)
        asks_for_gpus = any(container.gpus for pod in pods for container in pod.containers)
        return asks_for_gpus or any(count is not None for count in counted)

    def launch_patch(
        self,
        body: Body,
        arguments: Sequence[str],
        steps: str,
        referenced: ReferencedObjects = NO_OBJECTS,
    ) -> list[Operation]:
        """Annotations of its pod templates, of those whose containers read them."""
        del referenced
        spec = read(_Spec, body.get("spec"))
        annotations, operations = pod_annotations(arguments, steps), list[Operation]()
        if all(job.pods is None for job in spec.replicated_jobs):
            raise InputError("spec.replicatedJobs: holds no pod template")
        reading = read_by(_templates(body))
        for number, (job, (where, _)) in enumerate(
            zip(spec.replicated_jobs, _templates(body), strict=True)
        ):
            if job.pods is None or where not in reading:
                continue
            path = pointer("spec", "replicatedJobs", number)
            added = annotated(path + "/template/spec/template", job.pods, annotations)
            operations += [test(path + "/name", job.name or None), *added] if added else []
        return operations


def _templates(body: Body) -> list[tuple[str, object]]:
    """Its pod templates as they were written, and where each stands."""
    return [
        (
            f"spec.replicatedJobs[{number}].template.spec.template",
            at(job, "template", "spec", "template"),
        )
        for number, job in enumerate(items(at(body, "spec", "replicatedJobs")))
    ]


_JOBS = ("variables.old.replicatedJobs", "variables.new.replicatedJobs")
JOB_SET = JobSet(
    "jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets",
    pods_path="spec.replicatedJobs[].template.spec.template",
    arguments_note="annotations of the pod templates whose containers read them: "
    "`advisor.mofa.dev/launch-args`, `advisor.mofa.dev/checkpoint-interval-steps`",
    changed_field="replicatedJobs",
    change_rule=f"""\
{_JOBS[0]}.map(r, r.name) == {_JOBS[1]}.map(r, r.name)
&& {_JOBS[1]}.all(r, {_JOBS[0]}.exists(o, o.name == r.name
{indent("&& " + same("o", "r", "template"), "  ")}
  && o.template.?metadata == r.template.?metadata
{indent("&& " + same("o.template.spec", "r.template.spec", "template"), "  ")}
{indent("&& " + same_pods("o.template.spec.template", "r.template.spec.template"), "  ")}))""",
    restart_limit=RestartLimit(path=("failurePolicy", "maxRestarts"), ends_at=False),
    labels=PodLabels(
        job=JOB_SET_NAME,
        attempt="jobset.sigs.k8s.io/restart-attempt",
        slot=("jobset.sigs.k8s.io/job-global-index", "batch.kubernetes.io/job-completion-index"),
    ),
)  # fmt: skip
