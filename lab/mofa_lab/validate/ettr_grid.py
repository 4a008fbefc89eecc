"""The exact model against the simulator, and the paper's form beside them, on a grid of regimes.

    python -m mofa_lab.validate.ettr_grid        the whole table, in markdown (about ten minutes)

A quarter of the full cross of nodes, rates, save times, modes, numbers of tiers and laws; every
value of each comes equally often. The simulator shares no formula with the model.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from mofa_lab.validate.forms import young_interval
from mofa_lab.validate.simulated import simulate_ettr
from mofa_model.reliability import model, paper
from mofa_model.reliability.model import Job
from mofa_model.simulator.scenario import Cause, Scenario
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.spec.reliability import (
    FailureLaw,
    FailureMode,
    FailureRate,
    RecoveryTime,
    Reliability,
)
from mofa_model.units import Ratio

NODES: Final = (8, 128, 2048, 16384)
RATES: Final = (2e-3, 7e-3, 2.5e-2)
SAVES: Final = (0.5, 5.0, 60.0, 600.0)
MODES: Final = ("sync", "async")
EVERY: Final = ((1,), (1, 4), (1, 3, 6))
LAWS: Final = (
    FailureLaw(),
    FailureLaw(kind="weibull", shape=0.7),
    FailureLaw(kind="mixture", short_share=0.5, short_mean=1 / 6),
)
FACTORS: Final = (0.5, 1.0, 2.0)
"""The interval over Young's, so that not only good intervals are tried."""
STEP: Final = 10.0
"""Step time. [s]"""
ERROR: Final = 5e-4
"""Standard error of the simulated ETTR: 0.05 points."""
ENOUGH: Final = 4.0
"""Standard errors that the exact model may be off."""
READS: Final = ((0, 0, 0), (0, 1, 1), (0, 1, 2))
"""Tier that process, pod and job failures read, by number of tiers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Regime:
    """One case of the grid: a job, its failures and its checkpoints."""

    number: int
    """Its place in the grid; also the seed of its simulation."""
    job: Job
    """The job that the model takes."""
    scenario: Scenario
    """The same for the simulator."""
    steps: int
    """Steps between saves of the nearest tier."""
    label: tuple[str, ...]
    """Nodes, rate, save, mode, tiers, law."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """A regime with its three figures."""

    regime: Regime
    """The case of the grid."""
    exact: Ratio
    """ETTR by the exact model. [1]"""
    simulated: Ratio
    """ETTR by the simulator. [1]"""
    error: Ratio
    """Standard error of the simulated ETTR. [1]"""
    paper: Ratio
    """ETTR by the paper's form, of the last tier. [1]"""

    @property
    def z(self) -> float:
        """How many standard errors the model is off."""
        return float((self.exact - self.simulated) / self.error)


def regimes() -> tuple[Regime, ...]:
    """All regimes of the grid."""
    axes = (NODES, RATES, SAVES, MODES, range(len(EVERY)), range(len(LAWS)))
    chosen: list[tuple[tuple[int, ...], int]] = []
    for place in product(*(range(len(axis)) for axis in axes)):
        nodes, rate, save, mode, tiers, law = place
        if (nodes + save + 2 * mode + rate + tiers + law) % 4 == 0:
            chosen.append((place, len(chosen)))
    return tuple(_regime(number, *place) for place, number in chosen)


def compare(regime: Regime) -> Compared:
    """Price and simulate one regime."""
    job, measured = regime.job, simulate_ettr(regime.scenario, seed=regime.number, error=ERROR)
    every = regime.scenario.every
    form = paper.ettr(
        model.failure_rate(job),
        regime.steps * every[-1],
        STEP,
        job.blocking[-1],
        model.mean_recovery(job),
    )
    return Compared(
        regime=regime,
        exact=float(model.ettr(job, regime.steps, every)),
        simulated=measured.ettr,
        error=measured.error,
        paper=float(form),
    )


