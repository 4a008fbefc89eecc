"""PyTorchJob, of Kubeflow's training operator: a master and workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Final

from pydantic import Field

from mofa_model.errors import InputError
from mofa_model.kinds.fence import same
from mofa_model.kinds.kind import JobKind, PodLabels
from mofa_model.kinds.observation import Conditioned, Observation, Sign
from mofa_model.kinds.patches import Operation, pointer, replaced
from mofa_model.kinds.pods import Demand, Pods, PodTemplate, total
from mofa_model.kinds.shape import Body, Count, Named, Shape, Tally, glance, read
from mofa_model.spec.recovery_classes import RecoveryClass

_CONTAINER: Final = "pytorch"
"""The trainer's container in a PyTorchJob."""


class ReplicaSpec(Shape):
    """Pods of one role."""

    replicas: Count = 1
    template: PodTemplate = PodTemplate()


class PyTorchJobSpec(Shape):
    """What a PyTorchJob shall be."""

    pytorch_replica_specs: Named[ReplicaSpec] = Field(default_factory=dict)


class ReplicaStatus(Shape):
    """How many pods of a role are how far."""

    active: Tally = 0
    succeeded: Tally = 0


class PyTorchJobStatus(Conditioned):
    """What became of a PyTorchJob."""

    replica_statuses: Named[ReplicaStatus] = Field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class PyTorchJob(JobKind):
    """Says when it restarts, and how many pods of each role run."""

    def demand(self, spec: Body) -> Demand:
        """The pods of all roles."""
        roles = read(PyTorchJobSpec, spec).pytorch_replica_specs.values()
        return total(Pods(count=one.replicas, template=one.template) for one in roles)

    def observed(self, body: Body, now: float) -> Observation:
        """Its conditions, and how many pods run."""
        del now
        spec, status = glance(PyTorchJobSpec, body.get("spec")), glance(PyTorchJobStatus, body.get("status"))
        wanted = sum(one.replicas for one in spec.pytorch_replica_specs.values())
        running = sum(one.active + one.succeeded for one in status.replica_statuses.values())
        again = status.since("Restarting")
        return status.observation(
            done="Succeeded",
            ready=running >= wanted if status.replica_statuses else None,
            drop=RecoveryClass.POD,
            signs=() if again is None else (Sign(at=again, level=RecoveryClass.POD),),
        )

    def written(self, body: Body, arguments: Sequence[str], steps: str) -> list[Operation]:
        """The args of its containers called pytorch."""
        del steps
        made, found = list[Operation](), False
        for role, replica in read(PyTorchJobSpec, body.get("spec")).pytorch_replica_specs.items():
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
