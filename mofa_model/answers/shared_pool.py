"""Several jobs in one pool, event by event: when each ends, and which share of node-time trains."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mofa_model import units
from mofa_model.answers.job import every_of, time_of
from mofa_model.errors import BadValue
from mofa_model.tables import Column, Table

if TYPE_CHECKING:
    from mofa_model.answers.questions import SimulateQuestion
    from mofa_model.reliability.model import Job
    from mofa_model.simulator.pool import PoolJob, PoolOutcome

_FORM: Final = "write NAME:NODES:TRAINING[:PRIORITY[:ARRIVES]], for example big:48:20d:2:1d"
_QUANTILES: Final = {"p10": 0.1, "p50": 0.5, "p90": 0.9}
_MOST_JOBS: Final = 1000


def simulate_pool(
    question: SimulateQuestion, job: Job, advance: Callable[[float], None]
) -> dict[str, Any]:
    """Runs of a pool; each run draws its failure rate from the rate's uncertainty."""
    import numpy as np

    from mofa_model.simulator.pool import PoolRun, PoolScenario, at_rate
    from mofa_model.spec.reliability import RecoveryTime

    if question.timeline:
        raise BadValue("--timeline", question.timeline, "leave it out with --job")
    if len(question.jobs) > _MOST_JOBS:
        raise BadValue("--job", len(question.jobs), f"give at most {_MOST_JOBS} jobs")
    pool = PoolScenario(
        nodes=int(job.nodes),
        spares=question.spares or 0,
        repair=RecoveryTime(mean=job.reliability.repair, law="exponential"),
        preempts=question.preempt,
        jobs=tuple(_job_of(text, question, job) for text in question.jobs),
    )
    names = [pool_job.name for pool_job in pool.jobs]
    if len(set(names)) < len(names):
        raise BadValue("--job", ", ".join(names), "give each job a name of its own")
    duration = time_of(question.duration, "--duration", least=1e-9)
    random, shape = np.random.default_rng(question.seed), _failures_counted(job)
    outcomes = []
    for number in range(question.runs):
        factor = 1.0 if math.isinf(shape) else float(random.gamma(shape) / shape)
        run = PoolRun(at_rate(pool, factor), question.seed * question.runs + number)
        outcomes.append(run.run(duration))
        advance(1 / question.runs)
    return _document(question, pool.nodes, pool.jobs, outcomes, duration)


def _failures_counted(job: Job) -> float:
    """Failures on which the rate rests, the shape of its gamma law; infinite = certain. [1]"""
    modes = job.reliability.classes
    if all(mode.rate.exactly is not None for mode in modes):
        return math.inf
    return max(sum(mode.rate.failures for mode in modes if mode.rate.exactly is None), 0.5)


def _job_of(text: str, question: SimulateQuestion, shared: Job) -> PoolJob:
    """A job of the pool from the text of --job, at its best interval."""
    from mofa_model.answers.ettr import bare_of
    from mofa_model.answers.scenarios import planned_scenario
    from mofa_model.reliability import interval
    from mofa_model.simulator.pool import PoolJob

    parts = text.split(":")
    if not 3 <= len(parts) <= 5 or not parts[0]:
        raise BadValue("--job", text, _FORM)
    nodes = units.count(parts[1], field="--job")
    if nodes < 1:
        raise BadValue("--job", text, "give it one node or more")
    try:
        priority = float(parts[3]) if len(parts) > 3 else 0.0
    except ValueError:
        raise BadValue("--job", text, f"its priority is no number; {_FORM}") from None
    if not math.isfinite(priority):
        raise BadValue("--job", text, "give a finite priority")
    # The pool's simulation has the waiting for nodes, so the job alone has spares without end.
    reliability = replace(shared.reliability, spares=None)
    job = replace(shared, nodes=float(nodes), reliability=reliability)
    every = every_of(question.every, len(bare_of(job).blocking))
    best = interval.recommend(job, every=every)
    steps = question.interval or best.steps
    return PoolJob(
        name=parts[0],
        scenario=planned_scenario(job, steps, every or best.every),
        work=time_of(parts[2], "--job", least=1e-9),
        priority=priority,
        arrives=time_of(parts[4], "--job") if len(parts) > 4 else 0.0,
        start=float(reliability.start),
    )


