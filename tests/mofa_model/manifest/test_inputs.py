"""Manifests become questions: units end here, rates are blended, and the same question has the
same hash.
"""

import copy
import json

import pytest

from mofa_model.advice import Unplaced
from mofa_model.annotations import inputs_hash
from mofa_model.errors import BadValue, InputError, UnknownName
from mofa_model.manifest.inputs import to_inputs
from mofa_model.manifest.parsing import cluster_profile, parse
from mofa_model.manifest.surroundings import bundled_profiles, bundled_text
from mofa_model.manifest.training_job import TrainingJobSpec
from mofa_model.spec.evidence import FailureEvidence
from mofa_model.units import DAY

SPEC = {
    "model": {"preset": "llama3-405b"},
    "training": {
        "tokens": "15T",
        "sequenceLength": 8192,
        "globalBatchSize": 2048,
        "framework": "megatron",
    },
    "cluster": {"profile": "p", "nodes": 256},
}


def a_profile(status=None, **spec):
    value = {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": {"name": "p"},
        "spec": {"gpu": "h100", **spec},
    }
    return cluster_profile(value | ({"status": status} if status else {}))


def ask(change=None, profile=None, **options):
    spec = copy.deepcopy(SPEC)
    for key, value in (change or {}).items():
        spec[key] = (
            {**spec.get(key, {}), **value} if isinstance(value, dict) and key != "model" else value
        )
    return to_inputs(parse(TrainingJobSpec, spec, "spec"), profile or a_profile(), **options)


def test_fp8_of_version_0_1_0_keeps_its_answer_and_says_which_recipe_that_is():
    old, named = (ask({"training": {"precision": p}}) for p in ("FP8", "fp8-delayed"))
    assert old.problems == named.problems
    assert named.notes == ()
    assert " ".join(old.notes) == (
        "precision FP8 is read as fp8-delayed; name the recipe: fp8-delayed, fp8-current, fp8-tensorwise,"
        " fp8-rowwise, fp8-block, mxfp8"
    )
    assert old.caveats == named.caveats


def test_an_unknown_model_of_a_manifest_is_told_of_the_other_ways_to_give_one():
    with pytest.raises(
        UnknownName,
        match=r"spec\.model\.preset: unknown .*, or describe it by architecture or configMapRef$",
    ):
        ask({"model": {"preset": "gemma3-26b"}})


def rates(question):
    return {c.name: c.rate.mean * DAY * 1000 for c in question.reliability.classes}


def test_text_and_prefixes_end_here():
    question = ask(profile=a_profile(network={"scaleOut": "200 Gbit/s"}, host={"memory": "2 TiB"}))
    assert question.problems[0].workload.training.tokens == 15_000_000_000_000
    assert question.problems[0].cluster.gpus == 2048
    assert question.problems[0].cluster.scale_out.bandwidth == 25e9
    assert question.problems[0].cluster.host.memory == 2 * 2**40
    assert question.framework == "megatron"
    assert question.objective == "time"


def test_what_a_profile_learned_of_its_running_jobs_is_asked_with_to_two_digits():
    taught = a_profile({"calibration": {"stepTimeRatio": "1.1764", "jobs": 3}})
    assert ask().learned == 1.0
    assert ask(profile=taught).learned == 1.18
    later = a_profile({"calibration": {"stepTimeRatio": "1.1801", "jobs": 4}})
    assert inputs_hash(ask(profile=taught), "1") == inputs_hash(ask(profile=later), "1")
    assert inputs_hash(ask(profile=taught), "1") != inputs_hash(ask(), "1")


def test_the_node_count_comes_from_the_job_or_from_the_ready_nodes():
    ready = a_profile({"nodes": {"total": 9, "ready": 8}})
    assert ask().nodes == 256
    free = {"cluster": {"profile": "p", "nodes": None}}
    assert ask(free, ready).nodes == 8
    assert ask(free, ready, ready=5).nodes == 5
    question = ask({"cluster": {"profile": "p", "nodes": None, "maxNodes": 64}})
    assert (question.nodes, question.fewer_nodes) == (64, True)


def test_a_missing_node_count_is_named():
    with pytest.raises(InputError, match=r"spec\.cluster\.nodes: is missing"):
        ask({"cluster": {"profile": "p", "nodes": None}})


def test_fewer_ready_nodes_than_asked_for_lower_confidence_and_change_nothing_else():
    assert ask(ready=255).caveats == ("fewer nodes are ready than are asked for",)
    assert ask(ready=256).caveats == ()
    assert ask(ready=255).nodes == 256


def test_without_a_profile_of_failures_the_paper_speaks():
    assert rates(ask()) == pytest.approx({"process": 1.5, "pod": 3.0, "job": 0.5})
    assert [c.recovery.mean for c in ask().reliability.classes] == [141, 262, 307]


