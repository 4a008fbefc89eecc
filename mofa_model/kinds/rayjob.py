"""RayJob, of KubeRay: a Ray cluster, and the command that it runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from textwrap import indent
from typing import Any, Final

from mofa_model.annotations import SIZE
from mofa_model.errors import InputError
from mofa_model.kinds.batch import JOB_NAME
from mofa_model.kinds.demand import Demand, PodSet, total, unresolved
from mofa_model.kinds.kind import (
    MOUNTED,
    Counter,
    JobKind,
    NewJob,
    Observation,
    PodLabels,
    RestartLimit,
    Sign,
)
from mofa_model.kinds.patches import Operation, pointer, same, test
from mofa_model.kinds.pods import CLAIMED, MAPPED, split
from mofa_model.kinds.raycluster import RAY_CLUSTER, RaySpec
from mofa_model.kinds.shape import (
    NO_OBJECTS,
    Body,
    Moment,
    Reference,
    ReferencedObjects,
    Shape,
    Tally,
    Text,
    at,
    glance,
    items,
    part,
    read,
    text_of,
    under,
)
from mofa_model.launch import TORCHRUN, rewritten_line
from mofa_model.spec.recovery_classes import RecoveryClass

_CLUSTER: Final = "ray.io/cluster"
"""Label of a cluster's pods, by which a job that has none of its own selects one."""
_NAMED_CLUSTER: Final = "(.+?)(?:(?:-raycluster)?-[bcdfghjklmnpqrstvwxz2456789]{5})?"
"""Name of a job in that of its cluster, to which KubeRay adds five letters of Kubernetes' own.

Source: GenerateRayClusterName of KubeRay 1.4 and 1.5, which puts no name of the job on pods, and
rand.String of k8s.io/apimachinery; releases before 1.3 added "-raycluster-" and the letters.
"""
_DRIVER: Final = "start_nodes.py"
_STARTS: Final = '''\
"""Starts torchrun on every node of a Ray cluster: start_nodes.py NODES GPUS PROGRAM ARGUMENT..."""

import subprocess
import sys

import ray

nodes, gpus, words = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
ray.init()


@ray.remote(num_gpus=gpus)
class Node:
    def address(self):
        return ray.util.get_node_ip_address()

    def run(self, rank, address):
        meet = [f"--node-rank={rank}", f"--master-addr={address}", "--master-port=29500"]
        command = ["torchrun", f"--nnodes={nodes}", f"--nproc-per-node={gpus}", *meet, *words]
        return subprocess.run(command).returncode


every = [Node.remote() for _ in range(nodes)]
first = ray.get(every[0].address.remote())
runs = [node.run.remote(rank, first) for rank, node in enumerate(every)]
sys.exit(max(abs(code) for code in ray.get(runs)))
'''


class _Spec(Shape):
    entrypoint: Text = ""
    cluster: RaySpec | None = under(None, "rayClusterSpec")
    chosen: Text = under("", "clusterSelector", _CLUSTER)


class _Status(Shape):
    job_deployment_status: Text = ""
    job_status: Text = ""
    end_time: Moment = None
    failed: Tally = 0
    ready: Tally = under(0, "rayClusterStatus", "readyWorkerReplicas")
    desired: Tally = under(0, "rayClusterStatus", "desiredWorkerReplicas")


