"""PyTorchJob, of Kubeflow's training operator: a master and workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from textwrap import indent
from typing import Any, Final

from mofa_model.errors import InputError
from mofa_model.kinds.demand import Demand, PodSet, total
from mofa_model.kinds.kind import (
    ConditionedStatus,
    JobKind,
    NewJob,
    Observation,
    PodLabels,
    RestartLimit,
    Sign,
)
from mofa_model.kinds.patches import ARGUMENTS, Operation, pointer, replaced, same
from mofa_model.kinds.pods import Container, PodTemplate
from mofa_model.kinds.reads import readers
from mofa_model.kinds.shape import (
    NO_OBJECTS,
    Body,
    ByName,
    Count,
    ReferencedObjects,
    Shape,
    Tally,
    Whole,
    at,
    glance,
    read,
    under,
)
from mofa_model.launch import TORCHRUN
from mofa_model.spec.recovery_classes import RecoveryClass

_CONTAINER: Final = "pytorch"
"""The trainer's container in a PyTorchJob."""


class Role(Shape):
    """Pods of one role."""

    replicas: Count = 1
    template: PodTemplate = PodTemplate()


_ONLY: Final = "Master"
"""The role of which there is one, however many workers there are."""


class ElasticPolicy(Shape):
    """How many workers there may be."""

    min_replicas: Count | None = None
    max_replicas: Count | None = None


class _Spec(Shape):
    roles: ByName[Role] = under({}, "pytorchReplicaSpecs")
    processes: Whole = under(0, "nprocPerNode")
    elastic: ElasticPolicy = under(ElasticPolicy(), "elasticPolicy")
    elastic_processes: Whole = under(0, "elasticPolicy", "nProcPerNode")


def roles(
    path: str, role_by_name: Mapping[str, Role], elastic: ElasticPolicy | None = None
) -> list[PodSet]:
    """Pods of jobs that have roles; `path` is where these stand."""
    pod_sets = list[PodSet]()
    for name, role in role_by_name.items():
        pods = PodSet(
            where=f"{path}.{name}.template",
            template=role.template,
            counted=f"{path}.{name}.replicas",
            count=role.replicas,
        )
        if elastic is not None and name != _ONLY:
            pods = replace(pods, least=elastic.min_replicas, most=elastic.max_replicas)
        pod_sets.append(pods)
    return pod_sets


def _trainers(body: Body, path: tuple[str, str]) -> list[tuple[int, Container]]:
    """The containers of a role whose args are to be replaced.

    One that reads the arguments out of an annotation as well is refused: it would get them twice.
    """
    template = at(body, "spec", *path, "template")
    for reader in readers(template, ".".join(("spec", *path, "template"))):
        raise InputError(
            f"{reader.container}: its {reader.by} reads the annotation {ARGUMENTS}, and the "
            "arguments of this kind are written into args; take one of the two away"
        )
    containers = read(PodTemplate, template).spec.containers
    return [pair for pair in enumerate(containers) if pair[1].name == _CONTAINER]


class _Pods(Shape):
    active: Tally = 0
    succeeded: Tally = 0


class _Status(ConditionedStatus):
    roles: ByName[_Pods] = under({}, "replicaStatuses")


def observed(roles: Mapping[str, Role], body_status: object) -> Observation:
    """What the status of a job that has roles tells of its life."""
    status = glance(_Status, body_status)
    running = sum(pods.active + pods.succeeded for pods in status.roles.values())
    restarted = status.since("Restarting")
    return status.observation(
        ready=running >= sum(role.replicas for role in roles.values()) if status.roles else None,
        drop=RecoveryClass.POD,
        signs=() if restarted is None else (Sign(at=restarted, recovery_class=RecoveryClass.POD),),
    )


