"""Jobs whose pods really run on the real node: a stub, whose command line tells what it was started
with.

`Site` is the node, the controllers of other projects and the operator; `checked` holds what is said
of a job against the kernel.
"""

import contextlib
import json
from pathlib import Path

import helm
import pytest
from advisor import Advisor, ours, read, until
from foreign import READS
from mofa_local import binaries
from mofa_local.control_plane import ControlPlane
from mofa_local.neighbourhood import missing as neighbours_missing
from mofa_local.neighbourhood import start
from mofa_local.processes import Processes
from mofa_local.real.archives import RAY as RAY_WHEEL
from mofa_local.real.containers import PAUSE
from mofa_local.real.machine import missing
from mofa_local.real.node import GPU, LABELS, TOOLS, RealNode
from mofa_local.real.supply import RAY, load_ray
from pools import EXAMPLES
from ruamel.yaml import YAML

from mofa_model.annotations import PREFIX

ROOT = Path(__file__).resolve().parents[1]
CRD = "CustomResourceDefinition"
RIGHTS = {"rbac": {"pods": True, "sizes": True}, "operator": {"admissionChecks": True}}
"""Values of the chart: all that a person may let the operator do, which it is told by --pods
and more.
"""
QUICK = ("--settle=1", "--settle-longest=1", "--backoff=0.2", "--prometheus-interval=1", "--quiet=2")  # fmt: skip
GPUS = 2
"""GPUs of a job, which has one pod. [1]"""
OWN = ["--seq-length=4096", "--global-batch-size=64", "--bf16"]
"""What a job says itself: no layout."""
RAY_VERSION = RAY_WHEEL.rpartition("=")[2]
SLOW = [
    "--tensor-model-parallel-size=1",
    "--micro-batch-size=1",
    "--recompute-granularity=full",
    "--recompute-method=uniform",
    "--recompute-num-layers=1",
]
"""A layout of its own, which is slower than any advice."""
STUB = "/program/pretrain_gpt.py"
"""What runs: it waits, and its command line tells what it was given."""
SLOWLY = 240.0
"""Longest wait for a pod that starts or ends, on a machine whose speed is not ours to know. [s]"""
LAYOUTS = ({"tp": 1, "mbs": 1}, {"tp": 2, "mbs": 1}, {"tp": 1, "mbs": 4}, {"tp": 2, "mbs": 8})
"""What the policies of the namespaces leave to advise, so that not all jobs are told the same."""


def container(name, command, args, *, reads, gpus=GPUS):
    """A container that runs this machine's bash, whose folders stand for an image."""
    limits = {"limits": {GPU: str(gpus)}} if gpus else {}
    folders = ("/usr", "/bin", "/lib", "/lib64")
    mounts = [
        {"name": folder.strip("/"), "mountPath": folder, "readOnly": True} for folder in folders
    ]
    return {
        "name": name,
        "image": PAUSE,
        "imagePullPolicy": "Never",
        "command": command,
        "args": args,
        "env": [READS] if reads else [],
        "resources": limits,
        "volumeMounts": [*mounts, {"name": "program", "mountPath": "/program"}],
    }


def pod(made):
    folders = ("/usr", "/bin", "/lib", "/lib64")
    volumes = [{"name": folder.strip("/"), "hostPath": {"path": folder}} for folder in folders]
    program = {"name": "program", "configMap": {"name": "stub"}}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "nodeSelector": LABELS}
    return {"spec": {**spec, "containers": [made], "volumes": [*volumes, program]}}


def line(*, reads=True):
    """A shell line that starts the stub, with the launch arguments at its end."""
    return " ".join(["exec bash", STUB, *OWN, *(["$LAUNCH_ARGS"] if reads else [])])


def shell(name, *, reads=True):
    return pod(container(name, ["bash", "-c"], [line(reads=reads)], reads=reads))


def metadata(place, name, **annotations):
    asks = {"mode": "Apply", "gate": "suspend", "framework-version": "0.19.2"} | annotations
    annotated = {f"{PREFIX}{key}": value for key, value in asks.items() if value}
    return {"name": name, "namespace": place, "annotations": annotated}


def job_set(place, name, *, template=None, **annotations):
    spec = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": template or shell("trainer")}  # fmt: skip
    jobs = [{"name": "trainer", "replicas": 1, "template": {"spec": spec}}]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata(place, name, **annotations),
        "spec": {"suspend": True, "replicatedJobs": jobs},
    }


def batch(place, name):
    spec = {"suspend": True, "backoffLimit": 0, "template": shell("trainer")}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata(place, name), "spec": spec}  # fmt: skip


def train_job(place, name):
    trainer = {"numNodes": 1, "numProcPerNode": GPUS, "command": ["bash", "-c"], "args": [line()]}
    trainer["resourcesPerNode"] = {"limits": {GPU: str(GPUS)}}
    spec = {"suspend": True, "runtimeRef": {"name": "stub"}, "trainer": trainer}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": metadata(place, name),
        "spec": spec,
    }


