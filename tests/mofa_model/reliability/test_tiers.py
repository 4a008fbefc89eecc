"""Nested tiers: the timeline of saves, and the chain of restarts."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model.errors import BadValue
from mofa_model.reliability import model, renewal
from mofa_model.reliability.checkpoint import Tiers, walk
from mofa_model.reliability.laws import ExponentialRun
from mofa_model.reliability.tiers import Failure, ettr

RATE = 1e-4


def failures(*shares, survived=0.97, rate=RATE):
    run = ExponentialRun(((survived, rate),))
    return tuple(Failure(tier=i, share=share, run=run) for i, share in enumerate(shares) if share)


def test_a_copy_that_outlasts_the_work_makes_the_next_save_wait():
    line = walk(Tiers(work=60.0, every=(1,), blocking=(1.0,), background=(150.0,)))
    assert line.ends[0, 1:].tolist() == [61.0, 61.0 + 151.0]
    assert line.period == 151.0
    assert line.overhead == (1.0, 90.0, 0.0)


def test_steps_are_slower_while_a_copy_is_in_flight():
    line = walk(Tiers(work=100.0, every=(1,), blocking=(1.0,), background=(21.0,), slowdown=0.05))
    assert line.period == pytest.approx(100 + 1 + 21 * 0.05 / 1.05)


def test_all_tiers_save_together_at_the_last_tiers_boundary():
    line = walk(Tiers(work=10.0, every=(1, 2, 4), blocking=(1.0, 2.0, 5.0), background=(0.0,) * 3))
    assert line.period == 4 * 10 + 4 * 1 + 2 * 2 + 5
    assert line.ends[3, 4] == 10 + 1 + 2 + 5


@given(
    st.floats(1e-6, 1e-3),
    st.floats(1, 1e3),
    st.floats(0, 100),
    st.floats(0, 1e3),
    st.floats(0, 0.2),
)
def test_one_tier_is_the_renewal_model(rate, work, blocking, background, slowdown):
    one = Tiers(
        work=work, every=(1,), blocking=(blocking,), background=(background,), slowdown=slowdown
    )
    chain = ettr(one, failures(1.0, rate=rate), 1 / rate)
    assert chain == pytest.approx(
        renewal.ettr(rate, 0.97, work, blocking, background, slowdown), rel=1e-9
    )


@given(st.integers(1, 6), st.integers(1, 6), st.floats(0, 300), st.floats(0, 2000))
def test_equal_tiers_are_one_tier(m, n, background, work):
    work += 1.0
    same = Tiers(work=work, every=(1, 1, 1), blocking=(3.0, 0.0, 0.0), background=(background,) * 3)
    split = ettr(same, failures(0.2, 0.5, 0.3), 1 / RATE)
    assert split == pytest.approx(renewal.ettr(RATE, 0.97, work, 3.0, background), rel=1e-8)
    every = (1, m, m * n)
    tiers = Tiers(
        work=work, every=every, blocking=(1.0, 2.0, 3.0), background=(0.0, 20.0, background)
    )
    near = ettr(tiers, failures(1.0), 1 / RATE)
    mixed = ettr(tiers, failures(0.3, 0.6, 0.1), 1 / RATE)
    assert 0 < mixed <= near + 1e-12 < 1


def test_failures_that_read_a_farther_tier_cost_more():
    tiers = Tiers(
        work=60.0, every=(1, 5, 60), blocking=(0.2, 1.0, 2.0), background=(0.0, 20.0, 240.0)
    )
    near, middle, far = (
        ettr(tiers, failures(*share), 1 / RATE) for share in ((1.0,), (0.0, 1.0), (0.0, 0.0, 1.0))
    )
    assert near > middle > far


def test_a_class_of_its_own_tier_in_two_or_three_tiers_is_the_same_chain():
    # A middle tier that costs nothing and that nobody reads changes nothing.
    two = Tiers(work=60.0, every=(1, 12), blocking=(0.5, 4.0), background=(0.0, 100.0))
    three = Tiers(
        work=60.0, every=(1, 4, 12), blocking=(0.5, 0.0, 4.0), background=(0.0, 0.0, 100.0)
    )
    run = failures(1.0)[0].run
    shares = (Failure(tier=0, share=0.9, run=run), Failure(tier=2, share=0.1, run=run))
    assert ettr(two, failures(0.9, 0.1), 1 / RATE) == pytest.approx(
        ettr(three, shares, 1 / RATE), rel=1e-12
    )


def test_no_failures_leave_only_the_overhead_of_saves(tiered_job):
    job = tiered_job(rate=0.0)
    line = walk(
        Tiers(work=60.0, every=(1, 5, 60), blocking=job.blocking, background=job.background)
    )
    assert model.ettr(job, 6, (1, 5, 60)) == pytest.approx(3600 / line.period)


@pytest.mark.parametrize("every", [(1, 5, 12), (1, 2), (1, 2, 5000)])
def test_tiers_that_do_not_nest_are_refused_by_name(tiered_job, every):
    with pytest.raises(BadValue, match=r"every|tiers"):
        model.ettr(tiered_job(), 6, every)


def test_a_general_law_with_shape_one_is_poisson(tiered_job):
    job = tiered_job()
    weibull = replace(job.reliability.law, kind="weibull", shape=1.0)
    other = replace(job, reliability=replace(job.reliability, law=weibull))
    poisson = model.ettr(job, 6, (1, 3, 12))
    assert model.ettr(other, 6, (1, 3, 12)) == pytest.approx(poisson, abs=1e-6)
    assert np.isfinite(poisson)
