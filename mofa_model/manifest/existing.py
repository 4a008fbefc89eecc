"""Existing kinds of jobs: how many GPUs they ask for, on which nodes, and what their launch command says.

    JobSet · PyTorchJob · TrainJob · Volcano Job · RayJob · batch Job

Only what is written in the object is read: replicas, GPUs of a pod, commands. Nothing is guessed.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from mofa_model.errors import InputError

GPU: Final = ("nvidia.com/gpu", "amd.com/gpu")
"""Names of the resource."""
_MOST: Final = 10_000_000
"""No job has as many pods or GPUs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pods:
    """Pods of one template."""

    count: int
    """How many. [1]"""
    spec: Mapping[str, Any]
    """The pod spec."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """What a job asks for."""

    gpus: int
    """GPUs of all pods. [1]"""
    words: tuple[str, ...]
    """Command and arguments of the container with GPUs."""
    selector: Mapping[str, str]
    """Node selector of the pods with GPUs."""


def known(kind: str, api_version: str) -> bool:
    """Whether a kind's replicas can be read."""
    return _reader(kind, api_version) is not None


def demand_of(value: Mapping[str, Any]) -> Demand:
    """GPUs, launch command and node selector of an existing job."""
    reader = _reader(_text(value.get("kind")), _text(value.get("apiVersion")))
    if reader is None:
        raise InputError(
            f"replicas of a {value.get('kind')} cannot be read; known: {', '.join(sorted(_READERS))}"
        )
    spec = value.get("spec")
    if not isinstance(spec, Mapping):
        raise InputError("spec: is missing; give a mapping")
    return reader(spec)


def _total(pods_of: Callable[[Mapping[str, Any]], Iterator[Pods]], spec: Mapping[str, Any]) -> Demand:
    """What the pods of a spec ask for together."""
    gpus = 0
    words: tuple[str, ...] = ()
    selector: Mapping[str, str] = {}
    for pods in pods_of(spec):
        each, command = _containers(pods.spec)
        if each:
            gpus += pods.count * each
            words = words or command
            selector = selector or _labels(pods.spec.get("nodeSelector"))
    if not 0 < gpus <= _MOST:
        raise InputError(f"no container asks for {GPU[0]}; the number of nodes cannot be read")
    return Demand(gpus=gpus, words=words, selector=selector)


def _reader(kind: str, api_version: str) -> Callable[[Mapping[str, Any]], Demand] | None:
    return _READERS.get(f"{kind}.{api_version.partition('/')[0]}")


def _job_set(spec: Mapping[str, Any]) -> Iterator[Pods]:
    for replicated in _maps(spec.get("replicatedJobs")):
        job = _map(_map(replicated.get("template")).get("spec"))
        count = _count(replicated.get("replicas", 1)) * _count(job.get("parallelism", 1))
        yield Pods(count=count, spec=_pod(job))


def _pytorch_job(spec: Mapping[str, Any]) -> Iterator[Pods]:
    for replica in _map(spec.get("pytorchReplicaSpecs")).values():
        yield Pods(count=_count(_map(replica).get("replicas", 1)), spec=_pod(_map(replica)))


def _volcano_job(spec: Mapping[str, Any]) -> Iterator[Pods]:
    for task in _maps(spec.get("tasks")):
        yield Pods(count=_count(task.get("replicas", 1)), spec=_pod(task))


def _ray_job(spec: Mapping[str, Any]) -> Iterator[Pods]:
    cluster = _map(spec.get("rayClusterSpec"))
    yield Pods(count=1, spec=_pod(_map(cluster.get("headGroupSpec"))))
    for group in _maps(cluster.get("workerGroupSpecs")):
        count = _count(group.get("replicas", 1)) * _count(group.get("numOfHosts", 1))
        yield Pods(count=count, spec=_pod(group))


def _batch_job(spec: Mapping[str, Any]) -> Iterator[Pods]:
    yield Pods(count=_count(spec.get("parallelism", 1)), spec=_pod(spec))


def _train_job(spec: Mapping[str, Any]) -> Demand:
    """A TrainJob has no pod template: its trainer section says it all."""
    trainer = _map(spec.get("trainer"))
    each = _gpus(_map(trainer.get("resourcesPerNode")))
    processes = trainer.get("numProcPerNode")
    if not each and isinstance(processes, int) and not isinstance(processes, bool):
        each = _count(processes)
    nodes = trainer.get("numNodes")
    if nodes is None or not each:
        raise InputError("spec.trainer: numNodes and resourcesPerNode are needed to read the number of nodes")
    return Demand(
        gpus=_count(nodes) * each,
        words=(*_words(trainer.get("command")), *_words(trainer.get("args"))),
        selector={},
    )


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Demand]]] = {
    "JobSet.jobset.x-k8s.io": partial(_total, _job_set),
    "PyTorchJob.kubeflow.org": partial(_total, _pytorch_job),
    "TrainJob.trainer.kubeflow.org": _train_job,
    "Job.batch.volcano.sh": partial(_total, _volcano_job),
    "RayJob.ray.io": partial(_total, _ray_job),
    "Job.batch": partial(_total, _batch_job),
}


def _containers(pod: Mapping[str, Any]) -> tuple[int, tuple[str, ...]]:
    """GPUs of a pod, and the command of the container that has them."""
    gpus = 0
    words: tuple[str, ...] = ()
    for container in _maps(pod.get("containers")):
        each = _gpus(_map(container.get("resources")))
        if each:
            gpus += each
            words = words or (*_words(container.get("command")), *_words(container.get("args")))
    return gpus, words


def _gpus(resources: Mapping[str, Any]) -> int:
    for section in ("limits", "requests"):
        for name in GPU:
            value = _map(resources.get(section)).get(name)
            if value is not None:
                return _count(
                    int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
                )
    return 0


def _words(given: Any) -> tuple[str, ...]:
    """Command or arguments; a shell line is one word, and is read as the words in it."""
    found: list[str] = []
    for word in given if isinstance(given, list) else ():
        text = str(word)
        if " " not in text and "\n" not in text:
            found.append(text)
            continue
        try:
            found += shlex.split(text.replace("\\\n", " "), comments=True)
        except ValueError:
            found.append(text)
    return tuple(found)


def _pod(owner: Mapping[str, Any]) -> Mapping[str, Any]:
    return _map(_map(owner.get("template")).get("spec"))


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise InputError(f"a number of replicas or GPUs cannot be {value!r}; give a whole number")
    return value


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _maps(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _labels(value: Any) -> dict[str, str]:
    return {str(key): str(label) for key, label in _map(value).items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
