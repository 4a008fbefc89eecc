"""The least role: for each verb on each resource there is a real operation that needs it, and is
refused without it.
"""

import json
from pathlib import Path

import pytest
from advisor import Advisor, until
from door import ADVISOR, APPLY, JSON, Door, path
from foreign import install, job
from ruamel.yaml import YAML

from mofa_model import kinds
from mofa_model.kinds import (
    CLUSTER_TRAINING_RUNTIME,
    DEVICE_CLASS,
    RESOURCE_CLAIM_TEMPLATE,
    TRAINING_RUNTIME,
    Kind,
)
from mofa_operator.act.events import EVENT
from mofa_operator.keys import (
    ADVISOR_POLICY,
    CLUSTER_PROFILE,
    CONFIG_MAP,
    FAILURE_LEDGER,
    NAMESPACE,
    NODE,
    OURS,
    TRAINING_JOB,
)

MANIFESTS = Path(__file__).parents[2] / "deploy" / "manifests"
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
KNOWN = {
    (kind.group, kind.plural): kind
    for kind in (*OURS, *kinds.KINDS, *kinds.BESIDE, NODE, NAMESPACE, CONFIG_MAP, EVENT, LEASE)
}
HOME, NAME = "mofa-system", "mofa-advisor"
SPECS = {
    TRAINING_JOB: {
        "model": {"preset": "llama3-405b"},
        "training": {"sequenceLength": 8192, "globalBatchSize": 2048},
        "cluster": {"profile": "h100-east"},
    },
    CLUSTER_PROFILE: {"gpu": "h100"},
    ADVISOR_POLICY: {},
    FAILURE_LEDGER: None,
    NODE: {},
    NAMESPACE: {},
    TRAINING_RUNTIME: {},
    CLUSTER_TRAINING_RUNTIME: {},
    RESOURCE_CLAIM_TEMPLATE: {
        "spec": {
            "devices": {
                "requests": [{"name": "g", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
            }
        }
    },
    DEVICE_CLASS: {},
}

READ = "the store: a list at the start, a watch from then on, one object where the two disagree"
NEEDED = {
    **{
        (kind, verb): READ
        for kind in (*OURS, *kinds.KINDS, NODE, NAMESPACE)
        for verb in ("get", "list", "watch")
    },
    **{(kind, "patch"): "act: annotations" for kind in (TRAINING_JOB, *kinds.KINDS)},
    **{(kind, "get"): "what a job or its pods name" for kind in kinds.BESIDE},
    (FAILURE_LEDGER, "create"): "act: the ledger of a new profile",
    (FAILURE_LEDGER, "patch"): "act: whose ledger it is",
    **{(kind, "patch status"): "act: the status" for kind in OURS},
    (CONFIG_MAP, "get"): "the config.json that a job names",
    (EVENT, "create"): "act: Events",
    (LEASE, "get"): "election: who holds it",
    (LEASE, "create"): "election: the first time",
    (LEASE, "update"): "election: hold it",
}
"""What the operator does, by kind and verb."""


def roles():
    """The operator's ClusterRole and its Role."""
    documents = list(YAML(typ="safe").load_all((MANIFESTS / "rbac.yaml").read_text("utf-8")))
    return [
        one
        for one in documents
        if one["kind"] in {"ClusterRole", "Role"} and one["metadata"]["name"] == NAME
    ]


def pairs():
    """What the roles allow, as (role, kind, verb), with the rule that says so."""
    for role in roles():
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    plural, _, part = resource.partition("/")
                    for verb in rule["verbs"]:
                        yield role["kind"], KNOWN[group, plural], f"{verb} {part}".strip()


PAIRS = [
    pytest.param(*one, number, id=f"{one[2]} {one[1].plural}.{one[1].group}")
    for number, one in enumerate(pairs())
]


def test_what_the_roles_allow_is_what_the_operator_does():
    allowed = [(kind, verb) for _, kind, verb in pairs()]
    assert len(allowed) == len(
        set(allowed)
    )  # said once: then taking away one rule takes away the right
    assert set(allowed) == set(NEEDED)


def test_the_roles_name_what_they_allow():
    for role in roles():
        for rule in role["rules"]:
            assert set(rule) <= {"apiGroups", "resources", "verbs", "resourceNames"}
            assert not {"*"} & {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
    everything = "\n".join(one.read_text("utf-8") for one in MANIFESTS.glob("*.yaml"))
    for forbidden in ("secrets", "impersonate", "escalate", "deletecollection, bind"):
        assert forbidden not in everything


def without(role, kind, verb):
    """The role's rules with one verb on one resource taken away."""
    action, _, part = verb.partition(" ")
    resource = f"{kind.plural}/{part}" if part else kind.plural
    for rule in role["rules"]:
        if (
            kind.group in rule["apiGroups"]
            and resource in rule["resources"]
            and action in rule["verbs"]
        ):
            left = [one for one in rule["resources"] if one != resource]
            fewer = [one for one in rule["verbs"] if one != action]
            if left:
                yield {**rule, "resources": left}
            if fewer:
                yield {**rule, "resources": [resource], "verbs": fewer}
        else:
            yield rule


def bound(kind, name, rules, user):
    """A role with these rules, and its binding to a user."""
    api = "rbac.authorization.k8s.io"
    metadata = {"name": name} | ({"namespace": HOME} if kind == "Role" else {})
    # A role without rules would give nothing to wait for; this one does no harm.
    rules = [*rules, {"apiGroups": ["example.org"], "resources": ["beacons"], "verbs": ["list"]}]
    return [
        {"apiVersion": f"{api}/v1", "kind": kind, "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{api}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": api, "kind": kind, "name": name},
            "subjects": [{"apiGroup": api, "kind": "User", "name": user}],
        },
    ]


@pytest.fixture(scope="module")
def door(cluster):
    """With users whole-Role and whole-ClusterRole, and one user for each right that is
    taken away.
    """
    install(cluster)
    made = []
    for role in roles():
        made += bound(
            role["kind"], f"whole-{role['kind']}".lower(), role["rules"], f"whole-{role['kind']}"
        )
    for number, (which, kind, verb) in enumerate(pairs()):
        (role,) = (one for one in roles() if one["kind"] == which)
        made += bound(
            which, f"without-{number}", list(without(role, kind, verb)), f"without-{number}"
        )
    cluster.apply(*made)
    users = [f"without-{number}" for number in range(len(PAIRS))]
    with Door(cluster) as opened:
        for user in ("whole-Role", "whole-ClusterRole", *users):
            until(lambda user=user: _sees_the_beacon(opened, user))
        yield opened


def _sees_the_beacon(door, user):
    """Whether a user's role is in force: the kind does not exist, but asking for it is allowed."""
    return door.ask("GET", f"/apis/example.org/v1/namespaces/{HOME}/beacons", user=user)[0] == 404


@pytest.fixture(scope="module")
def objects(cluster):
    """One object of every kind, in a namespace of this module."""
    place = "test-rbac"
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}})
    cluster.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": place}}
    )
    cluster.apply(*(job(kind, place, NAME) for kind in kinds.KINDS))
    for kind, spec in SPECS.items():
        metadata = {"name": NAME} | ({"namespace": place} if kind.namespaced else {})
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        cluster.apply(body if spec is None else {**body, "spec": spec})
    yield place
    cluster.kubectl("delete", "clusterprofile,failureledger,node", NAME, "--ignore-not-found")
    cluster.kubectl("delete", "lease", NAME, "-n", HOME, "--ignore-not-found")


