"""A job that is to be made: what every kind of jobs needs to write the object that starts a launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mofa_model.launch import on_nodes

MOUNTED: Final = "/etc/mofa"
"""Where files of a launch are in its pods."""


_SHARED: Final = "/dev/shm"  # noqa: S108 - where processes of a pod share memory, 64 MiB by default


@dataclass(frozen=True, kw_only=True, slots=True)
class NewJob:
    """A launch on its nodes."""

    name: str
    """Name of the object."""
    nodes: int
    """Pods, one a node. [1]"""
    gpus: int
    """GPUs of each. [1]"""
    resource: str
    """The name of its GPUs among resources: one of `pods.GPU`."""
    image: str
    """Image with the trainer."""
    annotations: Mapping[str, str]
    """Annotations of the object."""
    words: tuple[str, ...]
    """The trainer's program and its arguments, behind what starts it."""
    environment: Mapping[str, str]
    """Variables of the trainer."""
    files: Mapping[str, str]
    """Files that its arguments name, with their text."""
    starter: tuple[str, ...]
    """What starts the program: torchrun, or another with its options."""

    def head(self, api_version: str, kind: str) -> dict[str, Any]:
        """The beginning of its object."""
        metadata = {"name": self.name} | (
            {"annotations": dict(self.annotations)} if self.annotations else {}
        )
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata}

    def command(self, *, rank: str = "", address: str = "", port: str = "29500") -> list[str]:
        """What a pod runs where its nodes meet at an address; without one its starter is told by variables."""
        told = (
            on_nodes(self.starter, self.nodes, self.gpus, rank=rank, address=address, port=port)
            if address
            else []
        )
        return [*self.starter, *(f"{option}={value}" for option, value in told), *self.words]

    def variables(self) -> list[dict[str, str]]:
        """Variables as a container has them."""
        return [{"name": name, "value": value} for name, value in self.environment.items()]

    def limits(self) -> dict[str, Any]:
        """Resources of a node."""
        return {"limits": {self.resource: str(self.gpus)}}

    def pod(
        self, container: str, command: list[str] | None, args: list[str] | None
    ) -> dict[str, Any]:
        """A pod of one container, with shared memory for its processes."""
        told = {key: words for key, words in (("command", command), ("args", args)) if words}
        mounts = [{"name": "shared-memory", "mountPath": _SHARED}]
        volumes: list[dict[str, Any]] = [
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}}
        ]
        if self.files:
            mounts.append({"name": "launch", "mountPath": MOUNTED})
            volumes.append({"name": "launch", "configMap": {"name": f"{self.name}-launch"}})
        made = {"name": container, "image": self.image, **told, "env": self.variables()}
        return {
            "containers": [{**made, "resources": self.limits(), "volumeMounts": mounts}],
            "volumes": volumes,
        }

    def configs(self) -> list[dict[str, Any]]:
        """The ConfigMap with its files, where it has any."""
        head = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{self.name}-launch"},
        }
        return [{**head, "data": dict(self.files)}] if self.files else []
