"""Mode Apply, decided: who gets arguments, who is let go, when, and that nobody waits for ever."""

import asyncio
import copy
import json
import shlex
from dataclasses import replace

import pytest
from foreign import KINDS, READS, RUNTIME, example, reading
from hypothesis import given
from hypothesis import strategies as st
from json_patch import Unfit, patched
from operator_objects import NOW, SETTINGS, policy, profile, ref, standing, training_job

from mofa_model import kinds
from mofa_model.annotations import PREFIX
from mofa_model.kinds import (
    BATCH_JOB,
    JOB_SET,
    PYTORCH_JOB,
    RAY_JOB,
    TRAIN_JOB,
    VOLCANO_JOB,
)
from mofa_model.kinds.patches import ARGUMENTS, INTERVAL
from mofa_model.launch import table
from mofa_operator.act.release import open_gate
from mofa_operator.api_errors import Refused
from mofa_operator.decide.job import job
from mofa_operator.decide.release import KUEUE, NAME, deadline, is_gated, is_suspended, overdue
from mofa_operator.decide.status import moment
from mofa_operator.decision import Answer
from mofa_operator.keys import ADVISOR_POLICY, CLUSTER_PROFILE, TRAINING_JOB, Key
from mofa_operator.objects import live
from mofa_operator.observe.cluster.store import Store
from mofa_operator.snapshot import Named

MODE, GATE = f"{PREFIX}mode", f"{PREFIX}gate"
ADVICE = Answer(
    digest="d",
    outcome="Recommended",
    explanation="tp=8 on 128 GPUs",
    annotations={f"{PREFIX}status": "Recommended", f"{PREFIX}inputs-hash": "d", INTERVAL: "100"},
    status={},
    reason="Recommended",
    strategy={"tp": "8", "pp": "2"},
    trainer="megatron",
    framework_version="0.19.2",
    arguments=("--tensor-model-parallel-size", "8", "--pipeline-model-parallel-size", "2"),
)
TITAN = replace(
    ADVICE,
    trainer="torchtitan",
    framework_version="0.3.0",
    arguments=("--parallelism.tensor_parallel_degree", "8", "activation-checkpoint:full"),
)
NOTHING = replace(
    ADVICE, outcome="NoRecommendation", explanation="no strategy is left", strategy={}, arguments=()
)
KEPT = replace(
    ADVICE,
    outcome="LowConfidence",
    explanation="keep what you run: the first choice is better with a probability of 4 %",
    status={"recommendation": {"odds": {"fits": "0.910", "beats": "0.040"}}},
)
CAN = (JOB_SET, TRAIN_JOB, PYTORCH_JOB, RAY_JOB)
each = pytest.mark.parametrize("kind", CAN, ids=lambda kind: kind.kind)


@pytest.fixture(autouse=True, scope="module")
def asked():
    """What two trainers were asked."""
    told = {
        "megatron": {"releases": ["0.18.0", "0.19.2"], "names": list(ADVICE.arguments[::2])},
        "torchtitan": {"releases": ["0.3.0"], "names": list(TITAN.arguments[:1])},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "_verified", lambda: told)
        yield


def fitting(kind):
    return TITAN if kind == PYTORCH_JOB else ADVICE


def waiting(
    kind, gate="suspend", *, kueue=None, mode="Apply", suspended=True, age=10.0, **metadata
):
    """The example of a kind, as it waits for us since `age` seconds. [s]"""
    body = reading(kind, example(kind, "ns"))
    told = body["metadata"].setdefault("annotations", {})
    told |= {key: value for key, value in {MODE: mode, GATE: gate, KUEUE: kueue}.items() if value}
    body["metadata"] |= {
        "uid": "u",
        "generation": 1,
        "creationTimestamp": moment(NOW - age),
        **metadata,
    }
    place = body["spec"].setdefault("runPolicy", {}) if kind == PYTORCH_JOB else body["spec"]
    place["suspend"] = suspended
    return body


def decided(kind, body, answer=ADVICE, now=NOW, policies=()):
    store = Store()
    store.put(CLUSTER_PROFILE, profile())
    for one in policies:
        store.put(ADVISOR_POLICY, one)
    store.put(kind, body)
    named = Named(beside=(RUNTIME,))
    snapshot = store.snapshot(Key(kind, "ns", body["metadata"]["name"]), now, named)
    return job(snapshot, answer, SETTINGS)


