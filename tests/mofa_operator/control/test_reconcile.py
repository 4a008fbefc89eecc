"""The loop: whatever fails, the object comes again after a wait, and nothing is lost, invented or
done hotly.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import time
from pathlib import Path

import pytest
from control_fakes import merged
from foreign import RUNTIME, example, reading
from operator_objects import job_set, profile, ref, training_job, why_ready
from ruamel.yaml import YAML
from virtual_time import run

from mofa_model.annotations import FRAMEWORK_VERSION, GATE, PREFIX
from mofa_model.kinds import JOB_SET, TRAIN_JOB, job_kind
from mofa_operator.api_errors import Busy, Conflict, Gone, Invalid, Refused
from mofa_operator.control.answers import Outdated
from mofa_operator.control.enqueuer import Enqueuer
from mofa_operator.control.reconcile import MISSING_CONFIG, Reconciler
from mofa_operator.control.work_queue import WorkQueue
from mofa_operator.control.worker_process import NoAnswer, Outgrown
from mofa_operator.decide.answer import answer, unsearched
from mofa_operator.decide.status import moment
from mofa_operator.keys import CLUSTER_PROFILE, TRAINING_JOB, Key
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.observe.cluster.store import Store
from mofa_operator.settings import LoopSettings, OperatorSettings
from mofa_operator.snapshot import Alive

JOB = Key(TRAINING_JOB, "ns", "a")
PROFILE = Key(CLUSTER_PROFILE, "", "east")
LOOP = LoopSettings(settle=2.0, backoff=1.0, backoff_longest=300.0)


class Cluster:
    """An API server that keeps two objects, and fails as it is told: `faults` are raised instead of
    the next writes, and `losses` say of the next writes whether their answer gets lost.
    """

    def __init__(self, store):
        self.objects = {}
        self.faults = []
        self.losses = []
        self.when_lost = lambda: None
        self.writes = []
        self.times = []
        self.config_maps = {}
        self.patches = []
        self._store = store
        self._versions = itertools.count(100)

    def put(self, kind, body):
        key = Key(kind, body["metadata"].get("namespace", ""), body["metadata"]["name"])
        body["metadata"]["resourceVersion"] = str(next(self._versions))
        self.objects[key] = body
        return key, copy.deepcopy(body)

    def edit(self, batch):
        """Somebody changes the job's spec."""
        body = self.objects[JOB]
        body["spec"]["training"]["globalBatchSize"] = batch
        body["metadata"] |= {"generation": 2, "resourceVersion": str(next(self._versions))}
        return copy.deepcopy(body)

    async def apply(self, kind, namespace, name, body, *, status=False):
        key = Key(kind, namespace, name)
        self.times.append(asyncio.get_running_loop().time())
        if self.faults:
            raise self.faults.pop(0)
        stands = self.objects[key]
        if status:
            stands["status"] = copy.deepcopy(body["status"])
        else:
            stands["metadata"].setdefault("annotations", {}).update(body["metadata"]["annotations"])
        stands["metadata"]["resourceVersion"] = str(next(self._versions))
        self.writes.append((name, "status" if status else "annotations"))
        if self.losses and self.losses.pop(0):
            self.when_lost()
            raise Busy("the answer broke off")
        return copy.deepcopy(stands)

    async def merge(self, kind, namespace, name, patch, *, status=False):
        if self.faults:
            return await self.apply(kind, namespace, name, patch, status=status)
        stands = self.objects[Key(kind, namespace, name)]
        version = stands["metadata"]["resourceVersion"]
        if patch["metadata"].get("resourceVersion", version) != version:
            self.times.append(asyncio.get_running_loop().time())
            raise Conflict("the object has been modified")
        return await self.apply(kind, namespace, name, merged(stands, patch), status=status)

    async def get(self, kind, namespace, name):
        return self.config_maps.get(name)

    async def patch(self, kind, namespace, name, operations):
        self.patches.append([one["path"] for one in operations if one["op"] != "test"])
        return self.objects[Key(kind, namespace, name)]


