"""Pods as jobs write them: containers, GPUs, nodes, commands, and devices that pods claim (DRA).

A claim's template says how many devices of which class, and the class says what they are. Each pod
that names a ResourceClaimTemplate has a claim of its own. All pods that name one ResourceClaim
share it, so how many of its devices a pod has is not known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple, TypeAlias

from pydantic import Field, PlainValidator

from mofa_model.errors import InputError
from mofa_model.kinds.shape import (
    PLACEHOLDER,
    Count,
    Kind,
    Labels,
    Line,
    Many,
    Reference,
    ReferencedObjects,
    Shape,
    Text,
    at,
    count_of,
    part,
    read,
    under,
    whole,
)
from mofa_model.launch.shell import words_of

RESOURCE_CLAIM_TEMPLATE: Final = Kind(
    "resource.k8s.io",
    "v1",
    "ResourceClaimTemplate",
    "resourceclaimtemplates",
    others=("v1beta2", "v1beta1"),
)
DEVICE_CLASS: Final = Kind(
    "resource.k8s.io",
    "v1",
    "DeviceClass",
    "deviceclasses",
    namespaced=False,
    others=("v1beta2", "v1beta1"),
)
GPU: Final = ("nvidia.com/gpu", "amd.com/gpu")
"""Names of GPUs among a container's resources."""
PRODUCT: Final = "nvidia.com/gpu.product"
"""Label of nodes that says which GPU they have."""
_ACCELERATORS: Final = (
    re.compile(r"(?P<count>[0-9]{1,7})( ?[x*] ?(?P<name>[A-Za-z][A-Za-z0-9./ -]*))?", re.ASCII),
    re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9./ -]*?) ?[:=] ?(?P<count>[0-9]{1,7})", re.ASCII),
)
DRIVERS: Final = ("gpu.nvidia.com", "gpu.amd.com")
"""Names of the drivers whose devices are GPUs, and of the classes that come with them."""
CLAIMED: Final = "resourceClaimTemplateName"
"""The field by which a pod names what it claims."""
MAPPED: Final = "configMap"
"""The field by which it names files."""
_DRIVER: Final = re.compile(r"""device\.driver\s*==\s*["']([^"']+)["']""")
_ALL: Final = "All"
_SECTIONS: Final = ("limits", "requests")


def _devices(resources: object) -> int:
    """GPUs among the limits, else among the requests; 0 where neither has any. [1]"""
    amounts = (at(resources, section, name) for section in _SECTIONS for name in GPU)
    value = next((amount for amount in amounts if amount is not None), 0)
    return count_of(
        int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
    )


def _others(resources: object) -> dict[str, str]:
    """Resources that are asked for, without GPUs.

    >>> _others({"limits": {"cpu": 8, "google.com/tpu": 4, "nvidia.com/gpu": 1}})
    {'cpu': '8', 'google.com/tpu': '4'}
    """
    amounts = {**part(resources, "requests"), **part(resources, "limits")}
    return {str(name): str(amount) for name, amount in amounts.items() if name not in GPU}


def _blank(resources: object) -> bool:
    """Whether GPUs are named and their number is left empty.

    >>> _blank({"limits": {"nvidia.com/gpu": None}}), _blank({"limits": {"cpu": 8}})
    (True, False)
    """
    sections = [part(resources, section) for section in _SECTIONS]
    return any(
        name in section and section[name] in (None, "") for section in sections for name in GPU
    )


Devices: TypeAlias = Annotated[int, PlainValidator(_devices)]
"""GPUs of a section of resources. [1]"""
Blank: TypeAlias = Annotated[bool, PlainValidator(_blank)]
"""Whether a section of resources names GPUs without a number."""
Others: TypeAlias = Annotated[dict[str, str], PlainValidator(_others)]
"""Whatever else a section of resources holds, each with how much."""


