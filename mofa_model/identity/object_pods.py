"""The pods of an object, with those of its runtime, and what their containers say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from mofa_model.identity.commands import (
    Contents,
    PlacedVariable,
    TextFile,
    merged,
    read_container,
    read_text,
)
from mofa_model.identity.devices import asks
from mofa_model.identity.pods import (
    PodForm,
    WrittenContainer,
    count_of,
    pods_of,
    trains,
)
from mofa_model.identity.secret_words import is_secret
from mofa_model.kinds import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME
from mofa_model.kinds.shape import Reference, ReferencedObjects, part, text_of

ConfigMaps = Mapping[str, Mapping[str, Any]]
"""Data of the namespace's ConfigMaps that may be read, by name."""
RUNTIMES: Final = frozenset({TRAINING_RUNTIME.kind, CLUSTER_TRAINING_RUNTIME.kind})
"""Kinds of training runtimes, which hold the pods of TrainJobs."""


def pods_of_object(
    body: Mapping[str, Any], spec: Mapping[str, Any], referenced: ReferencedObjects
) -> list[PodForm]:
    """The pods of an object; of a TrainJob those of its runtime, with its own section on top."""
    kind, count = text_of(body.get("kind")), "spec.trainer.numNodes"
    if kind in RUNTIMES:
        nodes = part(spec, "mlPolicy").get("numNodes")
        return _counted(pods_of(spec), nodes, "spec.mlPolicy.numNodes")
    if kind != "TrainJob":
        return pods_of(spec)
    reference = runtime_of(spec)
    runtime = referenced.spec(reference) if reference.name else None
    trainer = part(spec, "trainer")
    own = {key: trainer[key] for key in ("image", "command", "args", "env") if trainer.get(key)}
    if trainer.get("resourcesPerNode"):
        own["resources"] = trainer["resourcesPerNode"]
    base = [] if runtime is None else pods_of(runtime, f"{reference}: spec")
    nodes = trainer.get("numNodes")
    nodes = part(runtime, "mlPolicy").get("numNodes") if nodes is None else nodes
    pods = _counted(base, nodes, count)
    at = next((at for at, pod in enumerate(pods) if trains(pod)), None)
    if at is None:
        whole = count_of(1 if nodes is None else nodes)
        pods.append(PodForm(where="spec", spec={"containers": []}, count=whole, counted=count))
        at = len(pods) - 1
    if own or not pods[at].containers:
        pods[at] = _with_trainer(pods[at], own)
    return pods


def _with_trainer(pod: PodForm, own: Mapping[str, Any]) -> PodForm:
    """A pod with a TrainJob's own section as its container."""
    rows = pod.spec.get("containers") or [{}]
    at = next((at for at, step in enumerate(rows) if step.get("name") == "node"), 0)
    env = [*(rows[at].get("env") or []), *(own.get("env") or [])]
    changed = {**rows[at], **own, **({"env": env} if env else {})}
    others = [row for number_, row in enumerate(rows) if number_ != at]
    return replace(pod, spec={**pod.spec, "containers": [changed, *others]})


def _counted(pods: Sequence[PodForm], nodes: object, where: str) -> list[PodForm]:
    """Pods of a runtime; those of the trainer's nodes are as many as its policy says."""
    if nodes is None:
        return list(pods)
    return [
        replace(pod, count=count_of(nodes), counted=where) if trains(pod) else pod for pod in pods
    ]


def speaking_pods(pod_forms: Sequence[PodForm]) -> list[PodForm]:
    """The pods that show what an object does: those with devices, and those that launch the
    program.

    A launcher of MPI has no devices of its own, and starts the program on those that have.
    """
    computing = [pod for pod in pod_forms if asks(pod) or pod.spec.get("resourceClaims")]
    launchers = [
        pod
        for pod in pod_forms
        if re.search(r"[Ll]auncher|[Mm]aster", pod.where) and pod not in computing
    ]
    return [*launchers, *computing] if computing else list(pod_forms)


def lacks_runtime(spec: Mapping[str, Any], referenced: ReferencedObjects) -> bool:
    """Whether a TrainJob's runtime, which may ask for its devices, is not here."""
    reference = runtime_of(spec)
    return bool(reference.name) and referenced.spec(reference) is None


def runtime_of(spec: Mapping[str, Any]) -> Reference:
    """The runtime that a TrainJob names; its name is empty where it names none."""
    ref = part(spec, "runtimeRef")
    of = TRAINING_RUNTIME if ref.get("kind") == TRAINING_RUNTIME.kind else CLUSTER_TRAINING_RUNTIME
    return Reference(of, text_of(ref.get("name")))


class ContainerReader:
    """Reads containers, with the ConfigMaps that their pods name."""

    def __init__(self, config_maps: ConfigMaps) -> None:
        self._maps = config_maps

    def pod(self, pod_form: PodForm) -> Contents:
        """The settings and commands of a pod's main containers."""
        return merged([self._container(pod_form, container) for container in pod_form.containers])

    def prepares(self, pod_form: PodForm) -> Contents:
        """The settings and commands of a pod's init containers."""
        return merged([self._container(pod_form, container) for container in pod_form.prepares])

    def entrypoint(self, spec: Mapping[str, Any]) -> list[Contents]:
        """What the entrypoint of a RayJob says, with its runtime environment."""
        line = spec.get("entrypoint")
        if not isinstance(line, str):
            return []
        text = text_of(spec.get("runtimeEnvYAML"))
        files: dict[str, TextFile] = {}
        if text:
            files["runtimeEnvYAML"] = TextFile("runtimeEnvYAML", text, "spec.runtimeEnvYAML")
        pods = pods_of(spec)
        for pod in pods:
            for container in pod.containers:
                files |= self._files(pod, container)
        variables = {
            variable.name: variable
            for pod in pods
            for container in pod.containers
            for variable in _variables(pod, container)
        }
        return [read_text(line, "spec.entrypoint", variables, files)]

    def _container(self, pod: PodForm, container: WrittenContainer) -> Contents:
        body = container.body
        variables = {variable.name: variable for variable in _variables(pod, container)}
        for name, key, value in self._from_maps(body):
            variables.setdefault(key, PlacedVariable(key, value, f"ConfigMap/{name}: data.{key}"))
        return read_container(
            body.get("command"),
            body.get("args"),
            container.where,
            variables,
            self._files(pod, container),
        )

    def _from_maps(self, body: Mapping[str, Any]) -> list[tuple[str, str, str]]:
        """Variables of a container that stand in ConfigMaps: the map's name, key, value."""
        variables: list[tuple[str, str, str]] = []
        rows = body.get("envFrom")
        for row in rows if isinstance(rows, list) else []:
            name = text_of(part(row, "configMapRef").get("name")) if isinstance(row, dict) else ""
            variables += [
                (name, str(key), value)
                for key, value in self._maps.get(name, {}).items()
                if isinstance(value, str)
            ]
        return variables

    def _files(self, pod: PodForm, container: WrittenContainer) -> dict[str, TextFile]:
        files: dict[str, TextFile] = {}
        for path, name, only in pod.mounts(container):
            for key, value in self._maps.get(name, {}).items():
                if isinstance(value, str) and (not only or only == key):
                    where = f"ConfigMap/{name}: data.{key}"
                    files[path if only else f"{path}/{key}"] = TextFile(str(key), value, where)
        return files


def _variables(pod: PodForm, container: WrittenContainer) -> list[PlacedVariable]:
    return [
        PlacedVariable(name, value, where)
        for name, value, where in container.variables(pod.annotations)
        if not is_secret(name, value)
    ]
