"""What helm makes of the chart, against a real API server: accepted whole, restricted, installed,
upgraded and removed.
"""

import json

import helm
import pytest
from advisor import Advisor, condition, ours, until
from helm import CHART, ROOT, SETS, monitoring, single, template
from mofa_local import nodes
from mofa_local.cluster import KubectlFailed
from printed import refused

from mofa_model.cli import main

KUSTOMIZE = ROOT / "deploy" / "kustomize"
OVERLAYS = sorted(path.name for path in (KUSTOMIZE / "overlays").iterdir())


def read(cluster, namespace, name, kind="trainingjob"):
    place = ["-n", namespace] if namespace else []
    return json.loads(cluster.kubectl("get", kind, name, *place, "-o", "json"))


def space(name, **labels):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


@pytest.fixture(scope="module")
def home(cluster):
    """A namespace that takes restricted pods only, in a cluster that knows the Prometheus
    operator's kinds.
    """
    level = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    cluster.apply(
        space("chart-home", **level), *(space(name) for name in ("team-a", "team-b", "ml-platform"))
    )
    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "gvisor"},
    }
    cluster.apply(runtime | {"handler": "runsc"})
    for name in ("mofa-advisor", "advisor", "adviser"):
        metadata = {"name": name, "namespace": "chart-home"}
        cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    made = monitoring()
    cluster.apply(*made)
    cluster.await_served(*made)
    return "chart-home"


def accepted(cluster, objects):
    """Ask the API server whether it would take all of these, unknown and doubled fields refused."""
    body = "\n---\n".join(json.dumps(one) for one in objects)
    return cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", input=body)


def pod(objects):
    """A Pod as the Deployment would make it."""
    made = single(objects, "Deployment")["spec"]["template"]
    namespace = single(objects, "Deployment")["metadata"]["namespace"]
    metadata = made["metadata"] | {"name": "of-the-deployment", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made["spec"]}


@pytest.mark.parametrize("name", SETS)
def test_the_api_server_accepts_every_object_and_restricted_pods(cluster, home, name):
    values, options = SETS[name]
    objects = template(values, *options, namespace=home)
    usual = template(namespace=home) if values else ()  # judged once, with the default values
    new = [body for body in objects if body not in usual]
    said = accepted(cluster, [*new, pod(objects)])
    assert len(said.splitlines()) == len(new) + 1
    assert "pod/of-the-deployment created" in said


def test_the_test_would_see_what_it_looks_for(cluster, home):
    """A pod that is not restricted, an unknown field, an unknown field of a monitor: each
    is refused.
    """
    objects = template({"securityContext": {"allowPrivilegeEscalation": True}}, namespace=home)
    with pytest.raises(KubectlFailed, match="violates PodSecurity"):
        accepted(cluster, [pod(objects)])
    service = single(objects, "Service")
    with pytest.raises(KubectlFailed, match=r'unknown field "spec\.prots"'):
        accepted(cluster, [service | {"spec": service["spec"] | {"prots": []}}])
    monitor = single(
        template({"serviceMonitor": {"enabled": True}}, *helm.MONITORED, namespace=home),
        "ServiceMonitor",
    )
    with pytest.raises(KubectlFailed, match=r'unknown field "spec\.endpoint"'):
        accepted(cluster, [monitor | {"spec": monitor["spec"] | {"endpoint": []}}])


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_api_server_accepts_every_overlay(cluster, home, name):
    base, built = (
        helm.documents(cluster.kubectl("kustomize", KUSTOMIZE / folder))
        for folder in ("base", f"overlays/{name}")
    )
    new = [body for body in built if body not in base]
    assert new
    assert len(accepted(cluster, new).splitlines()) == len(new)


def test_the_api_server_accepts_the_kind_demo(cluster, home):
    folder = ROOT / "deploy" / "kind"
    cluster.apply(space("monitoring"))
    for name in ("prometheus.yaml", "samples.yaml"):
        cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", folder / name)


# ------------------------------------------------------------------------------------- a life with helm


