"""Nodes: what is kept of each, and the count of a pool. Heartbeats change neither."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from sys import intern
from typing import Any, Final, NamedTuple

from mofa_model.kinds.pods import GPU
from mofa_model.kinds.shape import Body, at, items, moment_of, part, text_of
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import NodeCount

PRODUCT: Final = "nvidia.com/gpu.product"
"""Label with the GPU of a node, as the GPU operator writes it."""


class CountedAs(NamedTuple):
    """What the count of a pool includes of a node."""

    ready: bool
    cordoned: bool
    gpus: int
    product: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFacts:
    """What is kept of a node."""

    labels: Mapping[str, str]
    ready: bool
    """Whether its condition Ready is True."""
    cordoned: bool
    """Whether it accepts no new pods."""
    gpus: int
    """GPUs that it offers. [1]"""
    lost: str = ""
    """Since when it is not ready, as its condition writes it; empty where it is ready."""
    turned: str = ""
    """When its condition Ready last changed, as the condition writes it."""

    @property
    def product(self) -> str:
        """Value of the label nvidia.com/gpu.product, or nothing."""
        return self.labels.get(PRODUCT, "")

    def counts_as(self, selector: Mapping[str, str]) -> CountedAs | None:
        """What a pool counts of this node; None where the node is not of the pool.

        A selector without labels means every node with GPUs; all nodes would include the control
        plane.
        """
        if any(self.labels.get(key) != value for key, value in selector.items()):
            return None
        if not selector and not self.gpus:
            return None
        return CountedAs(self.ready, self.cordoned, self.gpus, self.product)

    def serves(self, selector: Mapping[str, str]) -> bool:
        """Whether the node is of a pool and can take a job now."""
        return self.ready and not self.cordoned and self.counts_as(selector) is not None


def facts_of(body: Body) -> NodeFacts:
    """The facts of a Node object that are kept."""
    conditions = items(at(body, "status", "conditions"))
    condition: Body = next((row for row in conditions if row.get("type") == "Ready"), {})
    ready, turned = condition.get("status") == "True", text_of(condition.get("lastTransitionTime"))
    return NodeFacts(
        labels={
            intern(str(key)): intern(str(value))
            for key, value in part(body, "metadata", "labels").items()
        },
        ready=ready,
        lost="" if ready else turned,
        turned=turned,
        cordoned=at(body, "spec", "unschedulable") is True,
        gpus=_gpus(part(body, "status", "allocatable")),
    )


def _gpus(allocatable: Mapping[str, object]) -> int:
    """GPUs of a node, of any maker. [1]"""
    for resource in GPU:
        amount = text_of(allocatable.get(resource))
        if amount.isascii() and amount.isdecimal() and len(amount) < 6:
            return int(amount)
    return 0


def count_nodes(
    selector: Mapping[str, str], node_facts: Iterable[tuple[str, NodeFacts]]
) -> NodeCount:
    """How many nodes match a pool's selector, how many are ready, and what they offer.

    >>> up = NodeFacts(labels={"pool": "east"}, ready=True, cordoned=False, gpus=8)
    >>> down = NodeFacts(labels={"pool": "east"}, ready=False, cordoned=False, gpus=8)
    >>> counted = count_nodes({"pool": "east"}, [("b", up), ("a", down)])
    >>> counted.ready, counted.total, counted.names
    (1, 2, ('a', 'b'))
    """
    pool = {name: facts for name, facts in node_facts if facts.counts_as(selector) is not None}
    members = pool.values()
    return NodeCount(
        total=len(members),
        ready=sum(facts.ready and not facts.cordoned for facts in members),
        cordoned=sum(facts.cordoned for facts in members),
        gpus=dict(sorted(Counter(facts.gpus for facts in members).items())),
        products=tuple(sorted({facts.product for facts in members} - {""})),
        names=tuple(sorted(pool)),
    )


def pools_of(node_facts: Iterable[NodeFacts]) -> list[dict[str, Any]]:
    """Pools that a cluster seems to have, largest first: nodes with the same GPU product and count.

    >>> labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    >>> facts = NodeFacts(labels=labels, ready=True, cordoned=False, gpus=8)
    >>> pools_of([facts, facts])
    [{'product': 'NVIDIA-H100-80GB-HBM3', 'gpus_per_node': 8, 'nodes': 2, 'ready': 2}]
    """
    total, ready = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for facts in node_facts:
        if facts.product and facts.gpus:
            total[facts.product, facts.gpus] += 1
            ready[facts.product, facts.gpus] += facts.ready and not facts.cordoned
    return [
        {"product": product, "gpus_per_node": gpus, "nodes": number, "ready": ready[product, gpus]}
        for (product, gpus), number in total.most_common()
    ]


@dataclass(slots=True)
class _Turn:
    """The last time that a node came or went."""

    is_there: bool
    since: float
    """In seconds of the epoch. [s]"""
    belonged: bool | None
    """Whether it belonged to the pool before; None = unknown."""


class Attendance:
    """Nodes of one pool that came or went lately: when, and whether they were in it before.

    A node belongs to its pool once it was there for the whole patience, and no longer once it was
    away for the whole patience; in between nothing changes. Whether a node that is older than the
    operator belonged before is unknown; its condition says since when it is ready or not.
    """

    def __init__(self, patience: float, clock: Callable[[], float] = time.time) -> None:
        """`patience` is how long a node must be there, or away, until it counts. [s]"""
        self._patience = patience
        self._clock = clock
        self._turns: dict[str, _Turn] = {}

    def note_listed(self, node: str, *, is_there: bool, since: float) -> None:
        """Take in a node that is older than the operator; `since` is its condition's moment. [s]"""
        now = self._clock()
        if now - since < self._patience:
            self._turns[node] = _Turn(is_there=is_there, since=min(since, now), belonged=None)

    def note_turn(self, node: str, *, is_there: bool, known_since: float) -> None:
        """Take in that a node came or went; before `known_since` it could do so unseen. [s]"""
        now = self._clock()
        last_turn = self._turns.get(node)
        if last_turn is not None and not self._is_open(last_turn, now):
            last_turn = None
        self._turns = {name: turn for name, turn in self._turns.items() if self._is_open(turn, now)}
        if last_turn is None:
            belonged = None if is_there and now - known_since < self._patience else not is_there
            self._turns[node] = _Turn(is_there=is_there, since=now, belonged=belonged)
        elif last_turn.is_there != is_there and last_turn.belonged is is_there:
            del self._turns[node]  # it is back as it was
        elif last_turn.is_there != is_there:
            self._turns[node] = _Turn(is_there=is_there, since=now, belonged=last_turn.belonged)

    def times(self) -> dict[str, Any]:
        """When nodes last came or went, as fields of `NodeCount`. [s]"""

        def since(is_there: bool, belonged: bool | None) -> tuple[float, ...]:
            turns = self._turns.values()
            moments = (
                turn.since
                for turn in turns
                if (turn.is_there, turn.belonged) == (is_there, belonged)
            )
            return tuple(sorted(moments))

        return {
            "away": since(False, True),
            "joined": since(True, False),
            "unsure_there": since(True, None),
            "unsure_away": since(False, None),
        }

    def _is_open(self, turn: _Turn, now: float) -> bool:
        return now - turn.since < self._patience


