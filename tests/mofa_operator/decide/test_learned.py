"""The factor that running jobs teach: it halves the residual after three jobs, fades with age, and
one odd job cannot bend it.
"""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model.bands.system import SYSTEMS, system_factor
from mofa_model.units import Range
from mofa_operator.decide.calibration import (
    CLIP,
    HALF_LIFE,
    MOST,
    learned,
    ratio_of,
    remembered,
)
from mofa_operator.decide.observation import drifts
from mofa_operator.evidence import JobEvidence

SLOW = math.log(1 / 0.85)
"""A job at 85 % of the predicted throughput."""


def jobs(*log_ratios, age=0.0):
    return [JobEvidence(job="a/x", log_ratio=x, at=-age) for x in log_ratios]


def told(evidence, **how):
    """The factor that jobs teach, now being the moment 0."""
    return learned(evidence, 0.0, **how)


def residual(factor):
    """Observed over predicted throughput, minus one, of the next job at 85 % of what the model
    alone says.
    """
    return 0.85 * factor.factor.target - 1


def band(lower, upper):
    """A prediction of 1."""
    return Range(lower=lower, target=1.0, upper=upper)


def test_without_jobs_the_factor_is_one():
    factor = told([])
    assert (factor.factor.target, factor.job_count) == (1.0, 0)
    assert math.log(factor.factor.upper) == pytest.approx(1.2816 * SYSTEMS, rel=1e-3)


def test_three_jobs_leave_at_most_half_of_the_residual_and_one_job_more():
    assert abs(residual(told(jobs(*[SLOW] * 3)))) <= 0.15 / 2
    assert abs(residual(told(jobs(*[SLOW] * 3)))) < abs(residual(told(jobs(SLOW)))) < 0.15 / 2


def test_jobs_that_agree_teach_the_cluster_what_the_same_runs_teach_the_desk():
    for count in (1, 2, 5):
        assert told(jobs(*[SLOW] * count)).factor.target == system_factor([SLOW] * count).target


def test_three_jobs_that_ran_three_weeks_still_leave_half():
    # weights 2^(-21/30) = 0.62 each: 1.85 / (1.85 + 0.405) = 82 %
    assert abs(residual(told(jobs(*[SLOW] * 3, age=21 * 86400.0)))) <= 0.15 / 2


def test_evidence_fades_to_nothing():
    ratios = [told(jobs(*[SLOW] * 3, age=n * HALF_LIFE)).factor.target for n in range(12)]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[-1] == pytest.approx(1.0, abs=2e-3)


def test_one_odd_job_among_four_moves_the_factor_little():
    # a job at a tenth of its throughput: something is wrong with it, not with the profile
    three, odd = told(jobs(*[SLOW] * 3)), told(jobs(*[SLOW] * 3, math.log(10)))
    assert odd.factor.target / three.factor.target < 1.05
    assert told(jobs(math.log(10))).factor.target == told(jobs(CLIP * SYSTEMS)).factor.target < 1.2


def test_a_namespace_full_of_jobs_does_not_speak_for_the_others():
    many = [JobEvidence(job=f"loud/{n}", log_ratio=-SLOW, at=0.0) for n in range(12)]
    other = JobEvidence(job="quiet/x", log_ratio=SLOW, at=0.0)
    assert told(many).factor.target == pytest.approx(system_factor([-SLOW] * 12).target)
    assert told([*many, other]).factor.target == pytest.approx(1.0, abs=0.03)


def test_jobs_that_disagree_teach_less():
    agreed, torn = told(jobs(SLOW, SLOW)), told(jobs(SLOW + 0.3, SLOW - 0.3))
    assert 1 < torn.factor.target < agreed.factor.target
    assert torn.factor.upper / torn.factor.lower > agreed.factor.upper / agreed.factor.lower


def test_the_factor_that_a_prediction_contains_does_not_fight_its_own_evidence():
    # the model says 10 s, the profile taught 1.1, so 11 s are predicted and seen: the evidence is
    # still a factor of 1.1
    assert ratio_of(11.0, 11.0, applied=1.1) == pytest.approx(math.log(1.1))
    assert ratio_of(11.0, 10.0) == pytest.approx(math.log(1.1))


def test_the_factor_settles_where_the_truth_is_as_jobs_come():
    evidence, factor = (), 1.0
    for n in range(MOST):
        predicted = 10.0 * factor
        new = JobEvidence(
            job=f"a/job-{n}", log_ratio=ratio_of(12.0, predicted, applied=factor), at=float(n)
        )
        evidence = remembered(evidence, new)
        factor = learned(evidence, float(n)).factor.target
    assert factor == pytest.approx(1.2, rel=0.02)


def test_a_job_counts_once_with_its_latest_word():
    evidence = ()
    for at, x in ((1.0, 0.3), (2.0, 0.1), (3.0, 0.2)):
        evidence = remembered(evidence, JobEvidence(job="a/x", log_ratio=x, at=at))
    assert [one.log_ratio for one in evidence] == [0.2]
    stale = remembered(evidence, JobEvidence(job="a/x", log_ratio=0.9, at=1.5))
    assert stale == evidence


def test_the_oldest_evidence_goes_first():
    evidence = ()
    for n in range(MOST + 4):
        evidence = remembered(evidence, JobEvidence(job=f"a/{n}", log_ratio=0.0, at=float(n)))
    assert len(evidence) == MOST
    assert evidence[0].job == "a/4"


def test_a_job_at_85_percent_drifts_and_one_inside_its_band_does_not():
    assert drifts(0.85, band(0.9, 1.1))
    assert drifts(1.15, band(0.9, 1.1))
    assert not drifts(0.85, band(0.80, 1.2))
    assert not drifts(0.87, band(0.9, 1.1))


def test_drift_does_not_flicker():
    assert [drifts(x, band(0.95, 1.05), drifting=True) for x in (0.86, 0.90, 0.91, 0.96)] == [
        True, True, False, False,
    ]  # fmt: skip


SAMPLES = st.lists(
    st.builds(
        JobEvidence,
        job=st.just("a/x"),
        log_ratio=st.floats(-5, 5),
        at=st.floats(-1e9, 0),
    ),
    max_size=MOST,
)


@given(SAMPLES)
def test_the_factor_lies_between_one_and_the_farthest_job_and_inside_its_bounds(samples):
    factor = told(samples)
    assert 0 < factor.factor.lower <= factor.factor.target <= factor.factor.upper < math.inf
    reach = max([abs(one.log_ratio) for one in samples], default=0.0)
    assert abs(math.log(factor.factor.target)) <= min(reach, CLIP * SYSTEMS) + 1e-12


@given(SAMPLES)
def test_faster_is_the_mirror_of_slower(samples):
    mirrored = [replace(one, log_ratio=-one.log_ratio) for one in samples]
    assert told(mirrored).factor.target == pytest.approx(1 / told(samples).factor.target, rel=1e-9)


@given(SAMPLES, st.randoms(use_true_random=False))
def test_the_order_of_jobs_does_not_matter(samples, random):
    other = list(samples)
    random.shuffle(other)
    assert told(other).factor.target == pytest.approx(told(samples).factor.target, rel=1e-9)


@given(SAMPLES)
def test_time_in_other_units_gives_the_same_factor(samples):
    doubled = [replace(one, at=one.at * 2) for one in samples]
    assert told(doubled, half_life=2 * HALF_LIFE) == told(samples)
