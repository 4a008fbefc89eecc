"""What a job asks for: GPUs, one command and the labels of its nodes, from its sets of pods.

Nothing is guessed: processes are processes, and where pods ask for no GPUs there are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from mofa_model.errors import InputError
from mofa_model.kinds.pods import GPU, Mount, PodSpec, PodTemplate, claimed, launches, torchrun
from mofa_model.kinds.shape import MOST, NOTHING, Beside, Reference
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
    said: str = ""
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
            one
            for word in self.words
            for one in (word, word.partition("=")[2])
            if one.startswith("/")
        ]
        found: dict[str, tuple[str, str]] = {}
        for path in named:
            for mount in self.mounts:
                folder, _, file = path.rpartition("/")
                if mount.key and path == mount.path:
                    found[path] = (mount.config_map, mount.key)
                elif not mount.key and folder == mount.path:
                    found[path] = (mount.config_map, file)
        return found


@dataclass(frozen=True, kw_only=True)
class _Set:
    """A set of pods, read."""

    of: PodSet
    gpus: int
    words: tuple[str, ...]
    said: str
    why: str
    missing: tuple[Reference, ...]
    blank: bool
    """Whether a container names GPUs and leaves their number empty."""

    @property
    def count(self) -> int:
        """Pods: those that are wanted, and where none are yet, as many as there may be. [1]"""
        return self.of.count or self.of.most or 0

    def sizes(self) -> range:
        """How many pods it may have. [1]"""
        least = self.of.least if self.of.least is not None else self.count
        most = self.of.most or 0
        least = least or self.of.stride
        return range(min(least, self.count), max(most, self.count) + 1, self.of.stride)


def total(
    pod_sets: Iterable[PodSet],
    beside: Beside = NOTHING,
    *,
    holds: str = "spec",
    nodes: int = 0,
    each: int = 0,
) -> Demand:
    """What sets of pods ask for together; `holds` is where a job of the kind has its pods.

    Where a container names GPUs and leaves their number empty, processes say it: `each` of `nodes`
    where the object states them, else as torchrun is told. Without a resource there are no GPUs.
    """
    sets = [_read(one, beside) for one in pod_sets]
    asking = [one for one in sets if one.gpus]
    gpus = sum(one.count * one.gpus for one in asking)
    pods = {one.gpus for one in asking if one.count}
    speaks = next((one for one in asking if one.words), None) or max(
        sets, key=lambda one: (launches(one.words), bool(one.words)), default=None
    )
    words = speaks.words if speaks else ()
    pod = pods.pop() if len(pods) == 1 else 0
    if any(one.why for one in sets):
        gpus = pod = 0
    elif not gpus and any(one.blank for one in sets):
        told = torchrun(words) or (0, 0)
        pod = each or told[1]
        gpus = (nodes or told[0]) * pod
    if gpus > MOST:
        raise InputError(f"{gpus} GPUs are more than any job has; check replicas and {GPU[0]}")
    return Demand(
        gpus=gpus,
        gpus_per_pod=pod,
        sizes=_sizes(asking) if gpus else (),
        words=words,
        said=speaks.said if speaks and words else holds,
        # A job that is still to be sized asks for no GPU: its nodes are those that its pods select.
        selector=next((found for one in asking or sets if (found := _spec(one.of).selector)), {}),
        images=frozenset(one.image for each in sets for one in _spec(each.of).containers),
        mounts=tuple(dict.fromkeys(mount for each in sets for mount in _spec(each.of).mounts)),
        unread="" if gpus else _unread(sets, holds),
        missing=tuple(dict.fromkeys(one for each in sets for one in each.missing)),
    )


def named(demand: Demand, reference: Reference, where: str) -> Demand:
    """What is known of a job whose pods stand in an object that it names, and that is not here."""
    unread = f"{where}: {reference} is not here; create it, or {ELSEWHERE}"
    return replace(demand, unread=unread, missing=(reference,))


def _read(one: PodSet, beside: Beside) -> _Set:
    containers = _spec(one).containers
    claims = [claimed(claim, beside) for claim in _spec(one).resource_claims]
    asking = [number for number, container in enumerate(containers) if container.gpus]
    order = [*asking, *(number for number in range(len(containers)) if number not in asking)]
    spoken = [number for number in order if containers[number].words]
    number = (
        spoken[0]
        if asking and spoken
        else max(spoken, key=lambda number: launches(containers[number].words), default=0)
    )
    return _Set(
        of=one,
        gpus=sum(one.gpus for one in containers) + sum(claim.gpus for claim in claims),
        words=containers[number].words if spoken else (),
        said=f"{one.where}.spec.containers[{number}]",
        why=next((claim.why for claim in claims if claim.why), ""),
        missing=tuple(reference for claim in claims for reference in claim.missing),
        blank=any(container.blank for container in containers),
    )


def _spec(one: PodSet) -> PodSpec:
    return (one.template or PodTemplate()).spec


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
    found, count = [counts[-1]], counts[0]
    while count < counts[-1]:
        found.append(count)
        count *= 2
    return sorted(found)[-_SIZES:]


def _unread(sets: Sequence[_Set], holds: str) -> str:
    """Why no GPUs were found, in the object's own words."""
    if not any(_spec(one.of).containers for one in sets):
        return f"{holds}: has no containers; give it a pod that asks for {GPU[0]}, or {ELSEWHERE}"
    for one in sets:
        if one.why:
            return f"{one.of.where}.spec.resourceClaims: {one.why}, or {ELSEWHERE}"
        if one.gpus:
            return f"{one.of.counted}: is 0; say how many pods there are, or {ELSEWHERE}"
    shown = next((one for one in sets if one.of.asks), None)
    shown = shown or max(reversed(sets), key=lambda one: (_is_device(one.of), one.count))
    containers = _spec(shown.of).containers
    number = next((at for at, one in enumerate(containers) if one.others), 0)
    where = shown.of.asks or f"{shown.of.where}.spec.containers[{number}].resources"
    asked = (
        ", ".join(f"{name}: {amount}" for name, amount in containers[number].others.items())
        if containers
        else ""
    )
    found = f"asks for {asked[:_LONGEST] or 'nothing'}, and for no {_GPUS}, the GPUs that are known"
    return f"{where}.limits: {found}; ask for them there, or {ELSEWHERE}"


def _is_device(one: PodSet) -> bool:
    """Whether a pod asks for what some vendor names, as accelerators are named."""
    return any("/" in name for container in _spec(one).containers for name in container.others)
