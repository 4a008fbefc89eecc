"""`mofa sweep`: the advice, or one strategy's figures, over a grid of any fields.

A point and its row are plain data. So this process, several processes or workers elsewhere can
compute them, with the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mofa_model import units
from mofa_model.answers import training
from mofa_model.answers.answer import UserAnswer, asked_by
from mofa_model.answers.questions import SweepQuestion
from mofa_model.answers.vary import (
    INTERVAL,
    PARAMETERS,
    Point,
    axis_keys,
    parse_vary,
    points_of,
)
from mofa_model.equations.compute import scaling_linearity
from mofa_model.errors import BadValue, InputError, MofaError, NoFeasibleStrategy
from mofa_model.page.figures import LineDrawing
from mofa_model.records import dataclass
from mofa_model.tables import Column, Table
from mofa_model.units import DAY, GIB

if TYPE_CHECKING:
    from mofa_model.advice import Request
    from mofa_model.search import SearchCase
    from mofa_model.strategy import Strategy

Row = dict[str, Any]
"""The point, and its figures or why it has none."""

FIGURES: Final = {
    "status": Column("status"),
    "step_seconds": Column("step seconds", unit="s"),
    "tokens_per_second": Column("tokens per second"),
    "mfu": Column("MFU", unit="%"),
    "linearity": Column("linearity", unit="%"),
    "memory_bytes": Column("memory bytes", unit="B"),
    "activation_bytes": Column("activation bytes", unit="B", wide=True),
    "interval_steps": Column("interval steps"),
    "ettr": Column("ETTR", unit="%"),
    "fits": Column("fits", unit="%"),
    "duration_seconds": Column("duration seconds", unit="s"),
    "gpu_hours": Column("GPU hours"),
    "recovery": Column("recovery", align="left"),
    "layout": Column("layout", align="left"),
    "nodes_used": Column("nodes used", wide=True),
    "searched": Column("searched", wide=True),
    "stages_seconds": Column("stages seconds", unit="s", wide=True),
    "bubble_seconds": Column("bubble seconds", unit="s", wide=True),
    "hops_seconds": Column("hops seconds", unit="s", wide=True),
    "data_seconds": Column("data seconds", unit="s", wide=True),
    "optimizer_seconds": Column("optimizer seconds", unit="s", wide=True),
    "strategy": Column("strategy", align="left", wide=True),
    "doubts": Column("doubts", align="left", wide=True),
    "evidence": Column("evidence", align="left", wide=True),
    "why": Column("why", align="left", wide=True),
}
"""Figures of a row, in the order of the columns."""
_DRAWN: Final = {
    "duration_seconds": ("d", DAY),
    "memory_bytes": ("GiB", GIB),
    "activation_bytes": ("GiB", GIB),
}
"""Units of a picture's axis, for figures whose own units make long numbers."""
_PER_GPU: Final = "/gpu"
"""Ending of a global batch that grows with the devices."""


@dataclass(frozen=True, kw_only=True, repr=False)
class SweepAnswer(UserAnswer):
    """One row for each point: its figures, or why it has none."""

    question: SweepQuestion
    """What was asked."""
    varied: tuple[str, ...]
    """Fields that vary."""
    rows: tuple[Row, ...]
    """Figures, in the order of the points."""

    @property
    def document(self) -> dict[str, Any]:
        """The answer for machines."""
        return {"varied": list(self.varied), "rows": list(self.rows)}

    @property
    def tables(self) -> Sequence[Table]:
        """The answer as a table, for people."""
        return [_table(self.varied, self.rows)]

    @property
    def records(self) -> Table:
        """The table of the sweep, for CSV."""
        return self.tables[0]

    def lines(self, figure: str = "tokens_per_second") -> LineDrawing:
        """One line for each combination of the fields after the first."""
        return drawing(self.varied, self.rows, figure)

    def shown(self) -> Sequence[Any]:
        """Tokens a second over the first field, and the table."""
        from mofa_model.page.figures import lines

        return [lines("The sweep", self.lines()), *super().shown()]

    def raise_for_status(self) -> None:
        """Raise NoFeasibleStrategy where every point failed, with the first reason."""
        failed = [row["why"] for row in self.rows if "why" in row]
        if len(failed) == len(self.rows):
            raise NoFeasibleStrategy(failed[0])


@asked_by(SweepQuestion)
def sweep(
    question: SweepQuestion,
    carry: Callable[..., Iterable[Row]] = map,
    advance: Callable[[float], None] = lambda _: None,
) -> SweepAnswer:
    """The advice, or one strategy's figures, at every combination of the values of some fields.

    `carry` is `map` or a function like it, which computes the points elsewhere.
    """
    varied = [parse_vary(text) for text in question.vary]
    training.require(
        question,
        given_elsewhere=[PARAMETERS.get(name, name) for name, _ in varied] if varied else ["gpus"],
        more_examples={} if varied else {"--vary": "gpus=64,128"},
    )
    points = points_of(varied)
    rows: list[Row] = []
    for row in carry(answer_at, [question] * len(points), points):
        rows.append(row)
        advance(1)
    names = tuple(name for name, _ in varied)
    rows = with_linearity(rows, names)
    if rows and all(row["status"] == "Failed" for row in rows):
        raise InputError(rows[0]["why"])
    return SweepAnswer(question=question, varied=names, rows=tuple(rows))


