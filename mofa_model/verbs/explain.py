"""`mofa explain --strategy …`: every time and memory term of one strategy."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from mofa_model import output, plots
from mofa_model.answers.options import add_options, question_of
from mofa_model.answers.questions import ExplainQuestion
from mofa_model.tables import broken

EXAMPLES: Final = """\
examples:
  mofa explain --model llama3.1-405b --gpu h100-sxm --gpus 16384 --global-batch 2048 --seq 8192 \\
    --strategy tp=8,pp=16,sp=true,vpp=8,schedule=interleaved,recompute=selective,offload=activations
  mofa explain --model deepseek-v3 --gpu h800 --gpus 2048 --global-batch 15360 --seq 4096 \\
    --strategy pp=16,ep=64,schedule=dualpipe,recompute=selective:layernorm+mla_up_proj+moe_act \\
    --precision fp8-block --json
  what is known of runs like it
  mofa explain --evidence --model llama3-70b --gpu b200 --gpus 64 --global-batch 256 \\
      --seq 4096 --stack megatron-core --strategy tp=8,pp=2
  a trainer's own flags are a strategy as well
  mofa explain --model llama3-8b --gpu h100 --gpus 64 --global-batch 512 --seq 8192 \\
    --strategy "--tensor-model-parallel-size 2 --sequence-parallel --use-distributed-optimizer" """


def configure(parser: ArgumentParser) -> None:
    """Add the question, and a picture of its answer."""
    add_options(parser, ExplainQuestion)
    plots.add_option(parser, "the terms of the step")
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Explain one strategy; one that does not fit is explained as well."""
    from mofa_model.answers.explain import explain

    if arguments.plot:
        plots.check("--plot", arguments.plot)
    answer = explain.of(question_of(ExplainQuestion, arguments))
    if arguments.plot and not answer.question.evidence:
        title = "\n".join(broken(answer.document["strategy"], 90))
        plots.step_terms(arguments.plot, {"": answer.step_terms()}, title)
    output.emit(arguments.output, answer.tables, answer.document, records=answer.records)
    return 0
