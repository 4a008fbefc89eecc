"""`JobKind`, the base of all kinds of jobs.

With it, what a look at a job shows (`Observation`), and what a new job is made of (`NewJob`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from mofa_model.errors import InputError
from mofa_model.kinds.demand import Demand, PodSet, total
from mofa_model.kinds.patches import Operation, pointer, test
from mofa_model.kinds.pods import CLAIMED, MAPPED
from mofa_model.kinds.shape import (
    NO_OBJECTS,
    Body,
    Kind,
    Many,
    Moment,
    ReferencedObjects,
    Shape,
    Text,
    at,
    glance,
    part,
    text_of,
)
from mofa_model.launch import on_nodes
from mofa_model.records import dataclass
from mofa_model.spec.recovery_classes import RecoveryClass

MOUNTED: Final = "/etc/mofa"
"""Where files of a launch are in its pods."""
_SHARED: Final = "/dev/shm"  # noqa: S108 - where processes of a pod share memory, 64 MiB by default


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """A launch on its nodes."""

    name: str
    """Name of the object."""
    nodes: int
    """Pods, one a node. [1]"""
    gpus: int
    """GPUs of each. [1]"""
    resource: str
    """The name of its GPUs among resources: one of `pods.GPU`."""
    image: str
    """Image with the trainer."""
    annotations: Mapping[str, str]
    """Annotations of the object."""
    words: tuple[str, ...]
    """The trainer's program and its arguments, behind what starts it."""
    environment: Mapping[str, str]
    """Variables of the trainer."""
    files: Mapping[str, str]
    """Files that its arguments name, with their text."""
    starter: tuple[str, ...]
    """What starts the program: torchrun, or another with its options."""
    restarts: int
    """How often it may start again before it has failed. [1]"""

    def head(self, api_version: str, kind: str) -> dict[str, Any]:
        """The beginning of its object."""
        metadata: dict[str, Any] = {"name": self.name}
        if self.annotations:
            metadata["annotations"] = dict(self.annotations)
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata}

    def command(self, *, rank: str = "", address: str = "", port: str = "29500") -> list[str]:
        """What a pod runs; without an address to meet at, variables tell the starter."""
        options = on_nodes(
            self.starter, self.nodes, self.gpus, rank=rank, address=address, port=port
        )
        arguments = [f"{option}={value}" for option, value in options] if address else []
        return [*self.starter, *arguments, *self.words]

    def variables(self) -> list[dict[str, str]]:
        """Variables as a container has them."""
        return [{"name": name, "value": value} for name, value in self.environment.items()]

    def limits(self) -> dict[str, Any]:
        """Resources of a node."""
        return {"limits": {self.resource: str(self.gpus)}}

    def pod(
        self, container: str, command: list[str] | None, args: list[str] | None
    ) -> dict[str, Any]:
        """A pod of one container, with shared memory for its processes."""
        lines = {key: words for key, words in (("command", command), ("args", args)) if words}
        mounts = [{"name": "shared-memory", "mountPath": _SHARED}]
        volumes: list[dict[str, Any]] = [
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}}
        ]
        if self.files:
            mounts.append({"name": "launch", "mountPath": MOUNTED})
            volumes.append({"name": "launch", "configMap": {"name": f"{self.name}-launch"}})
        fields = {"name": container, "image": self.image, **lines, "env": self.variables()}
        return {
            "containers": [{**fields, "resources": self.limits(), "volumeMounts": mounts}],
            "volumes": volumes,
        }

    def configs(self) -> list[dict[str, Any]]:
        """The ConfigMap with its files, where it has any."""
        if not self.files:
            return []
        metadata = {"name": f"{self.name}-launch"}
        data = dict(self.files)
        return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}]


_MOST_RESTARTS: Final = 2**31 - 1
"""What such a field can hold. [1]"""
ATTEMPTS: Final = "JobSet.restarts"
"""The counter of attempts. Labels of a JobSet's pods tell them too: one incident is in both."""
_DONE: Final = ("Complete", "Completed", "Succeeded", "Finished")
"""Conditions by which kinds say that a job ended well."""


@dataclass(frozen=True, kw_only=True)
class Sign:
    """Something that happened at a known moment."""

    at: float
    """When, in seconds of the epoch. [s]"""
    recovery_class: RecoveryClass
    """What had to be restored at least."""
    cause: str = ""
    """failure, eviction or preemption; empty = not said."""


