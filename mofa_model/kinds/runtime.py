"""What a TrainJob asks for: its own section of the trainer, laid over the runtime that it names.

The runtime is a JobSet with holes. Its job for training is `node`, or the one that is labelled as the trainer's step; the number
of that one's pods is `numNodes`, and the resources, image and command of its container `node` are the trainer's where it says any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mofa_model.kinds.beside import Beside, Kind, Reference
from mofa_model.kinds.demand import ELSEWHERE, Demand, PodSet, named, total
from mofa_model.kinds.devices import Devices, Others
from mofa_model.kinds.jobset import ReplicatedJob, replicated
from mofa_model.kinds.pods import Container, PodSpec, PodTemplate, torchrun
from mofa_model.kinds.shape import Body, Count, Labels, Line, Many, Shape, Text, Whole, read, under

TRAINING_RUNTIME: Final = Kind(
    "trainer.kubeflow.org", "v1alpha1", "TrainingRuntime", "trainingruntimes"
)
CLUSTER_TRAINING_RUNTIME: Final = Kind(
    "trainer.kubeflow.org",
    "v1alpha1",
    "ClusterTrainingRuntime",
    "clustertrainingruntimes",
    namespaced=False,
)
TRAINER: Final = "node"
"""The trainer's job, and its container, in the runtimes of Kubeflow."""
_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"


class _Override(Shape):
    """How pods of the runtime differ, as older releases have it."""

    spec: PodSpec = PodSpec()


class Patch(Shape):
    """How the runtime differs, as newer releases have it."""

    manager: Text = ""
    training_runtime_spec: object = None
    jobs: Many[ReplicatedJob] = under(
        (), "trainingRuntimeSpec", "template", "spec", "replicatedJobs"
    )


class TrainSpec(Shape):
    """The spec of a TrainJob."""

    runtime: Text = under("", "runtimeRef", "name")
    runtime_kind: Text = under(CLUSTER_TRAINING_RUNTIME.kind, "runtimeRef", "kind")
    nodes: Count | None = under(None, "trainer", "numNodes")
    processes: Whole = under(0, "trainer", "numProcPerNode")
    resources: object = under(None, "trainer", "resourcesPerNode")
    gpus: Devices = under(0, "trainer", "resourcesPerNode")
    others: Others = under({}, "trainer", "resourcesPerNode")
    image: Text = under("", "trainer", "image")
    command: Line = under(None, "trainer", "command")
    model: Text = under("", "initializer", "model", "storageUri")
    args: Line = under(None, "trainer", "args")
    pod_template_overrides: Many[_Override] = ()
    runtime_patches: Many[Patch] | None = None


class _Job(ReplicatedJob):
    step: Labels = under({}, "template", "metadata", "labels")


class _Runtime(Shape):
    nodes: Count | None = under(None, "mlPolicy", "numNodes")
    processes: Whole = under(0, "mlPolicy", "torch", "numProcPerNode")
    least: Count | None = under(None, "mlPolicy", "torch", "elasticPolicy", "minNodes")
    most: Count | None = under(None, "mlPolicy", "torch", "elasticPolicy", "maxNodes")
    jobs: Many[_Job] = under((), "template", "spec", "replicatedJobs")


def of_train_job(spec: Body, beside: Beside) -> Demand:
    """Nodes, GPUs of each, command and node selector; what the trainer's section leaves open its runtime says."""
    found = read(TrainSpec, spec)
    kind = (
        TRAINING_RUNTIME
        if found.runtime_kind == TRAINING_RUNTIME.kind
        else CLUSTER_TRAINING_RUNTIME
    )
    wanted = Reference(kind, found.runtime)
    above = beside.spec(wanted) if found.runtime else None
    runtime = _Runtime() if above is None else read(_Runtime, above, f"{wanted}: spec")
    asked = _total(found, runtime, f"{wanted}: spec", beside)
    if above is not None or asked.missing:
        return asked
    if asked.gpus and (found.nodes is not None or torchrun(asked.words) is not None):
        return asked
    if found.runtime:
        return named(replace(asked, gpus=0, pod=0), wanted, "spec.runtimeRef.name")
    field = (
        "spec.trainer.numNodes: is missing"
        if found.nodes is None
        else asked.unread.partition(";")[0]
    )
    return replace(asked, gpus=0, pod=0, unread=f"{field}; give it, or {ELSEWHERE}")


def _total(found: TrainSpec, runtime: _Runtime, path: str, beside: Beside) -> Demand:
    """The trainer's pods and those of the runtime's other jobs; `path` is where the runtime's spec stands."""
    number = _trainer(runtime.jobs)
    base = None if number is None else runtime.jobs[number].pods
    told = (found.nodes, runtime.nodes, runtime.least)  # an elastic runtime has no other number
    nodes = next((one for one in told if one is not None), None)
    sets = replicated(runtime.jobs, f"{path}.template.spec")
    where = sets[number].where if number is not None and found.resources is None else "spec.trainer"
    trainer = PodSet(
        where=where,
        template=PodTemplate(spec=_laid(found, (base or PodTemplate()).spec)),
        counted="spec.trainer.numNodes",
        asks="spec.trainer.resourcesPerNode",
        count=1 if nodes is None else nodes,
        least=runtime.least,
        most=runtime.most,
    )
    others = [one for one, job in zip(sets, runtime.jobs, strict=True) if not _trains(job)]
    each = found.processes or runtime.processes
    asked = total([trainer, *others], beside, holds=where, nodes=nodes or 0, each=each)
    said = "spec.trainer.args" if found.args else "spec.trainer.command"
    selector = dict(asked.selector)
    for pods in _changes(found):
        selector |= pods.selector
    said = said if found.args or found.command else asked.said
    return replace(asked, selector=selector, said=said, model=found.model)


def _laid(found: TrainSpec, pods: PodSpec) -> PodSpec:
    """The trainer's section laid over a pod of the runtime."""
    number = next((at for at, one in enumerate(pods.containers) if one.name == TRAINER), 0)
    containers = list(pods.containers) or [Container(name=TRAINER)]
    changed: dict[str, object] = {
        name: value
        for name, value in (
            ("image", found.image),
            ("command", found.command),
            ("args", found.args),
        )
        if value
    }
    if found.resources is not None:
        changed |= {"gpus": found.gpus, "others": found.others}
    containers[number] = containers[number].model_copy(update=changed)
    return pods.model_copy(update={"containers": tuple(containers)})


def _trains(job: _Job) -> bool:
    """Whether a job of a runtime is of the trainer's step: its nodes, or what starts them and counts as one of these."""
    return job.name in {TRAINER, "launcher"} or job.step.get(_STEP) == "trainer"


def _trainer(jobs: Sequence[_Job]) -> int | None:
    """The job of a runtime whose pods are the trainer's nodes."""
    by_name = (number for number, one in enumerate(jobs) if one.name == TRAINER)
    return next(by_name, next((number for number, one in enumerate(jobs) if _trains(one)), None))


def _changes(found: TrainSpec) -> list[PodSpec]:
    """How pods of the runtime differ."""
    patched = [
        job.pods.spec for patch in found.runtime_patches or () for job in patch.jobs if job.pods
    ]
    return [*(one.spec for one in found.pod_template_overrides), *patched]
