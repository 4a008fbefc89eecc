"""Every name finds what it means, every preset can be built, and every number says where it
was read.
"""

import re
from collections import defaultdict

import pytest
from each import each
from hypothesis import given
from hypothesis import strategies as st

from mofa_model import presets
from mofa_model.errors import BadValue, InputError, UnknownName
from mofa_model.presets import entries
from mofa_model.units import GIB

EVERY = [(kind, name) for kind in presets.KINDS for name in presets.names(kind)]


@pytest.mark.parametrize(
    "kind, said, meant",
    [
        ("models", "Llama3-405B", "llama3.1-405b"),
        ("models", "meta-llama/Llama-3.1-405B", "llama3.1-405b"),
        ("models", "deepseek-v3-671b", "deepseek-v3"),
        ("devices", "h100", "h100-80gb-sxm"),
        ("devices", "H100-SXM", "h100-80gb-sxm"),
        ("devices", "H100-80GB-SXM5", "h100-80gb-sxm"),
        ("devices", "NVIDIA-H100-80GB-HBM3", "h100-80gb-sxm"),
        ("devices", "NVIDIA-A100-SXM4-80GB", "a100-80gb-sxm"),
        ("devices", "NVIDIA-B200", "b200-180gb-sxm"),
        ("devices", " b200 ", "b200-180gb-sxm"),
        ("devices", "GB200", "gb200"),
        ("devices", "mi300x", "mi300x"),
        ("devices", "NVIDIA H100 80GB HBM3", "h100-80gb-sxm"),
        ("devices", "nvidia-h100-mega-80gb", "h100-80gb-sxm"),
        ("devices", "NVIDIA A100-SXM4-40GB", "a100-40gb-sxm"),
        ("devices", "nvidia-tesla-a100", "a100-40gb-sxm"),
        ("devices", "nvidia-a100-80gb", "a100-80gb-sxm"),
        ("devices", "nvidia-h200-141gb", "h200-141gb-sxm"),
        ("devices", "H100 PCIe", "h100-80gb-pcie"),
        ("devices", "AMD Instinct MI300X", "mi300x"),
        ("devices", "p5.48xlarge", "h100-80gb-sxm"),
        ("devices", "p4d.24xlarge", "a100-40gb-sxm"),
        ("devices", "Standard_ND96amsr_A100_v4", "a100-80gb-sxm"),
        ("devices", "nd96isr_h200_v5", "h200-141gb-sxm"),
        ("fabrics", "InfiniBand NDR", "ndr"),
        ("fabrics", "10GbE", "ethernet-10"),
        ("models", "https://hub.example/meta-llama/Llama-3.1-405B/tree/main", "llama3.1-405b"),
        ("stacks", "megatron", "megatron-core"),
        ("precisions", "BFloat16", "bf16"),
    ],
)
def test_names_and_aliases_find_their_preset_whatever_the_case(kind, said, meant):
    assert presets.resolve(kind, said) == meant


@pytest.mark.parametrize("kind", presets.KINDS)
def test_no_name_means_two_presets_and_every_id_is_in_small_letters(kind):
    table = entries.table(kind)
    said = defaultdict(set)
    for name, entry in table.items():
        for word in (name, *entry.get("aliases", ()), *entry.get("instances", ())):
            said[entries._key(kind, word)].add(name)
    several = (
        {"fp8", "float8"} if kind == "precisions" else set()
    )  # refused with all that they may mean
    assert {word for word, meant in said.items() if len(meant) > 1} == several
    assert [name for name in table if name != name.lower()] == []


def test_a_name_is_found_without_parsing_entries_that_do_not_mention_it():
    for kind in presets.KINDS:
        every = entries._ids(kind, presets.names(kind))
        for word, ids in every.items():
            found = presets.meanings(kind, word)
            assert found in {ids, (word,)}, (kind, word)
    some = entries.table("devices").mentioning("h100")
    assert len(some) < len(presets.names("devices")) / 2


def test_no_name_of_a_gpu_or_of_a_cloud_s_node_leads_to_another_gpu():
    makes = (
        "gb300",
        "gb200",
        "gh200",
        "b300",
        "b200",
        "h200",
        "h800",
        "h100",
        "a100",
        "l40s",
        "mi300",
        "4090",
        "3090",
        "5090",
        "6000-ada",
        "a6000",
        "pro-6000",
        "a10g",
        "v100",
        "h20",
        "a800",
    )
    for word in presets.canonical_names("devices"):
        (name,) = presets.meanings("devices", word)
        make = next((one for one in makes if one in word), "")
        memory = next((part for part in word.split("-") if re.fullmatch(r"\d+gb", part)), "")
        assert make in name, (word, name)
        assert memory in name or make in {"b300", "gh200"}, (word, name)


@pytest.mark.parametrize(
    "name, facts",
    [
        (n, f)
        for d in presets.names("devices")
        for n, f in presets.entry("devices", d).get("instances", {}).items()
    ],
)
def test_every_node_of_a_cloud_is_a_machine_and_says_where_it_was_read(name, facts):
    assert facts["source"].strip()
    assert set(facts) <= {
        *("aliases", "gpus_per_node", "scale_out", "host_memory", "price", "priced", "source")
    }
    assert ("price" in facts) == ("priced" in facts), "a price is of a day"
    made = presets.cluster(name, 64)
    assert int(made.gpus_per_node) == facts.get(
        "gpus_per_node", int(presets.cluster(made.device.name, 64).gpus_per_node)
    )
    assert made.scale_out == presets.link(facts["scale_out"])
    assert presets.cluster(name, 64, scale_out="ndr").scale_out == presets.link("ndr"), (
        "what somebody says comes first"
    )


