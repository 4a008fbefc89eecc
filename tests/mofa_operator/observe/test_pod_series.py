"""Pods are placed by their series, also where they waited for their node."""

import asyncio

import pytest

from mofa_operator.observe.history.node_names import NodeNaming
from mofa_operator.observe.history.pod_series import read_pods
from mofa_operator.observe.prometheus.client import QueryResult, Sample
from mofa_operator.observe.prometheus.promql import Pool

POD = {"namespace": "ml", "pod": "sft-worker-0", "uid": "u0"}
OWNER = {"owner_kind": "PyTorchJob", "owner_name": "sft"}


@pytest.mark.parametrize("last", ["waits", "runs"])
def test_a_pod_that_waited_for_its_node_is_on_it_in_whatever_order_its_two_series_come(last):
    infos = [{"uid": "u0"}, {"uid": "u0", "node": "gpu-1"}]
    told = {
        "kube_pod_owner": [POD | OWNER],
        "kube_pod_info": infos[:: -1 if last == "waits" else 1],
    }

    async def ask(query):
        labels = next((rows for metric, rows in told.items() if metric in query), [])
        return QueryResult(samples=tuple(Sample(one, ((0.0, 1.0),)) for one in labels))

    naming = NodeNaming("node", frozenset({"gpu-1"}))
    pods = asyncio.run(read_pods(ask, Pool.of({}, {}), naming, 3600.0, 60.0))
    assert [(pod.job, pod.node) for pod in pods.values()] == [("ml/sft", "gpu-1")]
