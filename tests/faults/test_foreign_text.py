"""Whatever people write into objects: the loop goes on, every job gets an outcome, and no text
leaves its quotes.
"""

import json
import string
import urllib.parse
import urllib.request

import pytest
from advisor import condition, until
from faults import scenario
from faults.campaign import BOUND, operator
from faults.liar import Liar
from faults.proxy import Proxy
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from kubernetes.client import ApiException
from mofa_local.prometheus import Prometheus

from mofa_model.annotations import INPUTS, OUTPUTS, PREFIX

TEXTS = (
    'a"} or up{b="',
    "a'} or vector(1) or {b='",
    "\\",
    '\\"} or up #',
    "`} or up{`",
    "# a comment",
    "$job $namespace ${job} {{ $labels.job }}",
    ".*|.+",
    string.printable,
    "".join(map(chr, range(1, 32))),
    "é 漢字 🙂 \u202e \u2028 \ufeff \x7f \x85",
    "x" * 256,
)
"""Texts that would do harm where they are not quoted, and every printable character."""
PATIENCE = 180.0
"""Longest wait for two dozen answers on a busy machine. [s]"""
NAMES = ("plain", "a.b-c.0", "0" * 63, ".".join(["a" * 40] * 5))
"""Names of objects, which are texts too."""


# --------------------------------------------------------------------------------------------- promql


@pytest.fixture(scope="module")
def empty(processes, tmp_path_factory):
    """A real server without any history: it answers, and it parses."""
    server = Prometheus(processes, tmp_path_factory.mktemp("empty"), name="empty")
    server.start()
    yield server
    server.stop()


def tree(server, query):
    """How the real server reads a query; an error where it does not."""
    form = urllib.parse.urlencode({"query": query}).encode()
    with urllib.request.urlopen(
        f"{server.url}/api/v1/parse_query", data=form, timeout=10
    ) as answer:
        return json.load(answer)["data"]


def walk(node):
    """Every part of a tree."""
    if isinstance(node, dict):
        yield node
        for one in node.values():
            yield from walk(one)
    elif isinstance(node, list):
        for one in node:
            yield from walk(one)


def words(node):
    """All of a tree but the values of its matchers: which functions, operators, metrics and labels
    there are.
    """
    found = set()
    for part in walk(node):
        if "matchers" in part and "name" in part:
            found |= {("metric", part["name"])}
            found |= {("label", one["name"], one["type"]) for one in part["matchers"]}
        func = part.get("func")
        found |= {
            (key, part[key])
            for key in ("op", "type")
            if isinstance(part.get(key), str) and "value" not in part
        }
        if isinstance(func, dict):
            found.add(("function", func["name"]))
    return found


def values(node):
    return {
        one["value"]
        for part in walk(node)
        if isinstance(part.get("matchers"), list)
        for one in part["matchers"]
    }


def objects(number, text, name):
    """A profile and a job that carry a text wherever a text may stand."""
    pool = scenario.profile()
    pool["metadata"]["name"] = f"faults-{number}"
    pool["spec"]["nodeSelector"] = {"example.org/pool": text}
    pool["spec"]["prometheus"] = {"matchers": {"cluster": text}}
    job = scenario.job(
        f"{name[:240]}-{number}", throughput={"preset": "mofa", "matchers": {"team": text}}
    )
    job["spec"]["cluster"]["profile"] = pool["metadata"]["name"]
    return [pool, job]


def heard(cluster, liar, made):
    """Queries that were sent about these objects, once each of them was asked about twice."""
    since = len(liar.queries)
    for one in made:  # not by kubectl, which cannot send every character
        assert created(cluster, one, one["metadata"]["name"])
    profiles = sum(one["kind"] == "ClusterProfile" for one in made)
    until(lambda: liar.looks(since) >= 3 * profiles, BOUND, "every profile was asked about")
    until(lambda: scenario.is_answered(cluster), PATIENCE)
    since_then = len(liar.queries)
    until(lambda: liar.looks(since_then) >= profiles, BOUND)
    return set(liar.queries[since:])


def test_no_text_leaves_its_quotes(cluster, processes, empty):
    flags = ("--prometheus-interval=1",)
    with (
        Proxy(cluster) as proxy,
        Liar(empty.url) as liar,
        operator(cluster, processes, proxy, *flags, f"--prometheus-url={liar.url}") as supervised,
    ):
        try:
            scenario.set_up(cluster)
            harmless = [
                tree(empty, query) for query in heard(cluster, liar, objects(99, "nobody", "plain"))
            ]
            allowed = set().union(*map(words, harmless))
            made = [objects(n, text, NAMES[n % len(NAMES)]) for n, text in enumerate(TEXTS)]
            found = [
                tree(empty, query)
                for query in heard(cluster, liar, [one for two in made for one in two])
            ]
            assert set().union(*map(words, found)) <= allowed
            assert set(TEXTS) <= set().union(*map(values, found))
            assert supervised.lives == 1
        finally:
            scenario.tear_down(cluster)
            cluster.delete("clusterprofiles")