class Accelerators(NamedTuple):
    """GPUs of a pod as a kind without pod templates writes them."""

    gpus: int = 0
    """How many. [1]"""
    product: str = ""
    """Which ones; empty = not said."""

    def pod(self, command: Sequence[object] | None, args: Sequence[object] = ()) -> PodTemplate:
        """The pod that has them and runs a command."""
        words = [*(command or ()), *args]
        container = Container.model_construct(command=words, gpus=self.gpus)
        selector = {PRODUCT: self.product} if self.product else {}
        return PodTemplate(
            spec=PodSpec.model_construct(containers=(container,), node_selector=selector)
        )


def accelerators_in(written: object) -> Accelerators:
    """GPUs from a number or a text.

    >>> accelerators_in("8xH100"), accelerators_in("nvidia.com/gpu=8").gpus
    (Accelerators(gpus=8, product='H100'), 8)
    """
    if not isinstance(written, str):
        return Accelerators(0 if written is None else count_of(written))
    for form in _ACCELERATORS:
        if match := form.fullmatch(written.strip()):
            name = match["name"] or ""
            if "/" in name and name not in GPU:
                break  # another vendor's resource is no GPU that is known
            return Accelerators(count_of(int(match["count"])), "" if name in GPU else name)
    if PLACEHOLDER.search(written):
        count_of(written)  # refuses it with what is missing
    raise InputError(f"GPUs cannot be {written[:40]!r}; write 8, 8xH100, H100:8 or {GPU[0]}=8")


DeviceText: TypeAlias = Annotated[Accelerators, PlainValidator(accelerators_in)]
"""GPUs of a pod as text: `"8xH100"`, `"H100:8"`, `"nvidia.com/gpu=8"` or a number."""


class Claim(Shape):
    """A claim that a pod names."""

    name: Text = ""
    resource_claim_template_name: Text = ""
    resource_claim_name: Text = ""


class _Devices(Shape):
    device_class_name: Text = ""
    allocation_mode: Text = ""
    count: Count = 1


class _Request(_Devices):
    name: Text = ""
    exactly: _Devices | None = None
    first_available: Many[_Devices] = ()

    @property
    def least(self) -> _Devices:
        """The devices: as releases write them, and of several sorts the one that is wanted most."""
        return self.exactly or next(iter(self.first_available), self)


class _Template(Shape):
    requests: Many[_Request] = under((), "spec", "devices", "requests")


class _Selector(Shape):
    expression: Text = under("", "cel", "expression")


class _Class(Shape):
    selectors: Many[_Selector] = ()
    extended_resource_name: Text = ""


class ClaimedDevices(NamedTuple):
    """What a claim is worth."""

    gpus: int = 0
    """GPUs of each pod that has it. [1]"""
    why: str = ""
    """Why that cannot be told; empty where it can."""
    missing: tuple[Reference, ...] = ()
    """Objects that would tell."""


def claimed_gpus(claim: Claim, referenced: ReferencedObjects) -> ClaimedDevices:
    """GPUs that a pod has by a claim."""
    if claim.resource_claim_name:
        name = claim.resource_claim_name
        return ClaimedDevices(
            why=f"names ResourceClaim {name!r}, which all pods share: name a ResourceClaimTemplate"
        )
    template = Reference(RESOURCE_CLAIM_TEMPLATE, claim.resource_claim_template_name)
    if not template.name:
        return ClaimedDevices()
    spec = referenced.spec(template)
    if spec is None:
        return ClaimedDevices(
            why=f"names {template}, which is not here: create it", missing=(template,)
        )
    claims = [
        _of_request(request, referenced)
        for request in read(_Template, spec, f"{template}: spec").requests
    ]
    return ClaimedDevices(
        sum(request.gpus for request in claims),
        next((f"names {template}, {request.why}" for request in claims if request.why), ""),
        tuple(reference for request in claims for reference in request.missing),
    )


