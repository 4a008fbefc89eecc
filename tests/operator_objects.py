"""Objects of a small cluster, and a cluster in memory that obeys decisions as the API server would.

world = World(); world.put(PROFILE, profile()); world.put(TRAINING_JOB,
training_job()); world.rest()
"""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace

import pytest

from mofa_model.annotations import PREFIX
from mofa_model.kinds import JOB_SET, job_kind
from mofa_model.manifest.advisor_policy import AdvisorPolicyStatus
from mofa_model.manifest.cluster_profile import ClusterProfileStatus
from mofa_model.manifest.failure_history import FailureLedgerStatus
from mofa_model.manifest.status import TrainingJobStatus
from mofa_model.spec.account import NodeState, NodeTime
from mofa_model.spec.evidence import FailureEvidence
from mofa_model.units import DAY
from mofa_operator.control.answers import AnswerSource
from mofa_operator.decide.answer import answer, unsearched
from mofa_operator.decide.job import job
from mofa_operator.decide.policy import needs_answer
from mofa_operator.decide.policy import policy as decide_policy
from mofa_operator.decide.pool import profile as decide_profile
from mofa_operator.evidence import PROMETHEUS, Day
from mofa_operator.keys import (
    ADVISOR_POLICY,
    CLUSTER_PROFILE,
    FAILURE_LEDGER,
    NODE,
    TRAINING_JOB,
    Key,
    ledger_of,
)
from mofa_operator.objects import LiveProfile, live
from mofa_operator.observe.cluster.questions import question_bytes
from mofa_operator.observe.cluster.store import Store
from mofa_operator.observe.nodes import Pools
from mofa_operator.page.job import ShownJob
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import History, NodeCount, ProfileSnapshot
from mofa_operator.words import MANAGER, Happened

SETTINGS = LoopSettings()
NOW = 1_700_000_000.0
PRODUCT = "nvidia.com/gpu.product"
H100 = "NVIDIA-H100-80GB-HBM3"
STATUS = {
    TRAINING_JOB: TrainingJobStatus,
    CLUSTER_PROFILE: ClusterProfileStatus,
    ADVISOR_POLICY: AdvisorPolicyStatus,
}


def why_ready(status):
    """The reason of the condition Ready."""
    return next(
        (
            condition["reason"]
            for condition in status.get("conditions", ())
            if condition["type"] == "Ready"
        ),
        None,
    )


ONE = {"values": [1]}
QUICK = {
    "tp": {"values": [8]},
    **dict.fromkeys(("pp", "cp", "mbs"), ONE),
    "schedule": ["1f1b"],
    "sharding": ["distributed"],
    "recompute": ["none"],
    "contextMode": ["ring"],
    "optimizer": ["device"],
    "offload": ["none"],
    "sequenceParallel": True,
}
"""Constraints that leave next to nothing to search."""
AT_THE_GATE = {Happened.APPLIED_BEFORE_LAUNCH, Happened.APPLY_SKIPPED, Happened.GATE_RELEASED}
"""Events of mode Apply, beside the one that tells the advice."""
_answers = {}
_uids = itertools.count(1)


def meta(name, *, namespace=None, **more):
    """Metadata as the API server fills it in."""
    made = {
        "name": name,
        "uid": f"uid-{next(_uids)}",
        "resourceVersion": "1",
        "generation": 1,
        **more,
    }
    return made if namespace is None else made | {"namespace": namespace}


def training_job(name="a", *, nodes=2, namespace="ns", annotations=None, status=None, **spec):
    """Llama 3.1 8B on two nodes; next to nothing is left to search, so that answers are quick."""
    body = {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": meta(name, namespace=namespace, annotations=annotations or {}),
        "spec": {
            "model": {"preset": "llama3.1-8b"},
            "training": {"tokens": "1T", "sequenceLength": 4096, "globalBatchSize": 64},
            "cluster": {"profile": "east", "nodes": nodes},
            "constraints": QUICK,
            **spec,
        },
    }
    return body if status is None else body | {"status": status}


def small_job(namespace, name, pool, *, batch=64, **spec):
    """A TrainingJob on two nodes of a pool, as people apply it; next to nothing is left
    to search.
    """
    training = {
        "tokens": "1T",
        "sequenceLength": 4096,
        "globalBatchSize": batch,
        "framework": "megatron",
    }
    return {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"preset": "llama3.1-8b"},
            "training": training,
            "cluster": {"profile": pool, "nodes": 2},
            "constraints": QUICK,
            **spec,
        },
    }


