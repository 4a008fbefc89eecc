"""Laws of deciding, for any sequence of events: what is done is done, time alone changes nothing, a
restart writes nothing.
"""

import copy
import pickle

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from operator_objects import World, job_set, node, policy, profile, ref, training_job

from mofa_model.annotations import INPUTS, PREFIX
from mofa_model.kinds import JOB_SET
from mofa_model.spec.evidence import FailureEvidence
from mofa_operator.keys import ADVISOR_POLICY, CLUSTER_PROFILE, NODE, TRAINING_JOB, Key
from mofa_operator.snapshot import History, NoHistory, Running
from mofa_operator.words import OF_JOBS

EAST = Key(CLUSTER_PROFILE, "", "east")
POLICY = Key(ADVISOR_POLICY, "ns", "p")
SET = Key(JOB_SET, "ns", "js")
JOBS = [Key(TRAINING_JOB, "ns", name) for name in "ab"]
COUNTS = st.sampled_from([0, 6, 12, 40, 41])


@st.composite
def histories(draw):
    """What Prometheus may say."""
    if draw(st.integers(0, 3)) == 0:
        reason = draw(
            st.sampled_from(["HistoryUnavailable", "SeriesMissing", "NotConfigured", "?"])
        )
        return NoHistory(
            reason=reason, message=draw(st.sampled_from(["timed out", "refused", "503"]))
        )
    names = draw(st.sampled_from([("process", "pod", "job"), ("pod",), ()]))
    exposure = draw(st.sampled_from([0.0, 0.04, 1000.0, 1030.0, 8000.0, float("nan")]))
    classes = {}
    for name in names:
        recovery = draw(st.sampled_from([None, 0.4, 300.0]))
        classes[name] = FailureEvidence(
            node_days=exposure,
            failures=draw(COUNTS),
            recoveries=int(recovery is not None),
            recovery_seconds=recovery or 0.0,
        )
    return History(
        classes=classes,
        node_days=exposure,
        window=30 * 86400.0,
        coverage=draw(st.sampled_from([0.0, 0.3, 0.89, 0.95, 1.0])),
        missing=draw(st.sampled_from([(), ("kube_pod_info",)])),
        at=draw(st.floats(0, 1e9)),
    )


@st.composite
def sightings(draw):
    """What a job may be seen to do."""
    speed = st.none() | st.sampled_from([0.0, 1e5, 1.02e5, 2e5, float("nan")]) | st.floats(0, 1e7)
    return draw(
        st.none()
        | st.builds(
            Running,
            source=st.sampled_from(["mofa", "TrainJobStatus", ""]),
            tokens_per_second=speed,
            step_seconds=speed,
            step=st.none() | st.integers(0, 9),
            ettr=st.none() | st.floats(0, 2),
            interruptions=st.dictionaries(
                st.tuples(
                    st.sampled_from(["process", "pod"]), st.sampled_from(["failure", "eviction"])
                ),
                COUNTS,
            ),
            since=st.none() | st.floats(0, 1e9),
        )
    )


EVENTS = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([1.0, 60.0, 601.0, 86400.0])),
    st.tuples(st.just("history"), histories()),
    st.tuples(st.just("see"), st.sampled_from([*JOBS, SET]), sightings()),
    st.tuples(st.just("node"), st.sampled_from("mnop"), st.booleans(), st.sampled_from([8, 8, 4])),
    st.tuples(st.just("lose node"), st.sampled_from("mnop")),
    st.tuples(st.just("nodes"), st.sampled_from(JOBS), st.sampled_from([1, 2, 4])),
    st.tuples(st.just("mode"), st.sampled_from(JOBS), st.sampled_from(["Disabled", "Annotate", "Apply"])),
    st.tuples(st.just("pause"), st.sampled_from([*JOBS, SET]), st.booleans()),
    st.tuples(st.just("target"), st.sampled_from(JOBS), st.booleans()),
    st.tuples(st.just("model"), st.sampled_from(JOBS), st.sampled_from(["llama3.1-8b", "nobody-knows-1b"])),
    st.tuples(st.just("opt in"), st.sampled_from(["", "llama3.1-8b", "nobody-knows-1b"])),
    st.tuples(st.just("policy"), st.sampled_from(["none", "east", "nowhere", "selective"])),
    st.tuples(st.just("tamper"), st.sampled_from([*JOBS, SET]), st.sampled_from(["status", "strategy", "inputs-hash"])),
    st.tuples(st.just("spoil"), st.sampled_from([*JOBS, EAST]), st.sampled_from(["conditions", "inputsHash", "total"])),
    st.tuples(st.just("delete"), st.sampled_from([*JOBS, SET, EAST])),
    st.tuples(st.just("create"), st.sampled_from([*JOBS, SET, EAST])),
    st.tuples(st.just("assume"), st.sampled_from([("1.5", "3", "0.5"), ("6", "12", "2"), ("0", "0", "0")])),
)  # fmt: skip


