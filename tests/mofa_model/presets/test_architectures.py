"""Each architecture is counted as transformers builds it: published configurations, and those that
transformers saves itself.
"""

import json
import random
import re
from pathlib import Path

import pytest

from mofa_model.blocks import LinearAttention, Rows, SelectiveScan, StateSpace
from mofa_model.equations import parameters
from mofa_model.errors import InputError
from mofa_model.presets import entries
from mofa_model.presets.families import FAMILIES, REFUSED
from mofa_model.presets.models import from_config

DATA = Path(__file__).parents[2] / "data"
GIVEN = json.loads((DATA / "architectures.json").read_text(encoding="utf-8"))
CONFIGS = {
    name: preset["config"] for name, preset in entries.table("models").items() if "config" in preset
} | GIVEN["published"]
COUNTED = json.loads((DATA / "architectures_counted.json").read_text(encoding="utf-8"))


def known(config):
    return config["model_type"] in FAMILIES


PUBLISHED = [name for name, config in CONFIGS.items() if known(config)]
TINY = [name for name, config in GIVEN["tiny"].items() if known(config)]
SAVED = [name for name in PUBLISHED if "saved" in COUNTED["published"][name]]


def routed(model):
    """Parameters of all routed experts, which expert parallelism shares out."""
    blocks = (
        (model.number(kind), block)
        for kind in model.kinds
        for block in kind.blocks
        if block.exchange()
    )
    return sum(
        number * block.exchange().count * one.weights
        for number, block in blocks
        for one in block.products(model.hidden)
        if one.rows is Rows.ROUTED
    )


def test_at_least_forty_architectures_are_counted_and_each_that_is_read():
    counted = {CONFIGS[name]["model_type"] for name in PUBLISHED}
    assert len(counted) >= 40
    # These are of one family with another that is counted.
    assert set(FAMILIES) - counted == {
        "codegen",
        "granitemoeshared",
        "kimi_k2",
        "qwen2_5_vl_text",
        "qwen3_vl_moe_text",
        "qwen3_vl_text",
    }


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_file_has_the_parameters_that_transformers_builds(name):
    counted, model = COUNTED["published"][name], from_config(CONFIGS[name])
    assert parameters.total_parameters(model) == counted["parameters"]
    assert routed(model) == counted.get("experts", 0)
    assert model.embedding.tied == ("head" not in counted)


@pytest.mark.parametrize("name", SAVED)
def test_what_transformers_saves_is_read_to_the_same_model(name):
    counted = COUNTED["published"][name]
    assert parameters.total_parameters(from_config(counted["saved"])) == counted["parameters"]


@pytest.mark.parametrize("name", TINY)
def test_flops_are_those_that_pytorch_counts(name):
    counted, model = COUNTED["tiny"][name], from_config(GIVEN["tiny"][name])
    assert parameters.total_parameters(model) == counted["parameters"]
    core = parameters.attention_flops_per_token(model, counted["tokens"])
    matrices = parameters.forward_flops_per_token(model, counted["tokens"]) - core
    assert matrices == counted["matrices"]
    if not any(scanned(block) for block in model.blocks):
        assert core == pytest.approx(counted["cores"], rel=1e-2)


def scanned(block):
    """Whether a block works through a state, which PyTorch's reference does in part without
    matrices: tests of blocks count it.
    """
    return isinstance(block, StateSpace | SelectiveScan) or (
        isinstance(block, LinearAttention) and block.delta
    )


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_not_modelled_is_refused_with_what_is_missing(kind):
    with pytest.raises(
        InputError, match=rf"^config\.model_type: '{kind}' cannot be right; .* not modelled$"
    ):
        from_config({"model_type": kind})


def fuzzed(seed):
    """A published configuration with some fields changed, dropped or swapped with those
    of another.
    """
    draw = random.Random(seed)
    config = dict(CONFIGS[draw.choice(PUBLISHED)])
    other = CONFIGS[draw.choice(PUBLISHED)]
    odd = [
        None,
        True,
        False,
        0,
        1,
        -1,
        2**40,
        1.5,
        "",
        "x" * 500,
        [],
        [0],
        [True],
        {},
        {"a": 1},
        "full_attention",
    ]
    for field in draw.sample(sorted(config), min(len(config), draw.randint(1, 3))):
        act = draw.randrange(4)
        if act == 0:
            del config[field]
        elif act == 1:
            config[field] = draw.choice(odd)
        elif act == 2:
            config[field] = draw.randint(0, 4096)
        else:
            taken = draw.choice(sorted(other))
            config[taken] = other[taken]
    return config


def outcome(config):
    """What is said against a configuration; empty where it is read."""
    try:
        model = from_config(config)
    except InputError as error:
        return str(error)
    assert parameters.total_parameters(model) > 0
    return ""


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(300), id="sample"),
        pytest.param(range(5000), id="all", marks=pytest.mark.soak),
    ],
)
def test_a_wrong_file_is_read_or_refused_in_one_line_that_names_a_field(seeds):
    said = [outcome(fuzzed(seed)) for seed in seeds]
    wrong = [
        seed
        for seed, line in zip(seeds, said, strict=True)
        if "\n" in line or (line and ": " not in line)
    ]
    assert not wrong
    assert sum(map(bool, said)) > len(said) / 3


def test_the_page_of_families_lists_what_is_read_and_what_is_refused():
    page = (DATA.parents[1] / "docs" / "reference" / "models.md").read_text(encoding="utf-8")
    listed = page.partition("that are read: ")[2].partition(".\n")[0]
    assert [word.strip("` ") for word in listed.split(",")] == list(FAMILIES)
    refused = re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)
    assert refused == list(REFUSED)
