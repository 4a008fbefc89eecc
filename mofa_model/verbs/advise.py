"""`mofa advise FILE` or flags: the recommended strategy and interval, the alternatives, and why."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mofa_model import files, output, plots, terminal
from mofa_model.answers.options import add_options, question_of
from mofa_model.answers.questions import AdviceQuestion
from mofa_model.errors import BadFile, BadValue, InputError, why

if TYPE_CHECKING:
    from mofa_model.advice import Advice, Request
    from mofa_model.launch import Launch
    from mofa_model.search import SearchCase
    from mofa_model.strategy import Strategy

STEP: Final = "step.svg"
ETTR: Final = "ettr.svg"
LEVEL: Final = 0.9
"""Level of the band of the failure rate, in the picture of ETTR. [1]"""
EXAMPLES: Final = """\
examples:
  mofa advise examples/llama3-405b.yaml
  a job as it is, of any kind that is read; on this profile: a file, or the name of a bundled one
    mofa advise examples/pytorchjob.yaml --profile h100-east
  mofa advise --model llama3.1-405b --gpu h100-sxm --gpus 16384 \\
      --global-batch 2048 --seq 8192 --tokens 15T
  what a trainer can run, and the flags to launch it
    mofa advise --model llama3-70b --gpu h100 --gpus 512 --global-batch 512 --seq 8192 \\
        --framework megatron --launch megatron
  a launch to take away: script, manifest, answer and README; a script of Slurm in its place
    mofa advise examples/jobset.yaml --save-dir out --as TrainJob
    mofa advise examples/jobset.yaml --save-dir out --as sbatch --sbatch '-p gpu -t 1-0'
  today's layout beside the advice
    mofa advise --model llama3-8b --gpu h100 --gpus 64 --global-batch 512 --seq 8192 \\
        --current tp=4,pp=2,sp=true
  fix, list or bound axes; lift an expert rule; at most 64 nodes, cheapest first
    mofa advise --model mixtral-8x7b --gpu h100 --max-nodes 64 --global-batch 1024 --seq 4096 \\
        --tokens 1T --constraint tp=1,2 --constraint 'pp<=8' --lift TooFewMicroBatches \\
        --objective cost"""


def configure(parser: ArgumentParser) -> None:
    """Add the options of the question, and those for files and pictures of the answer."""
    answer = add_options(parser, AdviceQuestion)["answer"]
    answer.add_argument(
        "--flags-only",
        action="store_true",
        help="print only the arguments for the trainer",
    )
    output.add_folder_options(answer, "the launch script, a manifest, the answer and a README")
    answer.add_argument(
        "--as",
        dest="saved_kind",
        metavar="KIND",
        help="JobSet (default), TrainJob, PyTorchJob or RayJob; or sbatch, a script of Slurm",
    )
    answer.add_argument(
        "--sbatch",
        metavar="OPTIONS",
        help="options of that script, such as '-p gpu -t 1-0 --container-image=x.sqsh'",
    )
    answer.add_argument(
        "--plots",
        metavar="FOLDER",
        help="draw step.svg (parts of a step) and ettr.svg (checkpoint intervals) into a folder",
    )
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Answer; exit code 3 where nothing can be recommended."""
    from mofa_model.answers.advise import advise

    question = question_of(AdviceQuestion, arguments)
    _check(arguments, question)
    launched_by = (
        "--flags-only" if arguments.flags_only else "--save-dir" if arguments.save_dir else ""
    )
    with output.progress("searching", total=1.0) as advance:
        answer = advise.of(question, advance, launched_by)
    if arguments.flags_only:
        _print_flags(answer.launch)
    elif arguments.output == "html":
        from mofa_model.page import advice_page

        terminal.put(advice_page(answer.view()))
    elif arguments.output == "table":
        terminal.put(answer.short_text(output.columns()))
    else:
        tables = answer.tables_of(wide=True)
        output.emit(arguments.output, tables, answer.document, records=answer.records)
    if arguments.save_dir and answer.launch is not None:
        from mofa_model.verbs import advise_folder

        names = advise_folder.save(
            arguments.save_dir,
            answer,
            arguments.saved_kind or "JobSet",
            sbatch_text=arguments.sbatch or "",
        )
        terminal.tell(f"saved: {arguments.save_dir}: {', '.join(names)}")
    if arguments.plots:
        for path in _draw(answer.request, answer.advice, arguments.plots):
            terminal.tell(f"drawn: {path}")
    answer.raise_for_status()
    return 0


