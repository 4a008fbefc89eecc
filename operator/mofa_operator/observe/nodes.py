"""Nodes: the little that is kept of each, and the count of a pool. Heartbeats change neither."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from sys import intern
from typing import Any, Final, TypeAlias

from mofa_model.kinds.pods import GPU
from mofa_model.kinds.shape import Body, at, items, moment_of, part, text_of
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import NodeCount

CountedAs: TypeAlias = tuple[bool, bool, int, str]
"""What of a node a pool's count shows: ready, cordoned, GPUs, product."""
PRODUCT: Final = "nvidia.com/gpu.product"
"""Label with the GPU of a node, as the GPU operator writes it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFacts:
    """What is kept of a node."""

    labels: Mapping[str, str]
    """Its labels."""
    ready: bool
    """Whether its condition Ready is True."""
    cordoned: bool
    """Whether it takes no new pods."""
    gpus: int
    """GPUs that it offers. [1]"""
    lost: str = ""
    """Since when it is not ready, as its condition writes it; empty where it is ready."""
    turned: str = ""
    """Since when it is ready, or is not, as its condition writes it."""

    @property
    def product(self) -> str:
        """Value of the label nvidia.com/gpu.product, or nothing."""
        return self.labels.get(PRODUCT, "")

    def counts_as(self, selector: Mapping[str, str]) -> CountedAs | None:
        """What of it a pool's count shows; None where it is not of the pool.

        A selector of no labels means every node with GPUs: a pool of all nodes would count the control plane too.
        """
        if any(self.labels.get(key) != value for key, value in selector.items()):
            return None
        if not selector and not self.gpus:
            return None
        return self.ready, self.cordoned, self.gpus, self.product

    def serves(self, selector: Mapping[str, str]) -> bool:
        """Whether a pool can count with it now."""
        return self.ready and not self.cordoned and self.counts_as(selector) is not None


def facts_of(body: Body) -> NodeFacts:
    """What is kept of a Node."""
    conditions = items(at(body, "status", "conditions"))
    ready: Body = next((one for one in conditions if one.get("type") == "Ready"), {})
    return NodeFacts(
        labels={
            intern(str(key)): intern(str(value))
            for key, value in part(body, "metadata", "labels").items()
        },
        ready=ready.get("status") == "True",
        lost="" if ready.get("status") == "True" else text_of(ready.get("lastTransitionTime")),
        turned=text_of(ready.get("lastTransitionTime")),
        cordoned=at(body, "spec", "unschedulable") is True,
        gpus=_gpus(part(body, "status", "allocatable")),
    )


def count(selector: Mapping[str, str], nodes: Iterable[tuple[str, NodeFacts]]) -> NodeCount:
    """The nodes of a pool.

    >>> up = NodeFacts(labels={"pool": "east"}, ready=True, cordoned=False, gpus=8)
    >>> down = NodeFacts(labels={"pool": "east"}, ready=False, cordoned=False, gpus=8)
    >>> found = count({"pool": "east"}, [("b", up), ("a", down)])
    >>> found.ready, found.total, found.names
    (1, 2, ('a', 'b'))
    """
    members = sorted(
        ((name, facts) for name, facts in nodes if facts.counts_as(selector) is not None),
        key=lambda m: m[0],
    )
    return NodeCount(
        total=len(members),
        ready=sum(facts.ready and not facts.cordoned for _, facts in members),
        cordoned=sum(facts.cordoned for _, facts in members),
        gpus=dict(sorted(Counter(facts.gpus for _, facts in members).items())),
        products=tuple(sorted({facts.product for _, facts in members} - {""})),
        names=tuple(name for name, _ in members),
    )


def _gpus(allocatable: Mapping[str, object]) -> int:
    """GPUs of a node, whoever made them. [1]"""
    for resource in GPU:
        amount = text_of(allocatable.get(resource))
        if amount.isascii() and amount.isdecimal() and len(amount) < 6:
            return int(amount)
    return 0


class Pools:
    """Nodes, and the profiles that select them."""

    def __init__(
        self, patience: float = LoopSettings().steady, clock: Callable[[], float] = time.time
    ) -> None:
        """Nothing was seen yet; `patience` is how long a node must be there, or away, until a pool counts so. [s]"""
        self._patience = patience
        self._clock = clock
        self._nodes: dict[str, NodeFacts] = {}
        self._selectors: dict[str, Mapping[str, str]] = {}
        self._counts: dict[str, NodeCount] = {}
        self._attendance: dict[str, Attendance] = {}
        self._known = inf

    def listed(self) -> None:
        """All nodes that there are were put in: what comes from now on is new, and what goes is seen to go."""
        if self._known == inf:
            self._known = self._clock()
            self._counts.clear()

    def put(self, name: str, facts: NodeFacts | None) -> frozenset[str]:
        """Take in a node, or its end: the result is the profiles whose count has changed."""
        before = self._nodes.pop(name, None)
        if facts is not None:
            self._nodes[name] = facts
        changed = frozenset[str]() if before == facts else frozenset(self._changed(before, facts))
        for profile in changed:
            self._counts.pop(profile, None)
            self._attend(profile, name, before, facts, new=before is not None or self._known < inf)
        return changed

    def select(self, profile: str, selector: Mapping[str, str] | None) -> frozenset[str]:
        """Take in what a profile selects, or its end: the result is the profiles that shared nodes with it, or now do."""
        if self._selectors.get(profile) == selector:
            return frozenset()
        before = self.shared(profile)
        self._selectors.pop(profile, None)
        self._counts.pop(profile, None)
        self._attendance.pop(profile, None)
        if selector is not None:
            self._selectors[profile] = selector
            self._attendance[profile] = Attendance(self._patience, self._clock)
            for name, facts in self._nodes.items():
                self._attend(profile, name, None, facts, new=False)
        return frozenset(before) | frozenset(self.shared(profile))

    def profiles(self) -> list[str]:
        """Names of the profiles that there are."""
        return sorted(self._selectors)

    def names(self) -> list[str]:
        """Names of the nodes that there are."""
        return list(self._nodes)

    def facts(self, name: str) -> NodeFacts | None:
        """What is kept of a node; None where there is none."""
        return self._nodes.get(name)

    def count(self, profile: str) -> NodeCount:
        """The nodes of a profile; counted anew only where one of them has changed."""
        if profile not in self._selectors:
            return count({}, self._nodes.items())
        if profile not in self._counts:
            counted = count(self._selectors[profile], self._nodes.items())
            times = self._attendance[profile].times()
            self._counts[profile] = replace(counted, **times, known=self._known)
        return self._counts[profile]

    def shared(self, profile: str) -> dict[str, tuple[str, ...]]:
        """Nodes of a profile that other profiles select too, by profile."""
        if profile not in self._selectors:
            return {}
        members = [(name, self._nodes[name]) for name in self.count(profile).names]
        found = {
            other: tuple(name for name, facts in members if facts.counts_as(selector) is not None)
            for other, selector in self._selectors.items()
            if other != profile
        }
        return {other: names for other, names in found.items() if names}

    def _attend(
        self,
        profile: str,
        name: str,
        before: NodeFacts | None,
        after: NodeFacts | None,
        *,
        new: bool,
    ) -> None:
        """Note of a pool's node that it came or went; one that is not `new` was there before we looked."""
        selector, book = self._selectors[profile], self._attendance[profile]
        was, there = (facts is not None and facts.serves(selector) for facts in (before, after))
        if new and was != there:
            book.turned(name, there=there, known=self._known)
        elif (
            not new
            and after is not None
            and after.counts_as(selector) is not None
            and there == after.ready
        ):
            since = moment_of(after.turned)
            if since is not None:
                book.listed(name, there=there, since=since)

    def _changed(self, before: NodeFacts | None, after: NodeFacts | None) -> set[str]:
        """Profiles that count a node otherwise than before; where it came to one or left one, all that have or had it."""
        old, new = ({} if facts is None else self._of(facts) for facts in (before, after))
        changed = {name for name in {*old, *new} if old.get(name) != new.get(name)}
        return changed if old.keys() == new.keys() else {*old, *new}

    def _of(self, facts: NodeFacts) -> dict[str, CountedAs]:
        """Profiles that a node belongs to, and as what."""
        found = ((name, facts.counts_as(selector)) for name, selector in self._selectors.items())
        return {name: counted for name, counted in found if counted is not None}


