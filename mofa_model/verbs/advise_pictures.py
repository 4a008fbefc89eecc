"""The two pictures of an advice: the steps of the strategies it compares, and its ETTR over intervals. Not a verb."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from mofa_model import plots
from mofa_model.advice import Advice, Request
from mofa_model.advice.finalists import priced_together
from mofa_model.advice.reasons import NAMES, terms_of
from mofa_model.advice.saves import best_interval, job_of
from mofa_model.answers.ettr_figures import curve
from mofa_model.errors import BadFile, why
from mofa_model.search import SearchCase
from mofa_model.strategy import Strategy
from mofa_model.strategy_text import short_strategy

STEP: Final = "step.svg"
ETTR: Final = "ettr.svg"
LEVEL: Final = 0.9
"""Level of the band of the failure rate. [1]"""


def prepare(folder: str) -> None:
    """Refuse what cannot be drawn before anything is searched."""
    plots.check("--plots", STEP)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFile(folder, f"cannot be made: {why(error)}") from error


def draw(request: Request, advice: Advice, folder: str) -> tuple[str, ...]:
    """Draw both pictures; the paths of the files, none where there is nothing to draw."""
    if advice.strategy is None or advice.precision is None or advice.predicted is None:
        return ()
    compared = [(advice.strategy, advice.trainer, advice.precision, advice.nodes)]
    compared += [
        (one.strategy, one.trainer, one.precision, one.nodes) for one in advice.alternatives
    ]
    today = advice.current
    if today is not None and today.strategy is not None and today.predicted is not None:
        compared.append((today.strategy, advice.trainer, advice.precision, request.nodes))
    found = priced_together(
        [
            (_problem(request.of(trainer), recipe, nodes), s)
            for s, trainer, recipe, nodes in compared
        ]
    )
    labels = [_label(one.strategy) for one in found]
    bars = {
        f"{label}\n(today)" if today is not None and number > len(advice.alternatives) else label: {
            NAMES[name]: seconds for name, seconds in terms_of(one.step).items()
        }
        for number, (label, one) in enumerate(zip(labels, found, strict=True))
    }
    best = found[0]
    step = advice.predicted.step_seconds.target
    job = job_of(request, best.problem, advice.nodes, best.strategy, step)
    interval = best_interval(request, job)
    points = curve(job, interval.steps, interval.every, 33 if len(job.blocking) > 1 else 121, LEVEL)
    paths = (str(Path(folder) / STEP), str(Path(folder) / ETTR))
    plots.step_terms(paths[0], bars, f"{advice.model} on {advice.gpus} {advice.device}")
    plots.ettr_curve(paths[1], points, interval.steps, interval.steps * step)
    return paths


def _problem(request: Request, precision: str, nodes: int) -> SearchCase:
    """The problem of a precision on a number of nodes."""
    named = (p for p in request.problems if p.workload.training.precision.name == precision)
    problem = next(named, request.problems[0])
    cluster = replace(problem.cluster, gpus=nodes * int(problem.cluster.gpus_per_node))
    return replace(problem, cluster=cluster)


def _label(strategy: Strategy) -> str:
    """Degrees in the first line, features in the second."""
    words = short_strategy(strategy).split()
    degrees = [word for word in words if word[-1].isdigit()]
    return " ".join(degrees) + "\n" + " ".join(word for word in words if word not in degrees)