def happen(world, event):
    """Let an event happen; one that concerns what is not there does nothing."""
    what, *rest = event
    if what in HAPPEN:
        HAPPEN[what](world, *rest)
    else:
        change(world, rest[0], lambda body: edit(what, body, rest[1]))


def wait(world, seconds):
    world.now += seconds


def hear(world, history):
    world.due |= world.store.set_history("east", history)


def see(world, key, running):
    world.due |= world.store.set_running(key, running)


def replace_policy(world, which):
    world.drop(POLICY)
    if which != "none":
        more = {"selector": {"team": "x"}} if which == "selective" else {"profile": which}
        world.put(ADVISOR_POLICY, policy(**more))


HAPPEN = {
    "wait": wait,
    "history": hear,
    "see": see,
    "node": lambda world, name, ready, gpus: world.put(NODE, node(name, ready=ready, gpus=gpus)),
    "lose node": lambda world, name: world.drop(Key(NODE, "", name)),
    "create": lambda world, key: key in world.bodies or world.put(key.kind, BIRTHS[key]()),
    "delete": lambda world, key: world.drop(key),
    "policy": replace_policy,
    "opt in": lambda world, model: change(world, SET, lambda body: annotate(body, "model", model)),
    "assume": lambda world, rates: change(
        world, EAST, lambda body: body["spec"].update(profile(rates=rates)["spec"])
    ),
}


def change(world, key, by):
    """Edit an object that is there; the generation counts edits of the spec."""
    if key in world.bodies:
        before = copy.deepcopy(world.bodies[key]["spec"])

        def edited(body):
            by(body)
            body["metadata"]["generation"] += body["spec"] != before

        world.edit(key, edited)


def edit(what, body, value):
    """One edit by a user."""
    if what == "nodes":
        body["spec"]["cluster"]["nodes"] = value
    elif what == "mode":
        body["spec"]["mode"] = value
    elif what == "model":
        body["spec"]["model"] = {"preset": value}
    elif what == "pause":
        annotate(body, "paused", "true" if value else "")
    elif what == "target":
        body["spec"].pop("targetRef", None)
        if value:
            body["spec"]["targetRef"] = ref(job_set())
    elif what == "tamper":
        annotate(body, value, "")
    elif what == "spoil":
        body.get("status", {}).pop(value, None)


def annotate(body, name, value):
    """Set an annotation under our prefix, or remove it."""
    annotations = body["metadata"].setdefault("annotations", {})
    annotations.pop(PREFIX + name, None)
    if value:
        annotations[PREFIX + name] = value


BIRTHS = {
    JOBS[0]: lambda: training_job("a"),
    JOBS[1]: lambda: training_job("b", targetRef=ref(job_set())),
    SET: job_set,
    EAST: lambda: profile(ready=None),
}


def everything(world):
    """Keys of all that is decided about."""
    return world.store.keys(TRAINING_JOB, CLUSTER_PROFILE, JOB_SET)


