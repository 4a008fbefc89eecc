"""`mofa simulate`: runs under failures, event by event."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from mofa_model import output
from mofa_model.answers.question import add_options, question_of
from mofa_model.answers.questions import SimulateQuestion

EXAMPLES: Final = """\
examples:
  a week on 2048 nodes, a thousand times; the interval is the best one
    mofa simulate --nodes 2048 --step 10s --save 20s --duration 7d --runs 1000
  the same run event by event, as a timeline
    mofa simulate --nodes 2048 --step 10s --save 20s --duration 1d --timeline 40
  three tiers with background copies, at an interval of your own
    mofa simulate --nodes 2048 --step 10s --save 0.2s,1s,2s --copy 0s,20s,240s \\
        --interval 6 --every 1,5,60
  clustered failures; all figures for a script
    mofa simulate --nodes 512 --step 10s --law weibull:0.7 --duration 30d --json"""


def configure(parser: ArgumentParser) -> None:
    """Add the question."""
    add_options(parser, SimulateQuestion)
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Simulate, and set the exact model beside it."""
    from mofa_model.answers.simulate import simulate

    with output.progress("simulating", total=1.0) as advance:
        found = simulate.of(question_of(SimulateQuestion, arguments), advance)
    output.emit(arguments.output, found.tables, found.document, records=found.records)
    return 0
