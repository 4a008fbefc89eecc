"""Existing kinds of jobs: how many GPUs they ask for, on which nodes, and what their launch command says.

    JobSet · PyTorchJob · TrainJob · Volcano Job · RayJob · batch Job

Only what is written in the object is read: replicas, GPUs of a pod, commands. Nothing is guessed. Where pods ask for no
GPUs, torchrun's own words (`--nnodes`, `--nproc-per-node`) say how many processes there are, one for each GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from mofa_model.errors import InputError
from mofa_model.launch.shell import words_of
from mofa_model.manifest.pods import MOST, Pods, count_of, mapping, mappings, pod_of, selector_of, text_of

GPU: Final = ("nvidia.com/gpu", "amd.com/gpu")
"""Names of the resource."""
_ELSEWHERE: Final = "say cluster.nodes in the spec behind the annotation advisor.mofa.dev/config-ref"
_TORCHRUN: Final = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
_NODES, _PROCESSES = "--nnodes", "--nproc-per-node"


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """What a job asks for."""

    gpus: int
    """GPUs of all pods; 0 where these cannot be read. [1]"""
    pod: int = 0
    """GPUs of one pod; 0 where these cannot be read, or not all pods have as many. [1]"""
    words: tuple[str, ...]
    """Command and arguments of the container with GPUs."""
    selector: Mapping[str, str]
    """Labels of the nodes that the pods with GPUs select."""
    unread: str = ""
    """Why the GPUs cannot be read, and what would help; empty where they can."""


def known(kind: str, api_version: str) -> bool:
    """Whether a kind's replicas can be read."""
    return _reader(kind, api_version) is not None


def demand_of(value: Mapping[str, Any]) -> Demand:
    """GPUs, launch command and node selector of an existing job."""
    reader = _reader(text_of(value.get("kind")), text_of(value.get("apiVersion")))
    if reader is None:
        raise InputError(
            f"replicas of a {value.get('kind')} cannot be read; known: {', '.join(sorted(_READERS))}"
        )
    spec = value.get("spec")
    if not isinstance(spec, Mapping):
        raise InputError("spec: is missing; give a mapping")
    return reader(spec)


def asked_of(spec: Any) -> Any:
    """What of a job's spec its answer depends on: all but whether it waits.

    >>> asked_of({"suspend": True, "runPolicy": {"suspend": True, "backoffLimit": 3}})
    {'runPolicy': {'backoffLimit': 3}}
    """
    if not isinstance(spec, Mapping):
        return spec
    asked = {key: value for key, value in spec.items() if key != "suspend"}
    if "suspend" in mapping(spec.get("runPolicy")):
        asked["runPolicy"] = {key: value for key, value in spec["runPolicy"].items() if key != "suspend"}
    return asked


def _total(pods_of: Callable[[Mapping[str, Any]], Iterator[Pods]], spec: Mapping[str, Any]) -> Demand:
    """What the pods of a spec ask for together."""
    gpus = 0
    sizes: set[int] = set()
    words: tuple[str, ...] = ()
    lines: list[tuple[str, ...]] = []
    selector: Mapping[str, str] = {}
    for pods in pods_of(spec):
        each, command = _containers(pods.spec)
        if each:
            gpus += pods.count * each
            sizes |= {each} if pods.count else set()
            words = words or command
            selector = selector or selector_of(pods.spec)
        else:
            lines += _lines(pods.spec)
    pod = sizes.pop() if len(sizes) == 1 else 0
    return _demand(gpus, pod, words or max(lines, key=_launches, default=()), selector)


def _demand(gpus: int, pod: int, words: tuple[str, ...], selector: Mapping[str, str]) -> Demand:
    if not gpus:
        nodes, pod = _torchrun(words) or (0, 0)
        gpus = nodes * pod
    if gpus > MOST:
        raise InputError(f"{gpus} GPUs are more than any job has; check replicas and {GPU[0]}")
    unread = "" if gpus else f"no container asks for {GPU[0]}: ask for it in its limits, or {_ELSEWHERE}"
    return Demand(gpus=gpus, pod=pod, words=words, selector=selector, unread=unread)


def _reader(kind: str, api_version: str) -> Callable[[Mapping[str, Any]], Demand] | None:
    return _READERS.get(f"{kind}.{api_version.partition('/')[0]}")


def _job_set(spec: Mapping[str, Any]) -> Iterator[Pods]:
    for replicated in mappings(spec.get("replicatedJobs")):
        job = mapping(mapping(replicated.get("template")).get("spec"))
        count = count_of(replicated.get("replicas", 1)) * count_of(job.get("parallelism", 1))
        yield Pods(count=count, spec=pod_of(job))


def _pytorch_job(spec: Mapping[str, Any]) -> Iterator[Pods]:
    for replica in mapping(spec.get("pytorchReplicaSpecs")).values():
        yield Pods(count=count_of(mapping(replica).get("replicas", 1)), spec=pod_of(mapping(replica)))


def _volcano_job(spec: Mapping[str, Any]) -> Iterator[Pods]:
    for task in mappings(spec.get("tasks")):
        yield Pods(count=count_of(task.get("replicas", 1)), spec=pod_of(task))