@dataclass(frozen=True, kw_only=True)
class Counter:
    """How often something happened, by an object's own count."""

    value: int
    recovery_class: RecoveryClass
    """What it restored."""
    exact: bool = True
    """Whether each is an incident; a count over pods is not, because one incident takes many."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What one look at a job, its pods, nodes or step series showed; None or empty = nothing."""

    counters: Mapping[str, Counter] = field(default_factory=dict)
    """Counts, by a name that says object and field."""
    signs: tuple[Sign, ...] = ()
    nodes_lost: tuple[float, ...] = ()
    """When nodes of the job stopped being ready. [s]"""
    suspended: float | None = None
    """Since when the job is suspended. [s]"""
    ready: bool | None = None
    """Whether all of it runs."""
    drop: RecoveryClass | None = None
    """The least class that a loss of readiness means where no counter tells; None = nothing."""
    ended: float | None = None
    """When it was done, for better or worse. [s]"""
    step: int | None = None
    """Last finished step. [1]"""
    step_at: float | None = None
    """When that step was finished; None = about now. [s]"""
    step_seconds: float | None = None
    """Time of a step. [s]"""


class _Condition(Shape):
    type: Text = ""
    status: Text = ""
    last_transition_time: Moment = None


class ConditionedStatus(Shape):
    """A status with conditions."""

    conditions: Many[_Condition] = ()

    def since(self, *types: str) -> float | None:
        """Since when the first true condition of some types is true; None = none is. [s]"""
        true = (row for row in self.conditions if row.type in types and row.status == "True")
        return next((row.last_transition_time for row in true), None)

    def observation(
        self,
        *,
        ready: bool | None = None,
        drop: RecoveryClass | None = None,
        signs: Sequence[Sign] = (),
        counters: Mapping[str, Counter] | None = None,
    ) -> Observation:
        """An observation from the conditions and from what else is known; a failed job counts
        as interrupted.
        """
        failed = self.since("Failed")
        failure = () if failed is None else (Sign(at=failed, recovery_class=RecoveryClass.JOB),)
        return Observation(
            counters=counters or {},
            signs=(*signs, *failure),
            suspended=self.since("Suspended"),
            ready=ready,
            drop=drop,
            ended=self.since(*_DONE) if failed is None else failed,
        )


@dataclass(frozen=True, kw_only=True)
class RestartLimit:
    """Where a kind says how often a job may start again before it has failed."""

    path: tuple[str, ...]
    """The field, below its spec."""
    by_pod: bool = False
    """Whether it counts pods: one failure ends all pods of a job whose processes wait for
    each other.
    """
    ends_at: bool = True
    """Whether a job ends when it gets there; else when it gets beyond."""
    can_change: bool = False
    """Whether it can be raised while the job waits; else only whoever makes the job can say it."""

    def enough_for(self, restarts: int, pod_count: int) -> int:
        """The value of the field with which a job of `pod_count` pods may start again so often. [1]

        >>> RestartLimit(path=("backoffLimit",), by_pod=True).enough_for(8, 64)
        513
        """
        return min(restarts * (pod_count if self.by_pod else 1) + self.ends_at, _MOST_RESTARTS)


@dataclass(frozen=True, kw_only=True)
class PodLabels:
    """Labels of a job's pods, by which kube-state-metrics tells whose they are."""

    job: str
    """Name of the job, or of an object that is named after it."""
    pattern: str = "(.+)"
    """What of that name is the job's: a regular expression of one group, in Python as in RE2."""
    owner: str = ""
    """Kind of the object of that name, which owns the pods; empty = it is the job."""
    attempt: str = ""
    """How often the whole job was made anew; empty = nobody says."""
    slot: tuple[str, ...] = ()
    """Together, the place that a pod fills; empty = its name says it."""

    def job_name(self, name: str) -> str:
        """The job's name in what the label `job` says."""
        match = re.fullmatch(self.pattern, name)
        return match[1] if match else name


