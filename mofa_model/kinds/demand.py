"""What a job asks for: GPUs, one command and the labels of its nodes, from its sets of pods.

Nothing is guessed: processes are processes, and where pods ask for no GPUs there are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from mofa_model.errors import InputError
from mofa_model.kinds.pods import GPU, Mount, PodSpec, PodTemplate, claimed_gpus, launches, torchrun
from mofa_model.kinds.shape import MOST, NO_OBJECTS, Reference, ReferencedObjects
from mofa_model.records import dataclass

ELSEWHERE: Final = "say cluster.nodes in the spec behind the annotation advisor.mofa.dev/config-ref"
"""What helps where an object does not say how many GPUs it has."""
_SIZES: Final = 8
"""Sizes of an elastic job that are told apart, at most. [1]"""
_LONGEST: Final = 100
"""Characters of what a container asks for that are repeated. [1]"""
_GPUS: Final = " or ".join(GPU)


@dataclass(frozen=True, kw_only=True)
class PodSet:
    """Pods that are all alike."""

    where: str
    """Where their template stands in the object."""
    template: PodTemplate | None
    """The pod; None where there is none."""
    counted: str
    """The field that says how many there are."""
    asks: str = ""
    """The field in which they ask for GPUs, where that is not in their template."""
    count: int = 1
    """How many. [1]"""
    least: int | None = None
    """The fewest with which the job runs too; None = no fewer. [1]"""
    most: int | None = None
    """The most that it may become; None = no more. [1]"""
    stride: int = 1
    """Pods that come and go together. [1]"""

    @property
    def spec(self) -> PodSpec:
        """What its pods are made of; empty where there is no template."""
        return (self.template or PodTemplate()).spec


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What a job asks for."""

    gpus: int
    """GPUs of all pods; 0 where these cannot be read. [1]"""
    gpus_per_pod: int = 0
    """GPUs of one pod; 0 where these cannot be read, or not all pods have as many. [1]"""
    sizes: tuple[int, ...] = ()
    """GPUs of all pods at each size of an elastic job, fewest first; empty = one size. [1]"""
    words: tuple[str, ...] = ()
    """Command and arguments of the container with GPUs."""
    words_path: str = ""
    """Where these stand in the object."""
    model: str = ""
    """The model that the object itself names, outside of any command; empty where it names none."""
    mounts: tuple[Mount, ...] = ()
    """ConfigMaps among the files of its containers."""
    selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes that the pods with GPUs select."""
    images: frozenset[str] = frozenset()
    """Images of all its containers."""
    unread: str = ""
    """Why the GPUs cannot be read, and what would help; empty where they can."""
    missing: tuple[Reference, ...] = ()
    """Objects that would say more, and are not here."""

    @property
    def files(self) -> dict[str, tuple[str, str]]:
        """Files that its command names and that are keys of ConfigMaps: ConfigMap and key, by path.

        >>> mount = Mount("/etc/run", "tune", "")
        >>> words = ("train.py", "--config=/etc/run/small.yaml")
        >>> Demand(gpus=8, words=words, mounts=(mount,)).files
        {'/etc/run/small.yaml': ('tune', 'small.yaml')}
        """
        named = [
            path
            for word in self.words
            for path in (word, word.partition("=")[2])
            if path.startswith("/")
        ]
        config_files: dict[str, tuple[str, str]] = {}
        for path in named:
            for mount in self.mounts:
                folder, _, file = path.rpartition("/")
                if mount.key and path == mount.path:
                    config_files[path] = (mount.config_map, mount.key)
                elif not mount.key and folder == mount.path:
                    config_files[path] = (mount.config_map, file)
        return config_files


@dataclass(frozen=True, kw_only=True)
class _Set:
    """A set of pods, with what was read in their template."""

    pod_set: PodSet
    gpus: int
    words: tuple[str, ...]
    words_path: str
    why: str
    missing: tuple[Reference, ...]
    blank: bool
    """Whether a container names GPUs and leaves their number empty."""

    @property
    def count(self) -> int:
        """Pods: those that are wanted, and where none are yet, as many as there may be. [1]"""
        return self.pod_set.count or self.pod_set.most or 0

    def sizes(self) -> range:
        """How many pods it may have. [1]"""
        pods = self.pod_set
        least = (self.count if pods.least is None else pods.least) or pods.stride
        return range(min(least, self.count), max(pods.most or 0, self.count) + 1, pods.stride)


def total(
    pod_sets: Iterable[PodSet],
    referenced: ReferencedObjects = NO_OBJECTS,
    *,
    pods_path: str = "spec",
    nodes: int = 0,
    each: int = 0,
) -> Demand:
    """What sets of pods ask for together; `pods_path` is where a job of the kind has its pods.

    Where a container names GPUs and leaves their number empty, processes say it: `each` of `nodes`
    where the object states them, else as torchrun is told. Without a resource there are no GPUs.
    """
    sets = [_read(pod_set, referenced) for pod_set in pod_sets]
    with_gpus = [pods for pods in sets if pods.gpus]
    gpus = sum(pods.count * pods.gpus for pods in with_gpus)
    gpus_per_pod = {pods.gpus for pods in with_gpus if pods.count}
    speaker = next((pods for pods in with_gpus if pods.words), None) or max(
        sets, key=lambda pods: (launches(pods.words), bool(pods.words)), default=None
    )
    words = speaker.words if speaker else ()
    pod_gpus = gpus_per_pod.pop() if len(gpus_per_pod) == 1 else 0
    if any(pods.why for pods in sets):
        gpus = pod_gpus = 0
    elif not gpus and any(pods.blank for pods in sets):
        torchrun_nodes, torchrun_processes = torchrun(words) or (0, 0)
        pod_gpus = each or torchrun_processes
        gpus = (nodes or torchrun_nodes) * pod_gpus
    if gpus > MOST:
        raise InputError(f"{gpus} GPUs are more than any job has; check replicas and {GPU[0]}")
    return Demand(
        gpus=gpus,
        gpus_per_pod=pod_gpus,
        sizes=_sizes(with_gpus) if gpus else (),
        words=words,
        words_path=speaker.words_path if speaker and words else pods_path,
        # A job that is still to be sized asks for no GPU: its nodes are those that its pods select.
        selector=next(filter(None, (pods.pod_set.spec.selector for pods in with_gpus or sets)), {}),
        images=frozenset(
            container.image for pods in sets for container in pods.pod_set.spec.containers
        ),
        mounts=tuple(dict.fromkeys(mount for pods in sets for mount in pods.pod_set.spec.mounts)),
        unread="" if gpus else _unread(sets, pods_path),
        missing=tuple(dict.fromkeys(reference for pods in sets for reference in pods.missing)),
    )


def unresolved(demand: Demand, reference: Reference, where: str) -> Demand:
    """The demand of a job that names an object which would say its pods, and which is not here."""
    unread = f"{where}: {reference} is not here; create it, or {ELSEWHERE}"
    return replace(demand, unread=unread, missing=(reference,))


def _read(pod_set: PodSet, referenced: ReferencedObjects) -> _Set:
    containers = pod_set.spec.containers
    claims = [claimed_gpus(claim, referenced) for claim in pod_set.spec.resource_claims]
    with_gpus = [number for number, container in enumerate(containers) if container.gpus]
    order = [*with_gpus, *(number for number in range(len(containers)) if number not in with_gpus)]
    with_words = [number for number in order if containers[number].words]
    if with_gpus and with_words:
        number = with_words[0]
    else:
        number = max(with_words, key=lambda number: launches(containers[number].words), default=0)
    return _Set(
        pod_set=pod_set,
        gpus=sum(container.gpus for container in containers) + sum(claim.gpus for claim in claims),
        words=containers[number].words if with_words else (),
        words_path=f"{pod_set.where}.spec.containers[{number}]",
        why=next((claim.why for claim in claims if claim.why), ""),
        missing=tuple(reference for claim in claims for reference in claim.missing),
        blank=any(container.blank for container in containers),
    )


def _sizes(pod_sets: Sequence[_Set]) -> tuple[int, ...]:
    """GPUs of the job at each size of its most elastic pod set; empty where none can vary.

    >>> _thinned(range(2, 33))
    [2, 4, 8, 16, 32]
    """
    most_elastic = max(pod_sets, key=lambda pod_set: len(pod_set.sizes()), default=None)
    if most_elastic is None or len(most_elastic.sizes()) < 2:
        return ()
    others = sum(
        pod_set.count * pod_set.gpus for pod_set in pod_sets if pod_set is not most_elastic
    )
    return tuple(others + count * most_elastic.gpus for count in _thinned(most_elastic.sizes()))


def _thinned(counts: range) -> list[int]:
    """The counts, or if they are many the least, its doublings and the most."""
    if len(counts) <= _SIZES:
        return list(counts)
    kept, count = [counts[-1]], counts[0]
    while count < counts[-1]:
        kept.append(count)
        count *= 2
    return sorted(kept)[-_SIZES:]


def _unread(sets: Sequence[_Set], pods_path: str) -> str:
    """Why no GPUs were found, in the object's own words."""
    if not any(pods.pod_set.spec.containers for pods in sets):
        return (
            f"{pods_path}: has no containers; give it a pod that asks for {GPU[0]}, or {ELSEWHERE}"
        )
    for pods in sets:
        if pods.why:
            return f"{pods.pod_set.where}.spec.resourceClaims: {pods.why}, or {ELSEWHERE}"
        if pods.gpus:
            return f"{pods.pod_set.counted}: is 0; say how many pods there are, or {ELSEWHERE}"
    shown = next((pods for pods in sets if pods.pod_set.asks), None)
    shown = shown or max(reversed(sets), key=lambda pods: (_is_device(pods.pod_set), pods.count))
    containers = shown.pod_set.spec.containers
    number = next((index for index, container in enumerate(containers) if container.others), 0)
    where = shown.pod_set.asks or f"{shown.pod_set.where}.spec.containers[{number}].resources"
    others = containers[number].others if containers else {}
    requests = ", ".join(f"{name}: {amount}" for name, amount in others.items())[:_LONGEST]
    return (
        f"{where}.limits: asks for {requests or 'nothing'}, and for no {_GPUS}, "
        f"the GPUs that are known; ask for them there, or {ELSEWHERE}"
    )


def _is_device(pod_set: PodSet) -> bool:
    """Whether a pod asks for what some vendor names, as accelerators are named."""
    return any("/" in name for container in pod_set.spec.containers for name in container.others)