LAW = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@LAW
@given(events=st.lists(EVENTS, max_size=14), whole=st.booleans())
def test_what_is_done_is_done_and_a_restart_writes_nothing(events, whole):
    world = World()
    for key in (EAST, *JOBS, SET):
        world.put(key.kind, BIRTHS[key]())
    for event in events:
        happen(world, event)
        if whole:
            world.rest()  # each decision that is done is silent the next time, which `rest` asserts
    world.rest()
    fresh = world.restarted()
    for key in everything(world):
        assert world.decide(key).is_silent
        assert world.decide(key, fresh).is_silent, f"a restart writes to {key}"
    world.now += (
        1e6  # whatever waits for its time is written now, and then time alone changes nothing
    )
    world.due |= set(everything(world))
    world.rest()
    fresh = world.restarted()
    for later in (1.0, 700.0, 1e8):
        world.now += later
        for key in everything(world):
            decision = world.decide(key)
            assert decision.is_silent, f"time alone writes to {key}"
            assert decision.requeue_after is None
            assert world.decide(key, fresh).is_silent


@LAW
@given(events=st.lists(EVENTS, max_size=10))
def test_every_job_that_asks_has_an_outcome_and_every_other_nothing_of_ours(events):
    world = World()
    for key in (EAST, *JOBS, SET):
        world.put(key.kind, BIRTHS[key]())
    for event in events:
        happen(world, event)
    world.rest()
    for key in everything(world):
        decision = world.decide(key)
        if key.kind == CLUSTER_PROFILE:
            told = {one["type"] for one in world.status(key)["conditions"]}
            assert told == {"Ready", "HistoryComplete", "AssumptionsHold", "NodesExclusive"}
        elif decision.outcome in {"Disabled", "NotAsked"}:
            assert world.ours(key) == {}
        elif decision.outcome not in {"Paused", "Owned"}:
            assert world.ours(key)["status"] in {
                "Recommended",
                "LowConfidence",
                "NoRecommendation",
                "InvalidInput",
            }
            if key.kind == TRAINING_JOB:
                told = {one["type"] for one in world.status(key)["conditions"]}
                applies = world.bodies[key]["spec"].get("mode") == "Apply"
                assert told == {*OF_JOBS} | ({"LaunchVerified"} if applies else set())
                assert world.status(key)["inputsHash"] == world.ours(key)["inputs-hash"]


@LAW
@given(events=st.lists(EVENTS, max_size=10))
def test_inputs_are_never_written_and_decisions_travel(events):
    world = World()
    for key in (EAST, *JOBS, SET):
        world.put(key.kind, BIRTHS[key]())
    for event in events:
        happen(world, event)
        for key in everything(world):
            decision = world.decide(key)
            for write in decision.annotate:
                assert not {*write.hold, *write.drop} & set(INPUTS)
                assert all(name.startswith(PREFIX) for name in (*write.hold, *write.drop))
            assert repr(pickle.loads(pickle.dumps(decision))) == repr(decision)  # not ==, for NaN
            assert pickle.loads(pickle.dumps(world.store.snapshot(key, world.now)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=6,
)


@LAW
@given(
    kind=st.sampled_from([TRAINING_JOB, CLUSTER_PROFILE, JOB_SET]),
    spec=JSON,
    status=JSON,
    annotations=JSON,
)
def test_no_object_is_too_strange_to_decide_about(kind, spec, status, annotations):
    world = World()
    births = {TRAINING_JOB: training_job(), CLUSTER_PROFILE: profile(), JOB_SET: job_set()}
    body = births[kind]
    for given_spec in (spec, body["spec"]):
        strange = {**body, "spec": given_spec, "status": status}
        strange["metadata"] = {**body["metadata"], "annotations": annotations}
        world.put(kind, strange)
        for key in everything(world):
            assert pickle.loads(pickle.dumps(world.decide(key)))


def test_the_events_of_these_laws_really_write():
    """Otherwise silence would prove nothing."""
    world = World()
    for key in (EAST, *JOBS, SET):
        world.put(key.kind, BIRTHS[key]())
    world.rest()
    assert world.writes >= 4
    happen(world, ("node", "m", True, 8))
    world.rest()
    assert world.status(EAST)["nodes"]["ready"] == 1
    assert world.ours(SET) == world.ours(JOBS[1])
