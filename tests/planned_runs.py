"""Long runs of a job under a recovery plan, event by event, for the proof of the closed forms."""

from __future__ import annotations

import math

import numpy as np

from mofa_model.simulator.planned import PlannedRun, PlannedScenario


def measured(scenario: PlannedScenario, failures: int, seeds: int = 10) -> tuple[float, float]:
    """ETTR of long runs with so many failures in all, and its standard error. [1, 1]"""
    ettrs = [PlannedRun(scenario, seed).run(failures=failures // seeds) for seed in range(seeds)]
    return float(np.mean(ettrs)), float(np.std(ettrs, ddof=1)) / math.sqrt(seeds)
