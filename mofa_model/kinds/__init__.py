"""Kinds of jobs that people already have, one file each, and what is read and written of any of them.

May import: annotations, launch, errors. Imported by: manifest, verbs, and mofa_operator.

    kind          JobKind: what a kind is made of
    jobset · trainjob · pytorchjob · volcano · rayjob · batch
    shape         reading what somebody else wrote, as declared types
    pods          pods of all kinds: GPUs, nodes, commands
    observation   what a look at a job says of its life
    new_job       what a job that is made here is made of
    patches       how launch arguments are written
    fence         what the admission policy lets through

The operator's watches, the chart's roles and fence, series of pods and the documents are made from `KINDS`.
"""

from __future__ import annotations

from typing import Final

from mofa_model.errors import InputError
from mofa_model.kinds.batch import BATCH_JOB
from mofa_model.kinds.jobset import JOB_SET
from mofa_model.kinds.kind import JobKind, Kind, PodLabels
from mofa_model.kinds.pods import Demand
from mofa_model.kinds.pytorchjob import PYTORCH_JOB
from mofa_model.kinds.rayjob import RAY_JOB
from mofa_model.kinds.shape import Body, mapping, text_of
from mofa_model.kinds.trainjob import TRAIN_JOB
from mofa_model.kinds.volcano import VOLCANO_JOB

KINDS: Final = (JOB_SET, TRAIN_JOB, PYTORCH_JOB, VOLCANO_JOB, RAY_JOB, BATCH_JOB)
"""All of them; nearest to us first."""
LABELS: Final = tuple(dict.fromkeys(kind.labels for kind in KINDS if kind.labels is not None))
"""Labels of their pods, in the same order: a TrainJob's pods are those of its JobSet."""

__all__ = [
    "BATCH_JOB",
    "JOB_SET",
    "KINDS",
    "LABELS",
    "PYTORCH_JOB",
    "RAY_JOB",
    "TRAIN_JOB",
    "VOLCANO_JOB",
    "Body",
    "Demand",
    "JobKind",
    "Kind",
    "PodLabels",
    "asked_of",
    "demand_of",
    "job_kind",
]


def job_kind(api_version: object, kind: object) -> JobKind | None:
    """The kind that a manifest names, whatever the version of its group; None where it is none of them.

    >>> job_kind("jobset.x-k8s.io/v1alpha2", "JobSet") is JOB_SET
    True
    """
    group = text_of(api_version).rpartition("/")[0]
    return next((one for one in KINDS if one.group == group and one.kind == kind), None)


def demand_of(body: Body) -> Demand:
    """GPUs, launch command and node selector of a job."""
    kind = job_kind(body.get("apiVersion"), body.get("kind"))
    if kind is None:
        known = ", ".join(sorted(f"{one.kind}.{one.group}" for one in KINDS))
        raise InputError(f"replicas of a {body.get('kind')} cannot be read; known: {known}")
    if not isinstance(spec := body.get("spec"), dict):
        raise InputError("spec: is missing; give a mapping")
    return kind.demand(spec)


def asked_of(spec: object) -> object:
    """What of a job's spec its answer depends on: all but whether it waits.

    >>> asked_of({"suspend": True, "runPolicy": {"suspend": True, "backoffLimit": 3}})
    {'runPolicy': {'backoffLimit': 3}}
    """
    for path in dict.fromkeys(kind.suspend for kind in KINDS if kind.suspend):
        spec = _without(spec, path)
    return spec


def _without(value: object, path: tuple[str, ...]) -> object:
    """A mapping without what stands at the end of a path."""
    first, *rest = path
    if first not in (here := mapping(value)):
        return value
    if not rest:
        return {key: one for key, one in here.items() if key != first}
    return here | {first: _without(here[first], tuple(rest))}
