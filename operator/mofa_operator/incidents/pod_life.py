"""One pod of a training job, from its creation to its end, as kube-state-metrics tells it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Exit:
    """A container that ended and was started again."""

    at: float
    """When it ended, in seconds of the epoch. [s]"""
    again: float
    """When it was started again. [s]"""
    container: str = ""
    """Which."""
    code: int | None = None
    """Its exit code; None = nobody says. [1]"""
    reason: str = ""
    """What the runtime says of it: Error, OOMKilled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PodLife:
    """A pod, as far as it was seen."""

    job: str
    """Whose: namespace/name."""
    attempt: str = ""
    """Restart attempt of its job; empty for kinds that do not say."""
    slot: str = ""
    """Which place in the job it fills: the same for the pod that replaces it."""
    node: str = ""
    """Its node; empty = not known."""
    created: float = 0.0
    """When it was created. [s]"""
    started: float | None = None
    """When its first container started; None = none did, as far as is known. [s]"""
    last: float = 0.0
    """Last sample of it. [s]"""
    over: float | None = None
    """First sample at which it had ended; None = none. [s]"""
    failed: bool = False
    """Whether it ended in failure."""
    succeeded: bool = False
    """Whether it ended well."""
    evicted: bool = False
    """Whether it was evicted."""
    preempted: bool = False
    """Whether it was preempted."""
    drained: bool = False
    """Whether somebody asked the API server to evict it."""
    out_of_memory: bool = False
    """Whether one of its containers ended for want of memory."""
    exits: tuple[Exit, ...] = ()
    """Containers that ended and were started again, in order."""
    containers: int = 0
    """Containers whose restarts are counted; 0 = nobody counts them. [1]"""
    priority: str = ""
    """Its priority class."""

    def later(self, other: PodLife) -> PodLife:
        """The same pod, after a later look."""
        exits = {(one.container, round(one.at)): one for one in (*self.exits, *other.exits)}
        return replace(
            other,
            node=other.node or self.node,
            created=self.created or other.created,
            started=self.started if self.started is not None else other.started,
            last=max(self.last, other.last),
            over=self.over if self.over is not None else other.over,
            failed=self.failed or other.failed,
            succeeded=self.succeeded or other.succeeded,
            evicted=self.evicted or other.evicted,
            preempted=self.preempted or other.preempted,
            drained=self.drained or other.drained,
            out_of_memory=self.out_of_memory or other.out_of_memory,
            exits=tuple(sorted(exits.values(), key=lambda one: (one.at, one.container))),
            containers=max(self.containers, other.containers),
        )


def merged(looks: Iterable[Mapping[str, PodLife]]) -> dict[str, PodLife]:
    """Pods by uid over several looks."""
    found: dict[str, PodLife] = {}
    for look in looks:
        for uid, pod in look.items():
            found[uid] = found[uid].later(pod) if uid in found else pod
    return found
