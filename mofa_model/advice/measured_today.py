"""Today's layout with the step that was measured of it: what all layouts share of its error moves
them all, the rest moves those near it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from mofa_model import units
from mofa_model.advice.candidates import cannot_run, problem_of
from mofa_model.advice.predictions import priced
from mofa_model.advice.request import Request
from mofa_model.bands.odds import ShortRun
from mofa_model.bands.system import system_factor
from mofa_model.errors import BadValue
from mofa_model.strategy import Strategy
from mofa_model.units import Seconds

FARTHEST: Final = 10.0
"""Times its estimate, or of it, that a measured step may be; beyond that it is another
job's. [1]
"""


def with_measured_today(request: Request, step: Seconds, *, field: str) -> Request:
    """The request with the measured step of today's layout; unchanged where that layout
    cannot run.
    """
    strategy = request.current
    if not isinstance(strategy, Strategy):
        return request
    problem = problem_of(request, strategy)
    if cannot_run(problem, strategy):
        return request
    layout = priced(problem, strategy)
    estimate = float(layout.step_time) * float(request.learned)
    error = math.log(step / estimate)
    if abs(error) > math.log(FARTHEST):
        right = (
            f"today's layout is estimated at {units.format(estimate, 's')} a step; look at the unit"
        )
        raise BadValue(field, f"{step:g}", right)
    shared = system_factor([error]).target
    name = problem.workload.training.precision.name
    run = ShortRun(
        strategy=strategy,
        precision=name,
        fitted=True,
        coordinates=layout.coordinates,
        errors={"step": error - math.log(shared)},
    )
    measured = f"today's layout takes {units.format(float(step), 's')} a step, as measured"
    return replace(
        request,
        tried=(*request.tried, run),
        learned=float(request.learned) * shared,
        of_today=shared,
        notes=(*request.notes, f"{measured}: {step / estimate:.2f} of its estimate"),
        current_runs=True,
    )