def done(body, release):
    """The object after both steps."""
    return patched(patched(body, release.launch), release.free)


@each
def test_a_job_that_waits_gets_its_arguments_and_is_let_go(kind):
    body = waiting(kind)
    release = decided(kind, body, fitting(kind)).release
    after = done(body, release)
    assert not is_suspended(live(kind, after))
    assert not is_gated(standing(after))
    assert release.note.reason == "AppliedBeforeLaunch"
    assert release.note.message.startswith("the advised arguments were written to spec."), (
        "no more is known"
    )
    assert (release.outcome, release.waited) == ("released", 10.0)
    assert decided(kind, after, fitting(kind)).release is None
    assert list(words(kind, after))[-len(fitting(kind).arguments) :] == list(
        fitting(kind).arguments
    )


def words(kind, body):
    """Where each kind has its launch arguments, as words."""
    spec = body["spec"]
    if kind == JOB_SET:
        told = spec["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]["annotations"]
    elif kind == TRAIN_JOB:
        (trainer,) = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"][
            "replicatedJobs"
        ]
        assert (spec["runtimePatches"][0]["manager"], trainer["name"]) == (NAME, "node")
        told = trainer["template"]["spec"]["template"]["metadata"]["annotations"]
    elif kind == PYTORCH_JOB:
        found = [
            one["template"]["spec"]["containers"][0]["args"]
            for one in spec["pytorchReplicaSpecs"].values()
        ]
        assert found[0] == found[1]
        return found[0]
    else:
        return shlex.split(spec["entrypoint"])
    assert told[INTERVAL] == "100"
    return shlex.split(told[ARGUMENTS])


@each
def test_of_kueues_gates_only_ours_goes_and_the_rest_is_kueues(kind):
    body = waiting(kind, None, kueue=f"example.org/quota, {NAME}")
    after = done(body, decided(kind, body, fitting(kind)).release)
    assert after["metadata"]["annotations"][KUEUE] == "example.org/quota"
    assert is_suspended(live(kind, after))
    alone = waiting(kind, None, kueue=NAME)
    assert (
        KUEUE
        not in done(alone, decided(kind, alone, fitting(kind)).release)["metadata"]["annotations"]
    )


def test_what_kueue_manages_is_not_resumed_by_our_own_gate():
    body = waiting(JOB_SET, labels={"kueue.x-k8s.io/queue-name": "gold"})
    after = done(body, decided(JOB_SET, body).release)
    assert is_suspended(live(JOB_SET, after))
    assert GATE not in after["metadata"]["annotations"]


