"""The fence: even as an administrator of the whole cluster, the operator's account changes nothing
but what it may.
"""

import re
from pathlib import Path

import pytest
from advisor import until
from door import ADVISOR, APPLY, JSON, MERGE, PATCH, administrator, path
from foreign import KINDS, install, job
from ruamel.yaml import YAML

from mofa_model.annotations import INPUTS, OUTPUTS, PREFIX, RECORD, RUNS
from mofa_model.kinds import JOB_SET, LEADER_WORKER_SET, VOLCANO_JOB, Kind
from mofa_operator.act.events import EVENT
from mofa_operator.keys import CLUSTER_PROFILE, CONFIG_MAP, FAILURE_LEDGER, NODE, TRAINING_JOB

LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
SECRET = Kind("", "v1", "Secret", "secrets")
POLICY = Path(__file__).parents[2] / "deploy" / "manifests" / "admission-policy.yaml"
HOME = "mofa-system"
SPEC = {
    "model": {"preset": "llama3-405b"},
    "training": {"sequenceLength": 8192, "globalBatchSize": 2048},
    "cluster": {"profile": "h100-east"},
}
TRAINING = {"apiVersion": TRAINING_JOB.api_version, "kind": "TrainingJob", "spec": SPEC}


@pytest.fixture(scope="module")
def door(cluster):
    install(cluster)
    with administrator(cluster) as opened:
        yield opened


@pytest.fixture(scope="module")
def place(cluster):
    """A namespace with a job of every kind, a profile, a node and a ConfigMap, all of them other
    people's.
    """
    name = "test-fence"
    metadata = {
        "labels": {"team": "ml"},
        "annotations": {"example.org/owner": "eddy", f"{PREFIX}mode": "Annotate"},
        "finalizers": ["example.org/hold"],
    }
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    cluster.apply(
        *(job(kind, name, "train", **metadata) for kind in KINDS),
        {**TRAINING, "metadata": {"name": "train", "namespace": name, **metadata}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "train", "namespace": name}},
        {"apiVersion": CLUSTER_PROFILE.api_version, "kind": "ClusterProfile", "metadata": {"name": "fence"}, "spec": {"gpu": "h100"}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "fence"}},
    )  # fmt: skip
    yield name
    for kind in (*KINDS, TRAINING_JOB):
        address = f"{kind.plural}.{kind.group}"
        cluster.kubectl(
            "patch",
            address,
            "train",
            "-n",
            name,
            "--type=merge",
            "-p",
            '{"metadata":{"finalizers":null}}',
        )
    cluster.kubectl("delete", "clusterprofile,failureledger,node", "fence", "--ignore-not-found")


def annotated(**annotations):
    return {"metadata": {"annotations": annotations}}


@pytest.mark.parametrize("kind", [TRAINING_JOB, *KINDS], ids=lambda kind: kind.kind)
def test_our_annotations_come_and_go_on_every_kind_of_job(door, place, kind):
    address = path(kind, place, "train")
    for value in ("Recommended", "LowConfidence", None):
        assert door.ask("PATCH", address, annotated(**{f"{PREFIX}status": value}))[0] == 200
    identity = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": "train", "namespace": place},
    }
    applied = {
        **identity,
        "metadata": {**identity["metadata"], "annotations": {f"{PREFIX}status": "Recommended"}},
    }
    for body in (applied, identity):
        status, said = door.ask("PATCH", address, body, content=APPLY, force="true")
        assert status == 200, said
    assert said["metadata"]["annotations"] == {
        "example.org/owner": "eddy",
        f"{PREFIX}mode": "Annotate",
    }