def test_install_upgrade_and_uninstall(cluster, home, monkeypatch, capsys, tmp_path, binaries):
    """Definitions, and profiles with what they have learned, outlive the release; nothing
    else does.
    """

    def release(verb, *options, values=None):
        place = (f"--namespace={home}", f"--kubeconfig={cluster.kubeconfig}")
        return helm.run(verb, "life", *options, *place, values=values)

    def names():
        found = cluster.kubectl(
            "get", "sa,deploy,svc,role,rolebinding,clusterrole,clusterrolebinding,validatingadmissionpolicy",
            "-n", home, "-l", "app.kubernetes.io/instance=life", "-o", "name",
        )  # fmt: skip
        return set(found.split())

    # The definitions are there already, and not helm's: it takes them over when it is told to.
    values = {"profiles": {"life": {"gpu": "b200"}}, "policies": {"team-a": {"mode": "Annotate"}}}
    notes = release("install", str(CHART), "--take-ownership", values=values)
    assert "MoFa Advisor" in notes
    assert "ONCE MORE" not in notes
    assert {"deployment.apps/life-mofa-advisor", "service/life-mofa-advisor"} <= names()
    assert (
        read(cluster, "team-a", "life-mofa-advisor", "advisorpolicy")["spec"]["mode"] == "Annotate"
    )
    cluster.kubectl(
        "patch", "clusterprofile", "life", "--subresource=status", "--type=merge", "-p",
        '{"status": {"residual": "0.1"}}',
    )  # fmt: skip

    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    main(["doctor", "-o", "json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    (mend,) = [one["mend"] for one in findings if one["about"] == "Prometheus"]
    assert mend.startswith(f"helm upgrade life charts/mofa-advisor --namespace {home} ")
    assert refused(mend, cluster.kubeconfig, tmp_path / "bin", binaries) == ""

    with pytest.raises(
        helm.Refused, match="invalid ownership metadata"
    ):  # a second that watches everything
        helm.run(
            "install", "life", str(CHART), "--namespace=team-b", f"--kubeconfig={cluster.kubeconfig}",
            values={"crds": {"enabled": False}},
        )  # fmt: skip

    release("upgrade", str(CHART), values={"operator": {"verbose": True}})
    deployment = read(cluster, home, "life-mofa-advisor", "deployment")
    assert "--verbose" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert not cluster.kubectl("get", "advisorpolicy", "-n", "team-a", "-o", "name")

    release("uninstall")
    assert names() == set()
    assert (
        len(
            cluster.kubectl(
                "get", "crd", "-o", "name", "-l", "app.kubernetes.io/instance=life"
            ).split()
        )
        == 4
    )
    assert read(cluster, None, "life", "clusterprofile")["status"]["residual"] == "0.1"
    cluster.kubectl("delete", "clusterprofile", "life")


# ------------------------------------------------------------------- an operator of some namespaces

JOB = {
    "model": {"preset": "llama3.1-8b"},
    "training": {"sequenceLength": 4096, "globalBatchSize": 64, "framework": "megatron"},
}


def ours_to_make(kind, name, spec, namespace=""):
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "mofa.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def test_roles_in_namespaces_are_enough_for_an_operator_that_watches_them(
    cluster, processes, namespace
):
    """With the account, roles, fence and arguments that the chart makes; nothing that it asks for
    is refused.
    """
    values = {"watchNamespaces": [namespace], "operator": {"resyncSeconds": 5}}
    cluster.apply(space("chart-some"))
    objects = template(values | {"crds": {"enabled": False}}, namespace="chart-some")
    cluster.apply(
        *(body for body in objects if body["kind"] not in {"Deployment", "Service", "Pod"})
    )
    kubeconfig = cluster.identity("some", service_account="chart-some/mofa-advisor")
    advisor = Advisor(cluster, processes, "some", kubeconfig=kubeconfig)
    _, *arguments = single(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0][
        "args"
    ]
    advisor.start(*arguments)
    try:
        labels = {"example.org/pool": namespace}
        nodes.create(cluster, [nodes.node(namespace, labels=labels)], kwok=False)
        spec = {"gpu": "h100", "nodeSelector": labels}
        cluster.apply(ours_to_make("ClusterProfile", namespace, spec))
        for place in (namespace, "team-b"):
            cluster.apply(
                ours_to_make(
                    "TrainingJob", "small", {**JOB, "cluster": {"profile": namespace}}, place
                )
            )
        until(lambda: "strategy" in ours(read(cluster, namespace, "small")))
        until(lambda: "Recommended" in cluster.kubectl("get", "events", "-n", namespace))
        assert condition(read(cluster, namespace, "small"), "Ready")
        assert not ours(read(cluster, "team-b", "small"))
        assert "status" not in read(cluster, "team-b", "small")
    finally:
        assert advisor.stop() == 0
        cluster.kubectl("delete", "trainingjob", "small", "-n", "team-b", "--ignore-not-found")
        cluster.kubectl("delete", "clusterprofile,node", namespace, "--ignore-not-found")
    user = "system:serviceaccount:chart-some:mofa-advisor"
    asked = [event for event in cluster.audit() if event["user"]["username"] == user]
    refused = [event["requestURI"] for event in asked if event["responseStatus"].get("code") == 403]
    proofs = [uri for uri in refused if uri.split("?")[0].endswith("/mofa-fence-proof")]
    assert proofs, "the fence was asked whether it holds"
    assert refused == proofs