def test_history_and_assumption_are_blended_by_their_weights():
    # pod: the prior is worth 2 x 0.6 failures at 3 in a thousand node-days, so 400 node-days of it;
    # with 10 failures in 1600 node-days that makes 11.2 in 2000, which is 5.6 in a thousand.
    seen = {
        "pod": FailureEvidence(failures=10, node_days=1600.0, recoveries=1, recovery_seconds=301.4)
    }
    question = ask(evidence=seen)
    assert rates(question) == pytest.approx({"process": 1.5, "pod": 5.6, "job": 0.5})
    assert question.reliability.classes[1].recovery.mean == 300


@pytest.mark.parametrize("mean", [144.6, 145.0, 145.04, 145.4])
def test_a_recovery_that_a_server_timed_is_the_one_that_a_status_writes(mean):
    """A status has 145 s for each of these, and two digits of 145 are 140 (to the even one)."""
    seen = {
        "pod": FailureEvidence(failures=1, node_days=9.0, recoveries=10, recovery_seconds=10 * mean)
    }
    assert ask(evidence=seen).reliability.classes[1].recovery.mean == 140


def test_live_takes_counts_alone_and_assumed_takes_none():
    status = {
        "failures": [
            {"name": name, "failures": 9, "exposureNodeDays": "1000"}
            for name in ("process", "pod", "job")
        ]
    }
    live = ask({"failureAssumptions": {"source": "Live"}}, a_profile(status))
    assert rates(live) == pytest.approx({"process": 9.5, "pod": 9.5, "job": 9.5})
    assumed = ask({"failureAssumptions": {"source": "Assumed"}}, a_profile(status))
    assert rates(assumed) == pytest.approx({"process": 1.5, "pod": 3.0, "job": 0.5})


def test_live_without_history_is_refused_and_never_falls_back():
    with pytest.raises(BadValue, match="no history of class process"):
        ask({"failureAssumptions": {"source": "Live"}})


def test_the_job_may_assume_otherwise():
    question = ask(
        {"failureAssumptions": {"source": "Assumed", "perClass": {"pod": {"failuresPerThousandNodeDays": "8", "recoverySeconds": 60}}}}
    )  # fmt: skip
    assert rates(question)["pod"] == pytest.approx(8.0)
    assert question.reliability.classes[1].recovery.mean == 60


def test_a_profile_says_which_failures_hang_and_a_counted_recovery_begins_with_the_wait():
    hangs = {"hangs": {"sharePercent": 40, "timeoutSeconds": 900}}
    assumed = ask(profile=a_profile(failures=hangs)).reliability
    assert (assumed.hangs.timeout, assumed.hangs.share) == (900.0, 0.4)
    assert [one.recovery.mean for one in assumed.classes] == [
        one.recovery.mean for one in ask().reliability.classes
    ]
    status = {
        "failures": [
            {"name": "pod", "failures": 9, "exposureNodeDays": "1000", "recoverySeconds": 560}
        ]
    }
    pod = ask(profile=a_profile(status, failures=hangs)).reliability.classes[1]
    assert (pod.name, pod.recovery.mean) == ("pod", pytest.approx(560 - 0.4 * 900))


def test_no_failures_at_all_can_be_assumed():
    zero = {"failuresPerThousandNodeDays": "0"}
    question = ask(
        {"failureAssumptions": {"perClass": {"process": zero, "pod": zero, "job": zero}}}
    )
    assert rates(question) == {"process": 0, "pod": 0, "job": 0}


def test_tiers_and_who_reads_them():
    tiers = [
        {"name": "Local", "nodeBandwidth": "10 GB/s"},
        {
            "name": "Remote",
            "nodeBandwidth": "2 GB/s",
            "totalBandwidth": "200 GB/s",
            "latencySeconds": 2,
        },
    ]
    found = ask(profile=a_profile(checkpointStorage={"tiers": tiers})).reliability
    assert [t.node_bandwidth for t in found.tiers] == [10e9, 2e9]
    assert [c.tier for c in found.classes] == [0, 1, 1]
    assert found.tiers[0].snapshot_bandwidth == 8 * 63e9  # the host links of a node


def test_a_synchronous_save_makes_every_tier_wait():
    assert not any(t.asynchronous for t in ask({"checkpoint": {"mode": "Sync"}}).reliability.tiers)


def test_constraints_are_written_as_the_search_reads_them():
    question = ask(
        {"constraints": {"tp": {"values": [8]}, "pp": {"min": 2, "max": 8}, "mbs": {"max": 4}, "recompute": ["none"], "sequenceParallel": True}}
    )  # fmt: skip
    assert question.constraints == ("tp=8", "pp=2..8", "mbs<=4", "recompute=none", "sp=true")
    assert ask({"constraints": {"memoryHeadroomPercent": 10}}).problems[0].cluster.reserve == 0.1


