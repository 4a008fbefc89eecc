"""kube-state-metrics' series of an object, by its names and labels."""

from mofa_local import LocalStackError
from mofa_local.exporter import Exporter, Families, node_series, pod_series
from mofa_local.nodes import node


def samples(series, *objects):
    families = Families()
    for one in objects:
        series(families, one)
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for metric in families
        for sample in metric.samples
    }


def condition(status):
    return {"conditions": [{"type": "Ready", "status": status}]}


def test_a_condition_is_one_series_for_each_status_it_could_have():
    body = node("n1") | {"status": condition("Unknown")}
    found = samples(node_series, body)
    values = {
        status: found[
            "kube_node_status_condition", ("condition", "Ready"), ("node", "n1"), ("status", status)
        ]
        for status in ("true", "false", "unknown")
    }
    assert values == {"true": 0, "false": 0, "unknown": 1}


def test_labels_are_written_as_kube_state_metrics_writes_them():
    found = next(key for key in samples(node_series, node("n1")) if key[0] == "kube_node_labels")
    assert ("label_nvidia_com_gpu_product", "NVIDIA-H100-80GB-HBM3") in found


def test_a_pods_moments_are_seconds_of_the_epoch_and_missing_ones_are_left_out():
    started = {
        "name": "trainer",
        "restartCount": 3,
        "state": {"running": {"startedAt": "1970-01-01T00:02:00Z"}},
    }
    pod = {
        "metadata": {"namespace": "a", "name": "p", "uid": "u", "creationTimestamp": "1970-01-01T00:01:00Z"},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running", "containerStatuses": [started]},
    }
    found = {key[0]: value for key, value in samples(pod_series, pod).items()}
    assert found["kube_pod_created"] == 60.0
    assert found["kube_pod_container_state_started"] == 120.0
    assert found["kube_pod_container_status_restarts_total"] == 3
    assert "kube_pod_deletion_timestamp" not in found
    assert "kube_pod_container_status_last_terminated_timestamp" not in found


class Answers:
    """A reader whose API server can be away."""

    def __init__(self):
        self.away = False

    def items(self, path):
        if self.away:
            raise LocalStackError("away")
        return [node("n1")] if path.endswith("/nodes") else None


def test_while_the_api_server_is_away_the_last_lists_stand():
    reader = Answers()
    exporter = Exporter(reader)
    before = [metric.samples for metric in exporter.collect()]
    reader.away = True
    assert before
    assert [metric.samples for metric in exporter.collect()] == before
