"""Job of Volcano: tasks that are scheduled together."""

from __future__ import annotations

from mofa_model.kinds.demand import PodSet
from mofa_model.kinds.kind import Counter, JobKind, Observation, PodLabels, RestartLimit, Sign
from mofa_model.kinds.pods import PodTemplate
from mofa_model.kinds.shape import (
    Body,
    Count,
    Many,
    Moment,
    Shape,
    Tally,
    Text,
    glance,
    read,
    under,
)
from mofa_model.spec.recovery_classes import RecoveryClass


class _Task(Shape):
    replicas: Count = 1
    min_available: Count | None = None
    template: PodTemplate = PodTemplate()


class _Spec(Shape):
    tasks: Many[_Task] = ()


class _Status(Shape):
    phase: Text = under("", "state", "phase")
    since: Moment = under(None, "state", "lastTransitionTime")
    running: Tally = 0
    succeeded: Tally = 0
    retry_count: Tally = 0


class VolcanoJob(JobKind):
    """Counts its restarts (job); nothing of it can be changed."""

    def pod_sets(self, spec: Body) -> list[PodSet]:
        """The pods of all tasks; a task runs with fewer where it says that these are enough."""
        return [
            PodSet(
                where=f"spec.tasks[{number}].template",
                template=task.template,
                counted=f"spec.tasks[{number}].replicas",
                count=task.replicas,
                least=task.min_available,
            )
            for number, task in enumerate(read(_Spec, spec).tasks)
        ]

    def observed(self, body: Body, now: float) -> Observation:
        """Its phase, and how many pods run."""
        spec, status = glance(_Spec, body.get("spec")), glance(_Status, body.get("status"))
        phase, moment = status.phase, status.since or now
        replicas = sum(task.replicas for task in spec.tasks)
        return Observation(
            counters={
                "Volcano.retryCount": Counter(
                    value=status.retry_count, recovery_class=RecoveryClass.JOB
                )
            },
            signs=(Sign(at=moment, recovery_class=RecoveryClass.JOB),)
            if phase in {"Restarting", "Failed"}
            else (),
            suspended=moment if phase in {"Aborting", "Aborted"} else None,
            ready=status.running + status.succeeded >= replicas if phase else None,
            drop=RecoveryClass.POD,
            ended=moment if phase in {"Completed", "Failed", "Terminated"} else None,
        )


VOLCANO_JOB = VolcanoJob(
    "batch.volcano.sh", "v1alpha1", "Job", "jobs",
    restart_limit=RestartLimit(path=("maxRetry",)),
    word="volcano",
    setting="VolcanoJob",
    title="Volcano Job",
    suspend=(),
    pods_path="spec.tasks[].template",
    arguments_note="nothing: Volcano lets nobody change a job's command. "
    "The advice is annotated, and an Event says so",
    labels=PodLabels(job="volcano.sh/job-name"),
)  # fmt: skip
