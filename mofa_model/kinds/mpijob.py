"""MPIJob, of Kubeflow: a launcher that starts processes on workers."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mofa_model.kinds.demand import Demand, PodSet
from mofa_model.kinds.kind import JobKind, Observation, PodLabels, RestartLimit
from mofa_model.kinds.pytorchjob import Role, observed, roles
from mofa_model.kinds.shape import (
    NO_OBJECTS,
    Body,
    ByName,
    ReferencedObjects,
    Shape,
    glance,
    read,
    under,
)

_LAUNCHER: Final = "Launcher"
_ROLES: Final = "mpiReplicaSpecs"


class _Spec(Shape):
    roles: ByName[Role] = under({}, _ROLES)


class MPIJob(JobKind):
    """A job whose launcher has the training command; its workers wait to be called."""

    def pod_sets(self, spec: Body) -> list[PodSet]:
        """The launcher and the workers."""
        return roles(f"spec.{_ROLES}", read(_Spec, spec).roles)

    def demand(self, spec: Body, referenced: ReferencedObjects = NO_OBJECTS) -> Demand:
        """What its pods ask for, with the command of the launcher's container."""
        demand_of_pods = super().demand(spec, referenced)
        launcher = read(_Spec, spec).roles.get(_LAUNCHER, Role()).template.spec.containers
        for number, container in enumerate(launcher):
            if container.words:
                path = f"spec.{_ROLES}.{_LAUNCHER}.template.spec.containers[{number}]"
                return replace(demand_of_pods, words=container.words, words_path=path)
        return demand_of_pods

    def observed(self, body: Body, now: float) -> Observation:
        """Its conditions, and how many pods run."""
        del now
        return observed(glance(_Spec, body.get("spec")).roles, body.get("status"))


MPI_JOB = MPIJob(
    "kubeflow.org", "v2beta1", "MPIJob", "mpijobs",
    restart_limit=RestartLimit(path=("runPolicy", "backoffLimit")),
    others=("v1",),
    suspend=("runPolicy", "suspend"),
    pods_path="spec.mpiReplicaSpecs.*.template",
    arguments_note="nothing: its launcher is made together with it. "
    "The advice is annotated, and an Event says so",
    labels=PodLabels(job="training.kubeflow.org/job-name"),
)  # fmt: skip
