"""`kubectl mofa` on a real API server: two hundred mixed jobs are summed as their objects say, and
nothing is written.
"""

import asyncio
import json
import random
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from foreign import KINDS, example, install
from mofa_local import audit, nodes
from pools import pool
from printed import command_in, refused

from mofa_model.annotations import PREFIX
from mofa_model.cli import main
from mofa_model.kinds import BATCH_JOB, JOB_SET
from mofa_model.kinds import KINDS as EVERY
from mofa_operator import kubectl
from mofa_operator.api import Api
from mofa_operator.credentials import Credentials
from mofa_operator.fleet import fleet as fleet_room
from mofa_operator.keys import TRAINING_JOB
from mofa_operator.observe.nodes import PRODUCT

LATER = 36 * 3600.0
"""How much later the fleet is looked at than its jobs were made. [s]"""
GPUS = {JOB_SET: 256}
"""GPUs of the examples; 128 where not named."""
NEVER = {"suspend": ["jobs.batch.volcano.sh"]}


@pytest.fixture(scope="module")
def kinds(cluster):
    install(cluster, *KINDS)


@pytest.fixture
def ask(cluster, capsys, monkeypatch):
    """The command as a person runs it; JSON back."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))

    def run(*words, code=0, run=main):
        before = audit_of(cluster)
        assert run([*words, "-o", "json"]) == code
        assert audit_of(cluster) == before, "it wrote"
        return json.loads(capsys.readouterr().out)

    return run


def audit_of(cluster):
    return len(audit.writes(cluster.audit(), user="admin"))


def stamp(moment):
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def answered(rng, gpus, *, current=True):
    """Annotations as the operator writes them, with figures of our own."""
    step = rng.uniform(2, 9)
    said = {
        "gpus": gpus,
        "predicted": {"step_seconds": [step, step, step], "tokens_per_second": [1e5, 1e5, 1e5]},
    }
    if current:
        said["current"] = {
            "strategy": "tp=8",
            "gain": 0.1,
            "step_seconds": step * rng.uniform(1.0, 1.6),
        }
    told = {
        "status": "Recommended", "inputs-hash": "0" * 32, "explanation": "for a test", "strategy": "tp=8,pp=2,dp=8",
        "predicted-ettr": f"{rng.uniform(0.8, 0.99):.3f}", "recommendation": json.dumps(said),
    }  # fmt: skip
    return {PREFIX + key: text for key, text in told.items()}


def body(kind, namespace, name, annotations=None):
    """A job of a kind; the examples' own annotation, which opts in, is taken away."""
    if kind == BATCH_JOB:
        pod = example(JOB_SET)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        spec = {"parallelism": 16, "template": pod, "suspend": False}
        found = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"namespace": namespace},
            "spec": spec,
        }
    else:
        found = example(kind, namespace)
    found["metadata"] |= {"name": name, "annotations": annotations or {}}
    return found


def training_job(namespace, name, annotations, target=None):
    spec = {
        "model": {"preset": "llama3-8b"}, "training": {"sequenceLength": 8192, "globalBatchSize": 512},
        "cluster": {"profile": "nowhere", "nodes": 2},
    }  # fmt: skip
    if target is not None:
        spec["targetRef"] = {
            "apiVersion": target["apiVersion"],
            "kind": target["kind"],
            "name": target["metadata"]["name"],
        }
    return {
        "apiVersion": "mofa.dev/v1alpha1", "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations}, "spec": spec,
    }  # fmt: skip


