"""`kubectl mofa doctor` on a real API server and Prometheus: each fault that is put in is named,
with a command that mends it.
"""

import asyncio
import contextlib
import json
import time
from pathlib import Path

import pytest
from advisor import Advisor, until
from foreign import install
from mofa_local import nodes
from mofa_local.ports import HOST, free_port
from mofa_local.prometheus import Prometheus, backfill
from printed import refused
from ruamel.yaml import YAML

from mofa_model import VERSION
from mofa_model.annotations import PREFIX
from mofa_model.cli import main
from mofa_model.kinds import JOB_SET
from mofa_operator.api import Api
from mofa_operator.api_errors import Gone
from mofa_operator.credentials import Credentials
from mofa_operator.fleet.series import WANTED
from mofa_operator.fleet.site import DEPLOYMENT, POD, named

ROOT = Path(__file__).parents[2]
HOME, NAME = "mofa-system", "mofa-advisor"
LABELS = {"example.org/pool": "doctor"}
PRODUCT = "NVIDIA-H100-80GB-HBM3"


def load(path):
    return [one for one in YAML(typ="safe").load_all((ROOT / path).read_text("utf-8")) if one]


RBAC, FENCE = load("deploy/manifests/rbac.yaml"), load("deploy/manifests/admission-policy.yaml")
(OPERATOR,) = (
    one for one in load("deploy/manifests/operator/deployment.yaml") if one["kind"] == "Deployment"
)


async def _status(kind, name, status):
    async with Api(Credentials.from_environment()) as api:
        await api.merge(kind, HOME, name, {"status": status}, status=True)


async def _counted(number):
    """Pods of the Deployment say whether they are ready; the result is whether its controller has
    counted them.
    """
    ready = {"status": {"conditions": [{"type": "Ready", "status": str(number > 0)}]}}
    async with Api(Credentials.from_environment()) as api:
        found = await api.get(DEPLOYMENT, HOME, NAME)
        for pod in [named(one) async for one in api.list(POD, namespace=HOME)]:
            if pod.startswith(f"{NAME}-"):
                with contextlib.suppress(Gone):  # one of a Deployment before
                    await api.merge(POD, HOME, pod, ready, status=True)
    seen = (found["status"].get("observedGeneration"), found["status"].get("availableReplicas", 0))
    return seen == (found["metadata"]["generation"], number)


def available(cluster, number):
    """As the controller of Deployments would say it; where one runs, it says so itself of pods that
    no kubelet has.
    """
    if cluster.controllers:
        until(lambda: asyncio.run(_counted(number)))
    else:
        status = {"replicas": 1, "availableReplicas": number, "readyReplicas": number}
        asyncio.run(_status(DEPLOYMENT, NAME, status))


def deployed(name=NAME, *, drop=(), add=(), image=None):
    found = json.loads(json.dumps(OPERATOR))
    found["metadata"]["name"] = name
    container = found["spec"]["template"]["spec"]["containers"][0]
    container["args"] = [
        one for one in container["args"] if not one.startswith(tuple(drop))
    ] + list(add)
    container["image"] = image or container["image"]
    # On a node, a kubelet would say how its pods are.
    found["spec"]["template"]["spec"]["schedulerName"] = "nobody"
    return found


