"""The load of the fullest rank, its tail over a run, and chunks by load."""

import numpy as np
import pytest

from mofa_model.equations import routing


def test_the_tail_is_the_load_that_one_run_in_a_hundred_exceeds():
    """10,000 runs of 500 exchanges, mean 1.4, standard deviation 0.2: 100 runs have a larger one,
    give or take 10.
    """
    rng = np.random.default_rng(3)
    scale = 0.2 * np.sqrt(6.0) / np.pi
    runs = rng.gumbel(1.4 - np.euler_gamma * scale, scale, size=(10_000, 500))
    assert runs.mean() == pytest.approx(1.4, abs=1e-3)
    assert runs.std() == pytest.approx(0.2, abs=1e-3)
    tail = routing.tail_load(1.4, 0.2, 500.0, 0.01)
    assert int((runs.max(axis=1) > tail).sum()) == pytest.approx(100, abs=30)


@pytest.mark.parametrize("risk", [1e-6, 0.01, 0.5])
def test_the_probability_turns_the_tail_around(risk):
    tail = routing.tail_load(1.3, 0.1, 1e9, risk)
    assert routing.overflow_probability(1.3, 0.1, 1e9, tail) == pytest.approx(risk, rel=1e-9)


def test_one_load_without_a_spread_is_exceeded_surely_or_never():
    found = routing.overflow_probability(1.3, 0.0, 1e9, np.array([1.2, 1.4]))
    assert found == pytest.approx([1.0, 0.0], abs=1e-200)


def test_a_layer_runs_in_as_many_chunks_as_its_load_asks():
    """Tail 3, mean 1.5, spread 0.2: in 8 chunks of 3/8 a load x takes ceil(8 x / 3), by a mean over
    100,000 draws.
    """
    scale = 0.2 * np.sqrt(6.0) / np.pi
    loads = np.random.default_rng(5).gumbel(1.5 - np.euler_gamma * scale, scale, size=100_000)
    counted = np.ceil(8 * np.minimum(loads, 3.0) / 3.0).mean()
    assert routing.chunks_run(8, 1.5, 3.0) == pytest.approx(counted, rel=0.01)
    assert routing.chunks_run(np.array([1, 2, 4]), 1.5, 1.5).tolist() == [1, 2, 4]


def test_no_rank_gets_more_than_all_tokens_can_send():
    """Four ranks of two experts each and one choice: all tokens to one rank are four times
    the mean.
    """
    assert routing.largest_load(4, 8, 1) == 4
    assert routing.largest_load(8, 8, 2) == 4