def _table(names: Sequence[str], rows: Sequence[Row]) -> Table:
    figures = [name for name in FIGURES if any(name in row for row in rows)]
    columns = (
        *(Column(re.sub("[_.]", " ", name)) for name in names),
        *(FIGURES[name] for name in figures),
    )
    cells = tuple(tuple(row.get(name) for name in (*names, *figures)) for row in rows)
    reasons = sorted({row[name] for row in rows for name in ("why", "doubts") if row.get(name)})
    return Table(title="Sweep", columns=columns, rows=cells, notes=tuple(reasons[:5]))


def drawing(names: Sequence[str], rows: Sequence[Row], figure: str) -> LineDrawing:
    """A figure over the first field, one line for each combination of the others."""
    if figure not in FIGURES:
        raise BadValue("--y", figure, f"one of {', '.join(FIGURES)}")
    column = FIGURES[figure]
    unit, size = _DRAWN.get(figure, (column.unit if column.unit in {"s", "B"} else "", 1.0))
    drawn: dict[str, list[tuple[Any, float]]] = {}
    for row in rows:
        if isinstance(row.get(figure), int | float):
            label = ", ".join(f"{name.replace('_', ' ')} {row[name]}" for name in names[1:])
            drawn.setdefault(label, []).append((_number(row[names[0]]), row[figure] / size))
    up = f"{column.heading} [{unit}]" if unit else column.heading
    return LineDrawing(
        lines=drawn, across=names[0].replace("_", " "), up=up, percent=column.unit == "%"
    )


def _number(text: Any) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def answer_at(question: SweepQuestion, point: Point) -> Row:
    """The row of one point: its figures, or why it has none, bad input included."""
    try:
        return {**point, **_figures(question, point)}
    except MofaError as error:
        return {**point, "status": "Failed", "why": str(error)}