@pytest.fixture(scope="module")
def site(cluster):
    """A cluster with nothing to mend, Prometheus apart; everything that is put in here goes at
    the end.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        install(cluster, JOB_SET)
        made = [nodes.node(f"doctor-{number}", labels=LABELS) for number in range(2)]
        nodes.create(cluster, made, kwok=False)
        profile = YAML(typ="safe").load((ROOT / "examples" / "h100-east.yaml").read_text())
        profile.pop("status", None)
        profile["metadata"] = {"name": "doctor"}
        profile["spec"] |= {"nodeSelector": LABELS}
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "doctor"}}
        cluster.apply(space, profile, deployed(add=("--prometheus-url=http://prometheus:9090",)))
        available(cluster, 1)
        yield cluster
        cluster.empty("doctor")
        cluster.delete("deployments.apps", NAME, namespace=HOME)
        cluster.delete("clusterprofiles", "doctor")
        cluster.delete("nodes", labels="example.org/pool=doctor")


def doctor(capsys, *words):
    code = main(["doctor", "--all", "-o", "json", *words])
    return code, json.loads(capsys.readouterr().out)


@contextlib.contextmanager
def applied(cluster, bad, good=None):
    """An object as it should not be; afterwards as it was, or gone."""
    cluster.apply(bad)
    yield
    if good is not None:
        cluster.apply(good)
    else:
        kind = {"Node": "nodes", "ClusterProfile": "clusterprofiles", "Deployment": "deployments.apps",
                "AdvisorPolicy": "advisorpolicies", "JobSet": "jobsets", "Job": "jobs.batch"}[bad["kind"]]  # fmt: skip
        cluster.delete(
            kind, bad["metadata"]["name"], namespace=bad["metadata"].get("namespace", HOME)
        )


@contextlib.contextmanager
def gone(cluster, plural, good):
    """An object that is not there; afterwards it is."""
    cluster.delete(
        plural, good["metadata"]["name"], namespace=good["metadata"].get("namespace", "default")
    )
    yield
    cluster.apply(good)


def of(documents, kind, name=NAME):
    return next(one for one in documents if one["kind"] == kind and one["metadata"]["name"] == name)


def changed(given, change):
    found = json.loads(json.dumps(given))
    change(found)
    return found


def older():
    """The definition of policies of a release that did not know their selector."""
    (definition,) = load("crds/mofa.dev_advisorpolicies.yaml")

    def without(one):
        del one["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
            "properties"
        ]["selector"]

    return changed(definition, without), definition


def ours(kind, name, spec, **metadata):
    return {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


def node(name, **fields):
    found = nodes.node(name, labels=LABELS | fields.pop("labels", {}))
    return changed(found, lambda one: one["status"].update(fields)) if fields else found


@contextlib.contextmanager
def noded(cluster, made):
    nodes.create(cluster, [made], kwok=False)
    yield
    cluster.delete("nodes", made["metadata"]["name"])


@contextlib.contextmanager
def unavailable(cluster, reason=""):
    """No replica is there; a pod says why."""
    available(cluster, 0)
    pod = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "stands", "namespace": HOME, "labels": OPERATOR["metadata"]["labels"]},
        "spec": deployed()["spec"]["template"]["spec"],
    }  # fmt: skip
    if reason:
        cluster.apply(pod)
        waits = {"name": "operator", "ready": False, "restartCount": 0, "image": "x", "imageID": "",
                 "state": {"waiting": {"reason": reason, "message": "no such thing"}}}  # fmt: skip
        asyncio.run(_status(POD, "stands", {"containerStatuses": [waits]}))
    yield
    available(cluster, 1)
    if reason:
        cluster.delete("pods", "stands", namespace=HOME)


@contextlib.contextmanager
def redeployed(cluster, bad):
    cluster.apply(bad)
    yield
    cluster.delete("deployments.apps", NAME, namespace=HOME)
    cluster.apply(deployed(add=("--prometheus-url=http://prometheus:9090",)))
    available(cluster, 1)


@contextlib.contextmanager
def both(one, other):
    with one, other:
        yield


@contextlib.contextmanager
def redeployed_gone(cluster):
    cluster.delete("deployments.apps", NAME, namespace=HOME)
    yield
    cluster.apply(deployed(add=("--prometheus-url=http://prometheus:9090",)))
    available(cluster, 1)


GATED = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
    "metadata": {"name": "waits", "namespace": "doctor", "annotations": {PREFIX + "gate": "suspend"}},
    "spec": {"suspend": True},
}  # fmt: skip
WRONG = {
    PREFIX + "status": "InvalidInput",
    PREFIX + "inputs-hash": "0" * 32,
    PREFIX + "explanation": "spec.model: is missing",
}
URL = ("--prometheus-url=http://prometheus:9090",)
ROLE, BOUND = of(RBAC, "ClusterRole"), of(RBAC, "ClusterRoleBinding")
GUARD, GUARDED = (
    of(FENCE, "ValidatingAdmissionPolicy", f"{NAME}-fence"),
    of(FENCE, "ValidatingAdmissionPolicyBinding", f"{NAME}-fence"),
)
(ACCOUNT,) = load("deploy/manifests/service-account.yaml")
FAULTS = {  # what is wrong: how it comes about, what doctor says of it, and what its command has in it
    "an older definition": (lambda c: applied(c, *older()), "definitions", "lacks spec.selector", "-f crds"),
    "no operator": (redeployed_gone, "operator", "no Deployment", "-f deploy/manifests -f deploy/manifests/operator"),
    "no replicas": (lambda c: redeployed(c, changed(deployed(add=URL), lambda d: d["spec"].update(replicas=0))), "operator", "no replicas", "--replicas=1"),
    "an image that nobody has": (lambda c: unavailable(c, "ImagePullBackOff"), "operator", "ImagePullBackOff", "kubectl set image"),
    "a crash at the start": (lambda c: unavailable(c, "CrashLoopBackOff"), "operator", "CrashLoopBackOff", "kubectl logs"),
    "two operators": (lambda c: applied(c, deployed("second", add=URL)), "operator", "both watch all namespaces", "kubectl delete"),
    "no service account": (lambda c: gone(c, "serviceaccounts", ACCOUNT), "rights", "is not there", "create serviceaccount"),
    "no binding": (lambda c: gone(c, "clusterrolebindings.rbac.authorization.k8s.io", BOUND), "rights", "may not get nodes", "rbac.yaml"),
    "a role without a right": (
        lambda c: applied(c, changed(ROLE, lambda r: [one["verbs"].remove("patch") for one in r["rules"] if one["resources"] == ["jobsets"]]), ROLE),
        "rights", "may not patch jobsets", "rbac.yaml",
    ),
    "no fence": (lambda c: gone(c, "validatingadmissionpolicies", GUARD), "fence", "no ValidatingAdmissionPolicy", "admission-policy.yaml"),
    "a fence that is not bound": (lambda c: gone(c, "validatingadmissionpolicybindings", GUARDED), "fence", "has no binding", "admission-policy.yaml"),
    "a fence that only warns": (
        lambda c: applied(c, changed(GUARDED, lambda b: b["spec"].update(validationActions=["Warn"])), GUARDED),
        "fence", "does not deny", "admission-policy.yaml",
    ),
    "no Prometheus": (lambda c: redeployed(c, deployed()), "Prometheus", "was given none", "kubectl edit"),
    "a kind that is not watched": (
        lambda c: both(redeployed(c, deployed(drop=("--kinds",), add=(*URL, "--kinds=TrainJob"))), applied(c, GATED)),
        "kinds", "--kinds=TrainJob,JobSet", "kubectl edit",
    ),
    "a node without its label": (
        lambda c: noded(c, changed(node("bare"), lambda one: one["metadata"]["labels"].pop("nvidia.com/gpu.product"))),
        "nodes", "no label nvidia.com/gpu.product", "kubectl label node bare",
    ),
    "a node that offers no GPUs": (
        lambda c: noded(c, changed(node("idle"), lambda one: [one["status"][part].pop("nvidia.com/gpu") for part in ("capacity", "allocatable")])),
        "nodes", "offer no GPUs: idle", "device-plugin",
    ),
    "a node of no pool": (
        lambda c: noded(c, changed(node("lone"), lambda one: one["metadata"]["labels"].pop("example.org/pool"))),
        "pools", "of no ClusterProfile: lone", "kubectl label --overwrite node lone example.org/pool=doctor",
    ),
    "a pool without nodes": (
        lambda c: applied(c, ours("ClusterProfile", "empty", {"gpu": "h100", "nodeSelector": {"no": "such"}})),
        "pools", "empty selects no node: no=such", "edit clusterprofile empty",
    ),
    "a pool of other GPUs": (
        lambda c: applied(c, ours("ClusterProfile", "other", {"gpu": "a100", "nodeSelector": LABELS})),
        "pools", "other says a100", '"gpu":"h100',
    ),
    "two pools of one node": (
        lambda c: applied(c, ours("ClusterProfile", "twice", {"gpu": "h100", "nodeSelector": LABELS})),
        "pools", "at once", "edit clusterprofile",
    ),
    "a policy of a pool that is not there": (
        lambda c: applied(c, ours("AdvisorPolicy", "lost", {"profile": "nowhere"}, namespace="doctor")),
        "policies", "nowhere, which does not exist", "edit advisorpolicy",
    ),
    "a job that cannot be answered": (
        lambda c: applied(c, changed(GATED, lambda j: j["metadata"].update(annotations=WRONG))),
        "jobs", "spec.model: is missing", "kubectl edit",
    ),
    "a job that waits for nobody": (lambda c: both(unavailable(c), applied(c, GATED)), "jobs", "wait at our gate", "gate-"),
}  # fmt: skip


def test_an_installation_as_it_should_be_has_nothing_to_mend(site, capsys):
    code, found = doctor(capsys)
    assert code == 0
    assert [one for one in found["findings"] if one["mend"]] == []
    assert {one["about"] for one in found["findings"]} >= {
        "your rights",
        "definitions",
        "operator",
        "rights",
        "fence",
        "nodes",
        "pools",
    }


NEEDS_A_KUBELET = "kubectl logs"


def test_each_fault_is_named_with_what_mends_it(site, capsys, tmp_path, binaries):
    unsaid, tried, wrongly = {}, set(), []
    for name, (fault, about, said, mend) in FAULTS.items():
        with fault(site):
            _, found = doctor(capsys)
            wrong = [one for one in found["findings"] if one["mend"]]
            if not any(
                one["about"] == about and said in one["found"] and mend in one["mend"]
                for one in wrong
            ):
                unsaid[name] = wrong
            for one in {
                one["mend"] for one in wrong
            } - tried:  # while the fault is there, as a person would
                tried.add(one)
                if not one.startswith(NEEDS_A_KUBELET):
                    wrongly.append(refused(one, site.kubeconfig, tmp_path / "bin", binaries))
    assert unsaid == {}
    assert [why for why in wrongly if why] == []
    code, found = doctor(capsys)
    assert [one for one in found["findings"] if one["mend"]] == [], "a fault was left behind"
    assert code == 0


def test_an_operator_that_runs_outside_of_the_cluster_is_no_fault(site, capsys, processes):
    """`make up` runs it as a process of this machine: there is no Deployment, and nothing
    is broken.
    """
    with redeployed_gone(site):
        assert doctor(capsys)[0] == 4, "nobody runs"
        outside = Advisor(site, processes, "outside")
        outside.start("--settle=0.5")
        try:
            until(
                lambda: (
                    site.kubectl("get", "cprof", "doctor", "-o", "jsonpath={.status.nodes.ready}")
                    == "2"
                )
            )
            code, found = doctor(capsys)
        finally:
            outside.stop()
    (said,) = [one for one in found["findings"] if one["about"] == "operator"]
    assert (code, said["weight"], said["mend"]) == (0, "unknown", "")
    assert "an operator runs outside of this cluster, as that of `make up` does" in said["found"]


def test_a_definition_that_is_not_there_is_named(site, capsys):
    (definition,) = load("crds/mofa.dev_advisorpolicies.yaml")
    site.delete("customresourcedefinitions.apiextensions.k8s.io", definition["metadata"]["name"])
    try:
        code, found = doctor(capsys)
        assert code == 4, "while it goes, too"
        until(
            lambda: (
                len(site.kubectl("get", "crd", "-o", "name").split(definition["metadata"]["name"]))
                == 1
            )
        )
        code, found = doctor(capsys)
    finally:
        site.apply(definition)
        site.await_served(definition)
    assert code == 4
    assert any(
        "does not know advisorpolicies.mofa.dev" in one["found"] for one in found["findings"]
    )


def test_what_one_may_not_see_is_unknown_and_not_well(site, capsys, monkeypatch):
    rules = [
        {"apiGroups": ["mofa.dev", "jobset.x-k8s.io"], "resources": ["*"], "verbs": ["get", "list"]}
    ]
    monkeypatch.setenv("KUBECONFIG", str(site.identity("visitor", rules)))
    _, found = doctor(capsys)
    hidden = {
        one["found"].split()[4].rstrip(":")
        for one in found["findings"]
        if one["weight"] == "unknown"
    }
    assert {"nodes", "deployments.apps"} <= hidden
    assert not {one["about"] for one in found["findings"]} & {"operator", "fence", "nodes"}
    assert main(["top"]) == 0
    assert "may not be listed" in capsys.readouterr().out


def test_each_series_that_prometheus_lacks_is_named(site, capsys, processes, binaries, tmp_path):
    binaries.path("prometheus")
    wrong = {one.about for one in WANTED}
    with Served(processes, tmp_path / "empty") as url:
        _, found = doctor(capsys, "--prometheus", url)
        assert {one["about"] for one in found["findings"] if one["mend"]} == wrong
    with Served(processes, tmp_path / "whole", series()) as url:
        _, found = doctor(capsys, "--prometheus", url)
        assert [one for one in found["findings"] if one["mend"]] == []
    code, found = doctor(capsys, "--prometheus", f"http://{HOST}:{free_port()}")
    assert code == 4
    assert any(
        one["about"] == "Prometheus" and one["weight"] == "broken" for one in found["findings"]
    )


class Served:
    """A real Prometheus for one test."""

    def __init__(self, processes, folder, text=""):
        self.server = Prometheus(processes, folder, name=f"doctor-{folder.name}")
        if text:
            backfill(text, self.server.data)

    def __enter__(self):
        self.server.start()
        return self.server.url

    def __exit__(self, *_):
        self.server.stop()


def series():
    """One sample of each, a minute ago."""
    at = time.time() - 60
    lines = [
        'kube_node_status_condition{node="a",condition="Ready",status="true"} 1',
        f'kube_node_labels{{node="a",label_nvidia_com_gpu_product="{PRODUCT}"}} 1',
        'kube_pod_labels{pod="a",label_jobset_sigs_k8s_io_jobset_name="a"} 1',
        'node_boot_time_seconds{instance="a"} 1',
        'kube_pod_container_status_restarts_total{pod="a"} 0',
        'kube_node_spec_unschedulable{node="a"} 0',
        'problem_counter{reason="XidError"} 0',
        'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0"} 0',
        'DCGM_FI_DEV_XID_ERRORS{gpu="0"} 0',
        f'mofa_advisor_build_info{{version="{VERSION}"}} 1',
        'mofa:node_ready:bool{node="a"} 1',
    ]
    named = {one.partition("{")[0]: one for one in lines}
    return (
        "".join(f"# TYPE {name} gauge\n{line} {at:.0f}\n" for name, line in named.items())
        + "# EOF\n"
    )