REFUSED = {
    "a foreign annotation": (annotated(**{"example.org/owner": "me"}), "not example.org/owner"),
    "a new foreign annotation": (annotated(**{"example.org/new": "me"}), "not example.org/new"),
    "a foreign annotation away": (annotated(**{"example.org/owner": None}), "not example.org/owner"),
    "a prefix that only looks like ours": (annotated(**{"evil.advisor.mofa.dev/status": "x"}), "own annotations only"),
    "what people write under our prefix": (annotated(**{f"{PREFIX}mode": "Apply"}), "not advisor.mofa.dev/mode"),
    "a label": ({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "gold"}}}, "no labels"),
    "a label away": ({"metadata": {"labels": {"team": None}}}, "no labels"),
    "a finalizer": ({"metadata": {"finalizers": ["example.org/hold", "mofa.dev/x"]}}, "finalizers"),
    "a finalizer away": ({"metadata": {"finalizers": None}}, "finalizers"),
    "an owner": (
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"}]}},
        "owners",
    ),
    "the spec": ({"spec": {"suspend": False}}, "what a job is"),
}  # fmt: skip


@pytest.mark.parametrize("kind", [TRAINING_JOB, JOB_SET, VOLCANO_JOB], ids=lambda kind: kind.kind)
@pytest.mark.parametrize("what", REFUSED)
def test_nothing_else_of_a_job_changes(door, place, kind, what):
    body, why = REFUSED[what]
    if kind == TRAINING_JOB and "spec" in body:
        body = {"spec": {"mode": "Disabled"}}
    status, said = door.ask("PATCH", path(kind, place, "train"), body)
    assert status == 403, said
    assert why in said["message"]


PODS = {"spec": {"containers": [{"name": "trainer", "image": "x"}]}}
EMPTY = {"metadata": {"creationTimestamp": None}}


