"""Failures, recoveries and checkpoints: how much of the wall time becomes training, and how sure that is.

    paper         the paper's closed form, Eqs. (36)-(44)
    renewal       the exact model of one tier: closed form for Poisson failures, its optimum, its scatter
    laws          any other law of the time between failures;  recovery: recovery times and causes of failure
    timeline      when nested saves become durable;  tiers: the exact model of nested tiers
    model         ETTR of a job, by the form that is exact for it
    interval      the best interval in steps, per tier;  budget: what the rest of the time is lost to
    watchdog      what it is worth to notice hangs sooner
    objective     the end-to-end objective, for arrays of strategies;  deadline: nodes and spares to end in time
    checkpoint    bytes and bandwidths -> save times
    availability  spares
    rates         posteriors, intervals;  fleet: shares, recovery times, lemon nodes, drift
    forecast      failures of the next days, where rates move
    assumption    whether an assumed rate still stands, by days;  observed: the whole check of a pool

May import: spec, units, errors, numpy; scipy's special functions where they are used. Never imports: simulator.
Imported by: search's callers, advice, verbs, and the lab.
"""

from mofa_model.reliability.interval import Interval, recommend
from mofa_model.reliability.model import Job, ettr
from mofa_model.reliability.objective import (
    Checkpointing,
    best_checkpointing,
    ettr_band,
    finish_time,
)
from mofa_model.reliability.rates import Posterior, posterior
from mofa_model.reliability.watchdog import watchdog

__all__ = [
    "Checkpointing",
    "Interval",
    "Job",
    "Posterior",
    "best_checkpointing",
    "ettr",
    "ettr_band",
    "finish_time",
    "posterior",
    "recommend",
    "watchdog",
]
