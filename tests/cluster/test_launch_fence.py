"""The fence in mode Apply: the operator's account starts what waits and consents, with other
arguments, and changes nothing else.
"""

import json

import pytest
from door import PATCH, administrator, path
from foreign import RUNTIME, example, install, reading

from mofa_model.annotations import PREFIX
from mofa_model.kinds import BATCH_JOB, JOB_SET, PYTORCH_JOB, RAY_JOB, TRAIN_JOB
from mofa_model.kinds.patches import ARGUMENTS
from mofa_operator.decide.release import KUEUE, NAME, opened, written
from mofa_operator.decision import Answer
from mofa_operator.objects import live

PLACE = "test-launch-fence"
KINDS = (JOB_SET, TRAIN_JOB, PYTORCH_JOB, RAY_JOB, BATCH_JOB)
MEGATRON = ("--tensor-model-parallel-size", "8", "--micro-batch-size", "1")
TITAN = ("--parallelism.tensor_parallel_degree", "4")
each = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
POD = "/spec/replicatedJobs/0/template/spec/template"
GATE = f"/metadata/annotations/{PREFIX.replace('/', '~1')}gate"


def answer(kind):
    return Answer(
        digest="d", outcome="Recommended", explanation="", annotations={}, status={}, strategy={"tp": "8"},
        arguments=TITAN if kind == PYTORCH_JOB else MEGATRON,
    )  # fmt: skip


def job(kind, name, *, suspend=True, **annotations):
    body = reading(kind, batch() if kind == BATCH_JOB else example(kind))
    body["metadata"] = {"name": name, "namespace": PLACE, "annotations": annotations}
    place = body["spec"].setdefault("runPolicy", {}) if kind == PYTORCH_JOB else body["spec"]
    place["suspend"] = suspend
    return body


def batch():
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "trainer", "image": "x", "args": ["t.py"]}],
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": pod}}}


STATES = {
    "waits": {f"{PREFIX}gate": "suspend"},
    "consents": {f"{PREFIX}mode": "Apply"},
    "queued": {KUEUE: f"example.org/quota,{NAME}"},
    "silent": {f"{PREFIX}mode": "Annotate"},
}


def open_ray_job(name, **asks):
    """A RayJob whose group of workers has no pods, and whose pods ask for no GPUs."""
    body = job(RAY_JOB, name, **{f"{PREFIX}{key}": value for key, value in asks.items()})
    (group,) = body["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    for size in ("replicas", "minReplicas", "maxReplicas"):
        del group[size]
    (container,) = group["template"]["spec"]["containers"]
    del container["resources"]["limits"]["nvidia.com/gpu"]
    return body


@pytest.fixture(scope="module")
def door(cluster):
    install(cluster)
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}})
    for kind in KINDS:
        cluster.apply(*(job(kind, name, **told) for name, told in STATES.items()))
        cluster.apply(job(kind, "runs", suspend=False, **STATES["waits"] | STATES["consents"]))
    cluster.apply(open_ray_job("open", size="soonest"), open_ray_job("unasked"))
    with administrator(cluster) as opened_door:
        yield opened_door
    for kind in KINDS:
        cluster.delete(kind.resource, namespace=PLACE)


def read(cluster, kind, name):
    return json.loads(cluster.kubectl("get", kind.resource, name, "-n", PLACE, "-o", "json"))


def tried(door, kind, name, operations):
    """Status code and message of a patch that is only tried; what tests it holds are left out."""
    changes = [one for one in operations if one["op"] != "test"]
    status, said = door.ask("PATCH", path(kind, PLACE, name), changes, content=PATCH, dryRun="All")
    return status, said.get("message", "")


@each
@pytest.mark.parametrize("name", ["waits", "consents", "queued"])
def test_arguments_are_written_into_what_waits_and_consents(door, cluster, kind, name):
    body = read(cluster, kind, name)
    status, said = door.ask("PATCH", path(kind, PLACE, name), list(written(live(kind, body), answer(kind), [RUNTIME])), content=PATCH, dryRun="All")  # fmt: skip
    assert status == 200, said


