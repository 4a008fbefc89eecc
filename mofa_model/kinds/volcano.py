"""Job of Volcano: tasks that are scheduled together."""

from __future__ import annotations

from dataclasses import dataclass

from mofa_model.kinds.kind import JobKind, PodLabels
from mofa_model.kinds.observation import Counter, Observation, Sign
from mofa_model.kinds.pods import Demand, Pods, PodTemplate, total
from mofa_model.kinds.shape import Body, Count, Many, Moment, Shape, Tally, Text, glance, read
from mofa_model.spec.recovery_classes import RecoveryClass


class VolcanoTask(Shape):
    """Pods that are all alike."""

    replicas: Count = 1
    template: PodTemplate = PodTemplate()


class VolcanoJobSpec(Shape):
    """What a Volcano Job shall be."""

    tasks: Many[VolcanoTask] = ()


class VolcanoPhase(Shape):
    """How far a Volcano Job is."""

    phase: Text = ""
    last_transition_time: Moment = None


class VolcanoJobStatus(Shape):
    """What became of a Volcano Job."""

    state: VolcanoPhase = VolcanoPhase()
    running: Tally = 0
    succeeded: Tally = 0
    retry_count: Tally = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class VolcanoJob(JobKind):
    """Counts its restarts (job); nothing of it can be changed."""

    def demand(self, spec: Body) -> Demand:
        """The pods of all tasks."""
        tasks = read(VolcanoJobSpec, spec).tasks
        return total(Pods(count=one.replicas, template=one.template) for one in tasks)

    def observed(self, body: Body, now: float) -> Observation:
        """Its phase, and how many pods run."""
        spec, status = glance(VolcanoJobSpec, body.get("spec")), glance(VolcanoJobStatus, body.get("status"))
        phase, at = status.state.phase, status.state.last_transition_time or now
        wanted = sum(one.replicas for one in spec.tasks)
        return Observation(
            counters={"Volcano.retryCount": Counter(value=status.retry_count, level=RecoveryClass.JOB)},
            signs=(Sign(at=at, level=RecoveryClass.JOB),) if phase in {"Restarting", "Failed"} else (),
            suspended=at if phase in {"Aborting", "Aborted"} else None,
            ready=status.running + status.succeeded >= wanted if phase else None,
            drop=RecoveryClass.POD,
            ended=at if phase in {"Completed", "Failed", "Terminated"} else None,
        )


VOLCANO_JOB = VolcanoJob(
    "batch.volcano.sh", "v1alpha1", "Job", "jobs",
    word="volcano",
    setting="VolcanoJob",
    title="Volcano Job",
    suspend=(),
    place="nothing: Volcano lets nobody change a job's command. The advice is annotated, and an Event says so",
    labels=PodLabels(job="volcano.sh/job-name"),
)  # fmt: skip
