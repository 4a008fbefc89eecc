"""Effective training time: how much of the wall time becomes training, and which checkpoint interval gives most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from mofa_model import output, units
from mofa_model.answers import ettr_figures, ettr_vary, job_text
from mofa_model.answers.door import Reply, asked_by
from mofa_model.answers.job import JobWords, job_of
from mofa_model.answers.question import Real, Text, Whole
from mofa_model.errors import BadValue, UnknownName
from mofa_model.tables import Column, Table

if TYPE_CHECKING:
    from mofa_model.answers.documents import EttrDocument, VariedEttrDocument
    from mofa_model.reliability.model import Job


@dataclass(frozen=True, kw_only=True)
class EttrQuestion(JobWords):
    """How much of the wall time of a job becomes training."""

    interval: Whole | None = None
    """Steps between saves; without it the best."""
    every: Text | None = None
    """Saves of the nearest tier for one of each tier: "1,5,60"; without it the best."""
    method: Text = "exact"
    """The model that answers: exact or paper."""
    level: Real = 0.9
    """Level of the band."""
    curve: Whole = 0
    """Intervals to list around the best."""
    vary: Text | None = None
    """A field and its values: the best interval at each, "rate=0.0025..0.04"."""
    total_steps: Real | None = None
    """Steps of the run: adds the time to finish."""
    deadline: Text | None = None
    """Time to finish in, with `total_steps`: adds nodes and spares."""
    scaling: Real = 1.0
    """Step time goes as nodes to the power of minus this."""
    window: Text = "7 d"
    """Length of the run whose scatter is told."""


@dataclass(frozen=True, kw_only=True, repr=False)
class EttrAnswer(Reply):
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
        """What people read."""
        if self.job is None:
            return [ettr_vary.table(self.document["varied"], self.document["rows"])]
        return _tables(self.document)

    @property
    def records(self) -> Table:
        """One row of figures; with a curve its points, and with a field that varies its values."""
        if self.job is None or self.document["curve"]:
            return self.tables[-1]
        return output.as_record(self.document)

    def to_dict(self) -> EttrDocument | VariedEttrDocument:
        """The answer as plain data, the same as `-o json`."""
        return cast("EttrDocument | VariedEttrDocument", output.as_data(self.document))

    def points(self) -> list[dict[str, Any]]:
        """The curve that was asked for, or one that is fine enough to be drawn."""
        if self.job is None:
            return []
        return ettr_figures.points(self.job, self.document)

    def shown(self) -> Sequence[Any]:
        """The curve, and the tables."""
        from mofa_model.page.notebook import ettr_curve

        told = self.document
        drawn = [] if self.job is None else [ettr_curve(self.points(), told["interval"])]
        return [*drawn, *super().shown()]


@asked_by(EttrQuestion)
def ettr(question: EttrQuestion) -> EttrAnswer:
    """Effective training time of a job on nodes that fail, and the checkpoint interval that gives most of it."""
    _check(question)
    if question.vary:
        varied, rows = ettr_vary.varied(question)
        return EttrAnswer(question=question, document={"varied": varied, "rows": rows})
    job = job_of(question)
    every = every_of(question.every, len(job.blocking))
    if question.method == "paper" and len(job.blocking) > 1:
        job = _nearest_remote(job)
        every = None
    return EttrAnswer(
        question=question, document=ettr_figures.answer(job, question, every), job=job
    )


def _check(asked: EttrQuestion) -> None:
    if asked.interval is not None and not 1 <= asked.interval <= 10**9:
        raise BadValue("--interval", asked.interval, "give steps between saves, one or more")
    job_text.within(asked.scaling, "--scaling", 0, 2)
    if not 0 < asked.level < 1:
        raise BadValue("--level", asked.level, "give a level between 0 and 1, for example 0.9")
    if not 0 <= asked.curve <= 10_000:
        raise BadValue("--curve", asked.curve, "give at most 10000 intervals")
    if asked.deadline and not asked.total_steps:
        raise BadValue("--deadline", asked.deadline, "give --total-steps with it")
    if asked.total_steps is not None and not 1 <= asked.total_steps <= 1e15:
        raise BadValue("--total-steps", asked.total_steps, "give steps of the run, one or more")
    if asked.method not in {"exact", "paper"}:
        raise UnknownName("--method", asked.method, ("exact", "paper"))


def every_of(text: str | None, tiers: int) -> tuple[int, ...] | None:
    """Saves of the nearest tier for one of each tier, as people write them."""
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
