"""`mofa rates`: do observed failures contradict the assumed rates? What would help a pool?"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from mofa_model import output
from mofa_model.answers.options import add_options, question_of
from mofa_model.answers.questions import RatesQuestion

CONTRADICTED: Final = 5
"""Exit code of --check when an assumption does not stand."""

EXAMPLES: Final = """\
examples:
  counts of a cluster against the paper's assumption of 0.005 per node-day
    mofa rates --failures 419 --node-days 110592 --assumed 0.005
  by class, with the coverage, the assumption worth two failures of prior
    mofa rates --count process=30,pod=60,job=10 --node-days 20000 \\
        --possible-node-days 21000 --prior-weight 2
  from files: failure events, and node-days by node; the worst nodes, the trend, recovery times
    mofa rates --events failures.csv --exposure nodes.csv
  live, for the profile of a pool
    mofa rates --prometheus http://prometheus:9090 --profile h100-east
  what would have helped a pool, by its own account; the number of a fleet
    mofa incidents --prometheus http://prometheus:9090 --account -o json > past.json
    mofa rates --what-would-help past.json --gpus-per-node 8 --save 20s
  of a Slurm site: by its commands on the PATH, or by what they printed
    mofa rates --slurm
    mofa rates --slurm nodes.txt sacct.json events.txt --assumed 0.005
  in CI: exit 5 when an assumption is contradicted
    mofa rates --failures 40 --node-days 7000 --assumed 0.005 --check

failures.csv has the columns time, node, class, recovery_seconds, open. Only
node and class are needed. time is in seconds or ISO 8601; open is yes for a
recovery that had not ended, whose recovery_seconds is the time so far. With
the time of every failure the check goes by days, and says since when a rate is
another one; counts without times are a single look.
nodes.csv has the columns node, node_days, and possible_node_days where known."""


def configure(parser: ArgumentParser) -> None:
    """Add the question."""
    add_options(parser, RatesQuestion)
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Compare observed rates with assumed ones, or print changes that would have helped a pool."""
    question = question_of(RatesQuestion, arguments)
    if question.what_would_help is not None:
        from mofa_model.answers import what_would_help

        helps = what_would_help.replayed(question)
        tables = [what_would_help.table_of_remedies(helps)]
        output.emit(arguments.output, tables, what_would_help.document_of(helps))
        return 0
    from mofa_model.answers import rates

    assessment = rates.assessed(question)
    output.emit(arguments.output, rates.tables_of(assessment), rates.document_of(assessment))
    return CONTRADICTED if question.check and assessment.contradicted else 0
