"""Numbers that cannot be are refused in one line with the field, the value and what would be right;
0.1.0 stays right.
"""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from mofa_model.errors import BadValue
from mofa_model.manifest.advisor_policy import AdvisorPolicySpec
from mofa_model.manifest.cluster_profile import ClusterProfileSpec
from mofa_model.manifest.parsing import advisor_policy, cluster_profile, parse, training_job
from mofa_model.manifest.training_job import TrainingJobSpec

OLD = Path(__file__).parents[2] / "data" / "0.1.0"
JOB = {
    "model": {"preset": "llama3-8b"},
    "training": {"sequenceLength": 1, "globalBatchSize": 1},
    "cluster": {"profile": "a"},
}
SHAPE = {"layers": 4, "hiddenSize": 64, "heads": 8, "ffnSize": 64, "vocabularySize": 64}
EXPERTS = {"count": 8, "topK": 2, "ffnSize": 64}
TIER = {"name": "Local", "nodeBandwidth": "1 GB/s"}


def shape(**more):
    return {"model": {"architecture": SHAPE | more}}


@pytest.mark.parametrize(
    "kind, spec, why",
    [
        (TrainingJobSpec, JOB | {"slo": {"ettr": "1.5"}}, r"spec.slo.ettr: '1.5'.*more than 0 and at most 1"),
        (TrainingJobSpec, JOB | {"slo": {"ettr": "0"}}, "spec.slo.ettr"),
        (TrainingJobSpec, JOB | {"training": JOB["training"] | {"tokens": "0.0T"}}, "spec.training.tokens"),
        (TrainingJobSpec, JOB | {"checkpoint": {"size": "0 GB"}}, "spec.checkpoint.size"),
        (TrainingJobSpec, JOB | {"checkpoint": {"maxIntervalSeconds": 0}}, "spec.checkpoint.maxIntervalSeconds"),
        (TrainingJobSpec, JOB | {"constraints": {"memoryHeadroomPercent": 100}}, "spec.constraints.memoryHeadroomPercent"),
        (TrainingJobSpec, JOB | {"constraints": {"schedule": ["1f1b", "1f1b"]}}, "give each value of schedule once"),
        (TrainingJobSpec, JOB | shape(kvHeads=3), "kvHeads must divide heads"),
        (TrainingJobSpec, JOB | shape(experts=EXPERTS | {"topK": 9}), "topK must not exceed count"),
        (TrainingJobSpec, JOB | shape(experts=EXPERTS | {"denseLayers": 5}), "denseLayers must not exceed layers"),
        (TrainingJobSpec, JOB | shape(experts=EXPERTS | {"imbalance": "0.9"}), "imbalance"),
        (ClusterProfileSpec, {"gpu": "h100", "network": {"oversubscription": "0.5"}}, "spec.network.oversubscription"),
        (ClusterProfileSpec, {"gpu": "h100", "network": {"scaleOut": "0 Gbit/s"}}, "spec.network.scaleOut"),
        (ClusterProfileSpec, {"gpu": "h100", "host": {"memory": "0 TiB"}}, "spec.host.memory"),
        (ClusterProfileSpec, {"gpu": "h100", "checkpointStorage": {"tiers": [TIER | {"nodeBandwidth": "0 B/s"}]}}, "nodeBandwidth"),
        (ClusterProfileSpec, {"gpu": "h100", "checkpointStorage": {"tiers": [TIER, TIER]}}, "give each name of tiers once"),
        (ClusterProfileSpec, {"gpu": "h100", "failures": {"priorWeight": "0"}}, "spec.failures.priorWeight"),
        (ClusterProfileSpec, {"gpu": "h100", "failures": {"repairSeconds": 0}}, "spec.failures.repairSeconds"),
        (AdvisorPolicySpec, {"kinds": [{"apiVersion": "batch/v1", "kind": "Job"}] * 2}, "give each apiVersion and kind of kinds once"),
    ],
)  # fmt: skip
def test_a_number_that_cannot_be_is_refused_in_one_line(kind, spec, why):
    with pytest.raises(BadValue, match=why) as refused:
        parse(kind, spec, "spec")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["llama3-405b", "deepseek-v3", "h100-east", "policy"])
def test_what_was_right_in_0_1_0_is_right(name):
    body = YAML(typ="safe").load((OLD / f"{name}.yaml").read_text("utf-8"))
    reader = {
        "TrainingJob": training_job,
        "ClusterProfile": cluster_profile,
        "AdvisorPolicy": advisor_policy,
    }
    assert reader[body["kind"]](body).name == body["metadata"]["name"]
