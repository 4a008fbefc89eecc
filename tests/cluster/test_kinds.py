"""Jobs of the kinds that people already have: advised from their own words, with what today's
layout costs, and left in peace.
"""

import json
import secrets
import time

import pytest
from advisor import Advisor, condition, ours, until
from each import each
from foreign import KINDS, example, install
from neighbours import OWN, documents, outcomes, put
from pools import EXAMPLES, pool, settled
from ruamel.yaml import YAML

from mofa_model.annotations import PREFIX
from mofa_model.kinds import (
    JOB_SET,
    PYTORCH_JOB,
    RAY_CLUSTER,
    RAY_JOB,
    TRAIN_JOB,
    VOLCANO_JOB,
    JobKind,
)
from mofa_model.kinds.kind import NewJob

QUICK = ("--settle=1", "--settle-longest=1", "--resync=5", "--backoff=0.2")
NODES = {JOB_SET: 32}
"""Nodes of the examples; 16 where not named."""
FEW = {axis: {"values": [size]} for axis, size in {"tp": 8, "pp": 4, "cp": 1, "mbs": 1}.items()}
"""Constraints that leave little to search."""
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.kind}.{kind.group}")


@pytest.fixture(scope="module")
def advisor(cluster, processes):
    """An operator that starts while the cluster has no RayJobs yet, and runs from the first to the
    last test of this file.
    """
    install(cluster, *(kind for kind in KINDS if kind != RAY_JOB))
    cluster.kubectl("delete", f"crd/{RAY_JOB.resource}", "--ignore-not-found")
    made = Advisor(cluster, processes, "kinds")
    made.start(*QUICK)
    install(cluster)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def profile(cluster):
    with pool(cluster) as name:
        yield name


def policy(namespace, profile, **spec):
    """The example's policy for a pool of this file, with next to nothing left to search; no
    selector unless asked for.
    """
    body = YAML(typ="safe").load((EXAMPLES / "policy.yaml").read_text("utf-8"))
    body["metadata"]["namespace"] = namespace
    del body["spec"]["selector"]
    body["spec"] |= {"profile": profile, "constraints": FEW} | spec
    body["spec"]["training"] |= {"sequenceLength": 8192, "globalBatchSize": 512}
    return body


def read(cluster, kind, namespace, name="llama3-70b"):
    return json.loads(cluster.kubectl("get", kind.resource, name, "-n", namespace, "-o", "json"))


def outcome(cluster, kind, namespace, status=None, name="llama3-70b"):
    """The object once it has an outcome, or a certain one."""

    def look():
        found = read(cluster, kind, namespace, name)
        said = ours(found).get("status")
        return found if said and status in {None, said} else None

    return until(look, what=f"{kind.kind} {namespace}/{name} has an outcome")


@each_kind
def test_an_example_gets_advice_and_the_price_of_its_layout_and_then_silence(
    cluster, advisor, profile, namespace, kind
):
    cluster.apply(policy(namespace, profile))
    body = example(kind, namespace)
    cluster.apply(body)
    found = ours(outcome(cluster, kind, namespace))
    assert found["status"] in {"Recommended", "LowConfidence"}, found["explanation"]
    told = json.loads(found["recommendation"])
    assert told["nodes"] == NODES.get(kind, 16)
    if kind != RAY_CLUSTER:  # what it trains stands nowhere in it
        assert told["current"]["strategy"].startswith(
            "tp=8,pp=1," if kind == PYTORCH_JOB else "tp=8,pp=4,"
        )
        assert told["current"]["step_seconds"] > 0 or told["current"]["reason"]
    before = settled(advisor)
    cluster.kubectl("label", kind.resource, "llama3-70b", "-n", namespace, "team=ml")
    status = {"status": {"conditions": [{"type": "Running", "status": "True"}]}}
    cluster.kubectl("patch", kind.resource, "llama3-70b", "-n", namespace, "--subresource=status", "--type=merge", "-p", json.dumps(status))  # fmt: skip
    time.sleep(3.0)
    assert [
        one for one in advisor.writes(before) if one["objectRef"]["namespace"] == namespace
    ] == []
    mine = {
        name: count
        for name, count in advisor.writes_by_object().items()
        if f"/{namespace}/" in name
    }
    assert mine[f"{kind.plural}/{namespace}/llama3-70b"] == 1
    assert read(cluster, kind, namespace)["spec"] == body["spec"]
    events = json.loads(cluster.kubectl("get", "events", "-n", namespace, "-o", "json"))["items"]
    assert [event["reason"] for event in events] == [found["status"]]


@each_kind
def test_disabled_takes_every_trace_away(cluster, advisor, profile, namespace, kind):
    cluster.apply(policy(namespace, profile))
    cluster.apply(example(kind, namespace))
    outcome(cluster, kind, namespace)
    cluster.kubectl(
        "annotate", kind.resource, "llama3-70b", "-n", namespace, f"{PREFIX}mode=Disabled"
    )
    until(
        lambda: ours(read(cluster, kind, namespace)) == {"model": "llama3-70b", "mode": "Disabled"}
    )


