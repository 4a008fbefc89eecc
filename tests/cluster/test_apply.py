"""Mode Apply on a real API server: what waits gets its arguments and starts, and nothing waits for
ever, whatever fails.
"""

import json
import re
import shlex
import time

import pytest
from advisor import USER, Advisor, ours, until
from foreign import RUNTIME, example, install, reading
from pools import EXAMPLES, pool, settled
from ruamel.yaml import YAML

from mofa_model.annotations import PREFIX
from mofa_model.kinds import BATCH_JOB, JOB_SET, PYTORCH_JOB, RAY_JOB, TRAIN_JOB, VOLCANO_JOB
from mofa_model.kinds.patches import ARGUMENTS
from mofa_operator.decide.release import KUEUE, NAME, is_gated, is_suspended
from mofa_operator.objects import live

QUICK = ("--settle=1", "--settle-longest=1", "--resync=5", "--backoff=0.2")
CAN = (JOB_SET, TRAIN_JOB, PYTORCH_JOB, RAY_JOB)
FEW = {
    axis: {"values": [size]}
    for axis, size in {"tp": 8, "pp": 2, "cp": 1, "mbs": 1, "vpp": 1}.items()
}
"""Constraints that leave little to search, and another layout than the examples have."""
VERSION = f"{PREFIX}framework-version"
POLICY = "admissionregistration.k8s.io/v1"


@pytest.fixture(scope="module")
def advisor(cluster, processes):
    install(cluster)
    cluster.apply(RUNTIME)
    made = Advisor(cluster, processes, "apply")
    made.start(*QUICK)
    yield made
    if made.name in processes:
        made.stop()


@pytest.fixture
def running(advisor, processes):
    """The operator, running, whatever the test before did with it."""
    if advisor.name not in processes:
        advisor.start(*QUICK)
    return advisor


@pytest.fixture(scope="module")
def profile(cluster):
    with pool(cluster) as name:
        yield name


@pytest.fixture
def place(cluster, namespace, profile):
    """A namespace whose policy says what launch commands do not."""
    body = YAML(typ="safe").load((EXAMPLES / "policy.yaml").read_text("utf-8"))
    body["metadata"]["namespace"] = namespace
    del body["spec"]["selector"]
    body["spec"] |= {"profile": profile, "constraints": FEW}
    cluster.apply(body)
    return namespace


def waiting(kind, namespace, gate="suspend", *, suspended=True, **annotations):
    body = reading(kind, example(kind, namespace))
    told = {f"{PREFIX}mode": "Apply"} | ({f"{PREFIX}gate": gate} if gate else {}) | annotations
    body["metadata"]["annotations"] |= {VERSION: "0.19.2"} | told
    if kind == PYTORCH_JOB:  # of the trainer that was asked
        trainer = example(JOB_SET)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"][
            "spec"
        ]["containers"][0]
        for role in body["spec"]["pytorchReplicaSpecs"].values():
            role["template"]["spec"]["containers"][0] |= {
                key: trainer[key] for key in ("command", "args")
            }
    spec = body["spec"].setdefault("runPolicy", {}) if kind == PYTORCH_JOB else body["spec"]
    spec["suspend"] = suspended
    return body


def read(cluster, kind, namespace):
    return json.loads(
        cluster.kubectl("get", kind.resource, "llama3-70b", "-n", namespace, "-o", "json")
    )


def let_go(cluster, kind, namespace, seconds=60.0):
    """The object once nothing of ours holds it."""

    def look():
        found = read(cluster, kind, namespace)
        stands = live(kind, found)
        return None if is_gated(stands) or is_suspended(stands) else found

    return until(look, seconds, f"{kind.kind} {namespace} is let go")


def words(kind, body):
    """The launch arguments, where each kind has them; none where they were not written."""
    spec = body["spec"]
    if kind == PYTORCH_JOB:
        return spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"]
    if kind == RAY_JOB:
        return shlex.split(spec["entrypoint"])
    if kind == TRAIN_JOB:
        patches = spec.get("runtimePatches") or [{}]
        runtime = patches[0].get("trainingRuntimeSpec") or {}
        (job,) = (runtime.get("template") or {}).get("spec", {}).get("replicatedJobs") or [{}]
        template = job.get("template", {}).get("spec", {}).get("template", {})
    else:
        template = spec["replicatedJobs"][0]["template"]["spec"]["template"]
    return shlex.split(template.get("metadata", {}).get("annotations", {}).get(ARGUMENTS, ""))


def has_layout(kind, body):
    """Whether the advised layout, and not the example's own, stands where the trainer reads it."""
    told = words(kind, body)
    name = "--pipeline-model-parallel-size"
    return name in told and told[told.index(name) + 1] == "2" and told.count(name) == 1


