"""The closed loop: running jobs against their predictions, what they teach, and every interruption
that a cluster knows.

A real API server, a real Prometheus, fake trainers with pods that kube-state-metrics would show;
the operator is a process of its own that looks every two seconds where it would look every minute.
"""

import contextlib
import json
import time

import pytest
from advisor import condition, ours, until
from live_site import SCRAPE, Site
from mofa_local import nodes
from mofa_local.workload import MEMORY

LOOK, QUIET = 2.0, 3.0
FLAGS = (
    "--settle=1",
    "--resync=30",
    "--backoff=0.2",
    f"--prometheus-interval={LOOK:g}",
    f"--quiet={QUIET:g}",
)


@pytest.fixture(scope="module")
def site(cluster, processes, binaries, tmp_path_factory):
    binaries.path("prometheus")
    made = Site(cluster, processes, tmp_path_factory.mktemp("live"), FLAGS)
    yield made
    made.stop()


@pytest.mark.soak
def test_a_trainer_at_85_percent_is_told_and_three_of_them_teach_the_next_predictions(
    site, namespace
):
    east, west = site.pool(), site.pool()
    site.workload.unexported.add(
        f"{namespace}/other"
    )  # its memory would narrow a band, which is another question
    other = site.apply(namespace, "other", west)
    until(lambda: f"{namespace}/other" in site.workload.jobs, what="it trains")
    site.workload.pace(f"{namespace}/other", 1.0)
    first = site.apply(namespace, "a", east)
    drifting = until(
        lambda: (
            (body := site.read("tjob", "a", namespace))
            and condition(body, "PredictionAccurate").get("reason") == "Drifting"
            and body
        )
    )
    assert float(drifting["status"]["observed"]["residual"]) == pytest.approx(-0.15, abs=0.005)
    assert drifting["status"]["observed"]["tokensPerSecond"] > 0, "the column OBSERVED"
    taught = (
        "calibration" in site.read("cprof", east)["status"]
    )  # on a slow machine it has learned by now
    assert taught or drifting["status"]["inputsHash"] == first["status"]["inputsHash"]
    events = json.loads(site.cluster.kubectl("get", "events", "-n", namespace, "-o", "json"))[
        "items"
    ]
    about = [one["reason"] for one in events if one["involvedObject"].get("name") == "a"]
    assert about.count("PredictionDrift") == 1
    residuals = []
    for name in ("a", "b", "c", "d"):
        told = (
            first if name == "a" else site.apply(namespace, name, east)
        )  # what a itself taught is no prediction of a
        predicted = told["status"]["recommendation"]["predicted"]
        until(lambda name=name: f"{namespace}/{name}" in site.workload.jobs, what="it trains")
        truth = site.workload.tokens_per_second(f"{namespace}/{name}")
        residuals.append(truth / predicted["tokensPerSecond"]["target"] - 1)
        number = len(residuals)
        until(
            lambda number=number: (
                (site.read("cprof", east)["status"].get("calibration") or {}).get("jobs") == number
            ),
            seconds=60,
            what=f"{number} jobs have taught",
        )
    assert residuals[0] == pytest.approx(-0.15, abs=0.005)
    assert abs(residuals[3]) <= abs(residuals[0]) / 2
    assert site.figure("mofa_pool_calibration_ratio", pool=east) > 1.1
    assert "calibration" not in site.read("cprof", west)["status"] or float(
        site.read("cprof", west)["status"]["calibration"]["stepTimeRatio"]
    ) == pytest.approx(1.0, abs=0.011)
    after = site.read("tjob", "other", namespace)["status"]
    assert after["inputsHash"] == other["status"]["inputsHash"]
    assert after["recommendation"] == other["status"]["recommendation"]
    until(
        lambda: (
            condition(site.read("tjob", "a", namespace), "PredictionAccurate")["status"] == "True"
        )
    )
    assert "factor" in ours(site.read("tjob", "d", namespace))["explanation"]
    memory_stands_beside_its_prediction(site, namespace, east, first)


