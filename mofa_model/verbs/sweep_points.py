"""The points of a sweep: what varies, and the answer at one point. Not a verb.

A point is plain data and its answer is plain data, so that any engine can carry both: this process, several of them, or
workers elsewhere. The answers are the same whatever carries them.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Final

from mofa_model import units
from mofa_model.errors import BadValue, MofaError, UnknownName
from mofa_model.verbs import problem_options

FLAGS: Final = (
    "model",
    "seq",
    "global_batch",
    "tokens",
    "precision",
    "gpu",
    "gpus",
    "nodes",
    "gpus_per_node",
    "domain",
    "scale_up",
    "scale_out",
    "host_memory",
    "oversubscription",
    "headroom",
    "framework",
    "stack",
    "release",
    "objective",
    "failure_rate",
    "checkpoint_bandwidth",
)
"""Options of the job that can vary."""
AXES: Final = (
    "tp",
    "pp",
    "cp",
    "ep",
    "etp",
    "vpp",
    "mbs",
    "chunks",
    "schedule",
    "sharding",
    "recompute",
    "optimizer",
)
AXES_TOO: Final = (*AXES, "offload", "sp", "graphs", "cp_mode", "shard", "dp")
"""Axes of the strategy that can vary: they change the given one, or constrain the search."""
INTERVAL: Final = "interval"
"""Steps between checkpoints, in place of the best number."""
MOST: Final = 100_000
"""Points of a sweep."""
_WHOLE: Final = ("gpus_per_node", "domain")
_RANGE: Final = re.compile(r"(\d+(?:\.\d+)?)\.\.(\d+(?:\.\d+)?)(?::([x+])(\d+(?:\.\d+)?))?")

Point = dict[str, str]
Row = dict[str, Any]


def parse_vary(text: str) -> tuple[str, tuple[str, ...]]:
    """A field and its values: a list, or a range that doubles unless it says how it goes on.

    >>> parse_vary("gpus=64..512"), parse_vary("mbs=1,2"), parse_vary("interval=10..40:+10")[1]
    (('gpus', ('64', '128', '256', '512')), ('mbs', ('1', '2')), ('10', '20', '30', '40'))
    """
    name, equals, rest = text.partition("=")
    field = name.strip().lower().replace("-", "_")
    if not equals or not rest.strip():
        raise BadValue("--vary", text, "write FIELD=VALUES, for example gpus=64..8192 or mbs=1,2,4")
    known = (*FLAGS, *AXES_TOO, INTERVAL)
    if field not in known:
        raise UnknownName("--vary", field, known)
    match = _RANGE.fullmatch(rest.strip())
    if match is None:
        return field, tuple(part.strip() for part in rest.split(","))
    low, high = float(match.group(1)), float(match.group(2))
    sign, by = match.group(3) or "x", float(match.group(4) or 2)
    if (sign == "x" and (by <= 1 or low <= 0)) or (sign == "+" and by <= 0):
        raise BadValue("--vary", text, "a range must grow: LOW..HIGH, LOW..HIGH:x2 or LOW..HIGH:+10")
    values = [low]
    while len(values) <= MOST and (following := values[-1] * by if sign == "x" else values[-1] + by) <= high:
        values.append(following)
    return field, tuple(f"{value:.12g}" for value in values)


def points_of(varied: Sequence[tuple[str, tuple[str, ...]]]) -> list[Point]:
    """Every combination of the varied values, the last field fastest."""
    names = [name for name, _ in varied]
    if len(set(names)) < len(names):
        raise BadValue("--vary", ", ".join(names), "vary each field once")
    count = 1
    for _, values in varied:
        count *= len(values)
    if count > MOST:
        raise BadValue("--vary", count, f"at most {MOST} points")
    return [dict(zip(names, chosen, strict=True)) for chosen in product(*(values for _, values in varied))]


def answer(given: Mapping[str, Any], point: Point) -> Row:
    """The answer at one point: figures, or why there are none. Bad input at a point is a row as well."""
    try:
        return {**point, **_figures(Namespace(**given), point)}
    except MofaError as error:
        return {**point, "status": "Failed", "why": str(error)}


def answers(
    given: Mapping[str, Any], points: Sequence[Point], carry: Callable[..., Iterable[Row]]
) -> Iterator[Row]:
    """The answers in the order of the points."""
    yield from carry(answer, [dict(given)] * len(points), points)


def _figures(a: Namespace, point: Point) -> Row:
    from mofa_model.advice import Status, advise
    from mofa_model.strategy_text import format_strategy

    axes = {name: value for name, value in point.items() if name in AXES_TOO}
    for name, value in point.items():
        if name in FLAGS:
            setattr(a, name, _typed(name, value))
    if "gpus" in point:
        a.nodes = None
    if "nodes" in point:
        a.gpus = None
    interval = _steps(point[INTERVAL]) if INTERVAL in point else None
    request = _request(a, axes)
    if a.strategy:
        return _priced(request, a, axes, interval)
    advice = advise(request)
    if advice.status is Status.NO_RECOMMENDATION or advice.strategy is None or advice.predicted is None:
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
        "duration_seconds": p.duration_seconds.target,
        "nodes_used": advice.nodes,
        "searched": advice.counts.searched,
        "strategy": format_strategy(advice.strategy),
    }
    return (
        row
        if interval is None
        else row | _at_interval(request, advice.strategy, row["step_seconds"], interval)
    )


def _request(a: Namespace, axes: Mapping[str, str]) -> Any:
    from mofa_model.advice import Request, assumed_reliability

    problems = problem_options.problems_of(a)
    cluster = problems[0].cluster
    links = float(cluster.gpus_per_node * cluster.host.link.bandwidth)
    reliability = assumed_reliability(links, 0.005 if a.failure_rate is None else float(a.failure_rate))
    tier = reliability.tiers[0]
    if a.checkpoint_bandwidth:
        tier = replace(
            tier, node_bandwidth=units.parse(a.checkpoint_bandwidth, "B/s", field="checkpoint_bandwidth")
        )
    fixed = () if a.strategy else tuple(f"{name.replace('_', '-')}={value}" for name, value in axes.items())
    return Request(
        problems=problems,
        reliability=replace(reliability, tiers=(tier,)),
        nodes=problem_options.nodes_of(a),
        objective=a.objective or "time",
        framework=problem_options.framework_of(a),
        constraints=(*a.constraint, *fixed),
        lifted=tuple(a.lift),
        top=0,
    )


def _priced(request: Any, a: Namespace, axes: Mapping[str, str], interval: int | None) -> Row:
    """A given strategy at this point, whether it fits or not."""
    from mofa_model.advice.confidence import predicted
    from mofa_model.advice.finalists import priced
    from mofa_model.strategy_text import format_strategy, parse_strategy

    problem = request.problems[0]
    words = dict(part.split("=", 1) for part in a.strategy.lower().replace(" ", "").split(",") if "=" in part)
    words |= {name.replace("_", "-"): value for name, value in axes.items()}
    text = ",".join(f"{name}={value}" for name, value in words.items())
    strategy = parse_strategy(text, problem.cluster.gpus, field="--strategy")
    batch, ranks = problem.workload.training.global_batch, int(strategy.dp * strategy.mbs)
    if batch % ranks:
        raise BadValue("--strategy", f"dp x mbs = {ranks}", f"it must divide the global batch ({int(batch)})")
    one = priced(problem, strategy)
    told, best = predicted(request, one, request.nodes)
    fits = bool(one.estimate.memory.fits(problem.cluster))
    row = {
        "status": "Fits" if fits else "OutOfMemory",
        "step_seconds": one.step_time,
        "tokens_per_second": told.tokens_per_second.target,
        "mfu": told.mfu.target,
        "memory_bytes": told.memory_bytes.target,
        "interval_steps": best.steps,
        "ettr": told.ettr.target,
        "duration_seconds": told.duration_seconds.target,
        "nodes_used": request.nodes,
        "strategy": format_strategy(strategy),
    }
    row |= {
        f"{name}_seconds": float(getattr(one.step, name))
        for name in ("stages", "bubble", "hops", "data", "optimizer")
    }
    return row if interval is None else row | _at_interval(request, strategy, one.step_time, interval)


def _at_interval(request: Any, strategy: Any, step: float, interval: int) -> Row:
    """ETTR and duration at a stated interval."""
    from mofa_model.advice.saves import job_of, steps_to_finish
    from mofa_model.reliability import ettr

    problem = request.problems[0]
    kept = float(ettr(job_of(request, problem, request.nodes, strategy, step), interval))
    steps = steps_to_finish(problem) if problem.workload.training.tokens else 0.0
    return {"interval_steps": interval, "ettr": kept, "duration_seconds": steps * step / max(kept, 1e-12)}


def _typed(name: str, value: str) -> Any:
    if name in _WHOLE:
        return units.count(value, field=name)
    if name in {"oversubscription", "failure_rate"}:
        try:
            return float(value)
        except ValueError:
            raise BadValue(name, value, "give a number") from None
    return value


def _steps(text: str) -> int:
    value = units.count(text, field=INTERVAL)
    if value < 1:
        raise BadValue(INTERVAL, text, "give one step or more")
    return value