def is_today(advice):
    """Whether the advised layout is also the one that a job is launched with."""
    return json.loads(advice["recommendation"])["current"]["strategy"] == advice["strategy"]


def events(cluster, namespace):
    found = json.loads(cluster.kubectl("get", "events", "-n", namespace, "-o", "json"))["items"]
    return {event["reason"]: event["message"] for event in found}


def told(cluster, namespace, reason):
    return until(lambda: events(cluster, namespace).get(reason), 60.0, f"an Event {reason}")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.soak] * (kind in {TRAIN_JOB, PYTORCH_JOB}))
        for kind in CAN
    ],
    ids=lambda kind: kind.kind,
)
def test_a_job_that_waits_starts_with_the_advised_arguments(cluster, running, place, kind):
    cluster.apply(waiting(kind, place))
    found = let_go(cluster, kind, place)
    assert has_layout(kind, found), words(kind, found)
    assert "pp=2" in told(cluster, place, "AppliedBeforeLaunch")
    assert ours(found)["status"] in {"Recommended", "LowConfidence"}
    assert re.search(
        r'mofa_advisor_gate_wait_seconds_count\{outcome="released"\} [1-9]', running.metrics()
    )
    told(cluster, place, ours(found)["status"])
    if kind in {PYTORCH_JOB, RAY_JOB}:  # today's layout is the advised one now, and is said to be
        until(lambda: is_today(ours(read(cluster, kind, place))))
    before = settled(running)
    time.sleep(3.0)
    late = [one for one in running.writes(before) if one["objectRef"]["namespace"] == place]
    assert late == [], json.dumps(late, default=str)[:3000]


@pytest.mark.parametrize("kind", CAN, ids=lambda kind: kind.kind)
def test_of_kueues_gates_ours_opens_with_the_arguments_written_and_the_others_stay(
    cluster, running, place, kind
):
    cluster.apply(waiting(kind, place, None, **{KUEUE: f"example.org/quota,{NAME}"}))
    found = until(
        lambda: (body := read(cluster, kind, place)) and not is_gated(live(kind, body)) and body
    )
    assert found["metadata"]["annotations"][KUEUE] == "example.org/quota"
    assert is_suspended(live(kind, found))
    assert has_layout(kind, found)


@pytest.mark.parametrize(
    "change, why",
    [
        ({f"{PREFIX}model": "llama9-1t"}, "llama9-1t"),
        ({f"{PREFIX}mode": "Annotate"}, "nobody asks"),
        ({VERSION: "26.04"}, "'26.04' of megatron is not verified"),
        ({f"{PREFIX}config-ref": "missing/spec.yaml"}, "missing/spec.yaml"),
    ],
    ids=["invalid", "annotate", "version", "missing"],
)
def test_where_there_is_nothing_to_write_it_starts_as_it_is(cluster, running, place, change, why):
    cluster.apply(waiting(TRAIN_JOB, place, **change))
    found = let_go(cluster, TRAIN_JOB, place)
    assert words(TRAIN_JOB, found) == []
    assert why in told(cluster, place, "GateReleased")


def test_where_no_layout_fits_it_starts_as_it_is(cluster, running, place):
    patch = {"spec": {"constraints": {"tp": {"values": [64]}}}}
    cluster.kubectl(
        "patch",
        "advisorpolicy",
        "pretraining",
        "-n",
        place,
        "--type=merge",
        "-p",
        json.dumps(patch),
    )
    settled(running)
    cluster.apply(waiting(JOB_SET, place))
    found = let_go(cluster, JOB_SET, place)
    assert ours(found)["status"] == "NoRecommendation"
    assert not has_layout(JOB_SET, found)
    told(cluster, place, "GateReleased")


def wall(cluster, name, expression):
    """An admission policy that refuses the operator's writes to jobs where the expression
    is false.
    """
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": ["jobset.x-k8s.io"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["jobsets"]}
            ]
        },
        "matchConditions": [{"name": "the-operator", "expression": f'request.userInfo.username == "{USER}"'}],
        "validations": [{"expression": expression, "message": "the wall"}],
    }  # fmt: skip
    metadata = {"name": name}
    cluster.apply(
        {"apiVersion": POLICY, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec},
        {"apiVersion": POLICY, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata, "spec": {"policyName": name, "validationActions": ["Deny"]}},
    )  # fmt: skip
    time.sleep(2.0)  # a policy takes a moment before it bites


def no_wall(cluster, name):
    cluster.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", name)
    time.sleep(1.0)


