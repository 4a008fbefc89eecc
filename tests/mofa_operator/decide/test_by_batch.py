"""A job that says all but its batch gets a table over batches, the same by file and in
a cluster.
"""

import json

import pytest
from foreign import example
from operator_objects import NOW, profile

from mofa_model.annotations import PREFIX, RUNS
from mofa_model.identity import identify
from mofa_model.kinds import JOB_SET
from mofa_model.manifest.draft import batches_of
from mofa_operator.decide.answer import answer, unsearched
from mofa_operator.keys import CLUSTER_PROFILE, Key
from mofa_operator.observe.cluster.store import Store


def silent(*also):
    """The example of a JobSet on two nodes, without its batch and the options in `also`."""
    body = example(JOB_SET, "ns")
    body["metadata"]["annotations"][f"{PREFIX}model"] = "llama3.1-8b"
    spec = body["spec"]["replicatedJobs"][0]["template"]["spec"]
    spec |= {"parallelism": 2, "completions": 2}
    container = spec["template"]["spec"]["containers"][0]
    gone = ("--global-batch-size", "--pipeline-model-parallel-size", *also)
    container["args"] = [one for one in container["args"] if not one.startswith(gone)]
    return body


def asked(body):
    store = Store()
    store.put(CLUSTER_PROFILE, profile())
    store.put(JOB_SET, body)
    return store.snapshot(Key(JOB_SET, "ns", body["metadata"]["name"]), NOW).question


@pytest.mark.parametrize(
    "gpus, sequence, batches",
    [(8, 4096, (8, 32, 128, 512)), (1024, 8192, (1024,)), (4096, 8192, (4096,))],
)
def test_batches_begin_at_one_sequence_a_device_and_end_at_the_largest_published(
    gpus, sequence, batches
):
    assert batches_of(gpus, sequence) == batches


def test_the_table_says_step_memory_and_layout_and_the_status_is_never_recommended():
    found = answer(asked(silent()))
    assert (found.outcome, found.reason) == ("FactsMissing", "FactsMissing")
    assert not found.strategy
    rows = json.loads(found.annotations[f"{PREFIX}recommendation"])["batches"]
    assert [one["global_batch"] for one in rows] == [16, 64, 256, 1024]
    steps = [one["step_seconds"] for one in rows]
    assert steps == sorted(steps)
    assert all("tp=" in one["strategy"] and one["memory_bytes"] > 2**30 for one in rows)
    assert "globalBatchSize" in found.explanation
    assert "64 sequences" in found.explanation
    known = unsearched(asked(silent()))
    assert (known.digest, known.outcome) == (found.digest, ""), "a search is still due"


def test_what_more_than_the_batch_is_missing_of_has_no_table():
    assert "recommendation" not in str(answer(asked(silent("--seq-length"))).annotations)


def test_what_processes_were_seen_to_be_told_says_the_facts_that_the_manifest_leaves_open():
    body = silent("--seq-length")
    body["metadata"]["annotations"][RUNS] = "--seq-length 4096 --global-batch-size 64 --tensor-model-parallel-size 4"  # fmt: skip
    found = identify(body)
    assert found.facts["global_batch"].value == 64
    assert found.facts["sequence_length"].source.startswith(f"annotation {RUNS}")
    assert found.launch_found.reading.layout["tp"] == 4
    told = answer(asked(body))
    assert told.outcome in {"Recommended", "LowConfidence"}
    assert "tp=4" in told.says.current.strategy