def runtime():
    template = pod(container("node", ["bash"], [], reads=True))
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    node = {"name": "node", "template": {"metadata": {"labels": step}, "spec": {"template": template}}}  # fmt: skip
    spec = {"mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": GPUS}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "stub", "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {**spec, "template": {"spec": {"replicatedJobs": [node]}}},
    }


def pytorch_job(place, name):
    """A PyTorchJob, whose container gets its arguments in its args."""
    template = pod(container("pytorch", ["bash", STUB], OWN, reads=False))
    replicas = {"Master": {"replicas": 1, "restartPolicy": "Never", "template": template}}
    spec = {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": replicas}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": metadata(place, name),
        "spec": spec,
    }


def mpi_job(place, name):
    """An MPIJob. Its operator makes the launcher at once, with the arguments that it has, whatever
    its policy says.
    """
    launcher = pod(container("launcher", ["bash", STUB], OWN, reads=False, gpus=0))
    worker = pod(container("worker", ["sleep", "100000"], [], reads=False))
    spec = {
        "runPolicy": {"suspend": True, "cleanPodPolicy": "All"},
        "slotsPerWorker": GPUS,
        "launcherCreationPolicy": "WaitForWorkersReady",
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": launcher},
            "Worker": {"replicas": 1, "template": worker},
        },
    }
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": metadata(place, name),
        "spec": spec,
    }


def ray_job(place, name):
    """A RayJob. Its program runs in the head's pod, where Ray's job server starts
    the entrypoint.
    """
    little = {"num-cpus": "1", "object-store-memory": "100000000"}
    head, worker = (
        {
            "spec": {
                "nodeSelector": LABELS,
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {
                        "name": f"ray-{part}",
                        "image": RAY,
                        "imagePullPolicy": "Never",
                        "resources": limits,
                        "volumeMounts": [{"name": "program", "mountPath": "/program"}],
                    }
                ],
                "volumes": [{"name": "program", "configMap": {"name": "stub"}}],
            }
        }
        for part, limits in (("head", {}), ("worker", {"limits": {GPU: str(GPUS)}}))
    )
    group = {"groupName": "gpu", "replicas": 1, "minReplicas": 1, "maxReplicas": 1}
    cluster = {
        "rayVersion": RAY_VERSION,
        "headGroupSpec": {"rayStartParams": little | {"num-gpus": "0"}, "template": head},
        "workerGroupSpecs": [group | {"rayStartParams": little, "template": worker}],
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": metadata(place, name),
        "spec": {
            "suspend": True,
            "shutdownAfterJobFinishes": True,
            "entrypoint": " ".join(["bash", STUB, *OWN]),
            "rayClusterSpec": cluster,
        },
    }


def leader_worker_set(place, name, words):
    """A LeaderWorkerSet of one group of two pods, which can neither wait nor be changed."""
    template = pod(container("worker", ["bash", STUB], words, reads=False))
    template["spec"]["restartPolicy"] = "Always"
    group = {"size": 2, "workerTemplate": template}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": metadata(place, name, gate=None),
        "spec": {"replicas": 1, "leaderWorkerTemplate": group},
    }


POLICY_KINDS = {
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "PyTorchJob": "kubeflow.org/v1",
    "MPIJob": "kubeflow.org/v2beta1",
    "RayJob": "ray.io/v1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "Job": "batch/v1",
}