def _ray_pods(spec: Mapping[str, Any]) -> Iterator[Pods]:
    cluster = mapping(spec.get("rayClusterSpec"))
    yield Pods(count=1, spec=pod_of(mapping(cluster.get("headGroupSpec"))))
    for group in mappings(cluster.get("workerGroupSpecs")):
        count = count_of(group.get("replicas", 1)) * count_of(group.get("numOfHosts", 1))
        yield Pods(count=count, spec=pod_of(group))


def _ray_job(spec: Mapping[str, Any]) -> Demand:
    """The containers of a RayJob start Ray; what is trained stands in its entrypoint."""
    demand = _total(_ray_pods, spec)
    return replace(demand, words=_words([spec["entrypoint"]])) if text_of(spec.get("entrypoint")) else demand


def _batch_job(spec: Mapping[str, Any]) -> Iterator[Pods]:
    yield Pods(count=count_of(spec.get("parallelism", 1)), spec=pod_of(spec))


def _train_job(spec: Mapping[str, Any]) -> Demand:
    """A TrainJob has no pod template: its trainer section says it all, its patches where, and the rest its runtime, which
    is not read.
    """
    trainer = mapping(spec.get("trainer"))
    selector = {label: value for pod in _patched(spec) for label, value in selector_of(pod).items()}
    words = (*_words(trainer.get("command")), *_words(trainer.get("args")))
    nodes, processes = _torchrun(words) or (0, 0)
    each = (
        _gpus(mapping(trainer.get("resourcesPerNode"))) or _whole(trainer.get("numProcPerNode")) or processes
    )
    nodes = count_of(trainer["numNodes"]) if trainer.get("numNodes") is not None else nodes
    if not nodes or not each:
        field, right = (
            ("numNodes", "a number of nodes")
            if not nodes
            else ("resourcesPerNode", f"{GPU[0]} in its limits (or numProcPerNode)")
        )
        unread = (
            f"spec.trainer.{field}: is missing, and the runtime is not read: give {right}, or {_ELSEWHERE}"
        )
        return Demand(gpus=0, words=words, selector=selector, unread=unread)
    return _demand(nodes * each, each, words, selector)


def _patched(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Pod specs with which a TrainJob changes its runtime's: as older releases have it, and as newer ones do."""
    for override in mappings(spec.get("podTemplateOverrides")):
        yield mapping(override.get("spec"))
    for patch in mappings(spec.get("runtimePatches")):
        runtime = mapping(patch.get("trainingRuntimeSpec"))
        jobs = mapping(mapping(runtime.get("template")).get("spec")).get("replicatedJobs")
        for job in mappings(jobs):
            yield pod_of(mapping(mapping(job.get("template")).get("spec")))


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Demand]]] = {
    "JobSet.jobset.x-k8s.io": partial(_total, _job_set),
    "PyTorchJob.kubeflow.org": partial(_total, _pytorch_job),
    "TrainJob.trainer.kubeflow.org": _train_job,
    "Job.batch.volcano.sh": partial(_total, _volcano_job),
    "RayJob.ray.io": _ray_job,
    "Job.batch": partial(_total, _batch_job),
}


KINDS: Final = tuple(sorted({name.partition(".")[0] for name in _READERS}))
"""Kinds that are read, by their short names."""


def _containers(pod: Mapping[str, Any]) -> tuple[int, tuple[str, ...]]:
    """GPUs of a pod, and the command of the container that has them."""
    gpus = 0
    words: tuple[str, ...] = ()
    for container in mappings(pod.get("containers")):
        each = _gpus(mapping(container.get("resources")))
        if each:
            gpus += each
            words = words or (*_words(container.get("command")), *_words(container.get("args")))
    return gpus, words


def _gpus(resources: Mapping[str, Any]) -> int:
    for section in ("limits", "requests"):
        for name in GPU:
            value = mapping(resources.get(section)).get(name)
            if value is not None:
                return count_of(
                    int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
                )
    return 0


def _torchrun(words: Sequence[str]) -> tuple[int, int] | None:
    """Nodes, and processes of each, as torchrun is told; None where it is not, or not in numbers.

    >>> _torchrun(["torchrun", "--nnodes=32", "--nproc_per_node", "8", "train.py"])
    (32, 8)
    """
    if not _launches(words):
        return None
    told: dict[str, int] = {}
    for word, after in zip(words, (*words[1:], ""), strict=True):
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        if name in {_NODES, _PROCESSES} and name not in told:
            told[name] = _whole(value if equals else after)
    nodes, processes = told.get(_NODES, 1), told.get(_PROCESSES, 0)
    return (nodes, processes) if nodes and processes else None


def _launches(words: Sequence[str]) -> bool:
    """Whether a command starts torchrun."""
    return any(word.rpartition("/")[2] in _TORCHRUN for word in words)


def _whole(value: Any) -> int:
    """A whole number, also as text; 0 where there is none that could be meant."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < len(str(MOST)):
        return int(value)
    return count_of(value) if isinstance(value, int) and not isinstance(value, bool) else 0


def _lines(pod: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Commands of a pod's containers."""
    for container in mappings(pod.get("containers")):
        yield (*_words(container.get("command")), *_words(container.get("args")))


def _words(given: Any) -> tuple[str, ...]:
    """Command or arguments; a shell line is one word, and is read as the words in it."""
    found: list[str] = []
    for word in given if isinstance(given, list) else ():
        text = str(word)
        if " " not in text and "\n" not in text:
            found.append(text)
            continue
        try:
            found += words_of(text)
        except ValueError:
            found.append(text)
    return tuple(found)
