"""The section of docs/validation.md on odds, from the record that `mofa validate odds --record` wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mofa_model.files import read_text, write_text
from mofa_model.tables import Column, Table, as_markdown

RECORD: Final = Path("lab/data/odds.json")
"""Where the figures are kept."""

HEAD: Final = """\
## Odds

What the rule ([search.md](search.md#what-is-chosen)) picks, and how true its odds are; evidence and errors are those without the
group that is judged. Published jobs are asked for with their layouts hidden; *gain* is what the model says that the first choice gains
over the layout that was published, where that fits by the model. Constants are the shipped ones. Pairs are two runs of one question of
a sweep that fit; *said* is the chance that the one with the smaller estimate is faster, *was* how often it was. *Regret* is the
throughput that the pick among the runs of a question loses.
"""


def section(file: Path) -> str:
    """The section as markdown."""
    found = tables(json.loads(read_text(file)))
    picture = "![What was, by what was said](validation/odds.svg)\n"
    return "\n".join(
        [HEAD, picture, *(f"**{table.title}**\n\n{as_markdown(_untitled(table))}" for table in found)]
    )


def record(path: str, document: Mapping[str, Any]) -> None:
    """Keep the figures, without the jobs one by one."""
    kept = {name: value for name, value in document.items() if name != "jobs"}
    write_text(path, json.dumps(_rounded(kept), indent=1) + "\n")


def tables(document: Mapping[str, Any]) -> list[Table]:
    """The figures in tables."""
    heads = (Column("figure"), Column("value", align="right"), Column("aim"), Column("met"))
    odds: list[tuple[Any, ...]] = []
    for stack, found in document["pairs"].items():
        error = found["calibration_error"]
        odds.append(
            (f"{stack}: calibration error of {found['pairs']} pairs", _percent(error), "5 %", error <= 0.05)
        )
    for stack, found in document["fits"].items():
        better = found["better"]
        what = f"{stack}: Brier score of {found['runs']} chances to fit, against {found['edge']:.4f} of a constant edge"
        odds.append((what, f"{found['brier']:.4f}, {_percent(better)} better", "30 % better", better >= 0.3))
    for stack, found in document["regret"].items():
        rule, least = found["rule"], found["estimate"]
        what = f"{stack}: regret of {rule['questions']} picks, against {_percent(least['mean'])} of the least estimate"
        told = f"{_percent(rule['mean'])}, {rule['failed']} failed (of the least estimate {least['failed']})"
        odds.append((what, told, "1.2 times", rule["mean"] <= 1.2 * least["mean"]))
    reliability = tuple(
        (stack, row["said"], row["was"], row["pairs"])
        for stack, found in document["pairs"].items()
        for row in found["bins"]
    )
    return [
        *(
            [Table(title="First choices for published jobs", columns=heads, rows=_picked(document["picks"]))]
            if "picks" in document
            else []
        ),
        Table(title="Odds and regret on sweeps", columns=heads, rows=tuple(odds)),
        Table(
            title="Pairs by the chance that is said",
            columns=(Column("sweep"), Column("said", unit="%"), Column("was", unit="%"), Column("pairs")),
            rows=reliability,
        ),
    ]


def _picked(p: Mapping[str, Any]) -> tuple[tuple[Any, ...], ...]:
    return (
        ("jobs", p["jobs"], None, None),
        ("published layouts that fit by the model", p["published_fits"], None, None),
        ("answers with what no run has", p["unmeasured"], None, None),
        ("gain, median", _percent(p["median_gain"]), "5 %", p["median_gain"] <= 0.05),
        ("gain above 20 %, share of jobs", _percent(p["above_20"]), "5 %", p["above_20"] <= 0.05),
        ("P(out of memory), mean", _percent(p["mean_out_of_memory"]), "5 %", p["mean_out_of_memory"] <= 0.05),
        ("P(out of memory) above 10 %, share of jobs", _percent(p["risky"]), "0 %", p["risky"] == 0),
    )


def _untitled(table: Table) -> Table:
    return Table(columns=table.columns, rows=table.rows)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value
