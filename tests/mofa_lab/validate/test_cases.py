"""A JSON case becomes a workload, a cluster, a strategy and the name of the constants it
asks for.
"""

import json
from pathlib import Path

import pytest

from mofa_lab.validate.cases import case_of, load
from mofa_lab.validate.record import Record
from mofa_model import presets
from mofa_model.errors import InputError
from mofa_model.schedules import INTERLEAVED, ONE_F_ONE_B
from mofa_model.strategy import ContextMode, Graphs, Recompute, Sharding
from mofa_model.units import GIB

CASES = Path(__file__).parents[3] / "lab" / "data" / "cases"


def case(values):
    return case_of(Record(values))


def test_facts_of_the_case_overrule_the_preset_of_the_machine(plain):
    assert case(plain).cluster.scale_out.bandwidth == 25e9
    assert presets.cluster("h100", 64).scale_out.bandwidth == 50e9


def test_a_rack_wide_domain_stays_when_nodes_are_small(changed):
    cluster = case(changed({"system": {"gpu": "GB200", "gpus_per_node": 4}})).cluster
    assert (cluster.gpus_per_node, cluster.domain) == (4, 72)


def test_constants_are_asked_for_by_device_precision_stack_and_release_alone(plain):
    key = case(plain).key
    assert (key.device, key.precision, key.stack, key.release) == (
        "h100-80gb-sxm",
        "bf16",
        "megatron-bridge",
        "26.04",
    )


def test_a_stack_without_a_preset_gets_the_default_constants(changed):
    assert case(changed({"normalized": {"software": "homemade"}})).key.stack == "default"


def test_a_case_whose_embedding_and_loss_count_as_layers_is_dealt_in_slots(changed):
    read = case(changed({"strategy": {"pipeline_layout": "embedding and loss count as layers"}}))
    assert read.key.placement == "slots"
    assert (
        case(changed({"strategy": {"pipeline_layout": "Et*3|(tt|)*6L"}})).key.placement
        == "Et*3|(tt|)*6L"
    )


def test_a_head_is_hidden_over_heads_wide_where_nothing_else_is_said(plain):
    assert case(plain).workload.model.kinds[0].blocks[0].head_dim == 128


@pytest.mark.parametrize(
    "changes, field, value",
    [
        ({"normalized": {"sharding": {"level": "zero3", "ranks": 8}}}, "sharding", Sharding.WEIGHTS),
        ({"normalized": {"sharding": {"level": "zero3", "ranks": 8}}}, "shard", 8),
        ({"normalized": {"recompute": {"mode": "full"}}}, "recompute", Recompute.FULL),
        ({"strategy": {"vpp": 4}}, "schedule", INTERLEAVED),
        ({"strategy": {"vpp": 4}}, "pipeline_overlap", True),
        ({"strategy": {"schedule": "1F1B"}}, "schedule", ONE_F_ONE_B),
        ({"strategy": {"schedule": "1F1B"}}, "pipeline_overlap", False),
        ({"strategy": {"cp_comm": "a2a"}}, "context_mode", ContextMode.ALL_TO_ALL),
        ({"strategy": {"async_tp": True}}, "tensor_overlap", True),
        ({"strategy": {"overlap": "grad/param sync, TP user-buffer overlap"}}, "tensor_overlap", True),
        ({"strategy": {"overlap": "none (TP, P2P and DP overlap disabled)"}}, "data_overlap", False),
        ({"strategy": {"overlap": "P2P and grad-reduce overlap (TP overlap disabled)"}}, "tensor_overlap", False),
        ({"strategy": {"ep_a2a_overlap": True}}, "expert_overlap", True),
        ({"strategy": {"cuda_graph": "full iteration"}}, "graphs", Graphs.FULL),
        ({"strategy": {"cuda_graph": "local", "cuda_graph_scope": "full_iteration"}}, "graphs", Graphs.FULL),
        ({"strategy": {"cuda_graph": "transformer_engine", "cuda_graph_scope": ["attn"]}}, "graphs", Graphs.PARTIAL),
        ({"strategy": {"cuda_graph": "none"}}, "graphs", Graphs.NONE),
        ({"strategy": {}}, "graphs", Graphs.NONE),
    ],
)  # fmt: skip
def test_words_of_a_source_become_features_of_the_strategy(changed, changes, field, value):
    assert getattr(case(changed(changes)).strategy, field) == value


