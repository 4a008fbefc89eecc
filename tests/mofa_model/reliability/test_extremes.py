"""Whatever is asked, the answer is a number that can be, or an error that names the field."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mofa_model.errors import BadValue
from mofa_model.reliability.deadlines import finish_time
from mofa_model.reliability.interval import (
    best_ettr,
    departure,
    nearest_steps,
    recommend,
)
from mofa_model.reliability.model import Job, ettr, ettr_band
from mofa_model.spec.reliability import (
    FailureLaw,
    FailureMode,
    FailureRate,
    RecoveryTime,
    Reliability,
    paper_classes,
)

LAWS = [
    FailureLaw(),
    FailureLaw(kind="weibull", shape=0.7),
    FailureLaw(kind="mixture", short_share=0.5, short_mean=0.1),
]
EXTREMES = {
    "zero failures": {"rate": 0.0},
    "a rate of a million per second": {"rate": 1e6},
    "one failure in an age": {"rate": 1e-15},
    "a save longer than any interval": {"rate": 1e-4, "blocking": 1e6},
    "mtbf shorter than recovery": {"rate": 1e-2, "recovery": 3600.0},
    "no save time": {"rate": 1e-4, "blocking": 0.0},
    "nothing costs, nothing fails": {"rate": 0.0, "blocking": 0.0},
    "a copy that never ends": {"rate": 1e-4, "background": 1e9},
    "no recovery time": {"rate": 1e-4, "recovery": 0.0},
}


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
@pytest.mark.parametrize("name", EXTREMES)
def test_one_tier(plain_job, name, law):
    job = plain_job(law=law, **EXTREMES[name])
    found = recommend(job)
    assert found.steps >= 1
    away = departure(job, found)
    for value in (found.ettr, away.half, away.double):
        assert 0 <= value <= 1
    assert away.flat[0] <= found.steps <= away.flat[1]
    values = ettr(job, np.array([1.0, 100.0, 1e9]))
    assert np.all((values >= 0) & (values <= 1))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
@pytest.mark.parametrize("rate", [0.0, 1e-9, 1e3])
def test_three_tiers(tiered_job, rate, law):
    job = tiered_job(rate=rate, law=law)
    assert 0 <= ettr(job, 6, (1, 2, 4)) <= 1
    assert 0 <= ettr(tiered_job(rate=rate, law=law, background=(0.0, 1e7, 1e8)), 6, (1, 2, 4)) <= 1


@settings(max_examples=200)
@given(
    rate=st.floats(0, 1e6),
    blocking=st.floats(0, 1e8),
    background=st.floats(0, 1e8),
    slowdown=st.floats(0, 10),
    recovery=st.floats(0, 1e8),
    law=st.sampled_from(["deterministic", "exponential", "lognormal"]),
    step=st.floats(1e-6, 1e6),
    nodes=st.floats(1, 1e6),
)
def test_no_input_gives_nan_or_less_than_zero(
    rate, blocking, background, slowdown, recovery, law, step, nodes
):
    one = FailureMode(
        name="job",
        rate=FailureRate.assumed(rate),
        recovery=RecoveryTime(mean=recovery, law=law, cv=2.0),
    )
    reliability = Reliability(classes=(one,), slowdown=slowdown, spares=3)
    job = Job(
        nodes=nodes,
        step_time=step,
        blocking=(blocking,),
        background=(background,),
        reliability=reliability,
    )
    steps = nearest_steps(job)
    assert steps >= 1
    assert 0 <= best_ettr(job) <= 1
    band = ettr_band(job, steps)
    assert 0 <= band.lower <= band.target <= band.upper <= 1
    assert finish_time(1000, step, band.target) > 0


@pytest.mark.parametrize(
    "wrong, field",
    [
        ({"nodes": 0}, "nodes"),
        ({"nodes": np.nan}, "nodes"),
        ({"step_time": -1.0}, "step_time"),
        ({"step_time": np.inf}, "step_time"),
        ({"blocking": (np.nan,)}, "blocking"),
        ({"background": (-1.0,)}, "background"),
        ({"background": (1.0, 2.0)}, "blocking"),
        ({"rate_scale": -1.0}, "rate_scale"),
    ],
)
def test_a_job_that_cannot_be_is_refused_by_name(plain_job, wrong, field):
    with pytest.raises(BadValue, match=field):
        replace(plain_job(1e-4), **wrong)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RecoveryTime(mean=-1.0),
        lambda: RecoveryTime(mean=1.0, law="pareto"),
        lambda: FailureLaw(kind="weibull", shape=0.0),
        lambda: FailureLaw(kind="mixture", short_share=0.9, short_mean=2.0),
        lambda: FailureLaw(kind="mixture", short_share=1.1),
        lambda: FailureRate(failures=1.0, exposure=0.0),
        lambda: FailureRate.assumed(-0.005),
        lambda: Reliability(classes=()),
        lambda: Reliability(classes=paper_classes(), slowdown=np.inf),
    ],
)
def test_a_reliability_that_cannot_be_is_refused(make):
    with pytest.raises(BadValue):
        make()
