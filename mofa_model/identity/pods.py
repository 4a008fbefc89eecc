"""Pods of an object of any kind, with the containers that compute: found by their form.

Kinds of jobs that are advised have their own readers in `kinds`, which refuse what cannot be. This
one refuses nothing and knows no kind by name: placeholders of templates and unknown kinds (a
CronJob, an AppWrapper, a Workflow, a Deployment) are looked into alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from mofa_model.errors import InputError
from mofa_model.kinds.shape import part
from mofa_model.records import dataclass
from mofa_model.yaml_text import StreamReader

_DEEPEST: Final = 24
"""Most levels of an object that are read. [1]"""
_MOST: Final = 256
"""Pods of different form that are read of one object. [1]"""
_COUNTS: Final = ("replicas", "parallelism", "numOfHosts", "count")
"""Fields beside a pod template that say how many pods it makes."""
_TRAINER_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
_ANNOTATION: Final = re.compile(r"""metadata\.annotations\[['"](.+)['"]\]""")
"""One annotation of a pod as the downward API names it."""
_TEMPLATES: Final = ("template", "leaderTemplate", "workerTemplate")


@dataclass(frozen=True, kw_only=True)
class WrittenContainer:
    """A container as it was written."""

    where: str
    """Where it stands in the object."""
    body: Mapping[str, Any]

    @property
    def image(self) -> str:
        """The container's image."""
        return _text(self.body.get("image"))

    @property
    def asked(self) -> dict[str, Any]:
        """Resources that the container asks for: limits, and requests without a limit."""
        resources = self.body.get("resources")
        return {**part(resources, "requests"), **part(resources, "limits")}

    @property
    def ports(self) -> tuple[int, ...]:
        """Ports on which it listens."""
        ports = self.body.get("ports")
        rows = ports if isinstance(ports, list) else []
        numbers = [row.get("containerPort") for row in rows if isinstance(row, dict)]
        return tuple(number for number in numbers if isinstance(number, int))

    @property
    def probed(self) -> bool:
        """Whether it is asked over HTTP or gRPC whether it is ready, as servers are."""
        probes = (self.body.get(name) for name in ("readinessProbe", "livenessProbe"))
        return any(
            isinstance(probe, dict) and {"httpGet", "grpc"} & probe.keys() for probe in probes
        )

    def variables(self, annotations: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
        """Its variables with their values, and where each stands.

        A value is plain, or one of the `annotations` of its pod, by the downward API.
        """
        rows = self.body.get("env")
        for number, row in enumerate(rows if isinstance(rows, list) else []):
            if not isinstance(row, dict):
                continue
            name, place = _text(row.get("name")), f"{self.where}.env[{number}]"
            if isinstance(row.get("value"), str | int | float):
                yield name, _text(row["value"]), f"{place}.value"
            field_ = part(row, "valueFrom", "fieldRef").get("fieldPath")
            key = _ANNOTATION.fullmatch(field_) if isinstance(field_, str) else None
            if key is not None:
                yield name, _text(annotations.get(key[1])), f"{place}.valueFrom"


@dataclass(frozen=True, kw_only=True)
class PodForm:
    """Pods of one form."""

    where: str
    """Where their spec stands in the object."""
    spec: Mapping[str, Any]
    count: int | None = 1
    """How many there are; None where that is a placeholder. [1]"""
    counted: str = ""
    """The last field that says so."""
    labels: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)
    """Its annotations, which the downward API tells its containers."""

    @property
    def containers(self) -> list[WrittenContainer]:
        """Its containers."""
        return self._listed("containers")

    @property
    def prepares(self) -> list[WrittenContainer]:
        """Containers that run before the others."""
        return self._listed("initContainers")

    @property
    def selector(self) -> dict[str, str]:
        """Labels that its nodes have: by its node selector, and by an affinity with one
        alternative.
        """
        required = part(
            part(self.spec, "affinity", "nodeAffinity"),
            "requiredDuringSchedulingIgnoredDuringExecution",
        )
        labels: dict[str, str] = {}
        terms = required.get("nodeSelectorTerms")
        for term in terms if isinstance(terms, list) and len(terms) == 1 else []:
            rules = term.get("matchExpressions") if isinstance(term, dict) else None
            for rule in rules if isinstance(rules, list) else []:
                values = rule.get("values") if isinstance(rule, dict) else None
                if isinstance(values, list) and len(values) == 1:
                    labels[_text(rule.get("key"))] = _text(values[0])
        return labels | {
            str(key): _text(value) for key, value in part(self.spec, "nodeSelector").items()
        }

    def mounts(self, container: WrittenContainer) -> Iterator[tuple[str, str, str]]:
        """Folders and files of a container that are ConfigMaps: path, name, and key of one key."""
        volumes = self.spec.get("volumes")
        maps = {
            _text(volume.get("name")): _text(part(volume, "configMap").get("name"))
            for volume in (volumes if isinstance(volumes, list) else [])
            if isinstance(volume, dict) and "configMap" in volume
        }
        rows = container.body.get("volumeMounts")
        for row in rows if isinstance(rows, list) else []:
            if isinstance(row, dict) and (name := maps.get(_text(row.get("name")))):
                yield _text(row.get("mountPath")).rstrip("/"), name, _text(row.get("subPath"))

    def _listed(self, name: str) -> list[WrittenContainer]:
        rows = self.spec.get(name)
        return [
            WrittenContainer(where=f"{self.where}.{name}[{number}]", body=row)
            for number, row in enumerate(rows if isinstance(rows, list) else [])
            if isinstance(row, dict)
        ]


def pods_of(spec: Mapping[str, Any], where: str = "spec") -> list[PodForm]:
    """The pods of an object, by its spec."""
    return list(_pods_in(spec, where, 1, "", {}, 0))[:_MOST]


def with_parameters(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The spec of a workflow, with the values of parameters put in; one with several values stays.

    >>> step = {"container": {"args": ["{{workflow.parameters.n}}", "{{inputs.parameters.m}}"]}}
    >>> given = {"parameters": [{"name": "n", "value": 8}]}
    >>> with_parameters({"arguments": given, "templates": [step]})["templates"][0]["container"]
    {'args': ['8', '{{inputs.parameters.m}}']}
    """
    values: dict[str, set[str]] = {}
    for name, value in _parameters(spec, 0):
        if not _PARAMETER.search(value):
            values.setdefault(name, set()).add(value)
    single = {
        name: next(iter(values_of_one))
        for name, values_of_one in values.items()
        if len(values_of_one) == 1
    }
    filled: Mapping[str, Any] = _filled(spec, single, 0) if single else spec
    return filled


def _parameters(node: object, depth: int) -> Iterator[tuple[str, str]]:
    """Names and values of an Argo workflow's parameters, from the whole workflow and from each of
    its steps.
    """
    if depth > _DEEPEST:
        return
    for item in node if isinstance(node, list) else ():
        yield from _parameters(item, depth + 1)
    for key, inner in node.items() if isinstance(node, Mapping) else ():
        rows = part(node, key).get("parameters") if key in {"arguments", "inputs"} else None
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, Mapping) and isinstance(row.get("value"), str | int | float):
                yield str(row.get("name")), str(row["value"])
        yield from _parameters(inner, depth + 1)


def _filled(node: Any, values: Mapping[str, str], depth: int) -> Any:
    """A part of a workflow with the values of parameters."""
    if isinstance(node, str):
        return _PARAMETER.sub(lambda match: values.get(match[1], match.group()), node)
    if depth > _DEEPEST or not isinstance(node, list | Mapping):
        return node
    if isinstance(node, list):
        return [_filled(item, values, depth + 1) for item in node]
    return {key: _filled(inner, values, depth + 1) for key, inner in node.items()}


_PARAMETER: Final = re.compile(r"\{\{\s*(?:workflow|inputs)\.parameters\.([\w-]+)\s*\}\}")


def count_of(value: object) -> int | None:
    """A count of pods or devices as manifests and templates have it; None where it is none.

    >>> count_of("8"), count_of(" 16 "), count_of("$NODES"), count_of(True)
    (8, 16, None, None)
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    text = value.strip().removesuffix(".0") if isinstance(value, str) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


def _pods_in(
    value: object,
    where: str,
    count: int | None,
    counted: str,
    labels: Mapping[str, Any],
    depth: int,
    annotations: Mapping[str, Any] | None = None,
) -> Iterator[PodForm]:
    """The pod specifications anywhere inside an object, each with its place and the number of
    its pods.
    """
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        for at, item in enumerate(value):
            yield from _pods_in(item, f"{where}[{at}]", count, counted, labels, depth + 1)
        return
    if not isinstance(value, Mapping):
        return
    if isinstance(value.get("containers"), list):
        yield PodForm(
            where=where,
            spec=value,
            count=count,
            counted=counted,
            labels=labels,
            annotations=annotations or {},
        )
        return
    for name in ("container", "script"):  # a step of a workflow is a pod of one container
        if isinstance(value.get(name), Mapping):
            step = {**value[name], "args": [value[name].get("source"), *_words(value[name])]}
            yield PodForm(
                where=where, spec={"containers": [step if name == "script" else value[name]]}
            )
    if isinstance(value.get("manifest"), str):  # a step of a workflow makes an object
        yield from _pods_of_manifest(value["manifest"], f"{where}.manifest", depth)
    count, counted = _pod_count(value, where, count, counted)
    for key, inner in value.items():
        inner_count, inner_counted = count, counted
        if key == "workerTemplate" and (size := value.get("size")) is not None:
            pods = count_of(size)
            others = None if pods is None else pods - ("leaderTemplate" in value)
            inner_count, inner_counted = _product(count, others), f"{where}.size"
        yield from _pods_in(
            inner,
            f"{where}.{key}",
            inner_count,
            inner_counted,
            _labels(value, labels),
            depth + 1,
            part(value, "metadata", "annotations"),
        )


def _pod_count(
    value: Mapping[str, Any], where: str, count: int | None, counted: str
) -> tuple[int | None, str]:
    """How many pods a template makes, and the field that says so."""
    if not any(name in value for name in (*_TEMPLATES, "leaderWorkerTemplate", "groupName")):
        return count, counted
    for name in _COUNTS:
        if name in value and value[name] is not None:
            count, counted = _product(count, count_of(value[name])), f"{where}.{name}"
    if "replicas" not in value and value.get("minReplicas") is not None:
        count = _product(count, count_of(value["minReplicas"]))
        counted = f"{where}.minReplicas"
    return count, counted


def _labels(value: Mapping[str, Any], labels: Mapping[str, Any]) -> Mapping[str, Any]:
    own = part(value, "metadata", "labels")
    named = {"name": value["name"]} if isinstance(value.get("name"), str) else {}
    return {**labels, **own, **named} if own or named else labels


def trains(form: PodForm) -> bool:
    """Whether the labels of a pod of a training runtime say that it is the trainer's."""
    return form.labels.get(_TRAINER_STEP) == "trainer" or form.labels.get("name") in {
        "node",
        "launcher",
    }


def initializes_model(form: PodForm) -> bool:
    """Whether the labels of a pod of a training runtime say that it loads the model."""
    return form.labels.get(_TRAINER_STEP) == "model-initializer"


def _pods_of_manifest(text: str, where: str, depth: int) -> Iterator[PodForm]:
    reader = StreamReader(where)
    try:
        bodies = [reader.value(node) for node in reader.documents(text)]
    except InputError:
        return
    for body in bodies:
        yield from _pods_in(body, where, 1, "", {}, depth + 1)


def _product(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left * right


def _words(container: Mapping[str, Any]) -> Sequence[Any]:
    args = container.get("args")
    return args if isinstance(args, list) else []


def _text(value: object) -> str:
    return "" if value is None or isinstance(value, dict | list) else str(value)
