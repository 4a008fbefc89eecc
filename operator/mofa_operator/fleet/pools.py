"""The pools of a cluster, and what pools, policies and jobs lack. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mofa_model import presets
from mofa_model.annotations import PREFIX, QUIET, UNANSWERED
from mofa_model.errors import InputError
from mofa_model.kinds import JobKind, demand_of
from mofa_model.kinds.shape import NO_OBJECTS, at, glance, text_of
from mofa_operator.decide.release import is_gated
from mofa_operator.fleet.findings import Diagnosis, broken, ok, weaker
from mofa_operator.fleet.fleet import ClusterSeen, named
from mofa_operator.fleet.site import Site
from mofa_operator.fleet.spending import JobState, spending
from mofa_operator.fleet.survey import written_answer
from mofa_operator.keys import ADVISOR_POLICY, CLUSTER_PROFILE, Key
from mofa_operator.objects import LiveObject, LiveProfile
from mofa_operator.observe.cluster.relations import ListedPolicy
from mofa_operator.observe.nodes import PRODUCT, NodeFacts, count_nodes, pools_of
from mofa_operator.words import Aspect

_PROPOSE: Final = "mofa profile --from-cluster | kubectl apply -f -"
_FEATURES: Final = "install NVIDIA's GPU operator, or a device plugin"
_SHOWN: Final = 3
"""Most names that a message lists. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolLine:
    """A pool as one line of a table."""

    pool: str
    """Its ClusterProfile; empty for nodes that are of none."""
    gpu: str
    """GPU, as the profile names it, else the label of the nodes."""
    nodes: int
    ready: int
    gpus: int
    """GPUs that its nodes offer. [1]"""
    held: int = 0
    """GPUs of them that running jobs hold. [1]"""
    jobs: int = 0
    assumed: str = ""
    """Failures per thousand node-days that are assumed."""
    observed: str = ""
    """Failures per thousand node-days that were counted."""
    coverage: float | None = None
    """Share of the window that was watched. [1]"""
    verdict: str = ""
    """Whether the count agrees with the assumption."""
    notes: tuple[str, ...] = ()
    """What is wrong, in sentences."""


def pools(fleet: ClusterSeen) -> list[PoolLine]:
    """Every ClusterProfile, then GPUs of nodes that are of none."""
    held = _held(fleet)
    lines, members = [], set[str]()
    for profile in sorted(fleet.store.profiles(), key=lambda profile: profile.key.name):
        nodes = count_nodes(profile.spec.node_selector, fleet.node_facts.items())
        members |= set(nodes.names)
        jobs = held.get(profile.key.name, [])
        status, verdict = profile.status, profile.condition(Aspect.ASSUMPTIONS_HOLD)
        lines.append(
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
                verdict="" if verdict is None else verdict.reason,
                notes=tuple(
                    condition.message
                    for condition in profile.conditions
                    if condition.status == "False" and condition.message
                ),
            )
        )
    lone = pools_of(facts for name, facts in fleet.node_facts.items() if name not in members)
    lines += (
        PoolLine(
            pool="",
            gpu=group["product"],
            nodes=group["nodes"],
            ready=group["ready"],
            gpus=group["nodes"] * group["gpus_per_node"],
            notes=(_no_pool(group),),
        )
        for group in lone
    )
    return lines


def _no_pool(group: Mapping[str, Any]) -> str:
    """That nodes with equal GPUs are of no pool, and how to make one of them."""
    product = group["product"]
    return f"{group['nodes']} nodes with {product} are of no pool: {_proposal(product)}"


def _proposal(product: str) -> str:
    """The command that makes a pool of nodes with a GPU; a hint where the GPU is unknown."""
    if not presets.meanings("devices", product):
        return "make a ClusterProfile of them whose spec.gpu is one of `mofa presets devices`"
    return f"mofa profile --gpu {product} --label {PRODUCT}={product} | kubectl apply -f -"


def _held(fleet: ClusterSeen) -> dict[str, list[int]]:
    """GPUs of running jobs by the profile whose nodes they select."""
    by_profile: dict[str, list[int]] = {}
    for key, job in fleet.jobs.items():
        if fleet.speaks(key):
            continue
        spent = spending(job, fleet.speaker(key), {}, fleet.now, fleet.beside.get(key, NO_OBJECTS))
        if spent.state is JobState.RUNS and (name := _profile(fleet, key, job)):
            by_profile.setdefault(name, []).append(spent.gpus)
    return by_profile


