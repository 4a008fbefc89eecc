"""All training jobs of a cluster: GPU-hours that each lost, the worst first, and what to change."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any, Final

from mofa_model import output
from mofa_model.answers.options import add_options, option, question_of, switch
from mofa_model.tables import Cell, Column, Table
from mofa_operator.verbs import cluster_options

if TYPE_CHECKING:
    from mofa_operator.api import Api
    from mofa_operator.fleet.fleet import ClusterSeen
    from mofa_operator.fleet.spending import Spending
    from mofa_operator.fleet.survey import JobLoss
    from mofa_operator.keys import Key
    from mofa_operator.snapshot import Named

EXAMPLES: Final = """\
Reads, and writes nothing. Jobs of all kinds are there, whether they ask for advice or not.
Below them stands where the node-time of each pool went, as its FailureLedger has it.
What the operator wrote is taken; jobs that ask and that nobody has answered are answered here.

examples:
  kubectl mofa top
  kubectl mofa top -n team-a -o wide
  kubectl mofa top --all -o json"""


class TopQuestion(cluster_options.ClusterQuestion):
    """Which jobs of a cluster are shown, and how."""

    all: bool = option(
        switch,
        "--all",
        "also show jobs that wait and jobs that have ended",
        default=False,
        group="",
    )
    told: bool = option(
        switch,
        "--told",
        "show only what the operator wrote, and compute nothing (faster)",
        default=False,
    )


def configure(parser: ArgumentParser) -> None:
    """Add the question."""
    add_options(parser, TopQuestion)
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Read the cluster, compute what each job spends and loses, print a table."""
    from mofa_operator.fleet.survey import pool_accounts, read_survey, survey
    from mofa_operator.incidents.document import account_document
    from mofa_operator.verbs.account_tables import account_table

    question = question_of(TopQuestion, arguments)

    async def read(api: Api) -> tuple[ClusterSeen, dict[Key, Named]]:
        return await read_survey(api, question.namespace or "", answer=not question.told)

    fleet, names = cluster_options.read(question, read)
    with output.progress("answering jobs", 1.0) as tell:
        lines = survey(fleet, names, tell)
    shown = [line for line in lines if question.all or line.spending.state.holds]
    document = {
        "jobs": [_row_document(line) for line in shown],
        "total": _total([line.spending for line in shown]),
        "absent": sorted(kind.resource for kind in fleet.absent),
        "refused": {kind.resource: why for kind, why in sorted(fleet.refused.items())},
    }
    tables = [_table(fleet, shown)]
    if not question.namespace:
        accounts = {pool: account.rows for pool, account in pool_accounts(fleet).items()}
        tables += [account_table(rows, pool) for pool, rows in accounts.items()]
        document["accounts"] = {pool: account_document(rows) for pool, rows in accounts.items()}
    output.emit(arguments.output, tables, document)
    return 0


def _total(jobs: list[Spending]) -> dict[str, Any]:
    """The sums over all jobs, by the names of their JSON keys."""
    return {
        "jobs": len(jobs),
        "gpus": sum(job.gpus for job in jobs if job.state.holds),
        "gpu_hours": sum(job.gpu_hours for job in jobs),
        "lost_gpu_hours": sum(job.gpu_hours_lost or 0.0 for job in jobs),
        "stuck_gpu_hours": sum(job.stuck_hours for job in jobs),
        "stopped_gpu_hours": sum(job.stopped_hours or 0.0 for job in jobs),
        "slow_gpu_hours": sum(job.slow_hours or 0.0 for job in jobs),
        "unknown_gpu_hours": sum(job.gpu_hours for job in jobs if job.slow_hours is None),
    }


def _row_document(line: JobLoss) -> dict[str, Any]:
    """A row of the table as JSON."""
    spent = line.spending
    return {
        "kind": spent.key.kind.kind,
        "namespace": spent.key.namespace,
        "name": spent.key.name,
        "state": spent.state.value,
        "status": spent.status,
        "health": spent.health,
        "gpus": spent.gpus,
        "hours": spent.hours,
        "gpu_hours": spent.gpu_hours,
        "lost_gpu_hours": spent.gpu_hours_lost,
        "stuck_gpu_hours": spent.stuck_hours,
        "stopped_gpu_hours": spent.stopped_hours,
        "stopped_since": spent.since,
        "slow_gpu_hours": spent.slow_hours,
        "change": line.change,
    }


def _table(fleet: ClusterSeen, shown: list[JobLoss]) -> Table:
    return Table(
        title="GPU-hours lost",
        columns=(
            Column("job", align="left", copied=True),
            Column("GPUs"),
            Column("GPU-hours"),
            Column("lost"),
            Column("share", unit="%"),
            Column("stuck", wide=True),
            Column("stopped", wide=True),
            Column("slow", wide=True),
            Column("state", align="left", wide=True),
            Column("status", align="left", wide=True),
            Column("what to change", align="left"),
        ),
        rows=tuple(_row(line) for line in shown),
        notes=tuple(_notes(fleet, [line.spending for line in shown])),
    )


def _row(line: JobLoss) -> tuple[Cell, ...]:
    spent = line.spending
    share = (
        spent.gpu_hours_lost / spent.gpu_hours
        if spent.gpu_hours_lost is not None and spent.gpu_hours
        else None
    )
    figures = (
        spent.gpu_hours,
        spent.gpu_hours_lost,
        share,
        spent.stuck_hours or None,
        spent.stopped_hours,
        spent.slow_hours,
    )
    state = " ".join(filter(None, (spent.state.value, spent.health)))
    name = f"{spent.key.namespace}/{spent.key.kind.kind.lower()}/{spent.key.name}"
    return (name, spent.gpus, *figures, state, spent.status, line.change)


def _notes(fleet: ClusterSeen, jobs: list[Spending]) -> list[str]:
    """The sums in sentences, and the kinds that are not shown."""
    total = _total(jobs)
    lost = {
        name: f"{total[f'{name}_gpu_hours']:.4g}" for name in ("lost", "slow", "stopped", "stuck")
    }
    held = f"{total['jobs']} jobs on {total['gpus']} GPUs held {total['gpu_hours']:.4g} GPU-hours"
    parts = (
        f"{lost['slow']} to slower layouts, {lost['stopped']} to interruptions, "
        f"{lost['stuck']} to jobs that are stuck"
    )
    notes = [f"{held}; {lost['lost']} of them are known to be lost: {parts}."]
    if total["unknown_gpu_hours"]:
        notes.append(
            f"Of {total['unknown_gpu_hours']:.4g} GPU-hours nobody can say what their layouts "
            "lose: the jobs name no model, or run what cannot be read."
        )
    notes += [
        f"Not shown: {kind.kind}, which may not be listed: {why}."
        for kind, why in sorted(fleet.refused.items())
    ]
    return notes
