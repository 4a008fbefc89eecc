"""Workload, of Kueue: the sets of pods of a job of any kind, also of unknown kinds."""

from __future__ import annotations

from mofa_model.kinds.demand import PodSet
from mofa_model.kinds.kind import ConditionedStatus, JobKind, Observation
from mofa_model.kinds.pods import PodTemplate
from mofa_model.kinds.shape import Body, Count, Many, Shape, Text, glance, read


class _Pods(Shape):
    name: Text = ""
    count: Count = 1
    min_count: Count | None = None
    template: PodTemplate | None = None


class _Spec(Shape):
    pod_sets: Many[_Pods] = ()


class QueuedWorkload(JobKind):
    """Its sets of pods are those of the job that it was made for; nothing of it can be changed."""

    def pod_sets(self, spec: Body) -> list[PodSet]:
        """Its sets; those that may be admitted in part have a least number."""
        return [
            PodSet(
                where=f"spec.podSets[{number}].template",
                template=pods.template,
                counted=f"spec.podSets[{number}].count",
                count=pods.count,
                least=pods.min_count,
            )
            for number, pods in enumerate(read(_Spec, spec).pod_sets)
        ]

    def observed(self, body: Body, now: float) -> Observation:
        """Its conditions; one that is not admitted waits."""
        status = glance(ConditionedStatus, body.get("status"))
        admitted, ended = status.since("Admitted"), status.since("Finished")
        waits = admitted is None and ended is None and bool(body.get("status"))
        ready = None if admitted is None else status.since("PodsReady") is not None
        return Observation(suspended=now if waits else None, ready=ready, ended=ended)


WORKLOAD = QueuedWorkload(
    "kueue.x-k8s.io", "v1beta2", "Workload", "workloads",
    # Where both are served the newer one is stored: a write by the other may lose what it lacks.
    others=("v1beta1",),
    title="Workload of Kueue",
    witness=False,
    suspend=(),
    pods_path="spec.podSets[].template",
    arguments_note="nothing: Kueue makes it of another object. "
    "The advice is annotated, and an Event says so",
)  # fmt: skip
