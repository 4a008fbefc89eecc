"""Parameter counts and reported FLOPs against stated figures."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from shapes import deeper

from mofa_model import presets
from mofa_model.equations import parameters as p
from mofa_model.errors import BadValue

STATED = json.loads(
    (Path(__file__).parents[2] / "data" / "models_stated.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", STATED["models"])
def test_every_model_has_its_stated_parameters_within_half_a_percent(name):
    stated, model = STATED["models"][name], presets.model(name)
    assert p.total_parameters(model) == pytest.approx(stated["total_b"] * 1e9, rel=5e-3)
    assert p.active_parameters(model) == pytest.approx(stated["active_b"] * 1e9, rel=5e-3)


def test_the_stated_models_and_those_that_are_counted_exactly_are_all_the_presets():
    counted = {
        name for name in presets.names("models") if "config" in presets.entry("models", name)
    }
    assert set(STATED["models"]) | counted == set(presets.names("models"))


@pytest.mark.parametrize(
    "row", STATED["counted"]["rows"], ids=lambda r: f"{r['model']}-{r['sequence']}"
)
def test_learned_positions_and_biases_are_all_that_is_left_out(row):
    model = presets.model(row["model"])
    positions = model.hidden * row["sequence"]
    # 3h + h + 4h + h in the projections and 2h in the norms of a layer, h in the last norm
    biases = model.hidden * (11 * model.layers + 1)
    assert p.total_parameters(model) + positions + biases == row["parameters"]


def test_models_are_as_large_as_their_names_say():
    assert p.total_parameters(presets.model("llama3.1-405b")) == 405_853_388_800
    assert p.total_parameters(presets.model("mixtral-8x7b")) == 46_702_792_704
    assert p.active_parameters(presets.model("deepseek-v3")) / 1e9 == pytest.approx(37.55, abs=0.01)
    # DeepSeek-V3's prediction module without the embedding and head that it shares
    assert p.prediction_parameters(presets.model("deepseek-v3")) / 1e9 == pytest.approx(
        11.6, abs=0.1
    )


def test_a_dense_model_has_no_experts_and_all_of_it_is_active():
    model = presets.model("llama3-8b")
    assert model.experts is None
    assert p.prediction_parameters(model) == 0
    assert p.total_parameters(model) == p.active_parameters(model)


def test_flops_are_six_a_weight_and_twelve_a_score():
    model = presets.model("llama3-8b")
    weights = (
        p.total_parameters(model) - model.embedding.rows(model.hidden) - (2 * 32 + 1) * 4096
    )  # norms multiply nothing
    assert p.training_flops_per_token(model, 8192) == 6 * weights + 12 * 32 * 8192 * 4096


def test_causal_counting_halves_attention_alone():
    model = presets.model("gpt3-175b")
    full = p.forward_flops_per_token(model, 2048)
    causal = p.forward_flops_per_token(model, 2048, convention="causal")
    assert full - causal == 96 * 2 * 2048 * 12288


def test_the_head_counted_twice_adds_one_head():
    model = presets.model("nanotron-80b")
    once = p.forward_flops_per_token(model, 4096)
    assert (
        p.forward_flops_per_token(model, 4096, head_counted_twice=True) - once == 2 * 8192 * 131072
    )


def test_a_prediction_module_adds_a_layer_a_projection_and_a_head():
    model = presets.model("deepseek-v3")
    added = p.forward_flops_per_token(model, 4096, prediction=True) - p.forward_flops_per_token(
        model, 4096
    )
    more = p.forward_flops_per_token(deeper(model, 62), 4096) - p.forward_flops_per_token(
        model, 4096
    )
    assert added == pytest.approx(more + 4 * 7168**2 + 2 * 7168 * 129280)


def test_a_window_bounds_what_a_token_sees():
    model = presets.model("gpt-oss-20b")
    window, full = model.kinds
    narrow = p.core_flops_per_token(window, 4096)
    assert narrow == p.core_flops_per_token(full, 4096) * 128 / 4096
    assert p.core_flops_per_token(window, 64) == p.core_flops_per_token(full, 64)
    assert p.attention_flops_per_token(model, 4096) == 12 * (
        narrow + p.core_flops_per_token(full, 4096)
    )
    # 128 tokens of which the first 128 of 4096 see fewer: 128 - 128^2 / 8192 = 126
    causal = p.core_flops_per_token(window, 4096, convention="causal")
    assert causal / narrow == pytest.approx(126 / 128)


def test_a_row_counts_the_same_alone_and_in_an_array():
    model = presets.model("deepseek-v3")
    many = replace(deeper(model, np.array([30, 61, 90])), hidden=np.array([4096, 7168, 8192]))
    one = replace(deeper(model, 61), hidden=7168)
    for count in (
        p.total_parameters,
        p.active_parameters,
        lambda m: p.training_flops_per_token(m, 4096),
    ):
        assert np.asarray(count(many))[1] == count(one)


def test_an_unknown_convention_is_refused():
    with pytest.raises(BadValue, match="convention: 'half'"):
        p.forward_flops_per_token(presets.model("llama3-8b"), 8192, convention="half")
