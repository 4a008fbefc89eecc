"""What helm makes of the chart: whole documents, arguments that the operator takes, objects that
fit each other.
"""

import json
import re
import shutil
import tomllib

import helm
import pytest
from helm import CHART, SETS, documents, single, template, text

from mofa_model.cli import main
from mofa_model.kinds import KINDS
from mofa_operator.observe.prometheus.flavours import Flavour
from mofa_operator.verbs.operator import flags

SELECTOR = {"app.kubernetes.io/name": "mofa-advisor", "app.kubernetes.io/instance": "mofa-advisor"}


@pytest.fixture(scope="module")
def rendered():
    """Every set of values, rendered once."""
    return {name: text(values, *options) for name, (values, options) in SETS.items()}


def container(objects):
    (found,) = single(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    return found


def test_helm_finds_nothing_to_say_about_the_chart():
    said = helm.run("lint", "--strict", f"--kube-version={helm.VERSION}", str(CHART))
    assert "1 chart(s) linted, 0 chart(s) failed" in said
    assert "[WARNING]" not in said


@pytest.mark.parametrize("name", SETS)
def test_every_document_is_an_object_and_none_is_there_twice(rendered, name):
    parts = re.split(r"^---$", rendered[name], flags=re.MULTILINE)[1:]
    objects = documents(rendered[name])
    assert len(parts) == len(objects)
    names = [
        (
            body["apiVersion"],
            body["kind"],
            body["metadata"].get("namespace"),
            body["metadata"]["name"],
        )
        for body in objects
    ]
    assert len(names) == len(set(names))
    assert "1e+0" not in rendered[name]
    assert not re.search(r"[ \t]$", rendered[name].replace("Source: ", ""), re.MULTILINE)


@pytest.mark.parametrize("name", SETS)
def test_the_arguments_are_flags_of_the_operator_and_it_takes_them(rendered, name, capsys):
    arguments = container(documents(rendered[name]))["args"]
    assert arguments[0] == "operator"
    known = {flag.name for flag in flags()}
    for argument in arguments[1:]:
        assert argument.startswith("--")
        assert argument.removeprefix("--").partition("=")[0] in known, argument
    assert main([*arguments, "--print-settings"]) == 0
    assert json.loads(capsys.readouterr().out)["lease"]["enabled"] == (
        "--lease-enabled" in arguments
    )


def test_values_reach_the_settings(rendered, capsys):
    def settings(name):
        assert main([*container(documents(rendered[name]))["args"], "--print-settings"]) == 0
        return json.loads(capsys.readouterr().out)

    extra = settings("pinned, with everything extra")
    assert (extra["serve"]["most_jobs"], extra["api"]["writes_per_second"]) == (1_000_000, 12.5)
    assert (extra["loop"]["settle"], extra["dry_run"], extra["log_format"]) == (5.0, True, "text")
    asked = settings("a token and an authority")["prometheus"]
    assert asked["org_id"] == "team a: #1"
    assert asked["bearer_token_file"] == "/etc/mofa/prometheus/token"
    assert asked["ca_file"] == "/etc/mofa/ca/ca.crt"
    assert settings("namespaced")["namespace"] == ["team-a", "team-b"]
    assert settings("our own kind only")["kinds"] == []
    assert settings("highly available")["lease"]["namespace"] == helm.HOME


def test_by_default_the_chart_asks_for_what_the_operator_does_by_itself_within_the_fence_that_it_brings(
    rendered, capsys
):
    assert main([*container(documents(rendered["default"]))["args"], "--print-settings"]) == 0
    given = json.loads(capsys.readouterr().out)
    assert main(["operator", "--print-settings", "--log-format=json", "--fence"]) == 0
    assert given == json.loads(capsys.readouterr().out)


def test_a_chart_without_the_fence_does_not_ask_for_its_proof():
    deployment = single(template({"admissionPolicy": {"enabled": False}}), "Deployment")
    assert "--fence" not in deployment["spec"]["template"]["spec"]["containers"][0]["args"]


@pytest.mark.parametrize("name", ["default", "Kueue asks first", "Kueue asks first, of a team"])
def test_what_kueue_asks_is_answered_and_may_be_only_where_that_is_switched_on(rendered, name):
    found = documents(rendered[name])
    rules = [
        rule for one in found if one["kind"] in {"ClusterRole", "Role"} for rule in one["rules"]
    ]
    written = {
        what for rule in rules if "patch" in rule["verbs"] for what in rule.get("resources", ())
    }
    asked = name != "default"
    assert ("--admission-checks" in container(found)["args"]) is asked
    assert ({"workloads/status", "admissionchecks/status"} <= written) is asked


@pytest.mark.parametrize("asked", [False, True])
def test_pods_may_be_listed_only_where_that_is_switched_on(asked):
    found = list(template({"rbac": {"pods": asked}}))
    rules = [rule for one in found if one["kind"] == "ClusterRole" for rule in one["rules"]]
    given = [rule["verbs"] for rule in rules if rule.get("resources") == ["pods"]]
    assert given == ([["list"]] if asked else [])
    assert ("--pods" in container(found)["args"]) is asked


def test_scrapers_are_asked_who_they_are(rendered):
    found = documents(rendered["scrapers are asked who they are"])
    assert "--authenticate" in container(found)["args"]
    rules = next(
        one
        for one in found
        if one["kind"] == "ClusterRole" and one["metadata"]["name"] == "mofa-advisor"
    )["rules"]
    asked = {one["resources"][0] for one in rules if one["verbs"] == ["create"]}
    assert {"tokenreviews", "subjectaccessreviews"} <= asked
    assert single(found, "ClusterRole", "mofa-advisor-metrics")["rules"] == [
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    ]
    assert single(found, "ServiceMonitor")["spec"]["endpoints"][0]["bearerTokenFile"].endswith(
        "/token"
    )
    policy = single(found, "NetworkPolicy")["spec"]
    there = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    assert there in policy["ingress"][0]["from"]
    assert [there] in [rule.get("to") for rule in policy["egress"]]
    default = documents(rendered["default"])
    assert not [one for one in default if one["metadata"]["name"].endswith("-metrics")], (
        "and otherwise has no such role"
    )


def test_a_house_has_its_habits(rendered):
    found = documents(rendered["another house's habits"])
    deployment = single(found, "Deployment")["spec"]
    pod = deployment["template"]["spec"]
    assert deployment["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0}}
    assert (pod["runtimeClassName"], pod["dnsPolicy"]) == ("gvisor", "Default")
    assert pod["dnsConfig"] == {"options": [{"name": "ndots", "value": "2"}]}
    assert container(found)["image"].startswith("registry.example.org:5000/mofa-advisor:")
    assert container(found)["readinessProbe"]["failureThreshold"] == 6
    assert container(found)["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}
    assert single(found, "ConfigMap", "more")["data"] == {"a": "b"}


def test_kinds_and_flavours_of_the_chart_are_those_of_the_operator():
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))["properties"]
    assert schema["rbac"]["properties"]["kinds"]["items"]["enum"] == [
        kind.setting for kind in KINDS
    ]
    assert schema["prometheus"]["properties"]["flavour"]["enum"] == [one.value for one in Flavour]
    role = single(
        template({"rbac": {"kinds": [kind.setting for kind in KINDS]}}),
        "ClusterRole",
        "mofa-advisor",
    )
    allowed = {(rule["apiGroups"][0], rule["resources"][0]) for rule in role["rules"]}
    assert {(kind.group, kind.plural) for kind in KINDS} <= allowed


def test_files_that_arguments_name_are_mounted(rendered):
    for name in ("a token and an authority", "user and password, unchecked"):
        deployment = single(documents(rendered[name]), "Deployment")
        pod = deployment["spec"]["template"]["spec"]
        mounts = {one["name"]: one for one in pod["containers"][0]["volumeMounts"]}
        volumes = {one["name"]: one for one in pod["volumes"]}
        assert set(mounts) == set(volumes)
        assert (
            "subPath" not in mounts["prometheus-auth"]
        )  # a file mounted alone would not follow its Secret
        (item,) = volumes["prometheus-auth"]["secret"]["items"]
        assert any(
            argument.endswith(f"-file={mounts['prometheus-auth']['mountPath']}/{item['path']}")
            for argument in pod["containers"][0]["args"]
        )


def test_selectors_find_the_operators_pod_and_not_that_of_the_test(rendered):
    objects = documents(rendered["page behind a network policy"])
    tested = single(objects, "Pod")["metadata"]["labels"]
    pod = single(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    policy = single(objects, "NetworkPolicy")["spec"]
    for selector in (
        single(objects, "Service")["spec"]["selector"],
        single(objects, "Deployment")["spec"]["selector"]["matchLabels"],
        policy["podSelector"]["matchLabels"],
    ):
        assert selector == SELECTOR
        assert selector.items() <= pod.items()
        assert not selector.items() <= tested.items()
    peers = [
        peer.get("podSelector", {}).get("matchLabels") for peer in policy["ingress"][0]["from"]
    ]
    assert peers[0].items() <= tested.items()


def test_probes_and_services_name_ports_that_the_operator_opens(rendered):
    made = container(documents(rendered["default"]))
    ports = {port["name"]: port["containerPort"] for port in made["ports"]}
    defaults = {flag.name: flag.default for flag in flags()}
    assert ports == {"metrics": defaults["metrics-port"], "health": defaults["health-port"]}
    for probe in ("livenessProbe", "readinessProbe"):
        assert made[probe]["httpGet"]["port"] == "health"
        assert made[probe]["timeoutSeconds"] < made[probe]["periodSeconds"]


def test_one_operator_writes_at_a_time(rendered):
    assert single(documents(rendered["default"]), "Deployment")["spec"]["strategy"] == {
        "type": "Recreate"
    }
    pair = documents(rendered["highly available"])
    assert single(pair, "Deployment")["spec"]["strategy"] == {"type": "RollingUpdate"}
    assert "--lease-enabled" in container(pair)["args"]
    (spread,) = single(pair, "Deployment")["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"
    assert single(pair, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize("name", ["highly available", "pinned, with everything extra"])
def test_the_lease_is_the_accounts_own_as_the_fence_wants_it(name):
    values, options = SETS[name]
    objects = template(values | {"leaderElection": {"enabled": True}}, *options, namespace="ml")
    account = single(objects, "ServiceAccount")["metadata"]["name"]
    assert f"--lease-name={account}" in container(objects)["args"]
    assert "--lease-namespace=ml" in container(objects)["args"]
    (held,) = (rule for rule in single(objects, "Role")["rules"] if "resourceNames" in rule)
    assert held["resourceNames"] == [account]
    fence = next(one for one in objects if one["metadata"]["name"].endswith("-fence"))
    (condition,) = fence["spec"]["matchConditions"]
    assert f'"system:serviceaccount:ml:{account}"' in condition["expression"]
    subjects = [
        subject
        for one in objects
        if one["kind"].endswith("RoleBinding")
        for subject in one["subjects"]
    ]
    assert {(subject["namespace"], subject["name"]) for subject in subjects} == {("ml", account)}


def test_releases_that_watch_namespaces_can_be_many_and_one_that_watches_all_is_alone():
    def outside(values, namespace):
        return {
            (body["kind"], body["metadata"]["name"])
            for body in template(values, namespace=namespace)
            if "namespace" not in body["metadata"] and body["kind"] != "CustomResourceDefinition"
        }

    some = {"watchNamespaces": ["team-a"]}
    assert not outside(some, "one") & outside(some, "two")
    assert outside({}, "one") == outside({}, "two")  # helm refuses the second for its names


def test_without_apply_no_change_of_a_spec_is_admitted(rendered):
    def fence(name):
        return json.dumps(
            single(documents(rendered[name]), "ValidatingAdmissionPolicy", "mofa-advisor-fence")[
                "spec"
            ]
        )

    assert "variables.launch" in fence("default")
    assert "launch" not in fence("JobSets only, never started")


@pytest.mark.parametrize("name", ["namespaced", "namespaced with the default namespace"])
def test_roles_in_namespaces_allow_what_the_cluster_role_allows_otherwise(rendered, name):
    def rights(roles, among=None):
        return {
            (group, resource, verb)
            for role in roles
            for rule in role["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
            if among is None or role["metadata"].get("namespace") in among
        }

    def roles(objects, *kinds):
        return [
            one
            for one in objects
            if one["kind"] in kinds and not one["metadata"]["name"].endswith(("-view", "-edit"))
        ]

    whole = rights(roles(documents(rendered["default"]), "ClusterRole"))
    some = documents(rendered[name])
    cluster = rights(roles(some, "ClusterRole"))
    left = whole - cluster
    for namespace in SETS[name][0]["watchNamespaces"]:
        assert rights(roles(some, "Role"), {namespace}) == left
    assert {right[1] for right in cluster} == {
        "clusterprofiles",
        "clusterprofiles/status",
        "failureledgers",
        "failureledgers/status",
        "namespaces",
        "nodes",
        "clustertrainingruntimes",
        "deviceclasses",
    }
    assert ("", "events", "create") in rights(roles(some, "Role"), {"default"})


def test_only_the_kinds_that_are_named_can_be_read(rendered):
    role = single(documents(rendered["JobSets only, never started"]), "ClusterRole", "mofa-advisor")
    groups = {group for rule in role["rules"] for group in rule["apiGroups"]}
    assert groups == {
        "mofa.dev",
        "jobset.x-k8s.io",
        "",
        "resource.k8s.io",
    }  # what its pods may claim, and no runtimes


def test_what_a_cluster_does_not_know_is_left_out():
    for name in ("monitor, rules and dashboards", "pod monitor", "profiles and policies"):
        kinds = {body["apiVersion"] for body in template(SETS[name][0])}
        assert not {"monitoring.coreos.com/v1", "mofa.dev/v1alpha1"} & kinds
    rendered = template(SETS["profiles and policies"][0] | {"crds": {"enabled": False}})
    assert single(rendered, "ClusterProfile", "east")  # somebody else brings the definitions


def test_definitions_are_those_of_the_crds_folder_and_stay():
    for body in template():
        if body["kind"] == "CustomResourceDefinition":
            metadata = body["metadata"]
            (path,) = (helm.ROOT / "crds").glob(f"*_{metadata['name'].partition('.')[0]}.yaml")
            (source,) = documents(path.read_text("utf-8"))
            assert body["spec"] == source["spec"]
            assert metadata["annotations"] == {"helm.sh/resource-policy": "keep"}
    gone = [
        body
        for body in template(
            {"crds": {"keep": False}, "profiles": {"east": {"gpu": "b200"}}}, *helm.KNOWN
        )
        if "annotations" in body["metadata"] and body["kind"] != "Pod"
    ]
    assert gone == []


def test_a_runbook_url_is_the_operator_s_own_until_somebody_says_where_runbooks_are_read():
    def alerts(**value):
        rule = single(
            template({"prometheusRule": {"enabled": True, **value}}, *helm.MONITORED),
            "PrometheusRule",
        )
        return [
            each for group in rule["spec"]["groups"] for each in group["rules"] if "alert" in each
        ]

    for given, wanted in (
        ({}, f"http://mofa-advisor.{helm.HOME}.svc:8080/runbooks/NAME"),
        ({"runbooks": "https://docs.example.org/mofa/"}, "https://docs.example.org/mofa/NAME"),
        (
            {"runbooks": "https://git.example.org/docs/NAME.md"},
            "https://git.example.org/docs/NAME.md",
        ),
    ):
        found = {each["alert"]: each["annotations"]["runbook_url"] for each in alerts(**given)}
        assert len(found) >= 15
        assert found == {name: wanted.replace("NAME", name) for name in found}


def test_rules_and_dashboards_are_those_of_the_deploy_folder(rendered):
    objects = documents(rendered["monitor, rules and dashboards"])
    (source,) = documents(
        (helm.ROOT / "deploy" / "rules" / "prometheusrule.yaml").read_text("utf-8")
    )
    assert single(objects, "PrometheusRule")["spec"] == source["spec"]
    shown = {}
    for body in objects:
        if body["kind"] == "ConfigMap":
            shown |= body["data"]
            assert body["metadata"]["labels"]["grafana_dashboard"] == "1"
    boards = sorted((helm.ROOT / "deploy" / "grafana").glob("*.json"))
    assert {name: json.loads(board) for name, board in shown.items()} == {
        f"mofa-{path.name}": json.loads(path.read_text("utf-8")) for path in boards
    }


def test_the_image_is_of_the_charts_version_or_pinned(rendered):
    version = tomllib.loads((helm.ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert container(documents(rendered["default"]))["image"] == f"mofa-advisor:{version}"
    pinned = container(documents(rendered["pinned, with everything extra"]))["image"]
    assert pinned == f"images.example.org/ml/mofa-advisor@{helm.DIGEST}"


@pytest.mark.parametrize(
    "values, says",
    [
        ({}, "prometheus.url is empty"),
        ({"profiles": {"east": {"gpu": "b200"}}}, "ONCE MORE"),
        ({"serviceMonitor": {"enabled": True}}, "does not know monitoring.coreos.com/v1"),
        ({"admissionPolicy": {"enabled": False}}, "only its roles hold the operator back"),
        ({"watchNamespaces": ["team-a"]}, "looks at the namespaces team-a."),
    ],
)
def test_the_notes_say_what_was_left_out(values, says, tmp_path):
    # helm shows notes to people who install; as a value of an object it shows them here.
    copy = shutil.copytree(CHART, tmp_path / "chart")
    notes = (copy / "templates" / "NOTES.txt").rename(copy / "templates" / "notes.yaml")
    body = notes.read_text("utf-8")
    notes.write_text(
        f'{{{{ define "notes" }}}}{body}{{{{ end }}}}notes: {{{{ include "notes" . | quote }}}}\n',
        "utf-8",
    )
    shown = helm.run(
        "template", helm.RELEASE, str(copy), f"--namespace={helm.HOME}", f"--kube-version={helm.VERSION}",
        "--show-only=templates/notes.yaml", values=values,
    )  # fmt: skip
    ((made,)) = documents(shown)
    assert says in " ".join(made["notes"].split())
    assert "\n\n\n" not in made["notes"]
