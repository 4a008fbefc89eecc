"""Whatever Prometheus says: advice and what was learned stay, the condition says what is the
matter, memory is bounded.
"""

import json
import time
from random import Random

import pytest
from advisor import condition, until
from faults import scenario
from faults.campaign import BOUND, operator
from faults.liar import LIES, QUICK, Liar, bad_connection, rotate
from faults.proxy import Proxy
from mofa_local import nodes
from mofa_local.blocks import write_block
from mofa_local.prometheus import Prometheus
from mofa_local.series import sampled
from mofa_local.synthetic import DAY, HOUR, Job, draw, node_names

DAYS, NODES = 10, 12
JOBS = (Job(name="pretrain-a", nodes=5), Job(name="pretrain-b", nodes=5))
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
FLAGS = ("--prometheus-interval=1", "--prometheus-timeout=3", "--quiet=0")


@pytest.fixture(scope="module")
def truth(processes, tmp_path_factory):
    """A real server with thirty days of twelve nodes, two jobs and their failures."""
    end = int(time.time()) // HOUR * HOUR
    server = Prometheus(processes, tmp_path_factory.mktemp("truth"))
    past = draw(end=end, nodes=NODES, days=DAYS, jobs=JOBS)
    write_block([(series, runs) for series, runs in sampled(past, lambda _: True)], server.data)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def liar(truth):
    with Liar(truth.url) as made:
        yield made


@pytest.fixture
def advised(cluster, processes, liar, tmp_path):
    """An operator that has learned the truth, and a job that was advised by it."""
    token = tmp_path / "token"
    rotate(liar, token, "first")
    flags = (*FLAGS, f"--prometheus-url={liar.url}", f"--prometheus-bearer-token-file={token}")
    with Proxy(cluster) as proxy, operator(cluster, processes, proxy, *flags) as supervised:
        supervised.token = token
        scenario.set_up(cluster)
        nodes.create(cluster, [nodes.node(name) for name in node_names(NODES)], kwok=False)
        try:
            body = scenario.profile()
            body["spec"]["nodeSelector"] = H100
            body["spec"]["prometheus"] = {"windowSeconds": DAYS * DAY}
            cluster.apply(body)
            until(lambda: reason(cluster) == "Complete", BOUND)
            cluster.apply(scenario.job("good"))
            until(lambda: scenario.is_answered(cluster), BOUND)
            until(
                lambda: (
                    condition(profile_and_job(cluster)[1], "HistoryComplete").get("reason")
                    == "Complete"
                )
            )
            yield supervised
        finally:
            scenario.tear_down(cluster)
            cluster.kubectl("delete", "nodes", *node_names(NODES), "--wait=false")


def profile_and_job(cluster):
    asked = cluster.kubectl(
        "get", "clusterprofiles,trainingjobs", "-n", scenario.PLACE, "-o", "json"
    )
    items = {
        one["kind"]: one
        for one in json.loads(asked)["items"]
        if one["metadata"]["name"] in {scenario.POOL, "good"}
    }
    return items["ClusterProfile"], items["TrainingJob"]


def reason(cluster):
    asked = json.loads(cluster.kubectl("get", "clusterprofile", scenario.POOL, "-o", "json"))
    return condition(asked, "HistoryComplete").get("reason")


def learned(cluster):
    """What must not change: the memory of failures, and the advice."""
    profile, job = profile_and_job(cluster)
    return {
        "failures": profile["status"]["failures"],
        "annotations": job["metadata"]["annotations"],
        "hash": job["status"]["inputsHash"],
        "recommendation": job["status"]["recommendation"],
        "inputs": job["status"]["inputs"],
    }


def live_through(cluster, liar, lie, expected):
    """Lie until a whole look at the history has been lied to."""
    since, started = len(liar.queries), time.monotonic()
    liar.lie = lie
    until(lambda: liar.looks(since) >= 3, BOUND, "three looks")
    if expected is not None:
        until(lambda: reason(cluster) == expected, what=f"{expected}, not {reason(cluster)}")
    return time.monotonic() - started


def campaign(cluster, liar, advised, names):
    before, memory, writes = learned(cluster), advised.rss, len(advised.advisor.writes())
    for name in names:
        lie, expected = LIES[name]
        seconds = live_through(cluster, liar, lie, expected)
        assert learned(cluster) == before, name
        print(f"{name:<20} {reason(cluster):<20} {seconds:5.1f} s {advised.rss / 1e6:5.0f} MB")  # noqa: T201
        assert advised.rss < memory + 200e6, (
            name
        )  # four answers of 16 MiB at once, and what they are read into
    liar.lie = None
    until(lambda: reason(cluster) == "Complete")
    until(
        lambda: (
            condition(profile_and_job(cluster)[1], "HistoryComplete").get("reason") == "Complete"
        )
    )
    assert learned(cluster) == before
    written = advised.advisor.writes_by_object(writes)
    assert max(written.values()) <= 2 * len(names) + 2
    assert advised.lives == 1


@pytest.mark.soak
def test_no_lie_changes_what_was_learned_and_each_is_named(cluster, liar, advised):
    campaign(cluster, liar, advised, QUICK)


def test_a_rotated_token_is_read_anew_and_nobody_notices(cluster, liar, advised):
    before, writes = learned(cluster), len(advised.advisor.writes())
    rotate(liar, advised.token, "second")
    since = len(liar.queries)
    until(lambda: liar.looks(since) >= 2)
    assert learned(cluster) == before
    assert advised.advisor.writes(writes) == []


@pytest.mark.soak
def test_every_lie(cluster, liar, advised):
    campaign(cluster, liar, advised, LIES)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(3))
def test_lies_among_truths(cluster, liar, advised, seed, number):
    before = learned(cluster)
    liar.lie = bad_connection(Random(seed + number))
    since = len(liar.queries)
    until(lambda: liar.looks(since) >= 30, 300, "thirty looks")
    assert learned(cluster) == before
    liar.lie = None
    until(lambda: reason(cluster) == "Complete")
    assert learned(cluster) == before