@pytest.mark.parametrize(
    "changes, defects",
    [
        (
            {"normalized": {"software": "torchtitan"}, "strategy": {"torch_compile": False}},
            {"eager"},
        ),
        ({"normalized": {"software": "torchtitan"}, "strategy": {"torch_compile": True}}, set()),
        (
            {"normalized": {"software": "nanotron"}, "variant": "after pipeline fix"},
            {"ring-latency"},
        ),
        (
            {"normalized": {"software": "nanotron"}, "variant": "before pipeline fix"},
            {"kept-gathers"},
        ),
        ({"normalized": {"software": "nanotron"}}, set()),
        (
            {
                "normalized": {"software": "megatron-core"},
                "strategy": {
                    "attention_backend": "unfused",
                    "attention_dropout": 0.1,
                    "hidden_dropout": 0.1,
                },
            },
            {"unfused-dropout", "hidden-dropout"},
        ),
        (
            {
                "normalized": {"software": "megatron-core", "precision": "fp16"},
                "strategy": {
                    "attention_backend": "unfused (local implementation)",
                    "grouped_gemm": False,
                    "gradient_accumulation_fusion": False,
                    "deterministic": True,
                },
            },
            {
                "unfused-attention",
                "single-experts",
                "copied-gradients",
                "own-gradients",
                "fixed-workspace",
            },
        ),
    ],
)
def test_known_defects_of_a_stack_are_told_by_rules_that_are_data(changed, changes, defects):
    assert case(changed(changes)).key.defects == defects


def test_the_slow_state_needs_two_nodes(changed):
    one_node = {"system": {"gpus": 8}, "strategy": {"tp": 4, "pp": 2, "dp": 1, "gbs": 128}}
    slow = {"normalized": {"software": "nanotron"}, "variant": "after pipeline fix", **one_node}
    assert case(changed(slow)).key.defects == set()


def test_widths_that_a_case_states_overrule_the_recipe(changed):
    stated = {
        "precision": "fp8-current",
        "fp8_params": True,
        "fp32_gradients": False,
        "reduce_dtype": "bf16",
    }
    precision = case(changed({"normalized": stated})).workload.training.precision
    assert (precision.weight, precision.gradient, precision.reduce) == (1.0, 2.0, 2.0)


def test_gradients_that_are_summed_in_16_bits_are_sent_in_16_bits(changed):
    precision = case(changed({"normalized": {"fp32_gradients": False}})).workload.training.precision
    assert (precision.gradient, precision.reduce) == (2.0, 2.0)


def test_a_module_of_extra_predictions_is_part_of_the_model(changed):
    assert case(changed({"model": {"mtp_layers": 1}})).workload.model.prediction_modules == 1


@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_every_run_that_is_shipped_can_be_read(path):
    cases, unsupported = load(path)
    assert cases
    assert unsupported == []


def test_memory_is_of_rank_zero_where_the_source_says_so(changed):
    measured = {
        "memory_gib": 40,
        "memory_static_gib": 20,
        "memory_basis": "peak reserved on rank 0",
    }
    figures = {f.quantity: f for f in case(changed({"measured": measured})).measured}
    assert figures["memory_gib"].basis == "first stage"
    assert figures["memory_static_gib"].value == 20 * GIB


@pytest.mark.parametrize(
    "changes, field",
    [
        ({"kind": "inference"}, "kind"),
        ({"system": {"gpus": 63}}, "gpus"),
        ({"system": {"gpu": "abacus"}}, "gpu"),
        ({"strategy": {"gbs": 100}}, "gbs"),
        ({"strategy": {"tp": -4}}, "tp"),
        ({"strategy": {"schedule": "zigzag"}}, "schedule"),
        ({"model": {"layers": None}}, "layers"),
        ({"model": {"kv_heads": 7}}, "kv_heads"),
        ({"model": []}, "model"),
        ({"normalized": {"precision": "int3"}}, "precision"),
        ({"normalized": {"recompute": {"mode": "most"}}}, "recompute"),
        ({"normalized": {"sharding": {"level": "zero9"}}}, "sharding"),
        ({"measured": {"step_time_s": float("nan")}}, "step_time_s"),
        (
            {"measured": {"step_time_s": None, "mfu": 0.4}, "flops_formula": "guessed"},
            "flops_formula",
        ),
    ],
)
def test_a_case_that_cannot_be_read_is_refused_by_the_field_that_is_wrong(changed, changes, field):
    with pytest.raises(InputError, match=field):
        case(changed(changes))


def test_bad_cases_do_not_keep_good_ones_from_being_read(plain, tmp_path):
    path = tmp_path / "cases.json"
    path.write_text(json.dumps([7, {"id": "odd"}, plain, {**plain, "id": "late", "kind": "x"}]))
    cases, unsupported = load(path)
    assert [c.id for c in cases] == ["plain"]
    assert [u.id for u in unsupported] == ["#1", "odd", "late"]
    assert all(u.reason and "\n" not in u.reason for u in unsupported)
