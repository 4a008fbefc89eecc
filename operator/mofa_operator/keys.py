"""Kinds of objects that the operator knows, and which object is meant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mofa_model.kinds import KINDS, WORKLOAD, Kind, job_kind
from mofa_model.kinds.shape import Body, at, text_of


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Which object is meant."""

    kind: Kind
    """Its kind."""
    namespace: str
    """Its namespace; empty for cluster-scoped kinds."""
    name: str
    """Its name."""

    def __hash__(self) -> int:
        """By plural, namespace and name, which is faster than by all fields of the kind."""
        return hash((self.kind.plural, self.namespace, self.name))

    @property
    def full_name(self) -> str:
        """Namespace/name, as accounts and series name a job; without a namespace the name alone."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def __str__(self) -> str:
        """As logs show it."""
        return f"{self.kind.kind} {self.full_name}"


TRAINING_JOB: Final = Kind("mofa.dev", "v1alpha1", "TrainingJob", "trainingjobs")
CLUSTER_PROFILE: Final = Kind(
    "mofa.dev", "v1alpha1", "ClusterProfile", "clusterprofiles", namespaced=False
)
ADVISOR_POLICY: Final = Kind("mofa.dev", "v1alpha1", "AdvisorPolicy", "advisorpolicies")
FAILURE_LEDGER: Final = Kind(
    "mofa.dev", "v1alpha1", "FailureLedger", "failureledgers", namespaced=False
)
NODE: Final = Kind("", "v1", "Node", "nodes", namespaced=False)
NAMESPACE: Final = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
CONFIG_MAP: Final = Kind("", "v1", "ConfigMap", "configmaps")
ADMISSION_CHECK: Final = Kind(
    "kueue.x-k8s.io",
    "v1beta2",
    "AdmissionCheck",
    "admissionchecks",
    namespaced=False,
    others=("v1beta1",),
)

OURS: Final = (TRAINING_JOB, CLUSTER_PROFILE, ADVISOR_POLICY, FAILURE_LEDGER)
"""Kinds that we define."""
NEEDED: Final = (NODE, *OURS)
"""Kinds that every decision needs."""
JOBS: Final = (TRAINING_JOB, *KINDS)
"""Everything that can be advised."""


def watched(names: Iterable[str], *, checks: bool = False) -> tuple[Kind, ...]:
    """Kinds that are watched, in the order in which they are first listed; `names` are settings.

    Kinds that decisions rest on come before jobs. `checks` adds Kueue's AdmissionChecks and
    Workloads.

    >>> [kind.kind for kind in watched(["JobSet"])][-3:]
    ['Namespace', 'JobSet', 'TrainingJob']
    """
    kinds = {kind.setting: kind for kind in KINDS}
    jobs = [kinds[name] for name in names]
    kueue_kinds = (*({WORKLOAD} - set(jobs)), ADMISSION_CHECK) if checks else ()
    cluster_kinds = (NODE, FAILURE_LEDGER, CLUSTER_PROFILE, ADVISOR_POLICY, NAMESPACE)
    return (*cluster_kinds, *jobs, TRAINING_JOB, *kueue_kinds)


def key_of(kind: Kind, body: Body) -> Key:
    """The key of an object."""
    namespace, name = at(body, "metadata", "namespace"), at(body, "metadata", "name")
    return Key(kind, text_of(namespace) if kind.namespaced else "", text_of(name))


def ledger_of(profile: str) -> Key:
    """The FailureLedger of a ClusterProfile."""
    return Key(FAILURE_LEDGER, "", profile)


def target_of(namespace: str, api_version: str, kind: str, name: str) -> Key | None:
    """The job of an existing kind that a targetRef names; None where it names none."""
    known_kind = job_kind(api_version, kind)
    return Key(known_kind, namespace, name) if known_kind is not None and name else None


def kind_of(api_version: str, kind: str) -> Kind | None:
    """The kind that a manifest or a targetRef names; None where it is none that can be advised."""
    group = api_version.rpartition("/")[0]
    if (group, kind) == (TRAINING_JOB.group, TRAINING_JOB.kind):
        return TRAINING_JOB
    return job_kind(api_version, kind)
