"""How often a job may have to start again, against drawn histories; and time-outs that end a hang
in their order.
"""

from dataclasses import replace

import numpy as np
import pytest
from each import each

from mofa_model.errors import BadValue
from mofa_model.kinds import KINDS
from mofa_model.kinds.kind import RestartLimit
from mofa_model.reliability.interval import (
    hang_timeout,
    restarts_needed,
    restarts_of,
    timeouts,
)
from mofa_model.reliability.model import Job
from mofa_model.spec.reliability import (
    Domain,
    FailureMode,
    FailureRate,
    RecoveryTime,
    Reliability,
    paper_classes,
)

DAY = 86400.0
BACK = RecoveryTime(mean=300.0)


def pool(*rates, domains=()):
    modes = tuple(
        FailureMode(name=f"c{number}", rate=rate, recovery=BACK)
        for number, rate in enumerate(rates)
    )
    return Reliability(classes=modes, domains=domains)


def job(reliability, nodes=64, **more):
    given = {"step_time": 10.0, "blocking": (20.0,), "background": (0.0,), **more}
    return Job(nodes=nodes, reliability=reliability, **given)


def test_of_a_hundred_drawn_runs_one_needs_more_restarts_than_are_given():
    """Rates are drawn from their posteriors, then failures of each class; nothing of ours
    is called.
    """
    generator = np.random.default_rng(5)
    for failures, days, nodes, length in ((4, 900, 64, 20), (40, 9000, 512, 60), (2, 700, 8, 30)):
        classes = [(failures, days), (3 * failures, days), (0.5 * failures, days)]
        rates = (FailureRate(failures=k, exposure=d * DAY) for k, d in classes)
        enough_for = restarts_of(job(pool(*rates), nodes), length * DAY)
        drawn = sum(
            generator.poisson(generator.gamma(k, 1 / d, 200_000) * nodes * length)
            for k, d in classes
        )
        enough = np.mean(drawn <= enough_for)
        one_less = np.mean(drawn <= enough_for - 1)
        assert enough >= 0.988, (failures, enough)
        assert one_less <= 0.992, (failures, one_less)


def test_known_rates_and_domains_add_to_a_poisson_number():
    """0.005 a node-day on 64 nodes is 9.6 in 30 days, and four racks with one in a hundred days
    each are 1.2 more.
    """
    known = FailureRate(failures=0.0, exposure=1.0, exactly=0.005 / DAY)
    rack = Domain(name="rack", nodes=16, rate=0.01 / DAY, recovery=BACK)
    assert restarts_of(job(pool(known))) == restarts_needed(9.6, 0.0) == 17
    assert restarts_of(job(pool(known, domains=(rack,)))) == restarts_needed(10.8, 0.0)
    generator = np.random.default_rng(1)
    assert np.quantile(generator.poisson(9.6, 400_000), 0.99) == 17


def test_no_failures_need_no_restarts_and_millions_are_found():
    assert restarts_needed(0.0, 0.0) == 0
    assert restarts_needed(1e7, 0.0) == pytest.approx(1e7 + 2.326 * 1e7**0.5, rel=1e-5)
    with pytest.raises(BadValue, match="chance"):
        restarts_needed(1.0, 0.0, 1.0)
    with pytest.raises(BadValue, match="run_seconds"):
        restarts_of(job(pool(FailureRate.assumed(0.005))), 0.0)


@each([(10.0, 20.0), (120.0, 5.0), (3.0, 900.0), (0.2, 0.0)])
def test_each_time_out_is_longer_than_the_one_that_must_end_a_hang_first(step, save):
    of_job = job(Reliability(classes=paper_classes()), step_time=step, blocking=(save,))
    ends = list(timeouts(hang_timeout(of_job)).values())
    assert 5 * step + save <= ends[0] < ends[1] < ends[2]
    assert ends[0] % 60 == 0


def test_a_field_that_counts_pods_gets_as_many_as_one_failure_ends():
    """Eight restarts of 64 pods are 512 pods, and a job that ends at its limit needs one more."""
    limit = RestartLimit(path=("backoffLimit",), by_pod=True)
    assert limit.enough_for(8, 64) == 513
    assert replace(limit, by_pod=False).enough_for(8, 64) == 9
    assert replace(limit, by_pod=False, ends_at=False).enough_for(8, 64) == 8
    assert limit.enough_for(2**30, 64) == 2**31 - 1
    assert {".".join(kind.restart_limit.path) for kind in KINDS if kind.restart_limit} == {
        *("backoffLimit", "maxRetry", "failurePolicy.maxRestarts", "runPolicy.backoffLimit")
    }
