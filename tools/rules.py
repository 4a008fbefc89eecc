"""Make deploy/rules/*.yaml from deploy/rules/source: rules with their parameters filled in; --check
compares.

mofa-recording.yaml and mofa-alerts.yaml are for `rule_files`; prometheusrule.yaml is the same for
the Prometheus operator. Each alert's runbook in docs/runbooks, and the tables that list all alerts,
are made from the same source.
"""

import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from mofa_model.kinds import LABELS, PodLabels
from mofa_model.manifest.cluster_profile import EXPORTERS
from mofa_operator.observe.prometheus.promql import any_of, node_label

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "deploy" / "rules"
SOURCE = FOLDER / "source"
DOCS = ROOT / "docs"
BEGIN, END = "<!-- alerts -->", "<!-- end of alerts -->"
"""Between these a document has the table of all alerts."""
TOLD = ("line", "runbook", "example")
"""Fields of an alert that are for people and tests, and no part of the rule."""
GROUPS = ("nodes", "history", "pods", "jobs", "alerts")
HEADER = "# Made by `make rules` from deploy/rules/source; do not edit.\n"
NAMESPACE = "mofa-system"
"""Namespace of the operator; the chart puts its release's in this place, and its value
`prometheusRule.exporterNamespaces` in that of these.
"""
RUNBOOKS = f"http://mofa-advisor.{NAMESPACE}.svc:8080/runbooks"
"""Where the operator serves docs/runbooks; the chart puts its release's Service in this place, or
its value `prometheusRule.runbooks`.
"""
PLACED = {
    r"mofa:[a-z0-9_]+:[a-z0-9_]+": 'namespace=""',
    r"mofa_(?:job|pool|advisor)_[a-z_]+|process_start_time_seconds": f'namespace=~"|{NAMESPACE}"',
    (
        r"kube_node_[a-z_]+|node_[a-z_]+_seconds|health_events_total|fault_quarantine_[a-z_]+|up"
    ): f'namespace=~"|{any_of(EXPORTERS)}"',
}
"""Where the scrape of a series must say that its target runs, for it to be believed: what was
recorded has no target.
"""
SERIES = re.compile(rf"(?<![\w:])({'|'.join([*PLACED, 'mofa_train_[a-z_]+'])})(?![\w:])(\{{?)")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MANIFEST = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: mofa-advisor
  labels:
    app.kubernetes.io/name: mofa-advisor
    app.kubernetes.io/part-of: mofa-advisor
spec:
"""


def load(path: Path) -> Any:
    """A YAML file's content; every scalar that is not quoted as YAML 1.2 reads it."""
    return YAML(typ="safe").load(path)


def parameters() -> dict[str, Any]:
    """The parameters of all rules, by name; `job_pods` is made from mofa_model/kinds."""
    return {**load(SOURCE / "parameters.yaml"), "job_pods": job_pods()}


def job_pods() -> str:
    """Labels of the pods of every kind of jobs, with job, attempt and slot of a pod."""
    return "\nor ".join(_job_pods(labels) for labels in LABELS)


def _job_pods(labels: PodLabels) -> str:
    """Labels of the pods of one kind; a pod without a place has its name in that label.

    The series is first reduced to the labels that are read: the new ones may exist already.
    """
    names_read = [name for name in (labels.job, labels.attempt, *labels.slot) if name]
    kept = ", ".join(["cluster", "namespace", "pod", "uid", *map(node_label, names_read)])
    pods = f'max by ({kept}) (\n  kube_pod_labels{{{node_label(labels.job)}!=""}}\n)'
    if labels.slot:
        names = ", ".join(f'"{node_label(name)}"' for name in labels.slot)
        pods = f'label_join(\n{textwrap.indent(pods, "  ")},\n  "slot", "-",\n  {names}\n)'
    if labels.attempt:
        pods = _replaced(pods, "attempt", node_label(labels.attempt), "(.*)")
    pods = _replaced(pods, "training_job", node_label(labels.job), labels.pattern)
    return pods if labels.slot else _replaced(pods, "slot", "pod", "(.+)")


def _replaced(series: str, label: str, source: str, match: str) -> str:
    return (
        f'label_replace(\n{textwrap.indent(series, "  ")},\n  "{label}", "$1", "{source}", '
        f'"{match}"\n)'
    )


def inputs() -> dict[str, Any]:
    """Series of other exporters that rules and dashboards may read."""
    return dict(load(SOURCE / "inputs.yaml"))


def seconds(duration: str) -> int:
    """A duration of PromQL with one unit, as seconds.

    >>> seconds("30d")
    2592000
    """
    return int(duration[:-1]) * SECONDS[duration[-1]]


def fill(text: str, values: dict[str, Any]) -> str:
    """Put parameters where a text names them.

    >>> fill("rate(x[<window>]) * <window.seconds>", {"window": "2m"})
    'rate(x[2m]) * 120'
    """

    def put(match: re.Match[str]) -> str:
        value = values[match[1]]
        indent = match.start() - text.rfind("\n", 0, match.start()) - 1
        return str(seconds(value)) if match[2] else str(value).replace("\n", "\n" + " " * indent)

    return re.sub(r"<([a-z_]+)(\.seconds)?>", put, text)


