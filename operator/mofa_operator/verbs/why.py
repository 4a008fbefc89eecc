"""One job of a cluster: what is advised and why, what it loses, what hinders it, what to do."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mofa_model import output, units
from mofa_model.answers.options import question_of
from mofa_model.tables import Cell, Column, Table
from mofa_operator.verbs import cluster_options

if TYPE_CHECKING:
    from mofa_operator.objects import LiveTrainingJob

EXAMPLES: Final = """\
Reads, and writes nothing. What the operator wrote is told; what nobody answered is answered here.

examples:
  kubectl mofa why llama3-70b
  kubectl mofa why jobset/llama3-70b -n team-a -o json"""


def configure(parser: ArgumentParser) -> None:
    """Add the question."""
    cluster_options.add_job_options(parser, cluster_options.ClusterJobQuestion)
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Print why a job has its advice; compute the advice here if the operator has not."""
    from mofa_model.annotations import PREFIX
    from mofa_operator.decide.answer import answer
    from mofa_operator.decide.policy import Handling, handling_of
    from mofa_operator.fleet.fleet import named
    from mofa_operator.fleet.spending import change, spending
    from mofa_operator.fleet.survey import accounts_by_job

    seen = cluster_options.read_job(question_of(cluster_options.ClusterJobQuestion, arguments))
    fleet, key, snapshot = seen.fleet, seen.key, seen.snapshot
    stance, texts = handling_of(snapshot), seen.texts
    if not texts and stance is Handling.ADVISE:
        annotations = answer(snapshot.question).annotations
        texts = {name.removeprefix(PREFIX): text for name, text in annotations.items()}
    job, speaker = fleet.jobs[key], fleet.speaker(key)
    target = fleet.jobs.get(speaker.target) if speaker is not None and speaker.target else None
    trained = target or job
    account = accounts_by_job(fleet).get(trained.key.full_name)
    spent = spending(trained, speaker, texts, fleet.now, pool_account=account)
    document = {
        "job": f"{key.namespace}/{named(key)}",
        "stance": stance.name.lower(),
        "answered_by": "the operator" if seen.texts else "this command" if texts else "nobody",
        "answer": dict(texts) | {"recommendation": json.loads(texts.get("recommendation", "null"))},
        "lost_gpu_hours": spent.gpu_hours_lost,
        "gpu_hours": spent.gpu_hours,
        "interruptions": _interruptions(speaker),
        "health": spent.health,
        "conditions": [
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
            }
            for condition in job.conditions
        ],
        "change": change(spent, texts, stance, job, speaker, shown=True),
    }
    output.emit(arguments.output, list(_tables(document)), document)
    return 0


def _tables(document: Mapping[str, Any]) -> list[Table]:
    answer = document["answer"]
    advice = answer["recommendation"] or {}
    notes = [text for text in (answer.get("explanation"), *advice.get("caveats", ())) if text]
    rows = [row for row in _rows(document, answer, advice) if row[1] not in {None, ""}]
    tables = [_pairs_table(document["job"], rows, notes)]
    if alternatives := advice.get("alternatives"):
        tables.append(
            Table(
                title="Why not another",
                columns=(
                    Column("choice", align="left"),
                    Column("strategy", align="left"),
                    Column("reason", align="left"),
                ),
                rows=tuple((row["name"], row["strategy"], row["reason"]) for row in alternatives),
            )
        )
    failures = [
        (condition["reason"], condition["message"])
        for condition in document["conditions"]
        if condition["status"] == "False" and condition["message"]
    ]
    if failures:
        tables.append(_pairs_table("What does not hold", failures, []))
    return tables


def _rows(
    document: Mapping[str, Any], answer: Mapping[str, str], advice: Mapping[str, Any]
) -> list[tuple[str, Cell]]:
    current = advice.get("current", {})
    gain, lost = current.get("gain"), document["lost_gpu_hours"]
    stance = document["stance"]
    asks = {"advise": "for advice", "not_asked": "for nothing: nobody opted it in"}
    return [
        ("asks", asks.get(stance, stance)),
        ("answered by", document["answered_by"]),
        ("status", answer.get("status")),
        ("advised layout", answer.get("strategy")),
        layout_row(current),
        ("which costs", f"{100 * gain:.3g} % more time" if gain else current.get("reason")),
        ("step", _time(answer.get("predicted-step-seconds"))),
        ("checkpoint every", _time(answer.get("checkpoint-interval-seconds"))),
        ("ETTR", answer.get("predicted-ettr")),
        ("health", document["health"]),
        ("GPU-hours held", f"{document['gpu_hours']:.4g}"),
        ("GPU-hours lost", None if lost is None else f"{lost:.4g}"),
        ("interruptions", document["interruptions"]),
        ("what to change", document["change"]),
    ]


def layout_row(current: Mapping[str, Any]) -> tuple[str, Cell]:
    """The layout that is there already, called planned where nobody saw it run."""
    label = "planned layout" if current.get("planned") else "today's layout"
    return label, current.get("strategy")


def _interruptions(speaker: LiveTrainingJob | None) -> str:
    """How often a job was interrupted, by what, and the cost; empty where nobody looks at it."""
    if speaker is None or (observed := speaker.status.observed).interruptions is None:
        return ""
    causes = ", ".join(
        f"{row.count:.0f} {row.cause} ({row.name})"
        for row in observed.interruptions_by
        if row.count
    )
    costs = ", ".join(
        f"{units.format(loss.seconds, 's')} by {loss.cause}"
        for loss in observed.losses
        if loss.seconds
    )
    since = f"since {observed.since}" if observed.since else "since it was first seen"
    return (
        f"{observed.interruptions:.0f} {since}"
        + (f": {causes}" if causes else "")
        + (f"; lost {costs}" if costs else "")
    )


def _time(text: str | None) -> str | None:
    return units.format(float(text), "s") if text else None


def _pairs_table(title: str, rows: Sequence[tuple[str, Cell]], notes: Sequence[str]) -> Table:
    columns = (Column("what", align="left"), Column("is", align="left"))
    return Table(title=title, columns=columns, rows=tuple(rows), notes=tuple(notes))
