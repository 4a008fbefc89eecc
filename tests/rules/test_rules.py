"""Rules and alerts: made from their source, read by the real promtool, each one tested, each
series known.
"""

import importlib.util
import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from mofa_local import binaries
from mofa_local.processes import COLLECTED
from promql_names import series
from ruamel.yaml import YAML

from mofa_operator.metrics.declared import TABLE
from mofa_operator.page.server import PATH, runbook_page

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = Path(__file__).resolve().parent
RULES = ROOT / "deploy" / "rules"
FILES = sorted(HERE.glob("*.test.yaml"))


def module(name):
    spec = importlib.util.spec_from_file_location(f"tool_{name}", ROOT / "tools" / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


tool = module("rules")
ALL = [rule for group in tool.groups() for rule in group["rules"]]
RECORDED = {rule["record"]: rule for rule in ALL if "record" in rule}
ALERTS = {rule["alert"]: rule for rule in ALL if "alert" in rule}
DECLARED = {name for declared in TABLE for name in declared.series}


@cache
def read(path):
    return YAML(typ="safe").load(path)


def every_case():
    return [case for path in FILES for case in read(path)["tests"]]


WITH_EXAMPLE = {one["alert"] for one in tool.alerts() if "example" in one}
"""Alerts that are tested where they are declared: silent at one moment, firing at another."""


@pytest.fixture(scope="session")
def promtool():
    return binaries.path("promtool")


def test_the_files_are_what_the_source_says():
    for path, text in tool.files().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `make rules`"


def test_the_manifest_holds_the_same_rules_as_the_plain_files():
    plain = (
        read(RULES / "mofa-recording.yaml")["groups"] + read(RULES / "mofa-alerts.yaml")["groups"]
    )
    assert read(RULES / "prometheusrule.yaml")["spec"]["groups"] == plain


def test_no_parameter_is_left_unfilled_or_unused():
    text = "".join(text for path, text in tool.files().items() if path.parent == RULES)
    assert not re.findall(r"<[a-z_]+(?:\.seconds)?>", text)
    sources = "".join(
        (RULES / "source" / f"{name}.yaml").read_text(encoding="utf-8") for name in tool.GROUPS
    )
    used = set(re.findall(r"<([a-z_]+)(?:\.seconds)?>", sources))
    assert set(tool.parameters()) == used


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.get("record") or rule["alert"])
def test_a_rule_reads_only_series_that_somebody_exports(rule):
    assert series(rule["expr"]) <= DECLARED | set(tool.inputs()) | set(RECORDED)


def test_a_rule_reads_only_what_was_recorded_before_it():
    seen = set()
    for rule in ALL:
        read = series(rule["expr"]) & set(RECORDED)
        later = read - seen - {rule.get("record")}
        assert not later, f"{rule.get('record') or rule['alert']} reads {later}, which comes later"
        seen.add(rule.get("record"))


def test_what_is_recorded_never_grows_stale_between_two_evaluations():
    looks_back = tool.seconds("5m")  # Prometheus' own default
    assert all(tool.seconds(group["interval"]) < looks_back for group in tool.groups())


@pytest.mark.parametrize("name", RECORDED)
def test_a_recording_rule_is_tested_with_a_value(name):
    word = re.compile(rf"(?<![\w:]){re.escape(name)}(?![\w:])")
    tested = [
        one
        for case in every_case()
        for one in case.get("promql_expr_test", ())
        if word.search(one["expr"])
    ]
    assert any(one["exp_samples"] for one in tested)


