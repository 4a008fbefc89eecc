"""What pods really run, against what was advised: condition, Event, annotation, and what a
job teaches.
"""

import shlex
from dataclasses import replace

import pytest
from foreign import READS, example, reading
from operator_objects import NOW, SETTINGS, profile, training_job

from mofa_model.annotations import MEASURED, PREFIX, RUNS
from mofa_model.identity import identify
from mofa_model.kinds import JOB_SET
from mofa_model.kinds.patches import ARGUMENTS
from mofa_operator.decide.job import job
from mofa_operator.decide.launched import (
    launch_sentence,
    runs_advised,
    runs_annotation,
    runs_another,
)
from mofa_operator.decision import Answer
from mofa_operator.keys import CLUSTER_PROFILE, TRAINING_JOB, Key
from mofa_operator.objects import live
from mofa_operator.observe.cluster.store import Store
from mofa_operator.observe.jobs.launches import seen_launch
from mofa_operator.snapshot import Running, SeenLaunch

ADVISED = ("--tensor-model-parallel-size", "8", "--micro-batch-size", "2")
OTHER = ("--tensor-model-parallel-size", "4", "--micro-batch-size", "2")
TOKEN = "hf_abcdefghijklmnopqrstuvwxyz012345"
ANSWER = Answer(
    digest="d",
    outcome="Recommended",
    annotations={f"{PREFIX}status": "Recommended", f"{PREFIX}inputs-hash": "d"},
    status={"recommendation": {"strategy": "tp=8"}},
    reason="Recommended",
    strategy={"tp": "8"},
    trainer="megatron",
    arguments=ADVISED,
)


def pod(line, *, annotation="", phase="Running", name="a-0"):
    """A pod of which a shell starts the trainer with the arguments of its annotation."""
    secret = {"name": "HF_TOKEN", "value": TOKEN}
    container = {"name": "t", "command": ["bash", "-c"], "args": [line], "env": [READS, secret]}
    metadata = {"name": name, "annotations": {ARGUMENTS: annotation}}
    return {"metadata": metadata, "spec": {"containers": [container]}, "status": {"phase": phase}}


LINE = f"torchrun pretrain_gpt.py --hf-token {TOKEN} --data-path /d $LAUNCH_ARGS"


def seen(*pods, body=None):
    return seen_launch(live(JOB_SET, body or example(JOB_SET, "ns")), pods, ())


def snapshot(launch, mode="Apply", **annotations):
    body = example(JOB_SET, "ns")
    body["metadata"]["annotations"] |= {f"{PREFIX}mode": mode, **annotations}
    body["metadata"]["uid"] = "u"
    store = Store()
    store.put(CLUSTER_PROFILE, profile())
    store.put(JOB_SET, body)
    key = Key(JOB_SET, "ns", body["metadata"]["name"])
    store.set_launch(key, launch)
    return store.snapshot(key, NOW)


def test_pods_are_read_after_the_downward_api_and_nothing_but_the_layout_is_kept():
    found = seen(pod(LINE, annotation=shlex.join(ADVISED)))
    assert found == SeenLaunch(where="pod a-0", words=ADVISED)
    assert TOKEN not in repr(found)


def test_what_does_not_run_yet_says_nothing():
    assert seen(pod(LINE, phase="Pending")) is None
    assert seen() is None


def test_a_manifest_that_says_the_same_needs_no_annotation():
    body = reading(JOB_SET, example(JOB_SET, "ns"))
    template = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["metadata"] = {"annotations": {ARGUMENTS: shlex.join(ADVISED)}}
    line = template["spec"]["containers"][0]["args"][0]
    found = seen(pod(line, annotation=shlex.join(ADVISED)), body=body)
    assert found.stated
    assert runs_annotation(snapshot(found), ANSWER) == ""


def test_pods_that_differ_and_arguments_that_are_one_word_are_no_layout():
    found = seen(
        pod(LINE, annotation=shlex.join(ADVISED)),
        pod(LINE, annotation=shlex.join(OTHER), name="a-1"),
    )
    assert found.trouble == "they are told different layouts"
    one = pod(LINE, annotation=shlex.join(ADVISED))
    one["spec"]["containers"][0] |= {"command": ["python", "pretrain_gpt.py"], "args": ["$(LAUNCH_ARGS)"]}  # fmt: skip
    assert "as one word" in seen(one).trouble
    assert runs_advised(snapshot(seen(one)), ANSWER) is False


@pytest.mark.parametrize(
    "words, reason",
    [(ADVISED, "StartedAsAdvised"), (OTHER, "StartedOtherwise")],
    ids=["advised", "other"],
)
def test_the_event_says_what_runs_once(words, reason):
    shot = snapshot(SeenLaunch(where="pod a-0", words=words))
    (note,) = [one for one in job(shot, ANSWER, SETTINGS).notes if one.reason.startswith("Started")]
    assert note.reason == reason
    assert ("--tensor-model-parallel-size 4" in note.message) == (words == OTHER)
    again = job(replace(shot, launch_told=True), ANSWER, SETTINGS)
    assert not [one for one in again.notes if one.reason.startswith("Started")]


def test_nothing_is_said_of_pods_that_were_not_seen_or_that_nobody_wanted_to_change():
    assert launch_sentence(snapshot(None), ANSWER) == ""
    shot = snapshot(SeenLaunch(where="pod a-0", words=OTHER), mode="Annotate")
    assert not [one for one in job(shot, ANSWER, SETTINGS).notes if one.reason.startswith("Started")]  # fmt: skip