def summary(rows: Sequence[Compared]) -> str:
    """Three sentences on how far the exact model and the paper's form are from the simulator."""
    z = np.array([row.z for row in rows])
    off = 100 * np.abs(np.array([float(row.paper - row.simulated) for row in rows]))
    return (
        f"{len(rows)} regimes, each simulated to a standard error of at most {100 * ERROR:g} "
        f"points. Exact model: largest |z| {np.max(np.abs(z)):.2f}, root mean square "
        f"{np.sqrt(np.mean(z * z)):.2f}. Paper's form: median error {np.median(off):.2f} points, "
        f"largest {np.max(off):.1f}."
    )


def markdown(rows: Iterable[Compared]) -> str:
    """The table of a comparison, with its summary above."""
    compared = list(rows)
    head = ("nodes", "per node-day", "save", "mode", "tiers", "law", "every")
    lines = [
        summary(compared),
        "",
        f"| {' | '.join(head)} | simulated | exact | z | paper | paper's error |",
        f"| {' | '.join('---' for _ in head)} | --: | --: | --: | --: | --: |",
    ]
    for row in compared:
        every = f"{row.regime.steps * STEP:g} s"
        figures = (
            f"{100 * row.simulated:.2f} %",
            f"{100 * row.exact:.2f} %",
            f"{row.z:+.2f}",
            f"{100 * row.paper:.2f} %",
            f"{100 * (row.paper - row.simulated):+.2f}",
        )
        lines.append(f"| {' | '.join((*row.regime.label, every, *figures))} |")
    return "\n".join(lines) + "\n"


def _regime(
    number: int, nodes: int, rate: int, save: int, mode: int, tiers: int, law: int
) -> Regime:
    """A case of the grid from the indices of its values: the job, its failures and
    its checkpoints.
    """
    every, cost = EVERY[tiers], SAVES[save]
    blocking, background = _times(cost, len(every), synchronous=mode == 0)
    job_rate = NODES[nodes] * RATES[rate] / 86400
    far = FACTORS[number % len(FACTORS)] * float(young_interval(cost, job_rate))
    steps = max(1, round(far / every[-1] / STEP))
    parts = list(zip([level for level in RecoveryClass if level.share], READS[tiers], strict=True))
    slowdown = 0.02 if mode else 0.0
    classes = tuple(
        FailureMode(
            name=level.value,
            rate=FailureRate.assumed(level.share * RATES[rate], np.inf),
            recovery=RecoveryTime(mean=level.seconds, cv=1.0),
            tier=tier,
        )
        for level, tier in parts
    )
    return Regime(
        number=number,
        steps=steps,
        label=(
            str(NODES[nodes]),
            f"{RATES[rate]:g}",
            f"{cost:g} s",
            MODES[mode],
            str(len(every)),
            LAWS[law].kind,
        ),
        job=Job(
            nodes=NODES[nodes],
            step_time=STEP,
            blocking=blocking,
            background=background,
            reliability=Reliability(classes=classes, slowdown=slowdown, law=LAWS[law]),
        ),
        scenario=Scenario(
            rate=job_rate,
            causes=tuple(
                Cause(
                    name=level.value,
                    share=level.share,
                    recovery_laws=(RecoveryTime(mean=level.seconds, cv=1.0),),
                    tier=tier,
                )
                for level, tier in parts
            ),
            work=steps * STEP,
            every=every,
            blocking=blocking,
            background=background,
            slowdown=slowdown,
            law=LAWS[law],
        ),
    )


def _times(
    cost: float, tiers: int, *, synchronous: bool
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Blocking and background times: nearer tiers are cheaper; asynchronous copies take twice a
    synchronous save.
    """
    nearer = {1: (), 2: (0.1 * cost,), 3: (0.02 * cost, 0.1 * cost)}[tiers]
    if synchronous:
        return (*nearer, cost), (0.0,) * tiers
    return tuple(0.05 * x for x in (*nearer, cost)), tuple(2 * x for x in (*nearer, cost))


def main(report: Callable[[str], object] = sys.stderr.write) -> int:
    """Run the whole grid and print its table."""
    rows = []
    for regime in regimes():
        rows.append(compare(regime))
        report(f"\r{len(rows)} of {len(regimes())}")
    sys.stdout.write(markdown(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
