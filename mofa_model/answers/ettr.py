"""`mofa ettr`: effective training time ratio (ETTR) of a job, and its best checkpoint interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from mofa_model import output, plots, units
from mofa_model.answers.answer import UserAnswer, asked_by
from mofa_model.answers.given import with_layout
from mofa_model.answers.job import every_of, job_of
from mofa_model.answers.options import names, switch
from mofa_model.answers.questions import EttrQuestion, ReliabilityQuestion
from mofa_model.answers.vary import parse_vary
from mofa_model.errors import BadUnit, BadValue
from mofa_model.records import dataclass
from mofa_model.reliability import deadlines, interval, laws, model, paper, renewal
from mofa_model.reliability.model import Job, ettr_curve, one_tier
from mofa_model.tables import Column, Table
from mofa_model.units import Ratio

TRUSTED: Final = 0.05
"""Failure load below which the paper's form is right to half a point. [1]"""
BROKEN: Final = 0.2
"""Failure load beyond which it is not to be used. [1]"""
_VARIED: Final = tuple(
    name
    for name, how in ReliabilityQuestion.options.items()
    if how.reader not in (names, switch) and name != "profile"
)
"""Fields that can vary."""
_BEST: Final = (
    Column("interval steps"),
    Column("ettr", unit="%"),
    Column("lower", unit="%"),
    Column("upper", unit="%"),
    Column("paper steps"),
    Column("paper ettr", unit="%"),
)
"""The columns beside a field that varies."""


@dataclass(frozen=True, kw_only=True, repr=False)
class EttrAnswer(UserAnswer):
    """The share of wall time that becomes training, the best interval, and where the rest goes."""

    question: EttrQuestion
    """What was asked."""
    document: dict[str, Any]
    """Everything that is said, as plain data."""
    job: Job | None = None
    """The job that was priced; None where a field varies."""

    @property
    def ettr(self) -> float:
        """Effective training time ratio at the interval. [1]"""
        return float(self.document["ettr"]["target"])

    @property
    def interval_steps(self) -> int:
        """Steps between saves. [1]"""
        return int(self.document["interval"]["steps"])

    @property
    def tables(self) -> Sequence[Table]:
        """The answer as tables, for people."""
        if self.job is None:
            return [_varied_table(self.document["varied"], self.document["rows"])]
        return _tables(self.document)

    @property
    def records(self) -> Table:
        """One row of figures; the points of a curve, or the values of a field that varies."""
        if self.job is None or self.document["curve"]:
            return self.tables[-1]
        return output.as_record(self.document)

    def points(self) -> list[dict[str, Any]]:
        """The curve that was asked for, or one that is fine enough to be drawn."""
        if self.job is None:
            return []
        if points := self.document["curve"]:
            return list(points)
        # A point of several tiers takes a Markov chain of all of them, which is slow.
        count = 25 if len(self.job.blocking) > 1 else 121
        chosen = self.document["interval"]
        every = tuple(chosen["every"])
        return curve(self.job, chosen["steps"], every, count, self.document["level"])

    def draw(self, path: str) -> None:
        """Draw the curve, or the field that varies, to an SVG or PNG file."""
        if self.job is not None:
            chosen = self.document["interval"]
            plots.ettr_curve(path, self.points(), chosen["steps"], chosen["seconds"])
            return
        field = self.document["varied"]
        lines = {
            label: [(_place(row[field]), row[name]) for row in self.document["rows"]]
            for label, name in (("exact", "ettr"), ("paper's form", "paper_ettr"))
        }
        plots.lines(path, lines, x=field.replace("_", " "), y="ETTR", percent=True)

    def shown(self) -> Sequence[Any]:
        """The curve, and the tables."""
        from mofa_model.page.figures import checkpoint_curve

        if self.job is None:
            return super().shown()
        points = [(p["seconds"], p["lower"], p["ettr"], p["upper"]) for p in self.points()]
        chosen = self.document["interval"]
        return [checkpoint_curve(points, chosen["seconds"], chosen["steps"]), *super().shown()]


@asked_by(EttrQuestion)
def ettr(question: EttrQuestion) -> EttrAnswer:
    """Effective training time ratio of a job on failing nodes, and its best checkpoint interval."""
    if not 0 < question.level < 1:
        raise BadValue("--level", question.level, "give a level between 0 and 1, for example 0.9")
    if question.deadline and not question.total_steps:
        raise BadValue("--deadline", question.deadline, "give --total-steps with it")
    question = with_layout(question)
    if question.vary:
        field, values = parse_vary(question.vary, _VARIED)
        rows = [_varied_row(question, field, value) for value in values]
        return EttrAnswer(question=question, document={"varied": field, "rows": rows})
    job = job_of(question)
    every = every_of(question.every, len(bare_of(job).blocking))
    if question.method == "paper" and len(job.blocking) > 1:
        job = one_tier(job, len(job.blocking) - 1)  # the paper's one tier: every failure reads it
        every = None
    return EttrAnswer(question=question, document=_document(job, question, every), job=job)


