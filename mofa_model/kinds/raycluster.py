"""RayCluster, of KubeRay: a head and groups of workers, on which somebody runs something."""

from __future__ import annotations

from mofa_model.kinds.demand import PodSet
from mofa_model.kinds.kind import JobKind, Observation
from mofa_model.kinds.pods import PodTemplate
from mofa_model.kinds.shape import (
    Body,
    Count,
    Many,
    Moment,
    Shape,
    Tally,
    Text,
    Truth,
    glance,
    read,
    under,
)
from mofa_model.spec.recovery_classes import RecoveryClass


class _Workers(Shape):
    replicas: Count | None = None
    min_replicas: Count | None = None
    max_replicas: Count | None = None
    num_of_hosts: Count = 1
    template: PodTemplate = PodTemplate()


class RaySpec(Shape):
    """The spec of a RayCluster, which a RayJob holds too."""

    head: PodTemplate = under(PodTemplate(), "headGroupSpec", "template")
    workers: Many[_Workers] = under((), "workerGroupSpecs")
    autoscales: Truth = under(False, "enableInTreeAutoscaling")

    def pod_sets(self, path: str) -> list[PodSet]:
        """The head and the workers of all groups, whose number only the autoscaler changes."""
        pod_sets = [
            PodSet(where=f"{path}.headGroupSpec.template", template=self.head, counted=path)
        ]
        for number, group in enumerate(self.workers):
            place = f"{path}.workerGroupSpecs[{number}]"
            replicas = group.replicas if group.replicas is not None else group.min_replicas
            count = 1 if replicas is None else replicas
            bounds = (group.min_replicas, group.max_replicas) if self.autoscales else (None, None)
            least, most = (
                None if bound is None else bound * group.num_of_hosts for bound in bounds
            )
            pod_sets.append(
                PodSet(
                    where=f"{place}.template",
                    template=group.template,
                    counted=f"{place}.replicas",
                    count=count * group.num_of_hosts,
                    least=least,
                    most=most,
                    stride=group.num_of_hosts,
                )
            )
        return pod_sets


class _Status(Shape):
    state: Text = ""
    ready: Tally = under(0, "readyWorkerReplicas")
    desired: Tally = under(0, "desiredWorkerReplicas")
    suspended_at: Moment = under(None, "stateTransitionTimes", "suspended")


class RayCluster(JobKind):
    """Its pods start Ray; what is trained is told to Ray, and stands nowhere in it."""

    def pod_sets(self, spec: Body) -> list[PodSet]:
        """The head and all workers."""
        return read(RaySpec, spec).pod_sets("spec")

    def observed(self, body: Body, now: float) -> Observation:
        """Its state, and how many workers are ready."""
        status = glance(_Status, body.get("status"))
        state = status.state
        return Observation(
            suspended=(status.suspended_at or now) if state == "suspended" else None,
            ready=state == "ready" and status.ready >= status.desired if state else None,
            drop=RecoveryClass.POD,
        )


RAY_CLUSTER = RayCluster(
    "ray.io", "v1", "RayCluster", "rayclusters",
    others=("v1alpha1",),
    witness=False,
    pods_path="spec.workerGroupSpecs[].template",
    arguments_note="nothing: what is trained is told to Ray, not to the object. "
    "The advice is annotated, and an Event says so",
)  # fmt: skip
