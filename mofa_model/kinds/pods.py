"""Pods as jobs write them, whatever their kind: their containers with the devices that they ask for, their nodes, their commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pydantic import Field

from mofa_model.kinds.devices import Claim, Devices, Others
from mofa_model.kinds.shape import Labels, Line, Many, Shape, Text, under, whole
from mofa_model.launch.shell import words_of

_TORCHRUN: Final = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_NODES, _PROCESSES = "--nnodes", "--nproc-per-node"


class _Mounted(Shape):
    name: Text = ""
    mount_path: Text = ""
    sub_path: Text = ""


class Container(Shape):
    """A container of a pod."""

    name: Text = ""
    image: Text = ""
    command: Line = None
    args: Line = None
    gpus: Devices = under(0, "resources")
    others: Others = under({}, "resources")
    volume_mounts: Many[_Mounted] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """Command and arguments as words."""
        return (*split(self.command), *split(self.args))


class _Rule(Shape):
    key: Text = ""
    operator: Text = ""
    values: Line = None


class _Term(Shape):
    match_expressions: Many[_Rule] = ()


class _Volume(Shape):
    name: Text = ""
    config_map: Text = under("", "configMap", "name")


class Mount(NamedTuple):
    """A ConfigMap in the files of a container."""

    path: str
    """Where it is: a folder, or a file where it is one key alone."""
    config_map: str
    """Its name."""
    key: str
    """The one key; empty = all of them, each a file."""


class PodSpec(Shape):
    """A pod.

    >>> rule = {"key": "pool", "operator": "In", "values": ["east"]}
    >>> required = {_REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}
    >>> given = {"nodeSelector": {"zone": "a"}, "affinity": {"nodeAffinity": required}}
    >>> PodSpec.model_validate(given).selector
    {'pool': 'east', 'zone': 'a'}
    """

    containers: Many[Container] = ()
    resource_claims: Many[Claim] = ()
    volumes: Many[_Volume] = ()
    node_selector: Labels = Field(default_factory=dict)
    terms: Many[_Term] = under((), "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms")

    @property
    def selector(self) -> dict[str, str]:
        """Labels that its nodes must have: its node selector, and what its affinity requires without a choice."""
        rules = self.terms[0].match_expressions if len(self.terms) == 1 else ()
        required = {
            rule.key: str(rule.values[0])
            for rule in rules
            if rule.operator == "In" and rule.values is not None and len(rule.values) == 1
        }
        return required | self.node_selector

    @property
    def mounts(self) -> list[Mount]:
        """ConfigMaps among the files of its containers."""
        maps = {one.name: one.config_map for one in self.volumes if one.config_map}
        return [
            Mount(one.mount_path.rstrip("/"), maps[one.name], one.sub_path)
            for container in self.containers
            for one in container.volume_mounts
            if one.name in maps and one.mount_path.strip("/")
        ]


class _Metadata(Shape):
    annotations: Labels | None = None


class PodTemplate(Shape):
    """A pod as it is to be made."""

    metadata: _Metadata | None = None
    spec: PodSpec = PodSpec()


def torchrun(words: Sequence[str]) -> tuple[int, int] | None:
    """Nodes, and processes of each, as torchrun is told; None where it is not, or not in numbers.

    >>> torchrun(["torchrun", "--nnodes=32", "--nproc_per_node", "8", "train.py"])
    (32, 8)
    """
    if not launches(words):
        return None
    told: dict[str, int] = {}
    for word, after in zip(words, (*words[1:], ""), strict=True):
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        if name in {_NODES, _PROCESSES} and name not in told:
            told[name] = whole(value if equals else after)
    nodes, processes = told.get(_NODES, 1), told.get(_PROCESSES, 0)
    return (nodes, processes) if nodes and processes else None


def split(line: Sequence[object] | None) -> tuple[str, ...]:
    """Command or arguments; a shell line is one word, and is read as the words in it."""
    found: list[str] = []
    for word in line or ():
        text = str(word)
        if " " not in text and "\n" not in text:
            found.append(text)
            continue
        try:
            found += words_of(text)
        except ValueError:
            found.append(text)
    return tuple(found)


def launches(words: Sequence[str]) -> bool:
    """Whether a command starts torchrun."""
    return any(word.rpartition("/")[2] in _TORCHRUN for word in words)