def bare_of(job: Job) -> Job:
    """The job with the saves and recoveries of its plan as its own, and without the plan."""
    if not model.is_planned(job):
        return job
    from mofa_model.reliability.recovery import planned

    return planned(job).job


def _tables(answer: dict[str, Any]) -> list[Table]:
    """The answer of `mofa ettr` as tables for a terminal."""
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
        ("interval", f"{interval['steps']} steps = {units.format(interval['seconds'], 's')}")
    ]
    if len(interval["tier_steps"]) > 1:
        tiers = ", ".join(f"{steps} steps" for steps in interval["tier_steps"])
        facts.append(("tiers save every", tiers))
    facts += [
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
        timeout = units.format(answer["watchdog"]["timeout_s"], "s")
        worth = f"is worth {100 * answer['watchdog']['worth']:.1f} points here"
        facts += [("ending hangs sooner", f"a watchdog of {timeout} {worth}")]
    if "recovery" in answer:
        plan = answer["recovery"]
        needs = [
            f"{plan['spare_nodes']:g} spare nodes" * bool(plan["spare_nodes"]),
            f"{units.format(plan['memory_bytes'], 'B', 3)} of a node's memory"
            * bool(plan["memory_bytes"]),
            f"steps slower by {plan['slower']:.1%}" * bool(plan["slower"]),
        ]
        worth = f"{plan['plan']}, worth {100 * plan['worth']:.1f} points here"
        facts += [("recovery", ", ".join(filter(None, (worth, *needs))))]
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
        shares = (Column(name, unit="%") for name in ("ettr", "lower", "upper", "paper"))
        columns = (Column("steps"), Column("seconds", unit="s"), *shares)
        points = tuple(tuple(p[column.key] for column in columns) for p in answer["curve"])
        tables.append(Table(title="Curve", columns=columns, rows=points))
    return tables


def _range(band: dict[str, float | None]) -> str:
    lower, target, upper = (
        "never" if (seconds := band[end]) is None else units.format(seconds, "s")
        for end in ("lower", "target", "upper")
    )
    return f"{target} ({lower} … {upper})"


def _varied_row(question: EttrQuestion, field: str, value: str) -> dict[str, Any]:
    """The best interval at one value of a field, all other fields unchanged."""
    changed: dict[str, Any] = {field: value}
    varied = replace(question, **changed)
    job = job_of(varied)
    best = interval.recommend(job)
    band = model.ettr_band(job, best.steps, best.every, level=question.level)
    steps = paper_form(job, 1)["steps"]
    return {
        field: getattr(varied, field),
        "interval_steps": best.steps,
        "ettr": float(band.target),
        "lower": float(band.lower),
        "upper": float(band.upper),
        "paper_steps": steps,
        "paper_ettr": paper_form(job, steps)["ettr"],
    }


def _varied_table(field: str, rows: list[dict[str, Any]]) -> Table:
    return Table(
        title="ETTR at the best interval",
        columns=(Column(field.replace("_", " ")), *_BEST),
        rows=tuple(tuple(row.values()) for row in rows),
    )


def _place(value: Any) -> Any:
    """A value as a place on the axis of a picture: times in seconds, other text as it is."""
    if isinstance(value, int | float):
        return float(value)
    try:
        return units.parse(value, "s", field="--vary")
    except BadUnit:
        return value


def _document(job: Job, question: EttrQuestion, every: tuple[int, ...] | None) -> dict[str, Any]:
    """The answer of `mofa ettr` as plain data, from which its tables are made as well."""
    best = interval.recommend(job, every=every)
    steps = question.interval or best.steps
    if question.method == "paper" and question.interval is None:
        steps = paper_form(job, 1)["steps"]
    band = model.ettr_band(job, steps, best.every, level=question.level)
    form = paper_form(job, steps)
    document: dict[str, Any] = {
        "model": question.method,
        "ettr": {
            "lower": float(band.lower),
            "target": float(band.target),
            "upper": float(band.upper),
        },
        "level": question.level,
        "interval": _interval(job, best, steps, question),
        "paper": form,
        "mtbf_s": _finite(1 / max(float(model.failure_rate(job)), 1e-300)),
        "failures_per_node_day": _rate(job, question.level),
        "save_s": {
            "blocking": [float(x) for x in bare_of(job).blocking],
            "background": [float(x) for x in bare_of(job).background],
        },
        "scatter": _scatter(
            job, steps, best.every, units.parse(question.window, "s", field="--window")
        ),
        "budget": model.budget(job, steps, best.every),
    }
    if job.plan is not None:
        document["recovery"] = _recovery(job, best.ettr)
    if (best_watchdog := interval.watchdog(job, steps, best.every)) is not None:
        document["watchdog"] = {"timeout_s": best_watchdog.timeout, "worth": best_watchdog.worth}
    if question.method == "paper":
        document["ettr"] = _paper_band(job, steps, question.level)
    document["curve"] = curve(job, steps, best.every, question.curve, question.level)
    if question.total_steps:
        document |= _ending(job, steps, best.every, question)
    return document


def _recovery(job: Job, best_ettr: Ratio) -> dict[str, Any]:
    """The recovery plan of a job, what it is worth and what it costs."""
    from mofa_model.reliability.recovery import cost_of

    costs = cost_of(job)
    without = interval.recommend(replace(job, plan=None)).ettr
    return {
        "plan": str(job.plan and job.plan.name),
        "worth": float(best_ettr - without),
        "spare_nodes": float(costs.standing_by * job.nodes),
        "slower": float(costs.slower),
        "memory_bytes": float(costs.memory),
        "traffic_bytes": float(costs.traffic),
    }


def curve(
    job: Job, steps: int, every: tuple[int, ...], count: int, level: float
) -> list[dict[str, Any]]:
    """ETTR, its band and the paper's form, over intervals from `steps` / 16 to 16 `steps`."""
    if count == 0:
        return []
    return [
        {
            "steps": point.steps,
            "seconds": point.seconds,
            "ettr": point.ettr.target,
            "lower": point.ettr.lower,
            "upper": point.ettr.upper,
            "paper": paper_form(job, point.steps)["ettr"],
        }
        for point in ettr_curve(job, steps, every, count, level)
    ]


def paper_form(job: Job, steps: int) -> dict[str, Any]:
    """The paper's form for the last tier, its interval, and whether it may be trusted here."""
    rate, mean = float(model.failure_rate(job)), float(model.mean_recovery(job))
    save, step = float(job.blocking[-1]), float(job.step_time)
    load = rate * (mean + steps * step / 2)
    trust = "failure load above 0.05" if load < BROKEN else "beyond its range"
    if load < TRUSTED:
        trust = "small failure load"
    if any(float(x) > 0 for x in job.background):
        trust += "; background copies are not in it"
    return {
        "ettr": float(paper.ettr(rate, steps, step, save, mean)),
        "steps": int(paper.best_interval(rate, step, save, mean, most=interval.MOST_STEPS)),
        "failure_load": load,
        "trust": trust,
    }


def _paper_band(job: Job, steps: int, level: float) -> dict[str, float]:
    scales = model.rate_scales(job, level)
    lower, target, upper = (
        paper_form(replace(job, rate_scale=x), steps)["ettr"]
        for x in (scales.upper, 1.0, scales.lower)
    )
    return {"lower": lower, "target": target, "upper": upper}


def _interval(
    job: Job, best: interval.Interval, steps: int, question: EttrQuestion
) -> dict[str, Any]:
    scales = model.rate_scales(job, question.level)
    scale = float(interval.minimax_rate(scales.lower, scales.upper))
    departure = interval.departure(job, best)
    robust = best
    if scale != 1:
        robust = interval.recommend(replace(job, rate_scale=scale), every=best.every)
    return {
        "steps": steps,
        "seconds": steps * float(job.step_time),
        "every": list(best.every),
        "tier_steps": [steps * n for n in best.every],
        "best_steps": best.steps,
        "best_ettr": best.ettr,
        "half": departure.half,
        "double": departure.double,
        "flat_from": departure.flat[0],
        "flat_to": departure.flat[1],
        "minimax_steps": robust.steps,
    }


def _rate(job: Job, level: float) -> dict[str, float]:
    mean = float(model.failure_rate(job)) / float(job.nodes) * units.DAY
    scales = model.rate_scales(job, level)
    return {"lower": mean * scales.lower, "target": mean, "upper": mean * scales.upper}


def _scatter(job: Job, steps: int, every: tuple[int, ...], window: float) -> dict[str, float]:
    """Standard deviation of one run's ETTR, with the tier that most failures load from."""
    job = bare_of(job)
    rate = float(model.failure_rate(job))
    sources = laws.sources_of(job.reliability)
    busiest = max(
        range(len(job.blocking)), key=lambda tier: sum(s.share for s in sources if s.tier == tier)
    )
    slope = sum(
        s.share * float(laws.laplace_slope(r, rate)) for s in sources for r in s.recovery_laws[-1:]
    )
    if window <= 0:
        raise BadValue("--window", window, "give a time above zero")
    sd = renewal.deviation(
        rate,
        model.survived(job),
        slope,
        steps * every[busiest] * float(job.step_time),
        float(job.blocking[busiest]),
        float(job.background[busiest]),
        job.reliability.slowdown,
        window,
    )
    return {"sd": float(sd), "window_s": window}


def _ending(job: Job, steps: int, every: tuple[int, ...], question: EttrQuestion) -> dict[str, Any]:
    band = model.ettr_band(job, steps, every, level=question.level)
    start, total = job.reliability.start, float(question.total_steps or 0)
    times = {
        name: _finite(float(deadlines.finish_time(total, float(job.step_time), ettr, start)))
        for name, ettr in (("lower", band.upper), ("target", band.target), ("upper", band.lower))
    }
    ending: dict[str, Any] = {"finish_s": times}
    if question.deadline:
        limit = units.parse(question.deadline, "s", field="--deadline")
        ending["deadline"] = {
            "nodes_needed": deadlines.nodes_for(job, total, limit, question.scaling)
        }
        if job.reliability.spares is not None:
            ending["deadline"]["spares_needed"] = deadlines.spares_for_deadline(job, total, limit)
    return ending


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) and value < 1e290 else None
