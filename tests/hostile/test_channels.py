"""Whatever stands in one namespace, what another is told changes through declared channels alone,
and within their bounds.

The channels: the nodes of the pool, which are administrators'; and the pool's factor, which jobs
teach that stand on its nodes: by two percent a day where several namespaces do. Advice, status and
figures of the victim are compared to the bit.
"""

import math

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from operator_objects import NOW, World, node, profile, training_job
from wicked import ROLES

from mofa_model.kinds import JOB_SET
from mofa_model.units import DAY
from mofa_operator.decide.calibration import INFLUENCE
from mofa_operator.keys import ADVISOR_POLICY, CLUSTER_PROFILE, NODE, TRAINING_JOB, Key
from mofa_operator.snapshot import Running

EAST = Key(CLUSTER_PROFILE, "", "east")
VICTIM = Key(TRAINING_JOB, "research", "train")
TAUGHT = 900.0
WILD = (
    st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 0.0, 1e-308, 1e308, 1e5, 9e6])
    | st.floats()
)


class Living(World):
    """A world in which running jobs teach their profiles, as the loop has it."""

    def step(self, key):
        decision = super().step(key)
        if decision is not None and key.kind == TRAINING_JOB:
            self.due |= self.store.set_taught(key, "east", decision.taught)
        return decision

    def told(self):
        """All that the victim is told: its annotations, its status, its figures on /metrics."""
        decision = self.decide(VICTIM)
        return self.bodies[VICTIM], decision.figures, decision.notes

    def factor(self):
        return float(self.status(EAST).get("calibration", {}).get("stepTimeRatio", 1.0))


def world(*, taught=True):
    """A pool of four nodes, and a victim that runs on it as it was told."""
    made = Living()
    for name in "mnop":
        made.put(NODE, node(name))
    made.put(CLUSTER_PROFILE, profile())
    made.put(TRAINING_JOB, training_job("train", namespace="research"))
    made.rest()
    tokens = made.decide(VICTIM).figures.predicted["tokens_per_second"].target
    running = Running(
        source="mofa", tokens_per_second=0.95 * tokens, since=NOW - DAY, on_pool=taught
    )
    made.due |= made.store.set_running(VICTIM, running)
    made.rest()
    return made


@st.composite
def sightings(draw, *, on_pool):
    classes = st.tuples(
        st.sampled_from(["process", "pod", "job"]), st.sampled_from(["failure", "eviction"])
    )
    return Running(
        source="mofa", tokens_per_second=draw(WILD), step_seconds=draw(WILD), ettr=draw(WILD), on_pool=on_pool,
        interruptions=draw(st.dictionaries(classes, st.integers(0, 10**9), max_size=3)), since=draw(st.none() | st.floats(0, NOW)),
    )  # fmt: skip


def lives(made, evil, seen):
    """What evil has stands, is looked at, runs as it is said to, and is looked at again."""
    for kind, body in evil:
        made.put(kind, body)
    made.rest()
    for (kind, body), running in zip(evil, seen, strict=False):
        if kind != ADVISOR_POLICY:
            made.due |= made.store.set_running(Key(kind, "evil", body["metadata"]["name"]), running)
    made.rest()


LAW = settings(
    max_examples=12,
    phases=[Phase.generate],  # what fails is found in seconds, and its least form not in minutes
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.large_base_example,
        HealthCheck.data_too_large,
    ],
)


@LAW
@given(
    evil=st.lists(ROLES, min_size=1, max_size=5),
    seen=st.lists(sightings(on_pool=False), max_size=5),
)
def test_what_stands_in_one_namespace_changes_nothing_in_another(evil, seen):
    made = world()
    before, factor = made.told(), made.factor()
    lives(made, evil, seen)
    assert made.told() == before
    assert made.factor() == factor
    for later in (1.0, 700.0, DAY / 2):
        made.now += later
        made.due |= set(made.store.keys(TRAINING_JOB, CLUSTER_PROFILE, JOB_SET))
        alone = world()
        alone.now = made.now
        alone.due |= {VICTIM, EAST}
        made.rest()
        alone.rest()
        assert made.told()[0].get("status") == alone.told()[0].get("status")


@LAW
@given(
    ratios=st.lists(st.floats(0.3, 3.0), min_size=1, max_size=4),
    days=st.integers(1, 3),
)
def test_who_stands_on_the_pool_moves_its_factor_within_the_stated_bound(ratios, days):
    made = world()
    before = made.factor()
    tokens = made.told()[1].predicted["tokens_per_second"].target * before
    evil = [(TRAINING_JOB, training_job(f"e-{n}", namespace="evil")) for n in range(len(ratios))]
    seen = [
        Running(source="mofa", tokens_per_second=tokens * ratio, since=NOW - DAY, on_pool=True)
        for ratio in ratios
    ]
    lives(made, evil, seen)
    moved = [made.factor()]
    for _ in range(4 * days):
        made.now += DAY / 4
        made.due |= set(made.store.keys(TRAINING_JOB, CLUSTER_PROFILE))
        made.rest()
        moved.append(made.factor())
    for day in range(days):
        last = moved[min(len(moved) - 1, 4 * (day + 1) - 1)]
        assert abs(math.log(last / before)) <= (day + 1) * math.log(1 + INFLUENCE) + 0.006, (
            "and two digits are written"
        )
