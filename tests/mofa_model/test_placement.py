"""Where layers lie: the layouts that trainers were seen to use, and what holds of all of them."""

from dataclasses import replace

import numpy as np
import pytest
from hybrids import HYBRIDS
from hypothesis import given
from hypothesis import strategies as st
from shapes import changed, deeper, ends

from mofa_model import presets
from mofa_model.blocks import Experts, FeedForward
from mofa_model.checks import array_axes
from mofa_model.errors import BadValue
from mofa_model.placement import (
    RULES,
    groups,
    layout_stages,
    row_of_each,
    stages_in_order,
    stages_of,
)
from mofa_model.schedules import INTERLEAVED
from mofa_model.strategy import Strategy

LLAMA = presets.model("llama3.1-405b")
DEEPSEEK = presets.model("deepseek-v3")


def shaped(layers, hidden):
    """Llama's block in another width, with an FFN of 8192 and a vocabulary of 131072."""
    model = deeper(
        ends(changed(presets.model("llama3-8b"), FeedForward, width=8192), vocabulary=131072),
        layers,
    )
    return replace(model, hidden=hidden)


SMALL = shaped(16, 2048)
MIDDLE = shaped(28, 3072)


def dealt(model, pp, rule, vpp=1):
    """(stages, layers, embedding, head) of each kind, in order of position."""
    found = stages_of(model, Strategy(pp=pp, vpp=vpp), rule)
    there = found.count > 0
    columns = (found.count, found.layers, found.embedding, found.head)
    return [tuple(row) for row in np.stack(columns, axis=1)[there].tolist()]


def test_layers_that_divide_are_dealt_evenly_by_every_trainer_but_nanotron():
    for rule in ("even", "slots"):
        assert dealt(deeper(LLAMA, 128), 16, rule) == [(1, 8, 1, 0), (14, 8, 0, 0), (1, 8, 0, 1)]


def test_llama_405b_has_a_layer_less_on_its_first_and_on_its_last_stage():
    """126 layers, embedding and head are 128 slots: 7 + 14 x 8 + 7."""
    assert dealt(LLAMA, 16, "slots", vpp=8) == [(1, 7, 1, 0), (14, 8, 0, 0), (1, 7, 0, 1)]


def test_evenly_the_first_stages_take_what_is_left_over():
    """126 = 14 x 8 + 2 x 7."""
    assert dealt(LLAMA, 16, "even") == [(1, 8, 1, 0), (13, 8, 0, 0), (1, 7, 0, 0), (1, 7, 0, 1)]


@pytest.mark.parametrize(
    "model, pp, layers",
    [
        (SMALL, 2, [10, 6]),
        (SMALL, 4, [5, 5, 5, 1]),
        (MIDDLE, 2, [16, 12]),
        (MIDDLE, 4, [8, 8, 8, 4]),
    ],
)
def test_dealt_by_cost_the_head_weighs_as_many_layers_as_its_parameters(model, pp, layers):
    """A head of 131072 x 2048 is 4 layers of 4 h^2 + 3 h f; what nanotron's first rank
    allocates agrees.
    """
    found = dealt(model, pp, "cost")
    assert [int(n) for count, n, _, _ in found for _ in range(int(count))] == layers
    assert found[0][2:] == (1, 0)
    assert found[-1][2:] == (0, 1)


def test_a_head_as_heavy_as_a_stage_stands_alone():
    """28 x 3072 on 8 stages: 7 stages of 4 layers, and the head's 3.56 layers on the last."""
    assert dealt(MIDDLE, 8, "cost") == [(1, 4, 1, 0), (6, 4, 0, 0), (1, 0, 0, 1)]


def test_leading_dense_layers_lie_on_the_first_stages():
    """DeepSeek-V3: 61 layers and two ends on 16 stages; the first stage has its three dense layers
    and no experts.
    """
    found = stages_of(DEEPSEEK, Strategy(pp=16), "slots")
    assert found.held[:, 0].tolist() == [3, 0]
    assert (found.count * found.held).sum(axis=1).tolist() == [3, 58]


def test_one_stage_holds_everything():
    assert dealt(LLAMA, 1, "slots") == [(1, 126, 1, 1)]


def test_with_fewer_layers_than_stages_none_is_negative():
    found = stages_of(deeper(LLAMA, 8), Strategy(pp=16), "slots")
    assert (found.layers >= 0).all()
    assert (found.count * found.layers).sum() == 8


@given(st.sampled_from(RULES), st.integers(1, 140), st.integers(1, 64), st.integers(1, 8))
def test_every_rule_deals_every_layer_once_and_both_ends_once(rule, layers, pp, vpp):
    found = stages_of(deeper(LLAMA, layers), Strategy(pp=pp, vpp=vpp), rule)
    assert (found.count * found.layers).sum() == layers
    assert found.count.sum() == pp
    assert (found.count * found.embedding).sum() == 1
    assert (found.count * found.head).sum() == 1
    assert min(found.layers.min(), found.position.min()) >= 0


def test_a_family_pads_layouts_that_have_fewer_kinds():
    family = stages_of(LLAMA, Strategy(pp=np.array([1.0, 16.0, 2.0])), "slots")
    assert family.count.tolist() == [[1, 1, 1], [0, 14, 1], [0, 1, 0]]
    assert family.layers.tolist() == [[126, 7, 63], [0, 8, 63], [0, 7, 0]]


