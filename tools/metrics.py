"""Write the tables of docs/metrics.md from the declared metrics and the listed inputs; --check
compares.

The labels of pods that kube-state-metrics must let through, there and in deploy/kind/up.sh, are
those of mofa_model/kinds.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

import rules

from mofa_model.kinds import LABELS
from mofa_operator.metrics.declared import ADVISOR, JOBS, POOLS, MetricSpec, Type

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "metrics.md"
KIND = ROOT / "deploy" / "kind" / "up.sh"
TITLES = {"jobs": JOBS, "pools": POOLS, "advisor": ADVISOR}


def table(declared: Iterable[MetricSpec]) -> str:
    """Metrics as a table."""
    rows = ["| Metric | Type | Labels | Unit | What it says |", "|---|---|---|---|---|"]
    for metric in declared:
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
        text = metric.help
        if metric.type is Type.HISTOGRAM:
            text += f" Buckets: {', '.join(f'{edge:g}' for edge in metric.buckets)}."
        rows.append(
            f"| `{metric.name}` | {metric.type.value} | {labels} | {metric.unit} | {text} |"
        )
    return "\n".join(rows)


def recorded() -> str:
    """Recording rules as a table."""
    rows = ["| Recorded series | What it says |", "|---|---|"]
    recorded_rules = (
        rule for group in rules.groups() for rule in group["rules"] if "record" in rule
    )
    return "\n".join(
        [*rows, *(f"| `{rule['record']}` | {rule['about']} |" for rule in recorded_rules)]
    )


def inputs() -> str:
    """Series that we read, as a table."""
    rows = ["| Series | From | What for |", "|---|---|---|"]
    return "\n".join(
        [
            *rows,
            *(
                f"| `{name}` | {row['from']} | {row['for']} |"
                for name, row in rules.inputs().items()
            ),
        ]
    )


def page(text: str) -> str:
    """The page with its tables made anew between their marks."""
    tables = {name: table(declared) for name, declared in TITLES.items()} | {
        "recorded": recorded(),
        "inputs": inputs(),
    }
    for name, made in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}{made}\n{end}{rest.split(end)[1]}"
    return labelled(text)


def labelled(text: str) -> str:
    """A text with all labels of pods where it names them for kube-state-metrics."""
    names = [
        name for labels in LABELS for name in (labels.job, labels.attempt, *labels.slot) if name
    ]
    made, count = re.subn(r"\bpods=\[[^]]*\]", f"pods=[{','.join(names)}]", text)
    if count != 1:
        raise SystemExit("metrics: the labels of pods, pods=[…], stand there not once")
    return made


def files() -> dict[Path, str]:
    """The files that name metrics or labels, with the text that each should have."""
    return {
        PAGE: page(PAGE.read_text(encoding="utf-8")),
        KIND: labelled(KIND.read_text(encoding="utf-8")),
    }


if __name__ == "__main__":
    import generated

    sys.exit(generated.main("metrics", "Write the tables of docs/metrics.md.", files))
