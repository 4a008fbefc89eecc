"""A kind of jobs: all that is particular to it has its place in one subclass of `JobKind`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mofa_model.errors import InputError
from mofa_model.kinds.beside import NOTHING, Beside, Kind
from mofa_model.kinds.demand import Demand, PodSet, total
from mofa_model.kinds.devices import CLAIMED, MAPPED
from mofa_model.kinds.new_job import NewJob
from mofa_model.kinds.observation import Observation
from mofa_model.kinds.patches import Operation
from mofa_model.kinds.shape import Body
from mofa_model.spec.recovery_classes import RecoveryClass


@dataclass(frozen=True, kw_only=True, slots=True)
class PodLabels:
    """Labels of a job's pods, by which kube-state-metrics tells whose they are."""

    job: str
    """Name of the job."""
    attempt: str = ""
    """How often the whole job was made anew; empty = nobody says."""
    slot: tuple[str, ...] = ()
    """Together, the place that a pod fills; empty = its name says it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class JobKind(Kind):
    """A kind of jobs that people already have.

    Reading is total but for numbers of replicas and GPUs that cannot be: those raise an `InputError`.
    """

    word: str
    """What it is called in file names, and in the admission policy; lower case."""
    setting: str
    """What it is called in settings: `--kinds`, and `rbac.kinds` of the chart."""
    title: str
    """What it is called in texts."""
    witness: bool = True
    """Whether it tells of failures; one whose pods another kind tells of better does not."""
    suspend: tuple[str, ...] = ("suspend",)
    """Where its spec says that it waits; empty = it cannot wait."""
    names: tuple[str, ...] = (CLAIMED, MAPPED)
    """Fields of its spec by which it names objects that its pods depend on."""
    holds: str
    """Where its pods stand, for messages."""
    place: str
    """Where launch arguments are written while it waits, for the documents."""
    changes: str = ""
    """The field of its spec in which they are; empty = nothing can be changed once it was made."""
    admits: str = ""
    """What else must hold there for the admission policy, as CEL over variables.old and variables.new."""
    stamped: tuple[tuple[str, ...], ...] = ()
    """Pod templates of its spec to which a webhook of its project gives an empty creation time, whatever anybody changes."""
    labels: PodLabels | None = None
    """Labels of its own pods; None = pods are those of another kind, or not told apart."""

    def pod_sets(self, spec: Body) -> list[PodSet]:
        """Its pods, those that are alike together."""
        raise NotImplementedError

    def demand(self, spec: Body, beside: Beside = NOTHING) -> Demand:
        """GPUs, launch command and node selector; `beside` holds what it or its pods name, as far as that is here."""
        return total(self.pod_sets(spec), beside, holds=self.holds)

    def observed(self, body: Body, now: float) -> Observation:
        """What an object says of its life, by what its public API states alone. `now` [s]"""
        raise NotImplementedError

    def shown(self, body: Body) -> frozenset[RecoveryClass]:
        """Recovery classes that an object can show."""
        del body
        return frozenset({RecoveryClass.POD, RecoveryClass.JOB})

    def reported(self, body: Body) -> tuple[float | None, Observation]:
        """Tokens per second, and steps, where the trainer reports them to the object's status. [1/s]"""
        del body
        return None, Observation()

    def made(self, job: NewJob) -> list[dict[str, Any]]:
        """Objects that start a new job, as manifests have them."""
        del job
        raise InputError(f"a {self.kind} cannot be written here; make one of another kind")

    def written(self, body: Body, arguments: Sequence[str], steps: str) -> list[Operation]:
        """The patch that writes arguments, and the checkpoint interval in steps; empty where they stand, an `InputError` where
        they cannot be written.
        """
        del body, arguments, steps
        raise InputError(
            f"nothing of a {self.kind} of {self.group} can be changed once it was made"
        )
