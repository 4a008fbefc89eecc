"""The pools of a cluster: their nodes and GPUs, and what pools, policies and jobs lack. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from mofa_model import presets
from mofa_model.annotations import PREFIX, QUIET, UNANSWERED
from mofa_model.errors import InputError
from mofa_model.kinds import JobKind, demand_of
from mofa_model.kinds.shape import NOTHING, at, glance, text_of
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


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolLine:
    """A pool."""

    pool: str
    """Its ClusterProfile; empty for nodes that are of none."""
    gpu: str
    """GPU, as the profile or as the nodes say it."""
    nodes: int
    ready: int
    gpus: int
    """GPUs that they offer. [1]"""
    held: int = 0
    """Of them those that running jobs hold. [1]"""
    jobs: int = 0
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
        nodes = count_nodes(profile.spec.node_selector, fleet.node_facts.items())
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
    lone = pools_of(facts for name, facts in fleet.node_facts.items() if name not in mine)
    found += (
        PoolLine(
            pool="",
            gpu=one["product"],
            nodes=one["nodes"],
            ready=one["ready"],
            gpus=one["nodes"] * one["gpus_per_node"],
            notes=(
                (
                    f"{one['nodes']} nodes with {one['product']} are of no pool: "
                    f"{_proposal(one['product'])}"
                ),
            ),
        )
        for one in lone
    )
    return found


def _proposal(product: str) -> str:
    """The command that makes a pool of nodes with a GPU; a hint where the GPU is unknown."""
    if not presets.meanings("devices", product):
        return "make a ClusterProfile of them whose spec.gpu is one of `mofa presets devices`"
    return f"mofa profile --gpu {product} --label {PRODUCT}={product} | kubectl apply -f -"


def _verdict(profile: LiveProfile) -> str:
    return next(
        (one.reason for one in profile.conditions if one.type == Aspect.ASSUMPTIONS_HOLD), ""
    )


def _wrong(profile: LiveProfile) -> list[str]:
    """Conditions of an object that are not as they should be."""
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
    """The only pool that a job may mean and whose nodes its pods can use; empty = not clear."""
    speaker = fleet.speaker(key)
    if speaker is not None:
        return speaker.spec.profile
    try:
        selector = demand_of(job.body).selector if isinstance(key.kind, JobKind) else {}
    except InputError:
        selector = {}
    meant = [one for one in fleet.store.means(key) if _can_use(fleet, one, selector)]
    if len(meant) > 1:  # who names all labels of a pool means that one
        meant = [one for one in meant if one.spec.node_selector.items() <= selector.items()]
    return meant[0].key.name if len(meant) == 1 else ""


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
    nodes = site.fleet.node_facts
    found = []
    for profile in site.fleet.store.profiles():
        counted, says = count_nodes(profile.spec.node_selector, nodes.items()), profile.status
        now = (profile.generation, counted.total, counted.ready)
        found.append((says.generation, says.total, says.ready) == now)
    return bool(found) and all(found)


def pool_checks(site: Site) -> Iterator[Diagnosis]:
    """Everything about pools, policies and jobs."""
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
        yield ok(about, f"{sum(bool(f.gpus) for f in fleet.node_facts.values())} nodes offer GPUs")


def _profiles(fleet: ClusterSeen) -> Iterator[Diagnosis]:
    """What is wrong with the ClusterProfiles and the nodes that they select, each with a command to
    mend it.
    """
    about, every = "pools", fleet.store.profiles()
    if CLUSTER_PROFILE in fleet.absent or CLUSTER_PROFILE in fleet.refused:
        return
    if not every:
        products = {one.product for one in fleet.node_facts.values() if one.gpus and one.product}
        known = any(presets.meanings("devices", product) for product in products)
        by_hand = (
            "make one, as examples/h100-east.yaml is: no node says by a label which GPU it has"
        )
        none = "there is no ClusterProfile, so nothing can be advised"
        yield broken(about, none, _PROPOSE if known else by_hand)
        return
    members: dict[str, list[str]] = {}
    for profile in every:
        name, selector = profile.key.name, profile.spec.node_selector
        found = count_nodes(selector, fleet.node_facts.items())
        for node in found.names:
            members.setdefault(node, []).append(name)
        edit = f"kubectl edit clusterprofile {name}"
        if not found.total:
            labels = ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
            said = labels or "any with GPUs"
            yield broken(about, f"{name} selects no node: {said}", edit)
        yield from _as_stated(profile, [fleet.node_facts[node] for node in found.names])
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
        found_lone = f"{len(lone)} nodes with GPUs are of no ClusterProfile: {_few(lone)}"
        yield weaker(about, found_lone, _takes_in(fleet, every, lone))
    if members and not shared and not lone:
        yield ok(about, f"{len(every)} ClusterProfiles have {len(members)} nodes")


def _takes_in(fleet: ClusterSeen, profiles: list[LiveProfile], lone: list[str]) -> str:
    """The command that brings a node into a pool: of nodes with its GPU, else one of its own."""
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
    """Whether nodes are what the profile says."""
    stated = text_of(at(profile.body, "spec", "gpu"))
    products = {facts.product for facts in nodes} - {""}
    for product in sorted(products):
        meant, said = presets.meanings("devices", product), presets.meanings("devices", stated)
        if meant and said and not set(meant) & set(said):
            yield broken(
                "pools",
                f"{profile.key.name} says {stated}, and its nodes have {product}",
                f"kubectl patch clusterprofile {profile.key.name} --type=merge "
                f'-p \'{{"spec":{{"gpu":"{meant[0]}"}}}}\'',
            )


def _policies(fleet: ClusterSeen) -> Iterator[Diagnosis]:
    known = {profile.key.name for profile in fleet.store.profiles()}
    for key in fleet.store.keys(ADVISOR_POLICY):
        policy = glance(ListedPolicy, fleet.store.body(key))
        if policy.profile and policy.profile not in known:
            right = f"one of {', '.join(sorted(known))}" if known else "one that is there"
            yield broken(
                "policies",
                f"{key.namespace}/{key.name} names the ClusterProfile {policy.profile}, which "
                f"does not exist: name {right}",
                f"kubectl edit advisorpolicy -n {key.namespace} {key.name}",
            )


def _jobs(site: Site) -> Iterator[Diagnosis]:
    fleet = site.fleet
    for key, job in sorted(fleet.jobs.items()):
        told = written_answer(job)
        if told.get("status") in {*UNANSWERED} - QUIET:
            yield broken(
                "jobs",
                f"{key.namespace}/{key.name} cannot be answered: {told.get('explanation', '')}",
                f"kubectl edit -n {key.namespace} {named(key)}",
            )
    gated = [key for key, job in sorted(fleet.jobs.items()) if is_gated(job)]
    if gated and not (any(one.available for one in site.operators) or is_kept(site)):
        first = gated[0]
        yield broken(
            "jobs",
            f"{len(gated)} jobs wait at our gate, and no operator runs to let them go: "
            f"{_few([k.name for k in gated])}",
            f"kubectl annotate -n {first.namespace} {named(first)} {PREFIX}gate-",
        )