@pytest.mark.parametrize(
    "template, status",
    [
        ({"workerTemplate": PODS | EMPTY}, 200),
        ({"workerTemplate": PODS | EMPTY, "leaderTemplate": PODS}, 403),
        (
            {"workerTemplate": PODS | {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}},
            403,
        ),
        ({"workerTemplate": PODS | {"metadata": {"labels": None}}}, 403),
        (
            {
                "workerTemplate": EMPTY
                | {"spec": {"containers": [{"name": "trainer", "image": "y"}]}}
            },
            403,
        ),
        ({"workerTemplate": PODS | EMPTY, "restartPolicy": "None"}, 403),
        ({"workerTemplate": EMPTY}, 403),
        ({}, 403),
    ],
)
def test_a_webhook_of_its_project_may_add_an_empty_creation_time_to_pods(
    door, place, template, status
):
    made = job(LEADER_WORKER_SET, place, "stamped")
    made["spec"] = {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": PODS}}
    address = path(LEADER_WORKER_SET, place)
    assert door.ask("POST", address, made, content=JSON, user="")[0] == 201
    whole = [
        {"op": "replace", "path": "/spec/leaderWorkerTemplate", "value": {"size": 2} | template}
    ]
    try:
        found, said = door.ask("PATCH", f"{address}/stamped", whole, content=PATCH)
        assert found == status, said
    finally:
        door.ask("DELETE", f"{address}/stamped", user="")


def test_the_status_of_our_kinds_is_ours(door, place):
    for address in (
        path(TRAINING_JOB, place, "train", status=True),
        path(CLUSTER_PROFILE, "", "fence", status=True),
    ):
        status, said = door.ask("PATCH", address, {"status": {"health": "Recommended"}})
        assert status == 200, said
        # Through this door nothing but the status goes: the API server leaves the rest as it is.
        body = {"metadata": {"labels": {"team": "x"}}, "status": {"health": "x"}}
        assert door.ask("PATCH", address, body)[1]["metadata"].get("labels") in (
            {"team": "ml"},
            None,
        )


def ledger(name, uid, **metadata):
    """The uid is the profile's own: elsewhere a controller collects what has an owner that is
    not there.
    """
    owners = [
        {
            "apiVersion": CLUSTER_PROFILE.api_version,
            "kind": "ClusterProfile",
            "name": "fence",
            "uid": uid,
        }
    ]
    identity = {"apiVersion": FAILURE_LEDGER.api_version, "kind": "FailureLedger"}
    return {**identity, "metadata": {"name": name, "ownerReferences": owners, **metadata}}


def test_a_profile_has_a_ledger_of_its_name_which_it_owns_and_no_other(door, place):
    address = path(FAILURE_LEDGER, "", "fence")
    uid = door.ask("GET", path(CLUSTER_PROFILE, "", "fence"))[1]["metadata"]["uid"]
    for wanted, body in (
        (201, ledger("fence", uid)),
        (200, ledger("fence", uid)),
        (403, ledger("fence", uid, labels={"team": "x"})),
        (403, ledger("fence", uid, finalizers=["mofa.dev/x"])),
    ):
        status, said = door.ask("PATCH", address, body, content=APPLY, force="true")
        assert status == wanted, said
    other = path(FAILURE_LEDGER, "", "other")
    assert door.ask("PATCH", other, ledger("other", uid), content=APPLY)[0] == 403
    assert door.ask("DELETE", address)[0] == 403


@pytest.mark.parametrize(
    "what, address, body",
    [
        (
            "the status of a JobSet",
            lambda place: path(JOB_SET, place, "train", status=True),
            {"status": {"restarts": 1}},
        ),
        (
            "a profile's spec",
            lambda _: path(CLUSTER_PROFILE, "", "fence"),
            {"spec": {"gpu": "b200"}},
        ),
        (
            "a profile's annotations",
            lambda _: path(CLUSTER_PROFILE, "", "fence"),
            annotated(**{f"{PREFIX}x": "y"}),
        ),
        ("a node", lambda _: path(NODE, "", "fence"), annotated(**{f"{PREFIX}x": "y"})),
        (
            "a node's status",
            lambda _: path(NODE, "", "fence", status=True),
            {"status": {"nodeInfo": None}},
        ),
        (
            "a ConfigMap",
            lambda place: path(CONFIG_MAP, place, "train"),
            annotated(**{f"{PREFIX}x": "y"}),
        ),
        (
            "a namespace",
            lambda place: f"/api/v1/namespaces/{place}",
            annotated(**{f"{PREFIX}x": "y"}),
        ),
        (
            "its own role",
            lambda _: "/apis/rbac.authorization.k8s.io/v1/clusterroles/mofa-advisor",
            {"rules": []},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_no_other_object_changes(door, place, what, address, body):
    status, said = door.ask("PATCH", address(place), body, content=MERGE)
    assert status == 403, (what, said)
    assert "changes the status of its own kinds" in said["message"]


@pytest.mark.parametrize(
    "kind, body",
    [
        (TRAINING_JOB, TRAINING),
        (JOB_SET, job(JOB_SET, "test-fence", "new")),
        (CONFIG_MAP, {"apiVersion": "v1", "kind": "ConfigMap"}),
        (SECRET, {"apiVersion": "v1", "kind": "Secret"}),
        (LEASE, {"apiVersion": LEASE.api_version, "kind": "Lease"}),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_nothing_is_created_but_events_one_lease_and_ledgers(door, place, kind, body):
    made = {**body, "metadata": {"name": "new", "namespace": place}}
    status, said = door.ask("POST", path(kind, place), made, content=JSON)
    assert status == 403, said
    assert "creates Events, its own Lease and ledgers of profiles only" in said["message"]


def test_no_token_is_made_for_anybody(door):
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": []},
    }
    address = f"/api/v1/namespaces/{HOME}/serviceaccounts/mofa-advisor/token"
    status, said = door.ask("POST", address, body, content=JSON)
    assert status == 403
    assert "creates Events, its own Lease and ledgers of profiles only" in said["message"]


@pytest.mark.parametrize("kind", [TRAINING_JOB, JOB_SET, CONFIG_MAP], ids=lambda kind: kind.kind)
def test_nothing_is_deleted(door, place, kind):
    for address in (path(kind, place, "train"), path(kind, place)):
        status, said = door.ask("DELETE", address)
        assert status == 403, said
        assert "deletes nothing" in said["message"]


def test_events_are_created(door, place):
    body = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": place}, "involvedObject": {"namespace": place}}  # fmt: skip
    assert door.ask("POST", path(EVENT, place), body, content=JSON)[0] == 201
    assert door.ask("PATCH", path(EVENT, place, "e"), {"reason": "x"})[0] == 403


def test_the_lease_is_the_one_of_its_own_name_at_home(door, place, cluster):
    cluster.kubectl("delete", "lease", "--all", "-n", HOME)
    lease = {
        "apiVersion": LEASE.api_version,
        "kind": "Lease",
        "metadata": {"name": "mofa-advisor", "namespace": HOME},
    }
    status, made = door.ask("POST", path(LEASE, HOME), lease, content=JSON)
    assert status == 201, made
    assert door.ask("PUT", path(LEASE, HOME, "mofa-advisor"), made, content=JSON)[0] == 200
    for home, name in ((HOME, "other"), (place, "mofa-advisor"), ("kube-system", "mofa-advisor")):
        other = {**lease, "metadata": {"name": name, "namespace": home}}
        assert door.ask("POST", path(LEASE, home), other, content=JSON)[0] == 403
    cluster.kubectl("delete", "lease", "--all", "-n", HOME)


def test_everybody_else_passes_by(door, place, cluster):
    cluster.kubectl("label", "jobset", "train", "-n", place, "team=other", "--overwrite")
    assert (
        cluster.kubectl(
            "get", "jobset", "train", "-n", place, "-o", "jsonpath={.metadata.labels.team}"
        )
        == "other"
    )
    cluster.kubectl("label", "jobset", "train", "-n", place, "team=ml", "--overwrite")


def test_questions_about_oneself_are_no_writes(door):
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}}  # fmt: skip
    status, said = door.ask(
        "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body, content=JSON
    )
    assert status == 201, said


# ------------------------------------------------------------------------------------------------- typos


TYPOS = {
    f"{PREFIX}modle=llama3-405b": "does not know advisor.mofa.dev/modle",
    f"{PREFIX}mode=annotate": "is Disabled, Annotate or Apply",
    f"{PREFIX}paused=yes": 'is "true" or "false"',
    f"{PREFIX}model=llama3-405b": None,
    f"{PREFIX}paused=True": None,
    "example.org/mode=x": None,
}  # fmt: skip
OF_TRAINING_JOBS = TYPOS | {
    f"{PREFIX}model=llama3-405b": "on a TrainingJob advisor.mofa.dev/model says nothing: its spec has",
    f"{PREFIX}run-record=x": None,
}


@pytest.mark.parametrize("kind", [JOB_SET, TRAINING_JOB], ids=lambda kind: kind.kind)
def test_a_typo_is_warned_of_and_nothing_is_refused(door, place, kind):
    def said(key, value):
        nothing_else = {} if key == f"{PREFIX}mode" else {f"{PREFIX}mode": None}
        status, answer = door.ask(
            "PATCH",
            path(kind, place, "train"),
            annotated(**nothing_else, **{key: value}),
            user=None,
            dryRun="All",
        )
        assert status == 200, answer
        return "; ".join(door.warnings).replace('\\"', '"')

    expected = TYPOS if kind == JOB_SET else OF_TRAINING_JOBS
    for annotation, warning in expected.items():
        key, _, value = annotation.partition("=")
        if warning is None:
            assert said(key, value) == "", annotation
        else:
            until(lambda: warning in said(key, value))  # noqa: B023 - it is waited for here


def test_the_policies_know_the_keys_that_the_code_knows():
    text = POLICY.read_text("utf-8")
    fence, _, typos, _ = YAML(typ="safe").load_all(text)
    variables = {
        one["name"]: one["expression"]
        for policy in (fence, typos)
        for one in policy["spec"]["variables"]
    }
    quoted = {name: re.findall(r'"([^"]+)"', expression) for name, expression in variables.items()}
    assert quoted["people"] == list(INPUTS)
    assert [PREFIX + key for key in quoted["known"]] == [*INPUTS, *OUTPUTS, RECORD, RUNS]
    wanted = {f"{kind.group}/{kind.plural}" for kind in (TRAINING_JOB, *KINDS)} | {"batch/jobs"}
    assert set(re.findall(r'"([a-z0-9.-]+/[a-z]+)"', variables["job"])) == wanted


def test_the_account_stands_in_one_place():
    assert POLICY.read_text("utf-8").count(ADVISOR) == 1