def operate(door, user, kind, verb, place):
    """Really do it; the status code."""
    action, _, part = verb.partition(" ")
    home = (HOME if kind == LEASE else place) if kind.namespaced else ""
    here, item = path(kind, home), path(kind, home, NAME, status=part == "status")
    identity = {"apiVersion": kind.api_version, "kind": kind.kind}
    metadata = {"name": NAME} | ({"namespace": home} if home else {})
    if action == "list":
        return door.ask("GET", path(kind), user=user)[0]
    if action == "watch":
        return door.ask("GET", path(kind), user=user, watch="1", timeoutSeconds="1")[0]
    if action == "get":
        return door.ask("GET", item, user=user)[0]
    if action == "patch":
        number = "failures" if kind == FAILURE_LEDGER else "observedGeneration"
        change = {"status": {number: 1}} if part else {}
        marked = (
            metadata
            if part
            else metadata | {"annotations": {"advisor.mofa.dev/status": "Recommended"}}
        )
        body = {**identity, "metadata": marked, **change}
        return door.ask("PATCH", item, body, content=APPLY, user=user, force="true")[0]
    if kind == EVENT:
        body = {
            **identity,
            "metadata": {"generateName": NAME, "namespace": place},
            "involvedObject": {"namespace": place},
        }
        return door.ask("POST", here, body, content=JSON, user=user)[0]
    if kind == FAILURE_LEDGER:
        new = {**identity, "metadata": {"name": f"{NAME}-{user}".lower()}}
        return door.ask(
            "PATCH", path(kind, "", new["metadata"]["name"]), new, content=APPLY, user=user
        )[0]
    spec = {"holderIdentity": user}
    if action == "create":
        return door.ask(
            "POST", here, {**identity, "metadata": metadata, "spec": spec}, content=JSON, user=user
        )[0]
    held = door.ask("GET", item, user="whole-Role")[1]
    return door.ask("PUT", item, {**held, "spec": spec}, content=JSON, user=user)[0]


