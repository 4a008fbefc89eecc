"""The kinds of jobs that people already have, with small definitions of our own (tests/data/crds)
for their groups.

These hold the fields that are read or written, the fields that cannot be changed, and whatever else
comes. The examples are objects of every kind, as a person would write them.
"""

import json
from pathlib import Path

from ruamel.yaml import YAML

from mofa_model import kinds
from mofa_model.kinds import (
    BATCH_JOB,
    CLUSTER_TRAINING_RUNTIME,
    JOB_SET,
    TRAIN_JOB,
    TRAINING_RUNTIME,
)

TESTS = Path(__file__).parent
KINDS = tuple(kind for kind in kinds.KINDS if kind != BATCH_JOB)
"""Those that a cluster does not have by itself; each one's definition and example are files of
its word.
"""


def definition(kind):
    """A CustomResourceDefinition for one of them."""
    word = getattr(kind, "word", kind.kind.lower())
    return YAML(typ="safe").load((TESTS / "data" / "crds" / f"{word}.yaml").read_text("utf-8"))


def example(kind, namespace=None):
    """The example of one of them: a job in a namespace."""
    path = TESTS.parent / "examples" / f"{kind.word}.yaml"
    body = next(
        document
        for document in YAML(typ="safe").load_all(path.read_text("utf-8"))
        if document["kind"] == kind.kind
    )
    body = json.loads(json.dumps(body))  # nothing in it is shared
    if namespace is not None:
        body["metadata"]["namespace"] = namespace
    return body


READS = {
    "name": "LAUNCH_ARGS",
    "valueFrom": {
        "fieldRef": {"fieldPath": "metadata.annotations['advisor.mofa.dev/launch-args']"}
    },
}
"""The variable by which a container reads the launch arguments out of its pod's annotation."""
RUNTIME = {
    "apiVersion": CLUSTER_TRAINING_RUNTIME.api_version,
    "kind": CLUSTER_TRAINING_RUNTIME.kind,
    "metadata": {"name": "torch-distributed"},
    "spec": {
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "spec": {"template": {"spec": {"containers": [{"name": "node"}]}}}
                        },
                    }
                ]
            }
        }
    },
}
"""The runtime that the example of a TrainJob names."""


def reading(kind, body):
    """A job whose container reads the launch arguments out of its pod's annotation, where its kind
    has them there.
    """
    if kind == TRAIN_JOB:
        every = [body["spec"]["trainer"]]
    elif kind == BATCH_JOB:
        every = body["spec"]["template"]["spec"]["containers"]
    elif kind == JOB_SET:
        every = [
            container
            for job in body["spec"]["replicatedJobs"]
            for container in job["template"]["spec"]["template"]["spec"]["containers"]
        ]
    else:
        return body
    for container in every:
        line = " ".join([*container.get("command", ()), *container["args"], "$LAUNCH_ARGS"])
        container |= {"command": ["bash", "-c"], "args": [line], "env": [READS]}
    return body


def job(kind, namespace, name, **metadata):
    """An object of one of these kinds, or a batch Job, suspended."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "x"}]}
    more = {
        TRAIN_JOB: {"runtimeRef": {"name": "torch-distributed"}},
        BATCH_JOB: {"template": {"spec": pod}},
    }
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"suspend": True, **more.get(kind, {})},
    }


RUNTIMES = (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME)
"""What TrainJobs name; each one's definition is a file of its name."""


def install(cluster, *kinds):
    """Have these kinds in a cluster, all of them by default, and what they name; returns when they
    are served.
    """
    made = [definition(kind) for kind in kinds or (*KINDS, *RUNTIMES)]
    cluster.apply(*made)
    cluster.await_served(*made)
