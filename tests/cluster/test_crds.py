"""The CRDs and the models agree: what one takes the other takes, and what the API server fills in
changes no answer.
"""

import json
from pathlib import Path

import pytest
from definitions import SHIPPED
from door import JSON, Door, path
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from mofa_model.annotations import inputs_hash
from mofa_model.errors import InputError, MofaError
from mofa_model.manifest.inputs import to_inputs
from mofa_model.manifest.parsing import advisor_policy, cluster_profile, training_job
from mofa_operator.keys import ADVISOR_POLICY, CLUSTER_PROFILE, TRAINING_JOB

ROOT = Path(__file__).parents[2]
READERS = {
    TRAINING_JOB: training_job,
    CLUSTER_PROFILE: cluster_profile,
    ADVISOR_POLICY: advisor_policy,
}
SCHEMAS = {
    kind: SHIPPED[f"mofa.dev_{kind.plural}.yaml"]["spec"]["versions"][0]["schema"][
        "openAPIV3Schema"
    ]
    for kind in READERS
}
JUNK = st.sampled_from([None, True, 0, -1, 1.5, "", "8", [], {}, "x" * 5000, 10**18])


@pytest.fixture(scope="module")
def door(cluster):
    with Door(cluster) as opened:
        yield opened


def values(schema):
    """Values that a structural schema allows, rules between fields left aside."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema["type"] == "boolean":
        return st.booleans()
    if schema["type"] == "integer":
        return st.integers(schema["minimum"], schema["maximum"])
    if schema["type"] == "string":
        most = schema["maxLength"]
        if "pattern" not in schema:
            return st.text(
                st.characters(exclude_categories=["Cs", "Cc"]),
                min_size=schema.get("minLength", 0),
                max_size=min(most, 40),
            )
        return st.from_regex(schema["pattern"].replace("$", r"\Z"), fullmatch=True).filter(
            lambda text: len(text) <= most
        )
    if schema["type"] == "array":
        return st.lists(
            values(schema["items"]),
            min_size=schema.get("minItems", 0),
            max_size=min(schema["maxItems"], 4),
            unique=schema["x-kubernetes-list-type"] == "set",
        )
    if "additionalProperties" in schema:
        pattern = schema["x-kubernetes-validations"][0]["message"].rpartition(" ")[2]
        keys = st.from_regex(pattern.replace("$", r"\Z"), fullmatch=True).filter(
            lambda text: len(text) <= 40
        )
        return st.dictionaries(keys, values(schema["additionalProperties"]), max_size=3)
    needed = schema.get("required", ())
    fields = {name: values(part) for name, part in schema["properties"].items()}
    optional = {name: part for name, part in fields.items() if name not in needed}
    return st.fixed_dictionaries({name: fields[name] for name in needed}, optional=optional)


def places(value, here=()):
    """Paths to everything inside a value."""
    yield here
    for key, inner in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield from places(inner, (*here, key))


@st.composite
def specs(draw, kind):
    """Specs of a kind; half of them with something at one place that may not belong there."""
    spec = draw(values(SCHEMAS[kind]["properties"]["spec"]))
    if draw(st.booleans()):
        return spec
    *way, last = draw(st.sampled_from(list(places(spec))[1:] or [("mode",)]))
    inner = spec
    for step in way:
        inner = inner[step]
    inner[last] = draw(JUNK)
    return spec


def judged(door, kind, spec):
    """What the API server makes of it: the object with its defaults, or None and the reason."""
    name = {"name": "tried"} | ({"namespace": "default"} if kind.namespaced else {})
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": name, "spec": spec}
    status, said = door.ask(
        "POST",
        path(kind, name.get("namespace", "")),
        body,
        content=JSON,
        user=None,
        dryRun="All",
        fieldValidation="Strict",
    )
    assert status in {201, 400, 422}, said
    return body, said if status == 201 else None, said.get("message")


def read(kind, body):
    """What the models make of it: None, or the reason."""
    try:
        READERS[kind](body)
    except InputError as error:
        return str(error)
    return None


def plain(value):
    """Whether a value holds no null and no fraction: there the API server is the more lenient of
    the two.
    """
    if isinstance(value, dict | list):
        return all(plain(inner) for inner in (value.values() if isinstance(value, dict) else value))
    return value is not None and not isinstance(value, float)


def agree(door, kind, spec):
    body, accepted, reason = judged(door, kind, spec)
    ours = read(kind, body)
    if ours is None:
        assert accepted, reason
    if accepted:
        read(kind, accepted)  # a named error at the worst, never another
        assert ours is None or not plain(spec), ours


SLOW = settings(
    max_examples=20,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # to shrink would ask the API server a thousand times
    suppress_health_check=list(HealthCheck),
)


@SLOW
@given(spec=specs(TRAINING_JOB))
@example(
    spec={
        "model": {"preset": "a"},
        "training": {"sequenceLength": 1, "globalBatchSize": 1},
        "cluster": {"profile": "a"},
        "throughput": {"matchers": {"app.kubernetes.io/name": "x"}},
    }
)
@example(
    spec={
        "model": {"preset": "a"},
        "training": {"sequenceLength": 1, "globalBatchSize": 1},
        "cluster": {"profile": "a"},
        "throughput": {"matchers": {"": "x"}},
    }
)
@example(
    spec={
        "model": {"preset": "a\n"},
        "training": {"sequenceLength": 1, "globalBatchSize": 1},
        "cluster": {"profile": "a"},
    }
)
def test_a_training_job_is_taken_by_both_or_by_neither(door, spec):
    agree(door, TRAINING_JOB, spec)


@SLOW
@given(spec=specs(CLUSTER_PROFILE))
def test_a_profile_is_taken_by_both_or_by_neither(door, spec):
    agree(door, CLUSTER_PROFILE, spec)


@SLOW
@given(spec=specs(ADVISOR_POLICY))
def test_a_policy_is_taken_by_both_or_by_neither(door, spec):
    agree(door, ADVISOR_POLICY, spec)


@pytest.mark.soak
@pytest.mark.parametrize("kind", READERS, ids=lambda kind: kind.kind)
@settings(SLOW, max_examples=400)
@given(data=st.data())
def test_each_is_taken_by_both_or_by_neither_many_times(door, kind, data):
    agree(door, kind, data.draw(specs(kind)))


def filled_in(door, spec):
    body, filled, _ = judged(door, TRAINING_JOB, spec)
    assume(filled is not None)
    assert training_job(filled).spec == training_job(body).spec


JOB_SPECS = values(SCHEMAS[TRAINING_JOB]["properties"]["spec"])


@SLOW
@given(spec=JOB_SPECS)
def test_what_the_api_server_fills_in_is_what_the_models_take_for_granted(door, spec):
    filled_in(door, spec)


@pytest.mark.soak
@settings(SLOW, max_examples=400)
@given(spec=JOB_SPECS)
def test_what_it_fills_in_is_what_the_models_take_for_granted_many_times(door, spec):
    filled_in(door, spec)


@pytest.mark.parametrize("name", ["llama3-405b", "deepseek-v3"])
def test_defaults_that_are_filled_in_leave_the_inputs_hash_as_it_is(door, name):
    job, profile = (
        YAML(typ="safe").load((ROOT / "examples" / f"{n}.yaml").read_text("utf-8"))
        for n in (name, "h100-east")
    )
    _, whole_job, _ = judged(door, TRAINING_JOB, job["spec"])
    _, whole_profile, _ = judged(door, CLUSTER_PROFILE, profile["spec"])
    assert whole_job["spec"] != job["spec"]
    assert whole_profile["spec"] != profile["spec"]
    hashes = {
        inputs_hash(
            to_inputs(
                training_job(one).spec, cluster_profile({**other, "status": profile["status"]})
            ),
            "1",
        )
        for one in (job, whole_job)
        for other in (profile, whole_profile)
    }
    assert len(hashes) == 1


@pytest.mark.parametrize("kind", READERS, ids=lambda kind: kind.kind)
def test_kubectl_explains_every_field(cluster, kind):
    told = cluster.kubectl("explain", kind.plural, "--recursive", "--api-version", kind.api_version)
    for name in SCHEMAS[kind]["properties"]["spec"]["properties"]:
        assert name in told
        assert "<empty>" not in cluster.kubectl("explain", f"{kind.plural}.spec.{name}")


@pytest.mark.parametrize("short, kind", [("tjob", "TrainingJob"), ("tj", "TrainingJob"), ("cprof", "ClusterProfile"), ("apol", "AdvisorPolicy")])  # fmt: skip
def test_short_names_are_known(cluster, short, kind):
    assert f"KIND:       {kind}\n" in cluster.kubectl("explain", short)


def test_kubectl_get_shows_profiles_and_policies(cluster, namespace):
    profile = {"apiVersion": "mofa.dev/v1alpha1", "kind": "ClusterProfile", "metadata": {"name": "columns"}, "spec": {"gpu": "h100"}}  # fmt: skip
    policy = {"apiVersion": "mofa.dev/v1alpha1", "kind": "AdvisorPolicy", "metadata": {"name": "columns", "namespace": namespace}, "spec": {"profile": "columns"}}  # fmt: skip
    cluster.apply(profile, policy)
    holds = {"type": "AssumptionsHold", "status": "True", "reason": "Consistent", "lastTransitionTime": "2026-01-31T09:30:00Z"}  # fmt: skip
    told = {
        "nodes": {"total": 256, "ready": 250},
        "total": {"assumed": "5", "observed": "4.7", "coveragePercent": 98},
        "conditions": [holds],
    }
    status = json.dumps({"status": told})
    cluster.kubectl(
        "patch", "cprof", "columns", "--subresource=status", "--type=merge", "-p", status
    )
    names, row = (
        line.split()
        for line in cluster.kubectl("get", "cprof", "columns", "-o", "wide").splitlines()
    )
    assert names == [
        "NAME",
        "NODES",
        "AVAILABLE",
        "ASSUMED",
        "OBSERVED",
        "COVERAGE",
        "VERDICT",
        "EFFECTIVE",
        "GPU",
        "AGE",
    ]
    assert row[:-1] == ["columns", "256", "250", "5", "4.7", "98", "Consistent", "h100"]
    names, row = (
        line.split() for line in cluster.kubectl("get", "apol", "-n", namespace).splitlines()
    )
    assert (names[:3], row[:3]) == (["NAME", "MODE", "PROFILE"], ["columns", "Annotate", "columns"])
    cluster.kubectl("delete", "cprof", "columns")


@SLOW
@given(status=values(SCHEMAS[CLUSTER_PROFILE]["properties"]["status"]))
def test_a_status_that_the_api_server_kept_can_be_read_back(door, profile, status):
    """The profile's status is the operator's memory: whatever is accepted there must
    be readable.
    """
    answer, said = door.ask(
        "PATCH",
        path(CLUSTER_PROFILE, "", profile, status=True),
        {"status": status},
        user=None,
        dryRun="All",
    )
    if answer == 200:
        try:
            cluster_profile(said)
        except MofaError as error:
            pytest.fail(f"accepted, but not readable: {error}")


@pytest.fixture(scope="module")
def profile(cluster):
    body = {"apiVersion": "mofa.dev/v1alpha1", "kind": "ClusterProfile", "metadata": {"name": "remembers"}, "spec": {"gpu": "h100"}}  # fmt: skip
    cluster.apply(body)
    yield "remembers"
    cluster.kubectl("delete", "cprof", "remembers")