def profile(name="east", *, ready=4, failures=(), rates=("1.5", "3", "0.5"), **spec):
    """A pool of H100 nodes; assumed are five failures in a thousand node-days, as in the paper."""
    classes = [
        {"name": kind, "failuresPerThousandNodeDays": rate, "recoverySeconds": 300}
        for kind, rate in zip(("process", "pod", "job"), rates, strict=True)
    ]
    body = {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": meta(name),
        "spec": {
            "nodeSelector": {PRODUCT: H100},
            "gpu": "h100",
            "gpusPerNode": 8,
            "failures": {"classes": classes, "priorWeight": "2"},
            **spec,
        },
    }
    if ready is not None:
        body["status"] = {"nodes": {"total": ready, "ready": ready}, "failures": list(failures)}
    return body


def counted(process=44, pod=85, job=15, node_days="30720"):
    """A history as a status remembers it."""
    return [
        {"name": name, "failures": count, "exposureNodeDays": node_days, "coveragePercent": 97}
        for name, count in (("process", process), ("pod", pod), ("job", job))
    ]


def node(name, *, ready=True, gpus=8, cordoned=False, product=H100, **labels):
    """A node as its kubelet reports it."""
    return {
        "metadata": meta(name, labels={PRODUCT: product, **labels}),
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus), "cpu": "96"},
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "True" if ready else "False", "lastHeartbeatTime": "…"},
            ],
        },
    }


def job_set(name="js", *, namespace="ns", annotations=None, pods=2, labels=None):
    """A JobSet of pods with eight GPUs each."""
    container = {"name": "c", "command": ["train"], "resources": {"limits": {"nvidia.com/gpu": 8}}}
    template = {"spec": {"nodeSelector": {PRODUCT: H100}, "containers": [container]}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": meta(
            name, namespace=namespace, annotations=annotations or {}, labels=labels or {}
        ),
        "spec": {
            "replicatedJobs": [
                {"name": "w", "template": {"spec": {"parallelism": pods, "template": template}}}
            ]
        },
    }


def policy(name="p", *, namespace="ns", kinds=True, **spec):
    """A policy that opts JobSets in, and says what their commands do not."""
    listed = [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}]
    return {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "AdvisorPolicy",
        "metadata": meta(name, namespace=namespace),
        "spec": {
            "kinds": listed if kinds else [],
            "training": {"model": "llama3.1-8b", "sequenceLength": 4096, "globalBatchSize": 64},
            "constraints": QUICK,
            **spec,
        },
    }


def standing(body):
    """A job as it stands; one of a kind that nobody knows counts as a JobSet."""
    kind = TRAINING_JOB if body.get("kind") == "TrainingJob" else JOB_SET
    return live(job_kind(body.get("apiVersion"), body.get("kind")) or kind, body)


def shown(body, health=""):
    """A job as the page shows it."""
    return ShownJob(standing(body), health)


def key_of(kind, body):
    """The key of a body."""
    return Key(kind, body["metadata"].get("namespace", ""), body["metadata"]["name"])


def ref(body):
    """A targetRef to an object."""
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "name": body["metadata"]["name"],
    }


def applied(body, decision):
    """The body after the writes of a decision, as server-side apply leaves it; the schema is
    checked as the server would.
    """
    body = copy.deepcopy(body)
    metadata = body["metadata"]
    for write in decision.annotate:
        if (write.key.kind.kind, write.key.name) == (body["kind"], metadata["name"]):
            assert write.uid == metadata["uid"]
            stands = {
                k: v for k, v in metadata.get("annotations", {}).items() if k not in write.drop
            }
            metadata["annotations"] = stands | dict(write.hold)
            metadata["managedFields"] = held_by(MANAGER, write.hold)
    if decision.status is not None and decision.key.name == metadata["name"]:
        model = next((m for kind, m in STATUS.items() if kind.kind == body["kind"]), None)
        if model is not None and decision.key.kind.kind == body["kind"]:
            body["status"] = model.model_validate(copy.deepcopy(dict(decision.status))).model_dump(
                by_alias=True, exclude_none=True, exclude_unset=True
            )
    return body


def ledger_after(decision):
    """The FailureLedger after a decision about its profile that writes it; the schema is checked as
    the server would.
    """
    status = FailureLedgerStatus.model_validate(copy.deepcopy(dict(decision.ledger)))
    return {
        "apiVersion": FAILURE_LEDGER.api_version,
        "kind": FAILURE_LEDGER.kind,
        "metadata": meta(decision.key.name, ownerReferences=[{"uid": decision.uid}]),
        "status": status.model_dump(by_alias=True, exclude_none=True, exclude_unset=True),
    }