@pytest.mark.parametrize(
    "change, answer, why",
    [
        ({}, NOTHING, "no strategy is left"),
        ({}, replace(ADVICE, arguments=()), "no trainer is named"),
        ({}, replace(ADVICE, arguments=("--deepspeed", "ds_config.json")), "from a file"),
        ({}, KEPT, "keep what you run"),
        ({"mode": "Annotate"}, ADVICE, "nobody asks for mode Apply"),
        ({"mode": "Disabled"}, None, "nobody asks for mode Apply"),
        ({"age": 301.0}, ADVICE, "the longest wait, 300 s, is over"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "gate", [{"gate": "suspend"}, {"gate": None, "kueue": NAME}], ids=["own", "kueue"]
)
def test_without_arguments_it_is_let_go_all_the_same_and_told_why(gate, change, answer, why):
    body = waiting(JOB_SET, **gate | change)
    release = decided(JOB_SET, body, answer).release
    assert release.launch == ()
    after = done(body, release)
    assert not is_gated(standing(after))
    assert after["spec"]["replicatedJobs"] == body["spec"]["replicatedJobs"]
    assert release.note.reason == "GateReleased"
    assert why in release.note.message
    assert release.outcome == ("expired" if "age" in change else "unadvised")


@pytest.mark.parametrize("allowed", ["Keep", "Raise", None])
def test_a_limit_of_restarts_is_raised_with_the_arguments_where_the_policy_says_so_and_never_lowered(
    allowed,
):
    """Seventeen restarts are seventeen of a RayJob, and of a batch Job of two pods 34 and one."""
    answer = replace(ADVICE, annotations={**ADVICE.annotations, f"{PREFIX}restarts": "17"})
    for kind, had, limit in (
        (RAY_JOB, None, 17),
        (RAY_JOB, 3, 17),
        (RAY_JOB, 40, 40),
        (BATCH_JOB, 6, 35),
        (BATCH_JOB, None, 35),
        (JOB_SET, None, None),
    ):
        body = waiting_batch() if kind == BATCH_JOB else waiting(kind)
        if had is not None:
            body["spec"]["backoffLimit"] = had
        listed = [{"apiVersion": kind.api_version, "kind": kind.kind}]
        told = {} if allowed is None else {"restarts": allowed}
        release = decided(kind, body, answer, policies=[policy() | {"spec": {**policy()["spec"], "kinds": listed, **told}}]).release  # fmt: skip
        assert release.note.reason == "AppliedBeforeLaunch", release.note.message
        wanted = limit if allowed == "Raise" else had
        after = done(body, release)["spec"]
        assert after.get("backoffLimit") == wanted, (kind.kind, had)
        assert "failurePolicy" not in after


def waiting_batch():
    """A batch Job of two pods that waits for us."""
    pod = {
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "trainer",
                "image": "x",
                "command": ["sh", "-c"],
                "args": ["torchrun t.py $MOFA_ARGS"],
                "resources": {"limits": {"nvidia.com/gpu": 8}},
            }
        ],
    }
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "plain",
            "namespace": "ns",
            "uid": "u",
            "generation": 1,
            "creationTimestamp": moment(NOW - 10.0),
            "annotations": {MODE: "Apply", GATE: "suspend"},
        },
        "spec": {"suspend": True, "parallelism": 2, "completions": 2, "template": {"spec": pod}},
    }
    return reading(BATCH_JOB, body)


VERSION = f"{PREFIX}framework-version"
MORE = replace(
    ADVICE, framework_version="", arguments=(*ADVICE.arguments, "--offload-modules", "moe_act")
)


@pytest.mark.parametrize(
    "told, image, why",
    [
        ("core_v0.18.0", "x", ""),
        ("0.19.2", "registry.example/megatron:26.04", ""),
        (None, "registry.example/megatron:0.19.2-cuda13", ""),
        (None, "registry.example/megatron:0.19.2@sha256:0", ""),
        (
            None,
            "registry.example/megatron:26.04",
            "'26.04' of megatron is not verified, 0.18.0 or 0.19.2 is",
        ),
        (None, "registry.example/megatron:0.19.20", "is not verified"),
        (None, "registry.example/megatron:0.19.2rc1", "is not verified"),
        (None, "registry.example/own:0.19.2", "names no version of megatron"),
        (None, "registry.example:5000/megatron", "names no version of megatron"),
        ("0.17.0", "registry.example/megatron:0.19.2", "'0.17.0' of megatron is not verified"),
    ],
)
@each
def test_only_what_is_verified_for_the_version_that_a_job_names_is_written(kind, told, image, why):
    body = json.loads(
        json.dumps(waiting(kind)).replace('"image": "', f'"image": "{image}", "was": "')
    )
    body["spec"].setdefault("trainer", {})["image"] = image
    body["metadata"]["annotations"] |= {} if told is None else {VERSION: told}
    advice = replace(ADVICE, framework_version="")
    if kind == PYTORCH_JOB:
        for replica in body["spec"]["pytorchReplicaSpecs"].values():
            replica["template"]["spec"]["containers"][0]["args"] = ["t.py"]
    release = decided(kind, body, advice).release
    assert (release.launch == (), release.outcome) == (
        bool(why),
        "unadvised" if why else "released",
    )
    assert why in release.note.message
    after = done(body, release)
    assert not is_gated(standing(after))
    if why:
        assert release.note.reason == "GateReleased"
        assert {**after["spec"], "suspend": 0, "runPolicy": 0} == {
            **body["spec"],
            "suspend": 0,
            "runPolicy": 0,
        }


