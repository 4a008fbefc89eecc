"""`mofa sweep --vary …`: the advice, or one strategy's figures, over a grid of any fields."""

from __future__ import annotations

import importlib
import os
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from mofa_model import output, plots
from mofa_model.errors import BadValue, InputError, NoFeasibleStrategy, SourceUnreachable
from mofa_model.tables import Column, Table
from mofa_model.units import DAY, GIB
from mofa_model.verbs import problem_options
from mofa_model.verbs.sweep_fields import parse_vary, points_of
from mofa_model.verbs.sweep_points import Row, answers, with_linearity

EXAMPLES: Final = """\
values are a list (1,2,4), or a range that doubles (64..8192), multiplies
(64..8192:x4) or steps (10..100:+10)

examples:
  the best strategy on 64 and 128 GPUs, at two batch sizes
    mofa sweep --model llama3-70b --gpu h100 --seq 8192 --framework megatron --vary gpus=64..128 global_batch=512,1024
  one strategy, virtual stages and optimizer placement varied
    mofa sweep --model llama3.1-405b --gpu h100 --gpus 1024 --global-batch 512 --seq 8192 \\
        --strategy tp=8,pp=16,sp=true,schedule=interleaved --vary vpp=2,4,8 optimizer=distributed,distributed-cpu
  ETTR over checkpoint intervals and failure rates, drawn to a file
    mofa sweep --model llama3-70b --gpu h100 --gpus 8192 --global-batch 2048 --seq 8192 --strategy tp=8,pp=4,sp=true \\
        --vary interval=1..1024 failure_rate=0.002,0.005,0.01 --y ettr --plot ettr.svg
  a batch that grows with the GPUs; overlap on and off
    mofa sweep --model llama3-70b --gpu h100 --seq 8192 --framework megatron --vary gpus=64..128 global_batch=1/gpu dp_overlap=true,false
  a measured constant: what if attention ran at 90 % of the peak?
    mofa sweep --model llama3-8b --gpu h100 --gpus 64 --global-batch 512 --seq 8192 --vary compute.attention_efficiency=0.5,0.9
  over the workers of an existing Dask cluster
    mofa sweep … --engine dask --scheduler tcp://host:8786"""

_FIGURES: Final = {
    "status": Column("status"),
    "step_seconds": Column("step seconds", unit="s"),
    "tokens_per_second": Column("tokens per second"),
    "mfu": Column("MFU", unit="%"),
    "linearity": Column("linearity", unit="%"),
    "memory_bytes": Column("memory bytes", unit="B"),
    "activation_bytes": Column("activation bytes", unit="B", wide=True),
    "interval_steps": Column("interval steps"),
    "ettr": Column("ETTR", unit="%"),
    "duration_seconds": Column("duration seconds", unit="s"),
    "gpu_hours": Column("GPU hours"),
    "nodes_used": Column("nodes used", wide=True),
    "searched": Column("searched", wide=True),
    "stages_seconds": Column("stages seconds", unit="s", wide=True),
    "bubble_seconds": Column("bubble seconds", unit="s", wide=True),
    "hops_seconds": Column("hops seconds", unit="s", wide=True),
    "data_seconds": Column("data seconds", unit="s", wide=True),
    "optimizer_seconds": Column("optimizer seconds", unit="s", wide=True),
    "strategy": Column("strategy", align="left", wide=True),
    "why": Column("why", align="left", wide=True),
}
"""Figures of a row, in the order of the columns."""
_DRAWN: Final = {
    "duration_seconds": ("d", DAY),
    "memory_bytes": ("GiB", GIB),
    "activation_bytes": ("GiB", GIB),
}
"""Units of an axis where those of the figure make long numbers."""


