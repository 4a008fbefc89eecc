"""One job of a cluster: what is advised and why, what it loses, what hinders it, what to do."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mofa_model import output, units
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
    """Add the arguments of `mofa why`: the job, and how to print."""
    cluster_options.add_job_options(parser)
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Print why a job has its advice; compute the advice here if the operator has not."""
    from mofa_model.annotations import PREFIX
    from mofa_operator.decide.answer import answer
    from mofa_operator.decide.policy import Handling, handling_of
    from mofa_operator.fleet.fleet import named
    from mofa_operator.fleet.spending import change, spending
    from mofa_operator.fleet.survey import accounts_by_job

    seen = cluster_options.read_job(arguments)
    fleet, key, snapshot = seen.fleet, seen.key, seen.snapshot
    stance, texts = handling_of(snapshot), seen.texts
    if not texts and stance is Handling.ADVISE:
        annotations = answer(snapshot.question).annotations
        texts = {name.removeprefix(PREFIX): text for name, text in annotations.items()}
    job, speaker = fleet.jobs[key], fleet.speaker(key)
    held = fleet.jobs.get(speaker.target) if speaker is not None and speaker.target else None
    account = accounts_by_job(fleet).get((held or job).key.full_name)
    spent = spending(held or job, speaker, texts, fleet.now, pool_account=account)
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
            {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}
            for one in job.conditions
        ],
        "change": change(spent, texts, stance, job, speaker, shown=True),
    }
    output.emit(arguments.output, list(_tables(document)), document)
    return 0


def _tables(document: Mapping[str, Any]) -> list[Table]:
    answer = document["answer"]
    said = answer["recommendation"] or {}
    notes = [text for text in (answer.get("explanation"), *said.get("caveats", ())) if text]
    rows = [row for row in _rows(document, answer, said) if row[1] not in {None, ""}]
    tables = [_two(document["job"], rows, notes)]
    if others := said.get("alternatives"):
        tables.append(
            Table(
                title="Why not another",
                columns=(
                    Column("choice", align="left"),
                    Column("strategy", align="left"),
                    Column("reason", align="left"),
                ),
                rows=tuple((one["name"], one["strategy"], one["reason"]) for one in others),
            )
        )
    wrong = [one for one in document["conditions"] if one["status"] == "False" and one["message"]]
    if wrong:
        tables.append(
            _two("What does not hold", [(one["reason"], one["message"]) for one in wrong], [])
        )
    return tables


def _rows(
    document: Mapping[str, Any], answer: Mapping[str, str], said: Mapping[str, Any]
) -> list[tuple[str, Cell]]:
    current = said.get("current", {})
    gain = current.get("gain")
    return [
        (
            "asks",
            {"advise": "for advice", "not_asked": "for nothing: nobody opted it in"}.get(
                document["stance"], document["stance"]
            ),
        ),
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
        (
            "GPU-hours lost",
            None if document["lost_gpu_hours"] is None else f"{document['lost_gpu_hours']:.4g}",
        ),
        ("interruptions", document["interruptions"]),
        ("what to change", document["change"]),
    ]


def layout_row(current: Mapping[str, Any]) -> tuple[str, Cell]:
    """The layout that is there already, called planned where nobody saw it run."""
    called = "planned layout" if current.get("planned") else "today's layout"
    return called, current.get("strategy")


def _interruptions(speaker: LiveTrainingJob | None) -> str:
    """How often a job was interrupted, by what, and the cost; empty where nobody looks at it."""
    if speaker is None or (shown := speaker.status.observed).interruptions is None:
        return ""
    by = ", ".join(
        f"{one.count:.0f} {one.cause} ({one.name})" for one in shown.interruptions_by if one.count
    )
    cost = ", ".join(
        f"{units.format(one.seconds, 's')} by {one.cause}" for one in shown.losses if one.seconds
    )
    since = f"since {shown.since}" if shown.since else "since it was first seen"
    return (
        f"{shown.interruptions:.0f} {since}"
        + (f": {by}" if by else "")
        + (f"; lost {cost}" if cost else "")
    )


def _time(text: str | None) -> str | None:
    return units.format(float(text), "s") if text else None


def _two(title: str, rows: Sequence[tuple[str, Cell]], notes: Sequence[str]) -> Table:
    columns = (Column("what", align="left"), Column("is", align="left"))
    return Table(title=title, columns=columns, rows=tuple(rows), notes=tuple(notes))
