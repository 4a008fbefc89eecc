"""PyTorchJob, of Kubeflow's training operator: a master and workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Any, Final

from mofa_model.errors import InputError
from mofa_model.kinds.fence import same
from mofa_model.kinds.kind import JobKind, PodLabels
from mofa_model.kinds.new_job import NewJob
from mofa_model.kinds.observation import Conditioned, Observation, Sign
from mofa_model.kinds.patches import Operation, pointer, replaced
from mofa_model.kinds.pods import Demand, PodTemplate, total
from mofa_model.kinds.shape import Body, Count, Named, Shape, Tally, glance, read, under
from mofa_model.launch import TORCHRUN
from mofa_model.spec.recovery_classes import RecoveryClass

_CONTAINER: Final = "pytorch"
"""The trainer's container in a PyTorchJob."""


class _Role(Shape):
    replicas: Count = 1
    template: PodTemplate = PodTemplate()


class _Spec(Shape):
    roles: Named[_Role] = under({}, "pytorchReplicaSpecs")


class _Pods(Shape):
    active: Tally = 0
    succeeded: Tally = 0


class _Status(Conditioned):
    roles: Named[_Pods] = under({}, "replicaStatuses")


@dataclass(frozen=True, kw_only=True, eq=False)
class PyTorchJob(JobKind):
    """Says when it restarts, and how many pods of each role run."""

    def demand(self, spec: Body) -> Demand:
        """The pods of all roles."""
        return total((one.replicas, one.template) for one in read(_Spec, spec).roles.values())

    def observed(self, body: Body, now: float) -> Observation:
        """Its conditions, and how many pods run."""
        del now
        spec, status = glance(_Spec, body.get("spec")), glance(_Status, body.get("status"))
        wanted = sum(one.replicas for one in spec.roles.values())
        running = sum(one.active + one.succeeded for one in status.roles.values())
        again = status.since("Restarting")
        return status.observation(
            done="Succeeded",
            ready=running >= wanted if status.roles else None,
            drop=RecoveryClass.POD,
            signs=() if again is None else (Sign(at=again, level=RecoveryClass.POD),),
        )

    def made(self, job: NewJob) -> list[dict[str, Any]]:
        """A master and workers, a pod a node; where they meet its operator says in variables."""
        met = {"rank": "$(PET_NODE_RANK)", "address": "$(PET_MASTER_ADDR)", "port": "$(PET_MASTER_PORT)"}
        starter, *args = job.command(
            **({} if job.starter == TORCHRUN else met)
        )  # torchrun reads these by itself
        pod = {"spec": job.pod(_CONTAINER, [starter], args)}
        roles = {"Master": 1} | ({"Worker": job.nodes - 1} if job.nodes > 1 else {})
        replicas = {
            role: {"replicas": number, "restartPolicy": "OnFailure", "template": pod}
            for role, number in roles.items()
        }
        spec = {
            "nprocPerNode": str(job.gpus),
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 3},
            "pytorchReplicaSpecs": replicas,
        }
        return [{**job.head(self.api_version, self.kind), "spec": spec}, *job.configs()]

    def written(self, body: Body, arguments: Sequence[str], steps: str) -> list[Operation]:
        """The args of its containers called pytorch."""
        del steps
        made, found = list[Operation](), False
        for role, replica in read(_Spec, body.get("spec")).roles.items():
            for number, container in enumerate(replica.template.spec.containers):
                if container.name == _CONTAINER:
                    found = True
                    path = ("spec", "pytorchReplicaSpecs", role, "template", "spec", "containers", number)
                    made += replaced(pointer(*path), container, arguments)
        if not found:
            raise InputError(f"no container is called {_CONTAINER}, as the trainer's of a PyTorchJob must be")
        return made


_OLD, _NEW = "variables.old.pytorchReplicaSpecs", "variables.new.pytorchReplicaSpecs"
PYTORCH_JOB = PyTorchJob(
    "kubeflow.org", "v1", "PyTorchJob", "pytorchjobs",
    word="pytorchjob",
    setting="PyTorchJob",
    title="PyTorchJob",
    suspend=("runPolicy", "suspend"),
    place="`args` of the containers called `pytorch`: words of the layout are replaced, all others kept",
    changes="pytorchReplicaSpecs",
    admits=f"""\
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
