"""`mofa simulate`: runs under failures, event by event: scatter of ETTR, lost time, a timeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mofa_model import output, units
from mofa_model.answers.answer import UserAnswer, asked_by
from mofa_model.answers.ettr import bare_of
from mofa_model.answers.given import with_layout
from mofa_model.answers.job import every_of, job_of, time_of
from mofa_model.answers.questions import SimulateQuestion
from mofa_model.answers.scenarios import planned_scenario, scenario_of
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.tables import Column, Table
from mofa_model.units import Range

if TYPE_CHECKING:
    from mofa_model.reliability.model import Job
    from mofa_model.simulator.runs import Runs, TimelineStretch


@dataclass(frozen=True, kw_only=True, repr=False)
class SimulateAnswer(UserAnswer):
    """How ETTR scatters over runs, and what time is lost to."""

    question: SimulateQuestion
    """What was asked."""
    document: dict[str, Any]
    """Everything that is said, as plain data."""

    @property
    def ettr(self) -> float:
        """Mean effective training time ratio of the runs, or share of a pool's node-time. [1]"""
        return float(self.document["ettr"]["mean"])

    @property
    def tables(self) -> Sequence[Table]:
        """The answer as tables, for people."""
        if self.question.jobs:
            from mofa_model.answers.shared_pool import pool_tables

            return pool_tables(self.document)
        return _tables(self.document)

    @property
    def records(self) -> Table:
        """One row of figures; with a timeline its stretches, of a pool its jobs."""
        if self.question.jobs:
            return self.tables[0]
        return self.tables[-1] if self.document["timeline"] else output.as_record(self.document)

    def shown(self) -> Sequence[Any]:
        """Where nine of ten runs lie, with the exact model on it, and the tables."""
        from mofa_model.page.figures import band

        if self.question.jobs:
            return super().shown()
        ettr = self.document["ettr"]
        words = ("median of runs", "exact model")
        runs = Range(lower=ettr["p05"], target=ettr["median"], upper=ettr["p95"])
        picture = band("ETTR of a run", runs, ettr["exact"], "{:.2%}", words)
        return [picture, *super().shown()]


@asked_by(SimulateQuestion)
def simulate(
    question: SimulateQuestion, advance: Callable[[float], None] = lambda _: None
) -> SimulateAnswer:
    """Runs of a job under failures, event by event, with the exact model beside them."""
    from mofa_model.reliability import interval, model
    from mofa_model.simulator import runs

    question = with_layout(question)
    job = job_of(question)
    if question.jobs:
        from mofa_model.answers.shared_pool import simulate_pool

        return SimulateAnswer(question=question, document=simulate_pool(question, job, advance))
    every = every_of(question.every, len(bare_of(job).blocking))
    if question.interval is None or (every is None and len(bare_of(job).blocking) > 1):
        best = interval.recommend(job, every=every)
        steps, every = question.interval or best.steps, best.every
    else:
        steps, every = question.interval, every or (1,)
    duration = time_of(question.duration, "--duration", least=1e-9)
    done = 0.0

    def progress(share: float) -> None:
        nonlocal done
        advance(share - done)
        done = share

    if model.is_planned(job):
        return _under_plan(question, job, steps, every, duration, progress)
    scenario = scenario_of(job, steps, every)
    result = runs.simulate_runs(
        scenario, duration=duration, count=question.runs, seed=question.seed, progress=progress
    )
    exact = float(model.ettr(job, steps, every) / model.available(job))
    document = _document(result, exact, steps, every)
    if question.timeline:
        stretches = runs.timeline(scenario, duration=duration, seed=question.seed)
        document["timeline"] = _merged(stretches)[: question.timeline]
    return SimulateAnswer(question=question, document=document)


def _under_plan(
    question: SimulateQuestion,
    job: Job,
    steps: int,
    every: tuple[int, ...],
    duration: float,
    progress: Callable[[float], None],
) -> SimulateAnswer:
    """Runs under a recovery plan, with nodes, spares and replicas one by one."""
    from mofa_model.reliability import model
    from mofa_model.simulator.planned import simulate_planned

    if question.timeline:
        raise BadValue("--timeline", question.timeline, "leave it out with --recovery")
    scenario = planned_scenario(job, steps, every)
    result = simulate_planned(
        scenario, duration=duration, count=question.runs, seed=question.seed, progress=progress
    )
    document = _document(result, float(model.ettr(job, steps, every)), steps, every)
    if job.plan is not None:
        document["recovery"] = job.plan.name
    return SimulateAnswer(question=question, document=document)


def _document(
    result: Runs,
    exact: float,
    steps: int,
    every: tuple[int, ...],
) -> dict[str, Any]:
    import numpy as np

    low, middle, high = (float(x) for x in np.quantile(result.ettr, (0.05, 0.5, 0.95)))
    mean = float(np.mean(result.ettr))
    return {
        "duration_s": float(result.duration),
        "runs": len(result.ettr),
        "interval_steps": steps,
        "every": list(every),
        "ettr": {
            "mean": mean,
            "error": float(np.std(result.ettr) / np.sqrt(len(result.ettr))),
            "sd": float(np.std(result.ettr)),
            "p05": low,
            "median": middle,
            "p95": high,
            "exact": exact,
        },
        "failures": float(np.mean(result.failures)),
        "lost_s": {name: seconds for name, seconds in result.lost.items() if seconds > 0},
        "timeline": [],
    }


def _merged(stretches: tuple[TimelineStretch, ...]) -> list[dict[str, Any]]:
    """A timeline with two stretches for each failure: recovering, then training with its saves."""
    merged: list[dict[str, Any]] = []
    for stretch in stretches:
        what = "recovering" if stretch.phase == "recovering" else "training"
        saves = int(stretch.phase == "saving" and not stretch.failure)
        if merged and merged[-1]["what"] == what and not merged[-1]["ended_by"]:
            merged[-1].update(
                end_s=float(stretch.end),
                saves=merged[-1]["saves"] + saves,
                ended_by=stretch.failure,
            )
        else:
            merged.append(
                {
                    "start_s": float(stretch.start),
                    "end_s": float(stretch.end),
                    "what": what,
                    "saves": saves,
                    "ended_by": stretch.failure,
                }
            )
    return merged


def _tables(document: dict[str, Any]) -> list[Table]:
    """The answer of `mofa simulate` as tables for a terminal."""
    ettr = document["ettr"]
    names = {
        "mean": "mean",
        "p05": "5 % of runs are below",
        "median": "median",
        "p95": "5 % of runs are above",
        "sd": "standard deviation",
        "error": "standard error of the mean",
        "exact": "exact model, long run",
    }
    every = ", ".join(f"{document['interval_steps'] * n} steps" for n in document["every"])
    tables = [
        Table(
            title=f"{document['runs']} runs of {units.format(document['duration_s'], 's')}, "
            f"saves every {every}",
            columns=(Column("effective training time"), Column("share", unit="%")),
            rows=tuple((text, ettr[name]) for name, text in names.items()),
            notes=(f"{document['failures']:.4g} failures a run on average.",),
        ),
        Table(
            title="Lost time of a run, on average",
            columns=(Column("to"), Column("time", unit="s"), Column("share", unit="%")),
            rows=tuple(
                (name, seconds, seconds / document["duration_s"])
                for name, seconds in document["lost_s"].items()
            ),
        ),
    ]
    if document["timeline"]:
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
                rows=tuple(tuple(row[c.key] for c in columns) for row in document["timeline"]),
            )
        )
    return tables
