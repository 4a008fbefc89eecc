"""Pods as jobs write them, whatever their kind: the GPUs that they ask for, on which nodes, and their command.

Nothing is guessed. Where pods ask for no GPUs, torchrun's own words (`--nnodes`, `--nproc-per-node`) say how many processes
there are, one for each GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, TypeAlias

from pydantic import Field, PlainValidator

from mofa_model.errors import InputError
from mofa_model.kinds.shape import MOST, Labels, Line, Many, Shape, Text, at, count_of, under, whole
from mofa_model.launch.shell import words_of

GPU: Final = ("nvidia.com/gpu", "amd.com/gpu")
"""Names of the resource."""
ELSEWHERE: Final = "say cluster.nodes in the spec behind the annotation advisor.mofa.dev/config-ref"
"""What helps where an object does not say how many GPUs it has."""
_TORCHRUN: Final = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_NODES, _PROCESSES = "--nnodes", "--nproc-per-node"


def _devices(resources: object) -> int:
    """GPUs among the limits, else among the requests; 0 where nobody names any. [1]"""
    asked = (at(resources, section, name) for section in ("limits", "requests") for name in GPU)
    value = next((one for one in asked if one is not None), 0)
    return count_of(int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value)


Devices: TypeAlias = Annotated[int, PlainValidator(_devices)]
"""GPUs of a section of resources. [1]"""


class Container(Shape):
    """A container of a pod."""

    name: Text = ""
    image: Text = ""
    command: Line = None
    args: Line = None
    gpus: Devices = under(0, "resources")

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


class PodSpec(Shape):
    """A pod.

    >>> rule = {"key": "pool", "operator": "In", "values": ["east"]}
    >>> required = {_REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}
    >>> given = {"nodeSelector": {"zone": "a"}, "affinity": {"nodeAffinity": required}}
    >>> PodSpec.model_validate(given).selector
    {'pool': 'east', 'zone': 'a'}
    """

    containers: Many[Container] = ()
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


class _Metadata(Shape):
    annotations: Labels | None = None


class PodTemplate(Shape):
    """A pod as it is to be made."""

    metadata: _Metadata | None = None
    spec: PodSpec = PodSpec()


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """What a job asks for."""

    gpus: int
    """GPUs of all pods; 0 where these cannot be read. [1]"""
    pod: int = 0
    """GPUs of one pod; 0 where these cannot be read, or not all pods have as many. [1]"""
    words: tuple[str, ...]
    """Command and arguments of the container with GPUs."""
    selector: Mapping[str, str]
    """Labels of the nodes that the pods with GPUs select."""
    images: frozenset[str] = frozenset()
    """Images of all its containers."""
    unread: str = ""
    """Why the GPUs cannot be read, and what would help; empty where they can."""


def total(every: Iterable[tuple[int, PodTemplate | None]]) -> Demand:
    """What pods ask for together: how many there are of each template."""
    gpus = 0
    sizes: set[int] = set()
    words: tuple[str, ...] = ()
    lines: list[tuple[str, ...]] = []
    selector: Mapping[str, str] = {}
    images: set[str] = set()
    for number, template in every:
        spec = (template or PodTemplate()).spec
        images |= {one.image for one in spec.containers}
        asking = [one for one in spec.containers if one.gpus]
        if asking:
            each = sum(one.gpus for one in asking)
            gpus += number * each
            sizes |= {each} if number else set()
            words = words or next((one.words for one in asking if one.words), ())
            selector = selector or spec.selector
        else:
            lines += (one.words for one in spec.containers)
    pod = sizes.pop() if len(sizes) == 1 else 0
    words = words or max(lines, key=_launches, default=())
    return replace(demand(gpus, pod, words, selector), images=frozenset(images))


def demand(gpus: int, pod: int, words: tuple[str, ...], selector: Mapping[str, str]) -> Demand:
    """What a job asks for whose pods ask for so many GPUs; where they ask for none, its command may say it."""
    if not gpus:
        nodes, pod = torchrun(words) or (0, 0)
        gpus = nodes * pod
    if gpus > MOST:
        raise InputError(f"{gpus} GPUs are more than any job has; check replicas and {GPU[0]}")
    unread = "" if gpus else f"no container asks for {GPU[0]}: ask for it in its limits, or {ELSEWHERE}"
    return Demand(gpus=gpus, pod=pod, words=words, selector=selector, unread=unread)


def torchrun(words: Sequence[str]) -> tuple[int, int] | None:
    """Nodes, and processes of each, as torchrun is told; None where it is not, or not in numbers.

    >>> torchrun(["torchrun", "--nnodes=32", "--nproc_per_node", "8", "train.py"])
    (32, 8)
    """
    if not _launches(words):
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


def _launches(words: Sequence[str]) -> bool:
    """Whether a command starts torchrun."""
    return any(word.rpartition("/")[2] in _TORCHRUN for word in words)
