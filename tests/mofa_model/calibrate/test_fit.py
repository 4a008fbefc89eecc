"""The fit finds the constants that made the runs, and a bad run pulls weakly."""

import tomllib

import numpy as np
import pytest

from mofa_model.calibrate.cases import CalibrationKey
from mofa_model.calibrate.constants import YOURS, composition, entries_of
from mofa_model.calibrate.fit import fit, robust, times
from mofa_model.calibrate.runs import case_of
from mofa_model.errors import BadFile

PRIORS = """
[device.a100]
"compute.sustained" = { value = 1.2, spread = 0.3, least = 1.0, most = 1.25 }
"compute.memory_efficiency" = { value = 0.7, spread = 0.3 }
[stack.llm-foundry]
"compute.sustained" = { factor = 1.0, spread = 0.2 }
"host.step" = { value = 0.03 }
[stack.maxtext]
"compute.sustained" = { factor = 1.1, spread = 0.2 }
"""
LAYOUTS = [
    ("llama2-7b", 64, "tp=1,dp=64,mbs=1,optimizer=zero3", 256),
    ("llama2-7b", 64, "tp=1,dp=64,mbs=2,optimizer=zero3", 1024),
    ("llama2-7b", 32, "tp=2,dp=16,mbs=2,optimizer=distributed", 256),
    ("llama2-13b", 128, "tp=2,dp=64,mbs=1,optimizer=distributed", 512),
    ("llama2-13b", 64, "tp=4,pp=2,dp=8,mbs=1,optimizer=distributed", 256),
    ("llama2-70b", 128, "tp=8,pp=4,dp=4,mbs=1,optimizer=distributed", 256),
    ("llama2-70b", 256, "tp=8,pp=8,dp=4,mbs=1,optimizer=distributed", 512),
    ("llama2-70b", 256, "tp=8,pp=4,dp=8,mbs=2,optimizer=distributed", 1024),
]
TRUTH = np.log([1.05, 0.78, 1.1, 0.03, 1.1])


@pytest.fixture(scope="module")
def evidence():
    """Runs on A100, half of them of a stack with a factor of its own."""
    runs = [
        case_of({"model": model, "gpu": "a100-80gb-sxm", "gpus": gpus, "strategy": strategy, "stack": stack,
                 "global_batch": batch, "sequence": sequence, "step_seconds": 1.0})
        for model, gpus, strategy, batch in LAYOUTS
        for stack, sequence in (("llm-foundry", 2048), ("nanotron", 2048), ("nanotron", 4096), ("llm-foundry", 8192))
    ]  # fmt: skip
    return times(runs, entries_of(tomllib.loads(PRIORS)))


@pytest.fixture(scope="module")
def noisy(evidence):
    """What the model says of these runs with the true constants, and 1 % of noise."""
    noise = np.random.default_rng(7).normal(0.0, 0.01, evidence.size)
    return evidence.values(TRUTH) + noise


def test_known_constants_are_found_again_from_runs_with_noise(evidence, noisy):
    found = fit(evidence, noisy)
    assert np.exp(found.logs)[:3] == pytest.approx([1.05, 0.78, 1.1], rel=0.06)


def test_a_run_that_took_ten_times_as_long_moves_nothing_by_more_than_its_noise(evidence, noisy):
    bad = noisy.copy()
    bad[3] += np.log(10.0)
    assert np.abs(fit(evidence, bad).logs - fit(evidence, noisy).logs)[:3].max() < 0.05


def test_a_constant_stays_within_what_can_be(evidence, noisy):
    """Runs that took two thirds of the time would need products faster than single calls."""
    assert np.exp(fit(evidence, noisy - np.log(1.5)).logs[0]) == pytest.approx(1.0, abs=1e-12)


def test_a_constant_that_no_run_depends_on_stays_at_its_prior(evidence, noisy):
    assert np.exp(fit(evidence, noisy).logs[4]) == pytest.approx(1.1, rel=1e-9)


def test_a_constant_without_a_spread_is_fixed(evidence, noisy):
    assert np.exp(fit(evidence, noisy).logs[3]) == pytest.approx(0.03, rel=1e-12)


def test_a_row_without_weight_says_nothing(evidence, noisy):
    weights = np.ones(evidence.size)
    weights[5] = 0.0
    other = noisy.copy()
    other[5] = 3.0
    assert np.array_equal(
        fit(evidence, noisy, weights=weights).logs, fit(evidence, other, weights=weights).logs
    )


def test_the_same_runs_give_the_same_constants_to_the_last_bit(evidence, noisy):
    assert np.array_equal(fit(evidence, noisy).logs, fit(evidence, noisy).logs)


def test_derivatives_are_those_of_the_predictions(evidence):
    here, slope = evidence.derivatives(TRUTH)
    moved = TRUTH.copy()
    moved[0] += 1e-3
    assert (evidence.values(moved) - here) / 1e-3 == pytest.approx(slope[:, 0], abs=2e-3)


def test_the_robust_loss_is_quadratic_when_small_and_linear_when_large():
    loss, weight = robust(np.array([1e-4, 1.0, 2.0]), 0.05)
    assert loss[0] == pytest.approx((1e-4 / 0.05) ** 2, rel=1e-3)
    assert loss[2] / loss[1] == pytest.approx(2.0, rel=0.05)
    assert weight[0] == pytest.approx(1.0, rel=1e-3)


def test_a_constant_is_the_innermost_value_times_the_factors_above_it():
    entries = entries_of(
        {
            "device": {"a100": {"compute.gemm_efficiency": {"value": 0.8}}},
            "stack": {"llm-foundry": {"compute.gemm_efficiency": {"factor": 0.9}}},
            YOURS: {"compute.gemm_efficiency": {"factor": 0.5}, "host.step": {"factor": 2.0}},
        }
    )
    made = composition(
        CalibrationKey(device="a100-80gb-sxm", precision="bf16", stack="llm-foundry"), entries
    )
    priors = np.array([entry.prior for entry in entries])
    values = {path: one.fixed * np.prod(priors[list(one.entries)]) for path, one in made.items()}
    assert values["compute.gemm_efficiency"] == pytest.approx(0.8 * 0.9 * 0.5)
    assert values["host.step"] == pytest.approx(2.0 * 0.02)


def test_priors_that_name_no_constant_are_refused():
    with pytest.raises(BadFile, match="no_such is not a constant"):
        entries_of({"any": {"compute.no_such": {"value": 1.0}}})