def profile_with(body, ledger=None):
    """A profile as it stands, with its ledger."""
    stands = None if ledger is None else live(FAILURE_LEDGER, ledger)
    return LiveProfile(key_of(CLUSTER_PROFILE, body), body, stands)


def held_by(manager, names):
    """Managed fields of an object whose annotations of these names one manager wrote last."""
    owned = {f"f:{name}": {} for name in names}
    return [{"manager": manager, "fieldsV1": {"f:metadata": {"f:annotations": owned}}}]


def remembered(question, work=answer):
    """The answer to a question; equal questions are answered once, as the control loop has it."""
    asked = (work, question_bytes(question))
    if asked not in _answers:
        _answers[asked] = work(question)
    return _answers[asked]


ACCOUNT = (
    NodeTime(state=NodeState.KEPT, cause="", node_days=60.0, date="2023-11-13", job="ml/llama"),
    NodeTime(state=NodeState.REPAIR, cause="node-down", node_days=2.5, date="2023-11-13"),
    NodeTime(
        state=NodeState.REDONE, cause="node-down", node_days=1.25, date="2023-11-13", job="ml/llama"
    ),
    NodeTime(state=NodeState.IDLE, cause="no-job", node_days=0.25, date="2023-11-13"),
)
"""Where 64 node-days of a pool went."""


FORECAST = {
    "date": "2023-11-01",
    "ettr": {"p10": "0.91", "p50": "0.94", "p90": "0.97"},
    "interruptions": {"p10": "2", "p50": "5", "p90": "9"},
    "cameEttr": "0.93",
    "cameInterruptions": "4",
}
"""What was said of a pool's week, and what came."""


def known_pool():
    """A pool of which everything is known, as it is decided: a metric of any figure has a
    value there.
    """
    body = profile("h100-east")
    calibration = {"stepTimeRatio": "1.04", "memoryRatio": "1.10", "jobs": 3}
    gained = {"lower": "310", "target": "453", "upper": "620"}
    helps = {"changes": [{"change": "watchdog", "gained": gained, "says": "A watchdog of 2 min."}]}
    body["status"] |= {"calibration": calibration, "whatWouldHelp": helps}
    seen = FailureEvidence(node_days=7680.0, failures=23, recoveries=9, recovery_seconds=2700.0)
    history = History(
        classes=dict.fromkeys(("process", "pod", "job"), seen),
        node_days=7680.0,
        window=30 * DAY,
        coverage=0.98,
        days=(
            Day(
                date="2023-11-13",
                witness=PROMETHEUS,
                covered=DAY,
                classes={"pod": seen},
                account=ACCOUNT,
            ),
        ),
        phases={"detect": 240.0},
    )
    meta = {"name": "h100-east", "ownerReferences": [{"uid": body["metadata"]["uid"]}]}
    ledger = live(FAILURE_LEDGER, {"metadata": meta, "status": {"forecasts": [FORECAST]}})
    snapshot = ProfileSnapshot(
        profile=replace(live(CLUSTER_PROFILE, body), ledger=ledger),
        node_count=NodeCount(total=3, ready=2, cordoned=1, gpus={8: 3}, names=("a", "b", "c")),
        history=history,
        now=NOW,
    )
    return decide_profile(snapshot, SETTINGS).figures


class Model:
    """The model pool without processes; it remembers nothing, so that what stands has to do."""

    def __init__(self):
        self.searches = 0

    def recall(self, question):
        return None

    async def unsearched(self, question, **_):
        return remembered(question, unsearched)

    async def answer(self, question, **_):
        self.searches += 1
        return remembered(question)


