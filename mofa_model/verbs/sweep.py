"""`mofa sweep --vary …`: the advice, or one strategy's figures, over a grid of any fields."""

from __future__ import annotations

import importlib
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from mofa_model import output, plots
from mofa_model.answers.options import add_options, question_of
from mofa_model.answers.questions import SweepQuestion
from mofa_model.errors import BadValue, InputError, SourceUnreachable

EXAMPLES: Final = """\
values are a list (1,2,4), or a range that doubles (64..8192), multiplies
(64..8192:x4) or steps (10..100:+10)

examples:
  the best strategy on 64 and 128 GPUs, at two batch sizes
    mofa sweep --model llama3-70b --gpu h100 --seq 8192 --framework megatron \\
        --vary gpus=64..128 global_batch=512,1024
  one strategy, virtual stages and optimizer placement varied
    mofa sweep --model llama3.1-405b --gpu h100 --gpus 1024 --global-batch 512 --seq 8192 \\
        --strategy tp=8,pp=16,sp=true,schedule=interleaved \\
        --vary vpp=2,4,8 optimizer=distributed,distributed-cpu
  ETTR over checkpoint intervals and failure rates, drawn to a file
    mofa sweep --model llama3-70b --gpu h100 --gpus 8192 --global-batch 2048 --seq 8192 \\
        --strategy tp=8,pp=4,sp=true \\
        --vary interval=1..1024 failure_rate=0.002,0.005,0.01 --y ettr --plot ettr.svg
  a batch that grows with the GPUs; overlap on and off
    mofa sweep --model llama3-70b --gpu h100 --seq 8192 --framework megatron \\
        --vary gpus=64..128 global_batch=1/gpu dp_overlap=true,false
  a measured constant: what if attention ran at 90 % of the peak?
    mofa sweep --model llama3-8b --gpu h100 --gpus 64 --global-batch 512 --seq 8192 \\
        --vary compute.attention_efficiency=0.5,0.9
  over the workers of an existing Dask cluster
    mofa sweep … --engine dask --scheduler tcp://host:8786"""


def configure(parser: ArgumentParser) -> None:
    """Add the question, and what carries the work."""
    add_options(parser, SweepQuestion)
    work = parser.add_argument_group("work")
    work.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="number of processes (default: one for each core if there are many points)",
    )
    work.add_argument(
        "--engine",
        choices=("local", "dask"),
        default="local",
        help="where points are computed (default: local processes)",
    )
    work.add_argument(
        "--scheduler", metavar="ADDRESS", help="address of the Dask scheduler, for --engine dask"
    )
    draw = parser.add_argument_group("plot")
    plots.add_option(draw, "the sweep")
    draw.add_argument(
        "--y",
        default="tokens_per_second",
        metavar="FIGURE",
        help="what is drawn (default: tokens_per_second)",
    )
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Answer at every point; 3 where no point has an answer."""
    from mofa_model.answers.sweep import FIGURES, sweep
    from mofa_model.answers.vary import parse_vary, points_of

    question = question_of(SweepQuestion, arguments)
    if arguments.y not in FIGURES:
        raise BadValue("--y", arguments.y, f"one of {', '.join(FIGURES)}")
    if arguments.plot:
        plots.check("--plot", arguments.plot)
    count = len(points_of([parse_vary(text) for text in question.vary]))
    with output.progress("sweeping", total=count) as advance, _carrier(arguments, count) as carry:
        answer = sweep.of(question, carry, advance)
    if arguments.plot:
        drawing = answer.lines(arguments.y)
        plots.lines(
            arguments.plot, drawing.lines, x=drawing.across, y=drawing.up, percent=drawing.percent
        )
    output.emit(arguments.output, answer.tables, document=answer.document)
    answer.raise_for_status()
    return 0


Carry = Callable[..., Iterable[Any]]


@contextmanager
def _carrier(arguments: Namespace, count: int) -> Iterator[Carry]:
    """A function like `map` that answers the points, in order: here, in processes, or on dask."""
    if arguments.engine == "dask":
        yield from _dask(arguments.scheduler)
        return
    jobs = arguments.jobs if arguments.jobs is not None else min(os.cpu_count() or 1, count // 8)
    if jobs < 0:
        raise BadValue("--jobs", jobs, "give zero or more")
    if jobs <= 1:
        yield map
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        try:
            yield lambda *work: pool.map(*work, chunksize=max(1, count // (4 * jobs)))
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise


def _dask(address: str | None) -> Iterator[Carry]:
    """A client of a dask cluster that already runs."""
    try:
        distributed = importlib.import_module("dask.distributed")
    except ImportError:
        raise InputError(
            "--engine dask: the package dask.distributed is not installed; pip install distributed"
        ) from None
    if not address:
        raise InputError(
            "--scheduler: is missing; give the address of a running Dask scheduler, tcp://host:8786"
        )
    try:
        client = distributed.Client(address, timeout=10)
    except (OSError, TimeoutError, ValueError) as error:
        raise SourceUnreachable(f"--scheduler: {address} did not answer: {error}") from None
    with client:
        yield lambda function, *work: client.gather(client.map(function, *work, pure=False))