def test_today_s_layout_may_be_a_launch_command():
    words = ["--tensor-model-parallel-size", "8", "--pipeline-model-parallel-size", "16"]
    strategy = ask({"current": {"arguments": words}}).current
    assert (strategy.tp, strategy.pp, strategy.dp) == (8, 16, 16)


def test_an_architecture_field_by_field_is_the_preset():
    given = {
        "architecture": {
            "layers": 126, "hiddenSize": 16384, "heads": 128, "kvHeads": 8, "ffnSize": 53248, "vocabularySize": 128256,
        }
    }  # fmt: skip
    mine, theirs = (
        ask({"model": given}).problems[0].workload.model,
        ask().problems[0].workload.model,
    )
    assert (mine.runs, mine.embedding) == (theirs.runs, theirs.embedding)


def test_the_imbalance_of_a_preset_is_said_beside_it_and_is_part_of_the_question():
    mixture = {"model": {"preset": "mixtral-8x7b"}}
    uneven = ask({**mixture, "training": {"imbalance": "1.4:0.3"}})
    experts = uneven.problems[0].workload.model.experts
    assert (experts.imbalance, experts.imbalance_spread) == (1.4, 0.3)
    assert inputs_hash(uneven, "1") != inputs_hash(ask(mixture), "1")
    assert inputs_hash(ask({**mixture, "training": {"imbalance": "1"}}), "1") == inputs_hash(
        ask(mixture), "1"
    )
    for text in ("0.4", ""):
        with pytest.raises(
            BadValue, match=r"^spec\.training\.imbalance: .* write MEAN or MEAN:SPREAD"
        ):
            ask({**mixture, "training": {"imbalance": text}})


def test_a_config_json_comes_from_a_config_map():
    ref = {"model": {"configMapRef": {"name": "gpt2"}}}
    config = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257}
    assert ask(ref, config=json.dumps(config)).problems[0].workload.model.layers == 12
    with pytest.raises(BadValue, match="this ConfigMap was not found"):
        ask(ref)
    with pytest.raises(InputError, match="is not JSON"):
        ask(ref, config="{")


def test_the_same_question_in_other_words_has_the_same_hash():
    one = ask(profile=a_profile(network={"scaleOut": "400 Gbit/s"}))
    two = ask(
        {"training": {"tokens": "15000B", "precision": "BF16", "framework": "Megatron-Core"}},
        a_profile(network={"scaleOut": "50 GB/s"}, gpusPerNode=8),
    )
    assert inputs_hash(one, "1") == inputs_hash(two, "1")


@pytest.mark.parametrize(
    "change",
    [
        {"cluster": {"nodes": 255}},
        {"training": {"globalBatchSize": 1024}},
        {"objective": "Cost"},
        {"constraints": {"tp": {"values": [8]}}},
        {"checkpoint": {"minIntervalSeconds": 60}},
        {"failureAssumptions": {"perClass": {"pod": {"failuresPerThousandNodeDays": "4"}}}},
    ],
)
def test_whatever_the_answer_depends_on_changes_the_hash(change):
    assert inputs_hash(ask(change), "1") != inputs_hash(ask(), "1")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"model": {"preset": "llama9"}}, r"spec\.model\.preset: unknown name 'llama9'"),
        (
            {"training": {"framework": "megatorn"}},
            r"spec\.training\.framework.*did you mean megatron",
        ),
        ({"training": {"precision": "fp3"}}, r"spec\.training\.precision"),
        ({"current": {"strategy": "tp=3,pq=2"}}, r"spec\.current: unknown name 'pq'"),
        ({"current": {"arguments": ["--lr", "1"]}}, r"current.*write tp=8,pp=4"),
    ],
)
def test_a_name_that_nobody_knows_is_refused_with_its_path(change, message):
    with pytest.raises((UnknownName, BadValue), match=message):
        ask(change)


def test_a_profile_whose_numbers_cannot_be_is_refused():
    with pytest.raises(BadValue, match="priorWeight"):
        ask(profile=a_profile(failures={"priorWeight": "0"}))
    with pytest.raises(UnknownName, match="gpu"):
        ask(profile=a_profile(gpu="h1000"))


def test_every_bundled_profile_can_be_asked():
    for name, profile in bundled_profiles().items():
        assert f"name: {name}" in bundled_text(name)
        assert ask(profile=profile).nodes == 256
        assert ask({"cluster": {"nodes": None}}, profile).nodes == profile.status.nodes.ready