class Site:
    """A real node, the controllers, and the operator as a process under its own account."""

    def __init__(self, folder, processes, *controllers):
        self.cluster = ControlPlane(folder / "plane", processes, controllers=True, real_nodes=True)
        self.cluster.start()
        self.node = RealNode(self.cluster, folder / "node", processes, gpus=8)
        self.node.start()
        flags = self._install()
        self._processes = processes
        self.neighbours = {}
        self.add(*controllers)
        profile = YAML(typ="safe").load((EXAMPLES / "h100-east.yaml").read_text("utf-8"))
        profile.pop("status", None)
        spec = profile["spec"] | {"nodeSelector": LABELS}
        self.cluster.apply(profile | {"metadata": {"name": "real"}, "spec": spec})
        if any(controller.startswith("trainer") for controller in controllers):
            self.cluster.apply(runtime())
        for number, layout in enumerate(LAYOUTS):
            self._place(f"ml-{number}", layout)
        self.advisor = Advisor(self.cluster, processes, "applied")
        self.flags = (*flags, *QUICK)
        self.advisor.start(*self.flags)

    def add(self, *controllers):
        """Start controllers that do not run yet, with the image of Ray where one needs it."""
        new = [controller for controller in controllers if controller not in self.neighbours]
        if any(controller.startswith("kuberay") for controller in new):
            load_ray(self.node.containers)
        self.neighbours |= start(self.cluster, self._processes, *new)

    def _install(self):
        """What the chart installs, but for its pod; the result is what the operator is
        started with.
        """
        made = helm.template(RIGHTS)
        home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": helm.HOME}}
        rights = [
            body for body in made if body["kind"] not in {"Deployment", "Service", "Pod", CRD}
        ]
        self.cluster.install(ROOT / "crds", ROOT / "nothing")
        self.cluster.apply(home, *rights)
        pod = helm.one(made, "Deployment")["spec"]["template"]["spec"]
        arguments = pod["containers"][0]["args"]
        return [
            argument
            for argument in arguments
            if not argument.startswith(("operator", "--prometheus"))
        ]

    def _place(self, name, layout):
        few = {axis: {"values": [size]} for axis, size in ({"pp": 1, "cp": 1} | layout).items()}
        policy = {
            "apiVersion": "mofa.dev/v1alpha1",
            "kind": "AdvisorPolicy",
            "metadata": {"name": "all", "namespace": name},
            "spec": {
                "kinds": [{"apiVersion": api, "kind": kind} for kind, api in POLICY_KINDS.items()],
                "profile": "real",
                "training": {"model": "llama3.2-1b", "tokens": "1T", "framework": "megatron"},
                "constraints": few,
                "sizing": {"maxNodes": 1, "gpusPerNode": [2, 4]},
            },
        }
        stub = {"pretrain_gpt.py": "sleep 1000000 &\nwait\n"}
        self.cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
            policy,
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "stub", "namespace": name},
                "data": stub,
            },
        )

    def stop(self):
        if self.advisor.name in self.advisor._processes:
            self.advisor.stop()
        self.node.stop()
        self.cluster.stop()

    def events(self, place, name, *reasons):
        events = read(self.cluster, "events", place)
        return [
            event
            for event in events
            if event["involvedObject"]["name"] == name and event["reason"] in reasons
        ]

    def event_of_start(self, place, name, seconds=SLOWLY):
        """The Event that says what a started job runs."""
        try:
            events = until(
                lambda: self.events(place, name, "StartedAsAdvised", "StartedOtherwise"),
                seconds,
                f"it is said what {place}/{name} runs",
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._seen(place, name)}") from error
        assert len(events) == 1, [event["message"] for event in events]
        return events[0]

    def _seen(self, place, name):
        """What there is of a job, and what the operator wrote last, for who has to find out."""
        pods = [
            (pod["metadata"]["name"], pod["metadata"].get("annotations"), pod["status"])
            for pod in self._pods(place, name)
        ]
        log = self.advisor.log.splitlines()
        lines = [line for line in log if name in line][-20:]
        return "\n".join(
            [event_lines(self, place, name), json.dumps(pods), *lines, "...", *log[-40:]]
        )

    def dumped(self, place, name):
        """The command line of the stub in the pods of a job, from the kernel."""
        ids = [
            status["containerID"].rpartition("/")[2]
            for pod in self._pods(place, name)
            for status in pod["status"].get("containerStatuses", ())
            if "containerID" in status
        ]
        command_lines = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                words = (path / "cmdline").read_bytes().decode().split("\0")[:-1]
                if words[1:2] == [STUB] and any(
                    identifier in (path / "cgroup").read_text() for identifier in ids
                ):
                    command_lines.append(words[2:])
            except OSError:
                continue
        return command_lines

    def gone(self, kind, place, name):
        self.cluster.kubectl("delete", kind, name, "-n", place, "--wait=false")
        until(lambda: not self._pods(place, name), SLOWLY, f"the pods of {name} are gone")

    def _pods(self, place, name):
        """The pods of a job, by the beginning of their names."""
        return [
            pod
            for pod in read(self.cluster, "pods", place)
            if pod["metadata"]["name"].startswith(name)
        ]


def no_real_node():
    """Why no real node can be started at once; empty where one can."""
    unbuilt = [name for name in TOOLS if binaries.find(name) is None]
    words = " ".join(unbuilt)
    return missing() or (unbuilt and f"not built: `python -m mofa_local.binaries {words}` does it, in minutes") or ""  # fmt: skip


@contextlib.contextmanager
def on_real_node(folder, *controllers):
    """A `Site` with these controllers; without what it needs, a test is skipped."""
    if why := no_real_node() or neighbours_missing(*controllers):
        pytest.skip(why)
    with Processes(folder / "run") as processes:
        made = Site(folder, processes, *controllers)
        try:
            yield made
        finally:
            made.stop()


def event_lines(site, place, name):
    """The Events of a job, one a line."""
    events = read(site.cluster, "events", place)
    events_of_job = [event for event in events if event["involvedObject"]["name"] == name]
    return "\n".join(f"{event['reason']}: {event['message']}" for event in events_of_job)


def checked(site, kind, place, name):
    """What was said of a job, held against the kernel's word; whether it is said to run
    as advised.
    """
    event = site.event_of_start(place, name)
    words, *others = until(lambda: site.dumped(place, name), SLOWLY, f"the program of {name} runs")
    assert all(line == words for line in others), others
    advice = json.loads(ours(read(site.cluster, kind, place, name))["recommendation"])
    launch = advice.get("launch", [])
    same = bool(launch) and words[-len(launch) :] == launch  # and nothing behind them
    assert (event["reason"] == "StartedAsAdvised") == same, (event["message"], words, advice)
    return same
