"""`mofa advise FILE` or flags: the recommended strategy and interval, the alternatives, and why."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mofa_model import output, units
from mofa_model.errors import BadValue, InputError, NoFeasibleStrategy
from mofa_model.verbs import advise_runs, job_options, problem_options

if TYPE_CHECKING:
    from mofa_model.advice import Advice, Request
    from mofa_model.launch import Launch
    from mofa_model.manifest.asked import Asked

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
        help="a job's manifest, in place of the flags; - is standard input",
    )
    parser.add_argument(
        "--profile",
        action="append",
        default=[],
        metavar="NAME|FILE",
        help="ClusterProfile for FILE: a bundled one or a manifest; may be repeated",
    )
    problem_options.add_options(parser, required=False)
    parser.add_argument("--max-nodes", metavar="N", help="advise at most so many nodes, perhaps fewer")
    ask = parser.add_argument_group("answer")
    ask.add_argument(
        "--objective",
        choices=("time", "throughput", "cost"),
        default=None,
        help="what is best (default: time)",
    )
    ask.add_argument(
        "--risk",
        type=float,
        default=0.1,
        metavar="P",
        help="chance of being out of memory that is taken (default: 0.1)",
    )
    ask.add_argument(
        "--allow", choices=("experimental",), help="choose also what no measured run of the stack has"
    )
    ask.add_argument("--top", type=int, default=5, metavar="K", help="alternatives to show (default: 5)")
    ask.add_argument(
        "--current", metavar="LAYOUT", help="today's layout, tp=8,pp=4,… or a trainer's flags: priced beside"
    )
    ask.add_argument(
        "--launch",
        metavar="TRAINER",
        help="print the arguments for megatron, torchtitan, nemo, deepspeed or accelerate",
    )
    ask.add_argument(
        "--flags-only", action="store_true", help="print the arguments for the trainer and nothing else"
    )
    ask.add_argument(
        "--save-dir", metavar="FOLDER", help="write the launch script, a manifest, the answer and a README"
    )
    ask.add_argument(
        "--as", dest="saved_kind", metavar="KIND", help="JobSet (default), TrainJob, PyTorchJob or RayJob"
    )
    ask.add_argument("--overwrite", action="store_true", help="--save-dir into a folder that is not empty")
    ask.add_argument(
        "--plots", metavar="FOLDER", help="draw step.svg and ettr.svg, where the time goes, into a folder"
    )
    ask.add_argument(
        "--constraint",
        action="append",
        default=[],
        metavar="AXIS=…",
        help="fix, list or bound an axis; may be repeated",
    )
    ask.add_argument(
        "--lift",
        action="append",
        default=[],
        metavar="RULE",
        help="do not apply an expert rule; may be repeated",
    )
    fail = parser.add_argument_group("failures and checkpoints")
    fail.add_argument(
        "--failure-rate", type=float, metavar="R", help="failures per node-day (default: 0.005, the paper's)"
    )
    fail.add_argument(
        "--hang", metavar="TIMEOUT[:SHARE]",
        help="failures that end no process until this timeout, and their share of all (default: none; a share of 1)",
    )  # fmt: skip
    fail.add_argument(
        "--checkpoint-bandwidth", metavar="BW", help="what a node writes to storage (default: 2 GB/s)"
    )
    fail.add_argument(
        "--checkpoint-size",
        metavar="SIZE",
        help="of a whole checkpoint (default: weights and optimizer states)",
    )
    fail.add_argument(
        "--sync", action="store_true", help="training waits for the write (default: only for the copy)"
    )
    advise_runs.add_options(parser)
    output.add_options(parser)


_BESIDE: Final = frozenset(
    {
        "file",
        "profile",
        "objective",
        "risk",
        "allow",
        "constraint",
        "lift",
        "current",
        "top",
        "launch",
        "plots",
        "output",
    }
    | {"flags_only", "save_dir", "saved_kind", "overwrite", "probe", "runs"}
)
"""What is asked beside a manifest; all else the manifest says."""


def run(arguments: Namespace) -> int:
    """Answer; exit code 3 where nothing can be recommended."""
    from mofa_model.advice import Status, advise
    from mofa_model.verbs import advise_launch

    if arguments.plots:
        from mofa_model.verbs import advise_pictures
    advise_launch.check(arguments)
    if arguments.launch and not arguments.file:
        _imply_framework(arguments)
    asked = _asked(arguments) if arguments.file else None
    request = _from_flags(arguments) if asked is None else _from_manifest(arguments, asked)
    request = advise_runs.asked(arguments, request)
    trainer = advise_launch.trainer_for(arguments, request)
    if arguments.plots:
        advise_pictures.prepare(arguments.plots)
    with output.progress("searching", total=1.0) as advance:
        advice = advise(request, advance)
    if asked is not None:
        from mofa_model.manifest.asked import told

        advice = told(asked, advice)
    launch, refused = advise_launch.launched(request, advice, trainer)
    if arguments.flags_only:
        advise_launch.print_flags(launch)
    else:
        _print(arguments.output, request, advice, launch, str(refused or ""))
    if arguments.save_dir and launch is not None:
        advise_launch.save(arguments, request, advice, launch)
    if arguments.plots:
        for path in advise_pictures.draw(request, advice, arguments.plots):
            sys.stderr.write(f"drawn: {path}\n")
    if advice.status is Status.NO_RECOMMENDATION:
        raise NoFeasibleStrategy(advice.explanation)
    if refused is not None:
        raise refused
    return 0


def _print(form: str, request: Request, advice: Advice, launch: Launch | None, refused: str) -> None:
    if form == "html":
        from mofa_model.page import advice_page, view_of

        sys.stdout.write(advice_page(view_of(request, advice, launch.arguments if launch else ())))
        return
    from mofa_model.verbs import advise_answer

    document = advise_answer.document(advice, launch, refused)
    tables = advise_answer.tables(advice, launch, wide=form != "table")
    output.emit(form, tables, document=document, records=advise_answer.records(advice))


def _imply_framework(a: Namespace) -> None:
    """A launch is for its own trainer: that is what is searched, where no other is named."""
    from mofa_model.manifest.launches import framework_for

    framework = problem_options.framework_of(a)
    chosen = framework_for(a.launch, framework)
    if chosen != framework:
        a.framework = chosen


def _from_flags(a: Namespace) -> Request:
    from mofa_model.advice import Request

    if a.profile:
        raise BadValue(
            "--profile", a.profile[0], "it goes with a manifest; give FILE, or say --gpu and --nodes"
        )
    if a.max_nodes is not None and (a.nodes is not None or a.gpus is not None):
        raise BadValue("--max-nodes", a.max_nodes, "give --max-nodes, or --nodes, or --gpus")
    nodes = units.count(a.max_nodes, field="--max-nodes") if a.max_nodes else problem_options.nodes_of(a)
    problems = problem_options.problems_of(a, nodes)
    cluster = problems[0].cluster
    reliability = problem_options.reliability_of(a, cluster)
    tier = replace(reliability.tiers[0], asynchronous=not a.sync)
    return Request(
        problems=problems,
        reliability=replace(reliability, tiers=(tier,)),
        nodes=nodes,
        fewer_nodes=a.max_nodes is not None,
        objective=a.objective or "time",
        framework=problem_options.framework_of(a),
        constraints=tuple(a.constraint),
        lifted=_lifted(a),
        risk=a.risk,
        checkpoint_bytes=job_options.size_of(a.checkpoint_size) if a.checkpoint_size else None,
        current=problem_options.layout_of(a.current, problems[0], "--current") if a.current else None,
        top=_top(a.top),
    )


def _asked(a: Namespace) -> Asked:
    """What a manifest asks."""
    from mofa_model.verbs.advise_file import asked_in

    parser = ArgumentParser()
    configure(parser)
    given = [
        name
        for name, usual in vars(parser.parse_args([])).items()
        if name not in _BESIDE and getattr(a, name) != usual
    ]
    if given:
        raise InputError(
            f"--{given[0].replace('_', '-')}: the manifest {a.file} says it; give one or the other"
        )
    return asked_in(a.file, a.profile)


def _from_manifest(a: Namespace, asked: Asked) -> Request:
    from mofa_model.manifest.asked import request_of

    request = request_of(asked)
    changes: dict[str, object] = {"top": _top(a.top), "lifted": _lifted(a), "risk": a.risk}
    if a.launch:
        from mofa_model.manifest.launches import framework_for

        changes["framework"] = framework_for(a.launch, request.framework)
    if a.objective:
        changes["objective"] = a.objective
    if a.current:
        changes["current"] = problem_options.layout_of(a.current, request.problems[0], "--current")
    return replace(request, constraints=(*request.constraints, *a.constraint), **changes)  # type: ignore[arg-type]


def _lifted(a: Namespace) -> tuple[str, ...]:
    from mofa_model.search import Rejection

    return (*a.lift, *((Rejection.NOT_MEASURED.value,) if a.allow else ()))


def _top(value: int) -> int:
    if not 0 <= value <= 100:
        raise BadValue("--top", value, "give a number from 0 to 100")
    return value