def test_without_its_policy_a_job_loses_every_trace_and_the_policy_counts_its_jobs(
    cluster, advisor, profile, namespace
):
    cluster.apply(policy(namespace, profile, selector={"stage": "pretraining"}))
    for kind in (JOB_SET, TRAIN_JOB):
        body = example(kind, namespace)
        del body["metadata"]["annotations"]
        body["metadata"]["labels"] = {"stage": "pretraining" if kind == JOB_SET else "tuning"}
        cluster.apply(body)
    outcome(cluster, JOB_SET, namespace)

    def status():
        found = json.loads(
            cluster.kubectl("get", "advisorpolicy", "pretraining", "-n", namespace, "-o", "json")
        )
        return found if (found.get("status") or {}).get("jobs") == 1 else None

    found = until(status, 120)  # jobs are counted now and then
    assert condition(found, "Ready")["reason"] == "Active"
    assert ours(read(cluster, TRAIN_JOB, namespace)) == {}
    cluster.kubectl("delete", "advisorpolicy", "pretraining", "-n", namespace)
    until(lambda: ours(read(cluster, JOB_SET, namespace)) == {})


def test_what_the_runtime_alone_knows_is_asked_for_with_its_way_out(
    cluster, advisor, profile, namespace
):
    cluster.apply(policy(namespace, profile))
    body = example(TRAIN_JOB, namespace)
    del body["spec"]["trainer"]["numNodes"]
    body["metadata"]["annotations"] = {f"{PREFIX}config-ref": "run/spec.yaml"}
    spec = {"model": {"preset": "llama3-70b"}}
    cluster.apply(config_map(namespace, spec), body)
    why = ours(outcome(cluster, TRAIN_JOB, namespace, "FactsMissing"))["explanation"]
    assert why.startswith(
        "spec.runtimeRef.name: ClusterTrainingRuntime 'torch-distributed' is not here; create it"
    )
    assert "config-ref" in why
    cluster.apply(config_map(namespace, spec | {"cluster": {"nodes": 16}}))
    found = ours(until(lambda: advised(cluster, TRAIN_JOB, namespace)))
    assert json.loads(found["recommendation"])["nodes"] == 16


def config_map(namespace, spec):
    metadata = {"name": "run", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"spec.yaml": json.dumps(spec)},
    }


def advised(cluster, kind, namespace):
    found = read(cluster, kind, namespace)
    return found if ours(found).get("strategy") else None


def test_a_paused_job_stays_as_it_is(cluster, advisor, profile, namespace):
    cluster.apply(policy(namespace, profile))
    cluster.apply(example(TRAIN_JOB, namespace))
    before = outcome(cluster, TRAIN_JOB, namespace)["metadata"]["annotations"]
    cluster.kubectl(
        "annotate", TRAIN_JOB.resource, "llama3-70b", "-n", namespace, f"{PREFIX}paused=true"
    )
    settled(advisor)
    cluster.kubectl("delete", "advisorpolicy", "pretraining", "-n", namespace)
    time.sleep(2.0)
    after = read(cluster, TRAIN_JOB, namespace)["metadata"]["annotations"]
    assert after == before | {f"{PREFIX}paused": "true"}


# ------------------------------------------------------------------- samples, as people have them

PLAIN = {axis: {"values": [1]} for axis in ("tp", "pp", "cp", "mbs")}
"""Constraints that leave next to nothing to search."""
SAMPLES = {
    "job-indexed": 8,
    "job-part": 4,
    "jobset-claims": 8,
    "jobset-shared-claim": "FactsMissing: spec.replicatedJobs[0].template.spec.template.spec.resourceClaims: names ResourceClaim 'everybodys'",
    "jobset-tpu": "NotApplicable: spec.replicatedJobs[0].template.spec.template.spec.containers[0].resources.limits.google.com/tpu: it trains on TPUs",
    "leaderworkerset": 16,
    "mpijob": 8,
    "pytorchjob-elastic": 16,
    "raycluster-cpu": "NotTraining: cpu-only: no container asks for an accelerator",
    "rayjob-script": 16,
    "rayjob-selects": 8,
    "rayjob-selects RayCluster": "NotTraining: web-or-other: a cluster without a job of its own",
    "trainjob-alone": "FactsMissing: spec.runtimeRef.name: ClusterTrainingRuntime 'nowhere' is not here; create it,",
    "trainjob-elastic": 8,
    "trainjob-runtime": 4,
    "volcano": 2,
    "workload": 8,
}
"""GPUs of each, or status and beginning of the answer that says why it is not advised; a kind's own
stands behind its name.
"""


