"""Where news come in: who is concerned is queued, and nodes count when they have settled."""

from __future__ import annotations

import asyncio

import pytest
from virtual_time import run

from mofa_operator.control.enqueuer import Enqueuer
from mofa_operator.control.work_queue import WorkQueue
from mofa_operator.keys import CLUSTER_PROFILE, NODE, TRAINING_JOB, Key
from mofa_operator.observe.cluster.store import Store
from mofa_operator.settings import LoopSettings

PROFILE = Key(CLUSTER_PROFILE, "", "east")


def profile() -> dict:
    return {
        "metadata": {"name": "east", "uid": "p", "resourceVersion": "1"},
        "spec": {"nodeSelector": {"pool": "east"}},
    }


def node(number: int, *, ready: bool = True) -> dict:
    return {
        "metadata": {"name": f"node-{number}", "labels": {"pool": "east"}},
        "status": {
            "allocatable": {"nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def job(version: int, uid: str = "u", **spec: object) -> dict:
    return {
        "metadata": {
            "name": "j",
            "namespace": "n",
            "uid": uid,
            "resourceVersion": str(version),
            "generation": version,
        },
        "spec": spec,
    }


def now() -> float:
    return asyncio.get_running_loop().time()


def parts(settle: float = 2.0, longest: float = 30.0) -> tuple[Enqueuer, WorkQueue, Store]:
    store, queue = Store(), WorkQueue(backoff=1.0, longest=300.0)
    return Enqueuer(store, queue, LoopSettings(settle=settle, settle_longest=longest)), queue, store


async def taken(queue: WorkQueue) -> list[Key]:
    found = []
    while len(queue):
        key = await queue.take()
        found.append(key)
        queue.done(key)
    return found


def test_a_rack_that_comes_up_is_one_look_at_its_profile_two_seconds_after_the_last_node():
    async def main():
        enqueuer, queue, store = parts()
        enqueuer.put(CLUSTER_PROFILE, profile())
        await taken(queue)
        for number in range(32):
            enqueuer.put(NODE, node(number))
            await asyncio.sleep(0.5)
        assert enqueuer.is_settling(PROFILE)
        assert len(queue) == 0
        assert await queue.take() == PROFILE
        assert now() == pytest.approx(31 * 0.5 + 2.0)
        assert not enqueuer.is_settling(PROFILE)
        assert store.nodes("east").ready == 32

    run(main())


def test_nodes_that_never_rest_count_after_thirty_seconds_all_the_same():
    async def main():
        enqueuer, queue, _ = parts()
        enqueuer.put(CLUSTER_PROFILE, profile())
        await taken(queue)

        async def flap():
            for number in range(1000):
                enqueuer.put(NODE, node(0, ready=number % 2 == 0))
                await asyncio.sleep(1.0)

        task = asyncio.create_task(flap())
        assert await queue.take() == PROFILE
        assert now() == pytest.approx(30.0)
        task.cancel()

    run(main())


def test_heartbeats_of_nodes_are_no_news():
    async def main():
        enqueuer, queue, _ = parts()
        enqueuer.put(CLUSTER_PROFILE, profile())
        enqueuer.put(NODE, node(1))
        enqueuer.settle()
        await taken(queue)
        for _ in range(100):
            enqueuer.put(NODE, node(1))
        assert not enqueuer.is_settling(PROFILE)

    run(main())


def test_the_end_of_an_object_is_not_the_end_of_the_one_that_has_its_name_now():
    async def main():
        enqueuer, queue, store = parts()
        key = Key(TRAINING_JOB, "n", "j")
        enqueuer.put(TRAINING_JOB, job(1, "old"))
        enqueuer.put(TRAINING_JOB, job(5, "new"))
        enqueuer.drop(key, "old")
        assert store.body(key)["metadata"]["uid"] == "new"
        enqueuer.drop(key, "new")
        assert store.body(key) is None
        assert await taken(queue) == [key]

    run(main())