def pools_of(nodes: Iterable[NodeFacts]) -> list[dict[str, Any]]:
    """Pools by GPU product and GPUs of a node, the largest first; a node without the product's label is of no pool.

    >>> facts = NodeFacts(labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, ready=True, cordoned=False, gpus=8)
    >>> pools_of([facts, facts])
    [{'product': 'NVIDIA-H100-80GB-HBM3', 'gpus_per_node': 8, 'nodes': 2, 'ready': 2}]
    """
    total, ready = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for facts in nodes:
        if facts.product and facts.gpus:
            total[facts.product, facts.gpus] += 1
            ready[facts.product, facts.gpus] += facts.ready and not facts.cordoned
    return [
        {"product": product, "gpus_per_node": gpus, "nodes": count, "ready": ready[product, gpus]}
        for (product, gpus), count in total.most_common()
    ]


# Nodes of a pool that came or went only lately: when each did, and whether it belonged to the pool before.
#
# A node belongs to its pool once it was there for the whole patience. It belongs no longer once it was away for the whole patience.
# Between the two it keeps what it was. Of a node in the first list nobody knows what it was; its condition says since when it is so.


@dataclass(slots=True)
class Turn:
    """The last turn of a node."""

    there: bool
    """Whether it came or went."""
    since: float
    """When, in seconds of the epoch. [s]"""
    belonged: bool | None
    """Whether it belonged to the pool before; None = nobody knows."""