def _profile(fleet: ClusterSeen, key: Key, job: LiveObject) -> str:
    """The pool of a job: its TrainingJob's, else the only one that it may mean and whose nodes its
    pods can use; empty where that is not clear.
    """
    speaker = fleet.speaker(key)
    if speaker is not None:
        return speaker.spec.profile
    try:
        selector = demand_of(job.body).selector if isinstance(key.kind, JobKind) else {}
    except InputError:
        selector = {}
    profiles = [
        profile
        for profile in fleet.store.possible_profiles(key)
        if _can_use(fleet, profile, selector)
    ]
    if len(profiles) > 1:  # who names all labels of a pool means that one
        profiles = [
            profile
            for profile in profiles
            if profile.spec.node_selector.items() <= selector.items()
        ]
    return profiles[0].key.name if len(profiles) == 1 else ""


def _can_use(fleet: ClusterSeen, profile: LiveProfile, selector: Mapping[str, str]) -> bool:
    """Whether pods with a selector can run on a node of a pool, as far as nodes are seen."""
    of_pool = profile.spec.node_selector
    if any(of_pool.get(label, value) != value for label, value in selector.items()):
        return False
    members = count_nodes(of_pool, fleet.node_facts.items()).names
    labels = (fleet.node_facts[name].labels for name in members)
    return not members or any(selector.items() <= node.items() for node in labels)


def is_kept(site: Site) -> bool:
    """Whether an operator outside the cluster keeps the ClusterProfiles as they are now."""
    nodes, profiles = site.fleet.node_facts, list(site.fleet.store.profiles())

    def is_current(profile: LiveProfile) -> bool:
        count, status = count_nodes(profile.spec.node_selector, nodes.items()), profile.status
        current = profile.generation, count.total, count.ready
        return (status.generation, status.total, status.ready) == current

    return bool(profiles) and all(map(is_current, profiles))


def pool_checks(site: Site) -> Iterator[Diagnosis]:
    """Findings about nodes, pools, policies and jobs."""
    fleet = site.fleet
    yield from _nodes(fleet)
    yield from _profiles(fleet)
    yield from _policies(fleet)
    yield from _jobs(site)


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(sorted(names)[:_SHOWN]) + more


def _nodes(fleet: ClusterSeen) -> Iterator[Diagnosis]:
    about = "nodes"
    bare = [name for name, facts in fleet.node_facts.items() if facts.gpus and not facts.product]
    idle = [name for name, facts in fleet.node_facts.items() if facts.product and not facts.gpus]
    if bare:
        yield weaker(
            about,
            f"{len(bare)} nodes offer GPUs and no label {PRODUCT} says which, as NVIDIA's GPU "
            f"operator would: {_few(bare)}",
            f"kubectl label node {bare[0]} {PRODUCT}=PRODUCT",
        )
    if idle:
        yield broken(
            about,
            f"{len(idle)} nodes have the label {PRODUCT} and offer no GPUs: {_few(idle)}",
            "kubectl get pods -A -l app=nvidia-device-plugin-daemonset",
        )
    if fleet.node_facts and not any(facts.gpus for facts in fleet.node_facts.values()):
        yield broken(about, "no node offers GPUs", _FEATURES)
    elif not bare and not idle and fleet.node_facts:
        yield ok(
            about,
            f"{sum(bool(facts.gpus) for facts in fleet.node_facts.values())} nodes offer GPUs",
        )


