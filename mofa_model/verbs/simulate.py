"""`mofa simulate`: runs under failures, event by event."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from mofa_model import output
from mofa_model.answers.options import add_options, question_of
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
  the layout that an advice found, under its recovery plan
    mofa advise --model llama3-8b --gpu h100 --gpus 64 --seq 8192 --global-batch 256 \\
        -o json > advice.json
    mofa simulate --layout advice.json --duration 30d --runs 20
  three jobs of one pool with two spares, a priority, and failures as the pool's ledger counted them
    kubectl get failureledger h100-east -o yaml > ledger.yaml
    mofa simulate --nodes 66 --spares 2 --step 10s --ledger ledger.yaml --preempt --duration 40d \
        --job big:64:5d --job urgent:32:2d:5:1d --job small:16:1d --runs 100
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
        answer = simulate.of(question_of(SimulateQuestion, arguments), advance)
    output.emit(arguments.output, answer.tables, answer.document, records=answer.records)
    return 0