def with_linearity(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """The rows with the linearity of Eq. (45).

    Each row is compared with that of the fewest devices among those with its other fields.
    """
    size = next((name for name in names if name in ("gpus", "nodes")), None)
    if size is None:
        return list(rows)
    first: dict[tuple[Any, ...], tuple[float, float, float]] = {}
    counts = [units.count(row[size], field=size) for row in rows]
    compared = list(rows)
    for number in sorted(range(len(rows)), key=counts.__getitem__):
        row = rows[number]
        if "step_seconds" in row:
            step, tokens = row["step_seconds"], row["tokens_per_second"]
            run = (step, counts[number], tokens * step)
            base = first.setdefault(tuple(row[name] for name in names if name != size), run)
            compared[number] = {**row, "linearity": float(scaling_linearity(*run, base))}
    return compared


def _figures(sweep_question: SweepQuestion, point: Point) -> Row:
    from mofa_model.advice import advise
    from mofa_model.strategy import format_strategy, short_strategy

    axes = {name: value for name, value in point.items() if name in axis_keys()}
    changes: dict[str, Any] = {PARAMETERS.get(name, name): value for name, value in point.items()}
    changes = {name: value for name, value in changes.items() if name in PARAMETERS.values()}
    if "gpus" in point:
        changes["nodes"] = None
    if "nodes" in point:
        changes["gpus"] = None
    constants = {name: value for name, value in point.items() if "." in name}
    interval = _steps(point[INTERVAL]) if INTERVAL in point else None
    question = replace(sweep_question, **changes)
    if str(question.global_batch_size).endswith(_PER_GPU):
        question = replace(question, global_batch_size=_batch(question))
    request = _request(question, axes, constants)
    if question.strategy:
        return _priced(request, question, axes, interval)
    advice = advise(request)
    predicted = advice.predicted
    if advice.strategy is None or predicted is None:
        return {"status": advice.status.value, "why": advice.explanation}
    row = {
        "status": advice.status.value,
        "step_seconds": predicted.step_seconds.target,
        "tokens_per_second": predicted.tokens_per_second.target,
        "mfu": predicted.mfu.target,
        "memory_bytes": predicted.memory_bytes.target,
        "interval_steps": advice.checkpoint_interval_steps,
        "ettr": predicted.ettr.target,
        "nodes_used": advice.nodes,
        "fits": advice.odds.fits if advice.odds else None,
        "doubts": "; ".join(filter(None, (advice.kept, *advice.doubts))),
        "evidence": advice.basis.grade if advice.basis else None,
        "searched": advice.searched,
        "strategy": format_strategy(advice.strategy),
        **_run(predicted.duration_seconds.target, advice.gpus),
    }
    if question.recovery:  # chosen together with the layout, so both are shown
        row |= {"recovery": advice.recovery, "layout": short_strategy(advice.strategy)}
    if interval is not None:
        row |= _at_interval(request, advice.strategy, row["step_seconds"], interval)
    return row


def _request(
    question: SweepQuestion, axes: Mapping[str, str], constants: Mapping[str, str]
) -> Request:
    request = training.request_of(question)
    fixed: tuple[str, ...] = ()
    if not question.strategy:
        fixed = tuple(f"{name.replace('_', '-')}={value}" for name, value in axes.items())
    return replace(
        request,
        problems=_calibrated(request.problems, constants),
        trainers=tuple((name, _calibrated(cases, constants)) for name, cases in request.trainers),
        constraints=(*request.constraints, *fixed),
        top=0,  # alternatives are searched for, and a sweep shows none
    )


def _batch(question: SweepQuestion) -> str:
    """The global batch of a number of sequences for each device."""
    per_gpu = str(question.global_batch_size).removesuffix(_PER_GPU)
    gpus = float(training.problems_of(replace(question, global_batch_size="1"))[0].cluster.gpus)
    try:
        return f"{float(per_gpu) * gpus:.12g}"
    except ValueError:
        right = "give a number of sequences for each device, for example 0.25/gpu"
        raise BadValue("global_batch", question.global_batch_size, right) from None


def _calibrated(
    problems: tuple[SearchCase, ...], constants: Mapping[str, str]
) -> tuple[SearchCase, ...]:
    """The problems with other measured constants."""
    calibrated = []
    for problem in problems:
        calibration = problem.cluster.calibration
        for name, text in constants.items():
            try:
                value = float(text)
            except ValueError:
                raise BadValue(name, text, "give a number") from None
            calibration = calibration.stated(name, value)
        calibrated.append(
            replace(problem, cluster=replace(problem.cluster, calibration=calibration))
        )
    return tuple(calibrated)


def _steps(text: str) -> int:
    """Steps between checkpoints."""
    value = units.count(text, field=INTERVAL)
    if value < 1:
        raise BadValue(INTERVAL, text, "give one step or more")
    return value


def _priced(
    request: Request, question: SweepQuestion, axes: Mapping[str, str], interval: int | None
) -> Row:
    """Figures of a given strategy at one point of the sweep, whether it fits or not."""
    from mofa_model.advice.candidates import fits
    from mofa_model.advice.predictions import (
        basis,
        best_interval,
        expected_job,
        predicted_figures,
        priced,
    )
    from mofa_model.strategy import format_strategy, pairs_of, parse_strategy

    problem = request.problems[0]
    pairs = pairs_of(question.strategy, "--strategy")
    pairs |= {name.replace("_", "-"): value for name, value in axes.items()}
    text = ",".join(f"{name}={value}" for name, value in pairs.items())
    strategy = parse_strategy(text, problem.cluster.gpus, field="--strategy")
    batch, ranks = problem.workload.training.global_batch, int(strategy.global_micro_batch)
    if batch % ranks:
        right = f"it must divide the global batch ({int(batch)})"
        raise BadValue("--strategy", f"dp x mbs = {ranks}", right)
    layout = priced(problem, strategy)
    job = expected_job(request, layout, request.nodes)
    best = best_interval(request, job)
    figures = predicted_figures(request, layout, job, best)
    chance = fits(request, problem, layout.coordinates, float(layout.footprint.peak))
    row = {
        "status": "Fits" if bool(layout.footprint.fits(problem.cluster)) else "OutOfMemory",
        "step_seconds": layout.step_time,
        "tokens_per_second": figures.tokens_per_second.target,
        "mfu": figures.mfu.target,
        "memory_bytes": figures.memory_bytes.target,
        "activation_bytes": float(layout.footprint.activation_peak),
        "interval_steps": best.steps,
        "ettr": figures.ettr.target,
        "fits": chance,
        "evidence": basis(request, layout, figures).grade,
        "nodes_used": request.nodes,
        "strategy": format_strategy(strategy),
        **_run(figures.duration_seconds.target, int(strategy.gpus)),
    }
    row |= {
        f"{name}_seconds": float(getattr(layout.step_terms, name))
        for name in ("stages", "bubble", "hops", "data", "optimizer")
    }
    if interval is not None:
        row |= _at_interval(request, strategy, layout.step_time, interval)
    return row


def _at_interval(request: Request, strategy: Strategy, step: float, interval: int) -> Row:
    """ETTR and duration at the checkpoint interval that the question states."""
    from mofa_model.advice.predictions import job_of, steps_to_finish
    from mofa_model.reliability.model import ettr

    problem = request.problems[0]
    share = float(ettr(job_of(request, problem, request.nodes, strategy, step), interval))
    seconds = 0.0
    if problem.workload.training.tokens:
        seconds = steps_to_finish(problem) * step / max(share, 1e-12)
    return {"interval_steps": interval, "ettr": share, **_run(seconds, int(strategy.gpus))}


def _run(seconds: float, gpus: int) -> Row:
    """Time and GPU time to finish; nothing where no number of tokens is stated."""
    if not seconds:
        return {}
    return {"duration_seconds": seconds, "gpu_hours": seconds / units.HOUR * gpus}
