"""The chart is the source: manifests, overlays, schema and README follow from it, and they say
the same.
"""

import importlib.util
import json
import re
import subprocess

import pytest
from helm import ROOT, documents, plain, single, template
from mofa_local import binaries
from ruamel.yaml import YAML

MANIFESTS = ROOT / "deploy" / "manifests"
KUSTOMIZE = ROOT / "deploy" / "kustomize"
OVERLAYS = sorted(path.name for path in (KUSTOMIZE / "overlays").iterdir())


def tool():
    spec = importlib.util.spec_from_file_location("tool_chart", ROOT / "tools" / "chart.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_what_follows_from_the_chart_is_what_it_says():
    assert tool().stale() == [], "run `make chart`"


def read(*paths):
    return [body for path in paths for body in documents(path.read_text("utf-8"))]


def ordered(objects):
    return sorted(objects, key=lambda body: (body["kind"], body["metadata"]["name"]))


def test_the_cluster_suites_account_roles_and_fence_are_those_of_the_default_release():
    """tests/cluster runs the operator under deploy/manifests, and so under what the
    chart installs.
    """
    installed = read(*(path for path in MANIFESTS.glob("*.yaml") if path.stem != "namespace"))
    chart = [
        plain(body)
        for body in template()
        if body["kind"] == "ServiceAccount"
        or body["apiVersion"].startswith(
            ("rbac.authorization.k8s.io/", "admissionregistration.k8s.io/")
        )
    ]
    assert len(chart) == 11
    assert ordered(installed) == ordered(chart)


def test_the_plain_deployment_is_that_of_the_default_release():
    installed = read(*(MANIFESTS / "operator").glob("*.yaml"))
    chart = [plain(body) for body in template() if body["kind"] in {"Deployment", "Service"}]
    assert ordered(installed) == ordered(chart)


@pytest.fixture(scope="module")
def built():
    """What kubectl makes of the base and of each overlay."""

    def build(folder):
        command = [binaries.path("kubectl"), "kustomize", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return documents(done.stdout)

    return {
        "base": build(KUSTOMIZE / "base"),
        **{name: build(KUSTOMIZE / "overlays" / name) for name in OVERLAYS},
    }


def test_the_base_is_the_definitions_and_the_manifests(built):
    def squeezed(objects):  # kustomize folds long texts otherwise
        return re.sub(r"(\\n|\s)+", " ", json.dumps(ordered(objects), sort_keys=True))

    everything = read(*(ROOT / "crds").glob("*.yaml"), *MANIFESTS.rglob("*.yaml"))
    assert squeezed(built["base"]) == squeezed(everything)


def arguments(objects):
    deployment = single(objects, "Deployment")
    return deployment["spec"]["template"]["spec"]["containers"][0]["args"]


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_says_what_it_is_for_and_the_fence_stays_around_the_account(built, name):
    assert (
        (KUSTOMIZE / "overlays" / name / "kustomization.yaml").read_text("utf-8").startswith("# ")
    )
    account = single(built[name], "ServiceAccount")["metadata"]
    fence = single(built[name], "ValidatingAdmissionPolicy", "mofa-advisor-fence")
    (condition,) = fence["spec"]["matchConditions"]
    assert (
        f'"system:serviceaccount:{account["namespace"]}:{account["name"]}"'
        in condition["expression"]
    )
    space = single(built[name], "Namespace")["metadata"]
    assert space["name"] == account["namespace"]
    assert space["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_what_the_overlays_change(built):
    base = arguments(built["base"])
    added = {name: [one for one in arguments(built[name]) if one not in base] for name in OVERLAYS}
    assert added == {
        "another-namespace": [],
        "namespaced": ["--namespace=team-a"],
        "page": ["--page"],
        "prometheus": ["--prometheus-url=http://prometheus.monitoring:9090"],
        "prometheus-operator": [],
    }
    monitored = {
        body["kind"]: body for body in built["prometheus-operator"] if body not in built["base"]
    }
    assert set(monitored) == {"ServiceMonitor", "PrometheusRule"}
    port = single(built["base"], "Service")["spec"]["ports"][0]["name"]
    assert monitored["ServiceMonitor"]["spec"]["endpoints"][0]["port"] == port


def test_the_namespaced_overlay_has_the_roles_of_the_namespaced_release(built):
    release = template({"watchNamespaces": ["team-a"]})
    name = "mofa-advisor-mofa-system"
    for namespace in ("team-a", "default"):
        mine, theirs = (
            [
                body["rules"]
                for body in objects
                if body["kind"] == "Role" and body["metadata"]["namespace"] == namespace
            ]
            for objects in (built["namespaced"], release)
        )
        assert mine == theirs != []
    role = single(built["namespaced"], "ClusterRole", "mofa-advisor")
    assert role["rules"] == single(release, "ClusterRole", name)["rules"]


def test_the_kind_demo_is_values_that_the_chart_takes():
    values = YAML(typ="safe").load(ROOT / "deploy" / "kind" / "values.yaml")
    objects = template(values, "--api-versions=mofa.dev/v1alpha1")
    assert single(objects, "Deployment", "mofa-advisor")
    profile, *jobs = read(ROOT / "deploy" / "kind" / "samples.yaml")
    assert {job["spec"]["cluster"]["profile"] for job in jobs} == {profile["metadata"]["name"]}
    script = ROOT / "deploy" / "kind" / "up.sh"
    assert script.stat().st_mode & 0o111
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    cluster = YAML(typ="safe").load(ROOT / "deploy" / "kind" / "demo.yaml")
    workers = [node["labels"] for node in cluster["nodes"] if node["role"] == "worker"]
    assert workers == [profile["spec"]["nodeSelector"]] * 2
