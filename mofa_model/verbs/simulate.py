"""A run under failures, event by event: how ETTR scatters, what time is lost to, and one run as a timeline."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any, Final

from mofa_model import output, units
from mofa_model.errors import BadValue
from mofa_model.tables import Column, Table
from mofa_model.verbs import job_options, job_text

if TYPE_CHECKING:
    from mofa_model.reliability.model import Job
    from mofa_model.simulator.runs import Runs, TimelineStretch
    from mofa_model.simulator.scenario import Scenario

EXAMPLES: Final = """\
examples:
  a week on 2048 nodes, a thousand times; the interval is the best one
    mofa simulate --nodes 2048 --step 10s --save 20s --duration 7d --runs 1000
  the same run event by event, as a timeline
    mofa simulate --nodes 2048 --step 10s --save 20s --duration 1d --timeline 40
  three tiers with background copies, at an interval of your own
    mofa simulate --nodes 2048 --step 10s --save 0.2s,1s,2s --copy 0s,20s,240s --interval 6 --every 1,5,60
  clustered failures; all figures for a script
    mofa simulate --nodes 512 --step 10s --law weibull:0.7 --duration 30d --json"""


def configure(parser: ArgumentParser) -> None:
    """Add the job's options, and how long and how often to run it."""
    job_options.add_options(parser)
    ask = parser.add_argument_group("simulation")
    ask.add_argument("--duration", default="7 d", metavar="TIME", help="length of a run (default: 7 d)")
    ask.add_argument("--runs", type=int, default=400, metavar="N", help="number of runs (default: 400)")
    ask.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of the random numbers (default: 1)"
    )
    ask.add_argument("--interval", type=int, metavar="K", help="steps between saves (default: the best)")
    ask.add_argument(
        "--every", metavar="1,M,N", help="saves of the nearest tier for one of each tier (default: the best)"
    )
    ask.add_argument(
        "--timeline", type=int, default=0, metavar="N", help="show the first N stretches of one run"
    )
    output.add_options(parser)


def run(arguments: Namespace) -> int:
    """Simulate, and set the exact model beside it."""
    from mofa_model.reliability import interval, model
    from mofa_model.simulator import runs

    _check(arguments)
    job = job_options.job_of(arguments)
    every = _every(arguments.every, len(job.blocking))
    if arguments.interval is None or (every is None and len(job.blocking) > 1):
        best = interval.recommend(job, every=every)
        steps, every = arguments.interval or best.steps, best.every
    else:
        steps, every = arguments.interval, every or (1,)
    scenario = scenario_of(job, steps, every)
    duration = job_text.time_of(arguments.duration, "--duration", least=1e-9)
    with output.progress("simulating", total=1.0) as advance:
        seen = [0.0]

        def progress(share: float) -> None:
            advance(share - seen[0])
            seen[0] = share

        found = runs.simulate_runs(
            scenario, duration=duration, count=arguments.runs, seed=arguments.seed, progress=progress
        )
    line = runs.timeline(scenario, duration=duration, seed=arguments.seed) if arguments.timeline else ()
    told = _document(found, float(model.ettr(job, steps, every) / model.available(job)), steps, every, line)
    told["timeline"] = told["timeline"][: arguments.timeline]
    tables = _tables(told)
    records = tables[-1] if told["timeline"] else output.as_record(told)
    output.emit(arguments.output, tables, told, records=records)
    return 0


def scenario_of(job: Job, steps: float, every: tuple[int, ...]) -> Scenario:
    """The job as the simulator takes it."""
    from mofa_model.reliability import model
    from mofa_model.simulator.scenario import Cause, Scenario

    rate, sources = float(model.failure_rate(job)), model.sources(job)
    return Scenario(
        rate=rate,
        causes=tuple(
            Cause(
                name=source.name,
                share=source.share,
                recoveries=source.recoveries,
                tier=source.tier,
            )
            for source in sources
        ),
        work=steps * float(job.step_time),
        every=every,
        blocking=tuple(float(x) for x in job.blocking),
        background=tuple(float(x) for x in job.background),
        slowdown=job.reliability.slowdown,
        law=job.reliability.law,
        during_recovery=job.reliability.failures_during_recovery,
    )


