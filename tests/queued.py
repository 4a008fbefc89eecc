"""Jobs in queues of the real Kueue, on fake nodes: what tests of the neighbours are made of."""

from advisor import condition, read
from pools import EXAMPLES
from ruamel.yaml import YAML

from mofa_model.annotations import PREFIX

QUEUE = "kueue.x-k8s.io/queue-name"
LEAST = "kueue.x-k8s.io/job-min-parallelism"
CHECK = "mofa-advisor"
FEW = {axis: {"values": [size]} for axis, size in {"tp": 8, "pp": 1, "cp": 1, "mbs": 1}.items()}
"""Constraints that leave little to search."""
FLAGS = ("--tensor-model-parallel-size=8", "--sequence-parallel", "--use-distributed-optimizer", "--micro-batch-size=1", "--global-batch-size=64", "--seq-length=4096", "--bf16")  # fmt: skip
NODES = "example.org/pool"
GPUS = 8


def policy(namespace, profile, *, constraints=FEW, **admission):
    """The policy of a namespace: a small model, next to nothing to search, and what is said
    of admission.
    """
    return {
        "apiVersion": "mofa.dev/v1alpha1",
        "kind": "AdvisorPolicy",
        "metadata": {"name": "queued", "namespace": namespace},
        "spec": {
            "kinds": [
                {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"},
                {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"},
                {"apiVersion": "batch/v1", "kind": "Job"},
            ],
            "profile": profile,
            "training": {"model": "llama3.1-8b", "tokens": "1T"},
            "constraints": constraints,
            "admission": admission,
        },
    }


def profile(name, labels):
    """A pool of the nodes with these labels."""
    body = YAML(typ="safe").load((EXAMPLES / "h100-east.yaml").read_text("utf-8"))
    body.pop("status", None)
    return body | {"metadata": {"name": name}, "spec": body["spec"] | {"nodeSelector": labels}}


def queues(namespace, gpus, *, check=True):
    """A ClusterQueue with room for so many GPUs, that asks us where a check is wanted, and the
    namespace's way into it.
    """
    api = "kueue.x-k8s.io/v1beta1"
    room = [{"name": "nvidia.com/gpu", "nominalQuota": gpus}]
    group = {
        "coveredResources": ["nvidia.com/gpu"],
        "flavors": [{"name": "any", "resources": room}],
    }
    spec = {
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "resourceGroups": [group],
    }
    return [
        {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {}},
        {
            "apiVersion": api,
            "kind": "ClusterQueue",
            "metadata": {"name": namespace},
            "spec": spec | ({"admissionChecks": [CHECK]} if check else {}),
        },
        {
            "apiVersion": api,
            "kind": "LocalQueue",
            "metadata": {"name": "team", "namespace": namespace},
            "spec": {"clusterQueue": namespace},
        },
    ]


def admission_check():
    """The AdmissionCheck that names us."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "AdmissionCheck",
        "metadata": {"name": CHECK},
        "spec": {"controllerName": "mofa.dev/advisor"},
    }


def _metadata(namespace, name, queue, annotations):
    labels = {QUEUE: queue} if queue else {}
    annotations_given = {f"{PREFIX}model": "llama3.1-8b", **annotations}
    return {
        "name": name,
        "namespace": namespace,
        "labels": labels,
        "annotations": annotations_given,
    }


def _pod(nodes):
    container = {
        "name": "trainer",
        "image": "registry.example/megatron:26.04",
        "command": ["torchrun", f"--nnodes={nodes}", "--nproc-per-node=8", "pretrain_gpt.py"],
        "args": list(FLAGS),
        "resources": {"limits": {"nvidia.com/gpu": GPUS}},
    }
    return {"restartPolicy": "Never", "containers": [container]}


def batch(namespace, name, nodes, *, queue="team", runs="", **annotations):
    """A batch Job with a pod a node; its pods end by themselves after `runs`."""
    pods = {"metadata": {"annotations": _ends(runs)}, "spec": _pod(nodes)}
    sizes = {"parallelism": nodes, "completions": nodes, "completionMode": "Indexed"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(namespace, name, queue, annotations),
        "spec": {"suspend": True, "backoffLimit": 0, **sizes, "template": pods},
    }


def job_set(namespace, name, size, *, queue="", runs="", nodes=None, **annotations):
    """A JobSet with a pod a node, on `nodes` with these labels, that starts again twice."""
    spec = batch(namespace, name, size, runs=runs)["spec"]
    if nodes:
        spec["template"]["spec"]["nodeSelector"] = nodes
    del spec["suspend"], spec["completionMode"]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _metadata(namespace, name, queue, annotations),
        "spec": {
            "suspend": True,
            "failurePolicy": {"maxRestarts": 2},
            "replicatedJobs": [{"name": "trainer", "replicas": 1, "template": {"spec": spec}}],
        },
    }


def runtime(name="torch-distributed", runs=""):
    """The runtime of TrainJobs, with their GPUs, as a platform team has it."""
    limits = {"limits": {"nvidia.com/gpu": GPUS}}
    container = {"name": "node", "image": "registry.example/megatron:26.04", "resources": limits}
    pods = {"metadata": {"annotations": _ends(runs)}, "spec": {"containers": [container]}}
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    node = {"name": "node", "template": {"metadata": {"labels": step}, "spec": {"template": pods}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": GPUS}},
            "template": {"spec": {"replicatedJobs": [node]}},
        },
    }


def train_job(namespace, name, nodes, *, queue="", using="torch-distributed", **annotations):
    """A TrainJob of so many nodes."""
    trainer = {
        "numNodes": nodes,
        "numProcPerNode": GPUS,
        "resourcesPerNode": {"limits": {"nvidia.com/gpu": GPUS}},
        "command": ["torchrun"],
        "args": ["pretrain_gpt.py", *FLAGS],
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": _metadata(namespace, name, queue, annotations),
        "spec": {"suspend": True, "runtimeRef": {"name": using}, "trainer": trainer},
    }


def unsized(namespace, name, wanted, *, queue="", using="torch-plain", **annotations):
    """A TrainJob that says neither nodes nor GPUs, and asks for a size."""
    body = train_job(namespace, name, 1, queue=queue, using=using, **annotations)
    body["metadata"]["annotations"] |= {
        f"{PREFIX}size": wanted,
        f"{PREFIX}framework-version": "0.19.2",
    }
    for field in ("numNodes", "numProcPerNode", "resourcesPerNode"):
        del body["spec"]["trainer"][field]
    return body


def plain_runtime(name="torch-plain"):
    """A runtime without GPUs, as Kubeflow publishes `torch-distributed`."""
    body = runtime(name)
    body["spec"]["mlPolicy"] = {"numNodes": 1, "torch": {}}
    (job,) = body["spec"]["template"]["spec"]["replicatedJobs"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    del container["resources"]
    return body


def _ends(runs):
    return {"local.mofa.dev/runs-for": runs} if runs else {}


def workload(cluster, namespace, name):
    """The Workload that Kueue has made for a job; None where there is none yet."""
    made = read(cluster, "workloads", namespace)
    return next(
        (
            workload
            for workload in made
            if workload["metadata"]["ownerReferences"][0]["name"] == name
        ),
        None,
    )


def state(workload):
    """What our check says of a Workload, and the whole of it."""
    every = (workload or {}).get("status", {}).get("admissionChecks") or [{}]
    return every[0].get("state", ""), every[0]


def holds(workload, name):
    """Whether a condition of an object holds."""
    return condition(workload or {}, name).get("status") == "True"


def pods_of(cluster, namespace, name):
    """The pods of a job that have not ended."""
    mark = {"jobset.sigs.k8s.io/jobset-name", "batch.kubernetes.io/job-name"}
    every = read(cluster, "pods", namespace)
    pods = [pod for pod in every if name in {pod["metadata"]["labels"].get(key) for key in mark}]
    return [pod for pod in pods if pod.get("status", {}).get("phase") in {"Pending", "Running"}]
