"""Kinds of jobs as a whole: told apart by their names, read whatever they hold, and an unknown one
is an error that names it.
"""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model.errors import InputError, NotApplicable
from mofa_model.kinds import JOB_SET, KINDS, RAY_JOB, demand_of, job_kind, without_suspension

each = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.word)
ARGUMENTS = ("--tensor-model-parallel-size", "8")


@pytest.mark.parametrize("name", ["word", "setting", "title", "resource"])
def test_no_two_kinds_share_a_name(name):
    assert len({getattr(kind, name) for kind in KINDS}) == len(KINDS)


@each
def test_a_kind_is_found_by_group_and_name_whatever_its_version(kind):
    assert job_kind(f"{kind.group}/v9", kind.kind) is kind
    assert job_kind(f"example.org/{kind.version}", kind.kind) is None


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
def test_what_keeps_pods_up_is_no_job_and_says_what_would_be_one(kind):
    body = {"apiVersion": "apps/v1", "kind": kind, "spec": {"replicas": 2}}
    with pytest.raises(NotApplicable, match=f"^a {kind} keeps its pods up for ever: .* a JobSet"):
        demand_of(body)


@pytest.mark.parametrize(
    "body", [{"apiVersion": "example.org/v1", "kind": "Trainer"}, {"kind": "Pod"}, {}]
)
def test_an_unknown_kind_is_an_error_that_names_it_and_those_that_are_known(body):
    with pytest.raises(
        InputError, match=rf"^replicas of a {body.get('kind')} cannot be read; known: Job\.batch, "
    ):
        demand_of(body)


@each
def test_whether_a_job_waits_is_no_part_of_what_it_asks(kind):
    if kind.suspend:
        spec = True
        for step in reversed(kind.suspend):
            spec = {step: spec, "other": 1}
        assert "suspend" not in str(without_suspension(spec))
        assert without_suspension(spec)["other"] == 1


@each
def test_a_kind_of_which_nothing_can_be_changed_says_so(kind):
    if not kind.changed_field:
        with pytest.raises(
            InputError,
            match=f"cannot be written into a {kind.kind} of {kind.group}: none of its fields",
        ):
            kind.launch_patch({"spec": {}}, ARGUMENTS, "100")


WORDS = st.sampled_from((
    "metadata", "spec", "template", "containers", "replicas", "parallelism", "replicatedJobs", "pytorchReplicaSpecs", "tasks",
    "trainer", "numNodes", "resources", "limits", "nvidia.com/gpu", "rayClusterSpec", "workerGroupSpecs", "command", "args",
    "runtimePatches", "trainingRuntimeSpec", "annotations", "name", "Worker", "affinity", "nodeAffinity", "status", "conditions",
))  # fmt: skip
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.just("\ud800")
    | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=20,
)


@each
@given(spec=JUNK, status=JUNK)
def test_reading_raises_nothing_but_input_errors(kind, spec, status):
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec, "status": status}
    for read in (demand_of, lambda body: kind.launch_patch(body, ARGUMENTS, "100")):
        with contextlib.suppress(InputError):
            read(body)
    kind.observed(body, 0.0)
    kind.reported(body)
    assert kind.visible_classes(body) <= {"process", "pod", "job"}


def test_the_cluster_of_a_ray_job_tells_its_name():
    """KubeRay adds five letters of an alphabet without vowels; what somebody named stays."""
    names = {
        "ray-h7cz7": "ray",
        "llama-3b-sft-k2b9x": "llama-3b-sft",
        "tune-raycluster-h7cz7": "tune",
        "tune-small": "tune-small",
        "tune-h100s": "tune-h100s",
        "tune": "tune",
    }
    assert {name: RAY_JOB.labels.job_name(name) for name in names} == names
    assert JOB_SET.labels.job_name("ray-h7cz7") == "ray-h7cz7"