def _check(arguments: Namespace, question: AdviceQuestion) -> None:
    """Refuse, before the search, options that exclude each other and folders without permission."""
    if arguments.flags_only and arguments.output != "table":
        right = "it is a form of output itself; leave -o out"
        raise BadValue("--flags-only", arguments.output, right)
    if arguments.flags_only and question.probe:
        raise InputError(
            "--flags-only: it prints one launch, and --probe asks for several; "
            "leave one of the two out"
        )
    if arguments.save_dir:
        from mofa_model.verbs import advise_folder

        advise_folder.kind_of(arguments.saved_kind or "JobSet")
        files.check_folder(arguments.save_dir, overwrite=arguments.overwrite)
    else:
        for flag, value in (("--as", arguments.saved_kind), ("--overwrite", arguments.overwrite)):
            if value:
                raise InputError(f"{flag}: it goes with --save-dir FOLDER")
    if arguments.sbatch is not None:
        from mofa_model.identity.sbatch_written import asked_options

        if (arguments.saved_kind or "").lower() != "sbatch":
            raise InputError("--sbatch: it goes with --save-dir FOLDER --as sbatch")
        asked_options(arguments.sbatch)
    if arguments.plots:
        from pathlib import Path

        plots.check("--plots", STEP)
        try:
            Path(arguments.plots).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadFile(arguments.plots, f"cannot be made: {why(error)}") from error


def _print_flags(launch: Launch | None) -> None:
    """One line for `eval "torchrun … $(mofa advise …)"`; files and variables go to stderr."""
    if launch is None:
        return
    sys.stdout.write(shlex.join(launch.arguments) + "\n")
    needs = [f"{name}={value} in the environment" for name, value in launch.environment.items()]
    needs += [f"a file {name}, which --save-dir writes" for name in launch.files]
    if needs:
        terminal.tell(f"mofa advise: the launch needs {', '.join(needs)}")


def _draw(request: Request, advice: Advice, folder: str) -> tuple[str, ...]:
    """Draw both pictures and return their paths; none without a recommended layout."""
    from mofa_model.advice.predictions import best_interval, job_of, priced_together
    from mofa_model.answers.ettr import curve
    from mofa_model.estimate.step import STEP_NAMES

    if advice.strategy is None or advice.precision is None or advice.predicted is None:
        return ()
    compared = [(advice.strategy, advice.trainer, advice.precision, advice.nodes)]
    compared += [
        (alternative.strategy, alternative.trainer, alternative.precision, alternative.nodes)
        for alternative in advice.alternatives
    ]
    today = advice.current
    if today is not None and today.strategy is not None and today.predicted is not None:
        compared.append((today.strategy, advice.trainer, advice.precision, request.nodes))
    layouts = priced_together(
        [
            (_problem_of(request.for_trainer(trainer), recipe, nodes), s)
            for s, trainer, recipe, nodes in compared
        ]
    )
    bars = {}
    for number, layout in enumerate(layouts):
        label = _label(layout.strategy)
        if today is not None and number > len(advice.alternatives):
            label += f"\n({today.row})"
        terms = layout.step_terms.terms()
        bars[label] = {STEP_NAMES[name]: seconds for name, seconds in terms.items()}
    best = layouts[0]
    step = advice.predicted.step_seconds.target
    job = job_of(request, best.problem, advice.nodes, best.strategy, step)
    interval = best_interval(request, job)
    points = curve(job, interval.steps, interval.every, 33 if len(job.blocking) > 1 else 121, LEVEL)
    paths = (f"{folder}/{STEP}", f"{folder}/{ETTR}")
    plots.step_terms(paths[0], bars, f"{advice.model} on {advice.gpus} {advice.device}")
    plots.ettr_curve(paths[1], points, interval.steps, interval.steps * step)
    return paths


def _problem_of(request: Request, precision: str, nodes: int) -> SearchCase:
    """The search case of a precision, on a number of nodes."""
    problem = request.problem_in(precision)
    cluster = replace(problem.cluster, gpus=nodes * int(problem.cluster.gpus_per_node))
    return replace(problem, cluster=cluster)


def _label(strategy: Strategy) -> str:
    """Degrees in the first line, features in the second."""
    from mofa_model.strategy import short_strategy

    words = short_strategy(strategy).split()
    degrees = [word for word in words if word[-1].isdigit()]
    return " ".join(degrees) + "\n" + " ".join(word for word in words if word not in degrees)