def test_where_the_arguments_are_refused_it_starts_as_it_is(cluster, running, place):
    wall(cluster, "no-arguments", "object.spec.replicatedJobs == oldObject.spec.replicatedJobs")
    try:
        cluster.apply(waiting(JOB_SET, place))
        found = let_go(cluster, JOB_SET, place)
        assert words(JOB_SET, found) == []
        assert "the wall" in told(cluster, place, "GateReleased")
    finally:
        no_wall(cluster, "no-arguments")


def test_killed_between_the_two_steps_it_starts_after_the_restart(cluster, running, place):
    wall(
        cluster,
        "no-release",
        "!oldObject.spec.?suspend.orValue(false) || object.spec.?suspend.orValue(false)",
    )
    try:
        cluster.apply(waiting(JOB_SET, place))
        until(lambda: words(JOB_SET, read(cluster, JOB_SET, place)))
        running.kill()
        assert is_suspended(live(JOB_SET, read(cluster, JOB_SET, place)))
    finally:
        no_wall(cluster, "no-release")
    running.start(*QUICK)
    found = let_go(cluster, JOB_SET, place)
    assert has_layout(JOB_SET, found)


def test_down_beyond_the_bound_it_lets_go_at_once_when_it_is_back(cluster, running, place):
    running.stop()
    cluster.apply(*(waiting(kind, place) for kind in CAN))
    time.sleep(4.0)
    running.start(*QUICK, "--gate-longest=3", wait=False)
    for kind in CAN:
        found = let_go(cluster, kind, place)
        assert not has_layout(kind, found)
    assert "the longest wait, 3 s, is over" in told(cluster, place, "GateReleased")
    until(lambda: 'gate_wait_seconds_count{outcome="expired"} 4.0' in running.metrics())
    running.stop()


def test_the_bound_holds_without_any_event_and_while_the_job_is_paused(cluster, running, place):
    running.stop()
    running.start(*QUICK, "--gate-longest=8", "--resync=600")
    since = time.time()
    cluster.apply(waiting(JOB_SET, place, **{f"{PREFIX}paused": "true"}))
    time.sleep(4.0)
    assert is_gated(live(JOB_SET, read(cluster, JOB_SET, place)))
    let_go(cluster, JOB_SET, place, 15.0)
    assert time.time() - since >= 7.0
    running.stop()


def test_a_job_that_runs_is_never_touched(cluster, running, place):
    bodies = {kind: waiting(kind, place, None, suspended=False) for kind in (*CAN, VOLCANO_JOB)}
    bodies[VOLCANO_JOB]["spec"].pop("suspend")
    cluster.apply(*bodies.values())
    for kind, body in bodies.items():
        found = until(lambda kind=kind: ours(f := read(cluster, kind, place)).get("status") and f)
        assert found["spec"] == body["spec"]
    assert told(cluster, place, "ApplySkippedRunning")


def test_a_suspended_job_without_a_gate_gets_arguments_and_stays_suspended(cluster, running, place):
    cluster.apply(waiting(TRAIN_JOB, place, None))
    found = until(lambda: words(TRAIN_JOB, f := read(cluster, TRAIN_JOB, place)) and f)
    settled(running)
    assert is_suspended(live(TRAIN_JOB, found))
    assert is_suspended(live(TRAIN_JOB, read(cluster, TRAIN_JOB, place)))


def test_a_training_job_in_mode_apply_starts_its_target(cluster, running, namespace, profile):
    target = waiting(TRAIN_JOB, namespace)
    del target["metadata"]["annotations"][f"{PREFIX}mode"]
    owner = {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "owner", "namespace": namespace},
        "spec": {
            "mode": "Apply",
            "model": {"preset": "llama3-70b"},
            "training": {
                "tokens": "2T",
                "sequenceLength": 8192,
                "globalBatchSize": 512,
                "framework": "megatron",
            },
            "cluster": {"profile": profile, "nodes": 16},
            "constraints": FEW,
            "targetRef": {
                "apiVersion": TRAIN_JOB.api_version,
                "kind": "TrainJob",
                "name": "llama3-70b",
            },
        },
    }
    cluster.apply(owner, target)
    found = let_go(cluster, TRAIN_JOB, namespace)
    assert has_layout(TRAIN_JOB, found)


def test_a_batch_job_of_kubernetes_itself_takes_the_annotations_of_its_pods(cluster):
    """What the API server proper lets through, whoever asks."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "x"}]}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "batch-apply", "namespace": "default"}, "spec": {"suspend": True, "template": {"spec": pod}}}  # fmt: skip
    cluster.apply(body)
    patch = json.dumps({"spec": {"template": {"metadata": {"annotations": {ARGUMENTS: "--bf16"}}}}})
    cluster.kubectl(
        "patch", BATCH_JOB.plural, "batch-apply", "-n", "default", "--type=merge", "-p", patch
    )
    cluster.kubectl("delete", "job", "batch-apply", "-n", "default", "--wait=false")
