"""Effective training time: how much of the wall time becomes training, and which checkpoint interval gives most."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import Any, Final

from mofa_model import output, plots, units
from mofa_model.errors import BadValue
from mofa_model.tables import Column, Table
from mofa_model.verbs import job_options, job_text

EXAMPLES: Final = """\
examples:
  the paper's section 5.4: the best interval is 37 steps
    mofa ettr --nodes 32 --step 27.99s --rate 0.01 --mttr 60s --save 2s
  a point, from counts of a live cluster, with its band
    mofa ettr --nodes 2048 --step 10s --failures 419 --node-days 110592 --save 20s --interval 60
  asynchronous saves, and the curve over intervals, drawn to a file
    mofa ettr --nodes 2048 --step 10s --save 2s --copy 120s --slowdown 0.02 --curve 25 --plot ettr.svg
  the best interval and its ETTR at several failure rates
    mofa ettr --nodes 32 --step 27.99s --mttr 60s --save 2s --vary rate=0.0025..0.04
  local, peer and remote tiers, each with its own interval
    mofa ettr --nodes 2048 --step 10s --save 0.2s,1s,2s --copy 0s,20s,240s
  save times from a model and a storage
    mofa ettr --nodes 2048 --step 10s --model llama3.1-405b --storage 'remote:2GB/s:500GB/s:100GB/s'
  failures, recoveries, spares and storage of a pool's profile
    mofa ettr --profile h100-east --nodes 256 --step 10s --model llama3.1-405b
  clustered failures, racks that fail as one, a queue
    mofa ettr --nodes 2048 --step 10s --law weibull:0.7 --domain rack:16:0.001:1h --queue 20min:lognormal:3
  failures that hang until a timeout of 15 min, three in ten of them, and what a watchdog is worth
    mofa ettr --nodes 2048 --step 10s --hang 15min:0.3
  a pool with 16 spares and 24 h repair; the nodes and spares that end 500000 steps in 60 days
    mofa ettr --nodes 2048 --step 10s --spares 16 --total-steps 500000 --deadline 60d"""


def configure(parser: ArgumentParser) -> None:
    """Add the job's options, and what to say of it."""
    job_options.add_options(parser)
    ask = parser.add_argument_group("answer")
    ask.add_argument("--interval", type=int, metavar="K", help="steps between saves (default: the best)")
    ask.add_argument(
        "--every", metavar="1,M,N", help="saves of the nearest tier for one of each tier (default: the best)"
    )
    ask.add_argument(
        "--method",
        choices=("exact", "paper"),
        default="exact",
        help="the model that answers (default: exact)",
    )
    ask.add_argument("--level", type=float, default=0.9, metavar="P", help="level of the band (default: 0.9)")
    ask.add_argument("--curve", type=int, default=0, metavar="N", help="list N intervals around the best")
    ask.add_argument(
        "--vary", metavar="FIELD=VALUES", help="best interval at each value: rate=0.0025..0.04, save=2s,20s"
    )
    ask.add_argument("--plot", metavar="FILE", help="draw the curve to FILE.svg or FILE.png")
    ask.add_argument(
        "--total-steps", type=float, metavar="S", help="steps of the run: adds the time to finish"
    )
    ask.add_argument(
        "--deadline", metavar="TIME", help="time to finish in, with --total-steps: adds nodes and spares"
    )
    ask.add_argument(
        "--scaling", type=float, default=1.0, metavar="X", help="step time goes as nodes^-X (default: 1)"
    )
    ask.add_argument(
        "--window",
        default="7 d",
        metavar="TIME",
        help="length of the run whose scatter is told (default: 7 d)",
    )
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Answer for one job."""
    from mofa_model.verbs import ettr_answer

    _check(arguments)
    if arguments.vary:
        return _varied(arguments)
    job = job_options.job_of(arguments)
    every = _every(arguments.every, len(job.blocking))
    if arguments.method == "paper" and len(job.blocking) > 1:
        job = _nearest_remote(job)
        every = None
    with output.progress("pricing intervals"):
        answer = ettr_answer.answer(job, arguments, every)
    if arguments.plot:
        ettr_answer.plot(job, answer, arguments.plot)
    tables = _tables(answer)
    output.emit(
        arguments.output, tables, answer, records=tables[-1] if answer["curve"] else output.as_record(answer)
    )
    return 0


def _varied(arguments: Namespace) -> int:
    from mofa_model.verbs import ettr_vary

    field, rows = ettr_vary.varied(arguments)
    if arguments.plot:
        ettr_vary.plot(arguments.plot, field, rows)
    output.emit(arguments.output, [ettr_vary.table(field, rows)], document={"varied": field, "rows": rows})
    return 0


def _check(arguments: Namespace) -> None:
    if arguments.interval is not None and not 1 <= arguments.interval <= 10**9:
        raise BadValue("--interval", arguments.interval, "give steps between saves, one or more")
    job_text.within(arguments.scaling, "--scaling", 0, 2)
    if not 0 < arguments.level < 1:
        raise BadValue("--level", arguments.level, "give a level between 0 and 1, for example 0.9")
    if not 0 <= arguments.curve <= 10_000:
        raise BadValue("--curve", arguments.curve, "give at most 10000 intervals")
    if arguments.deadline and not arguments.total_steps:
        raise BadValue("--deadline", arguments.deadline, "give --total-steps with it")
    if arguments.total_steps is not None and not 1 <= arguments.total_steps <= 1e15:
        raise BadValue("--total-steps", arguments.total_steps, "give steps of the run, one or more")
    if arguments.plot:
        plots.check("--plot", arguments.plot)


def _every(text: str | None, tiers: int) -> tuple[int, ...] | None:
    if text is None:
        return None
    numbers = tuple(units.count(part, field="--every") for part in text.split(","))
    if len(numbers) != tiers or min(numbers) < 1:
        raise BadValue("--every", text, f"give {tiers} numbers of one or more, one for each tier")
    return numbers


def _nearest_remote(job: Any) -> Any:
    """The paper knows one tier: the last, which every failure can read."""
    from mofa_model.reliability.model import one_tier

    return replace(one_tier(job, len(job.blocking) - 1))


def _tables(answer: dict[str, Any]) -> list[Table]:
    interval, band = answer["interval"], answer["ettr"]
    rows: list[tuple[Any, ...]] = [
        (
            "ETTR",
            band["target"],
            f"{100 * band['lower']:.2f} … {100 * band['upper']:.2f} %, {answer['model']}",
        ),
        ("ETTR, paper's form", answer["paper"]["ettr"], answer["paper"]["trust"]),
        (
            "scatter of one run",
            answer["scatter"]["sd"],
            f"standard deviation over {units.format(answer['scatter']['window_s'], 's')}",
        ),
        ("with half the interval", interval["half"], ""),
        ("with twice the interval", interval["double"], ""),
    ]
    facts: list[tuple[Any, ...]] = [
        ("interval", f"{interval['steps']} steps = {units.format(interval['seconds'], 's')}"),
        *(
            [("tiers save every", ", ".join(f"{n} steps" for n in interval["tier_steps"]))]
            if len(interval["tier_steps"]) > 1
            else []
        ),
        ("loses at most 0.1 points", f"{interval['flat_from']} … {interval['flat_to']} steps"),
        ("best, least worst regret", f"{interval['minimax_steps']} steps"),
        ("best, paper's Eq. (44)", f"{answer['paper']['steps']} steps"),
        (
            "failures of the job",
            f"one in {units.format(answer['mtbf_s'], 's')}" if answer["mtbf_s"] else "none",
        ),
        (
            "failures per node-day",
            "{target:.3g} ({lower:.3g} … {upper:.3g})".format(**answer["failures_per_node_day"]),
        ),
    ]
    if "watchdog" in answer:
        found = answer["watchdog"]
        timeout = units.format(found["timeout_s"], "s")
        facts += [
            (
                "ending hangs sooner",
                f"a watchdog of {timeout} is worth {100 * found['worth']:.1f} points here",
            )
        ]
    if "finish_s" in answer:
        facts += [("time to finish", _range(answer["finish_s"]))]
    if "deadline" in answer:
        facts += [
            (name.replace("_", " "), "no number is enough" if n is None else str(n))
            for name, n in answer["deadline"].items()
        ]
    tables = [
        Table(
            title="Effective training time",
            columns=(Column("what"), Column("share", unit="%"), Column("note")),
            rows=tuple(rows),
        ),
        Table(columns=(Column("what"), Column("answer", align="left")), rows=tuple(facts)),
        Table(
            title="Where the time goes",
            columns=(Column("what"), Column("share", unit="%")),
            rows=tuple((name, share) for name, share in answer["budget"].items()),
        ),
    ]
    if answer["curve"]:
        columns = (
            Column("steps"),
            Column("seconds", unit="s"),
            *(Column(n, unit="%") for n in ("ettr", "lower", "upper", "paper")),
        )
        tables.append(
            Table(
                title="Curve",
                columns=columns,
                rows=tuple(tuple(p[c.key] for c in columns) for p in answer["curve"]),
            )
        )
    return tables


def _range(band: dict[str, float | None]) -> str:
    def told(value: float | None) -> str:
        return "never" if value is None else units.format(value, "s")

    return f"{told(band['target'])} ({told(band['lower'])} … {told(band['upper'])})"