class RayJob(JobKind):
    """Its containers start Ray; its entrypoint says what is trained. It counts failures."""

    def pod_sets(self, spec: Body) -> list[PodSet]:
        """The pods of its own cluster."""
        cluster = read(_Spec, spec).cluster
        return [] if cluster is None else cluster.pod_sets("spec.rayClusterSpec")

    def demand(self, spec: Body, referenced: ReferencedObjects = NO_OBJECTS) -> Demand:
        """The pods of its own or selected cluster, and the words of its entrypoint."""
        job, demand = read(_Spec, spec), super().demand(spec, referenced)
        if job.cluster is None and job.chosen:
            reference = Reference(RAY_CLUSTER, job.chosen)
            where = f"spec.clusterSelector[{_CLUSTER}]"
            cluster = referenced.spec(reference)
            if cluster is None:
                demand = unresolved(demand, reference, where)
            else:
                pod_sets = read(RaySpec, cluster, str(reference)).pod_sets(str(reference))
                demand = total(pod_sets, referenced, pods_path=where)
        words = split([job.entrypoint])
        return replace(demand, words=words, words_path="spec.entrypoint") if words else demand

    def observed(self, body: Body, now: float) -> Observation:
        """Its deployment, and how many workers are ready."""
        status = glance(_Status, body.get("status"))
        phase, is_whole = status.job_deployment_status, status.ready >= status.desired
        ended = status.end_time if phase in {"Complete", "Failed"} else None
        return Observation(
            counters={
                "RayJob.failed": Counter(value=status.failed, recovery_class=RecoveryClass.JOB)
            },
            signs=(Sign(at=ended, recovery_class=RecoveryClass.JOB),)
            if ended is not None and phase == "Failed"
            else (),
            suspended=now if phase in {"Suspending", "Suspended"} else None,
            ready=is_whole and status.job_status == "RUNNING" if phase else None,
            drop=RecoveryClass.POD,
            ended=ended,
        )

    def manifests(self, job: NewJob) -> list[dict[str, Any]]:
        """A head without GPUs, a worker a node, and a driver that starts torchrun on each."""
        if job.starter != TORCHRUN:
            raise InputError(
                f"a RayJob starts torchrun, not {job.starter[0]}; make a JobSet or a PyTorchJob"
            )
        job = replace(job, files={**job.files, _DRIVER: _STARTS})
        worker = {"spec": job.pod("ray-worker", None, None)}
        head = {"spec": job.pod("ray-head", None, None)}
        for container in head["spec"]["containers"]:
            del container["resources"]
        sizes = dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), job.nodes)
        group = {"groupName": "gpu", **sizes, "rayStartParams": {}, "template": worker}
        words = ["python", f"{MOUNTED}/{_DRIVER}", str(job.nodes), str(job.gpus), *job.words]
        spec = {
            "entrypoint": shlex.join(words),
            "shutdownAfterJobFinishes": True,
            "backoffLimit": self.restarts_of(job),
            "rayClusterSpec": {
                "headGroupSpec": {"rayStartParams": {"num-gpus": "0"}, "template": head},
                "workerGroupSpecs": [group],
            },
        }
        return [{**job.head(self.api_version, self.kind), "spec": spec}, *job.configs()]

    def states_size(self, spec: Body) -> bool:
        """Whether a group of its workers has pods, or its head asks for GPUs."""
        cluster = read(_Spec, spec).cluster
        if cluster is None:
            return True
        on_head = any(container.gpus for container in cluster.head.spec.containers)
        return on_head or any(group.replicas for group in cluster.workers)

    def gpus_per_node(self, spec: Body) -> int:
        """GPUs of one worker, of the largest group; 0 where the cluster has no workers. [1]"""
        cluster = read(_Spec, spec).cluster
        pods = [group.template.spec for group in cluster.workers] if cluster is not None else []
        return max((sum(container.gpus for container in pod.containers) for pod in pods), default=0)

    def size_patch(
        self, body: Body, nodes: int, gpus: int, resource: str, arguments: Sequence[str]
    ) -> list[Operation]:
        """Workers, GPUs of each, and the layout in its entrypoint.

        KubeRay makes its cluster only once it is resumed.
        """
        path = ("spec", "rayClusterSpec", "workerGroupSpecs")
        groups = items(at(body, *path))
        if len(groups) != 1:
            raise InputError(
                f"{'.'.join(path)}: holds {len(groups)} groups, and one would be right for a job "
                "whose size is chosen"
            )
        old_group, template = groups[0], part(groups[0], "template")
        pods = part(template, "spec")
        containers = items(pods.get("containers"))
        if not containers:
            raise InputError(f"{'.'.join(path)}[0].template: has no container that starts Ray")
        if gpus != self.gpus_per_node(part(body, "spec")):
            resources = part(containers[0], "resources")
            limits = {**part(resources, "limits"), resource: str(gpus)}
            containers[0] = {**containers[0], "resources": {**resources, "limits": limits}}
        sizes = dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), nodes)
        group = {
            **old_group,
            **sizes,
            "template": {**template, "spec": {**pods, "containers": containers}},
        }
        place = pointer(*path, 0)
        return [
            test(place, old_group),
            {"op": "replace", "path": place, "value": group},
            *self.launch_patch(body, arguments, ""),
        ]

    def pod_selector(self, body: Body) -> str:
        """The label of the pods of the Job that submits the entrypoint; that Job has the
        RayJob's name.
        """
        return f"{JOB_NAME}={text_of(at(body, 'metadata', 'name'))}"

    def launch_patch(
        self,
        body: Body,
        arguments: Sequence[str],
        steps: str,
        referenced: ReferencedObjects = NO_OBJECTS,
    ) -> list[Operation]:
        """The patch that writes the arguments into the entrypoint."""
        del steps, referenced
        old_line, path = read(_Spec, body.get("spec")).entrypoint, "/spec/entrypoint"
        if not old_line.strip():
            raise InputError(
                "spec.entrypoint: is missing; there is nothing to add the arguments to"
            )
        new_line = rewritten_line(old_line, arguments)
        if new_line == old_line:
            return []
        return [test(path, old_line), {"op": "replace", "path": path, "value": new_line}]


_CLUSTERS = ("variables.old.rayClusterSpec", "variables.new.rayClusterSpec")
_GROUPS = [f"{cluster}.workerGroupSpecs" for cluster in _CLUSTERS]
_GROUP = [f"{groups}[0]" for groups in _GROUPS]
_TEMPLATE = [f"{group}.template" for group in _GROUP]
_POD = [f"{template}.spec" for template in _TEMPLATE]
RAY_JOB = RayJob(
    "ray.io", "v1", "RayJob", "rayjobs",
    restart_limit=RestartLimit(path=("backoffLimit",), ends_at=False, can_change=True),
    others=("v1alpha1",),
    names=(CLAIMED, MAPPED, "clusterSelector"),
    pods_path="spec.rayClusterSpec.workerGroupSpecs[].template",
    arguments_note="`entrypoint`: words of the layout are replaced, every other character of the "
    "line stays",
    changed_field="entrypoint",
    size_rule=f"""\
variables.before[?"{SIZE}"].hasValue()
&& {same("variables.old", "variables.new", "rayClusterSpec", "entrypoint")}
&& {same(*_CLUSTERS, "workerGroupSpecs")}
&& {_GROUPS[0]}.size() == 1 && {_GROUPS[1]}.size() == 1
&& {_GROUPS[0]}[0].?replicas.orValue(0) == 0
&& {same(*_GROUP, "replicas", "minReplicas", "maxReplicas", "template")}
&& {same(*_TEMPLATE, "spec")}
&& {same(*_POD, "containers")}
&& {_POD[0]}.containers.map(c, c.name) == {_POD[1]}.containers.map(c, c.name)
&& {_POD[1]}.containers.all(c, {_POD[0]}.containers.exists(o, o.name == c.name
{indent("&& " + same("o", "c", "resources"), "  ")}))""",
    labels=PodLabels(job=_CLUSTER, pattern=_NAMED_CLUSTER, owner=RAY_CLUSTER.kind),
)  # fmt: skip