@pytest.mark.parametrize(
    "answer, why",
    [
        (
            replace(MORE, framework_version="0.19.2"),
            "--offload-modules is in no launch that megatron",
        ),
        (replace(ADVICE, trainer="nemo"), "nemo itself was asked about no launch"),
    ],
)
def test_what_no_trainer_was_asked_about_is_not_written(answer, why):
    release = decided(JOB_SET, waiting(JOB_SET), answer).release
    assert release.launch == ()
    assert why in release.note.message


@pytest.mark.parametrize(
    "answer, mode, state",
    [
        (ADVICE, "Apply", ("True", "Verified")),
        (replace(ADVICE, framework_version="26.04"), "Apply", ("False", "NotVerified")),
        (NOTHING, "Apply", ("Unknown", "NotLaunched")),
        (ADVICE, "Annotate", None),
    ],
)
def test_a_training_job_says_whether_its_launch_is_verified(answer, mode, state):
    body = waiting(TRAIN_JOB, mode=None)
    store = Store()
    owner = training_job(targetRef=ref(body), mode=mode)
    for kind, one in ((CLUSTER_PROFILE, profile()), (TRAIN_JOB, body), (TRAINING_JOB, owner)):
        store.put(kind, one)
    status = job(store.snapshot(Key(TRAINING_JOB, "ns", "a"), NOW), answer, SETTINGS).status
    found = [
        (one["status"], one["reason"])
        for one in status["conditions"]
        if one["type"] == "LaunchVerified"
    ]
    assert found == ([] if state is None else [state])


def test_a_moment_is_left_for_what_is_applied_with_the_job():
    body = waiting(JOB_SET, age=0.5)
    decision = decided(JOB_SET, body, NOTHING)
    assert decision.release is None
    assert decision.requeue_after == pytest.approx(
        SETTINGS.settle - 0.5, abs=1.0
    )  # timestamps have whole seconds
    assert decided(JOB_SET, body, ADVICE).release is not None


@pytest.mark.parametrize("annotations", [{f"{PREFIX}paused": "true"}])
def test_a_paused_job_waits_for_the_bound_and_no_longer(annotations):
    body = waiting(JOB_SET)
    body["metadata"]["annotations"] |= annotations
    decision = decided(JOB_SET, body, None)
    assert decision.release is None
    assert decision.requeue_after == pytest.approx(SETTINGS.gate_longest - 10.0, abs=1.0)
    assert decided(JOB_SET, body, None, NOW + 300.0).release.outcome == "expired"


@each
def test_a_running_job_keeps_its_spec(kind):
    body = waiting(kind, suspended=False)
    release = decided(kind, body, fitting(kind)).release
    after = done(body, release)
    assert after["spec"] == body["spec"]
    assert GATE not in after["metadata"]["annotations"]
    assert release.note.reason == "ApplySkippedRunning"
    plain = waiting(kind, None, suspended=False)
    decision = decided(kind, plain, fitting(kind))
    assert decision.release is None
    assert [note.reason for note in decision.notes][-1] == "ApplySkippedRunning"


def test_a_suspended_job_that_says_apply_gets_arguments_once_and_is_never_resumed():
    body = waiting(JOB_SET, None)
    release = decided(JOB_SET, body).release
    assert release.free == ()
    after = done(body, release)
    assert is_suspended(live(JOB_SET, after))
    assert words(JOB_SET, after)
    assert decided(JOB_SET, waiting(JOB_SET, None, generation=2)).release is None


def test_a_policy_alone_does_not_write_into_a_job_that_does_not_consent():
    kinds = {"mode": "Apply"}
    silent = waiting(JOB_SET, None, mode=None)
    decision = decided(JOB_SET, silent, policies=[policy(**kinds)])
    assert decision.release is None
    assert "left alone" in decision.notes[-1].message
    gated = waiting(JOB_SET, mode=None)
    assert decided(JOB_SET, gated, policies=[policy(**kinds)]).release.outcome == "released"


def test_a_volcano_job_is_advised_and_told_that_nothing_can_be_written():
    decision = decided(VOLCANO_JOB, waiting(VOLCANO_JOB, None))
    assert decision.release is None
    assert decision.notes[-1].reason == "ApplySkippedRunning"
    gated = waiting(VOLCANO_JOB, None, kueue=NAME)
    assert not is_gated(live(VOLCANO_JOB, done(gated, decided(VOLCANO_JOB, gated).release)))


