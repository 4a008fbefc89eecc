"""Our kinds are read strictly, and the first thing that is wrong is said in one line with what
would be right.
"""

import contextlib
import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mofa_model.errors import BadValue, InputError, UnknownName
from mofa_model.manifest.advisor_policy import AdvisorPolicySpec
from mofa_model.manifest.cluster_profile import ClusterProfileSpec, ClusterProfileStatus
from mofa_model.manifest.parsing import advisor_policy, cluster_profile, parse, training_job
from mofa_model.manifest.status import TrainingJobStatus
from mofa_model.manifest.training_job import TrainingJobSpec

JOB = {
    "apiVersion": "mofa.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "a"},
    "spec": {
        "model": {"preset": "llama3-405b"},
        "training": {"sequenceLength": 8192, "globalBatchSize": 2048},
        "cluster": {"profile": "h100-east", "nodes": 256},
    },
}
GONE = object()


def with_change(path, value):
    job = copy.deepcopy(JOB)
    place = job
    *above, last = path.split(".")
    for key in above:
        place = place.setdefault(key, {})
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    return job


def test_defaults_are_those_of_the_schema():
    spec = training_job(JOB).spec
    assert (spec.mode, spec.objective, spec.training.precision) == ("Annotate", "Time", "bf16")
    assert spec.failure_assumptions.source == "Blend"
    assert spec.checkpoint.mode == "Async"


@pytest.mark.parametrize(
    "path, value, message",
    [
        ("spec.training.globalBatchSize", "abc", "spec.training.globalBatchSize: 'abc' cannot be right; give a whole number, for example 256"),
        ("spec.training.globalBatchSize", 2048.0, "give a whole number"),
        ("spec.training.globalBatchSize", float("nan"), "nan cannot be right; give a whole number"),
        ("spec.training.globalBatchSize", True, "give a whole number"),
        ("spec.training.globalBatchSize", 0, "give 1 or more"),
        ("spec.training.globalBatchSize", 10**30, "give 10000000 or less"),
        ("spec.training.globalBatchSize", GONE, "spec.training.globalBatchSize: is missing"),
        ("spec.training.globalBatch", 3, "spec.training: unknown name 'globalBatch'; did you mean globalBatchSize?"),
        ("spec.training.tokens", 15000, "spec.training.tokens: 15000 cannot be right; give text, for example '15T'"),
        ("spec.training.tokens", "lots", "for example '15T'"),
        ("spec.mode", "annotate", "one of 'Disabled', 'Annotate' or 'Apply'"),
        ("spec.model", {}, "give exactly one of preset, architecture and configMapRef"),
        ("spec.model", [], "spec.model: [] cannot be right; give a mapping"),
        ("spec.model.configMapRef", {"name": "a"}, "give exactly one of preset"),
        ("spec.cluster.maxNodes", 4, "give nodes or maxNodes, not both"),
        ("spec.cluster.profile", "Not A Name", "for example 'h100-east'"),
        ("spec.constraints", {"tp": {"values": [0]}}, "spec.constraints.tp.values[0]: 0 cannot be right; give 1 or more"),
        ("spec.constraints", {"tp": {"min": 4, "max": 2}}, "min must not exceed max"),
        ("spec.constraints", {"recompute": ["ful"]}, "spec.constraints.recompute[0]: 'ful' cannot be right; one of"),
        ("spec.current", {}, "give strategy or arguments"),
        ("spec.slo", {"ettr": 0.9}, "give text, for example '0.90'"),
        ("spec.checkpoint", {"size": "3 parsecs"}, "for example '6.4 TB'"),
        ("spec.throughput", {"matchers": {"a b": "c"}}, "spec.throughput.matchers"),
        ("spec", GONE, "spec: is missing; give a mapping"),
        ("spec", "x", "spec: 'x' cannot be right; give a mapping"),
        ("metadata", {}, "metadata.name"),
        ("metadata", None, "metadata.name"),
        ("apiVersion", "mofa.dev/v2", "this version knows mofa.dev/v1alpha1"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_path_and_what_would_be_right(path, value, message):
    with pytest.raises(InputError) as caught:
        training_job(with_change(path, value))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_several_mistakes_are_counted():
    job = with_change("spec.mode", "x")
    job["spec"]["objective"] = "y"
    with pytest.raises(BadValue, match=r"\(1 more to mend\)"):
        training_job(job)


def test_a_profile_brings_its_history():
    profile = cluster_profile(
        {
            "apiVersion": "mofa.dev/v1alpha1",
            "kind": "ClusterProfile",
            "metadata": {"name": "p"},
            "spec": {"gpu": "h100"},
            "status": {
                "nodes": {"total": 4, "ready": 3},
                "failures": [{"name": "pod", "failures": 2, "exposureNodeDays": "400"}],
            },
        }
    )
    assert profile.status.nodes.ready == 3
    assert profile.status.failures[0].exposure_node_days == "400"


def test_an_unknown_field_of_a_policy_is_refused():
    with pytest.raises(UnknownName, match="did you mean profile"):
        advisor_policy({**JOB, "kind": "AdvisorPolicy", "spec": {"profil": "x"}})


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.sampled_from(["Annotate", "15T", "tp=8"])
)  # fmt: skip
KEYS = sorted(
    {
        str(field.alias)
        for model in (TrainingJobSpec, ClusterProfileSpec, AdvisorPolicySpec, TrainingJobStatus)
        for field in model.model_fields.values()
    }
    | {
        "preset",
        "architecture",
        "sequenceLength",
        "tp",
        "values",
        "min",
        "nodes",
        "gpu",
        "tiers",
        "name",
        "x",
    }
)
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
    ),
    max_leaves=25,
)


@settings(max_examples=300)
@given(tree=trees)
@pytest.mark.parametrize(
    "model",
    [
        TrainingJobSpec,
        ClusterProfileSpec,
        ClusterProfileStatus,
        AdvisorPolicySpec,
        TrainingJobStatus,
    ],
)
def test_any_tree_is_an_object_or_an_input_error_of_one_line(model, tree):
    with contextlib.suppress(InputError):
        assert isinstance(parse(model, tree, "spec"), model)


@settings(max_examples=300)
@given(path=st.sampled_from(
    ["spec.mode", "spec.model.preset", "spec.training", "spec.training.tokens", "spec.cluster.nodes", "spec.constraints",
     "spec.checkpoint", "spec.failureAssumptions", "spec.current", "metadata", "apiVersion", "spec.throughput"]
), tree=trees)  # fmt: skip
def test_any_change_of_a_job_is_a_job_or_an_input_error(path, tree):
    with contextlib.suppress(InputError):
        training_job(with_change(path, tree))


def test_a_list_that_is_found_by_name_has_each_name_once():
    tier = {"name": "Local", "nodeBandwidth": "1 GB/s"}
    body = {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": {"name": "east"},
        "spec": {"gpu": "h100", "checkpointStorage": {"tiers": [tier, tier]}},
    }
    with pytest.raises(BadValue, match=r"spec.checkpointStorage: .* give each name of tiers once"):
        cluster_profile(body)


def test_a_day_may_have_a_row_of_each_witness_and_no_two_of_one():
    body = {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": {"name": "east"},
        "spec": {"gpu": "h100"},
    }
    rows = [
        {"date": "2026-01-31", "witness": witness, "coveredSeconds": 86_400}
        for witness in ("Prometheus", "Watch")
    ]
    assert len(cluster_profile({**body, "status": {"days": rows}}).status.days) == 2
    with pytest.raises(BadValue, match="give each date and witness of days once"):
        cluster_profile({**body, "status": {"days": [*rows, rows[0]]}})