@pytest.mark.parametrize("name", sorted(set(ALERTS) - WITH_EXAMPLE))
def test_an_alert_is_tested_firing_and_silent(name):
    tested = [
        one
        for case in every_case()
        for one in case.get("alert_rule_test", ())
        if one["alertname"] == name
    ]
    assert any(one["exp_alerts"] for one in tested)
    assert any(not one["exp_alerts"] for one in tested)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_how_bad_it_is_what_it_means_and_where_to_read_on(name):
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in {"critical", "warning"}
    address = urlsplit(alert["annotations"]["runbook_url"])
    assert address.netloc == "mofa-advisor.mofa-system.svc:8080", "the operator's own Service"
    assert f"<h1>{name}</h1>" in runbook_page(address.path.removeprefix(PATH))
    assert not alert["annotations"]["summary"].endswith(".")
    assert alert["annotations"]["description"].endswith(".")


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_a_runbook_that_says_what_to_look_at_and_what_to_do(name):
    page = (ROOT / "docs" / "runbooks" / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {name}\n")
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert headings == ["What it means", "How to look", "What to do"]


def test_no_runbook_is_of_an_alert_that_is_no_more():
    pages = {path.stem for path in (ROOT / "docs" / "runbooks").glob("*.md")} - {"README"}
    assert pages == set(ALERTS)


@pytest.mark.parametrize(
    "expression, read",
    [
        ('sum by (a) (rate(x_total{job="y"}[5m])) / on (b) group_left (c) z', {"x_total", "z"}),
        ('label_replace(mofa:a:b, "n", "$1", "m", "(.+)") unless q offset 5m', {"mofa:a:b", "q"}),
        ("(up == bool 1)[30d:5m] and vector(1) > 1e-3", {"up"}),
    ],
)
def test_the_names_of_an_expression(expression, read):
    assert series(expression) == read


@pytest.mark.slow
def test_promtool_accepts_the_rules(promtool):
    files = [RULES / "mofa-recording.yaml", RULES / "mofa-alerts.yaml"]
    done = subprocess.run(
        [promtool, "check", "rules", "--lint=all", "--lint-fatal", *files],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_an_alert_with_an_example_is_silent_and_fires_as_it_says(promtool, tmp_path):
    made = tmp_path / "examples.test.yaml"
    made.write_text(json.dumps(tool.examples()))
    good, said = accepted(promtool, made)
    assert good, said


def asked_for(case):
    """Names of the rules that a case asks for, and of those that these read."""
    alerts = {one["alertname"] for one in case.get("alert_rule_test", ())}
    asked = [one["expr"] for one in case.get("promql_expr_test", ())]
    patterns = re.findall(r'__name__=~"([^"]+)"', " ".join(asked))
    more = {name for name in RECORDED for pattern in patterns if re.fullmatch(pattern, name)}
    more |= set().union(*map(series, [*asked, *(ALERTS[name]["expr"] for name in alerts)]))
    found = set(alerts)
    while more := more & set(RECORDED) - found:
        found |= more
        more = set().union(*(series(RECORDED[name]["expr"]) for name in more))
    return found


def alone(path, folder):
    """Each case of a file as a file of its own, with no other rules than it asks for."""
    whole, groups = read(path), read(RULES / "prometheusrule.yaml")["spec"]["groups"]
    for at, case in enumerate(whole["tests"]):
        names = asked_for(case)
        kept = [
            group
            | {
                "rules": [
                    rule
                    for rule in group["rules"]
                    if names & {rule.get("record"), rule.get("alert")}
                ]
            }
            for group in groups
        ]
        rules, tests = folder / f"{at}.rules.yaml", folder / f"{at}.test.yaml"
        rules.write_text(json.dumps({"groups": kept}))
        tests.write_text(json.dumps(whole | {"rule_files": [str(rules)], "tests": [case]}))
        yield tests


def accepted(promtool, *paths):
    command = [promtool, "test", "rules", *paths]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | COLLECTED
    )
    return done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_promtool_finds_the_rules_to_do_what_the_tests_say(promtool, path, tmp_path):
    good, said = accepted(promtool, *alone(path, tmp_path))
    assert good, said


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.soak] * (path.name != "pods.test.yaml"))
        for path in FILES
    ],
)
def test_no_rule_stumbles_over_what_another_is_tested_with(promtool, path):
    """All rules beside each case: none fails, and none changes what the case expects."""
    good, said = accepted(promtool, path)
    assert good, said
