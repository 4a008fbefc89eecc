"""Kinds of objects that the operator knows, and which object is meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """A kind of objects, as the API server names it."""

    group: str
    """API group; empty for the core group."""
    version: str
    """Version of the group."""
    kind: str
    """The singular, in CamelCase."""
    plural: str
    """The resource in URLs."""
    namespaced: bool = True
    """Whether its objects live in namespaces."""

    @property
    def api_version(self) -> str:
        """As manifests write it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """As kubectl tells it from others of the same name.

        >>> TRAINING_JOB.resource
        'trainingjobs.mofa.dev'
        """
        return f"{self.plural}.{self.group}" if self.group else self.plural


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Which object is meant."""

    kind: Kind
    """Its kind."""
    namespace: str
    """Its namespace; empty for cluster-scoped kinds."""
    name: str
    """Its name."""

    def __str__(self) -> str:
        """As logs show it."""
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind.kind} {place}"


TRAINING_JOB: Final = Kind("mofa.dev", "v1alpha1", "TrainingJob", "trainingjobs")
CLUSTER_PROFILE: Final = Kind("mofa.dev", "v1alpha1", "ClusterProfile", "clusterprofiles", namespaced=False)
ADVISOR_POLICY: Final = Kind("mofa.dev", "v1alpha1", "AdvisorPolicy", "advisorpolicies")
NODE: Final = Kind("", "v1", "Node", "nodes", namespaced=False)
CONFIG_MAP: Final = Kind("", "v1", "ConfigMap", "configmaps")
JOB_SET: Final = Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
TRAIN_JOB: Final = Kind("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs")
PYTORCH_JOB: Final = Kind("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
VOLCANO_JOB: Final = Kind("batch.volcano.sh", "v1alpha1", "Job", "jobs")
RAY_JOB: Final = Kind("ray.io", "v1", "RayJob", "rayjobs")
BATCH_JOB: Final = Kind("batch", "v1", "Job", "jobs")

EXISTING: Final = (JOB_SET, TRAIN_JOB, PYTORCH_JOB, VOLCANO_JOB, RAY_JOB, BATCH_JOB)
"""Kinds of jobs that people already have; nearest to us first."""
OURS: Final = (TRAINING_JOB, CLUSTER_PROFILE, ADVISOR_POLICY)
"""Kinds that we define."""
JOBS: Final = (TRAINING_JOB, *EXISTING)
"""Everything that can be advised."""


def kind_of(api_version: str, kind: str) -> Kind | None:
    """The kind that a manifest or a targetRef names; None where it is not one of ours to know.

    >>> kind_of("jobset.x-k8s.io/v1alpha2", "JobSet") is JOB_SET
    True
    """
    group = api_version.rpartition("/")[0]
    return next((known for known in JOBS if known.group == group and known.kind == kind), None)