def test_a_layout_in_the_command_cannot_be_replaced():
    body = waiting(PYTORCH_JOB)
    for replica in body["spec"]["pytorchReplicaSpecs"].values():
        (container,) = replica["template"]["spec"]["containers"]
        container["command"] += container.pop("args")
    release = decided(PYTORCH_JOB, body, TITAN).release
    assert "in the container's command" in release.note.message
    assert release.launch == ()


ARGS = " ".join(ADVICE.arguments)


@pytest.mark.parametrize(
    "entrypoint, after",
    [
        ("python t.py --lr 1e-4 \\\n", f"python t.py --lr 1e-4 {ARGS} \\\n"),
        ("cd /x\npython t.py \\\n  --tensor-model-parallel-size 4 \\\n  --lr 1\n", f"cd /x\npython t.py \\\n  --lr 1 {ARGS}\n"),
        ("bash -lc 'python t.py --tensor-model-parallel-size 4' | tee x", f"bash -lc 'python t.py {ARGS}' | tee x"),
    ],
)  # fmt: skip
def test_an_entrypoint_is_changed_where_the_layout_stands_and_once(entrypoint, after):
    body = waiting(RAY_JOB)
    body["spec"]["entrypoint"] = entrypoint
    made = done(body, decided(RAY_JOB, body).release)
    assert made["spec"]["entrypoint"] == after
    again = waiting(RAY_JOB)
    again["spec"]["entrypoint"] = after
    assert [step["path"] for step in decided(RAY_JOB, again).release.launch] == []


@pytest.mark.parametrize(
    "entrypoint, why",
    [
        ("python t.py --lr 1e-4 \\", "a backslash that ends no line"),
        ("python t.py\n  --lr 1e-4", "would run as a separate command"),
        ("ssh node 'python t.py --tensor-model-parallel-size 4'", "the layout's arguments are in"),
        ("python a.py; python b.py", "several of its commands could be the trainer's"),
    ],
)
def test_an_entrypoint_that_does_not_tell_what_is_meant_is_left_and_the_job_let_go(entrypoint, why):
    body = waiting(RAY_JOB)
    body["spec"]["entrypoint"] = entrypoint
    release = decided(RAY_JOB, body).release
    assert (release.launch, release.outcome, release.note.reason) == (
        (),
        "unadvised",
        "GateReleased",
    )
    assert why in release.note.message
    assert done(body, release)["spec"]["entrypoint"] == entrypoint


def test_a_shell_line_in_the_args_of_a_pytorch_job_stays_one():
    body = waiting(PYTORCH_JOB)
    for replica in body["spec"]["pytorchReplicaSpecs"].values():
        (container,) = replica["template"]["spec"]["containers"]
        container |= {"command": ["bash", "-c"], "args": ["torchrun t.py --tensor-model-parallel-size 4 \\\n  --lr 1 \\\n"]}  # fmt: skip
    assert words(PYTORCH_JOB, done(body, decided(PYTORCH_JOB, body).release)) == [f"torchrun t.py \\\n  --lr 1 {ARGS} \\\n"]  # fmt: skip


@pytest.mark.parametrize("mode, outcome", [("Apply", "released"), ("Annotate", "unadvised")])
def test_the_target_of_a_training_job_is_let_go_by_it(mode, outcome):
    body = waiting(TRAIN_JOB, mode=None)
    owner = training_job(targetRef=ref(body), mode=mode)
    store = Store()
    for kind, one in ((CLUSTER_PROFILE, profile()), (TRAIN_JOB, body), (TRAINING_JOB, owner)):
        store.put(kind, one)
    named = Named(beside=(RUNTIME,))
    decision = job(store.snapshot(Key(TRAINING_JOB, "ns", "a"), NOW, named), ADVICE, SETTINGS)
    assert decision.release.key == Key(TRAIN_JOB, "ns", "llama3-70b")
    assert decision.release.outcome == outcome
    alone = job(store.snapshot(decision.release.key, NOW), None, SETTINGS)
    assert alone.release is None  # it is the TrainingJob's to decide, until the time is over
    late = job(store.snapshot(decision.release.key, NOW + 300.0), None, SETTINGS)
    assert late.release.outcome == "expired"


