"""Applied means applied: what mode Apply says of a job is what its processes have in /proc, with real controllers on the real node."""

import json
import random
import time
from pathlib import Path

import pytest
from advisor import Advisor, ours, until
from foreign import READS
from mofa_local import binaries
from mofa_local.control_plane import ControlPlane
from mofa_local.neighbourhood import missing as neighbours_missing
from mofa_local.neighbourhood import start
from mofa_local.processes import Processes
from mofa_local.real.containers import PAUSE
from mofa_local.real.machine import missing
from mofa_local.real.node import GPU, LABELS, TOOLS, RealNode
from pools import EXAMPLES
from queued import read
from ruamel.yaml import YAML

from mofa_model.annotations import PREFIX, RUNS

ROOT = Path(__file__).resolve().parents[2]
CONTROLLERS = ("jobset", "trainer-2.2", "training-operator", "mpi-operator")
QUICK = ("--settle=1", "--settle-longest=1", "--backoff=0.2", "--prometheus-interval=1", "--quiet=2", "--pods")  # fmt: skip
GPUS = 2
"""GPUs of a job, which has one pod. [1]"""
OWN = ["--seq-length=4096", "--global-batch-size=64", "--bf16"]
"""What a job says itself: no layout."""
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
LAYOUTS = ({"tp": 1, "mbs": 1}, {"tp": 2, "mbs": 1}, {"tp": 1, "mbs": 4}, {"tp": 2, "mbs": 8})
"""What the policies of the namespaces leave to advise, so that not all jobs are told the same."""


def container(name, command, args, *, reads, gpus=GPUS):
    """A container that runs this machine's bash, whose folders stand for an image."""
    limits = {"limits": {GPU: str(gpus)}} if gpus else {}
    folders = ("/usr", "/bin", "/lib", "/lib64")
    mounts = [{"name": one.strip("/"), "mountPath": one, "readOnly": True} for one in folders]
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
    volumes = [{"name": one.strip("/"), "hostPath": {"path": one}} for one in folders]
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
    told = {f"{PREFIX}{key}": value for key, value in asks.items() if value}
    return {"name": name, "namespace": place, "annotations": told}


def job_set(place, name, *, template=None, **annotations):
    one = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": template or shell("trainer")}  # fmt: skip
    jobs = [{"name": "trainer", "replicas": 1, "template": {"spec": one}}]
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
    """An MPIJob. Its operator makes the launcher at once, with the arguments that it has, whatever its policy says."""
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


MADE = {"jobset": job_set, "job": batch, "trainjob": train_job, "pytorchjob": pytorch_job}  # fmt: skip
POLICY_KINDS = {
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "PyTorchJob": "kubeflow.org/v1",
    "MPIJob": "kubeflow.org/v2beta1",
    "Job": "batch/v1",
}


class Site:
    """A real node, the controllers, and the operator as a process under its own account, which may list pods."""

    def __init__(self, folder, processes):
        self.cluster = ControlPlane(folder / "plane", processes, controllers=True, real_nodes=True)
        self.cluster.start()
        self.node = RealNode(self.cluster, folder / "node", processes, gpus=8)
        self.node.start()
        self.cluster.install(ROOT / "crds", ROOT / "deploy" / "manifests")
        self.neighbours = start(self.cluster, processes, *CONTROLLERS)
        profile = YAML(typ="safe").load((EXAMPLES / "h100-east.yaml").read_text("utf-8"))
        profile.pop("status", None)
        spec = profile["spec"] | {"nodeSelector": LABELS}
        self.cluster.apply(profile | {"metadata": {"name": "real"}, "spec": spec}, runtime())
        self.cluster.apply(*may_list_pods())
        for number, layout in enumerate(LAYOUTS):
            self._place(f"ml-{number}", layout)
        self.advisor = Advisor(self.cluster, processes, "applied")
        self.advisor.start(*QUICK)

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
        found = read(self.cluster, "events", place)
        return [
            one
            for one in found
            if one["involvedObject"]["name"] == name and one["reason"] in reasons
        ]

    def said(self, place, name, seconds=120.0):
        """What is said of a job that has started."""
        found = until(
            lambda: self.events(place, name, "StartedAsAdvised", "StartedOtherwise"),
            seconds,
            f"it is said what {place}/{name} runs",
        )
        assert len(found) == 1, [one["message"] for one in found]
        return found[0]

    def dumped(self, place, name):
        """The command line of the stub in the pods of a job, from the kernel."""
        ids = [
            status["containerID"].rpartition("/")[2]
            for one in read(self.cluster, "pods", place)
            if one["metadata"]["name"].startswith(name)
            for status in one["status"].get("containerStatuses", ())
            if "containerID" in status
        ]
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                words = (path / "cmdline").read_bytes().decode().split("\0")[:-1]
                if STUB in words and any(one in (path / "cgroup").read_text() for one in ids):
                    found.append(words[words.index(STUB) + 1 :])
            except OSError:
                continue
        return found

    def gone(self, kind, place, name):
        self.cluster.kubectl("delete", kind, name, "-n", place, "--wait=false")
        until(
            lambda: (
                not [
                    one
                    for one in read(self.cluster, "pods", place)
                    if one["metadata"]["name"].startswith(name)
                ]
            ),
            90.0,
            f"the pods of {name} are gone",
        )


