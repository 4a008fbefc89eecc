"""Odds: a law, what layouts share, and what runs are known with."""

import math
from dataclasses import replace

import numpy as np
import pytest

from mofa_model.bands.coordinates import Coordinates
from mofa_model.bands.odds import band_of, chance, odds_of
from mofa_model.bands.table import measured_runs, support

AT = Coordinates(
    stack="nanotron", device="h100-80gb-sxm", format="bf16", blocks="attention+dense",
    gpus="64", hidden="2048", sequence="4096", layout={"tp": "2", "sp": "true"},
)  # fmt: skip


def test_the_law_is_that_of_student_with_three_degrees_and_symmetric():
    # Quantiles of 90, 95 and 99 percent, from any printed table.
    assert chance(np.array([1.638, 2.353, 4.541])) == pytest.approx([0.9, 0.95, 0.99], abs=1e-4)
    assert float(chance(-2.0) + chance(2.0)) == pytest.approx(1.0)


def test_the_end_of_a_band_is_where_nine_of_ten_are():
    runs = measured_runs()
    seen = odds_of(runs, (AT,))
    for quantity in ("step", "memory"):
        assert seen.below(quantity, band_of(runs, AT, quantity).upper)[0] == pytest.approx(
            0.9, abs=1e-4
        )
        assert seen.below(quantity, 1.0)[0] == 0.5


def test_what_two_layouts_share_cancels_and_what_differs_widens():
    near = replace(AT, layout={"tp": "4", "sp": "true"})
    far = replace(
        AT, layout={"tp": "2", "sp": "true", "offload": "activations", "schedule": "dualpipe"}
    )
    seen = odds_of(measured_runs(), (AT, near, far))
    same, close, other = seen.beats(0, np.array([1.0, 1.1, 1.1]))
    assert same == 0.5
    assert 0.5 < other < close < 1.0
    assert seen.beats(1, np.array([1.0, 1.1, 1.1]))[0] == pytest.approx(1.0 - close)


def test_many_layouts_have_the_odds_that_each_has_alone():
    some = [replace(AT, layout={"tp": str(2**n)}) for n in range(4)]
    together = odds_of(measured_runs(), some)
    for at, one in enumerate(some):
        alone = odds_of(measured_runs(), (one,))
        assert alone.scales("step")[0] == together.scales("step")[at]
        assert alone.scales("memory")[0] == together.scales("memory")[at]


def test_memory_is_as_sure_on_many_devices_as_on_few():
    few, many = (
        band_of(measured_runs(), replace(AT, gpus=gpus), "step").upper for gpus in ("512", "16384")
    )
    assert many > few
    held = [
        band_of(measured_runs(), replace(AT, gpus=gpus), "memory").upper
        for gpus in ("512", "16384")
    ]
    assert held[1] < held[0] * 1.1


def test_a_stack_is_known_with_what_runs_of_its_family_have():
    runs = measured_runs()
    known = support(runs, "megatron-core", experts=False)
    assert known.own
    assert known.unmeasured({"tp": "8", "cp": "2", "recompute": "full:3"}) == ()
    assert known.unmeasured({"offload": "activations"}) == ("offload=activations",)
    assert "cp=2" in support(runs, "nanotron", experts=False).unmeasured({"cp": "2"})
    lent = support(runs, "deepspeed", experts=False)
    assert not lent.own
    assert lent.unmeasured({"optimizer": "zero3"}) == ()


def test_a_mixture_is_known_with_what_mixtures_have():
    known = support(measured_runs(), "megatron-bridge", experts=True)
    assert known.unmeasured({"ep": "8"}) == ()
    assert known.among < support(measured_runs(), "megatron-bridge", experts=False).among


def test_a_rare_feature_is_more_complex_than_a_common_one_and_what_is_off_is_none():
    known = support(measured_runs(), "megatron-core", experts=False)
    common, rare = known.complexity({"tp": "8"}), known.complexity({"cp": "2"})
    assert 1.0 < common < rare
    assert known.complexity({"tp": "8", "cp": "2"}) == pytest.approx(common + rare)
    assert known.complexity({"pp-overlap": "false", "mbs": "4"}) == 0.0
    assert math.isfinite(known.complexity({"offload": "activations"}))