class Model:
    """The model pool without a process: `faults` are raised by the next answers; `before` runs
    while one is computed.
    """

    def __init__(self):
        self.asked = 0
        self.faults = []
        self.before = None

    def recall(self, question):
        return None

    async def unsearched(self, question, **how):
        return unsearched(question)

    async def answer(self, question, *, namespace="", urgent=True, wanted=lambda: True):
        self.asked += 1
        await asyncio.sleep(0.1)
        if self.before:
            self.before()
        if not wanted():
            raise Outdated
        if self.faults:
            raise self.faults.pop(0)
        return answer(question)


class Events:
    def __init__(self):
        self.posted, self.names = [], set()

    def post(self, key, uid, note, digest=""):
        told = (uid, note.reason, digest or note.message)
        if told not in self.names:
            self.names.add(told)
            self.posted.append((key.name, note.reason))

    async def post_at_once(self, *told):
        self.post(*told)


class Parts:
    def __init__(self, **settings):
        self.store = Store()
        self.queue = WorkQueue(backoff=LOOP.backoff, longest=LOOP.backoff_longest)
        self.enqueuer = Enqueuer(self.store, self.queue, LOOP)
        self.api, self.model, self.events = Cluster(self.store), Model(), Events()
        self.exporter = Exporter()
        self.reconciler = Reconciler(
            store=self.store, queue=self.queue, enqueuer=self.enqueuer, api=self.api, events=self.events,
            model_pool=self.model, exporter=self.exporter, history=None,
            settings=OperatorSettings(loop=LOOP, **settings),
        )  # fmt: skip

    def put(self, kind, body):
        key, body = self.api.put(kind, body)
        self.enqueuer.put(kind, body)
        return key

    async def work(self, seconds=0.0):
        """Work for a while; the watch tells what was written, as it would."""
        hands = [asyncio.create_task(self.reconciler.run()) for _ in range(2)]
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.25)
            for key, body in list(self.api.objects.items()):
                self.enqueuer.put(key.kind, copy.deepcopy(body))
        for hand in hands:
            hand.cancel()
        await asyncio.gather(*hands, return_exceptions=True)


async def advised(**settings):
    parts = Parts(**settings)
    parts.put(CLUSTER_PROFILE, profile())
    parts.put(TRAINING_JOB, training_job())
    return parts


def test_a_job_is_advised_in_two_writes_and_one_event_and_then_all_is_quiet():
    async def main():
        parts = await advised()
        await parts.work(30.0)
        assert [what for name, what in parts.api.writes if name == "a"] == ["annotations", "status"]
        assert parts.events.posted == [("a", "LowConfidence")]
        parts.queue.add(JOB)
        parts.queue.add(PROFILE)
        before = list(parts.api.writes)
        await parts.work(30.0)
        assert parts.api.writes == before

    run(main())


def test_a_question_that_outgrew_its_process_is_not_asked_again_until_it_changes_nor_after_a_restart():
    async def main():
        parts = await advised()
        parts.model.faults = [Outgrown("no answer within 60 s")]
        await parts.work(30.0)
        stands = parts.api.objects[JOB]
        asked = parts.model.asked
        assert why_ready(stands["status"]) == "Quarantined"
        assert stands["metadata"]["annotations"]["advisor.mofa.dev/status"] == "InvalidInput"
        assert "constrain" in stands["metadata"]["annotations"]["advisor.mofa.dev/explanation"]
        for name in ("inputs-hash", "status"):
            del stands["metadata"]["annotations"][f"advisor.mofa.dev/{name}"]
        parts.put(TRAINING_JOB, stands)  # its author takes the mark away
        await parts.work(30.0)
        assert parts.model.asked == asked
        again = Parts()
        for key, body in parts.api.objects.items():
            again.put(key.kind, copy.deepcopy(body))
        await again.work(30.0)
        assert (again.model.asked, again.api.writes) == (0, [])
        again.enqueuer.put(TRAINING_JOB, again.api.edit(128))
        await again.work(30.0)
        assert again.model.asked
        assert why_ready(again.api.objects[JOB]["status"]) != "Quarantined"

    run(main())