def test_the_bundled_history_is_that_of_the_example():
    # 44 + 85 + 15 failures in 30720 node-days, and two more at five in a thousand: 146 in 31120
    # node-days
    history = rates(ask(profile=bundled_profiles()["h100-east"]))
    assert sum(history.values()) == pytest.approx(1000 * 146 / 31120, rel=0.01)


def test_a_job_may_have_a_part_of_each_node():
    whole, half = ask({"cluster": {"nodes": 3}}), ask({"cluster": {"nodes": 3, "gpusPerNode": 4}})
    theirs, mine = whole.problems[0].cluster, half.problems[0].cluster
    assert (half.nodes, mine.gpus, mine.gpus_per_node, mine.domain) == (3, 12, 4, 4)
    assert mine.host.memory == theirs.host.memory / 2
    assert half.reliability.classes == whole.reliability.classes
    for one, other in zip(half.reliability.tiers, whole.reliability.tiers, strict=True):
        assert one.node_bandwidth == other.node_bandwidth / 2
        assert one.snapshot_bandwidth == other.snapshot_bandwidth / 2
        assert one.total_bandwidth == other.total_bandwidth
    pods = ask({"cluster": {"nodes": 3, "gpusPerPod": 2}}).problems[0].cluster
    assert (pods.gpus, pods.gpus_per_node, pods.domain) == (24, 8, 2)
    assert pods.host == theirs.host


def test_all_of_a_node_said_aloud_is_the_same_question():
    said = ask({"cluster": {"gpusPerNode": 8, "gpusPerPod": 8}})
    assert inputs_hash(said, "1") == inputs_hash(ask(), "1")


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"gpusPerNode": 12},
            r"spec\.cluster\.gpusPerNode: 12 cannot be right; nodes of profile p have 8 each",
        ),
        (
            {"gpusPerPod": 3},
            r"spec\.cluster\.gpusPerPod: 3 cannot be right; it must divide the 8 GPUs",
        ),
        ({"gpusPerNode": 4, "gpusPerPod": 3}, "gpusPerPod must divide gpusPerNode"),
        (
            {"gpusPerNode": 0},
            r"spec\.cluster\.gpusPerNode: 0 cannot be right; give 1 or more, for example 8",
        ),
    ],
)
def test_a_part_that_cannot_be_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        ask({"cluster": change})


@pytest.mark.parametrize(
    "current, text, why",
    [
        ({"strategy": "tp=3"}, "tp=3", "tp x pp x cp = 3: it must divide the 2048 devices"),
        (
            {"strategy": "tp=8,dp=64"},
            "tp=8,dp=64",
            "dp = 64: 2048 devices over tp x pp x cp = 8 make 256",
        ),
        (
            {"arguments": ["--tensor-model-parallel-size", "24"]},
            "--tensor-model-parallel-size 24",
            "tp x pp x cp = 24: it must divide the 2048 devices",
        ),
    ],
)
def test_a_layout_of_another_size_costs_its_comparison_and_not_the_question(current, text, why):
    assert ask({"current": current}).current == Unplaced(text=text, why=why)


def test_a_profile_that_is_not_ready_is_a_caveat_that_names_it_and_says_why():
    unready = {
        "type": "Ready",
        "status": "False",
        "reason": "NodesDiffer",
        "message": "nodes offer 4 GPUs",
        "lastTransitionTime": "2026-11-21T00:00:00Z",
    }
    spec = {"nodeSelector": {"pool": "east"}, "gpu": "h100"}
    body = {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": {"name": "east"},
        "spec": spec,
    }
    found = ask(profile=cluster_profile(body | {"status": {"conditions": [unready]}}))
    assert found.caveats == ("ClusterProfile east is not ready: NodesDiffer: nodes offer 4 GPUs",)
    ready = cluster_profile(body | {"status": {"conditions": [unready | {"status": "True"}]}})
    assert ask(profile=ready).caveats == ()


def test_a_job_says_beside_which_layers_adapters_stand_and_how_frozen_weights_are_stored():
    given = {"adapterRank": 16, "adapterTargets": "q_proj,v_proj", "base": "nf4"}
    training = ask({"training": given}).problems[0].workload.training
    assert training.adapters.targets == {"q", "v"}
    assert training.adapters.base.name == "nf4"
    assert ask().problems[0].workload.training.adapters is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"base": "nf4"}, "training.base: 'nf4' cannot be right; give adapterRank"),
        ({"adapterRank": 8, "adapterTargets": "wq"}, "training.adapterTargets: unknown name 'wq'"),
    ],
)
def test_what_has_no_meaning_beside_adapters_is_refused(given, said):
    with pytest.raises(InputError, match=said):
        ask({"training": given})
