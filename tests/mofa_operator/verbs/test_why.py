"""What `kubectl mofa why` tells of a job."""

import json

from operator_objects import job_set, policy, profile

from mofa_model.annotations import PREFIX, RUNS
from mofa_model.kinds import JOB_SET
from mofa_operator.decide.answer import answer
from mofa_operator.keys import ADVISOR_POLICY, CLUSTER_PROFILE, Key
from mofa_operator.observe.cluster.store import Store
from mofa_operator.verbs.why import layout_row

FLAGS = "--tensor-model-parallel-size 4 --micro-batch-size 1 --use-distributed-optimizer --bf16"


def test_a_layout_that_only_stands_in_a_command_is_called_planned_and_one_that_was_seen_is_today_s():
    command = ["torchrun", "--nnodes", "8", "pretrain_gpt.py", *FLAGS.split()]
    for annotations, called in (({}, "planned layout"), ({RUNS: FLAGS}, "today's layout")):
        store = Store()
        store.put(CLUSTER_PROFILE, profile())
        store.put(ADVISOR_POLICY, policy())
        body = job_set(annotations=annotations)
        pod = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        pod["containers"][0]["command"] = command
        store.put(JOB_SET, body)
        found = answer(store.snapshot(Key(JOB_SET, "ns", "js"), 0.0).question)
        said = json.loads(found.annotations[f"{PREFIX}recommendation"])
        assert layout_row(said["current"])[0] == called
        assert layout_row(said["current"])[1].startswith("tp=4")
