"""A hub's config.json is read to the last field that matters, or refused by the field's name."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model import presets
from mofa_model.equations import parameters
from mofa_model.errors import BadFile, BadValue, InputError, UnknownName
from mofa_model.presets import models
from mofa_model.presets.models import from_config, read_config

HUB = json.loads(
    (Path(__file__).parents[2] / "data" / "hub_configs.json").read_text(encoding="utf-8")
)
LLAMA = HUB["presets"]["llama3-8b"]
PUBLISHED = json.loads(
    (Path(__file__).parents[2] / "data" / "architectures.json").read_text(encoding="utf-8")
)["published"]


def ends(model):
    return model.hidden, model.embedding.vocabulary, model.embedding.tied, model.prediction_modules


@pytest.mark.parametrize("name", HUB["presets"])
def test_a_published_file_describes_the_same_model_as_the_preset(name):
    read, preset = from_config(HUB["presets"][name], name=name), presets.model(name)
    assert ends(read) == ends(preset)
    # The older presets leave out biases and norms of queries and keys: at most 0.04 % of one of
    # them.
    assert parameters.total_parameters(read) == pytest.approx(
        parameters.total_parameters(preset), rel=4e-4
    )
    for ours, theirs in zip(read.kinds, preset.kinds, strict=True):
        assert read.number(ours) == preset.number(theirs)
        assert [block.cores() for block in ours.blocks] == [
            block.cores() for block in theirs.blocks
        ]
        # Qwen's shared expert has a gate of one row.
        assert ours.matrices(read.hidden) == pytest.approx(theirs.matrices(preset.hidden), rel=1e-5)


def windows(model):
    """The window of every layer; 0 where it sees everything."""
    return [
        layer.blocks[0].window or 0
        for run in model.runs
        for _ in range(run.repeats)
        for layer in run.layers
    ]


@pytest.mark.parametrize(
    "name, window, layers",
    [
        ("gemma-2-9b", 4096, 42 // 2),  # every other layer
        ("gemma-3-1b", 512, 22),  # all but every sixth: 4 of 26 see everything
        ("phi-3-mini", 2047, 32),
        ("mistral-7b", 4096, 32),
        ("gpt2-xl", 0, 0),
    ],
)
def test_windows_are_read_by_the_family_s_rule(name, window, layers):
    found = windows(from_config(HUB["stated"][name]["config"]))
    assert (max(found), sum(map(bool, found))) == (window, layers)


def test_a_listed_window_stands_over_the_rule():
    mistral = HUB["stated"]["mistral-7b"]["config"]
    listed = ["sliding_attention"] * 8 + ["full_attention"] * 24
    assert windows(from_config(mistral | {"layer_types": listed})) == [4096] * 8 + [0] * 24


def test_qwen_windows_begin_at_their_layer_and_only_where_they_are_used():
    qwen = HUB["presets"]["qwen2.5-72b"]
    assert not any(windows(from_config(qwen)))
    used = windows(from_config(qwen | {"use_sliding_window": True, "sliding_window": 4096}))
    assert used == [0] * 70 + [4096] * 10


def test_layers_without_experts_may_be_listed():
    moe = HUB["presets"]["qwen3-235b-a22b"]
    read = from_config(moe | {"mlp_only_layers": [1, 3]})
    assert [layer.routed for run in read.runs for _ in range(run.repeats) for layer in run.layers][
        :5
    ] == [
        True,
        False,
        True,
        False,
        True,
    ]
    with pytest.raises(BadValue, match=r"config\.mlp_only_layers"):
        from_config(moe | {"mlp_only_layers": [94]})


@pytest.mark.parametrize(
    "change, named",
    [
        ({"linear_attention_layers": 3}, "config.linear_attention_layers"),
        ({"num_experts": 8}, "config.num_experts"),
        ({"hidden_size": None}, "config.hidden_size"),
        ({"hidden_size": -4096}, "config.hidden_size"),
        ({"hidden_size": 4096.5}, "config.hidden_size"),
        ({"hidden_size": float("nan")}, "config.hidden_size"),
        ({"hidden_size": "4096"}, "config.hidden_size"),
        ({"num_hidden_layers": True}, "config.num_hidden_layers"),
        ({"num_hidden_layers": 10**30}, "config.num_hidden_layers"),
        ({"num_attention_heads": 33}, "config.num_attention_heads"),
        ({"num_key_value_heads": 5}, "kv_heads"),
        ({"tie_word_embeddings": "no"}, "config.tie_word_embeddings"),
        ({"is_encoder_decoder": True}, "config.is_encoder_decoder"),
        ({"text_config": {"depth": 3}}, "config.text_config"),
        ({"model_type": "falcon9"}, "config.model_type"),
        ({"model_type": ["llama"]}, "config.model_type"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(change, named):
    with pytest.raises(InputError) as caught:
        from_config(LLAMA | change)
    assert str(caught.value).startswith(f"{named}:")


def test_a_known_field_with_a_costly_value_is_refused():
    with pytest.raises(BadValue, match=r"config\.moe_layer_freq: 2 .* only 1"):
        from_config(HUB["presets"]["deepseek-v3"] | {"moe_layer_freq": 2})
    with pytest.raises(BadValue, match=r"config\.word_embed_proj_dim: 512"):
        from_config(HUB["presets"]["opt-175b"] | {"word_embed_proj_dim": 512})
    with pytest.raises(BadValue, match=r"config\.attn_config\.attn_type"):
        from_config(
            HUB["presets"]["mpt-30b"] | {"attn_config": {"attn_type": "multiquery_attention"}}
        )


@pytest.mark.parametrize("listed", [["full_attention"], [{}] * 32, "full_attention"])
def test_a_list_of_layers_has_a_known_word_for_each(listed):
    with pytest.raises(BadValue, match=r"config\.layer_types"):
        from_config(HUB["stated"]["mistral-7b"]["config"] | {"layer_types": listed})


def test_the_text_inside_of_a_file_is_found_by_itself():
    read = from_config(
        {"model_type": "some_vision_model", "vision_config": {"depth": 3}, "text_config": LLAMA}
    )
    assert read.name == "some_vision_model (its text alone)"
    assert replace(read, name="llama") == from_config(LLAMA)
    with pytest.raises(InputError, match=r"^config\.text_config\.hidden_size: -1"):
        from_config({"model_type": "other", "text_config": LLAMA | {"hidden_size": -1}})


def test_a_text_that_stands_in_the_file_twice_is_read_once():
    vision = presets.entry("models", "qwen2.5-vl-7b")["config"]
    text = {name: value for name, value in vision.items() if name != "vision_config"} | {
        "model_type": "qwen2_5_vl_text"
    }
    assert from_config(vision | {"text_config": text}) == from_config(vision)
    with pytest.raises(BadValue, match=r"config\.new_field"):
        from_config(vision | {"new_field": 3})
    with pytest.raises(BadValue, match=r"config\.vision_config\.new_field"):
        from_config(vision | {"vision_config": vision["vision_config"] | {"new_field": 3}})


def test_what_is_off_says_no_more_than_what_is_not_there(tmp_path):
    """Published files are full of `mlp_only_layers: []`, `bad_words_ids: null` and
    `"time_step_limit": [0.0, Infinity]`.
    """
    nothing = {
        "mlp_only_layers": [],
        "bad_words_ids": None,
        "pruned_heads": {},
        "n_shared_experts": 0,
        "use_cla": False,
    }
    file = tmp_path / "config.json"
    more = nothing | {
        "time_step_limit": [0.0, float("inf")],
        "sequence_parallel_enabled": True,
        "num_beams": 1,
    }
    file.write_text(json.dumps(LLAMA | more), encoding="utf-8")
    assert read_config(file) == from_config(LLAMA)
    for name in nothing.keys() - {"bad_words_ids"}:
        with pytest.raises(BadValue, match=rf"config\.{name}"):
            from_config(LLAMA | {name: [3]})


def test_the_text_of_qwen3_vl_is_that_of_qwen3_and_its_head_is_said_around_it():
    for preset, kind in (("qwen3-30b-a3b", "qwen3_vl_moe"), ("qwen3-8b", "qwen3_vl")):
        text = PUBLISHED[preset] | {"model_type": f"{kind}_text", "mlp_only_layers": []}
        text.pop("tie_word_embeddings", None)
        read = from_config(
            {
                "model_type": kind,
                "text_config": text,
                "vision_config": {"depth": 27},
                "tie_word_embeddings": False,
            }
        )
        assert read.name == f"{kind} (its text alone)"
        assert parameters.total_parameters(read) == parameters.total_parameters(
            from_config(PUBLISHED[preset])
        )
        tied = from_config({"model_type": kind, "text_config": text, "tie_word_embeddings": True})
        assert tied.embedding.tied


@pytest.mark.parametrize("name, layers", [("gemma-4-26b-a4b-text", 25), ("mimo-v2-flash", 39)])
def test_layers_with_a_window_have_attention_of_another_shape(name, layers):
    """Of Gemma 4 one layer in six sees all tokens, with heads of 512; of MiMo nine of 48 do, with
    half of the heads of keys.
    """
    model = from_config(PUBLISHED[name])
    seen = {
        block.window: block
        for kind in model.kinds
        for block in kind.blocks
        if block.variant == "attention"
    }
    narrow = sum(
        model.number(kind)
        for kind in model.kinds
        if any(getattr(one, "window", None) for one in kind.blocks)
    )
    assert narrow == layers
    if name == "mimo-v2-flash":
        assert (seen[None].kv_heads, seen[129].kv_heads, seen[129].sinks, seen[129].value_dim) == (
            4,
            8,
            True,
            128,
        )
    else:
        assert (seen[None].head_dim, seen[None].kv_heads, seen[None].keys_are_values) == (
            512,
            2,
            True,
        )
        assert (seen[1024].head_dim, seen[1024].kv_heads, seen[1024].keys_are_values) == (
            256,
            8,
            False,
        )


@pytest.mark.parametrize(
    "name, change, why",
    [
        ("gemma-4-31b-text", {"hidden_size_per_layer_input": 256}, "only 0 is modelled"),
        ("gemma-4-31b-text", {"num_kv_shared_layers": 20}, "only 0 is modelled"),
        ("gemma-4-31b-text", {"per_layer_config": {"5": {"head_dim": 512}}}, "the same head_dim"),
        ("mimo-v2-flash", {"swa_head_dim": 128}, "only 192 is modelled"),
        ("mimo-v2-flash", {"hybrid_layer_pattern": [2] * 48}, "a list of 48 numbers, each 0 or 1"),
        ("mimo-v2-flash", {"add_full_attention_sink_bias": True}, "only false is modelled"),
        ("mimo-v2-flash", {"model_type": "nemotron-nas"}, "no release of transformers builds"),
    ],
)
def test_what_of_the_new_families_is_not_modelled_is_refused(name, change, why):
    with pytest.raises(BadValue, match=why):
        from_config(PUBLISHED[name] | change)


def test_private_fields_say_nothing_about_cost():
    assert from_config(LLAMA | {"_attn_implementation_autoset": True}) == from_config(LLAMA)


def test_a_file_and_its_folder_are_read_alike(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    assert read_config(tmp_path) == read_config(tmp_path / "config.json") == from_config(LLAMA)


@pytest.mark.parametrize(
    "text, why",
    [
        (json.dumps(LLAMA)[:200], "is not JSON"),
        ("", "is not JSON"),
        ("[1, 2]", "is not a model configuration"),
        ("[" * 100_000, "is not JSON"),
        ("9" * 5000, "is not JSON"),
        (" " * (models.LARGEST_FILE + 1), "has more than"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_in_one_line(tmp_path, text, why):
    file = tmp_path / "config.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadFile) as caught:
        read_config(file)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(BadFile, match="cannot be read"):
        read_config(tmp_path / "config.json")


values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=9)
    | st.lists(st.integers(), max_size=3)
)


@given(st.sampled_from(list(HUB["presets"])), st.data())
def test_any_changed_field_is_either_read_or_refused(name, data):
    config = dict(HUB["presets"][name])
    for field in data.draw(st.lists(st.sampled_from(sorted(config)), max_size=3)):
        config[field] = data.draw(values)
    try:
        model = from_config(config)
    except InputError:
        return
    assert parameters.total_parameters(model) > 0


def test_an_unknown_family_is_told_the_known_ones():
    with pytest.raises(UnknownName, match="did you mean llama"):
        from_config({"model_type": "lama"})
