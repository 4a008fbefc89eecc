"""The pools of a fleet: nodes, GPUs that running jobs hold there, and what was learned of failures. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from mofa_model import presets
from mofa_model.errors import InputError
from mofa_model.kinds import JobKind, demand_of
from mofa_model.kinds.shape import NOTHING, at, text_of
from mofa_operator.fleet.fleet import ClusterSeen
from mofa_operator.fleet.spending import JobState, spending
from mofa_operator.keys import Key
from mofa_operator.objects import LiveObject, LiveProfile
from mofa_operator.observe.nodes import PRODUCT, count, pools_of
from mofa_operator.words import Aspect


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolLine:
    """A pool."""

    pool: str
    """Its ClusterProfile; empty for nodes that are of none."""
    gpu: str
    """GPU, as the profile or as the nodes say it."""
    nodes: int
    """Nodes. [1]"""
    ready: int
    """Ready nodes. [1]"""
    gpus: int
    """GPUs that they offer. [1]"""
    held: int = 0
    """Of them those that running jobs hold. [1]"""
    jobs: int = 0
    """Running jobs. [1]"""
    assumed: str = ""
    """Failures per thousand node-days that are assumed."""
    observed: str = ""
    """The same as counted."""
    coverage: float | None = None
    """Share of the window that was watched. [1]"""
    verdict: str = ""
    """What the two say together."""
    notes: tuple[str, ...] = ()
    """What is not as it should be."""


def pools(fleet: ClusterSeen) -> list[PoolLine]:
    """Every ClusterProfile, then GPUs of nodes that are of none."""
    held = _held(fleet)
    found, mine = [], set[str]()
    for profile in sorted(fleet.store.profiles(), key=lambda one: one.key.name):
        nodes = count(profile.asked.node_selector, fleet.nodes.items())
        mine |= set(nodes.names)
        jobs = held.get(profile.key.name, [])
        status = profile.status
        found.append(
            PoolLine(
                pool=profile.key.name,
                gpu=text_of(at(profile.body, "spec", "gpu")),
                nodes=nodes.total,
                ready=nodes.ready,
                gpus=sum(gpus * number for gpus, number in nodes.gpus.items()),
                held=sum(jobs),
                jobs=len(jobs),
                assumed=status.assumed,
                observed=status.observed,
                coverage=None if status.coverage_percent is None else status.coverage_percent / 100,
                verdict=_verdict(profile),
                notes=tuple(_wrong(profile)),
            )
        )
    lone = pools_of(facts for name, facts in fleet.nodes.items() if name not in mine)
    found += (
        PoolLine(
            pool="",
            gpu=one["product"],
            nodes=one["nodes"],
            ready=one["ready"],
            gpus=one["nodes"] * one["gpus_per_node"],
            notes=(
                f"{one['nodes']} nodes with {one['product']} are of no pool: {_proposal(one['product'])}",
            ),
        )
        for one in lone
    )
    return found


def _proposal(product: str) -> str:
    """The command that makes a pool of nodes with a GPU; words where nobody knows it."""
    if not presets.meanings("devices", product):
        return "make a ClusterProfile of them whose spec.gpu is one of `mofa presets devices`"
    return f"mofa profile --gpu {product} --label {PRODUCT}={product} | kubectl apply -f -"


def _verdict(profile: LiveProfile) -> str:
    return next(
        (one.reason for one in profile.conditions if one.type == Aspect.ASSUMPTIONS_HOLD), ""
    )


def _wrong(profile: LiveProfile) -> list[str]:
    """Conditions that do not hold."""
    return [one.message for one in profile.conditions if one.status == "False" and one.message]


def _held(fleet: ClusterSeen) -> dict[str, list[int]]:
    """GPUs of running jobs by the profile whose nodes they select."""
    found: dict[str, list[int]] = {}
    for key, job in fleet.jobs.items():
        if fleet.speaks(key):
            continue
        spent = spending(job, fleet.speaker(key), {}, fleet.now, fleet.beside.get(key, NOTHING))
        if spent.state is JobState.RUNS and (name := _profile(fleet, key, job)):
            found.setdefault(name, []).append(spent.gpus)
    return found


def _profile(fleet: ClusterSeen, key: Key, job: LiveObject) -> str:
    """The profile of a job: the one that it may mean, else the only one whose nodes its pods select; empty where none is told."""
    speaker = fleet.speaker(key)
    if speaker is not None:
        return speaker.asked.profile
    meant = fleet.store.means(key)
    if len(meant) == 1:
        return meant[0].key.name
    if not isinstance(key.kind, JobKind):
        return ""
    try:
        selector = demand_of(job.body).selector
    except InputError:
        return ""
    fitting = [one for one in meant if one.asked.node_selector.items() <= selector.items()]
    return fitting[0].key.name if len(fitting) == 1 else ""