@given(
    st.lists(st.sampled_from([1.0, 2.0, 4.0, 8.0, 16.0]), min_size=1, max_size=12),
    st.sampled_from(RULES),
)
def test_a_layout_is_dealt_the_same_alone_and_in_a_family(stages, rule):
    family = stages_of(DEEPSEEK, Strategy(pp=np.array(stages)), rule)
    for index, pp in enumerate(stages):
        alone = stages_of(DEEPSEEK, Strategy(pp=pp), rule)
        for name in ("count", "position", "embedding", "head", "held"):
            wide, narrow = getattr(family, name)[..., index], getattr(alone, name)
            assert wide[..., : narrow.shape[-1]].tolist() == narrow.tolist()


@given(
    st.lists(st.tuples(st.floats(0, 1e12), st.integers(0, 5).map(float)), min_size=1, max_size=30)
)
def test_distinct_rows_are_found_again(rows):
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    place = groups(columns)
    first = row_of_each(place)
    assert len(first) == len(set(rows))
    for column in columns:
        assert column[first][place].tolist() == column.tolist()


def test_a_description_with_an_array_in_it_has_an_axis():
    assert array_axes(LLAMA, Strategy(tp=8)) == 0
    assert array_axes(LLAMA, Strategy(tp=np.array([1.0, 2.0]))) == 1
    assert array_axes(changed(DEEPSEEK, Experts, imbalance=np.array([1.0, 1.5]))) == 1


def test_an_unknown_rule_is_refused_with_those_that_exist():
    with pytest.raises(
        BadValue, match="placement: 'odd' cannot be right; one of even, slots, cost"
    ):
        stages_of(LLAMA, Strategy(), "odd")


@pytest.mark.parametrize("name", ["nemotron-h-8b", "qwen3-next", "shared"])
@pytest.mark.parametrize("pp, vpp", [(4, 1), (4, 2), (8, 1)])
def test_unlike_layers_are_dealt_by_cost_and_told_in_the_same_order(name, pp, vpp):
    """Every layer lies once; what is told chunk by chunk is what the stages hold; no stage weighs
    far more than its share.
    """
    model, layout = HYBRIDS[name], Strategy(pp=pp, vpp=vpp)
    found, chunks = stages_of(model, layout, "slots"), stages_in_order(model, layout, "slots")
    assert sum(map(len, chunks)) == (found.count * found.layers).sum() == model.layers
    held = [
        [sum(layer is kind for c in chunks[i::pp] for layer in c) for kind in model.kinds]
        for i in range(pp)
    ]
    assert sorted(map(tuple, held)) == sorted(
        tuple(found.held[:, k].tolist())
        for k in range(len(found.count))
        for _ in range(int(found.count[k]))
    )
    cost = [
        sum(block.placement_cost(model.hidden) for block in kind.blocks) for kind in model.kinds
    ]
    weights = [np.dot(cost, stage) for stage in held[:-1]]  # the last stage has the head as well
    assert max(weights) < 1.5 * np.mean(weights)
    assert stages_in_order(model, layout, "even") == ()


@pytest.mark.parametrize(
    "layout, layers",
    [
        (
            "Et*3|(tt|)*29,m|L",
            [3, *[2] * 29, 0, 0],
        ),  # DeepSeek-V3 on 16 stages of two, in Megatron's own guide
        ("Ettt|(tt|)*29,m|L", [3, *[2] * 29, 0, 0]),  # parse_str_to_list
        ("Et*4|(t*4|)*14tmL", [*[4] * 15, 1]),
        ("E,t|(|tt)*2,m,L", [1, 0, 2, 2]),
        ("E|t|*3L", [0, 1, 0, 0, 0]),
        ("Et|((t|)*2tt|)*2L", [1, 1, 1, 2, 1, 1, 2, 0]),
    ],
)
def test_repeats_inside_of_repeats_are_written_out_first(layout, layers):
    """The words and their meaning are those of Megatron's guide and parser; 61 layers of
    DeepSeek-V3 lie on 32 stages.
    """
    assert [stage.count("t") for stage in layout_stages(layout)] == layers


@pytest.mark.parametrize(
    "layout",
    ["", "t*4L", "Et*4", "Et*x|L", "Et(t|L", "E t|L", "E" + "(" * 9 + "t" + ")*99" * 9 + "L"],
)
def test_what_is_no_layout_is_refused_with_an_example(layout):
    with pytest.raises(BadValue, match=r"write it as Megatron does, for example Et\*2"):
        layout_stages(layout)


def test_a_layout_in_the_words_of_megatron_is_taken_as_it_is():
    """Fifteen layers on two stages of four virtual ones: Et*3|(tt|)*6L leaves the last of them the
    head alone.
    """
    model, layout = (
        deeper(presets.model("llama3-8b"), 15),
        Strategy(pp=2, vpp=4, schedule=INTERLEAVED),
    )
    found = stages_of(model, layout, "Et*3|(tt|)*6L")
    assert found.layers.tolist() == [9, 6]
    assert found.embedding.tolist() == [1, 0]
    assert found.head.tolist() == [0, 1]
    with pytest.raises(BadValue, match="8 virtual stages, 15 layers"):
        stages_of(model, layout, "Et|tL")