def mixed(namespace, now, number=200):
    """Jobs with their statuses: answered, waiting, ended, not opted in, spoken for, and
    observed ones.
    """
    rng, made = random.Random(7), []
    for index in range(number - 40):
        kind = EVERY[index % len(EVERY)]
        how = ("answered", "plain", "waits", "ended", "no layout")[index // len(EVERY) % 5]
        told = (
            {} if how == "plain" else answered(rng, GPUS.get(kind, 128), current=how != "no layout")
        )
        named = "llama3-70b" if how == "plain" else "job"
        one, status = body(kind, namespace, f"{named}-{index}", told), None
        if how == "waits" and kind.suspend:
            spec = (
                one["spec"]
                if len(kind.suspend) == 1
                else one["spec"].setdefault(kind.suspend[0], {})
            )
            spec["suspend"] = True
        if how == "ended" and kind == JOB_SET:
            gone = {
                "type": "Completed",
                "status": "True",
                "lastTransitionTime": stamp(now + 3600 * rng.uniform(1, 20)),
            }
            status = {"conditions": [gone], "restarts": 2}
        if how == "plain" and kind == JOB_SET:
            status = {"restarts": rng.randrange(5)}
        made.append((kind, one, status))
    for index in range(20):
        target = body(JOB_SET, namespace, f"spoken-{index}")
        seen = {"tokensPerSecond": rng.randrange(40_000, 120_000), "ettr": f"{rng.uniform(0.7, 0.99):.3f}", "source": "megatron",
                "since": stamp(now), "interruptions": 2, "lost": [{"cause": "Failure", "seconds": rng.randrange(9000)}]}  # fmt: skip
        status = {"observed": seen}
        if index % 4 == 0:
            since = stamp(now + LATER - 7200)
            late = {
                "type": "PredictionAccurate",
                "status": "False",
                "reason": "Stuck",
                "message": "late",
                "lastTransitionTime": since,
            }
            status |= {"health": "Stuck", "conditions": [late]}
        made += [
            (JOB_SET, target, None),
            (
                TRAINING_JOB,
                training_job(namespace, f"speaker-{index}", answered(rng, 256), target),
                status,
            ),
        ]
    return made


async def put(kubeconfig, made):
    async with Api(Credentials.from_environment()) as api:

        async def one(kind, given, status):
            meta = given["metadata"]
            await api.create(kind, meta["namespace"], given)
            if status is not None:
                await api.merge(
                    kind, meta["namespace"], meta["name"], {"status": status}, status=True
                )

        await asyncio.gather(*(one(*each) for each in made))


def reckoned(made, now):
    """GPU-hours held, stuck, stopped and slow by the objects alone, as one would on paper."""
    total = dict.fromkeys(("held", "stuck", "stopped", "slow"), 0.0)
    speakers = {
        one["spec"].get("targetRef", {}).get("name"): (one, status)
        for kind, one, status in made
        if kind == TRAINING_JOB
    }
    for kind, one, status in made:
        if kind == TRAINING_JOB or (
            "suspend" in json.dumps(one["spec"]) and '"suspend": true' in json.dumps(one["spec"])
        ):
            continue
        speaker, shown = speakers.get(one["metadata"]["name"], (one, None))
        if status and "conditions" in status:
            continue  # ended: not shown
        hours, gpus = (now + LATER - one["at"]) / 3600, GPUS.get(kind, 128)
        observed = (shown or {}).get("observed", {})
        stuck = 2.0 if (shown or {}).get("health") == "Stuck" else 0.0
        told = speaker["metadata"]["annotations"]
        said = json.loads(told.get(PREFIX + "recommendation", "{}"))
        restarts = 307 * ((status or {}).get("restarts") or 0)
        stopped = (observed["lost"][0]["seconds"] if observed else restarts) / 3600
        share = 0.0
        if observed:
            share = max(0.0, 1 - observed["tokensPerSecond"] / 1e5)
        elif "current" in said:
            share = 1 - said["predicted"]["step_seconds"][1] / said["current"]["step_seconds"]
        slow = share * (hours - stuck - stopped)
        for name, value in (
            ("held", hours),
            ("stuck", stuck),
            ("stopped", stopped),
            ("slow", slow),
        ):
            total[name] += value * gpus
    return total


def test_two_hundred_mixed_jobs_are_summed_as_their_objects_say(
    cluster, kinds, namespace, ask, monkeypatch, tmp_path, binaries
):
    now = int(time.time())
    made = mixed(namespace, now)
    assert len(made) == 200
    asyncio.run(put(cluster.kubeconfig, made))
    for kind in {kind for kind, _, _ in made}:
        live = json.loads(cluster.kubectl("get", kind.resource, "-n", namespace, "-o", "json"))[
            "items"
        ]
        at = {
            one["metadata"]["name"]: datetime.fromisoformat(
                one["metadata"]["creationTimestamp"]
            ).timestamp()
            for one in live
        }
        for _, one, _ in (each for each in made if each[0] == kind):
            one["at"] = at[one["metadata"]["name"]]
    monkeypatch.setattr(fleet_room, "time", SimpleNamespace(time=lambda: now + LATER))
    found = ask("top", "-n", namespace, "--told")
    total, expected = found["total"], reckoned(made, now)
    for name, key in (
        ("held", "gpu_hours"),
        ("stuck", "stuck_gpu_hours"),
        ("stopped", "stopped_gpu_hours"),
        ("slow", "slow_gpu_hours"),
    ):
        assert total[key] == pytest.approx(expected[name], rel=1e-9), name
    assert total["lost_gpu_hours"] == pytest.approx(
        sum(expected[one] for one in ("stuck", "stopped", "slow"))
    )
    lost = [one["lost_gpu_hours"] for one in found["jobs"] if one["lost_gpu_hours"] is not None]
    assert lost == sorted(lost, reverse=True)
    assert min(expected.values()) > 0
    everything = ask("top", "-n", namespace, "--told", "--all")
    assert (
        len(everything["jobs"]) == 180
    )  # the twenty that speak for others have no line of their own
    told = {command_in(one["change"]).partition(" -n ")[0]: one["change"] for one in found["jobs"]}
    assert {"kubectl annotate", "kubectl mofa why"} <= told.keys()
    wrong = [
        refused(text, cluster.kubeconfig, tmp_path / "bin", binaries) for text in told.values()
    ]
    assert [why for why in wrong if why] == []


FEW = {axis: {"values": [size]} for axis, size in {"tp": 8, "pp": 4, "cp": 1, "mbs": 1}.items()}
"""Constraints that leave little to search."""


@pytest.fixture
def asking(cluster, kinds, namespace):
    """A JobSet that asks, in a namespace with a policy, on a pool of its own; no operator runs."""
    with pool(cluster) as profile:
        kind = [{"apiVersion": JOB_SET.api_version, "kind": JOB_SET.kind}]
        spec = {"kinds": kind, "profile": profile, "constraints": FEW, "training": {"tokens": "2T"}}
        policy = {
            "apiVersion": "mofa.dev/v1alpha1", "kind": "AdvisorPolicy",
            "metadata": {"name": "defaults", "namespace": namespace}, "spec": spec,
        }  # fmt: skip
        job = example(JOB_SET, namespace)
        cluster.apply(policy, job)
        yield profile, policy, job


def test_a_job_that_nobody_answered_is_answered_as_the_operator_would(
    cluster, asking, namespace, ask, tmp_path, capsys
):
    profile, policy, job = asking
    told = ask("why", "jobset/llama3-70b", "-n", namespace)
    assert (told["answered_by"], told["stance"]) == ("this command", "advise")
    live = json.loads(cluster.kubectl("get", "clusterprofile", profile, "-o", "json"))
    (tmp_path / "all.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [live, policy, job]})
    )
    assert main(["annotate", str(tmp_path / "all.json")]) == 0
    (answer,) = (
        one["metadata"]["annotations"]
        for one in json.loads(capsys.readouterr().out)["items"]
        if one["kind"] == "JobSet"
    )
    assert told["answer"]["inputs-hash"] == answer[PREFIX + "inputs-hash"]
    assert told["answer"]["strategy"] == answer[PREFIX + "strategy"]
    (line,) = ask("top", "-n", namespace)["jobs"]
    assert line["status"] == told["answer"]["status"]
    assert line["slow_gpu_hours"] is not None


def test_a_layout_of_a_job_is_explained_term_by_term(cluster, asking, namespace, ask):
    told = ask("explain", "llama3-70b", "-n", namespace, "--current", run=explained)
    assert told["strategy"].startswith("tp=8,pp=4,")
    assert told["step"]
    other = ask("explain", "llama3-70b", "-n", namespace, "--strategy", "tp=4,pp=8", run=explained)
    assert other["strategy"].startswith("tp=4,pp=8,")


def explained(words):
    return main(words, program="kubectl mofa", instead=kubectl.OWN)


def test_pools_say_which_gpus_running_jobs_hold_and_how_nodes_of_none_get_into_one(
    cluster, asking, namespace, ask, tmp_path, binaries
):
    profile, _, _ = asking
    lone = nodes.node("lone", labels={PRODUCT: "NVIDIA-H200"})
    nodes.create(cluster, [lone], kwok=False)
    try:
        told = ask("pools", "-n", namespace)
        (note,) = [one for one in told["notes"] if "NVIDIA-H200" in one]
        assert "mofa profile" in command_in(note)
        assert refused(note, cluster.kubeconfig, tmp_path / "bin", binaries) == ""
    finally:
        cluster.delete("nodes", "lone")
    found = {one["pool"]: one for one in told["pools"]}
    assert (found[profile]["nodes"], found[profile]["gpus"]) == (2, 16)
    assert (found[profile]["jobs"], found[profile]["held"]) == (1, 256)


@pytest.mark.parametrize(
    "words, said",
    [
        (["why", "llama3-71b"], "did you mean llama3-70b"),
        (["why", "jobsett/llama3-70b"], "did you mean jobset"),
        (["why", "llama3-70b", "-n", "default"], "give -n "),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_a_job_that_is_misspelt_is_told(
    cluster, asking, namespace, monkeypatch, capsys, words, said
):
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    place = [] if "-n" in words else ["-n", namespace]
    assert main([*words, *place]) == 2
    assert said in capsys.readouterr().err
