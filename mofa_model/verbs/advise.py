"""`mofa advise FILE` or flags: the recommended strategy and interval, the alternatives, and why."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from mofa_model import output, terminal
from mofa_model.verbs import advise_runs, problem_options

if TYPE_CHECKING:
    from mofa_model.answers.advise import AdviceAnswer

EXAMPLES: Final = """\
examples:
  mofa advise examples/llama3-405b.yaml
  a job as it is, of any kind that is read; on this profile, which is a file or the name of one that comes with the package
    mofa advise examples/pytorchjob.yaml --profile h100-east
  mofa advise --model llama3.1-405b --gpu h100-sxm --gpus 16384 --global-batch 2048 --seq 8192 --tokens 15T
  what a trainer can run, and the flags to launch it
    mofa advise --model llama3-70b --gpu h100 --gpus 512 --global-batch 512 --seq 8192 --framework megatron --launch megatron
  a launch to take away: script, manifest, answer and README
    mofa advise examples/jobset.yaml --save-dir out --as TrainJob
  today's layout beside the advice
    mofa advise --model llama3-8b --gpu h100 --gpus 64 --global-batch 512 --seq 8192 --current tp=4,pp=2,sp=true
  fix, list or bound axes; lift an expert rule; at most 64 nodes, cheapest first
    mofa advise --model mixtral-8x7b --gpu h100 --max-nodes 64 --global-batch 1024 --seq 4096 --tokens 1T \\
        --constraint tp=1,2 --constraint 'pp<=8' --lift TooFewMicroBatches --objective cost"""


def configure(parser: ArgumentParser) -> None:
    """Add the manifest or the flags, and what to answer."""
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="a job's manifest, in place of the flags, - is standard input; or a model's config.json",
    )
    parser.add_argument(
        "--profile",
        action="append",
        default=[],
        metavar="NAME|FILE",
        help="ClusterProfile for FILE: a bundled one or a manifest; may be repeated",
    )
    problem_options.add_options(parser)
    parser.add_argument(
        "--max-nodes", metavar="N", help="advise at most so many nodes, perhaps fewer"
    )
    ask = parser.add_argument_group("answer")
    problem_options.add_choice(ask)
    ask.add_argument(
        "--top", type=int, default=5, metavar="K", help="alternatives to show (default: 5)"
    )
    ask.add_argument(
        "--launch",
        metavar="TRAINER",
        help="print the arguments for megatron, torchtitan, nemo, deepspeed or accelerate",
    )
    ask.add_argument(
        "--flags-only",
        action="store_true",
        help="print the arguments for the trainer and nothing else",
    )
    ask.add_argument(
        "--save-dir",
        metavar="FOLDER",
        help="write the launch script, a manifest, the answer and a README",
    )
    ask.add_argument(
        "--as",
        dest="saved_kind",
        metavar="KIND",
        help="JobSet (default), TrainJob, PyTorchJob or RayJob",
    )
    ask.add_argument(
        "--overwrite", action="store_true", help="--save-dir into a folder that is not empty"
    )
    ask.add_argument(
        "--plots",
        metavar="FOLDER",
        help="draw step.svg and ettr.svg, where the time goes, into a folder",
    )
    problem_options.add_failures(parser)
    advise_runs.add_options(parser)
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Answer; exit code 3 where nothing can be recommended."""
    from mofa_model.answers.advise import AdviceQuestion, answered, understood
    from mofa_model.answers.door import question_of
    from mofa_model.verbs import advise_launch

    if arguments.plots:
        from mofa_model.verbs import advise_pictures
    advise_launch.check(arguments)
    given = understood(question_of(AdviceQuestion, arguments), advise_launch.needed_by(arguments))
    if arguments.plots:
        advise_pictures.prepare(arguments.plots)
    with output.progress("searching", total=1.0) as advance:
        found = answered(given, advance)
    if arguments.flags_only:
        advise_launch.print_flags(found.launch)
    else:
        _print(arguments.output, found)
    if arguments.save_dir and found.launch is not None:
        advise_launch.save(arguments, found, found.launch)
    if arguments.plots:
        for path in advise_pictures.draw(found.request, found.advice, arguments.plots):
            terminal.tell(f"drawn: {path}")
    found.raise_for_status()
    return 0


def _print(form: str, found: AdviceAnswer) -> None:
    if form == "html":
        from mofa_model.page import advice_page

        terminal.put(advice_page(found.view()))
        return
    output.emit(
        form, found.told(wide=form != "table"), document=found.document, records=found.records
    )
