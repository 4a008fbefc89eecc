"""`mofa which`: the GPUs that a fine-tune needs, whether it fits, its time and its cost."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from mofa_model import output
from mofa_model.answers.options import add_options, question_of
from mofa_model.answers.questions import WhichQuestion

EXAMPLES: Final = """\
examples:
  the cheapest machine for adapters on 52,000 examples, three times
    mofa which --model llama3-8b --examples 52k --length 400 --epochs 3
  will it fit on what I have, and with what
    mofa which --model llama3-70b --tokens 10M --gpu rtx-4090 --by hardware
  the least time on machines of one cloud
    mofa which --model qwen3-32b --tokens 50M --gpu g5.48xlarge,g6e.48xlarge,p5.48xlarge --by time
  all weights, at a price of one's own
    mofa which --model llama3-8b --tokens 100M --method full --gpu h100 --price '2.5 USD/h'"""


def configure(parser: ArgumentParser) -> None:
    """Add the question."""
    add_options(parser, WhichQuestion)
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Answer; exit code 3 where nothing fits."""
    from mofa_model.answers.which import which

    question = question_of(WhichQuestion, arguments)
    with output.progress("searching", total=1.0) as advance:
        answer = which.of(question, advance)
    output.emit(arguments.output, answer.tables, answer.document, records=answer.records)
    answer.raise_for_status()
    return 0
