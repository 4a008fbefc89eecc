"""kube-state-metrics' series of an object, by its names and labels."""

from mofa_local.exporter import Families, pod_series


def samples(series, *objects):
    families = Families()
    for one in objects:
        series(families, one)
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for metric in families
        for sample in metric.samples
    }


def test_a_pods_moments_are_seconds_of_the_epoch_and_missing_ones_are_left_out():
    started = {
        "name": "trainer",
        "restartCount": 3,
        "state": {"running": {"startedAt": "1970-01-01T00:02:00Z"}},
    }
    pod = {
        "metadata": {
            "namespace": "a",
            "name": "p",
            "uid": "u",
            "creationTimestamp": "1970-01-01T00:01:00Z",
        },
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running", "containerStatuses": [started]},
    }
    found = {key[0]: value for key, value in samples(pod_series, pod).items()}
    assert found["kube_pod_created"] == 60.0
    assert found["kube_pod_container_state_started"] == 120.0
    assert found["kube_pod_container_status_restarts_total"] == 3
    assert "kube_pod_deletion_timestamp" not in found
    assert "kube_pod_container_status_last_terminated_timestamp" not in found
