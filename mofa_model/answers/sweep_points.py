"""The points of a sweep: what varies, and the answer at one point.

A point is plain data and its answer is plain data, so that any engine can carry both: this process, several of them, or
workers elsewhere. The answers are the same whatever carries them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mofa_model import units
from mofa_model.answers import training
from mofa_model.answers.advised_training import request_in_words
from mofa_model.answers.question import parameter_of
from mofa_model.answers.sweep_fields import (
    FLAGS,
    INTERVAL,
    PER_GPU,
    Point,
    flag_of,
    keys,
    number,
    steps,
    typed,
)
from mofa_model.equations.compute import scaling_linearity
from mofa_model.errors import BadValue, MofaError

if TYPE_CHECKING:
    from mofa_model.answers.sweep import SweepQuestion
    from mofa_model.search import SearchCase

Row = dict[str, Any]


def answer(given: SweepQuestion, point: Point) -> Row:
    """The answer at one point: figures, or why there are none. Bad input at a point is a row as well."""
    try:
        return {**point, **_figures(given, point)}
    except MofaError as error:
        return {**point, "status": "Failed", "why": str(error)}


def answers(
    given: SweepQuestion, points: Sequence[Point], carry: Callable[..., Iterable[Row]]
) -> Iterator[Row]:
    """The answers in the order of the points."""
    yield from carry(answer, [given] * len(points), points)


_DEVICES = ("gpus", "nodes")
"""Fields that say how many devices there are."""


def with_linearity(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """The rows with the linearity of Eq. (45), each beside the fewest devices that have an answer and share its other fields."""
    size = next((name for name in names if name in _DEVICES), None)
    if size is None:
        return list(rows)
    first: dict[tuple[Any, ...], tuple[float, float, float]] = {}
    told = []
    for row in sorted(range(len(rows)), key=lambda at: units.count(rows[at][size], field=size)):
        one = rows[row]
        if "step_seconds" not in one:
            told.append((row, one))
            continue
        step, tokens = one["step_seconds"], one["tokens_per_second"]
        here = (step, units.count(one[size], field=size), tokens * step)
        base = first.setdefault(tuple(one[name] for name in names if name != size), here)
        told.append((row, {**one, "linearity": float(scaling_linearity(*here, base))}))
    return [row for _, row in sorted(told, key=lambda pair: pair[0])]


def _figures(asked: SweepQuestion, point: Point) -> Row:
    from mofa_model.advice import Status, advise
    from mofa_model.strategy_text import format_strategy

    axes = {name: value for name, value in point.items() if name in keys()}
    named = {flag_of(name): value for name, value in point.items()}
    changes: dict[str, Any] = {
        parameter_of(name): typed(name, value) for name, value in named.items() if name in FLAGS
    }
    if "gpus" in point:
        changes["nodes"] = None
    if "nodes" in point:
        changes["gpus"] = None
    interval = steps(point[INTERVAL]) if INTERVAL in point else None
    a = replace(asked, **changes)
    if str(a.global_batch_size).endswith(PER_GPU):
        a = replace(a, global_batch_size=_batch(a))
    request = _request(a, axes, {name: value for name, value in point.items() if "." in name})
    if a.strategy:
        return _priced(request, a, axes, interval)
    advice = advise(request)
    if (
        advice.status is Status.NO_RECOMMENDATION
        or advice.strategy is None
        or advice.predicted is None
    ):
        return {"status": advice.status.value, "why": advice.explanation}
    p = advice.predicted
    row = {
        "status": advice.status.value,
        "step_seconds": p.step_seconds.target,
        "tokens_per_second": p.tokens_per_second.target,
        "mfu": p.mfu.target,
        "memory_bytes": p.memory_bytes.target,
        "interval_steps": advice.checkpoint_interval_steps,
        "ettr": p.ettr.target,
        "nodes_used": advice.nodes,
        "fits": advice.odds.fits if advice.odds else None,
        "doubts": "; ".join(advice.doubts),
        "evidence": advice.basis.grade if advice.basis else None,
        "searched": advice.counts.searched,
        "strategy": format_strategy(advice.strategy),
        **_run(p.duration_seconds.target, advice.gpus),
    }
    return (
        row
        if interval is None
        else row | _at_interval(request, advice.strategy, row["step_seconds"], interval)
    )


def _request(a: SweepQuestion, axes: Mapping[str, str], constants: Mapping[str, str]) -> Any:
    asked = request_in_words(a)
    fixed = (
        ()
        if a.strategy
        else tuple(f"{name.replace('_', '-')}={value}" for name, value in axes.items())
    )
    return replace(
        asked,
        problems=_calibrated(asked.problems, constants),
        trainers=tuple((name, _calibrated(some, constants)) for name, some in asked.trainers),
        constraints=(*asked.constraints, *fixed),
        top=0,  # alternatives are searched for, and a sweep shows none
    )


def _batch(a: SweepQuestion) -> str:
    """The global batch that so many sequences for each device make."""
    each = str(a.global_batch_size).removesuffix(PER_GPU)
    gpus = float(training.problems_of(replace(a, global_batch_size="1"))[0].cluster.gpus)
    try:
        return f"{float(each) * gpus:.12g}"
    except ValueError:
        raise BadValue(
            "global_batch", a.global_batch_size, "write sequences a device, for example 0.25/gpu"
        ) from None


def _calibrated(
    problems: tuple[SearchCase, ...], constants: Mapping[str, str]
) -> tuple[SearchCase, ...]:
    """The problems with other measured constants."""
    found = []
    for problem in problems:
        calibration = problem.cluster.calibration
        for name, text in constants.items():
            calibration = calibration.stated(name, number(name, text))
        found.append(replace(problem, cluster=replace(problem.cluster, calibration=calibration)))
    return tuple(found)


def _priced(request: Any, a: SweepQuestion, axes: Mapping[str, str], interval: int | None) -> Row:
    """A given strategy at this point, whether it fits or not."""
    from mofa_model.advice.confidence import basis, predicted
    from mofa_model.advice.finalists import priced
    from mofa_model.advice.weighed import fits
    from mofa_model.bands import coordinates
    from mofa_model.strategy_text import format_strategy, pairs_of, parse_strategy

    problem = request.problems[0]
    words = pairs_of(a.strategy, "--strategy") | {
        name.replace("_", "-"): axes[name] for name in axes
    }
    text = ",".join(f"{name}={value}" for name, value in words.items())
    strategy = parse_strategy(text, problem.cluster.gpus, field="--strategy")
    batch, ranks = problem.workload.training.global_batch, int(strategy.global_micro_batch)
    if batch % ranks:
        raise BadValue(
            "--strategy", f"dp x mbs = {ranks}", f"it must divide the global batch ({int(batch)})"
        )
    one = priced(problem, strategy)
    told, best = predicted(request, one, request.nodes)
    at, rests = coordinates(problem.workload, problem.cluster, strategy), basis(request, one, told)
    row = {
        "status": "Fits" if bool(one.estimate.memory.fits(problem.cluster)) else "OutOfMemory",
        "step_seconds": one.step_time,
        "tokens_per_second": told.tokens_per_second.target,
        "mfu": told.mfu.target,
        "memory_bytes": told.memory_bytes.target,
        "activation_bytes": float(one.estimate.memory.activation_peak),
        "interval_steps": best.steps,
        "ettr": told.ettr.target,
        "fits": fits(request, problem, at, float(one.estimate.memory.peak)),
        "evidence": rests.grade,
        "nodes_used": request.nodes,
        "strategy": format_strategy(strategy),
        **_run(told.duration_seconds.target, int(strategy.gpus)),
    }
    row |= {
        f"{name}_seconds": float(getattr(one.step, name))
        for name in ("stages", "bubble", "hops", "data", "optimizer")
    }
    return (
        row if interval is None else row | _at_interval(request, strategy, one.step_time, interval)
    )


def _at_interval(request: Any, strategy: Any, step: float, interval: int) -> Row:
    """ETTR and duration at a stated interval."""
    from mofa_model.advice.saves import job_of, steps_to_finish
    from mofa_model.reliability import ettr

    problem = request.problems[0]
    kept = float(ettr(job_of(request, problem, request.nodes, strategy, step), interval))
    seconds = (
        steps_to_finish(problem) * step / max(kept, 1e-12)
        if problem.workload.training.tokens
        else 0.0
    )
    return {"interval_steps": interval, "ettr": kept, **_run(seconds, int(strategy.gpus))}


def _run(seconds: float, gpus: int) -> Row:
    """Time and GPU time to finish; nothing where no number of tokens is stated."""
    return (
        {"duration_seconds": seconds, "gpu_hours": seconds / units.HOUR * gpus} if seconds else {}
    )