# ------------------------------------------------------------------------------------------ any object

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
WORDS = st.sampled_from(
    ["", "true", "Disabled", "Apply", "llama3.1-8b", "{}", "null", "-1", "NaN", "a/b", "1e999"]
)
KEYS = st.sampled_from(
    [*INPUTS, *OUTPUTS, PREFIX + "gate", PREFIX + "nobody-knows-this", "example.org/other"]
)
ANNOTATIONS = st.dictionaries(KEYS, WORDS | TEXT, max_size=6)
NUMBERS = st.sampled_from([1, 2, 3, 7, 64, 4096, 2**31 - 1, 0, -1])
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
COMMANDS = st.lists(
    st.sampled_from(
        ["--tensor-model-parallel-size", "--nnodes", "8", "=", "--", "torchrun", "train.py"]
    )
    | TEXT,
    max_size=6,
)


@st.composite
def training_jobs(draw):
    made = scenario.job("any")
    made["metadata"]["annotations"] = draw(ANNOTATIONS)
    spec = made["spec"]
    spec["model"] = draw(
        st.sampled_from([{"preset": "llama3.1-8b"}, {"configMapRef": {"name": "nobody"}}]) | JSON
    )
    spec["training"] |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "globalBatchSize": NUMBERS,
                "sequenceLength": NUMBERS,
                "tokens": WORDS | TEXT,
            },
        )
    )
    spec["cluster"] |= draw(
        st.fixed_dictionaries({}, optional={"nodes": NUMBERS, "profile": WORDS | TEXT})
    )
    return made | {
        "spec": spec | draw(st.fixed_dictionaries({}, optional={"mode": WORDS, "throughput": JSON}))
    }


@st.composite
def job_sets(draw):
    made = scenario.job_set("any", annotations=draw(ANNOTATIONS))
    container = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"][
        "containers"
    ][0]
    container |= draw(
        st.fixed_dictionaries({}, optional={"command": COMMANDS, "args": COMMANDS, "env": JSON})
    )
    made["spec"] |= draw(
        st.fixed_dictionaries({}, optional={"suspend": st.booleans(), "replicatedJobs": JSON})
    )
    return made


def unreadable():
    """Characters that are right in JSON and not in YAML, where a message may repeat them."""
    text = "a\x7f\x85\x9f\ufeff\ufffe\x01"
    jobs = [scenario.job("any", model=text), scenario.job("any")]
    jobs[1]["spec"]["cluster"]["profile"] = text
    annotated = [
        scenario.job_set("any", annotations={PREFIX + key: text})
        for key in ("model", "mode", "config-ref")
    ]
    return jobs + annotated


def created(cluster, body, name):
    """Whether the API server takes an object."""
    api = cluster.admin.resources.get(api_version=body["apiVersion"], kind=body["kind"])
    try:
        api.create(body=body | {"metadata": body["metadata"] | {"name": name}})
    except ApiException:
        return False
    return True


def whatever_comes(cluster, supervised, bodies, number):
    """Objects come; in the end each job that was taken has an outcome, and the operator
    never stopped.
    """
    taken = [one for i, one in enumerate(bodies) if created(cluster, one, f"any-{number}-{i}")]
    print(f"batch {number}: {len(taken)} of {len(bodies)} objects were taken")  # noqa: T201
    cluster.apply(scenario.job("sentinel", batch=64 * (1 + number % 4)))
    until(lambda: scenario.is_answered(cluster), BOUND, "every job has an outcome")
    listed = json.loads(cluster.kubectl("get", "trainingjobs", "-n", scenario.PLACE, "-o", "json"))[
        "items"
    ]
    assert all(condition(one, "Ready") for one in listed)
    assert supervised.lives == 1
    assert "our fault" not in supervised.advisor.log
    for kind in ("trainingjobs", "jobsets.jobset.x-k8s.io"):
        cluster.delete(kind, namespace=scenario.PLACE)


def any_objects(cluster, processes, examples, seed):
    with Proxy(cluster) as proxy, operator(cluster, processes, proxy) as supervised:
        scenario.set_up(cluster)
        cluster.apply(scenario.policy())
        numbers = iter(range(10_000))

        @settings(
            max_examples=examples,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        @seeded(seed)
        @given(st.lists(training_jobs() | job_sets(), min_size=8, max_size=16))
        def batches(bodies):
            whatever_comes(cluster, supervised, bodies, next(numbers))

        try:
            whatever_comes(cluster, supervised, unreadable(), next(numbers))
            batches()
        finally:
            scenario.tear_down(cluster)


def test_any_object_gets_an_outcome_and_stops_nothing(cluster, processes, seed):
    any_objects(cluster, processes, 4, seed)


@pytest.mark.soak
def test_very_many_objects_of_any_kind(cluster, processes, seed):
    any_objects(cluster, processes, 80, seed)
