"""`mofa ettr`: effective training time ratio of a job, and its best checkpoint interval."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from mofa_model import output, plots
from mofa_model.answers.options import add_options, question_of
from mofa_model.answers.questions import EttrQuestion

EXAMPLES: Final = """\
examples:
  the paper's section 5.4: the best interval is 37 steps
    mofa ettr --nodes 32 --step 27.99s --rate 0.01 --mttr 60s --save 2s
  a point, from counts of a live cluster, with its band
    mofa ettr --nodes 2048 --step 10s --failures 419 --node-days 110592 --save 20s --interval 60
  asynchronous saves, and the curve over intervals, drawn to a file
    mofa ettr --nodes 2048 --step 10s --save 2s --copy 120s --slowdown 0.02 \\
        --curve 25 --plot ettr.svg
  the best interval and its ETTR at several failure rates
    mofa ettr --nodes 32 --step 27.99s --mttr 60s --save 2s --vary rate=0.0025..0.04
  local, peer and remote tiers, each with its own interval
    mofa ettr --nodes 2048 --step 10s --save 0.2s,1s,2s --copy 0s,20s,240s
  save times from a model and a storage
    mofa ettr --nodes 2048 --step 10s --model llama3.1-405b --storage 'remote:2GB/s:500GB/s:100GB/s'
  failures, recoveries, spares and storage of a pool's profile
    mofa ettr --profile h100-east --nodes 256 --step 10s --model llama3.1-405b
  clustered failures, racks that fail as one, a queue
    mofa ettr --nodes 2048 --step 10s --law weibull:0.7 --domain rack:16:0.001:1h \\
        --queue 20min:lognormal:3
  failures that hang until a timeout of 15 min, three in ten of them, and what a watchdog is worth
    mofa ettr --nodes 2048 --step 10s --hang 15min:0.3
  a pool with 16 spares and 24 h repair; the nodes and spares that end 500000 steps in 60 days
    mofa ettr --nodes 2048 --step 10s --spares 16 --total-steps 500000 --deadline 60d"""


def configure(parser: ArgumentParser) -> None:
    """Add the question, and a picture of its answer."""
    answer = add_options(parser, EttrQuestion)["answer"]
    plots.add_option(answer, "the curve")
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Answer for one job."""
    from mofa_model.answers.ettr import ettr

    if arguments.plot:
        plots.check("--plot", arguments.plot)
    with output.progress("pricing intervals"):
        answer = ettr.of(question_of(EttrQuestion, arguments))
    if arguments.plot:
        answer.draw(arguments.plot)
    output.emit(arguments.output, answer.tables, answer.document, records=answer.records)
    return 0
