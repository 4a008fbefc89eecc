"""What goes and comes back within minutes changes no layout: laws of the size that advice
is for.
"""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from operator_objects import applied

from mofa_model.annotations import inputs_hash
from mofa_model.manifest.advisor_policy import SizeBounds
from mofa_model.manifest.jobs import JobQuestion, request_of
from mofa_model.manifest.parsing import cluster_profile, parse
from mofa_model.manifest.sizing import at_every_size
from mofa_model.manifest.training_job import TrainingJobSpec
from mofa_operator.decide.pool import profile as decide
from mofa_operator.keys import CLUSTER_PROFILE
from mofa_operator.objects import live
from mofa_operator.observe.cluster.questions import relevance
from mofa_operator.observe.nodes import NodeFacts, Pools
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import ProfileSnapshot

SETTINGS = LoopSettings()
STEADY = SETTINGS.steady
START, OLD = 1_800_000_000.0, 1_700_000_000.0
LABELS = {"pool": "east"}


def stamp(at):
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def facts(*, ready=True, cordoned=False, since=OLD):
    return NodeFacts(labels=LABELS, ready=ready, cordoned=cordoned, gpus=8, turned=stamp(since))


@dataclass
class Site:
    """A pool of so many nodes, the operator that looks at it, and its clock."""

    number: int = 16
    made: float = OLD

    def __post_init__(self):
        self.now = START
        self.nodes = {f"n{index}": facts() for index in range(self.number)}
        meta = {"name": "east", "uid": "1", "generation": 1, "creationTimestamp": stamp(self.made)}
        self.body = {
            "apiVersion": "mofa.dev/v1alpha1", "kind": "ClusterProfile", "metadata": meta,
            "spec": {"gpu": "h100", "nodeSelector": LABELS},
        }  # fmt: skip
        self.notes, self.again = [], None
        self.restart()

    def restart(self):
        """Another operator begins: it sees the nodes that there are, and the status that stands."""
        self.pools = Pools(STEADY, lambda: self.now)
        self.pools.select("east", LABELS)
        for name, one in self.nodes.items():
            self.pools.put(name, one)
        self.pools.listed()
        self.look()

    def put(self, name, one):
        self.nodes.pop(name, None)
        if one is not None:
            self.nodes[name] = one
        self.pools.put(name, one)
        self.look()

    def look(self):
        seen = ProfileSnapshot(
            profile=live(CLUSTER_PROFILE, self.body),
            node_count=self.pools.count("east"),
            now=self.now,
        )
        decision = decide(seen, SETTINGS)
        if decision.status is not None:
            self.body = applied(self.body, decision)
        self.notes += decision.notes
        self.again = None if decision.requeue_after is None else self.now + decision.requeue_after

    def until(self, at):
        """Time goes on; the operator looks again whenever it said that it would."""
        while self.again is not None and self.again <= at:
            self.now = max(self.now, self.again)
            self.look()
        self.now = at
        self.look()

    @property
    def size(self):
        return self.body["status"]["nodes"]["steady"]

    @property
    def told(self):
        """All that jobs take from the profile."""
        return relevance(live(CLUSTER_PROFILE, self.body))


AWAY = {
    "not ready": lambda at: facts(ready=False, since=at),
    "cordoned": lambda at: facts(cordoned=True),
    "deleted": lambda at: None,
}


@given(st.integers(0, 2**32))
@settings(max_examples=2, deadline=None, phases=[Phase.generate])
def test_hundreds_of_blips_below_five_minutes_with_restarts_in_between_change_no_layout_and_tell_nothing(
    seed,
):
    rng, site = Random(seed), Site()
    told, back = site.told, dict[str, float]()
    for _ in range(250):
        then = site.now + rng.uniform(0, 120)
        for at, name in sorted((at, name) for name, at in back.items() if at <= then):
            site.until(at)
            site.put(name, facts(since=at))
            del back[name]
        site.until(then)
        if rng.random() < 0.1:
            site.restart()
        if (name := f"n{rng.randrange(16)}") not in back:
            site.put(name, AWAY[rng.choice(sorted(AWAY))](site.now))
            back[name] = site.now + rng.uniform(1, 290)
        assert site.size == 16
    assert (site.told, site.notes) == (told, [])


def blips(site, rng, number, *, restarts=0.0):
    """So many nodes that come back within five minutes, some of them at the same time."""
    back = dict[str, float]()
    while number:
        then = site.now + rng.uniform(0, 60)
        for at, name in sorted((at, name) for name, at in back.items() if at <= then):
            site.until(at)
            site.put(name, facts(since=at))
            del back[name]
        site.until(then)
        if rng.random() < restarts:
            site.restart()
        if (name := f"n{rng.randrange(site.number)}") not in back:
            site.put(name, AWAY[rng.choice(sorted(AWAY))](site.now))
            back[name] = site.now + rng.uniform(1, 290)
            number -= 1
        yield