def _profiles(fleet: ClusterSeen) -> Iterator[Diagnosis]:
    """Findings about the ClusterProfiles and the nodes that they select."""
    about, profiles = "pools", fleet.store.profiles()
    if CLUSTER_PROFILE in fleet.absent or CLUSTER_PROFILE in fleet.refused:
        return
    if not profiles:
        nodes = fleet.node_facts.values()
        products = {node.product for node in nodes if node.gpus and node.product}
        is_known = any(presets.meanings("devices", product) for product in products)
        by_hand = (
            "make one, as examples/h100-east.yaml is: no node says by a label which GPU it has"
        )
        none = "there is no ClusterProfile, so nothing can be advised"
        yield broken(about, none, _PROPOSE if is_known else by_hand)
        return
    members: dict[str, list[str]] = {}
    for profile in profiles:
        name, selector = profile.key.name, profile.spec.node_selector
        count = count_nodes(selector, fleet.node_facts.items())
        for node in count.names:
            members.setdefault(node, []).append(name)
        edit = f"kubectl edit clusterprofile {name}"
        if not count.total:
            labels = ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
            yield broken(about, f"{name} selects no node: {labels or 'any with GPUs'}", edit)
        yield from _as_stated(profile, [fleet.node_facts[node] for node in count.names])
    shared = [node for node, names in members.items() if len(names) > 1]
    if shared:
        both = " and ".join(sorted(members[shared[0]]))
        yield broken(
            about,
            f"{len(shared)} nodes are of {both} at once, so that their failures count twice: "
            f"{_few(shared)}",
            f"kubectl edit clusterprofile {members[shared[0]][-1]}",
        )
    lone = [name for name, facts in fleet.node_facts.items() if facts.gpus and name not in members]
    if lone:
        finding = f"{len(lone)} nodes with GPUs are of no ClusterProfile: {_few(lone)}"
        yield weaker(about, finding, _takes_in(fleet, profiles, lone))
    if members and not shared and not lone:
        yield ok(about, f"{len(profiles)} ClusterProfiles have {len(members)} nodes")


def _takes_in(fleet: ClusterSeen, profiles: list[LiveProfile], lone: list[str]) -> str:
    """The command that takes a node into a pool of nodes with its GPU, else into a new pool."""
    name, product = lone[0], fleet.node_facts[lone[0]].product
    for profile in profiles:
        selector = profile.spec.node_selector
        members = count_nodes(selector, fleet.node_facts.items())
        if selector and product in members.products:
            labels = " ".join(f"{key}={value}" for key, value in sorted(selector.items()))
            return f"kubectl label --overwrite node {name} {labels}"
    if not product:
        return f"kubectl label node {name} {PRODUCT}=PRODUCT"
    return _proposal(product)


def _as_stated(profile: LiveProfile, nodes: list[NodeFacts]) -> Iterator[Diagnosis]:
    """A finding for each GPU of the nodes that is another than the profile states."""
    stated = text_of(at(profile.body, "spec", "gpu"))
    stated_devices = presets.meanings("devices", stated)
    for product in sorted({facts.product for facts in nodes} - {""}):
        devices = presets.meanings("devices", product)
        if devices and stated_devices and not set(devices) & set(stated_devices):
            yield broken(
                "pools",
                f"{profile.key.name} says {stated}, and its nodes have {product}",
                f"kubectl patch clusterprofile {profile.key.name} --type=merge "
                f'-p \'{{"spec":{{"gpu":"{devices[0]}"}}}}\'',
            )


def _policies(fleet: ClusterSeen) -> Iterator[Diagnosis]:
    names = {profile.key.name for profile in fleet.store.profiles()}
    for key in fleet.store.keys(ADVISOR_POLICY):
        policy = glance(ListedPolicy, fleet.store.body(key))
        if policy.profile and policy.profile not in names:
            right = f"one of {', '.join(sorted(names))}" if names else "one that is there"
            yield broken(
                "policies",
                f"{key.namespace}/{key.name} names the ClusterProfile {policy.profile}, which "
                f"does not exist: name {right}",
                f"kubectl edit advisorpolicy -n {key.namespace} {key.name}",
            )


def _jobs(site: Site) -> Iterator[Diagnosis]:
    fleet = site.fleet
    for key, job in sorted(fleet.jobs.items()):
        texts = written_answer(job)
        if texts.get("status") in {*UNANSWERED} - QUIET:
            yield broken(
                "jobs",
                f"{key.namespace}/{key.name} cannot be answered: {texts.get('explanation', '')}",
                f"kubectl edit -n {key.namespace} {named(key)}",
            )
    gated = [key for key, job in sorted(fleet.jobs.items()) if is_gated(job)]
    if gated and not (any(operator.available for operator in site.operators) or is_kept(site)):
        first = gated[0]
        yield broken(
            "jobs",
            f"{len(gated)} jobs wait at our gate, and no operator runs to let them go: "
            f"{_few([key.name for key in gated])}",
            f"kubectl annotate -n {first.namespace} {named(first)} {PREFIX}gate-",
        )