def test_a_job_that_comes_with_its_profile_waits_for_the_profile_and_is_advised_once():
    async def main():
        parts = Parts()
        new = profile()
        new.pop("status", None)
        parts.put(TRAINING_JOB, training_job())
        parts.put(CLUSTER_PROFILE, new)
        await parts.work(30.0)
        assert [name for name, _ in parts.api.writes] == ["east", "a", "a"]
        assert parts.model.asked == 1

    run(main())


def test_a_job_whose_profile_nobody_can_write_is_advised_all_the_same():
    async def main():
        parts = Parts()
        new = profile()
        new.pop("status", None)
        parts.api.faults = [Refused("may not")] * 3
        parts.put(TRAINING_JOB, training_job())
        parts.put(CLUSTER_PROFILE, new)
        await parts.work(5.0)
        assert ("a", "status") in parts.api.writes

    run(main())


@pytest.mark.parametrize("fault", [Busy("away"), Conflict("changed"), Refused("may not")])
def test_a_write_that_fails_is_repeated_after_waits_that_double(fault, caplog):
    async def main():
        parts = await advised()
        await parts.work(10.0)
        parts.api.edit(128)
        parts.api.faults = [fault] * 10
        parts.api.times.clear()
        await parts.work(120.0)
        assert 5 <= len(parts.api.times) <= 16  # no hot loop
        await parts.work(1500.0)
        assert parts.api.objects[JOB]["status"]["observedGeneration"] == 2
        said = [
            record
            for record in caplog.records
            if str(fault) in record.message and record.levelname == "WARNING"
        ]
        assert len(said) <= 2  # once, not ten times

    run(main())


@pytest.mark.parametrize("lost", [(False, True), (True, False), (True, True)])
def test_what_a_write_whose_answer_was_lost_has_to_tell_is_told_once(lost):
    async def main():
        parts = await advised()
        parts.api.losses = [False, *lost]  # the profile's status is the first write
        await parts.work(30.0)
        assert "recommendation" in parts.api.objects[JOB]["status"]
        assert parts.events.posted == [("a", "LowConfidence")]

    run(main())


def test_of_a_write_that_was_lost_and_then_overtaken_nothing_is_told():
    async def main():
        parts = await advised()
        parts.api.losses = [False, True]

        def overtake():
            parts.api.objects[JOB]["spec"]["mode"] = "Disabled"
            parts.enqueuer.put(TRAINING_JOB, parts.api.edit(64))

        parts.api.when_lost = overtake
        await parts.work(30.0)
        assert why_ready(parts.api.objects[JOB]["status"]) == "Disabled"
        assert parts.events.posted == []

    run(main())


def test_a_wait_that_the_api_server_asks_for_is_kept():
    async def main():
        parts = await advised()
        parts.api.faults = [Busy("too many requests", retry_after=40.0)] * 2
        await parts.work(39.0)
        assert len(parts.api.times) == 2  # the profile and the job, once each
        await parts.work(10.0)
        assert ("a", "status") in parts.api.writes

    run(main())


def test_an_object_that_is_gone_is_no_failure(caplog):
    async def main():
        parts = await advised()
        await parts.work(5.0)
        parts.api.edit(128)
        parts.api.faults = [Gone("404"), Gone("404")]
        await parts.work(3.0)
        assert not [
            record
            for record in caplog.records
            if record.levelname != "INFO" and "404" in record.message
        ]
        tries = len(parts.api.times)
        await parts.work(60.0)
        assert len(parts.api.times) == tries

    run(main())


def test_a_model_that_fails_is_said_in_the_status_and_what_was_advised_stands():
    async def main():
        parts = await advised()
        await parts.work(5.0)
        stood = copy.deepcopy(parts.api.objects[JOB]["status"])
        parts.model.faults = [NoAnswer("died twice")]
        parts.api.edit(128)
        await parts.work(0.6)
        now = parts.api.objects[JOB]["status"]
        assert why_ready(now) == "InternalError"
        assert now["recommendation"] == stood["recommendation"]
        await parts.work(10.0)
        assert why_ready(parts.api.objects[JOB]["status"]) != "InternalError"

    run(main())


