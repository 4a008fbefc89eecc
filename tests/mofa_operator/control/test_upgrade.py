"""An operator that comes after 0.1.0: each job is answered once and written at most once, spread by
the rate of writes.
"""

from __future__ import annotations

import asyncio
import copy

import pytest
from control_fakes import merged
from operator_objects import NOW, World, profile, training_job
from virtual_time import run

from mofa_model.annotations import PREFIX, RECORD
from mofa_operator.api import TokenBucket
from mofa_operator.api_errors import Conflict
from mofa_operator.control.enqueuer import Enqueuer
from mofa_operator.control.reconcile import Reconciler
from mofa_operator.control.resync import Resync
from mofa_operator.control.work_queue import WorkQueue
from mofa_operator.decide.answer import answer, unsearched
from mofa_operator.keys import CLUSTER_PROFILE, TRAINING_JOB, Key
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.observe.cluster.store import Store
from mofa_operator.observe.jobs.run_record import RunRecord, to_text
from mofa_operator.settings import LoopSettings, OperatorSettings

JOBS = 60
PER_SECOND, BURST = 2.0, 4
HANDS = 4
LIFE = to_text(RunRecord(since=NOW - 3600.0, step=700, effective=3000.0))
OLD_VERSION = "0.1.0+old"


def from_before(restarted):
    """A pool and its jobs as an operator of 0.1.0 left them: what only it wrote, and its version in
    the hash.
    """
    world = World()
    world.put(CLUSTER_PROFILE, profile())
    for number in range(JOBS):
        world.put(TRAINING_JOB, training_job(f"job-{number:02}", slo={"ettr": f"0.{500 + number}"}))
    world.rest()
    for key, body in world.bodies.items():
        status = body["status"]
        ready = next(one for one in status["conditions"] if one["type"] == "Ready")
        status |= {"readyReason": ready["reason"], "display": {"nodes": "2"}}
        if key.kind == CLUSTER_PROFILE:
            status["conditions"] = status["conditions"][:2]
            del status["total"]
            continue
        status["observed"] = {"source": "mofa", "tokensPerSecond": 9000, "life": LIFE}
        if restarted == "with another model":
            status |= {"inputsHash": "of 0.1.0", "modelVersion": OLD_VERSION}
            body["metadata"]["annotations"] |= {
                PREFIX + "inputs-hash": "of 0.1.0",
                PREFIX + "model-version": OLD_VERSION,
            }
    return world.bodies


class Server:
    """Lists, takes writes at a rate, and tells the watch of each."""

    def __init__(self, bodies):
        self.bodies = copy.deepcopy(bodies)
        self.bucket = TokenBucket(
            PER_SECOND, BURST, clock=lambda: asyncio.get_running_loop().time()
        )
        self.writes = []
        self.enqueuer = None

    async def list(self, kind, namespace=None):
        for key, body in self.bodies.items():
            if key.kind == kind:
                yield copy.deepcopy(body)

    async def get(self, kind, namespace, name):
        return copy.deepcopy(self.bodies.get(Key(kind, namespace, name)))

    async def apply(self, kind, namespace, name, body, *, status=False):
        await self.bucket.take()
        key = Key(kind, namespace, name)
        stands = self.bodies[key]
        if status:
            stands["status"] = copy.deepcopy(dict(body["status"]))
        else:
            stands["metadata"]["annotations"] = copy.deepcopy(body["metadata"]["annotations"])
        version = len(self.writes) + 10_000
        stands["metadata"]["resourceVersion"] = str(version)
        self.writes.append(
            (asyncio.get_running_loop().time(), name, "status" if status else "annotations")
        )
        asyncio.get_running_loop().call_later(0.05, self.enqueuer.put, kind, copy.deepcopy(stands))
        return copy.deepcopy(stands)

    async def merge(self, kind, namespace, name, patch, *, status=False):
        stands = self.bodies[Key(kind, namespace, name)]
        version = stands["metadata"]["resourceVersion"]
        if patch["metadata"].get("resourceVersion", version) != version:
            raise Conflict("the object has been modified")
        return await self.apply(kind, namespace, name, merged(stands, patch), status=status)


class Model:
    """The model pool without a process."""

    def __init__(self):
        self.asked = []

    def recall(self, question):
        return ANSWERS.get(repr(question))

    async def unsearched(self, question, **how):
        return unsearched(question)

    async def answer(self, question, *, namespace="", urgent=True, wanted=lambda: True):
        self.asked.append(question.job)
        await asyncio.sleep(0.01)
        return ANSWERS.setdefault(repr(question), answer(question))


ANSWERS = {}


class Silent:
    def __init__(self):
        self.posted = []

    def post(self, key, uid, note, digest=""):
        self.posted.append((key.name, note.reason))

    async def post_at_once(self, *told):
        self.post(*told)


@pytest.mark.parametrize("restarted", ["with another model", "with the same model"])
def test_an_upgrade_answers_and_writes_each_job_once_at_the_rate_of_writes(restarted):
    async def main():
        server, model, events, store = Server(from_before(restarted)), Model(), Silent(), Store()
        loop = LoopSettings(settle=0.5)
        queue = WorkQueue(backoff=1.0, longest=300.0)
        enqueuer = server.enqueuer = Enqueuer(store, queue, loop)
        exporter = Exporter()
        resync = Resync(
            api=server, store=store, enqueuer=enqueuer, exporter=exporter,
            kinds=(CLUSTER_PROFILE, TRAINING_JOB), namespaces=(), interval=60.0,
        )  # fmt: skip
        reconciler = Reconciler(
            store=store, queue=queue, enqueuer=enqueuer, api=server, events=events, model_pool=model,
            exporter=exporter, history=None, settings=OperatorSettings(loop=loop),
        )  # fmt: skip
        await resync.fill()
        tasks = [asyncio.create_task(reconciler.run()) for _ in range(HANDS)]
        tasks.append(asyncio.create_task(resync.run()))
        await asyncio.sleep(600.0)  # ten full lists
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        of_jobs = [(name, what) for _, name, what in server.writes if name != "east"]
        names = {key.name for key in server.bodies if key.kind == TRAINING_JOB}
        assert sorted(of_jobs) == sorted(
            (name, what) for name in names for what in ("annotations", "status")
        )
        # Who was looked at beside the profile's first write asks once more, and says nothing new.
        anew = (JOBS, JOBS + HANDS + 1) if restarted == "with another model" else (0, 0)
        assert anew[0] <= len(model.asked) <= anew[1], "neither a list nor an echo asks again"
        told = sorted(name for name, reason in events.posted if reason == "ModelChanged")
        assert told == (sorted(names) if restarted == "with another model" else []), (
            "each is told once, and why"
        )
        others = {reason for _, reason in events.posted} - {"ModelChanged"}
        assert others <= {"NotConfigured"}, "what is advised has not changed"
        times = [at for at, _, _ in server.writes]
        assert times[-1] - times[0] >= (len(times) - BURST - 1) / PER_SECOND, "spread"
        for key, body in server.bodies.items():
            assert not {"readyReason", "display"} & body["status"].keys()
            if key.kind == TRAINING_JOB:
                assert body["metadata"]["annotations"][RECORD] == LIFE, (
                    "what was remembered has moved"
                )
                assert body["status"]["observed"] == {"source": "mofa", "tokensPerSecond": 9000}

    run(main())