def test_a_layout_that_nobody_stated_is_written_down_and_asked_about_at_once():
    shot = snapshot(SeenLaunch(where="pod a-0", words=OTHER))
    decision = job(shot, ANSWER, SETTINGS)
    assert decision.hold[RUNS] == shlex.join(OTHER)
    assert decision.requeue_after == 0.5
    assert runs_another(shot, ANSWER), "until it is answered anew, it teaches nothing"
    after = snapshot(SeenLaunch(where="pod a-0", words=OTHER), **{RUNS: shlex.join(OTHER)})
    assert job(after, ANSWER, SETTINGS).hold[RUNS] == shlex.join(OTHER)
    assert not runs_another(after, ANSWER)
    assert after.question.job["metadata"]["annotations"][RUNS] == shlex.join(OTHER)
    gone = snapshot(None, **{RUNS: shlex.join(OTHER)})
    assert job(gone, ANSWER, SETTINGS).hold[RUNS] == shlex.join(OTHER), "a restart forgets nothing"


def test_the_condition_of_a_trainingjob_follows_what_its_pods_run():
    target = example(JOB_SET, "ns")
    target["metadata"]["uid"] = "u"
    named = {"apiVersion": JOB_SET.api_version, "kind": "JobSet", "name": "llama3-70b"}
    store = Store()
    for kind, one in (
        (CLUSTER_PROFILE, profile()),
        (JOB_SET, target),
        (TRAINING_JOB, training_job(targetRef=named, mode="Apply")),
    ):
        store.put(kind, one)
    key = Key(TRAINING_JOB, "ns", "a")
    for launch, state, reason in (
        (None, "False", "NotVerified"),
        (SeenLaunch(where="pod a-0", words=ADVISED), "True", "RunsAdvised"),
        (SeenLaunch(where="pod a-0", words=OTHER), "False", "RunsOther"),
    ):
        store.set_launch(key, launch)
        status = job(store.snapshot(key, NOW), ANSWER, SETTINGS).status
        (found,) = [one for one in status["conditions"] if one["type"] == "LaunchVerified"]
        assert (found["status"], found["reason"]) == (state, reason)


def test_the_shape_that_the_trainer_says_names_the_model_that_a_manifest_does_not():
    missing = replace(ANSWER, outcome="FactsMissing", reason="FactsMissing", strategy={})
    sizes = {
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "ffn": 14336,
        "vocabulary": 128256,
    }
    shot = replace(
        snapshot(None, mode="Annotate"), running=Running(source="mofa", shape=sizes), looked=True
    )
    words = job(shot, missing, SETTINGS).hold[RUNS]
    assert words.startswith("--num-layers 32 --hidden-size 4096 --num-attention-heads 32")
    body = example(JOB_SET, "ns")
    body["metadata"]["annotations"] = {}
    assert "model" not in identify(body).facts
    body["metadata"]["annotations"] = {RUNS: words}
    found = identify(body).facts["model"]
    assert found.value == "llama3-8b"
    assert found.source.startswith(f"annotation {RUNS}")


def test_batch_and_sequence_that_the_trainer_says_are_learned_where_the_answer_lacks_them():
    missing = replace(ANSWER, outcome="FactsMissing", reason="FactsMissing", strategy={})
    shot = replace(
        snapshot(None, mode="Annotate"),
        running=Running(source="mofa", sequence_length=4096, global_batch=64),
        looked=True,
    )
    assert job(shot, missing, SETTINGS).hold[RUNS] == "--seq-length 4096 --global-batch-size 64"
    assert RUNS not in job(shot, ANSWER, SETTINGS).hold, "an answer that lacks nothing needs none"
    body = example(JOB_SET, "ns")
    container = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"][
        "containers"
    ][0]
    gone = ("--seq-length", "--global-batch-size")
    container["args"] = [one for one in container["args"] if not one.startswith(gone)]
    body["metadata"]["annotations"][RUNS] = "--seq-length 4096 --global-batch-size 64"
    found = identify(body)
    assert (found.facts["sequence_length"].value, found.facts["global_batch"].value) == (4096, 64)
    assert found.launch_found.reading.layout["tp"] == 8, "its layout stays the one of its command"


def timed(step, since, launch=None, **annotations):
    """A job whose trainer says the time of a step, counted since some seconds ago."""
    shot = snapshot(launch, **annotations)
    running = Running(source="mofa", step_seconds=step, since=NOW - since)
    return replace(shot, running=running)


KNOWN = replace(
    ANSWER,
    status={"recommendation": {"strategy": "tp=8"}, "current": {"strategy": "tp=4,pp=1"}},
)


def test_the_measured_step_of_todays_layout_is_written_once_it_stands_and_asked_with():
    """After ten minutes, to three digits; a move of 4 % changes nothing, one of 7 % does."""
    assert MEASURED not in job(timed(7.4321, 500), KNOWN, SETTINGS).hold
    decision = job(timed(7.4321, 700), KNOWN, SETTINGS)
    assert (decision.hold[MEASURED], decision.requeue_after) == ("7.43", 0.5)
    for step, said in ((7.7, "7.43"), (7.95, "7.95")):
        shot = timed(step, 700, **{MEASURED: "7.43"})
        assert job(shot, KNOWN, SETTINGS).hold[MEASURED] == said
        assert shot.question.job["metadata"]["annotations"][MEASURED] == "7.43"
    gone = replace(timed(7.4, 700, **{MEASURED: "7.43"}), running=None)
    assert job(gone, KNOWN, SETTINGS).hold[MEASURED] == "7.43", "a restart forgets nothing"


def test_a_step_of_no_known_layout_is_not_written():
    assert MEASURED not in job(timed(7.4, 700), ANSWER, SETTINGS).hold
    other = timed(7.4, 700, SeenLaunch(where="pod a-0", words=OTHER), **{MEASURED: "5"})
    assert MEASURED not in job(other, KNOWN, SETTINGS).hold, "another layout runs now"
