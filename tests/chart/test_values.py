"""Values that are wrong are refused by name, before anything reaches a cluster."""

import json
import re

import helm
import pytest
from helm import CHART, Refused, single, template
from ruamel.yaml import YAML

SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))
WRONG = {
    "an unknown key": ({"replicaCount": 2}, "additional properties 'replicaCount' not allowed"),
    "an unknown key of a section": ({"prometheus": {"adress": "http://p"}}, "/prometheus", "'adress'"),
    "a flavour": ({"prometheus": {"flavour": "cortex"}}, "/prometheus/flavour", "'prometheus'"),
    "an address without a scheme": ({"prometheus": {"url": "prometheus:9090"}}, "/prometheus/url"),
    "a number as text": ({"operator": {"workers": "2"}}, "/operator/workers", "want integer"),
    "no worker": ({"operator": {"workers": 0}}, "/operator/workers", "minimum"),
    "a part of a job": ({"operator": {"mostJobs": 0.5}}, "/operator/mostJobs"),
    "a kind of the wrong case": ({"rbac": {"kinds": ["jobset"]}}, "/rbac/kinds/0", "'JobSet'"),
    "a single namespace": ({"watchNamespaces": "team-a"}, "/watchNamespaces", "want array"),
    "a namespace that cannot be": ({"watchNamespaces": ["Team_A"]}, "/watchNamespaces/0"),
    "a digest without its algorithm": ({"image": {"digest": "0123"}}, "/image/digest"),
    "a tag that YAML reads as a number": ({"image": {"tag": 1.2}}, "/image/tag", "want string"),
    "yes": ({"leaderElection": {"enabled": "yes"}}, "/leaderElection/enabled", "want boolean"),
    "an annotation that is no text": ({"podAnnotations": {"scrape": True}}, "/podAnnotations/scrape"),
    "a port": ({"service": {"port": 70000}}, "/service/port", "maximum"),
    "a port among ports": ({"networkPolicy": {"apiServerPorts": [0]}}, "/networkPolicy/apiServerPorts/0"),
    "an interval": ({"serviceMonitor": {"interval": "30"}}, "/serviceMonitor/interval"),
    "a profile that is no object": ({"profiles": {"east": "h100"}}, "/profiles/east", "want object"),
    "a key of a Secret": ({"prometheus": {"auth": {"bearerTokenKey": "a/b"}}}, "/prometheus/auth/bearerTokenKey"),
    "two operators": ({"replicas": 2}, "replicas: more than one needs leaderElection.enabled"),
    "a budget for one": ({"podDisruptionBudget": {"enabled": True}}, "podDisruptionBudget.enabled: with one replica"),
    "two monitors": (
        {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}},
        "podMonitor.enabled: with serviceMonitor.enabled",
    ),
    "a key without its Secret": (
        {"prometheus": {"url": "http://p", "auth": {"basicAuthKey": "both"}}},
        "prometheus.auth.existingSecret: is missing",
    ),
    "a Secret without its key": (
        {"prometheus": {"url": "http://p", "auth": {"existingSecret": "s"}}},
        "prometheus.auth.existingSecret: needs",
    ),
    "two ways to say who asks": (
        {"prometheus": {"url": "http://p", "auth": {"existingSecret": "s", "basicAuthKey": "a", "bearerTokenKey": "b"}}},
        "prometheus.auth.basicAuthKey: one of",
    ),
    "an authority without a server": ({"prometheus": {"caConfigMap": "ca"}}, "prometheus.url: is missing"),
    "a priority class with a line of its own": (
        {"priorityClassName": "gold\nhostNetwork: true"},
        "/priorityClassName",
    ),
    "a tenant of Prometheus with a line of its own": (
        {"prometheus": {"url": "http://p", "orgId": "a\n- --verbose"}},
        "/prometheus/orgId",
    ),
    "an argument of two lines": ({"operator": {"extraArgs": ["--verbose\n- --dry-run"]}}, "/operator/extraArgs/0"),
    "a runtime class with a space": ({"runtimeClassName": "a b"}, "/runtimeClassName"),
    "a label that cannot be": ({"commonLabels": {"team": "a\nb: c"}}, "/commonLabels/team"),
    "a profile whose name is a line": ({"profiles": {"a\nlabels": {"gpu": "h100"}}}, "invalid propertyName"),
    "a registry with a space": ({"global": {"imageRegistry": "a b"}}, "/global/imageRegistry"),
    "scrapers that cannot say who they are": (
        {"podMonitor": {"enabled": True}, "operator": {"authenticate": True}},
        "podMonitor.enabled: operator.authenticate wants",
    ),
    "no account": ({"serviceAccount": {"create": False}}, "serviceAccount.name: is missing"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_value_is_refused_by_name(what):
    values, *says = WRONG[what]
    with pytest.raises(Refused) as refused:
        template(values)
    for part in says:
        assert part in str(refused.value)


def test_a_chart_above_may_hand_down_its_values():
    values = {
        "global": {
            "imageRegistry": "example.org",
            "theirs": 1,
            "imagePullSecrets": [{"name": "all"}],
        }
    }
    values["imagePullSecrets"] = [{"name": "own"}]
    pod = single(template(values), "Deployment")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"].startswith("example.org/mofa-advisor:")
    assert pod["imagePullSecrets"] == [{"name": "own"}, {"name": "all"}]


def texts(schema, path=()):
    """Every text of the schema: plain, in a list, in a map."""
    if schema.get("type") == "string":
        yield path, schema
    for key, inner in schema.get("properties", {}).items():
        yield from texts(inner, (*path, key))
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from texts(schema[key], (*path, key))


def test_every_text_has_a_pattern_that_no_line_gets_through():
    found = list(texts(SCHEMA))
    assert len(found) > 30
    for path, schema in found:
        assert "enum" in schema or "pattern" in schema, path
        if "pattern" in schema and path[-1] != "additionalProperties":
            assert re.fullmatch(schema["pattern"], "a\n- b: c") is None, path


def sections(schema, path=()):
    """Every object of the schema that has keys of its own."""
    if "properties" in schema:
        yield path, schema
        for key, inner in schema["properties"].items():
            yield from sections(inner, (*path, key))


def test_no_section_takes_keys_that_it_does_not_know():
    found = list(sections(SCHEMA))
    assert len(found) > 10
    open_ = [path for path, schema in found if schema["additionalProperties"] is not False]
    assert open_ == [("global",)], "what a chart above gives to all"


def test_every_value_is_in_the_schema_with_what_it_means():
    def leaves(values, schema, path=()):
        for key, value in values.items():
            inner = schema["properties"][key]
            if "properties" in inner:
                yield from leaves(value, inner, (*path, key))
            else:
                yield (*path, key), inner

    values = YAML(typ="safe").load(CHART / "values.yaml")
    found = dict(leaves(values, SCHEMA))
    assert len(found) > 60
    for path, schema in found.items():
        assert schema["description"].endswith("."), path
        assert schema["type"] in {"string", "number", "integer", "boolean", "array", "object"}
    readme = (CHART / "README.md").read_text("utf-8")
    assert [path for path in found if f"| `{'.'.join(path)}` |" not in readme] == []


def test_every_value_is_used_by_a_template():
    texts = "".join(
        path.read_text("utf-8") for path in (CHART / "templates").rglob("*") if path.is_file()
    )
    for path, _ in sections(SCHEMA):
        for key in path[-1:]:
            assert f".{key}" in texts, path
    leaves = {key for _, schema in sections(SCHEMA) for key in schema["properties"]} - {"global"}
    assert [key for key in leaves if f".{key}" not in texts] == []
    assert helm.CHART == CHART
