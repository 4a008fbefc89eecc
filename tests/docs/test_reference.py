"""The reference is complete: whatever the code has a name for, a page explains; counted here from
the code, not by the tool.
"""

import argparse
import importlib
import re
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

pytest.importorskip("aiohttp", reason="the reference needs the extra `operator`")

from mofa_model.annotations import FINISH, INPUTS, MEASURED, OUTPUTS, PREFIX, RECORD, RUNS
from mofa_operator import words
from mofa_operator.metrics.declared import TABLE
from mofa_operator.verbs import operator

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CRDS = sorted((ROOT / "crds").glob("*.yaml"))


@pytest.fixture(scope="module")
def reference():
    """tools/reference.py."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        yield importlib.import_module("reference")
    finally:
        sys.path.remove(str(ROOT / "tools"))


def read(name):
    return (DOCS / name).read_text(encoding="utf-8")


def cells(text):
    """First cells of all rows of tables, without their code marks."""
    return {
        name
        for row in re.findall(r"^\| (.*?) \|", text, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", row)
    }


def paths(schema, path=""):
    """Every path below a schema that has a name."""
    for name, inner in (schema.get("properties") or {}).items():
        here = f"{path}.{name}".lstrip(".")
        yield here
        yield from paths(inner, here)
    items = schema.get("items")
    if items:
        yield from paths(items, path + "[]")


def test_the_pages_are_what_the_code_says(reference):
    for name, text in reference.pages().items():
        assert read(f"reference/{name}") == text, (
            f"docs/reference/{name}: run `python tools/reference.py`"
        )


@pytest.mark.parametrize("path", CRDS, ids=lambda path: path.stem)
def test_every_field_of_a_kind_is_in_the_section_of_that_kind(path):
    crd = YAML(typ="safe").load(path)
    kind = crd["spec"]["names"]["kind"]
    section = re.search(
        rf"^## {kind}\n(.*?)(?=^## |\Z)", read("reference/crds.md"), re.MULTILINE | re.DOTALL
    )[1]
    version = crd["spec"]["versions"][0]
    known = {
        one
        for one in paths(version["schema"]["openAPIV3Schema"])
        if one.split(".")[0] not in {"apiVersion", "kind", "metadata"}
    }
    assert len(known) > 20
    assert known - cells(section) == set()
    assert {one["name"] for one in version["additionalPrinterColumns"]} - cells(section) == set()
    said = section.replace("\\|", "|")
    assert [
        rule
        for rule in re.findall(r"rule: (.+)", path.read_text())
        if rule.strip("'\"").replace("''", "'") not in said
    ] == []


def test_every_field_has_a_meaning():
    rows = [
        line
        for line in read("reference/crds.md").splitlines()
        if re.match(r"\| `(spec|status)", line)
    ]
    bare = [line for line in rows if line.count(" | ") == 4 and line.rstrip("| ").endswith(" |")]
    assert len(rows) > 250
    assert [line for line in rows if re.search(r"\|\s*\|$", line)] == bare == []


def test_every_annotation_is_documented_once():
    known = {
        key.removeprefix(PREFIX) for key in (*INPUTS, *OUTPUTS, RECORD, RUNS, MEASURED, FINISH)
    }
    assert cells(read("reference/annotations.md")) == known


def test_every_flag_of_the_operator_is_documented_with_its_variable():
    parser = argparse.ArgumentParser()
    operator.configure(parser)
    known = {flag for action in parser._actions for flag in action.option_strings} - {
        "-h",
        "--help",
    }
    shown = cells(read("reference/settings.md"))
    of_the_command = {"--kubeconfig", "--print-settings"}
    assert known - of_the_command == {flag for flag in shown if flag.startswith("--")}
    assert "--print-settings" in read("reference/settings.md")
    assert "--kubeconfig" in read("reference/settings.md")
    variables = set(re.findall(r"`(MOFA_[A-Z_]+)`", read("reference/settings.md")))
    positive = {flag for flag in shown if flag.startswith("--") and not flag.startswith("--no-")}
    assert variables == {"MOFA_" + flag[2:].upper().replace("-", "_") for flag in positive}


def test_every_condition_reason_and_event_is_documented():
    page = read("reference/conditions.md")
    assert {aspect.value for aspect in words.Aspect} <= set(
        re.findall(r"^## (\w+)$", page, re.MULTILINE)
    )
    before, events = page.split("## Events")
    assert cells(before) == {word.value for kind in (words.Reason, words.Health) for word in kind}
    assert cells(events) == {event.value for event in words.Happened}


def test_every_metric_is_documented():
    assert [one.name for one in TABLE if f"`{one.name}`" not in read("metrics.md")] == []


def test_every_alert_has_a_runbook_and_every_runbook_an_alert():
    rules = YAML(typ="safe").load(ROOT / "deploy/rules/mofa-alerts.yaml")
    alerts = {
        rule["alert"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule
    }
    assert {path.stem for path in (DOCS / "runbooks").glob("Mofa*.md")} == alerts
    assert [alert for alert in alerts if f"]({alert}.md)" not in read("runbooks/README.md")] == []


def test_every_word_is_said_by_some_code():
    """A reason that nothing gives would be documented in vain."""
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "operator/mofa_operator").rglob("*.py")
        if path.name != "words.py"
    )
    verdicts = {
        "CONSISTENT",
        "DRIFTS",
        "HIGHER_THAN_ASSUMED",
        "LOWER_THAN_ASSUMED",
        "INSUFFICIENT_DATA",
    }  # the model's own words
    unsaid = [
        f"{kind.__name__}.{member.name}"
        for kind in (words.Reason, words.Happened, words.Aspect)
        for member in kind
        if f"{kind.__name__}.{member.name}" not in code
    ]
    by_table = {f"Reason.{name}" for name in (*verdicts, "PAUSED")} | {
        "Aspect.CONFIDENCE_SUFFICIENT"
    }
    assert set(unsaid) <= by_table


def test_a_name_that_the_source_does_not_explain_is_refused(reference):
    with pytest.raises(reference.Missing, match=r"say what b of \[annotations\]"):
        reference.explained({"a": 1}, ["a", "b"], "annotations")
    with pytest.raises(reference.Missing, match="names c, which the code does not have"):
        reference.explained({"a": 1, "c": 1}, ["a"], "annotations")