def hashes(site):
    """Inputs hashes of a job of all nodes, of one that states them, and of one that is sized."""
    pool = {**site.body, "status": json.loads(json.dumps(site.body["status"]))}
    profile = cluster_profile(pool)
    common = {"model": {"preset": "llama3.1-8b"}, "training": {"sequenceLength": 4096, "globalBatchSize": 64, "framework": "megatron"}}  # fmt: skip
    whole = {**common, "cluster": {"profile": "east"}}
    part = {**common, "cluster": {"profile": "east", "nodes": 2}}
    asked = [JobQuestion(spec=parse(TrainingJobSpec, one, "spec"), profile=profile, config=None, path="spec") for one in (whole, part)]  # fmt: skip
    sized = replace(asked[1], size="soonest", size_bounds=SizeBounds())
    return [
        *(inputs_hash(request_of(one), "1") for one in asked),
        *(inputs_hash(request_of(one), "1") for one in at_every_size(sized)),
    ]


@pytest.mark.parametrize(
    ("number", "seed"),
    [(60, 0), *(pytest.param(1000, seed, marks=pytest.mark.soak) for seed in range(5))],
)
def test_blips_below_five_minutes_change_no_layout_of_any_job_and_make_no_event(number, seed):
    """Losses of 1 to 290 s on 16 nodes, several at a time, with restarts of the operator: questions
    of jobs of all nodes, of a stated number, and of jobs that are sized stay as they are."""
    site = Site()
    told, asked = site.told, hashes(site)
    for _ in blips(site, Random(seed), number, restarts=0.05):
        assert site.size == 16
    assert (site.told, site.notes, hashes(site)) == (told, [], asked)


def test_a_new_size_counts_with_the_nodes_that_the_pool_had_nearly_always():
    """A quarter of an hour with 12 of 16 nodes is less than a tenth of six hours; an hour
    is more.
    """
    for away, lately in ((900, None), (3600, 12)):
        site = Site()
        for name in ("n0", "n1", "n2", "n3"):
            site.put(name, AWAY["not ready"](site.now))
        site.until(START + 300 + away)
        assert site.size == 12
        for name in ("n0", "n1", "n2", "n3"):
            site.put(name, facts(since=site.now))
        site.until(site.now + 301)
        assert site.size == 16
        assert site.body["status"]["nodes"].get("lately") == lately
        site.until(site.now + 7 * 3600)
        site.look()
        assert "earlier" not in site.body["status"]["nodes"]


@pytest.mark.parametrize("how", AWAY)
@pytest.mark.parametrize("restart", [False, True])
def test_a_loss_that_lasts_is_followed_after_five_minutes_restart_or_not(how, restart):
    site = Site()
    site.until(START + 1000)
    site.put("n3", AWAY[how](site.now))
    if restart:
        site.until(START + 1200)
        site.restart()
    site.until(START + 1299)
    assert site.size == 16
    assert "15 nodes are ready since" in site.body["status"]["conditions"][0]["message"]
    site.until(START + 1301)
    assert site.size == 15
    assert "since" not in site.body["status"]["nodes"]


@pytest.mark.parametrize("restart", [False, True])
def test_new_nodes_are_followed_after_five_minutes_and_one_that_comes_briefly_is_not(restart):
    site = Site()
    site.until(START + 1000)
    site.put("new", facts(since=site.now))
    if restart:
        site.until(START + 1200)
        site.restart()
    site.until(START + 1290)
    site.put("brief", facts(since=site.now))
    assert site.size == 16
    site.until(START + 1301)
    assert site.size == 17
    site.put("brief", None)
    site.until(START + 3000)
    assert site.size == 17


def test_a_rack_that_fails_within_half_a_minute_is_one_change():
    site, sizes = Site(), []
    for index in range(8):
        site.until(START + 1000 + 3 * index)
        site.put(f"n{index}", AWAY["not ready"](site.now))
    while site.now < START + 1400:
        site.until(site.now + 1)
        sizes.append(site.size)
    assert sorted(set(sizes)) == [8, 16]


def test_a_pool_that_is_being_built_takes_in_what_comes_at_once():
    site = Site(number=0, made=START)
    assert site.size == 0
    for index in range(4):
        site.until(START + 10 * (index + 1))
        site.put(f"n{index}", facts(since=site.now))
        assert site.size == index + 1
    site.put("n0", None)
    assert site.size == 4


def test_a_status_of_before_says_the_size_by_its_ready_nodes():
    site = Site()
    site.body["status"]["nodes"] = {"total": 16, "ready": 16, "cordoned": 0}
    site.put("n0", AWAY["deleted"](site.now))
    site.restart()
    assert (site.size, site.body["status"]["nodes"]["ready"]) == (16, 15)


def test_who_edits_the_selector_is_followed_at_once():
    site = Site()
    site.body["metadata"]["generation"] = 2
    site.body["spec"]["nodeSelector"] = {"pool": "west"}
    site.pools.select("east", {"pool": "west"})
    site.pools.put("w", replace(facts(), labels={"pool": "west"}))
    site.look()
    assert site.size == 1
