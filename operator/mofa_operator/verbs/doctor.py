"""What an installation in a cluster lacks, and the command that mends each lack."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from mofa_model import output
from mofa_model.answers.options import add_options, as_in, option, question_of, switch
from mofa_model.answers.questions import ReliabilityQuestion
from mofa_model.tables import Column, Table
from mofa_operator.verbs import cluster_options

if TYPE_CHECKING:
    from mofa_operator.fleet.findings import Diagnosis

EXAMPLES: Final = """\
Reads, and writes nothing. The exit code is 0 where nothing is broken, else 4.

examples:
  kubectl mofa doctor
  with what Prometheus has; where it is in the cluster alone, first
    kubectl port-forward -n monitoring svc/prometheus-operated 9090 &
    kubectl mofa doctor --prometheus http://localhost:9090"""

BROKEN: Final = 4
"""Exit code where something that we need is missing."""


class DoctorQuestion(cluster_options.ClusterQuestion):
    """What is checked."""

    prometheus: str | None = as_in(
        ReliabilityQuestion,
        "prometheus",
        "also check which of the advisor's series this server has",
        group="",
    )
    all: bool = option(switch, "--all", "also show checks that passed", default=False)


def configure(parser: ArgumentParser) -> None:
    """Add the question."""
    add_options(parser, DoctorQuestion)
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Read the cluster, check it, print what is wrong and what mends it."""
    from mofa_operator.fleet.checks import checks
    from mofa_operator.fleet.findings import Weight
    from mofa_operator.fleet.site import read_site

    question = question_of(DoctorQuestion, arguments)
    diagnoses = list(checks(cluster_options.read(question, read_site)))
    diagnoses += _series(question.prometheus) if question.prometheus else []
    shown = [
        diagnosis for diagnosis in diagnoses if question.all or diagnosis.weight is not Weight.OK
    ]
    document = {
        "findings": [
            {
                "about": diagnosis.about,
                "weight": diagnosis.weight.value,
                "found": diagnosis.finding,
                "mend": diagnosis.mend,
            }
            for diagnosis in diagnoses
        ],
        "broken": sum(diagnosis.weight is Weight.BROKEN for diagnosis in diagnoses),
        "weaker": sum(diagnosis.weight is Weight.WEAKER for diagnosis in diagnoses),
        "unknown": sum(diagnosis.weight is Weight.UNKNOWN for diagnosis in diagnoses),
    }
    output.emit(
        arguments.output, [_table(shown, diagnoses, asked=bool(question.prometheus))], document
    )
    return BROKEN if document["broken"] else 0


def _series(url: str) -> list[Diagnosis]:
    from mofa_operator.fleet.series import judged, read_series
    from mofa_operator.observe.prometheus.client import Prometheus
    from mofa_operator.observe.source import environment

    async def read() -> list[Diagnosis]:
        async with Prometheus(environment(url)) as prometheus:
            return list(judged(await read_series(prometheus), prometheus.address))

    return asyncio.run(read())


def _table(shown: list[Diagnosis], every: list[Diagnosis], *, asked: bool) -> Table:
    flawed = sum(bool(diagnosis.mend) for diagnosis in every)
    result = f"{flawed} of them with something to mend" if flawed else "nothing to mend"
    notes = [f"{len(every)} checks, {result}."]
    if not asked:
        notes.append("Prometheus was not asked: give --prometheus URL.")
    return Table(
        title="Findings",
        columns=(
            Column("about", align="left"),
            Column("is", align="left"),
            Column("found", align="left"),
            Column("what mends it", align="left", copied=True),
        ),
        rows=tuple((row.about, row.weight.value, row.finding, row.mend) for row in shown),
        notes=tuple(notes),
    )
