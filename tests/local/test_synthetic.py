"""A made-up past: what it says happened is what a naive reader counts in the text that exporters
would have shown.
"""

import re
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mofa_local.series import openmetrics
from mofa_local.synthetic import (
    DAY,
    HOUR,
    Gap,
    Incident,
    Job,
    Past,
    Planned,
    draw,
    moves,
    node_names,
    truth,
)

START = 1_700_000_100 - 1_700_000_100 % DAY
RESTARTS = "kube_pod_container_status_restarts_total"
READY = "kube_node_status_condition"
LINE = re.compile(r"(\w+)\{(.*)\} (\S+) (\d+)")


def read(past, *metrics):
    """Samples of these metrics: labels, value, time; the naive reader's parser."""
    found = defaultdict(list)
    for line in "".join(openmetrics(past, lambda series: series.metric in metrics)).splitlines():
        if match := LINE.fullmatch(line):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', match[2]))
            found[match[1]].append((labels, float(match[3]), int(match[4])))
    return found


def recount(past):
    """Failures by class from pods alone: attempts, uids of a slot within an attempt, rises of the
    gang's restart counts.
    """
    samples = read(past, "kube_pod_labels", RESTARTS)
    attempts, uids, rises = defaultdict(set), defaultdict(set), defaultdict(set)
    job_of = {}
    for labels, _, _ in samples["kube_pod_labels"]:
        job, attempt = (
            labels["label_jobset_sigs_k8s_io_jobset_name"],
            labels["label_jobset_sigs_k8s_io_restart_attempt"],
        )
        attempts[job].add(attempt)
        uids[job, attempt, labels["label_batch_kubernetes_io_job_completion_index"]].add(
            labels["uid"]
        )
        job_of[labels["uid"]] = job
    last = {}
    for labels, value, at in sorted(samples[RESTARTS], key=lambda one: one[2]):
        if value > last.get(labels["uid"], 0):
            rises[job_of[labels["uid"]]].add(at)
        last[labels["uid"]] = value
    return {
        "process": sum(map(len, rises.values())),
        "pod": sum(len(found) - 1 for found in uids.values()),
        "job": sum(len(found) - 1 for found in attempts.values()),
    }


def small(**changes):
    """Eight nodes for two days."""
    given_or = {
        "end": START,
        "nodes": 8,
        "days": 2,
        "jobs": (Job(name="a", nodes=3), Job(name="b", nodes=2)),
    }
    counts = {"failures": {"process": 5, "pod": 9, "job": 2}}
    return draw(**(given_or | counts | changes))


@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    counts=st.tuples(st.integers(0, 8), st.integers(0, 12), st.integers(0, 4)),
    caused=st.floats(0, 1),
)
def test_what_was_drawn_is_what_a_naive_reader_counts(seed, counts, caused):
    failures = dict(zip(("process", "pod", "job"), counts, strict=True))
    past = small(seed=seed, failures=failures, node_caused=caused)
    assert truth(past).failures == failures
    assert recount(past) == failures


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_node_days_are_the_samples_at_which_a_node_was_ready(seed):
    past = small(seed=seed)
    ready = sum(
        value for labels, value, _ in read(past, READY)[READY] if labels["status"] == "true"
    )
    assert ready * 300 / DAY == pytest.approx(truth(past).node_days)


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_recovery_lasts_until_the_step_series_advances_again(seed):
    past = small(seed=seed)
    samples = read(past, "mofa_train_step")["mofa_train_step"]
    for job in past.jobs:
        steps = [(at, value) for labels, value, at in samples if labels["training_job"] == job.name]
        for incident in (one for one in past.incidents if one.job == job.name):
            during = {
                value for at, value in steps if incident.at <= at < incident.at + incident.recovery
            }
            assert len(during) <= 1


def test_the_sample_history_is_that_of_the_example_profile():
    found = truth(draw(end=START))
    assert found.failures == {"process": 44, "pod": 85, "job": 15}
    assert {level: round(time) for level, time in found.recovery.items()} == {
        "process": 150,
        "pod": 280,
        "job": 420,
    }
    assert found.possible_node_days == 30_720
    assert found.node_failures == 51
    assert 30_700 < found.node_days < 30_720


