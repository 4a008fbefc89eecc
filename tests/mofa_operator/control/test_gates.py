"""The bound on waits holds beside everything else, and through an API server's bad moments."""

import asyncio
import copy

import pytest
from foreign import example
from json_patch import patched
from virtual_time import run

from mofa_model.kinds import JOB_SET
from mofa_operator.api_errors import Busy, Conflict, Refused
from mofa_operator.control.gates import GateDeadlines
from mofa_operator.keys import Key
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.objects import live
from mofa_operator.observe.cluster.store import Store
from mofa_operator.settings import OperatorSettings

JOB = Key(JOB_SET, "ns", "llama3-70b")
GATE = "advisor.mofa.dev/gate"


def waiting():
    body = example(JOB_SET, "ns")
    body["metadata"] |= {
        "uid": "u",
        "resourceVersion": "1",
        "creationTimestamp": "2020-01-01T00:00:00Z",
    }
    body["metadata"]["annotations"][GATE] = "suspend"
    body["spec"]["suspend"] = True
    return body


class Cluster:
    """An API server that keeps one job; `faults` are raised by the next patches."""

    def __init__(self, *faults):
        self.body = waiting()
        self.faults = list(faults)
        self.patches = 0

    async def patch(self, kind, namespace, name, operations):
        self.patches += 1
        if self.faults:
            raise self.faults.pop(0)
        self.body = patched(self.body, operations)
        self.body["metadata"]["resourceVersion"] = "2"
        return copy.deepcopy(self.body)


class Events:
    def __init__(self):
        self.reasons = []

    def post(self, key, uid, note, digest=""):
        self.reasons.append(str(note.reason))


def played(cluster, seconds, *, dry_run=False):
    """What is exported and said after a while. [s]"""

    async def play():
        store, events, exporter = Store(), Events(), Exporter()
        settings = OperatorSettings(dry_run=dry_run)
        gates = GateDeadlines(
            store=store, api=cluster, events=events, exporter=exporter, settings=settings
        )
        store.put(JOB_SET, cluster.body)
        gates.listen(live(JOB_SET, cluster.body))
        working = asyncio.create_task(gates.run())
        await asyncio.sleep(seconds)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return exporter.page()[0].decode(), events.reasons

    return run(play())


@pytest.mark.parametrize(
    "faults", [(), (Busy("x"),), (Conflict("x"), Refused("x"), Busy("x"))], ids=len
)
def test_a_job_whose_time_is_over_is_let_go_whatever_the_api_server_says_first(faults):
    cluster = Cluster(*faults)
    exported, reasons = played(cluster, 20.0)
    assert cluster.body["spec"]["suspend"] is False
    assert GATE not in cluster.body["metadata"]["annotations"]
    assert cluster.patches == len(faults) + 1
    assert 'mofa_advisor_gate_wait_seconds_count{outcome="expired"} 1.0' in exported
    assert reasons == ["GateReleased"]


def test_a_dry_run_lets_nobody_go():
    cluster = Cluster()
    assert played(cluster, 20.0, dry_run=True)[1] == []
    assert cluster.patches == 0