@each
@pytest.mark.parametrize("name", ["silent", "runs"])
def test_arguments_are_not_written_into_what_runs_or_does_not_consent(door, cluster, kind, name):
    status, said = tried(
        door, kind, name, written(live(kind, read(cluster, kind, name)), answer(kind), [RUNTIME])
    )
    assert status in {403, 422}, said
    if (kind, name) not in {
        (RAY_JOB, "runs"),
        (BATCH_JOB, "runs"),
    }:  # there the kind itself refuses first
        assert "what a job is" in said


@each
def test_our_gates_open_and_a_job_of_our_own_gate_is_resumed(door, cluster, kind):
    for name in ("waits", "queued", "runs"):
        body = read(cluster, kind, name)
        status, said = door.ask("PATCH", path(kind, PLACE, name), list(opened(live(kind, body))), content=PATCH, dryRun="All")  # fmt: skip
        assert status == 200, said


@each
def test_nothing_is_resumed_that_did_not_wait_at_our_own_gate(door, cluster, kind):
    resume = [
        one
        for one in opened(live(kind, read(cluster, kind, "waits")))
        if one["path"].endswith("suspend")
    ]
    for name in ("waits", "consents", "queued", "silent"):
        assert tried(door, kind, name, resume)[0] == 403, name
    with_arguments = [
        *opened(live(kind, read(cluster, kind, "waits"))),
        *written(live(kind, read(cluster, kind, "waits")), answer(kind), [RUNTIME]),
    ]
    assert tried(door, kind, "waits", with_arguments)[0] == 403


def added(place, value):
    return [{"op": "add", "path": place, "value": value}]


OURS = {"manager": NAME, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}}]}}}}  # fmt: skip
CONTAINER = "/spec/pytorchReplicaSpecs/Worker/template/spec/containers/0"
BEYOND = {
    "another annotation of the pods": (JOB_SET, added(POD + "/metadata", {"annotations": {"example.org/x": "y"}})),
    "a label of the pods": (JOB_SET, added(POD + "/metadata", {"labels": {"x": "y"}})),
    "a node selector": (JOB_SET, added(POD + "/spec/nodeSelector", {"x": "y"})),
    "the number of pods": (JOB_SET, added("/spec/replicatedJobs/0/template/spec/parallelism", 64)),
    "another job of the set": (JOB_SET, added("/spec/replicatedJobs/-", {"name": "more"})),
    "an annotation of the Jobs": (JOB_SET, added("/spec/replicatedJobs/0/template/metadata", {"annotations": {ARGUMENTS: "x"}})),
    "a patch of somebody else's": (TRAIN_JOB, added("/spec/runtimePatches", [{"manager": "example.org/x"}])),
    "more than annotations in ours": (TRAIN_JOB, added("/spec/runtimePatches", [OURS])),
    "a deadline": (TRAIN_JOB, added("/spec/activeDeadlineSeconds", 60)),
    "an image": (PYTORCH_JOB, added(CONTAINER + "/image", "evil")),
    "a command": (PYTORCH_JOB, added(CONTAINER + "/command", ["evil"])),
    "another container": (PYTORCH_JOB, added("/spec/pytorchReplicaSpecs/Worker/template/spec/containers/-", {"name": "pytorch"})),
    "the number of workers": (PYTORCH_JOB, added("/spec/pytorchReplicaSpecs/Worker/replicas", 99)),
    "another role": (PYTORCH_JOB, added("/spec/pytorchReplicaSpecs/Evil", {"replicas": 1})),
    "a run policy": (PYTORCH_JOB, added("/spec/runPolicy/backoffLimit", 99)),
    "the cluster of Ray": (RAY_JOB, added("/spec/rayClusterSpec/rayVersion", "9")),
    "a batch Job's annotation": (BATCH_JOB, added("/spec/template/metadata/annotations", {"example.org/x": "y"})),
}  # fmt: skip