def _of_request(request: _Request, referenced: ReferencedObjects) -> ClaimedDevices:
    """The GPUs that one request of a ResourceClaim asks for, or why nobody can tell."""
    devices = request.least
    is_gpu = _is_gpu(devices.device_class_name, referenced)
    if is_gpu is None:
        missing = Reference(DEVICE_CLASS, devices.device_class_name)
        return ClaimedDevices(
            why=f"which asks for {missing}, which is not here: create it", missing=(missing,)
        )
    if not is_gpu:
        return ClaimedDevices()
    if devices.allocation_mode == _ALL:
        return ClaimedDevices(
            why=f"whose request {request.name!r} has allocationMode All: give it a count instead"
        )
    return ClaimedDevices(devices.count)


def _is_gpu(name: str, referenced: ReferencedObjects) -> bool | None:
    """Whether a device class is one of GPUs; None where that is unknown.

    >>> rule = {"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}
    >>> body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
    >>> body["metadata"] = {"name": "big"}
    >>> classes = ReferencedObjects([body | {"spec": {"selectors": [rule]}}])
    >>> _is_gpu("big", classes), _is_gpu("big", ReferencedObjects())
    (True, None)
    """
    if name in DRIVERS:
        return True
    spec = referenced.spec(Reference(DEVICE_CLASS, name))
    if spec is None:
        return None
    device_class = read(_Class, spec, f"DeviceClass {name}: spec")
    drivers = {
        driver
        for selector in device_class.selectors
        for driver in _DRIVER.findall(selector.expression)
    }
    return device_class.extended_resource_name in GPU or bool(drivers & set(DRIVERS))


_TORCHRUN: Final = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_NODES, _PROCESSES = "--nnodes", "--nproc-per-node"


class _VolumeMount(Shape):
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
    blank: Blank = under(False, "resources")
    volume_mounts: Many[_VolumeMount] = ()

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
        """Labels that its nodes must have, by node selector and by an affinity without a choice."""
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
        maps = {volume.name: volume.config_map for volume in self.volumes if volume.config_map}
        return [
            Mount(mount.mount_path.rstrip("/"), maps[mount.name], mount.sub_path)
            for container in self.containers
            for mount in container.volume_mounts
            if mount.name in maps and mount.mount_path.strip("/")
        ]


class _Metadata(Shape):
    annotations: Labels | None = None


class PodTemplate(Shape):
    """A pod as it is to be made."""

    metadata: _Metadata | None = None
    spec: PodSpec = PodSpec()


def torchrun(words: Sequence[str]) -> tuple[int, int] | None:
    """Nodes and processes of each node that a torchrun command states as numbers; else None.

    >>> torchrun(["torchrun", "--nnodes=32", "--nproc_per_node", "8", "train.py"])
    (32, 8)
    """
    if not launches(words):
        return None
    counts: dict[str, int] = {}
    for word, next_word in zip(words, (*words[1:], ""), strict=True):
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        if name in {_NODES, _PROCESSES} and name not in counts:
            counts[name] = whole(value if equals else next_word)
    nodes, processes = counts.get(_NODES, 1), counts.get(_PROCESSES, 0)
    return (nodes, processes) if nodes and processes else None


def split(line: Sequence[object] | None) -> tuple[str, ...]:
    """Command or arguments; a shell line is one word, and is read as the words in it."""
    words: list[str] = []
    for word in line or ():
        text = str(word)
        if " " not in text and "\n" not in text:
            words.append(text)
            continue
        try:
            words += words_of(text)
        except ValueError:
            words.append(text)
    return tuple(words)


def launches(words: Sequence[str]) -> bool:
    """Whether a command starts torchrun."""
    return any(word.rpartition("/")[2] in _TORCHRUN for word in words)


def gpu_resource(device: str) -> str:
    """The resource by which a container asks for a device, named as in a profile.

    >>> gpu_resource("h100-80gb-sxm"), gpu_resource("AMD-Instinct-MI300X")
    ('nvidia.com/gpu', 'amd.com/gpu')
    """
    return GPU[re.match(r"(amd\W?(instinct\W?)?)?mi[0-9]", device, re.IGNORECASE) is not None]