def test_a_job_whose_age_cannot_be_read_is_not_held():
    body = waiting(JOB_SET, creationTimestamp="soon")
    assert deadline(live(JOB_SET, body), SETTINGS) == 0.0
    assert overdue(live(JOB_SET, body), NOW, SETTINGS).outcome == "expired"


def test_a_patch_fits_no_other_object_and_no_job_that_was_resumed_meanwhile():
    body = waiting(JOB_SET)
    release = decided(JOB_SET, body).release
    for change in (
        {"metadata": {**body["metadata"], "uid": "other"}},
        {"spec": {**body["spec"], "suspend": False}},
    ):
        for step in (release.launch, release.free):
            with pytest.raises(Unfit):
                patched({**body, **change}, step)


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.text(max_size=8)
    | st.just("--tensor-model-parallel-size 4 'x"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def spoilt(draw):
    """A job that waits, with junk in some places; and a kind."""
    kind = draw(st.sampled_from((*KINDS, BATCH_JOB)))
    body = waiting(
        *((kind,) if kind != BATCH_JOB else (JOB_SET,)),
        gate=draw(st.sampled_from(["suspend", None, "x", 5])),
        kueue=draw(st.sampled_from([None, NAME, f"a,{NAME}", f" {NAME} ,, {NAME}", "a"])),
        mode=draw(st.sampled_from(["Apply", None, "Annotate", "Disabled", "apply"])),
        suspended=draw(st.sampled_from([True, True, False, None, "true"])),
        age=draw(st.sampled_from([1.0, 10.0, 400.0])),
    )
    body |= {"apiVersion": kind.api_version, "kind": kind.kind}
    for _ in range(draw(st.integers(0, 3))):
        place, path = body["spec"], draw(st.lists(st.integers(0, 9), min_size=1, max_size=9))
        for step in path[:-1]:
            inner = list(place.values()) if isinstance(place, dict) else place
            if inner and isinstance(inner[step % len(inner)], dict | list):
                place = inner[step % len(inner)]
        names = list(place) if isinstance(place, dict) else range(len(place))
        if names:
            place[names[path[-1] % len(names)]] = draw(JUNK)
    return kind, body


@given(spoilt(), st.sampled_from([ADVICE, TITAN, NOTHING]))
def test_whatever_a_job_looks_like_its_gate_opens_and_what_was_done_is_done(case, answer):
    kind, body = case
    before = copy.deepcopy(body)
    decision = decided(kind, body, answer)
    assert body == before
    if decision.release is None:
        gated = decided(kind, body, answer, NOW + 1000.0).release
        assert is_gated(standing(body)) is (gated is not None)
        return
    after = done(body, decision.release)
    assert not is_gated(standing(after))
    again = decided(kind, after, answer)
    assert again.release is None or (
        decision.release.note.reason != "AppliedBeforeLaunch" and not again.release.free
    )
    assert kind in kinds.KINDS


SIZED = replace(ADVICE, nodes=2, gpus=16)


def unsized(**more):
    """A TrainJob that waits and says neither nodes nor GPUs."""
    body = waiting(TRAIN_JOB, more.pop("gate", None), mode=more.pop("mode", None), **more)
    body["metadata"]["annotations"] |= {f"{PREFIX}size": "soonest", f"{PREFIX}model": "llama3.1-8b"}
    body["spec"]["trainer"] = {
        "command": ["torchrun"],
        "args": ["pretrain_gpt.py", "--tensor-model-parallel-size=1"],
    }
    return body


def job_set(nodes, gpus, args):
    """What Trainer makes of it."""
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    container = {"name": "node", "args": args, "resources": limits}
    pods = {"template": {"spec": {"containers": [container]}}}
    one = {"name": "node", "template": {"spec": {"parallelism": nodes, **pods}}}
    return {"metadata": {"uid": "made"}, "spec": {"suspend": True, "replicatedJobs": [one]}}


class Server:
    """An API server with a TrainJob and its JobSet."""

    def __init__(self, body, made, *, refuses=False):
        self.body, self.made, self.refuses, self.done = copy.deepcopy(body), made, refuses, []

    async def get(self, kind, namespace, name):
        return self.made if kind == JOB_SET else self.body

    async def patch(self, kind, namespace, name, operations):
        self.body = patched(self.body, operations)
        self.done.append("patch")
        return self.body

    async def delete(self, kind, namespace, name, uid, *, rehearsal=False):
        assert (kind, uid) == (JOB_SET, "made")
        if self.refuses:
            raise Refused("no")
        self.done.append("rehearsal" if rehearsal else "delete")


def test_it_gets_nodes_gpus_and_arguments_and_its_jobset_goes_after_a_rehearsal():
    body = unsized()
    release = decided(TRAIN_JOB, body, SIZED).release
    server = Server(body, job_set(1, 0, body["spec"]["trainer"]["args"]))
    asyncio.run(open_gate(release, server))
    told = server.body["spec"]["trainer"]
    assert (told["numNodes"], told["numProcPerNode"]) == (2, 8)
    assert told["args"][:1] == ["pretrain_gpt.py"]
    assert told["args"][1:3] == ["--tensor-model-parallel-size", "8"]
    assert server.done == ["rehearsal", "patch", "delete"]
    assert release.note.reason == "SizedBeforeAdmission"
    assert release.note.message == "2 x 8 GPUs were written, as soonest: tp=8,pp=2"


def test_where_the_jobset_may_not_go_nothing_is_written():
    body = unsized()
    server = Server(body, job_set(1, 0, []), refuses=True)
    released = asyncio.run(open_gate(decided(TRAIN_JOB, body, SIZED).release, server))
    assert (server.done, released.writes, server.body) == ([], (), body)
    assert released.release.note.warning


def test_a_crash_between_the_two_is_mended_at_the_next_look_and_a_right_jobset_stays():
    body = unsized()
    after = patched(body, decided(TRAIN_JOB, body, SIZED).release.launch)
    after["metadata"]["generation"] = 2
    again = decided(TRAIN_JOB, after, SIZED).release
    assert (again.launch, again.free, again.note) == ((), (), None)
    for made, done in (
        (job_set(1, 0, []), ["delete"]),
        (job_set(2, 8, after["spec"]["trainer"]["args"]), []),
        (None, []),
    ):
        server = Server(after, made)
        asyncio.run(open_gate(again, server))
        assert server.done == done


def test_our_own_gate_opens_with_the_size():
    body = unsized(gate="suspend")
    release = decided(TRAIN_JOB, body, SIZED).release
    after = patched(patched(body, release.launch), release.free)
    assert not is_gated(live(TRAIN_JOB, after))
    assert (after["spec"]["suspend"], after["spec"]["trainer"]["numNodes"]) == (False, 2)


def unsized_ray_job(**more):
    """A RayJob that waits; the one group of its workers has no pods and no GPUs."""
    body = waiting(RAY_JOB, more.pop("gate", None), mode=more.pop("mode", None), **more)
    body["metadata"]["annotations"] |= {f"{PREFIX}size": "soonest", f"{PREFIX}model": "llama3.1-8b"}
    container = {"name": "ray-worker", "image": "x", "resources": {"limits": {"cpu": "8"}}}
    group = {
        "groupName": "gpu",
        "replicas": 0,
        "template": {"spec": {"containers": [container]}},
    }
    head = {"template": {"spec": {"containers": [{"name": "ray-head", "image": "x"}]}}}
    body["spec"]["rayClusterSpec"] = {"headGroupSpec": head, "workerGroupSpecs": [group]}
    body["spec"]["entrypoint"] = "python pretrain_gpt.py --tensor-model-parallel-size=1 --lr 1"
    return body


def test_a_rayjob_gets_workers_their_gpus_and_its_entrypoint():
    body = unsized_ray_job()
    release = decided(RAY_JOB, body, SIZED).release
    after = patched(body, release.launch)["spec"]
    (group,) = after["rayClusterSpec"]["workerGroupSpecs"]
    assert [group[one] for one in ("replicas", "minReplicas", "maxReplicas")] == [2, 2, 2]
    (container,) = group["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "8", "nvidia.com/gpu": "8"}
    layout = "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 2"
    assert after["entrypoint"] == f"python pretrain_gpt.py --lr 1 {layout}"
    assert (release.child, release.note.reason) == (None, "SizedBeforeAdmission")
    written = patched(body, release.launch)
    written["metadata"]["generation"] = 2
    assert decided(RAY_JOB, written, SIZED).release is None, "a size is written once"


@pytest.mark.parametrize("many", [0, 2])
def test_of_several_groups_of_workers_none_is_chosen(many):
    body = unsized_ray_job()
    (group,) = body["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    body["spec"]["rayClusterSpec"]["workerGroupSpecs"] = [group] * many
    found = decided(RAY_JOB, body, SIZED)
    assert found.release is None
    assert f"holds {many} groups" in found.notes[-1].message


def test_a_jobset_is_told_its_size_and_gets_no_arguments_of_another_one():
    """JobSet's webhook keeps pods and resources, of a suspended JobSet as well."""
    body = waiting(JOB_SET, "suspend", mode="Apply")
    body["metadata"]["annotations"] |= {f"{PREFIX}size": "soonest", f"{PREFIX}model": "llama3.1-8b"}
    args = ["pretrain_gpt.py", "--bf16"]
    pods = {"spec": {"containers": [{"name": "trainer", "args": args, "env": [READS]}]}}
    body["spec"]["replicatedJobs"] = [{"name": "trainer", "template": {"spec": {"template": pods}}}]
    found = decided(JOB_SET, body, SIZED)
    assert found.release.launch == ()
    said = " ".join(one.message for one in (*found.notes, found.release.note))
    assert "the size of a JobSet cannot change after it is made" in said
    assert "write 2 nodes and 16 GPUs into its manifest" in said


@pytest.mark.parametrize(
    ("more", "answer", "why"),
    [
        ({}, replace(SIZED, arguments=()), "no trainer is named"),
        ({}, replace(SIZED, framework_version="9.9"), "9.9"),
        ({"suspended": False}, SIZED, ""),
        ({"generation": 3}, SIZED, ""),
    ],
    ids=["no trainer", "not verified", "it runs", "it was changed"],
)
def test_nothing_is_half_written_and_the_reason_is_said_once(more, answer, why):
    found = decided(TRAIN_JOB, unsized(**more), answer)
    assert found.release is None
    said = [one.message for one in found.notes if one.reason == "ApplySkippedRunning"]
    assert all(why in one for one in said)
    assert bool(said) == bool(why)


def unread(change):
    """What is said of a JobSet whose container is changed, so that it does not read
    the arguments.
    """
    body = waiting(JOB_SET)
    change(body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0])  # fmt: skip
    release = decided(JOB_SET, body).release
    assert release.launch == ()
    assert (release.note.reason, release.outcome) == ("GateReleased", "unadvised")
    return release.note.message


def test_arguments_that_no_container_would_read_are_not_written_and_one_line_says_what_is_missing():
    def silent(container):
        del container["env"]

    def one_word(container):
        container |= {"command": ["torchrun", "pretrain_gpt.py"], "args": ["$(LAUNCH_ARGS)"]}

    def quoted(container):
        container["args"] = ['exec torchrun pretrain_gpt.py "$LAUNCH_ARGS"']

    assert "no container reads the annotation advisor.mofa.dev/launch-args" in unread(silent)
    assert "metadata.annotations['advisor.mofa.dev/launch-args']" in unread(silent)
    assert "hands all launch arguments over as one word" in unread(one_word)
    assert '"$LAUNCH_ARGS" in quotes' in unread(quoted)


def test_a_trainjob_whose_runtime_is_not_here_is_let_go_without():
    store, body = Store(), waiting(TRAIN_JOB)
    store.put(CLUSTER_PROFILE, profile())
    store.put(TRAIN_JOB, body)
    key = Key(TRAIN_JOB, "ns", body["metadata"]["name"])
    release = job(store.snapshot(key, NOW), ADVICE, SETTINGS).release
    assert release.launch == ()
    assert "ClusterTrainingRuntime 'torch-distributed' is not here" in release.note.message


def test_arguments_are_never_written_twice_into_a_pytorchjob():
    body = waiting(PYTORCH_JOB)
    for role in body["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["containers"][0]["env"] = [READS]
    release = decided(PYTORCH_JOB, body, TITAN).release
    assert release.launch == ()
    assert "take one of the two away" in release.note.message