def memory_stands_beside_its_prediction(site, namespace, pool, first):
    """Of job a, whose devices hold a little more than was first predicted; then of the same,
    nearly full.
    """
    told = first["status"]["recommendation"]["predicted"]["memoryBytes"]["target"]
    held = until(lambda: site.observed(namespace, "a").get("memoryBytes"))
    assert held == pytest.approx(MEMORY * told, rel=0.01)
    until(
        lambda: (
            condition(site.read("tjob", "a", namespace), "MemoryAccurate")["reason"] == "WithinBand"
        )
    )
    labels = {"training_job": "a", "training_namespace": namespace}
    assert site.figure("mofa_job_observed_memory_bytes", **labels) == pytest.approx(
        MEMORY * told, rel=1e-3
    )
    assert site.figure("mofa_job_memory_limit_bytes", limit="device", **labels) > held
    assert 1.01 < site.figure("mofa_pool_memory_calibration_ratio", pool=pool) <= MEMORY
    taught = until(
        lambda: site.read("tjob", "d", namespace)["status"]["inputs"].get("learnedMemory")
    )
    assert 1.01 < float(taught) <= MEMORY
    site.workload.fill(f"{namespace}/a", 73 * 2**30)
    full = until(
        lambda: (
            (body := site.read("tjob", "a", namespace))
            and condition(body, "MemoryAccurate")["reason"] == "ShortOfMemory"
            and body
        )
    )
    assert full["status"]["observed"]["memoryBytes"] == pytest.approx(73 * 2**30, rel=5e-3)
    assert "slows a run before it fails" in condition(full, "MemoryAccurate")["message"]
    limit = site.figure("mofa_job_memory_limit_bytes", limit="device", **labels)
    assert site.figure("mofa_job_observed_memory_bytes", **labels) > limit, (
        "what MofaMemoryHigh fires on"
    )


TRUTH = {
    "process": ("process", "Failure"),
    "pod": ("pod", "Failure"),
    "node": ("pod", "Failure"),
    "preemption": ("pod", "Preemption"),
    "job": ("job", "Failure"),
}
"""Class and cause of each kind of interruption."""
COUNTED = {
    ("process", "Failure"): 1,
    ("pod", "Failure"): 2,
    ("pod", "Preemption"): 1,
    ("job", "Failure"): 1,
}
"""By class and cause, how many are told."""
BACK, BETWEEN = 8.0, 12.0


def test_every_kind_of_interruption_is_counted_once_timed_and_priced(site, namespace):
    pool, job = site.pool(), f"{namespace}/llama"
    site.apply(namespace, "llama", pool)
    until(
        lambda: site.figure(
            "mofa_job_observed_step", training_job="llama", training_namespace=namespace
        )
    )
    time.sleep(BETWEEN)
    for kind in TRUTH:
        node = site.workload.inject(job, kind, BACK)
        if kind == "node":
            nodes.fail(site.cluster, node)
        time.sleep(BACK + BETWEEN)
        if kind == "node":  # the operator forgets nothing
            site.advisor.kill()
            site.advisor.start(*FLAGS, f"--prometheus-url={site.prometheus.url}", wait=False)
    truth = [one for one in site.workload.truth if one["job"] == job]
    lost = {}
    for one in truth:
        cause = TRUTH[one["kind"]][1]
        lost[cause] = lost.get(cause, 0.0) + one["seconds"] + one["redone"] * one["step_seconds"]

    def counted(status):
        return {
            (one["name"], one["cause"]): one["count"] for one in status.get("interruptionsBy", ())
        }

    with contextlib.suppress(AssertionError):  # what it is instead is told below
        until(lambda: counted(site.observed(namespace, "llama")) == COUNTED, seconds=120)
    time.sleep(QUIET + 2 * LOOK)
    seen = site.observed(namespace, "llama")
    assert counted(seen) == COUNTED, f"{seen.get('life')} of {truth}"
    step = truth[0]["step_seconds"]
    for one in seen["lost"]:
        many = sum(TRUTH[kind][1] == one["cause"] for kind in TRUTH)
        assert one["seconds"] == pytest.approx(
            lost[one["cause"]], abs=many * (2 * SCRAPE + step) + 1
        )
    labels = {"training_job": "llama", "training_namespace": namespace}
    for name, number in (("process", 1), ("pod", 3), ("job", 1)):
        assert site.figure("mofa_job_recovery_seconds_count", **labels, **{"class": name}) <= number
    since = time.mktime(time.strptime(seen["since"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone
    at = time.mktime(time.strptime(seen["time"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone
    assert float(seen["ettr"]) == pytest.approx(1 - sum(lost.values()) / (at - since), abs=0.04)
    predicted = site.read("tjob", "llama", namespace)["status"]["recommendation"]
    spacing = predicted["checkpointIntervalSteps"] * step
    # Whole seconds are told, of checkpoints that are seen a scrape apart.
    assert seen.get("checkpointIntervalSeconds", spacing) == pytest.approx(
        spacing, rel=0.1, abs=SCRAPE + 0.5
    )