class Pools:
    """Nodes, and the profiles that select them."""

    def __init__(
        self, patience: float = LoopSettings().steady, clock: Callable[[], float] = time.time
    ) -> None:
        """`patience` is how long a node must be there, or away, until a pool counts so. [s]"""
        self._patience = patience
        self._clock = clock
        self._nodes: dict[str, NodeFacts] = {}
        self._selectors: dict[str, Mapping[str, str]] = {}
        self._counts: dict[str, NodeCount] = {}
        self._attendance: dict[str, Attendance] = {}
        self._known_since = inf  # until every node that exists was put in

    def listed(self) -> None:
        """All nodes that exist were put in: from now on nodes are seen to come and go."""
        if self._known_since == inf:
            self._known_since = self._clock()
            self._counts.clear()

    def put(self, name: str, facts: NodeFacts | None) -> frozenset[str]:
        """Take in a node, or its end; returns the profiles whose count changes."""
        before = self._nodes.pop(name, None)
        if facts is not None:
            self._nodes[name] = facts
        changed = frozenset[str]() if before == facts else frozenset(self._changed(before, facts))
        # A node of the first listing may have come or gone long before.
        was_seen = before is not None or self._known_since < inf
        for profile in changed:
            self._counts.pop(profile, None)
            self._note_attendance(profile, name, before, facts, was_seen=was_seen)
        return changed

    def select(self, profile: str, selector: Mapping[str, str] | None) -> frozenset[str]:
        """Take in what a profile selects, or its end; returns profiles that share its nodes."""
        if self._selectors.get(profile) == selector:
            return frozenset()
        before = self.shared(profile)
        for by_profile in (self._selectors, self._counts, self._attendance):
            by_profile.pop(profile, None)
        if selector is not None:
            self._selectors[profile] = selector
            self._attendance[profile] = Attendance(self._patience, self._clock)
            for name, facts in self._nodes.items():
                self._note_attendance(profile, name, None, facts, was_seen=False)
        return frozenset(before) | frozenset(self.shared(profile))

    def profiles(self) -> list[str]:
        """Names of the profiles, sorted."""
        return sorted(self._selectors)

    def names(self) -> list[str]:
        """Names of the nodes."""
        return list(self._nodes)

    def facts(self, name: str) -> NodeFacts | None:
        """What is kept of a node; None where there is none."""
        return self._nodes.get(name)

    def count(self, profile: str) -> NodeCount:
        """The nodes of a profile; counted anew only where one of them has changed."""
        if profile not in self._selectors:
            return count_nodes({}, self._nodes.items())
        if profile not in self._counts:
            counted = count_nodes(self._selectors[profile], self._nodes.items())
            times = self._attendance[profile].times()
            self._counts[profile] = replace(counted, **times, known_since=self._known_since)
        return self._counts[profile]

    def shared(self, profile: str) -> dict[str, tuple[str, ...]]:
        """Nodes of a profile that other profiles select too, by profile."""
        if profile not in self._selectors:
            return {}
        members = [(name, self._nodes[name]) for name in self.count(profile).names]
        shared_names = {
            other: tuple(name for name, facts in members if facts.counts_as(selector) is not None)
            for other, selector in self._selectors.items()
            if other != profile
        }
        return {other: names for other, names in shared_names.items() if names}

    def _note_attendance(
        self,
        profile: str,
        name: str,
        before: NodeFacts | None,
        after: NodeFacts | None,
        *,
        was_seen: bool,
    ) -> None:
        """Note that a node of a pool came or went: now, where that `was_seen`, else when its
        condition last turned.
        """
        selector, attendance = self._selectors[profile], self._attendance[profile]
        was_there, is_there = (
            facts is not None and facts.serves(selector) for facts in (before, after)
        )
        if was_seen and was_there != is_there:
            attendance.note_turn(name, is_there=is_there, known_since=self._known_since)
        if was_seen or after is None or is_there != after.ready:
            return
        since = moment_of(after.turned)
        if since is not None and after.counts_as(selector) is not None:
            attendance.note_listed(name, is_there=is_there, since=since)

    def _changed(self, before: NodeFacts | None, after: NodeFacts | None) -> set[str]:
        """Profiles that count a node differently; all that have it where it joined or left one."""
        old, new = ({} if facts is None else self._counted(facts) for facts in (before, after))
        changed = {name for name in {*old, *new} if old.get(name) != new.get(name)}
        return changed if old.keys() == new.keys() else {*old, *new}

    def _counted(self, facts: NodeFacts) -> dict[str, CountedAs]:
        """What each profile that a node belongs to counts of it."""
        counts = ((name, facts.counts_as(selector)) for name, selector in self._selectors.items())
        return {name: counted for name, counted in counts if counted is not None}
