"""A Workload of Kueue as a type: its pods, how many there is room for, and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from mofa_model.kinds import WORKLOAD, Body, job_kind
from mofa_model.kinds.kind import ConditionedStatus
from mofa_model.kinds.pods import PodSpec, PodTemplate
from mofa_model.kinds.shape import Many, Shape, Tally, Text, at, glance, items, text_of, under
from mofa_operator.keys import Key
from mofa_operator.objects import LiveObject

PENDING: Final = "Pending"
"""The state of a check that was not answered yet."""


class _Check(Shape):
    name: Text = ""
    state: Text = ""
    retry_count: Tally = 0


class _Assigned(Shape):
    name: Text = ""
    count: Tally | None = None


class _Status(ConditionedStatus):
    admission_checks: Many[_Check] = ()
    assigned: Many[_Assigned] = under((), "admission", "podSetAssignments")


class Pods(Shape):
    """A set of pods of a Workload."""

    name: Text = ""
    count: Tally = 1
    template: PodTemplate = PodTemplate()

    @property
    def spec(self) -> PodSpec:
        """The spec of one pod of the set: all are alike."""
        return self.template.spec

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations that the pods have already."""
        return (self.template.metadata and self.template.metadata.annotations) or {}


class _Spec(Shape):
    pod_sets: Many[Pods] = ()


@dataclass(frozen=True)
class LiveWorkload(LiveObject):
    """A Workload as it stands."""

    @cached_property
    def _status(self) -> _Status:
        return glance(_Status, self.body.get("status"))

    @cached_property
    def pods(self) -> tuple[Pods, ...]:
        """Its sets of pods, as they were asked for."""
        return glance(_Spec, self.body.get("spec")).pod_sets

    @property
    def reserved_at(self) -> float | None:
        """Since when there is room for it, in seconds of the epoch; None = there is none. [s]"""
        status = self._status
        over = status.since("Finished") is not None or status.since("Evicted") is not None
        return None if over or self.is_going else status.since("QuotaReserved")

    @cached_property
    def waits_for(self) -> tuple[str, ...]:
        """Names of the checks that were not answered yet."""
        return tuple(
            check.name for check in self._status.admission_checks if check.state == PENDING
        )

    @property
    def retries(self) -> int:
        """How often a check has sent it back, by Kueue's count. [1]"""
        return max((check.retry_count for check in self._status.admission_checks), default=0)

    @property
    def job(self) -> Key | None:
        """The job that it was made for, where it is of a kind that we know."""
        made_by = next(
            (
                owner
                for owner in items(at(self.body, "metadata", "ownerReferences"))
                if owner.get("controller")
            ),
            {},
        )
        kind = job_kind(made_by.get("apiVersion"), made_by.get("kind"))
        return None if kind is None else Key(kind, self.key.namespace, text_of(made_by.get("name")))

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Pods that there is room for, by set. [1]"""
        room = {
            assigned.name: assigned.count
            for assigned in self._status.assigned
            if assigned.count is not None
        }
        return {pods.name: room.get(pods.name, pods.count) for pods in self.pods}

    @property
    def share(self) -> tuple[int, int]:
        """Pods with GPUs that there is room for, and that were asked for. [1]"""
        asking = [pods for pods in self.pods if asks_for_gpus(pods)] or list(self.pods)
        return sum(self.counts[pods.name] for pods in asking), sum(pods.count for pods in asking)

    @property
    def admitted(self) -> Body:
        """The Workload as a job of the size that there is room for."""
        sets = [
            {
                **pod_set,
                "count": self.counts.get(text_of(pod_set.get("name")), pod_set.get("count")),
            }
            for pod_set in items(at(self.body, "spec", "podSets"))
        ]
        without = [
            {key: value for key, value in pod_set.items() if key != "minCount"} for pod_set in sets
        ]
        return {
            "apiVersion": WORKLOAD.api_version,
            "kind": WORKLOAD.kind,
            "spec": {"podSets": without},
        }


def asks_for_gpus(pods: Pods) -> bool:
    """Whether pods ask for GPUs."""
    return any(container.gpus for container in pods.spec.containers) or bool(
        pods.spec.resource_claims
    )