@pytest.mark.parametrize("role, kind, verb, number", PAIRS)
def test_each_right_is_needed(door, objects, cluster, role, kind, verb, number):
    if kind == LEASE and verb == "create":
        cluster.kubectl("delete", "lease", NAME, "-n", HOME, "--ignore-not-found")
    elif kind == LEASE:
        cluster.apply(
            {
                "apiVersion": LEASE.api_version,
                "kind": "Lease",
                "metadata": {"name": NAME, "namespace": HOME},
            }
        )
    assert operate(door, f"without-{number}", kind, verb, objects) == 403, NEEDED[kind, verb]
    assert operate(door, f"whole-{role}", kind, verb, objects) in {200, 201}, NEEDED[kind, verb]


@pytest.mark.parametrize(
    "what, address",
    [
        ("secrets", "/api/v1/secrets"),
        ("pods", "/api/v1/pods"),
        ("all ConfigMaps", "/api/v1/configmaps"),
        ("all Leases", "/apis/coordination.k8s.io/v1/namespaces/mofa-system/leases"),
        ("another Lease", "/apis/coordination.k8s.io/v1/namespaces/mofa-system/leases/other"),
        ("definitions", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
    ],
)
def test_the_operator_cannot_read(door, what, address):
    status, said = door.ask("GET", address)  # as the operator's own account
    assert status == 403, what
    assert "cannot" in said["message"]


def test_the_operator_at_work_asks_for_nothing_that_it_may_not(cluster, processes, door):
    advisor = Advisor(cluster, processes, "rbac")
    before = len(cluster.audit())
    advisor.start("--resync=1")
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "rbac-news"}})
    until(
        lambda: (
            _asked(cluster, before, "watch", "jobsets")
            and _asked(cluster, before, "list", "rayjobs")
        ),
        60.0,
    )
    advisor.stop()
    cluster.kubectl("delete", "node", "rbac-news")
    refused = {
        (one["verb"], one["requestURI"])
        for one in cluster.audit()[before:]
        if one["user"]["username"] == ADVISOR
        and one.get("responseStatus", {}).get("code") in {401, 403}
    }
    assert refused == set()


def _asked(cluster, since, verb, resource):
    return [
        one
        for one in cluster.audit()[since:]
        if one["user"]["username"] == ADVISOR
        and (one["verb"], one.get("objectRef", {}).get("resource")) == (verb, resource)
    ]


def test_who_may_edit_a_namespace_may_have_training_jobs_there(cluster):
    view, edit = (
        {
            (resource, verb)
            for rule in one["rules"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        for one in YAML(typ="safe").load_all((MANIFESTS / "rbac.yaml").read_text("utf-8"))
        if one["metadata"]["name"] in {"mofa-advisor-view", "mofa-advisor-edit"}
    )
    assert ("trainingjobs", "create") in edit
    assert ("clusterprofiles", "get") in view
    assert not any(resource == "clusterprofiles" or "/status" in resource for resource, _ in edit)


def test_the_plain_deployment_is_valid_and_its_pods_are_restricted(cluster):
    path = MANIFESTS / "operator" / "deployment.yaml"
    cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-f", path)
    deployment = YAML(typ="safe").load(path.read_text("utf-8"))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tried", "namespace": HOME}}
    spec = {**deployment["spec"]["template"]["spec"], "automountServiceAccountToken": False}
    # The namespace enforces the restricted profile: a pod that broke it would be refused.
    cluster.kubectl(
        "create", "--dry-run=server", "-f", "-", input=json.dumps({**pod, "spec": spec})
    )
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