@pytest.mark.parametrize("kind", [RAY_JOB, BATCH_JOB], ids=lambda kind: kind.kind)
def test_a_limit_of_restarts_is_raised_in_what_waits_and_consents_and_never_lowered(
    door, cluster, kind
):
    """The API server takes the patch that mode Apply makes; a batch Job is made with a limit
    of six.
    """
    told = Answer(**vars(answer(kind)) | {"annotations": {f"{PREFIX}restarts": "17"}})
    for name in ("waits", "consents"):
        stands = live(kind, read(cluster, kind, name))
        operations = list(written(stands, told, [RUNTIME], restarts=True))
        assert "/spec/backoffLimit" in {one["path"] for one in operations}
        status, said = door.ask("PATCH", path(kind, PLACE, name), operations, content=PATCH, dryRun="All")  # fmt: skip
        assert status == 200, said
    more = added("/spec/backoffLimit", 99)
    assert tried(door, kind, "waits", more)[0] == 200
    assert tried(door, kind, "silent", more)[0] == 403
    assert tried(door, kind, "waits", added("/spec/backoffLimit", -1))[0] in (403, 422)
    if kind == BATCH_JOB:
        assert tried(door, kind, "waits", added("/spec/backoffLimit", 5))[0] == 403


@pytest.mark.parametrize("what", BEYOND)
def test_beyond_the_arguments_nothing_changes_even_in_what_waits(door, what):
    kind, operations = BEYOND[what]
    status, said = tried(door, kind, "waits", operations)
    assert status == 403, said
    assert "what a job is" in said


@pytest.mark.parametrize(
    "after",
    ["mofa.dev/advisor", "", "example.org/quota,example.org/more", f"example.org/quota,{NAME},x"],
)
def test_of_kueues_gates_nothing_goes_or_comes_but_ours(door, after):
    place = "/metadata/annotations/" + KUEUE.replace("/", "~1")
    status, said = tried(door, JOB_SET, "queued", added(place, after))
    assert status == 403, said
    assert f"not {KUEUE}" in said


def test_our_own_gate_is_never_put_up_by_the_operator(door):
    status, said = tried(door, JOB_SET, "consents", added(GATE, "suspend"))
    assert status == 403, said


def size_of(cluster, name):
    body = read(cluster, RAY_JOB, name)
    return RAY_JOB.size_patch(body, 2, 8, "nvidia.com/gpu", MEGATRON)


def test_a_size_is_written_into_a_rayjob_that_asks_for_one_and_has_none(door, cluster):
    status, said = tried(door, RAY_JOB, "open", size_of(cluster, "open"))
    assert status == 200, said
    for name in ("unasked", "consents"):
        status, said = tried(door, RAY_JOB, name, size_of(cluster, name))
        assert status == 403, name
        assert "what a job is" in said


WORKERS = "/spec/rayClusterSpec/workerGroupSpecs"
RAY_POD = f"{WORKERS}/0/template/spec"
BEYOND_SIZE = {
    "an image": added(f"{RAY_POD}/containers/0/image", "evil"),
    "another container": added(f"{RAY_POD}/containers/-", {"name": "more", "image": "x"}),
    "a node selector": added(f"{RAY_POD}/nodeSelector", {"x": "y"}),
    "an account": added(f"{RAY_POD}/serviceAccountName", "evil"),
    "a label of the pods": added(f"{WORKERS}/0/template/metadata", {"labels": {"x": "y"}}),
    "how Ray starts": added(f"{WORKERS}/0/rayStartParams", {"x": "y"}),
    "another group": added(f"{WORKERS}/-", {"groupName": "more"}),
    "the head": added("/spec/rayClusterSpec/headGroupSpec", {}),
    "a deadline": added("/spec/activeDeadlineSeconds", 60),
}


@pytest.mark.parametrize("what", BEYOND_SIZE)
def test_with_a_size_nothing_else_of_a_rayjob_changes(door, cluster, what):
    changes = [*size_of(cluster, "open"), *BEYOND_SIZE[what]]
    status, said = tried(door, RAY_JOB, "open", changes)
    assert status == 403, said
    assert "what a job is" in said