def test_an_answer_to_a_question_that_changed_meanwhile_is_not_written():
    async def main():
        parts = await advised()
        changes = iter([256])

        def meanwhile():
            for size in changes:
                parts.enqueuer.put(TRAINING_JOB, parts.api.edit(size))

        parts.model.before = meanwhile
        await parts.work(10.0)
        assert [what for name, what in parts.api.writes if name == "a"] == ["annotations", "status"]
        assert parts.api.objects[JOB]["status"]["observedGeneration"] == 2

    run(main())


def test_a_job_that_comes_while_its_advice_is_searched_for_is_not_started_without_its_layout():
    """The runtime that says how its container reads arguments is read before it is released."""

    async def main():
        parts = Parts()
        parts.put(CLUSTER_PROFILE, profile())
        target = reading(TRAIN_JOB, example(TRAIN_JOB, "ns"))
        told = {GATE: "suspend", FRAMEWORK_VERSION: "0.19.2"}
        made = moment(time.time())
        target["metadata"] |= {"uid": "t", "annotations": told, "creationTimestamp": made}
        target["spec"]["suspend"] = True
        body = training_job(nodes=16, mode="Apply", targetRef=ref(target))
        body["spec"]["training"]["framework"] = "megatron"
        parts.put(TRAINING_JOB, body)
        parts.api.config_maps["torch-distributed"] = RUNTIME

        def meanwhile():
            parts.model.before = None
            parts.put(TRAIN_JOB, target)

        parts.model.before = meanwhile
        await parts.work(3.0)
        arguments, gate, *_ = parts.api.patches
        assert arguments == ["/spec/runtimePatches"]
        assert "/spec/suspend" in gate

    run(main())


def test_a_config_map_that_comes_later_is_found():
    async def main():
        parts = Parts()
        parts.put(CLUSTER_PROFILE, profile())
        parts.put(
            TRAINING_JOB,
            training_job(model={"configMapRef": {"name": "model", "key": "config.json"}}),
        )
        await parts.work(5.0)
        assert why_ready(parts.api.objects[JOB]["status"]) == "InvalidInput"
        parts.api.config_maps["model"] = {"data": {"config.json": LLAMA}}
        await parts.work(2 * MISSING_CONFIG)
        assert why_ready(parts.api.objects[JOB]["status"]) != "InvalidInput"

    run(main())


def sample(name):
    """The objects of a sample in the tests' namespace, by kind."""
    text = (Path(__file__).parents[2] / "data" / "samples" / f"{name}.yaml").read_text("utf-8")
    bodies = json.loads(json.dumps(list(YAML(typ="safe").load_all(text))))
    for one in bodies:
        one["metadata"] |= {
            "namespace": "ns",
            "uid": one["kind"],
            "annotations": {PREFIX + "model": "llama3.2-1b"},
        }
    return {one["kind"]: one for one in bodies}


@pytest.mark.parametrize("name", ["trainjob-runtime", "jobset-claims"])
def test_what_a_job_and_its_pods_name_is_read_hop_by_hop_and_again_where_it_comes_later(name):
    """A runtime is one hop; a claim's template names a class, which is two."""

    async def main():
        parts, every = Parts(), sample(name)
        *beside, job = every.values()
        parts.put(CLUSTER_PROFILE, profile())
        key = parts.put(job_kind(job["apiVersion"], job["kind"]), job)
        await parts.work(5.0)
        why = parts.api.objects[key]["metadata"]["annotations"][PREFIX + "explanation"]
        assert "is not here; create it" in why or "is not here: create it" in why
        parts.api.config_maps |= {one["metadata"]["name"]: one for one in beside}
        await parts.work(3 * MISSING_CONFIG)
        stands = parts.api.objects[key]["metadata"]["annotations"]
        assert "is not here" not in stands[PREFIX + "explanation"]
        assert "sequence length" in stands[PREFIX + "explanation"]  # what is asked next

    run(main())