def test_the_same_seed_gives_the_same_text_and_another_seed_another():
    assert "".join(openmetrics(small(seed=3))) == "".join(openmetrics(small(seed=3)))
    assert "".join(openmetrics(small(seed=3))) != "".join(openmetrics(small(seed=4)))


def test_a_failed_nodes_pod_moves_to_a_spare_and_the_node_is_spare_when_it_is_repaired():
    past = by_hand(
        incidents=(
            Incident(at=START + HOUR, job="a", level="pod", recovery=300, repair=HOUR),
            Incident(at=START + 4 * HOUR, job="a", level="pod", recovery=300, repair=HOUR),
        )
    )
    assert moves(past) == [("gpu-000", "gpu-002"), ("gpu-002", "gpu-000")]
    assert truth(past).failures_by_node == {"gpu-000": 1, "gpu-002": 1}


def by_hand(**changes):
    """Three nodes for a day, with a job on two of them."""
    given_or = {"start": START, "end": START + DAY, "nodes": node_names(3), "labels": {"pool": "x"}}
    return Past(**(given_or | {"jobs": (Job(name="a", nodes=2),)} | changes))


def test_a_gap_of_the_exporter_takes_its_samples_and_up_says_so():
    samples = read(
        by_hand(gaps=(Gap(at=START + HOUR, until=START + 2 * HOUR),)),
        "up",
        "kube_node_info",
        "mofa_train_step",
    )
    assert sum(value == 0 for _, value, _ in samples["up"]) == 12
    assert len(samples["kube_node_info"]) == 3 * (288 - 12)
    assert len(samples["mofa_train_step"]) == DAY / 30


def test_a_gap_of_the_server_takes_everything():
    samples = read(
        by_hand(gaps=(Gap(at=START + HOUR, until=START + 2 * HOUR, server=True),)),
        "up",
        "mofa_train_step",
    )
    assert len(samples["up"]) == 288 - 12
    assert len(samples["mofa_train_step"]) == (DAY - HOUR) / 30


def test_coverage_and_exposure_shrink_with_a_gap():
    found = truth(by_hand(gaps=(Gap(at=START, until=START + 6 * HOUR),)))
    assert found.coverage == 0.75
    assert found.node_days == 3 * 0.75


def test_a_missing_metric_is_not_there_at_all():
    samples = read(
        by_hand(missing=frozenset({"kube_pod_labels"})), "kube_pod_labels", "kube_pod_info"
    )
    assert "kube_pod_labels" not in samples
    assert "kube_pod_info" in samples


def test_two_replicas_show_everything_twice_but_for_the_instance():
    metrics = ("kube_node_info", "mofa_train_step")
    once, twice = read(by_hand(), *metrics), read(by_hand(replicas=2), *metrics)
    assert len(twice["kube_node_info"]) == 2 * len(once["kube_node_info"])
    assert len(twice["mofa_train_step"]) == len(once["mofa_train_step"])
    assert len({labels["instance"] for labels, _, _ in twice["kube_node_info"]}) == 2


def test_a_drained_node_is_cordoned_before_it_goes_down_and_is_no_failure():
    past = by_hand(
        planned=(Planned(at=START + HOUR, until=START + 5 * HOUR, node="gpu-002", down=True),)
    )
    samples = read(past, READY, "kube_node_spec_unschedulable")
    down = [at for labels, value, at in samples[READY] if labels["status"] == "true" and not value]
    cordoned = [at for labels, value, at in samples["kube_node_spec_unschedulable"] if value]
    assert set(down) < set(cordoned)
    assert truth(past).node_failures == 0


def test_more_incidents_than_keep_their_distance_are_refused():
    with pytest.raises(ValueError, match="100 incidents in 2 days"):
        small(failures={"process": 100})


def test_a_job_larger_than_the_pool_is_refused():
    with pytest.raises(ValueError, match="the jobs have 9 pods, the pool has 8 nodes"):
        truth(small(jobs=(Job(name="a", nodes=9),)))


def test_pods_of_a_gang_restart_together():
    past = by_hand(incidents=(Incident(at=START + HOUR, job="a", level="process", recovery=100),))
    last = Counter()
    for labels, value, _ in read(past, RESTARTS)[RESTARTS]:
        last[labels["pod"]] = max(last[labels["pod"]], value)
    assert list(last.values()) == [1, 1]
