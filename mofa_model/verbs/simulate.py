"""A run under failures, event by event: how ETTR scatters, what time is lost to, and one run as a timeline."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from mofa_model import output
from mofa_model.verbs import job_options

EXAMPLES: Final = """\
examples:
  a week on 2048 nodes, a thousand times; the interval is the best one
    mofa simulate --nodes 2048 --step 10s --save 20s --duration 7d --runs 1000
  the same run event by event, as a timeline
    mofa simulate --nodes 2048 --step 10s --save 20s --duration 1d --timeline 40
  three tiers with background copies, at an interval of your own
    mofa simulate --nodes 2048 --step 10s --save 0.2s,1s,2s --copy 0s,20s,240s --interval 6 --every 1,5,60
  clustered failures; all figures for a script
    mofa simulate --nodes 512 --step 10s --law weibull:0.7 --duration 30d --json"""


def configure(parser: ArgumentParser) -> None:
    """Add the job's options, and how long and how often to run it."""
    job_options.add_options(parser)
    ask = parser.add_argument_group("simulation")
    ask.add_argument(
        "--duration", default="7 d", metavar="TIME", help="length of a run (default: 7 d)"
    )
    ask.add_argument(
        "--runs", type=int, default=400, metavar="N", help="number of runs (default: 400)"
    )
    ask.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of the random numbers (default: 1)"
    )
    ask.add_argument(
        "--interval", type=int, metavar="K", help="steps between saves (default: the best)"
    )
    ask.add_argument(
        "--every",
        metavar="1,M,N",
        help="saves of the nearest tier for one of each tier (default: the best)",
    )
    ask.add_argument(
        "--timeline", type=int, default=0, metavar="N", help="show the first N stretches of one run"
    )
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Simulate, and set the exact model beside it."""
    from mofa_model.answers.door import question_of
    from mofa_model.answers.simulate import SimulateQuestion, simulate

    with output.progress("simulating", total=1.0) as advance:
        found = simulate.of(question_of(SimulateQuestion, arguments), advance)
    output.emit(arguments.output, found.tables, found.document, records=found.records)
    return 0