class World:
    """A cluster of one store: what is put is seen, what is decided is done, until nothing is left
    to do.
    """

    def __init__(self, now=NOW):
        self.now = now
        self.bodies = {}
        self.store = Store(pools=Pools(clock=lambda: self.now))
        self.model = Model()
        self.due = set()
        self.writes = 0
        self.notes = []

    def put(self, kind, body):
        """Somebody creates or changes an object."""
        body = copy.deepcopy(body)
        body["metadata"]["resourceVersion"] = str(self._next())
        self.bodies[key_of(kind, body)] = body
        woken = self.store.put(kind, body) | self.store.link_all()
        self.due |= woken
        return woken

    def edit(self, key, change):
        """Somebody edits an object in place."""
        body = copy.deepcopy(self.bodies[key])
        change(body)
        stood = self.bodies[key]["metadata"].get("annotations") or {}
        left = {
            k for k, v in (body["metadata"].get("annotations") or {}).items() if stood.get(k) != v
        }
        for entry in body["metadata"].get(
            "managedFields", ()
        ):  # who changes a value owns it from then on
            owned = entry["fieldsV1"]["f:metadata"]["f:annotations"]
            for name in left:
                owned.pop(f"f:{name}", None)
        if left:
            body["metadata"].setdefault("managedFields", []).extend(
                held_by("kubectl-annotate", left)
            )
        return self.put(key.kind, body)

    def drop(self, key):
        """Somebody deletes an object."""
        if self.bodies.pop(key, None) is not None:
            self.due |= self.store.drop(key.kind, key.namespace, key.name)
            self.due |= self.store.link_all()

    def decide(self, key, store=None):
        """The decision about an object, as the control loop makes it; nothing is done."""
        snapshot = (store or self.store).snapshot(key, self.now)
        if snapshot is None:
            return None
        if key.kind == CLUSTER_PROFILE:
            return decide_profile(snapshot, SETTINGS)
        if key.kind == ADVISOR_POLICY:
            return decide_policy(snapshot)
        pending = (store or self.store).pending
        since = pending.rounds_of(key)
        answer = self.answer(snapshot) if needs_answer(snapshot) else None
        self.due |= pending.finish(key, since)
        return job(snapshot, answer, SETTINGS)

    def answer(self, snapshot):
        """The answer to a job's question, from where the control loop takes it."""
        steps = AnswerSource(self.model, SETTINGS.material).of(
            snapshot, urgent=True, wanted=lambda: True
        )
        with pytest.raises(StopIteration) as stopped:
            steps.send(None)  # nothing in it waits
        return stopped.value.value

    def step(self, key):
        """Decide, do it, and hear the echo."""
        decision = self.decide(key)
        if decision is None:
            return None
        self.notes += decision.notes
        notes = [note for note in decision.notes if note.reason not in AT_THE_GATE]
        assert len(notes) <= 1
        assert len(decision.notes) - len(notes) <= 1
        if decision.ledger is not None:
            self.writes += 1
            made = ledger_after(decision)
            made["metadata"]["resourceVersion"] = str(self._next())
            self.bodies[ledger_of(key.name)] = made
            self.store.wrote(ledger_of(key.name), made)
            assert not self.store.put(FAILURE_LEDGER, made), (
                "the echo of our own write woke its profile"
            )
        for written in {key, *(write.key for write in decision.annotate)}:
            before = self.bodies[written]
            after = applied(before, decision)
            if after != before:
                self.writes += 1
                after["metadata"]["resourceVersion"] = str(self._next())
                self.bodies[written] = after
                self.store.wrote(written, after)
        for written in {key, *(write.key for write in decision.annotate)}:
            woken = self.store.put(written.kind, self.bodies[written])
            assert written not in woken, f"the echo of our own write woke {written}"
            self.due |= woken
        return decision

    def rest(self):
        """Decide until nothing is due; a decision that was done is silent the next time."""
        for _ in range(100):
            if not self.due:
                return self
            key = min(self.due)
            self.due.discard(key)
            if self.step(key) is not None:
                again = self.decide(key)
                assert again.is_silent, f"{key} wants to write again: {again}"
        raise AssertionError(f"no rest: {self.due}")

    def restarted(self):
        """An operator that begins anew, with nothing but the objects."""
        store = Store(pools=Pools(clock=lambda: self.now))
        for kind in (NODE, FAILURE_LEDGER, ADVISOR_POLICY, CLUSTER_PROFILE, TRAINING_JOB, JOB_SET):
            for key, body in self.bodies.items():
                if key.kind == kind:
                    store.put(kind, body)
        return store

    def status(self, key):
        """An object's status."""
        return self.bodies[key].get("status", {})

    def ours(self, key):
        """Our outputs on an object, by their short names."""
        annotations = self.bodies[key]["metadata"].get("annotations", {})
        names = {
            name.removeprefix(PREFIX): value
            for name, value in annotations.items()
            if name.startswith(PREFIX)
        }
        return {
            name: value for name, value in names.items() if name not in ("mode", "model", "paused")
        }

    def condition(self, key, aspect):
        """A condition as (status, reason)."""
        conditions = {
            condition["type"]: condition for condition in self.status(key).get("conditions", [])
        }
        return conditions[aspect]["status"], conditions[aspect]["reason"]

    def _next(self):
        self._version = getattr(self, "_version", 1) + 1
        return self._version