@dataclass(frozen=True, kw_only=True, eq=False)
class JobKind(Kind):
    """A kind of jobs that people already have: a subclass and its one object say all of it.

    A number of replicas or GPUs that cannot be is an `InputError`; nothing else in an object is.
    """

    setting: str = ""
    """Name in settings: `--kinds`, and `rbac.kinds` of the chart; empty = the kind."""
    word: str = ""
    """Name in files and in the admission policy; empty = the kind in lower case."""
    title: str = ""
    """Name in texts; empty = the kind."""
    witness: bool = True
    """Whether it tells of failures; False where another kind tells of the same pods better."""
    suspend: tuple[str, ...] = ("suspend",)
    """Where its spec says that it waits; empty = it cannot wait."""
    names: tuple[str, ...] = (CLAIMED, MAPPED)
    """Fields of its spec by which it names objects that its pods depend on."""
    pods_path: str = "spec"
    """Path of its pod templates, for messages."""
    arguments_note: str = (
        "nothing: it cannot be changed. The advice is annotated, and an Event says so"
    )
    """Where launch arguments are written while it waits, for the documents."""
    changed_field: str = ""
    """The field of its spec with the launch arguments; empty = none of its fields can change."""
    change_rule: str = ""
    """What else the admission policy asks of a change: CEL over variables.old and variables.new."""
    size_rule: str = ""
    """What the admission policy asks of a change of size: CEL as of `change_rule`; empty = none."""
    child: Kind | None = None
    """The kind of the object of its name that is made anew after a change of size; None = none."""
    stamped_templates: tuple[tuple[str, ...], ...] = ()
    """Pod templates to which its project's webhook gives an empty creation time at a change."""
    labels: PodLabels | None = None
    """Labels of its own pods; None = pods are those of another kind, or not told apart."""
    restart_limit: RestartLimit | None = None
    """Where it says how often it may start again; None = it starts again without end, or another
    object says it."""

    def __post_init__(self) -> None:
        for name, default in (
            ("setting", self.kind),
            ("word", self.kind.lower()),
            ("title", self.kind),
        ):
            if not getattr(self, name):
                object.__setattr__(self, name, default)

    def pod_sets(self, spec: Body) -> list[PodSet]:
        """Its pods, those that are alike together."""
        raise NotImplementedError

    def demand(self, spec: Body, referenced: ReferencedObjects = NO_OBJECTS) -> Demand:
        """GPUs, launch command and node selector; `referenced` holds the objects that it names."""
        return total(self.pod_sets(spec), referenced, pods_path=self.pods_path)

    def observed(self, body: Body, now: float) -> Observation:
        """What an object's public API says of its life; by default, what its conditions say. [s]"""
        del now
        return glance(ConditionedStatus, body.get("status")).observation()

    def visible_classes(self, body: Body) -> frozenset[RecoveryClass]:
        """Recovery classes that an object can show."""
        del body
        return frozenset({RecoveryClass.POD, RecoveryClass.JOB})

    def pod_selector(self, body: Body) -> str:
        """The labels by which the pods are found that run its command; empty = by none."""
        name = text_of(at(body, "metadata", "name"))
        return f"{self.labels.job}={name}" if self.labels is not None and name else ""

    def reported(self, body: Body) -> tuple[float | None, Observation]:
        """Tokens per second, and steps, where the trainer reports them to the status. [1/s]"""
        del body
        return None, Observation()

    def restart_patch(self, body: Body, restarts: int) -> list[Operation]:
        """The patch that raises a waiting job's limit of restarts to `restarts`; empty where the
        limit is high enough, or can only be set when the job is made.
        """
        limit = self.restart_limit
        if limit is None or not limit.can_change:
            return []
        spec = part(body, "spec")
        needed = limit.enough_for(restarts, sum(pods.count for pods in self.pod_sets(spec)))
        value, path = at(spec, *limit.path), pointer("spec", *limit.path)
        if isinstance(value, int) and value >= needed:
            return []
        return [test(path, value), {"op": "add", "path": path, "value": needed}]

    def restarts_of(self, job: NewJob) -> int:
        """The value of the restart field for a new job with one pod on each node. [1]"""
        limit = self.restart_limit
        return 0 if limit is None else limit.enough_for(job.restarts, job.nodes)

    def manifests(self, job: NewJob) -> list[dict[str, Any]]:
        """The objects that start a new job, as manifests."""
        del job
        raise InputError(f"--as: a {self.kind} cannot be made from a launch; choose another kind")

    def states_size(self, spec: Body) -> bool:
        """Whether an object says on how many nodes or GPUs it runs; if not, they can be chosen."""
        del spec
        return True

    def gpus_per_node(self, spec: Body) -> int:
        """GPUs of a node that an object without a size states all the same; 0 = none. [1]"""
        del spec
        return 0

    def size_patch(
        self, body: Body, nodes: int, gpus: int, resource: str, arguments: Sequence[str]
    ) -> list[Operation]:
        """The patch that gives a waiting job its nodes, the GPUs of each under the name of their
        resource, and its arguments.
        """
        del body, nodes, gpus, resource, arguments
        raise InputError(
            f"the size of a {self.kind} cannot change after it is made; write it into its manifest"
        )

    def outdated(self, body: Body, child: Body) -> bool:
        """Whether an object that its controller made of it, and that never ran, has
        another size.
        """
        del body, child
        return False

    def launch_patch(
        self,
        body: Body,
        arguments: Sequence[str],
        steps: str,
        referenced: ReferencedObjects = NO_OBJECTS,
    ) -> list[Operation]:
        """The patch that writes launch arguments and the checkpoint interval, in steps, into a job.

        It is empty where they are there already. An `InputError` says why they cannot be written,
        or that nothing would read them; `referenced` holds the objects that the job names.
        """
        del body, arguments, steps, referenced
        raise InputError(
            f"launch arguments cannot be written into a {self.kind} of {self.group}: "
            "none of its fields can change after it is made; write them into its manifest"
        )
