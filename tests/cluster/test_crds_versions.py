"""What docs/versions.md promises of the API: a second version beside v1alpha1, its way into
storage, and objects of 0.1.0.
"""

import json
from pathlib import Path

import pytest
from advisor import until
from mofa_local.client import Refused
from mofa_local.cluster import KubectlFailed
from ruamel.yaml import YAML

from mofa_model.manifest.crds import crds
from mofa_model.manifest.parsing import advisor_policy, cluster_profile, training_job

ROOT = Path(__file__).parents[2]
OLD = ROOT / "tests" / "data" / "0.1.0"
GROUP = "scratch.mofa.dev"
SERVED = {"v1alpha1": True, "v1beta1": True}
READERS = {
    "TrainingJob": training_job,
    "ClusterProfile": cluster_profile,
    "AdvisorPolicy": advisor_policy,
}


def load(path):
    return YAML(typ="safe").load(path.read_text("utf-8"))


def scratch(served, stored):
    """Our TrainingJob in another group, with these versions; the later one has no
    deprecated field.
    """
    made = crds()["mofa.dev_trainingjobs.yaml"]
    (first,) = made["spec"]["versions"]
    versions = []
    for name, is_served in served.items():
        one = json.loads(json.dumps(first)) | {
            "name": name,
            "served": is_served,
            "storage": name == stored,
        }
        if name != "v1alpha1":
            status = one["schema"]["openAPIV3Schema"]["properties"]["status"]
            del status["properties"]["observed"]["properties"]["life"]
            # Equal lists would be merged into one for all versions, which the API server refuses
            # where schemas differ.
            one["selectableFields"] = one["selectableFields"][::-1]
        versions.append(one)
    spec = made["spec"] | {"group": GROUP, "versions": versions, "conversion": {"strategy": "None"}}
    spec["names"] = spec["names"] | {"shortNames": [], "categories": []}
    return made | {"metadata": {"name": f"trainingjobs.{GROUP}"}, "spec": spec}


def names_of(cluster):
    found = json.loads(cluster.kubectl("get", "crd", f"trainingjobs.{GROUP}", "-o", "json"))
    return found["status"]["storedVersions"]


@pytest.fixture
def versions(cluster):
    def apply(served, stored):
        cluster.apply(scratch(served, stored))
        cluster.kubectl(
            "wait", "--for=condition=Established", "--timeout=30s", f"crd/trainingjobs.{GROUP}"
        )

    apply({"v1alpha1": True}, "v1alpha1")
    yield apply
    cluster.kubectl("delete", "crd", f"trainingjobs.{GROUP}")


def test_a_second_version_is_served_stored_and_outlives_the_first(cluster, namespace, versions):
    def get(version, name):
        resource = f"trainingjobs.{version}.{GROUP}/{name}"
        return json.loads(cluster.kubectl("get", resource, "-n", namespace, "-o", "json"))

    def served(version):
        known = json.loads(cluster.kubectl("get", "--raw", "/apis/" + GROUP))["versions"]
        return version in {one["version"] for one in known}

    def create(version, name):
        body = load(OLD / "llama3-405b.yaml")
        body |= {"apiVersion": f"{GROUP}/{version}", "metadata": {"name": name}}
        cluster.kubectl(
            "create", "--validate=strict", "-n", namespace, "-f", "-", input=json.dumps(body)
        )

    create("v1alpha1", "old")
    old_life = json.dumps({"status": {"observed": {"source": "mofa", "life": '{"v":1}'}}})
    cluster.kubectl("patch", f"trainingjobs.v1alpha1.{GROUP}/old", "-n", namespace, "--subresource=status", "--type=merge", "-p", old_life)  # fmt: skip

    # Both served, the first stored: each reads what was written in the other, word for word.
    versions(SERVED, "v1alpha1")
    until(lambda: served("v1beta1"))
    create("v1beta1", "new")
    for name in ("old", "new"):
        first, second = get("v1alpha1", name), get("v1beta1", name)
        assert first["apiVersion"] == f"{GROUP}/v1alpha1"
        assert second["apiVersion"] == f"{GROUP}/v1beta1"
        assert first["spec"] == second["spec"]
    assert get("v1alpha1", "old")["status"]["observed"]["life"] == '{"v":1}'
    assert "life" not in get("v1beta1", "old")["status"]["observed"], (
        "a version shows its own fields"
    )

    # The second stored: nothing moves by itself, and writing each object once moves it.
    versions(SERVED, "v1beta1")
    assert names_of(cluster) == ["v1alpha1", "v1beta1"]
    for name in ("old", "new"):
        moved = json.dumps(get("v1beta1", name))
        cluster.kubectl("replace", "-n", namespace, "-f", "-", input=moved)
    with pytest.raises(Refused, match="v1alpha1"):
        cluster.apply(
            scratch({"v1beta1": True}, "v1beta1")
        )  # while the API server may still hold the first
    stored = json.dumps({"status": {"storedVersions": ["v1beta1"]}})
    cluster.kubectl(
        "patch", f"crd/trainingjobs.{GROUP}", "--subresource=status", "--type=merge", "-p", stored
    )

    # The first not served, then gone: nothing is lost.
    versions({"v1alpha1": False, "v1beta1": True}, "v1beta1")
    versions({"v1beta1": True}, "v1beta1")
    assert names_of(cluster) == ["v1beta1"]
    for name in ("old", "new"):
        assert get("v1beta1", name)["spec"]["model"] == {"preset": "llama3-405b"}
    assert get("v1beta1", "old")["status"]["observed"] == {"source": "mofa"}


@pytest.mark.parametrize("path", sorted(OLD.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_manifest_of_0_1_0_applies_and_says_what_it_said(cluster, namespace, path):
    body = load(path)
    place = [] if body["kind"] == "ClusterProfile" else ["-n", namespace]
    applied = json.loads(
        cluster.kubectl(
            "apply",
            "--server-side",
            "--dry-run=server",
            "--validate=strict",
            *place,
            "-o",
            "json",
            "-f",
            path,
        )
    )
    reader = READERS[body["kind"]]
    assert reader(applied).spec == reader(body).spec


def test_a_plain_selector_of_0_1_0_selects_as_before(cluster, namespace):
    cluster.kubectl(
        "apply", "--server-side", "--validate=strict", "-n", namespace, "-f", OLD / "policy.yaml"
    )
    found = json.loads(cluster.kubectl("get", "apol", "pretraining", "-n", namespace, "-o", "json"))
    assert found["spec"]["selector"] == {"stage": "pretraining"}
    selector = advisor_policy(found).spec.selector
    assert selector.matches({"stage": "pretraining", "team": "a"})
    assert not selector.matches({"stage": "tuning"})


@pytest.mark.parametrize(
    "selector, why",
    [
        ({"matchExpressions": [{"key": "team", "operator": "In"}]}, "In and NotIn need values"),
        ({"matchExpressions": [{"key": "team", "operator": "Exists", "values": ["a"]}]}, "Exists and DoesNotExist have none"),
        ({"matchExpressions": [{"key": "team", "operator": "Like", "values": ["a"]}]}, "Unsupported value"),
        ({"matchLabels": "team"}, "must be of type object"),
    ],
)  # fmt: skip
def test_a_selector_that_cannot_be_right_is_refused_with_the_reason(
    cluster, namespace, selector, why
):
    body = load(OLD / "policy.yaml")
    body["spec"]["selector"] = selector
    with pytest.raises(KubectlFailed, match=why):
        cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(body))