def test_a_job_that_another_one_made_is_left_to_that_one_where_it_is_watched():
    """Some makers copy all annotations, ours among them."""

    async def main():
        for watched, answered in (((JOB_SET, TRAIN_JOB), False), ((JOB_SET,), True)):
            parts = Parts()
            parts.store._kinds = watched
            parts.put(CLUSTER_PROFILE, profile())
            body = sample("jobset-tpu")["JobSet"]
            owner = {
                "apiVersion": TRAIN_JOB.api_version,
                "kind": "TrainJob",
                "name": "outer",
                "controller": True,
            }
            body["metadata"]["ownerReferences"] = [owner]
            parts.put(JOB_SET, body)
            await parts.work(3.0)
            assert ("slice" in dict(parts.api.writes)) == answered

    run(main())


def test_a_job_that_is_gone_takes_its_series_with_it():
    async def main():
        parts = await advised()
        await parts.work(5.0)
        assert b'training_job="a"' in parts.exporter.page()[0]
        del parts.api.objects[JOB]
        parts.enqueuer.drop(JOB)
        await parts.work(1.0)
        assert b'training_job="a"' not in parts.exporter.page()[0]

    run(main())


def test_a_dry_run_shows_figures_and_writes_nothing():
    async def main():
        parts = await advised(dry_run=True)
        await parts.work(5.0)
        assert parts.api.writes == []
        assert parts.events.posted == []
        assert b'training_job="a"' in parts.exporter.page()[0]

    run(main())


LLAMA = """{"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
"max_position_embeddings": 8192, "tie_word_embeddings": false, "model_type": "llama"}"""


def test_what_a_job_was_judged_to_do_is_known_of_it_and_of_what_it_speaks_for_until_it_goes():
    async def main():
        parts = await advised()
        target = parts.put(JOB_SET, job_set("js"))
        about = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "js"}
        key = parts.put(TRAINING_JOB, training_job(targetRef=about))
        await parts.work(5.0)
        now = time.time()
        parts.enqueuer.enqueue(
            parts.store.set_running(key, None, Alive(at=now, since=now - 9000, watched=True))
        )
        await parts.work(5.0)
        assert [parts.reconciler.health_of(one) for one in (key, target)] == ["Stuck", "Stuck"]
        assert parts.api.objects[key]["status"]["health"] == "Stuck"
        due = next(
            line
            for line in parts.exporter.page()[0].decode().splitlines()
            if line.startswith("mofa_job_step_due")
        )
        assert float(due.rsplit(" ", 1)[1]) < now
        parts.enqueuer.enqueue(parts.store.drop(TRAINING_JOB, "ns", "a"))
        await parts.work(5.0)
        assert parts.reconciler.health_of(key) == ""

    run(main())


def test_a_server_that_starts_and_refuses_three_times_is_nothing_to_tell_of():
    async def main():
        parts = Parts()
        parts.put(CLUSTER_PROFILE, profile())
        await parts.work(5.0)
        parts.api.faults = [Refused("no binding is known yet")] * 3
        parts.put(TRAINING_JOB, training_job())
        await parts.work(30.0)
        assert parts.api.objects[JOB]["metadata"]["annotations"]
        assert parts.events.posted == [("a", "LowConfidence")]

    run(main())


def test_where_annotations_are_refused_the_status_says_so_and_the_answer_is_written_when_that_ends():
    async def main():
        parts = Parts()
        parts.put(CLUSTER_PROFILE, profile())
        await parts.work(5.0)
        why = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no robots"
        parts.api.faults = [Invalid(why)] * 4  # after waits of about 1, 2 and 4 seconds
        parts.put(TRAINING_JOB, training_job())
        await parts.work(10.0)
        status = parts.api.objects[JOB]["status"]
        assert why_ready(status) == "AnnotationsRefused"
        assert why in status["conditions"][0]["message"]
        assert "annotations" not in [what for name, what in parts.api.writes if name == "a"]
        assert parts.events.posted == [("a", "AnnotationsRefused")]
        await parts.work(30.0)
        assert why_ready(parts.api.objects[JOB]["status"]) != "AnnotationsRefused"
        assert parts.api.objects[JOB]["metadata"]["annotations"]
        assert parts.events.posted == [("a", "AnnotationsRefused"), ("a", "LowConfidence")]

    run(main())
