"""GPUs of a pod: what its containers ask for as resources, and what it claims as devices (DRA).

A claim's template says how many devices of which class, and the class says what they are. A pod names a ResourceClaimTemplate,
so each pod has a claim of its own. A ResourceClaim by its name is shared by all pods that name it, and how many of its devices
a pod has is said nowhere.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, NamedTuple, TypeAlias

from pydantic import PlainValidator

from mofa_model.kinds.beside import Beside, Kind, Reference
from mofa_model.kinds.shape import Count, Many, Shape, Text, at, count_of, part, read, under

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
    """GPUs among the limits, else among the requests; 0 where nobody names any. [1]"""
    asked = (at(resources, section, name) for section in _SECTIONS for name in GPU)
    value = next((one for one in asked if one is not None), 0)
    return count_of(
        int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
    )


def _others(resources: object) -> dict[str, str]:
    """What is asked for beside GPUs.

    >>> _others({"limits": {"cpu": 8, "google.com/tpu": 4, "nvidia.com/gpu": 1}})
    {'cpu': '8', 'google.com/tpu': '4'}
    """
    asked = [part(resources, section) for section in reversed(_SECTIONS)]
    return {str(name): str(one) for some in asked for name, one in some.items() if name not in GPU}


Devices: TypeAlias = Annotated[int, PlainValidator(_devices)]
"""GPUs of a section of resources. [1]"""
Others: TypeAlias = Annotated[dict[str, str], PlainValidator(_others)]
"""Whatever else a section of resources holds, each with how much."""


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


class Claimed(NamedTuple):
    """What a claim is worth."""

    gpus: int = 0
    """GPUs of each pod that has it. [1]"""
    why: str = ""
    """Why that cannot be told; empty where it can."""
    missing: tuple[Reference, ...] = ()
    """Objects that would tell."""


def claimed(claim: Claim, beside: Beside) -> Claimed:
    """GPUs that a pod has by a claim."""
    if claim.resource_claim_name:
        why = f"names ResourceClaim {claim.resource_claim_name!r}, which all pods share: name a ResourceClaimTemplate"
        return Claimed(why=why)
    wanted = Reference(RESOURCE_CLAIM_TEMPLATE, claim.resource_claim_template_name)
    if not wanted.name:
        return Claimed()
    spec = beside.spec(wanted)
    if spec is None:
        return Claimed(why=f"names {wanted}, which is not here: create it", missing=(wanted,))
    every = [
        _of_request(request, beside)
        for request in read(_Template, spec, f"{wanted}: spec").requests
    ]
    return Claimed(
        sum(one.gpus for one in every),
        next((f"names {wanted}, {one.why}" for one in every if one.why), ""),
        tuple(reference for one in every for reference in one.missing),
    )


def _of_request(request: _Request, beside: Beside) -> Claimed:
    wanted = request.least
    found = _is_gpu(wanted.device_class_name, beside)
    if found is None:
        missing = Reference(DEVICE_CLASS, wanted.device_class_name)
        return Claimed(
            why=f"which asks for {missing}, which is not here: create it", missing=(missing,)
        )
    if not found:
        return Claimed()
    if wanted.allocation_mode == _ALL:
        return Claimed(
            why=f"whose request {request.name!r} has allocationMode All: give it a count instead"
        )
    return Claimed(wanted.count)


def _is_gpu(name: str, beside: Beside) -> bool | None:
    """Whether a class is one of GPUs; None where nobody says.

    >>> rule = {"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}
    >>> body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "big"}}
    >>> _is_gpu("big", Beside([body | {"spec": {"selectors": [rule]}}])), _is_gpu("big", Beside())
    (True, None)
    """
    if name in DRIVERS:
        return True
    spec = beside.spec(Reference(DEVICE_CLASS, name))
    if spec is None:
        return None
    found = read(_Class, spec, f"DeviceClass {name}: spec")
    drivers = {driver for one in found.selectors for driver in _DRIVER.findall(one.expression)}
    return found.extended_resource_name in GPU or bool(drivers & set(DRIVERS))