def test_every_sample_is_advised_or_told_why_not_in_its_own_words(cluster, advisor, profile):
    """Opted in by a policy alone, which says model and batch; silence is no answer."""
    wanted = {}
    for name in [one for one in SAMPLES if " " not in one]:
        place = f"sample-{name}-{secrets.token_hex(2)}"
        taken, refused = put(
            cluster, place, profile, documents(OWN / f"{name}.yaml"), constraints=PLAIN
        )
        assert taken, (name, refused)
        wanted |= {(kind, place, one): name for kind, one in taken}
    assert {one.partition(" ")[0] for one in SAMPLES} == {path.stem for path in OWN.glob("*.yaml")}
    found = outcomes(cluster, wanted)

    def answered(key, right):
        said = found[key]
        if isinstance(right, str):
            assert f"{said['status']}: {said['explanation']}"[: len(right)] == right
            return
        assert said["status"] in {"Recommended", "LowConfidence"}, said["explanation"]
        assert json.loads(said["recommendation"])["gpus"] == right

    def right(key, name):
        return SAMPLES.get(f"{name} {key[0].kind}", SAMPLES[name])

    each(pytest.param(key, right(key, name), id=name) for key, name in wanted.items())(answered)()


# ------------------------------------------------------------------- the examples and what the projects publish


@pytest.mark.soak
@pytest.mark.parametrize("kind", [TRAIN_JOB, JOB_SET], ids=lambda kind: kind.kind)
def test_examples_are_what_the_trainer_project_publishes(kind):
    models = pytest.importorskip("kubeflow_trainer_api.models")
    model = models.TrainerV1alpha1TrainJob if kind == TRAIN_JOB else models.JobsetV1alpha2JobSet
    body = example(kind)
    assert json.loads(model.from_dict(body).to_json())["spec"] == json.loads(
        json.dumps(body["spec"])
    )


@pytest.mark.soak  # the package takes eight seconds to import
def test_the_example_of_a_pytorch_job_is_what_the_training_project_publishes():
    models = pytest.importorskip("kubeflow.training.models")
    published(models, models.KubeflowOrgV1PyTorchJob, example(PYTORCH_JOB))


def published(models, model, body):
    """Every field is one that the model knows, down to what is Kubernetes' own; and the model takes
    its values.
    """
    names = {alias: name for name, alias in model.attribute_map.items()}
    assert set(body) <= set(names)
    given = {}
    for alias, value in body.items():
        kind = model.openapi_types[names[alias]]
        inner = getattr(models, kind.removeprefix("dict(str, ").rstrip(")"), None)
        if inner is None:
            given[names[alias]] = value
        elif kind.startswith("dict("):
            given[names[alias]] = {key: published(models, inner, one) for key, one in value.items()}
        else:
            given[names[alias]] = published(models, inner, value)
    return model(**given)


MADE = [kind for kind in KINDS if type(kind).manifests is not JobKind.manifests]


def new_job(kind):
    return NewJob(
        name="made", nodes=2, gpus=8, resource="nvidia.com/gpu", image="x", annotations={f"{PREFIX}mode": "Disabled"}, starter=("torchrun",), words=("t.py", "--a", "1 2"),
        environment={"A": "1"}, restarts=8, files={} if kind == TRAIN_JOB else {"a.json": "{}"},
    )  # fmt: skip


def pods(value):
    """Every pod in an object."""
    for inner in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from pods(inner)
    if isinstance(value, dict) and "containers" in value:
        yield value


@pytest.mark.parametrize("kind", MADE, ids=lambda kind: kind.kind)
def test_a_job_that_is_made_here_is_taken_with_its_pods(cluster, advisor, namespace, kind):
    body, *rest = kind.manifests(new_job(kind))
    for one in (body, *rest):
        one["metadata"]["namespace"] = namespace
    cluster.apply(body, *rest)
    assert read(cluster, kind, namespace, "made")["spec"] == body["spec"]
    for number, pod in enumerate(pods(body["spec"])):
        template = {"spec": {**pod, "restartPolicy": "Never"}}
        metadata = {"name": f"pod-{number}", "namespace": namespace}
        spec = {"suspend": True, "template": template}
        cluster.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})


@pytest.mark.soak
def test_a_pytorch_job_that_is_made_here_is_what_its_project_publishes():
    models = pytest.importorskip("kubeflow.training.models")
    published(
        models, models.KubeflowOrgV1PyTorchJob, PYTORCH_JOB.manifests(new_job(PYTORCH_JOB))[0]
    )


@pytest.mark.parametrize("kind", [TRAIN_JOB, JOB_SET], ids=lambda kind: kind.kind)
def test_a_job_that_is_made_here_is_what_its_project_publishes(kind):
    body = kind.manifests(new_job(kind))[0]
    models = pytest.importorskip("kubeflow_trainer_api.models")
    model = models.TrainerV1alpha1TrainJob if kind == TRAIN_JOB else models.JobsetV1alpha2JobSet
    assert json.loads(model.from_dict(body).to_json())["spec"] == body["spec"]


def test_every_kind_has_its_example():
    assert {example(kind)["kind"] for kind in KINDS} == {kind.kind for kind in KINDS}
    assert example(VOLCANO_JOB)["spec"]["schedulerName"] == "volcano"
