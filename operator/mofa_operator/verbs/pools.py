"""The pools of a cluster: nodes, GPUs that jobs hold, and what was learned of failures."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any, Final

from mofa_model import output
from mofa_model.answers.options import add_options, question_of
from mofa_model.tables import Column, Table
from mofa_operator.verbs import cluster_options

EXAMPLES: Final = """\
Reads, and writes nothing.

examples:
  kubectl mofa pools
  kubectl mofa pools -o json"""

_FACTS: Final = (
    "pool", "gpu", "nodes", "ready", "gpus", "held", "jobs",
    "assumed", "observed", "coverage", "verdict",
)  # fmt: skip


def configure(parser: ArgumentParser) -> None:
    """Add the question."""
    add_options(parser, cluster_options.ClusterQuestion)
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Read the cluster, count nodes and GPUs of each pool, print a table."""
    from mofa_operator.fleet.fleet import read_fleet
    from mofa_operator.fleet.pools import pools

    question = question_of(cluster_options.ClusterQuestion, arguments)

    async def read(api: Any) -> Any:
        return await read_fleet(api, question.namespace or "")

    summaries = pools(cluster_options.read(question, read))
    rows = [{name: getattr(summary, name) for name in _FACTS} for summary in summaries]
    notes = [
        f"{summary.pool}: {note}" if summary.pool else note
        for summary in summaries
        for note in summary.notes
    ]
    table = Table(
        title="Pools",
        columns=(
            Column("pool", align="left", copied=True),
            Column("GPU", align="left"),
            Column("nodes"),
            Column("ready"),
            Column("GPUs"),
            Column("held"),
            Column("jobs"),
            Column("assumed", align="left"),
            Column("observed", align="left"),
            Column("coverage", unit="%"),
            Column("verdict", align="left"),
        ),
        rows=tuple(tuple(row.values()) for row in rows),
        notes=(*notes, "Rates are failures per thousand node-days.") if rows else tuple(notes),
    )
    output.emit(arguments.output, [table], {"pools": rows, "notes": notes})
    return 0