@each(EVERY)
def test_every_preset_says_where_it_was_read(kind, name):
    assert presets.sources(kind, name)["source"].strip()


@pytest.mark.parametrize("name", presets.names("devices"))
def test_what_is_derived_or_from_memory_is_a_field_of_the_device(name):
    entry = presets.entry("devices", name)
    assert set(entry.get("derived", ())) | set(entry.get("from_memory", ())) <= set(entry)


@each(EVERY)
def test_every_preset_can_be_built(kind, name):
    build = {
        "models": presets.model,
        "devices": presets.device,
        "fabrics": presets.fabric,
        "precisions": presets.precision,
        "optimizers": presets.optimizer,
        "bases": presets.base,
        "stacks": presets.stack,
    }[kind]
    built = build(name)
    assert built.bandwidth > 0 if kind == "fabrics" else built.name == name


def test_published_devices_have_their_data_sheet():
    h100, b200 = presets.device("h100"), presets.device("b200")
    assert (h100.peak_bf16, h100.peak_fp8, h100.peak_fp4) == (989e12, 1979e12, 0.0)
    assert h100.memory_bandwidth == 3.35e12
    assert h100.memory == 81559 * 2**20
    assert b200.peak_fp4 == 9e15
    assert presets.device("h100-500w").peak_bf16 == pytest.approx(0.9 * 989e12)


def test_memory_that_is_not_stated_is_the_data_sheet_s_less_half_a_percent():
    assert presets.device("a100").memory / (80 * GIB) == pytest.approx(0.995)
    assert presets.device("h100").memory / (80 * GIB) == pytest.approx(0.9956, abs=1e-4)  # stated


def test_a_recipe_has_the_widths_of_mixed_precision():
    recipe = presets.precision("bf16")
    assert (recipe.weight, recipe.gradient, recipe.optimizer) == (2.0, 4.0, 12.0)


def test_weights_in_eight_bits_are_an_option_of_eight_bit_recipes_alone():
    assert presets.precision("fp8-current", fp8_params=True).weight == 1.0
    assert presets.precision("fp8-current").weight == 2.0
    with pytest.raises(BadValue, match="fp8_params"):
        presets.precision("bf16", fp8_params=True)


def test_a_stack_may_change_the_widths_of_a_recipe():
    assert presets.precision("fp16", stack="megatron-deepspeed").reduce == 2.0
    assert presets.precision("bf16", stack="megatron-deepspeed").reduce == 4.0
    assert presets.precision("bf16", stack="internevo").gradient == 2.0


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(UnknownName, match=r"model: unknown name 'llama3-404b'; did you mean"):
        presets.model("llama3-404b")
    with pytest.raises(UnknownName, match="presets: unknown name 'gpus'"):
        presets.names("gpus")


def test_a_name_of_several_recipes_is_refused_with_all_of_them():
    with pytest.raises(BadValue) as caught:
        presets.precision("FP8")
    assert str(caught.value) == (
        "precision: 'FP8' cannot be right; it may mean several: give fp8-delayed, fp8-current, fp8-tensorwise,"
        " fp8-rowwise, fp8-block or mxfp8"
    )
    assert {presets.precision(name).gemm for name in presets.meanings("precisions", "fp8")} == {
        "fp8"
    }


@pytest.mark.parametrize(
    "kind, name, suggested",
    [
        ("models", "whisper", None),
        ("models", "grok-1", None),
        ("models", "llama4-scot", "llama4-scout?"),
        ("models", "lama3.1-405b", "llama3.1-405b?"),
        ("devices", "gtx1080", None),
        ("devices", "mi355", "mi355x?"),
        ("devices", "h100sxm", "h100-80gb-sxm?"),
        ("fabrics", "slingshoot", "slingshot11?"),
        ("stacks", "pytorch", None),
        ("stacks", "torchtitn", "torchtitan?"),
        ("precisions", "posit16", None),
    ],
)
def test_only_names_that_are_near_are_suggested_and_each_entry_once(kind, name, suggested):
    with pytest.raises(UnknownName) as caught:
        presets.resolve(kind, name)
    said = str(caught.value)
    assert (f"did you mean {suggested}" in said) if suggested else ("did you mean" not in said)
    assert f"`mofa presets {kind}` lists them all" in said


@given(
    st.sampled_from(presets.KINDS),
    st.text(max_size=40) | st.none() | st.integers() | st.lists(st.text()),
)
def test_any_name_is_either_known_or_refused(kind, name):
    try:
        assert presets.resolve(kind, name) in presets.names(kind)
    except InputError as error:
        assert str(error).startswith(f"{kind.removesuffix('s')}:")  # noqa: PT017


@pytest.mark.parametrize(
    "name, base",
    [
        ("llama2-7b", "meta-llama/Llama-2-7b-hf"),
        ("llama3-8b", "meta-llama/Llama-3.1-8B"),
        ("deepseek-v2", "deepseek-ai/DeepSeek-V2"),
        ("qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B"),
        ("mistral-7b", "mistralai/Mistral-7B-v0.1"),
        ("phi3-mini", "microsoft/Phi-3-mini-4k-instruct"),
        ("gemma-7b", "google/gemma-7b"),
        ("pythia-6.9b", "EleutherAI/pythia-6.9b"),
        ("olmo-7b", "allenai/OLMo-7B"),
        ("codellama-7b", "codellama/CodeLlama-7b-hf"),
    ],
)
def test_a_launch_loads_the_base_and_no_tune_that_names_it(name, base):
    assert entries.hub_id(name) == base
