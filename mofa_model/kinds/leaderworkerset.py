"""LeaderWorkerSet, of the Kubernetes project: independent groups of a leader and its workers."""

from __future__ import annotations

from typing import Final

from mofa_model.kinds.demand import PodSet
from mofa_model.kinds.kind import ConditionedStatus, JobKind, Observation, PodLabels
from mofa_model.kinds.pods import PodTemplate
from mofa_model.kinds.shape import Body, Count, Shape, Tally, at, glance, read, text_of, under
from mofa_model.spec.recovery_classes import RecoveryClass

_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
"""Label of its pods."""


class _Spec(Shape):
    replicas: Count = 1
    size: Count = under(1, "leaderWorkerTemplate", "size")
    leader: PodTemplate | None = under(None, "leaderWorkerTemplate", "leaderTemplate")
    worker: PodTemplate | None = under(None, "leaderWorkerTemplate", "workerTemplate")


class _Status(ConditionedStatus):
    ready_replicas: Tally = 0


class LeaderWorkerSet(JobKind):
    """Its groups do not know of each other, so advice is for one group, as Kueue admits them."""

    def pod_sets(self, spec: Body) -> list[PodSet]:
        """The pods of one group; a leader without a template is made as its workers."""
        group, path = read(_Spec, spec), "spec.leaderWorkerTemplate"
        workers = PodSet(
            where=f"{path}.workerTemplate",
            template=group.worker,
            counted=f"{path}.size",
            count=group.size - (group.leader is not None and group.size > 0),
        )
        leader = PodSet(
            where=f"{path}.leaderTemplate", template=group.leader, counted=f"{path}.size"
        )
        return [workers] if group.leader is None else [leader, workers]

    def observed(self, body: Body, now: float) -> Observation:
        """How many groups are ready."""
        del now
        spec, status = glance(_Spec, body.get("spec")), glance(_Status, body.get("status"))
        ready = status.ready_replicas >= spec.replicas if body.get("status") else None
        return Observation(ready=ready, drop=RecoveryClass.POD)

    def pod_selector(self, body: Body) -> str:
        """The pods of all its groups."""
        return f"{_NAME}={text_of(at(body, 'metadata', 'name'))}"


LEADER_WORKER_SET = LeaderWorkerSet(
    "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets",
    labels=PodLabels(job=_NAME),
    witness=False,
    suspend=(),
    pods_path="spec.leaderWorkerTemplate.workerTemplate",
    stamped_templates=(
        ("leaderWorkerTemplate", "leaderTemplate"),
        ("leaderWorkerTemplate", "workerTemplate"),
    ),
    arguments_note="nothing: it cannot wait. The advice is annotated, and an Event says so",
)  # fmt: skip
