"""From options to layouts: what was traced, and what is asked for. Not a verb."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from mofa_model import presets, units
from mofa_model.answers import options
from mofa_model.answers.questions import TrainingQuestion
from mofa_model.answers.training import problems_of
from mofa_model.blocks import Block, FeedForward, LatentAttention, SoftmaxAttention
from mofa_model.errors import BadValue, InputError
from mofa_model.spec import Transformer
from mofa_model.strategy import format_strategy, pairs_of, parse_strategy

if TYPE_CHECKING:
    from mofa_lab.traces.prices import Layout


def add_options(parser: ArgumentParser) -> None:
    """Add the options that describe the traced layout."""
    options.add_options(parser, TrainingQuestion)
    parser.add_argument(
        "--strategy",
        metavar="LAYOUT",
        help="the layout that was traced, for example tp=2,pp=2,dp=2",
    )


def add_targets(parser: ArgumentParser) -> None:
    """Add the options that describe the layout that is asked for."""
    to = parser.add_argument_group("asked for; what is not given stays as it was traced")
    to.add_argument(
        "--to",
        metavar="LAYOUT",
        help="degrees that change, for example tp=4,pp=4; dp follows from --to-gpus",
    )
    to.add_argument("--to-layers", metavar="N", help="layers of the model")
    to.add_argument(
        "--to-hidden", metavar="H", help="hidden size; heads and feed-forward width grow with it"
    )
    to.add_argument("--to-global-batch", metavar="B", help="sequences in a step")
    to.add_argument("--to-gpu", metavar="GPU", help="device preset")
    to.add_argument("--to-gpus", metavar="N", help="devices")


def traced(arguments: Namespace) -> Layout:
    """The layout that was traced."""
    from mofa_lab.traces.prices import Layout

    for name in ("model", "gpu", "sequence_length", "global_batch_size", "strategy"):
        if getattr(arguments, name) is None:
            how = TrainingQuestion.options.get(name)
            flag = how.flag if how else f"--{name}"
            raise InputError(f"{flag}: is missing; a trace does not say it, so it must be given")
    gpus = units.count(arguments.gpus, field="--gpus") if arguments.gpus else None
    strategy = parse_strategy(arguments.strategy, gpus=gpus, field="--strategy")
    (problem, *more) = problems_of(options.question_of(TrainingQuestion, arguments), nodes=1)
    if more:
        raise BadValue("--precision", arguments.precision, "give the one that was traced")
    cluster = replace(problem.cluster, gpus=strategy.gpus)
    return _checked(
        Layout(workload=problem.workload, cluster=cluster, strategy=strategy), "--global-batch"
    )


def asked(arguments: Namespace, old: Layout) -> Layout:
    """The layout that is asked for."""
    workload, cluster = old.workload, old.cluster
    model, training = workload.model, workload.training
    if arguments.to_layers:
        deeper = replace(
            model.runs[-1], repeats=units.count(arguments.to_layers, field="--to-layers")
        )
        model = replace(model, runs=(*model.runs[:-1], deeper))
    if arguments.to_hidden:
        model = _wider(old, units.count(arguments.to_hidden, field="--to-hidden"))
    if arguments.to_global_batch:
        batch = units.count(arguments.to_global_batch, field="--to-global-batch")
        training = replace(training, global_batch=batch)
    if arguments.to_gpu:
        stack = cluster.calibration.stack
        cluster = presets.cluster(arguments.to_gpu, 1, stack=stack, precision=training.precision)
    strategy = old.strategy
    if arguments.to or arguments.to_gpus:
        gpus = units.count(arguments.to_gpus, field="--to-gpus") if arguments.to_gpus else None
        strategy = parse_strategy(
            _over(old, arguments.to or "", free=gpus is not None), gpus=gpus, field="--to"
        )
    workload = replace(workload, model=model, training=training)
    from mofa_lab.traces.prices import Layout

    new = Layout(workload=workload, cluster=replace(cluster, gpus=strategy.gpus), strategy=strategy)
    return _checked(new, "--to-global-batch")


def _wider(old: Layout, hidden: int) -> Transformer:
    """The model scaled to another hidden size; the number of key and value groups stays."""
    model = old.workload.model
    share = hidden / float(model.hidden)

    def wider(block: Block) -> Block:
        if isinstance(block, SoftmaxAttention | LatentAttention):
            heads = float(block.heads) * share
            if heads != round(heads):
                unit = float(model.hidden) / float(block.heads)
                raise BadValue("--to-hidden", hidden, f"a multiple of {unit:g}")
            return replace(block, heads=round(heads))
        if isinstance(block, FeedForward):
            return replace(block, width=round(float(block.width) * share))
        return block

    layer = model.kinds[0]
    runs = tuple(
        replace(run, layers=(replace(layer, blocks=tuple(map(wider, layer.blocks))),))
        for run in model.runs
    )
    return replace(model, hidden=hidden, runs=runs)


def _over(old: Layout, text: str, *, free: bool) -> str:
    """The traced layout's text with some values changed."""
    changed = pairs_of(text, "--to") if text else {}
    pairs = pairs_of(format_strategy(old.strategy)) | changed
    if free and "dp" not in changed:
        del pairs["dp"]
    return ",".join(f"{key}={value}" for key, value in pairs.items())


def _checked(layout: Layout, field: str) -> Layout:
    batch, copies = (
        int(layout.workload.training.global_batch),
        int(layout.strategy.global_micro_batch),
    )
    if batch % copies:
        raise BadValue(field, batch, f"give a multiple of dp x mbs = {copies}")
    return layout