class Attendance:
    """Turns of the nodes of one pool that are not older than the patience; of all others what is seen is what holds."""

    def __init__(self, patience: float, clock: Callable[[], float] = time.time) -> None:
        """`patience` is how long a node must be as it is. [s]"""
        self._patience = patience
        self._clock = clock
        self._turns: dict[str, Turn] = {}

    def listed(self, node: str, *, there: bool, since: float) -> None:
        """A node is seen for the first time, with others that were there before us; `since` is how long it says to be so. [s]"""
        now = self._clock()
        if now - since < self._patience:
            self._turns[node] = Turn(there=there, since=min(since, now), belonged=None)

    def turned(self, node: str, *, there: bool, known: float) -> None:
        """A node came, or went; `known` is since when none can have done so unseen. [s]

        What comes soon after that may have gone before it.
        """
        now = self._clock()
        self._turns = {
            name: one
            for name, one in self._turns.items()
            if name == node or self._is_open(one, now)
        }
        last = self._turns.get(node)
        if last is None or not self._is_open(last, now):
            belonged = None if there and now - known < self._patience else not there
            self._turns[node] = Turn(there=there, since=now, belonged=belonged)
        elif last.there == there:
            return
        elif last.belonged is there:
            del self._turns[node]  # it is again as it was
        else:
            self._turns[node] = Turn(there=there, since=now, belonged=last.belonged)

    def times(self) -> dict[str, Any]:
        """Since when nodes are as they are, as `NodeCount` has it. [s]"""
        found: dict[tuple[bool, bool | None], list[float]] = {}
        for one in self._turns.values():
            found.setdefault((one.there, one.belonged), []).append(one.since)

        def of(there: bool, belonged: bool | None) -> tuple[float, ...]:
            return tuple(sorted(found.get((there, belonged), ())))

        return {
            "away": of(False, True),
            "joined": of(True, False),
            "unsure_there": of(True, None),
            "unsure_away": of(False, None),
        }

    def _is_open(self, one: Turn, now: float) -> bool:
        """Whether it did not last yet."""
        return now - one.since < self._patience
