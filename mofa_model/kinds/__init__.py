"""Kinds of Kubernetes jobs, one module each: what is read of them and what is written into them.

May import: annotations, launch, errors. Imported by: manifest, verbs, and mofa_operator.

    kind          JobKind: what a kind is made of
    jobset trainjob pytorchjob mpijob volcano rayjob raycluster leaderworkerset batch
    workload      Kueue's: the sets of pods of any other kind
    shape         reading what somebody else wrote, as declared types; objects that a job names
    pods          pods of all kinds: containers, GPUs, nodes, commands
    demand        sets of pods as what a job asks for
    patches       how launch arguments are written, and what the admission policy lets through

The operator's watches, the chart's roles and admission policy, series of pods and the documents
are made from `KINDS`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from mofa_model.errors import InputError, NotApplicable
from mofa_model.kinds.batch import BATCH_JOB
from mofa_model.kinds.demand import Demand
from mofa_model.kinds.jobset import JOB_SET
from mofa_model.kinds.kind import JobKind, PodLabels
from mofa_model.kinds.leaderworkerset import LEADER_WORKER_SET
from mofa_model.kinds.mpijob import MPI_JOB
from mofa_model.kinds.pods import DEVICE_CLASS, RESOURCE_CLAIM_TEMPLATE
from mofa_model.kinds.pytorchjob import PYTORCH_JOB
from mofa_model.kinds.raycluster import RAY_CLUSTER
from mofa_model.kinds.rayjob import RAY_JOB
from mofa_model.kinds.shape import (
    NO_OBJECTS,
    Body,
    Kind,
    ReferencedObjects,
    at,
    items,
    mapping,
    text_of,
)
from mofa_model.kinds.trainjob import CLUSTER_TRAINING_RUNTIME, TRAIN_JOB, TRAINING_RUNTIME
from mofa_model.kinds.volcano import VOLCANO_JOB
from mofa_model.kinds.workload import WORKLOAD

_FIRST: Final = (
    *(JOB_SET, TRAIN_JOB, PYTORCH_JOB, MPI_JOB, VOLCANO_JOB),
    *(RAY_JOB, RAY_CLUSTER, LEADER_WORKER_SET, BATCH_JOB, WORKLOAD),
)


def _others() -> list[JobKind]:
    """Kinds of modules in this folder that are not in `_FIRST`."""
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    values = [value for module in modules for value in vars(module).values()]
    return [kind for kind in values if isinstance(kind, JobKind) and kind not in _FIRST]


KINDS: Final = (*_FIRST, *dict.fromkeys(_others()))
"""All of them; nearest to us first."""
BESIDE: Final = (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME, RESOURCE_CLAIM_TEMPLATE, DEVICE_CLASS)
"""Kinds of objects that are read beside a job, where the job names one."""
LABELS: Final = tuple(dict.fromkeys(kind.labels for kind in KINDS if kind.labels is not None))
"""Labels of their pods, in the same order: a TrainJob's pods are those of its JobSet."""

__all__ = [
    "BATCH_JOB",
    "BESIDE",
    "CLUSTER_TRAINING_RUNTIME",
    "DEVICE_CLASS",
    "JOB_SET",
    "KINDS",
    "LABELS",
    "LEADER_WORKER_SET",
    "MPI_JOB",
    "PYTORCH_JOB",
    "RAY_CLUSTER",
    "RAY_JOB",
    "RESOURCE_CLAIM_TEMPLATE",
    "TRAINING_RUNTIME",
    "TRAIN_JOB",
    "VOLCANO_JOB",
    "WORKLOAD",
    "Body",
    "Demand",
    "JobKind",
    "Kind",
    "PodLabels",
    "ReferencedObjects",
    "controller_of",
    "demand_of",
    "job_kind",
    "same_kind",
    "without_suspension",
]


def job_kind(api_version: object, kind: object) -> JobKind | None:
    """The kind that a manifest names, in any version of its group; None where it is unknown.

    >>> job_kind("jobset.x-k8s.io/v1alpha2", "JobSet") is JOB_SET
    True
    """
    group = text_of(api_version).rpartition("/")[0]
    return next((entry for entry in KINDS if (entry.group, entry.kind) == (group, kind)), None)


def same_kind(
    first_version: object, first_kind: object, second_version: object, second_kind: object
) -> bool:
    """Whether two manifests are of one kind, whatever the versions of its group.

    >>> same_kind("kubeflow.org/v1", "MPIJob", "kubeflow.org/v2beta1", "MPIJob")
    True
    """
    groups = {text_of(version).rpartition("/")[0] for version in (first_version, second_version)}
    return len(groups) == 1 and first_kind == second_kind


def demand_of(body: Body, referenced: ReferencedObjects = NO_OBJECTS) -> Demand:
    """GPUs, launch command and node selector of a job; `referenced` holds objects that it names."""
    kind = job_kind(body.get("apiVersion"), body.get("kind"))
    if kind is None:
        if text_of(body.get("apiVersion")).startswith("apps/"):
            raise NotApplicable(
                f"a {body.get('kind')} keeps its pods up for ever: it is no job that ends, and it "
                "starts a pod that was lost again alone; run the training as a JobSet, a TrainJob "
                "or a PyTorchJob, or describe it by a TrainingJob"
            )
        supported = ", ".join(sorted(f"{entry.kind}.{entry.group}" for entry in KINDS))
        raise InputError(
            f"replicas of a {body.get('kind')} cannot be read; known: {supported}; "
            "of another kind that Kueue admits, give its Workload"
        )
    if not isinstance(spec := body.get("spec"), dict):
        raise InputError("spec: is missing; give a mapping")
    return kind.demand(spec, referenced)


def controller_of(body: Body) -> tuple[JobKind, str] | None:
    """The job of another kind that made an object and controls it; None where none is known.

    >>> owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "tune", "controller": True}
    >>> controller_of({"metadata": {"ownerReferences": [owner]}})[1]
    'tune'
    """
    for owner in items(at(body, "metadata", "ownerReferences")):
        kind = job_kind(owner.get("apiVersion"), owner.get("kind"))
        if kind is not None and owner.get("controller") is True:
            return kind, text_of(owner.get("name"))
    return None


def without_suspension(spec: object) -> object:
    """A job's spec without the fields that suspend it: no answer depends on them.

    >>> without_suspension({"suspend": True, "runPolicy": {"suspend": True, "backoffLimit": 3}})
    {'runPolicy': {'backoffLimit': 3}}
    """
    for path in dict.fromkeys(kind.suspend for kind in KINDS if kind.suspend):
        spec = _without(spec, path)
    return spec


def _without(value: object, path: tuple[str, ...]) -> object:
    """A mapping without what stands at the end of a path."""
    first, *rest = path
    if first not in (fields := mapping(value)):
        return value
    if not rest:
        return {key: field for key, field in fields.items() if key != first}
    return fields | {first: _without(fields[first], tuple(rest))}
