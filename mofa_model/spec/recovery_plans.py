"""Recovery plans: what a job does when something fails. This is their one home.

A plan says what a failure stops, what is tried first, what takes the place of a broken node, and
where state is found. `PLANS` has the plans that people run, by name. `plan_of` reads a name with
changes, or several joined by +, as in `peer+stand-in:spares=4`. `reliability.recovery` prices
plans.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from enum import StrEnum
from itertools import product
from typing import Any, Final

from mofa_model import units
from mofa_model.checks import not_negative, positive, share, whole
from mofa_model.errors import BadValue, UnknownName
from mofa_model.records import dataclass
from mofa_model.units import Bytes, BytesPerSecond, Count


class Others(StrEnum):
    """What the healthy replicas of a job do when one fails."""

    STOP = "stop"
    """The whole job stops until all of it is there again."""
    GO_ON = "go-on"
    """They go on without it, and it joins them when it is back."""
    SHRINK = "shrink"
    """The job restarts at once with those that are left, and once more when all are there."""


@dataclass(frozen=True, kw_only=True)
class RecoveryPlan:
    """What a job does when something fails; the defaults are what happens without any plan: each
    failure stops the job, and recovery classes say how long.
    """

    name: str = "classes"
    whole: bool = False
    """Every failure starts the whole job again, as the recovery class `job` does."""
    attempts: int = 0
    """Restarts on the same nodes before any node is replaced. [1]"""
    attempt: float | None = None
    """Time of one of them; None = that of processes that start again. [s]"""
    success: float = 0.0
    """Chance that one of them mends a failure of a class whose pods are replaced. [1]"""
    spares: int = 0
    """Nodes that stand by for the job, or scale-up domains where the layout needs whole
    ones. [1]
    """
    takeover: float = 0.0
    """Time until one of them trains in the place of what failed. [s]"""
    refill: float = 86400.0
    """Time until another one stands by in its place. [s]"""
    jobs: int = 1
    """Jobs alike that share the spares. [1]"""
    peers: int = 0
    """Nodes of a group that hold each other's state in main memory: the loss of two nodes of a
    group loses it; 0 = none. [1]"""
    peer_bandwidth: float = 25e9
    """What a node sends to its peers: one link of 200 Gbit/s. [B/s]"""
    others: Others = Others.STOP
    """What healthy replicas do."""
    stall: float = 0.0
    """Time that the others stand still when a replica leaves; of a job that shrinks, the time of
    its restart. [s]"""
    rejoin: float = 0.0
    """Time that all stand still when a replica comes back. [s]"""
    keeps_batch: bool = False
    """Whether the replicas that are left do the micro-batches of the missing one; else its part of
    the batch is left out, and a step counts for less."""
    watchdog: float = math.inf
    """Time without a step after which processes are ended, if sooner than what else ends a hang.
    [s]"""
    slower: float = 0.0
    """Relative slowdown of every step that the plan costs. [1]"""

    def __post_init__(self) -> None:
        not_negative(
            attempts=self.attempts, attempt=self.attempt or 0.0, takeover=self.takeover,
            stall=self.stall, rejoin=self.rejoin, slower=self.slower, spares=self.spares,
            peers=self.peers,
        )  # fmt: skip
        positive(refill=self.refill, peer_bandwidth=self.peer_bandwidth)
        share(success=self.success)
        whole(attempts_and_one=self.attempts + 1, spares_and_one=self.spares + 1, jobs=self.jobs)
        if not self.watchdog > 0:
            raise BadValue("watchdog", self.watchdog, "give a time above zero")
        if self.peers == 1 or self.peers != int(self.peers):
            raise BadValue("peers", self.peers, "give the nodes of a group, 2 or more, or 0")
        if self.whole and (self.attempts or self.spares or self.others is not Others.STOP):
            raise BadValue(
                "plan",
                self.name,
                "the whole job starts again; leave out attempts, spares and others",
            )


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """The facts of a parallel layout that decide what a recovery plan can do; of one layout, or
    arrays for many.
    """

    count: Count = 1
    """Whole copies of the state: ranks that hold the same shard. [1]"""
    micro_batches: Count = math.inf
    """Micro-batches of a replica in a step. [1]"""
    stages: Count = 1
    """Stages of its pipeline. [1]"""
    state: Bytes = 0.0
    """State that one node holds. [B]"""
    link: BytesPerSecond = math.inf
    """What a node can send to another one. [B/s]"""
    snapshot: BytesPerSecond = math.inf
    """Device to host memory of one node. [B/s]"""
    host_memory: Bytes = math.inf
    """Main memory of a node that copies may take. [B]"""
    unit: Count = 1
    """Nodes that are replaced together. [1]"""

    def __post_init__(self) -> None:
        positive(replicas=self.count, stages=self.stages, unit=self.unit)
        not_negative(state=self.state)


PLANS: Final[Mapping[str, RecoveryPlan]] = {
    plan.name: plan
    for plan in (
        RecoveryPlan(),
        RecoveryPlan(name="restart", whole=True),
        # Processes that start again in their pods mend three of four failures (DLRover).
        RecoveryPlan(name="in-place", attempts=1, success=0.75),
        # 73 attempts in 12 chains, 4 of which worked, one in 11 min (504 B200s, 2605.09370).
        RecoveryPlan(name="retry", attempts=6, attempt=660.0, success=0.065),
        # A spare that holds the role's state and groups: 20 s at 1,024 GPUs (2412.12636).
        RecoveryPlan(name="stand-in", spares=2, takeover=20.0),
        # Pods run and images are there; processes start and load.
        RecoveryPlan(name="warm", spares=2, takeover=141.0),
        # The node is there; its pods are made.
        RecoveryPlan(name="cold", spares=2, takeover=262.0),
        RecoveryPlan(name="peer", peers=2),
        # Two stalls of 90 s are the 3 min that remain of 10 at 100,000 GPUs (2602.00277).
        RecoveryPlan(name="replica", others=Others.GO_ON, stall=90.0, rejoin=90.0),
        RecoveryPlan(name="shrink", others=Others.SHRINK, stall=141.0, rejoin=141.0),
    )
}
"""Plans by name; numbers without a source are those of recovery classes."""

_PLAIN: Final = PLANS["classes"]
_FIELDS: Final = {field.name: field.default for field in fields(RecoveryPlan)}


def plan_of(text: str, field: str = "--recovery") -> RecoveryPlan:
    """A plan as people write it: NAME[:KEY=VALUE…], several joined by +.

    >>> plan_of("peer+stand-in:spares=4:takeover=30s").spares
    4
    """
    try:
        return _joined(text, field)
    except BadValue as error:
        if error.field == field:
            raise
        raise BadValue(field, text, str(error)) from None


def _joined(text: str, field: str) -> RecoveryPlan:
    """A plan of several parts, as in `a+b`; parts that contradict each other are refused."""
    parts = [_single(part.strip(), field) for part in text.split("+")]
    changed: dict[str, Any] = {}
    for part in parts:
        for name, default in _FIELDS.items():
            value = getattr(part, name)
            if name == "name" or value == default:
                continue
            if changed.get(name, value) != value:
                raise BadValue(field, text, f"its parts differ in {name}; say it once")
            changed[name] = value
    return replace(_PLAIN, **changed, name=text)


def _single(text: str, field: str) -> RecoveryPlan:
    """A plan of one part: its name, with changed values, as in `NAME:KEY=VALUE`."""
    name, *changes = text.split(":")
    if name not in PLANS:
        raise UnknownName(field, name, tuple(PLANS))
    changed: dict[str, Any] = {}
    for change in changes:
        key, _, value = change.partition("=")
        key = key.replace("-", "_")
        if key not in _FIELDS or key == "name" or not value:
            keys = ", ".join(_FIELDS)
            raise BadValue(field, text, f"write NAME:KEY=VALUE, with a KEY of {keys}")
        changed[key] = _value(key, value, field)
    return replace(PLANS[name], **changed)


_TIMES: Final = ("attempt", "takeover", "refill", "stall", "rejoin", "watchdog")


def _value(key: str, text: str, field: str) -> Any:
    """The value of a key from its text, by the type of the key's default."""
    default = _FIELDS[key]
    if key == "peer_bandwidth":
        return units.parse(text, "B/s", field=field)
    if key in _TIMES:
        return units.parse(text, "s", field=field)
    if isinstance(default, bool):
        if text not in {"true", "false"}:
            raise BadValue(field, text, "say true or false")
        return text == "true"
    if isinstance(default, Others):
        if text not in list(Others):
            raise UnknownName(field, text, tuple(Others))
        return Others(text)
    if isinstance(default, int):
        return units.count(text, field=field)
    try:
        return float(text)
    except ValueError:
        raise BadValue(field, text, "give a number") from None


def plans_of(texts: tuple[str, ...]) -> tuple[RecoveryPlan, ...]:
    """The plans of some texts, with commas between plans; `any` stands for all of `choices`.

    >>> len(plans_of(("in-place,peer",)))
    2
    """
    names = [name.strip() for text in texts for name in text.split(",")]
    if "any" in names:
        return choices()
    return tuple(plan_of(name) for name in dict.fromkeys(names))


_ATTEMPTS: Final = ("", "in-place")
_COPIES: Final = ("", "peer")
_REPLACEMENTS: Final = ("", "stand-in", "warm", "cold", "replica", "shrink")


def choices() -> tuple[RecoveryPlan, ...]:
    """All plans that `any` compares: none, a whole restart, and each combination of a first
    attempt, copies on peers and a replacement.

    >>> len(choices())
    25
    """
    names = (
        "+".join(filter(None, (attempt, copies, replacement)))
        for replacement, copies, attempt in product(_REPLACEMENTS, _COPIES, _ATTEMPTS)
    )
    return PLANS["classes"], PLANS["restart"], *(plan_of(name) for name in names if name)
