"""The Job that every cluster has; not watched unless somebody names it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mofa_model.errors import InputError
from mofa_model.kinds.demand import PodSet
from mofa_model.kinds.kind import ConditionedStatus, Counter, JobKind, Observation, RestartLimit
from mofa_model.kinds.patches import Operation, annotated, pod_annotations, same_pods
from mofa_model.kinds.pods import PodTemplate
from mofa_model.kinds.reads import read_by
from mofa_model.kinds.shape import (
    NO_OBJECTS,
    Body,
    Count,
    ReferencedObjects,
    Shape,
    Tally,
    at,
    glance,
    read,
    text_of,
)
from mofa_model.spec.recovery_classes import RecoveryClass

JOB_NAME: Final = "batch.kubernetes.io/job-name"
"""Label of the pods of a Job."""


class _Spec(Shape):
    parallelism: Count = 1
    completions: Count | None = None
    template: PodTemplate | None = None


class _Status(ConditionedStatus):
    ready: Tally = 0
    succeeded: Tally = 0
    failed: Tally = 0


def at_once(parallelism: int, completions: int | None) -> int:
    """Pods of a Job that run at the same time: no more than it has to complete. [1]

    >>> at_once(8, 4), at_once(8, None)
    (4, 8)
    """
    return parallelism if completions is None else min(parallelism, completions)


class BatchJob(JobKind):
    """Counts pods that failed."""

    def pod_sets(self, spec: Body) -> list[PodSet]:
        """Pods that run at the same time, of an indexed Job never more than it has indexes."""
        job = read(_Spec, spec)
        count = at_once(job.parallelism, job.completions)
        where = "spec.template"
        return [PodSet(where=where, template=job.template, counted="spec.parallelism", count=count)]

    def observed(self, body: Body, now: float) -> Observation:
        """Its conditions, and how many pods run."""
        del now
        spec, status = glance(_Spec, body.get("spec")), glance(_Status, body.get("status"))
        is_whole = status.ready + status.succeeded >= spec.parallelism
        return status.observation(
            ready=is_whole if body.get("status") else None,
            counters={
                "Job.failed": Counter(
                    value=status.failed, recovery_class=RecoveryClass.POD, exact=False
                )
            },
        )

    def pod_selector(self, body: Body) -> str:
        """The label by which the pods of a Job are found."""
        return f"{JOB_NAME}={text_of(at(body, 'metadata', 'name'))}"

    def launch_patch(
        self,
        body: Body,
        arguments: Sequence[str],
        steps: str,
        referenced: ReferencedObjects = NO_OBJECTS,
    ) -> list[Operation]:
        """Annotations of its pod template, whose container reads them."""
        del referenced
        template = read(_Spec, body.get("spec")).template
        if template is None:
            raise InputError("spec.template: is missing")
        read_by([("spec.template", at(body, "spec", "template"))])
        return annotated("/spec/template", template, pod_annotations(arguments, steps))


BATCH_JOB = BatchJob(
    "batch", "v1", "Job", "jobs",
    restart_limit=RestartLimit(path=("backoffLimit",), by_pod=True, can_change=True),
    word="batch",
    title="batch Job",
    witness=False,
    pods_path="spec.template",
    arguments_note="the annotations of a JobSet, where its container reads them",
    changed_field="template",
    change_rule=same_pods("variables.old.template", "variables.new.template"),
)  # fmt: skip
