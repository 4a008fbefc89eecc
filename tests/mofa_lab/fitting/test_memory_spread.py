"""The width of the band of memory, from what left-out runs measured, and from who had room."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mofa_lab.fitting import campaign, memory_spread
from mofa_lab.fitting.campaign import Calibrated, CampaignResult
from mofa_lab.fitting.folds import cross_validate
from mofa_lab.fitting.priors import priors
from mofa_lab.validate.cases import load
from mofa_model.bands.odds import END
from mofa_model.bands.variance import ESTIMATED, memory_half_width
from mofa_model.calibrate.fit import fit, memories

CASES = Path(__file__).parents[3] / "lab/data/cases"


def drawn(width, sign=0, runs=4000):
    """Errors of groups of one by the law, of memories of which 20 to 100 % is estimated."""
    rng = np.random.default_rng(3)
    share = rng.uniform(0.2, 1.0, runs)
    error = np.hypot(width * share, 0.02) / END * rng.standard_t(3, runs)
    return memory_spread.Errors([f"{one}" for one in range(runs)], share, error, sign)


def test_errors_that_are_drawn_by_a_width_give_it_back():
    for width in (0.08, 0.2):
        assert memory_spread.likeliest([drawn(width)]) == pytest.approx(width, rel=0.05)


def test_what_had_room_and_what_had_none_narrow_the_band():
    """A run that trained with a tenth to spare is likelier the narrower its band is, as is one that
    lacked a tenth and failed; one that trained a tenth beyond its limit is not.
    """
    groups, share = ["a"], np.ones(1)
    for sign, value, narrower in ((1, 0.1, True), (-1, -0.1, True), (1, -0.1, False)):
        told = memory_spread.Errors(groups, share, np.array([value]), sign)
        assert (told.likelihood(0.05) > told.likelihood(0.2)) is narrower


@pytest.mark.soak
def test_the_shipped_width_is_the_likeliest_and_holds_four_of_five():
    cases = [case for file in sorted(CASES.glob("*.json")) for case in load(file)[0]]
    evidence = memories(cases, priors())
    whole = fit(evidence, evidence.measured, weights=evidence.weights)
    left = {
        by: cross_validate(evidence, whole, by, judged=campaign.JUDGED[by])
        for by in ("group", "publisher")
    }
    part = Calibrated(
        evidence=evidence,
        fitted=whole,
        logs=whole.logs,
        values=evidence.values(whole.logs),
        validated=left,
    )
    told = memory_spread.errors_of(
        CampaignResult(cases=tuple(cases), time=part, memory=part, constants=())
    )
    assert memory_spread.likeliest(told) == pytest.approx(ESTIMATED, rel=0.1)
    measured = told[0]
    inside = np.abs(measured.value) <= memory_half_width(measured.estimated)
    assert 0.75 <= float(np.mean(inside)) <= 0.88