class PyTorchJob(JobKind):
    """Says when it restarts, and how many pods of each role run."""

    def pod_sets(self, spec: Body) -> list[PodSet]:
        """The pods of all roles; only the number of workers may change."""
        job = read(_Spec, spec)
        return roles("spec.pytorchReplicaSpecs", job.roles, job.elastic)

    def demand(self, spec: Body, referenced: ReferencedObjects = NO_OBJECTS) -> Demand:
        """What its pods ask for, or its processes on each node, one for each GPU."""
        job = read(_Spec, spec)
        each = job.processes or job.elastic_processes
        nodes = sum(role.replicas for role in job.roles.values()) if each else 0
        return total(
            self.pod_sets(spec), referenced, pods_path=self.pods_path, nodes=nodes, each=each
        )

    def observed(self, body: Body, now: float) -> Observation:
        """Its conditions, and how many pods run."""
        del now
        return observed(glance(_Spec, body.get("spec")).roles, body.get("status"))

    def manifests(self, job: NewJob) -> list[dict[str, Any]]:
        """A PyTorchJob of a master and workers, a pod a node.

        The training operator gives their rendezvous in environment variables.
        """
        rendezvous = {
            "rank": "$(PET_NODE_RANK)",
            "address": "$(PET_MASTER_ADDR)",
            "port": "$(PET_MASTER_PORT)",
        }
        # torchrun reads these variables by itself.
        starter, *args = job.command(**({} if job.starter == TORCHRUN else rendezvous))
        pod = {"spec": job.pod(_CONTAINER, [starter], args)}
        roles = {"Master": 1} | ({"Worker": job.nodes - 1} if job.nodes > 1 else {})
        replicas = {
            role: {"replicas": number, "restartPolicy": "OnFailure", "template": pod}
            for role, number in roles.items()
        }
        spec = {
            "nprocPerNode": str(job.gpus),
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": self.restarts_of(job)},
            "pytorchReplicaSpecs": replicas,
        }
        return [{**job.head(self.api_version, self.kind), "spec": spec}, *job.configs()]

    def launch_patch(
        self,
        body: Body,
        arguments: Sequence[str],
        steps: str,
        referenced: ReferencedObjects = NO_OBJECTS,
    ) -> list[Operation]:
        """The patch that writes arguments into the args of containers named pytorch."""
        del steps, referenced
        operations, has_trainer = list[Operation](), False
        for role in read(_Spec, body.get("spec")).roles:
            path = ("pytorchReplicaSpecs", role)
            for number, container in _trainers(body, path):
                has_trainer = True
                place = pointer("spec", *path, "template", "spec", "containers", number)
                operations += replaced(place, container, arguments)
        if not has_trainer:
            raise InputError(
                f"no container is called {_CONTAINER}, as the trainer's of a PyTorchJob must be"
            )
        return operations


_OLD, _NEW = "variables.old.pytorchReplicaSpecs", "variables.new.pytorchReplicaSpecs"
PYTORCH_JOB = PyTorchJob(
    "kubeflow.org", "v1", "PyTorchJob", "pytorchjobs",
    restart_limit=RestartLimit(path=("runPolicy", "backoffLimit"), by_pod=True),
    suspend=("runPolicy", "suspend"),
    pods_path="spec.pytorchReplicaSpecs.*.template",
    arguments_note="`args` of the containers called `pytorch`: "
    "words of the layout are replaced, all others kept",
    changed_field="pytorchReplicaSpecs",
    change_rule=f"""\
{_OLD}.all(role, role in {_NEW})
&& {_NEW}.all(role, role in {_OLD}
{indent("&& " + same(f"{_OLD}[role]", f"{_NEW}[role]", "template"), "  ")}
  && [[{_OLD}[role].template, {_NEW}[role].template]].all(pair,
{indent(same("pair[0]", "pair[1]", "spec"), "    ")}
{indent("&& " + same("pair[0].spec", "pair[1].spec", "containers"), "    ")}
    && pair[0].spec.containers.map(c, c.name) == pair[1].spec.containers.map(c, c.name)
    && pair[1].spec.containers.all(c, pair[0].spec.containers.exists(o, o.name == c.name
{indent("&& " + same("o", "c", "args"), "      ")}
      && (c.name == "{_CONTAINER}" || o.?args == c.?args)))))""",
    labels=PodLabels(job="training.kubeflow.org/job-name"),
)  # fmt: skip