def configure(parser: ArgumentParser) -> None:
    """Add the job, what varies, and how the work is carried."""
    parser.add_argument(
        "--vary", nargs="+", required=True, metavar="FIELD=VALUES", help="fields and their values"
    )
    parser.add_argument(
        "--strategy", metavar="TEXT", help="price this layout everywhere (default: search the best)"
    )
    problem_options.add_options(parser, required=False)
    parser.add_argument(
        "--objective", choices=("time", "throughput", "cost"), help="what is best (default: time)"
    )
    parser.add_argument(
        "--constraint", action="append", default=[], metavar="AXIS=…", help="constraint on the search"
    )
    parser.add_argument(
        "--lift", action="append", default=[], metavar="RULE", help="do not apply an expert rule"
    )
    parser.add_argument(
        "--failure-rate", type=float, metavar="R", help="failures per node-day (default: 0.005)"
    )
    parser.add_argument(
        "--hang",
        metavar="TIMEOUT[:SHARE]",
        help="failures that end no process until this timeout (default: none)",
    )
    parser.add_argument(
        "--checkpoint-bandwidth", metavar="BW", help="what a node writes to storage (default: 2 GB/s)"
    )
    work = parser.add_argument_group("work")
    work.add_argument(
        "--jobs", type=int, metavar="N", help="processes (default: one for each core, for many points)"
    )
    work.add_argument("--engine", choices=("local", "dask"), default="local", help="what carries the work")
    work.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask cluster, for --engine dask")
    draw = parser.add_argument_group("plot")
    draw.add_argument("--plot", metavar="FILE", help="draw the sweep to FILE.svg or FILE.png")
    draw.add_argument(
        "--y",
        default="tokens_per_second",
        metavar="FIGURE",
        help="what is drawn (default: tokens_per_second)",
    )
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Answer at every point; 3 where no point has an answer."""
    varied = [parse_vary(text) for text in arguments.vary]
    if arguments.y not in _FIGURES:
        raise BadValue("--y", arguments.y, f"one of {', '.join(_FIGURES)}")
    if arguments.plot:
        plots.check("--plot", arguments.plot)
    points = points_of(varied)
    given = {
        key: value for key, value in vars(arguments).items() if key not in {"vary", "plot", "y", "output"}
    }
    rows: list[Row] = []
    with output.progress("sweeping", total=len(points)) as advance, _carrier(arguments, len(points)) as carry:
        for row in answers(given, points, carry):
            rows.append(row)
            advance(1)
    names = [name for name, _ in varied]
    rows = with_linearity(rows, names)
    failed = [row["why"] for row in rows if "why" in row]
    if rows and all(row["status"] == "Failed" for row in rows):
        raise InputError(failed[0])
    if arguments.plot:
        _plot(arguments.plot, names, rows, arguments.y)
    output.emit(arguments.output, [_table(names, rows)], document={"varied": names, "rows": rows})
    if len(failed) == len(rows):
        raise NoFeasibleStrategy(failed[0])
    return 0


Carry = Callable[..., Iterable[Row]]


@contextmanager
def _carrier(arguments: Namespace, count: int) -> Iterator[Carry]:
    """Something with the call of `map` that carries the work, in the order of the points."""
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
    """A cluster that is there already; nothing is started."""
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


def _table(names: Sequence[str], rows: Sequence[Row]) -> Table:
    figures = [name for name in _FIGURES if any(name in row for row in rows)]
    columns = (*(Column(re.sub("[_.]", " ", name)) for name in names), *(_FIGURES[name] for name in figures))
    cells = tuple(tuple(row.get(name) for name in (*names, *figures)) for row in rows)
    reasons = sorted({row["why"] for row in rows if "why" in row})
    return Table(title="Sweep", columns=columns, rows=cells, notes=tuple(reasons[:5]))


def _plot(path: str, names: Sequence[str], rows: Sequence[Row], figure: str) -> None:
    """One line for each combination of the fields after the first."""
    column = _FIGURES[figure]
    unit, size = _DRAWN.get(figure, (column.unit if column.unit in {"s", "B"} else "", 1.0))
    drawn: dict[str, list[tuple[Any, float]]] = {}
    for row in rows:
        if isinstance(row.get(figure), int | float):
            label = ", ".join(f"{name.replace('_', ' ')} {row[name]}" for name in names[1:])
            drawn.setdefault(label, []).append((_number(row[names[0]]), row[figure] / size))
    y = f"{column.heading} [{unit}]" if unit else column.heading
    plots.lines(path, drawn, x=names[0].replace("_", " "), y=y, percent=column.unit == "%")


def _number(text: Any) -> Any:
    try:
        return float(text)
    except ValueError:
        return text