def _check(arguments: Namespace) -> None:
    if not 1 <= arguments.runs <= 100_000:
        raise BadValue("--runs", arguments.runs, "give a number of runs from 1 to 100000")
    if arguments.seed < 0:
        raise BadValue("--seed", arguments.seed, "give a seed of zero or more")
    if arguments.interval is not None and not 1 <= arguments.interval <= 10**9:
        raise BadValue("--interval", arguments.interval, "give steps between saves, one or more")
    if not 0 <= arguments.timeline <= 100_000:
        raise BadValue("--timeline", arguments.timeline, "give a number of stretches from 0 to 100000")


def _every(text: str | None, tiers: int) -> tuple[int, ...] | None:
    if text is None:
        return None
    numbers = tuple(units.count(part, field="--every") for part in text.split(","))
    if len(numbers) != tiers or min(numbers) < 1:
        raise BadValue("--every", text, f"give {tiers} numbers of one or more, one for each tier")
    return numbers


def _document(
    found: Runs, exact: float, steps: int, every: tuple[int, ...], line: tuple[TimelineStretch, ...]
) -> dict[str, Any]:
    import numpy as np

    low, middle, high = (float(x) for x in np.quantile(found.ettr, (0.05, 0.5, 0.95)))
    mean = float(np.mean(found.ettr))
    return {
        "duration_s": float(found.duration),
        "runs": len(found.ettr),
        "interval_steps": steps,
        "every": list(every),
        "ettr": {
            "mean": mean,
            "error": float(np.std(found.ettr) / np.sqrt(len(found.ettr))),
            "sd": float(np.std(found.ettr)),
            "p05": low,
            "median": middle,
            "p95": high,
            "exact": exact,
        },
        "failures": float(np.mean(found.failures)),
        "lost_s": {name: seconds for name, seconds in found.lost.items() if seconds > 0},
        "timeline": _merged(line),
    }


def _merged(line: tuple[TimelineStretch, ...]) -> list[dict[str, Any]]:
    """Stretches from failure to failure: recovering, then training with its saves."""
    told: list[dict[str, Any]] = []
    for stretch in line:
        what = "recovering" if stretch.phase == "recovering" else "training"
        saves = int(stretch.phase == "saving" and not stretch.failure)
        if told and told[-1]["what"] == what and not told[-1]["ended_by"]:
            told[-1].update(
                end_s=float(stretch.end), saves=told[-1]["saves"] + saves, ended_by=stretch.failure
            )
        else:
            told.append(
                {
                    "start_s": float(stretch.start),
                    "end_s": float(stretch.end),
                    "what": what,
                    "saves": saves,
                    "ended_by": stretch.failure,
                }
            )
    return told


def _tables(told: dict[str, Any]) -> list[Table]:
    ettr = told["ettr"]
    names = {
        "mean": "mean", "p05": "5 % of runs are below", "median": "median", "p95": "5 % of runs are above",
        "sd": "standard deviation", "error": "standard error of the mean", "exact": "exact model, long run",
    }  # fmt: skip
    every = ", ".join(f"{told['interval_steps'] * n} steps" for n in told["every"])
    tables = [
        Table(
            title=f"{told['runs']} runs of {units.format(told['duration_s'], 's')}, saves every {every}",
            columns=(Column("effective training time"), Column("share", unit="%")),
            rows=tuple((text, ettr[name]) for name, text in names.items()),
            notes=(f"{told['failures']:.4g} failures a run on average.",),
        ),
        Table(
            title="Lost time of a run, on average",
            columns=(Column("to"), Column("time", unit="s"), Column("share", unit="%")),
            rows=tuple(
                (name, seconds, seconds / told["duration_s"]) for name, seconds in told["lost_s"].items()
            ),
        ),
    ]
    if told["timeline"]:
        columns = (
            Column("start s", unit="s"),
            Column("end s", unit="s"),
            Column("what"),
            Column("saves"),
            Column("ended by"),
        )
        tables.append(
            Table(
                title="One run",
                columns=(Column("from", unit="s"), Column("to", unit="s"), *columns[2:]),
                rows=tuple(tuple(row[c.key] for c in columns) for row in told["timeline"]),
            )
        )
    return tables
