"""Pods that are made up, and what kube-state-metrics would show of each kind of interruption."""

import pytest
from mofa_local.exporter import Families, pod_series
from mofa_local.gang import BORN_AFTER, KINDS, LINGERS, Gang
from mofa_local.workload import Workload

from mofa_model.errors import BadValue, UnknownName

AT = 1_700_000_100.0


def gang():
    return Gang("research", "llama", [f"gpu-{number}" for number in range(12)], AT - 100)


def shown(one, now):
    families = Families()
    for body in one.bodies(now):
        pod_series(families, body)
    found = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_a_job_has_a_pod_on_each_of_at_most_eight_nodes():
    pods = shown(gang(), AT)["kube_pod_info"]
    assert [labels["node"] for labels, _ in pods] == [f"gpu-{number}" for number in range(8)]


def test_a_process_restart_is_counted_and_dated_in_every_pod():
    one = gang()
    one.interrupt("process", AT)
    found = shown(one, AT + 1)
    assert {value for _, value in found["kube_pod_container_status_restarts_total"]} == {1}
    assert {value for _, value in found["kube_pod_container_status_last_terminated_timestamp"]} == {
        AT
    }


@pytest.mark.parametrize(
    ("kind", "reason", "moves"),
    [
        ("pod", "", False),
        ("node", "DeletionByTaintManager", True),
        ("preemption", "PreemptionByScheduler", False),
    ],
)
def test_a_pod_that_goes_is_replaced_in_its_slot(kind, reason, moves):
    one = gang()
    node = one.interrupt(kind, AT)
    said = shown(one, AT + 1).get("kube_pod_status_disruption_reason", [])
    assert [labels["reason"] for labels, _ in said] == ([reason] if reason else [])
    created = {
        labels["uid"]: value for labels, value in shown(one, AT + BORN_AFTER)["kube_pod_created"]
    }
    assert max(created.values()) == AT + BORN_AFTER
    later = shown(one, AT + LINGERS + 1)
    assert len(later["kube_pod_info"]) == 8
    assert (node not in {labels["node"] for labels, _ in later["kube_pod_info"]}) == moves


def test_a_whole_job_that_starts_anew_is_another_attempt():
    one = gang()
    one.interrupt("job", AT)
    assert "kube_pod_info" not in shown(one, AT + 1)
    labels = [labels for labels, _ in shown(one, AT + 3)["kube_pod_labels"]]
    assert {label["label_jobset_sigs_k8s_io_restart_attempt"] for label in labels} == {"1"}


def advised(name, learned=None):
    inputs = {} if learned is None else {"learned": learned}
    predicted = {"tokensPerSecond": {"target": 1000}, "stepMilliseconds": {"target": 500}}
    recommendation = {"predicted": predicted, "checkpointIntervalSteps": 20}
    return {
        "metadata": {"namespace": "n", "name": name},
        "status": {"recommendation": recommendation, "inputs": inputs},
    }


def test_what_was_injected_is_told_and_a_job_without_pods_has_nothing_to_interrupt():
    now = [AT]
    workload = Workload(clock=lambda: now[0])
    workload.follow([advised("x")], lambda _: ["gpu-0", "gpu-1"])
    now[0] += 25.0
    for kind in KINDS:
        workload.inject("n/x", kind, 10.0)
        now[0] += 15.0
    assert [one["redone"] for one in workload.truth] == [10] * 5, (
        "after 50 steps, of which 20 times two are safe"
    )
    workload.add("n/own", 10.0, 1.0)
    with pytest.raises(BadValue, match="no pods"):
        workload.inject("n/own", "pod", 1.0)
    with pytest.raises(UnknownName, match="unknown name 'flood'"):
        workload.inject("n/x", "flood", 1.0)


def test_machines_do_not_know_what_was_learned():
    workload = Workload()
    workload.follow([advised("x", learned="1.25")])
    samples = {
        sample.name: sample.value
        for metric in workload.collect()
        for sample in metric.samples
        if "training_job" in sample.labels
    }
    assert samples["mofa_train_tokens_per_second"] == pytest.approx(1250)
    assert samples["mofa_train_step_seconds"] == pytest.approx(0.4)