def _document(
    question: SimulateQuestion,
    nodes: int,
    jobs: Sequence[PoolJob],
    outcomes: Sequence[PoolOutcome],
    duration: float,
) -> dict[str, Any]:
    """The answer for jobs that share a pool: figures of each job, and shares of the pool's time."""
    import numpy as np

    def quantiles(values: Any) -> dict[str, float | None]:
        """Quantiles by name; None where one lies beyond the run."""
        quantile_values = np.quantile(values, list(_QUANTILES.values()), method="inverted_cdf")
        return {
            name: float(value) if math.isfinite(value) else None
            for name, value in zip(_QUANTILES, quantile_values, strict=True)
        }

    def share(part: str) -> Any:
        times = np.array([getattr(outcome, f"{part}_node_time") for outcome in outcomes])
        return times / [outcome.duration * nodes for outcome in outcomes]

    rows = []
    for index, job in enumerate(jobs):
        of_job = [outcome.of_jobs[index] for outcome in outcomes]
        held = np.array([outcome.held_time for outcome in of_job])
        kept = np.array([outcome.kept_time for outcome in of_job])
        rows.append(
            {
                "name": job.name,
                "nodes": job.scenario.nodes,
                "interval_steps": job.scenario.steps,
                "finished_share": float(
                    np.mean([math.isfinite(outcome.finished) for outcome in of_job])
                ),
                "finish_s": quantiles([outcome.finished for outcome in of_job]),
                "queued_s": float(np.mean([outcome.queued for outcome in of_job])),
                "lacked_node_s": float(np.mean([outcome.lacked for outcome in of_job])),
                "ettr": float(np.mean(kept[held > 0] / held[held > 0])) if np.any(held) else 0.0,
                "failures": float(np.mean([outcome.failures for outcome in of_job])),
                "preempted": float(np.mean([outcome.preempted for outcome in of_job])),
            }
        )
    effective = share("kept")
    return {
        "duration_s": duration,
        "runs": len(outcomes),
        "nodes": nodes,
        "spares": question.spares or 0,
        "ettr": {"mean": float(effective.mean()), **quantiles(effective)},
        "held_share": float(share("held").mean()),
        "broken_share": float(share("broken").mean()),
        "idle_share": float(share("idle").mean()),
        "jobs": rows,
        "timeline": [],
    }


def pool_tables(document: dict[str, Any]) -> list[Table]:
    """The result of a simulated pool as tables, for people."""
    band, jobs = document["ettr"], document["jobs"]
    length = units.format(document["duration_s"], "s")
    columns = (
        Column("job", align="left"),
        Column("nodes"),
        Column("done", unit="%"),
        Column("P10", unit="s"),
        Column("P50", unit="s"),
        Column("P90", unit="s"),
        Column("in the queue", unit="s"),
        Column("without a node", unit="s"),
        Column("ETTR", unit="%"),
        Column("failures"),
        Column("preempted"),
    )
    rows = tuple(
        (
            job["name"],
            job["nodes"],
            job["finished_share"],
            *(job["finish_s"][name] for name in _QUANTILES),
            job["queued_s"],
            job["lacked_node_s"],
            job["ettr"],
            job["failures"],
            job["preempted"],
        )
        for job in jobs
    )
    notes = (
        f"{document['runs']} runs of at most {length}; P10, P50 and P90 of the time to the end.",
        "Saves of each job at its own best interval, unless --interval says otherwise.",
    )
    shares = (
        ("trained and kept: effective of what is paid", band["mean"]),
        ("the same, in one run of ten below", band["p10"]),
        ("the same, in one run of ten above", band["p90"]),
        ("held by jobs", document["held_share"]),
        ("broken", document["broken_share"]),
        ("idle", document["idle_share"]),
    )
    return [
        Table(
            title=f"Jobs of a pool of {document['nodes']} nodes",
            columns=columns,
            rows=rows,
            notes=notes,
        ),
        Table(
            title="Node-time of the pool, until the last job is done",
            columns=(Column("node-time", align="left"), Column("share", unit="%")),
            rows=shares,
        ),
    ]