def may_list_pods():
    """The right that the chart gives with rbac.pods."""
    api = "rbac.authorization.k8s.io"
    named = {"name": "mofa-advisor-pods"}
    return [
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRole",
            "metadata": named,
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
        },
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": named,
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", **named},
            "subjects": [
                {"kind": "ServiceAccount", "name": "mofa-advisor", "namespace": "mofa-system"}
            ],
        },
    ]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if why := missing() or neighbours_missing(*CONTROLLERS):
        pytest.skip(why)
    for name in TOOLS:
        if binaries.find(name) is None:
            pytest.skip(f"{name} is not built; `python -m mofa_local.binaries {' '.join(TOOLS)}` builds it, in minutes")  # fmt: skip
    folder = tmp_path_factory.mktemp("applied")
    with Processes(folder / "run") as processes:
        made = Site(folder, processes)
        try:
            yield made
        finally:
            made.stop()


def told(site, place, name):
    """All that was said of a job."""
    found = read(site.cluster, "events", place)
    mine = [one for one in found if one["involvedObject"]["name"] == name]
    return "\n".join(f"{one['reason']}: {one['message']}" for one in mine)


def checked(site, kind, place, name):
    """What was said of a job, held against the kernel's word; whether it is said to run as advised."""
    said = site.said(place, name)
    (words,) = site.dumped(place, name)
    advice = json.loads(ours(read(site.cluster, kind, place, name))["recommendation"])
    launch = advice.get("launch", [])
    same = bool(launch) and words[-len(launch) :] == launch  # and nothing behind them
    assert (said["reason"] == "StartedAsAdvised") == same, (said["message"], words, advice)
    return same


def test_what_is_said_of_a_job_of_each_kind_is_what_its_process_was_started_with(site):
    for kind, made in MADE.items():
        place, name = "ml-1", f"one-{kind}"
        site.cluster.apply(made(place, name))
        assert checked(site, kind, place, name), told(site, place, name)
        site.gone(kind, place, name)


def test_a_job_that_reads_no_arguments_is_never_said_to_run_them_and_is_compared_with_what_it_runs(
    site,
):
    place = "ml-1"
    own = f"exec bash {STUB} {' '.join(OWN)} {' '.join(SLOW)}"
    template = pod(container("trainer", ["bash", "-c"], [own], reads=False))
    site.cluster.apply(job_set(place, "deaf", template=template))
    said = site.said(place, "deaf")
    assert said["reason"] == "StartedOtherwise"
    assert "--recompute-granularity=full" in said["message"]
    (why,) = site.events(place, "deaf", "GateReleased")
    assert "no container reads the annotation" in why["message"]
    current = json.loads(ours(read(site.cluster, "jobset", place, "deaf"))["recommendation"])[
        "current"
    ]
    assert "recompute=full" in current["strategy"]
    assert RUNS not in read(site.cluster, "jobset", place, "deaf")["metadata"]["annotations"], (
        "its manifest says it"
    )
    site.gone("jobset", place, "deaf")


def test_the_launcher_of_an_mpijob_keeps_its_arguments_and_that_is_said(site):
    site.cluster.apply(mpi_job("ml-1", "mpi"))
    assert not checked(site, "mpijob", "ml-1", "mpi")
    assert "none of its fields can change" in told(site, "ml-1", "mpi")
    site.gone("mpijob", "ml-1", "mpi")


@pytest.mark.soak
def test_a_hundred_jobs_through_kills_of_the_operator_and_of_the_api_server(site):
    draw, right, total = random.Random(7), 0, 100
    rounds = [list(range(at, min(at + 4, total))) for at in range(0, total, 4)]
    for number, jobs in enumerate(rounds):
        made = []
        for job in jobs:
            kind = draw.choice(list(MADE))
            place, name = f"ml-{draw.randrange(len(LAYOUTS))}", f"job-{job}"
            site.cluster.apply(MADE[kind](place, name))
            made.append((kind, place, name))
        if number % 3 == 1:
            time.sleep(draw.uniform(0.0, 4.0))
            site.advisor.kill()
            site.advisor.start(*QUICK)
        if number % 5 == 2:
            time.sleep(draw.uniform(0.0, 4.0))
            site.cluster.kill_api_server()
            site.cluster.start_api_server()
        for kind, place, name in made:
            right += checked(site, kind, place, name)
        for kind, place, name in made:
            site.gone(kind, place, name)
    assert right == total