def groups(values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The groups of rules as Prometheus reads them, and `about` of each recording rule."""
    values_given = parameters() if values is None else values
    return [_group(load(SOURCE / f"{name}.yaml"), values_given) for name in GROUPS]


def _group(source: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    rules = [
        _rule(
            {
                name: fill(str(text), values).strip()
                for name, text in rule.items()
                if name not in TOLD
            }
        )
        for rule in source["rules"]
    ]
    return {"name": source["name"], "interval": fill(source["interval"], values), "rules": rules}


def attested(expression: str) -> str:
    """An expression in which no target speaks for others: labels of the scrape count, never those
    of the payload.

    >>> attested("max by (pool) (mofa_pool_member)"), attested("rate(mofa:a:b[5m])")
    ('max by (pool) (mofa_pool_member{namespace=~"|mofa-system"})',
    'rate(mofa:a:b{namespace=""}[5m])')
    """

    def put(match: re.Match[str]) -> str:
        name, brace = match[1], match[2]
        condition = next(
            (labels for names, labels in PLACED.items() if re.fullmatch(names, name)), ""
        )
        if not condition:
            placed = f'max by (cluster, namespace, training_job) ({name}{{namespace!=""}})'
            return (
                f'(label_replace({placed}, "training_namespace", "$1", "namespace", "(.+)") or '
                f'{name}{{namespace=""}})'
            )
        return f"{name}{{{condition}" + (", " if brace else "}")

    return SERIES.sub(put, expression)


def _rule(given: dict[str, str]) -> dict[str, Any]:
    given = given | {"expr": attested(given["expr"])}
    if "record" in given:
        return given
    return {
        "alert": given["alert"],
        "expr": given["expr"],
        "for": given["for"],
        "labels": {"severity": given["severity"]},
        "annotations": {
            "summary": given["summary"],
            "description": given["description"],
            "runbook_url": f"{RUNBOOKS}/{given['alert']}",
        },
    }


def written(chosen: list[dict[str, Any]]) -> str:
    """Groups as YAML, with the reason of each recording rule above it."""
    lines = ["groups:"]
    for group in chosen:
        lines += [f"  - name: {group['name']}", f"    interval: {group['interval']}", "    rules:"]
        lines += [textwrap.indent(_written(rule), " " * 6) for rule in group["rules"]]
    return "\n".join(lines) + "\n"


def _written(rule: dict[str, Any]) -> str:
    kind = "record" if "record" in rule else "alert"
    lines = [f"# {line}" for line in textwrap.wrap(rule.get("about", ""), 110)]
    lines += [f"- {kind}: {rule[kind]}", "  expr: |-", textwrap.indent(rule["expr"], " " * 4)]
    if kind == "alert":
        lines.append(f"  for: {rule['for']}")
        for part in ("labels", "annotations"):
            lines.append(f"  {part}:")
            lines += [
                f"    {name}: {json.dumps(text, ensure_ascii=False)}"
                for name, text in rule[part].items()
            ]
    return "\n".join(lines)


def files() -> dict[Path, str]:
    """Files of deploy/rules and pages, with the text that each should have."""
    made = groups()
    alerts = [group for group in made if group["name"] == "mofa.alerts"]
    recording = [group for group in made if group not in alerts]
    return {
        FOLDER / "mofa-recording.yaml": HEADER + written(recording),
        FOLDER / "mofa-alerts.yaml": HEADER + written(alerts),
        FOLDER / "prometheusrule.yaml": HEADER + MANIFEST + textwrap.indent(written(made), "  "),
        **pages(),
    }


def alerts() -> list[dict[str, Any]]:
    """The alerts as the source has them, with `line`, `runbook` and `example`."""
    return list(load(SOURCE / "alerts.yaml")["rules"])


def pages() -> dict[Path, str]:
    """The documents that follow from the alerts."""
    made = {DOCS / "runbooks" / f"{alert['alert']}.md": runbook(alert) for alert in alerts()}
    rows = [
        f"| [{alert['alert']}]({alert['alert']}.md) | {alert['severity']} | {alert['line']} |"
        for alert in alerts()
    ]
    index = ["| Alert | Severity | In one line |", "|---|---|---|", *rows]
    symptoms = ["| what you see | what to do |", "|---|---|"]
    symptoms += [
        f"| {alert['line']} | [{alert['alert']}](runbooks/{alert['alert']}.md) |"
        for alert in alerts()
    ]
    tables = {DOCS / "runbooks" / "README.md": index, DOCS / "troubleshooting.md": symptoms}
    for path, table in tables.items():
        before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
        made[path] = f"{before}{BEGIN}\n" + "\n".join(table) + f"\n{END}{rest.partition(END)[2]}"
    return made


def runbook(alert: dict[str, Any]) -> str:
    """The page of an alert."""
    if missing := [key for key in ("severity", "line", "runbook") if key not in alert]:
        sys.exit(
            f"rules: {alert['alert']}: {' and '.join(missing)}: missing; see the head of "
            "alerts.yaml"
        )
    return f"# {alert['alert']}\n\n{alert['runbook']}"


def examples() -> dict[str, Any]:
    """A file of promtool's tests: each `example` of an alert, when it is silent and when
    it fires.
    """
    return {
        "rule_files": [str(FOLDER / "mofa-alerts.yaml")],
        "evaluation_interval": "1m",
        "tests": [_example(alert, alert["example"]) for alert in alerts() if "example" in alert],
    }


def _example(alert: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    labels = {
        "alertname": alert["alert"],
        "alertstate": "firing",
        "severity": alert["severity"],
        **example.get("labels", {}),
    }
    shown = ", ".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
    asked = f'ALERTS{{alertname="{alert["alert"]}", alertstate="firing"}}'
    fires = [{"labels": f"ALERTS{{{shown}}}", "value": 1}]
    return {
        "interval": "1m",
        "input_series": [
            {"series": name, "values": samples} for name, samples in example["series"].items()
        ],
        "promql_expr_test": [
            {"expr": asked, "eval_time": example["silent"], "exp_samples": []},
            {"expr": asked, "eval_time": example["fires"], "exp_samples": fires},
        ],
    }


if __name__ == "__main__":
    import generated

    sys.exit(generated.main("rules", "Make deploy/rules/*.yaml from deploy/rules/source.", files))
