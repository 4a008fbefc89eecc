"""Accelerators that pods ask for: whose they are, which product, how many.

The vendor is the name of the resource, or of the class that is claimed. The product is a label of
the nodes that the pods select, or the type of the rented machine; where nothing says it, it stays
unsaid. A number of processes is no number of devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from mofa_model.identity.pods import PodForm, WrittenContainer, count_of
from mofa_model.kinds.pods import GPU, RESOURCE_CLAIM_TEMPLATE, Claim, claimed_gpus, gpu_resource
from mofa_model.kinds.shape import Reference, ReferencedObjects, glance, part
from mofa_model.records import dataclass

_VENDORS: Final = (
    (re.compile(r"nvidia\.com/(gpu|mig-.*|.*\.shared|.*gpu.*)"), "nvidia"),
    (re.compile(r"amd\.com/(gpu|.*gpu.*)"), "amd"),
    (re.compile(r"google\.com/tpu|cloud-tpus\.google\.com/.*"), "tpu"),
    (re.compile(r"aws\.amazon\.com/neuron(core|device)?"), "neuron"),
    (re.compile(r"habana\.ai/gaudi|intel\.com/gaudi"), "gaudi"),
    (re.compile(r"gpu\.intel\.com/(i915|xe)|intel\.com/gpu"), "intel"),
    (re.compile(r"huawei\.com/ascend.*", re.IGNORECASE), "ascend"),
)
"""Names of extended resources, as the vendors' device plugins give them."""
GPUS: Final = frozenset({"nvidia", "amd"})
"""Vendors whose devices this advisor knows."""
_NAMED: Final = {
    "tpu": "TPUs", "neuron": "AWS Neuron devices", "gaudi": "Gaudi accelerators",
    "intel": "Intel GPUs", "ascend": "Ascend NPUs", "mig": "slices of GPUs (MIG)",
    "shared": "shared GPUs",
}  # fmt: skip
_LABELS: Final = (
    "nvidia.com/gpu.product", "amd.com/gpu.product-name", "amd.com/gpu.family",
    "cloud.google.com/gke-accelerator", "cloud.google.com/gke-tpu-accelerator",
    "node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type",
    "eks.amazonaws.com/instance-gpu-name", "karpenter.k8s.aws/instance-gpu-name",
    "karpenter.k8s.aws/instance-family", "karpenter.k8s.aws/instance-type",
    "gpu.nvidia.com/class", "gpu.nvidia.com/model",
)  # fmt: skip
"""Labels of nodes that say which accelerator they have."""
_PRODUCTS: Final = re.compile(
    r"(?<![a-z0-9])(gb300|gb200|gh200|b300|b200|h200|h100|h800|h20|a100|a800|a10g|a10|a40|a30"
    r"|l40s|l40|l4|t4|v100|p100|rtx[- ]?(?:pro[- ]?)?[a-z]?\d{4}|mi\d{3}[ax]?)(?![0-9])",
)
_TPU: Final = re.compile(r"tpu[ -]?(v?\d+\w?)")
_FAMILIES: Final = {
    "p6-b200": "b200", "p6-b300": "b300", "p6e-gb200": "gb200", "p5": "h100", "p5e": "h200",
    "p5en": "h200", "p4d": "a100", "p4de": "a100", "p3": "v100", "p3dn": "v100", "g4dn": "t4",
    "g5": "a10g", "g6": "l4", "g6e": "l40s", "a2-highgpu": "a100", "a2-ultragpu": "a100",
    "a3-highgpu": "h100", "a3-megagpu": "h100", "a3-edgegpu": "h100", "a3-ultragpu": "h200",
    "a4-highgpu": "b200", "a4x-highgpu": "gb200", "a4x-maxgpu": "gb300", "g2-standard": "l4",
}  # fmt: skip
"""Families of rented machines: Amazon EC2 user guide, accelerated computing instances; Google
Compute Engine, accelerator-optimized machines."""
_CORES: Final = re.compile(r"tpu-?(7x|v7x|v2|v3)")
"""Generations of TPUs whose chips are two devices of JAX each. Source: Cloud TPU, system
architecture pages."""


@dataclass(frozen=True, kw_only=True)
class DeviceRequest:
    """Accelerators of an object."""

    vendor: str = ""
    """nvidia, amd, tpu …; empty = none is asked for."""
    product: str = ""
    """Which one, as `nvidia-h100`; the vendor alone where nothing says it."""
    named: str = ""
    """Where the vendor is said."""
    label: str = ""
    """Where the product is said; empty = nowhere."""
    each: int | None = None
    """Devices of one pod; None where unread, or not all pods have as many. [1]"""
    total: int | None = None
    """Devices of all pods; None where that cannot be read. [1]"""
    pod_count: int | None = None
    """Pods with devices; None where that cannot be read. [1]"""
    counted: str = ""
    """Where the number of pods stands."""
    sliced: str = ""
    """mig or shared, where a device is less than a whole one."""
    word: str = ""
    """The label's own value."""
    unread: bool = False
    """Whether pods claim devices whose number cannot be read, and ask for none by name."""

    @property
    def ours(self) -> bool:
        """Whether they are whole GPUs of a vendor that is known."""
        return self.vendor in GPUS and not self.sliced

    @property
    def title(self) -> str:
        """What they are, for a sentence."""
        return _NAMED.get(self.sliced or self.vendor, f"{self.vendor} devices")

    @property
    def per_chip(self) -> int:
        """Devices that a program sees for each one that the pod asks for. [1]"""
        return 2 if _CORES.match(self.product) else 1


def asks(form: PodForm) -> list[tuple[WrittenContainer, str, str, object]]:
    """Containers of a pod that ask for accelerators: container, vendor, resource and amount."""
    requests: list[tuple[WrittenContainer, str, str, object]] = []
    for container in form.containers:
        for name, amount in container.asked.items():
            vendor = next((who for form, who in _VENDORS if form.fullmatch(str(name))), "")
            if vendor and count_of(amount) != 0:
                requests.append((container, vendor, str(name), amount))
    return requests


def devices_of(
    forms: Iterable[PodForm], referenced: ReferencedObjects, processes: int = 0
) -> DeviceRequest:
    """What the pods of an object ask for.

    `processes` of a node count only where a device is asked for and its number is left empty. [1]
    """
    total: int | None = 0
    count: int | None = 0
    vendor = named = sliced = label = product = counted = word = ""
    each, unread = set[int | None](), False
    for pod in forms:
        asked = asks(pod)
        claims = _claimed(pod, referenced)
        if not asked and (claims is None or claims.gpus == 0):
            continue
        if claims is not None and claims.gpus is None and not asked:
            unread = True
            continue
        gpus_of_pod: int | None = 0 if claims is None else claims.gpus
        where = "" if claims is None else claims.where
        who = "" if claims is None else claims.vendor
        for container, owner, name, amount in asked:
            who, where = owner, where or f"{container.where}.resources.limits.{name}"
            if part(container.body, "resources").get("limits") is None:
                where = where.replace(".limits.", ".requests.")
            amount_asked = count_of(amount)
            if amount_asked is None and amount in (None, "") and owner in GPUS:
                amount_asked = processes or None
            gpus_of_pod = (
                None if gpus_of_pod is None or amount_asked is None else gpus_of_pod + amount_asked
            )
            sliced = "mig" if "/mig-" in name else "shared" if name.endswith(".shared") else sliced
            word = word or (name.partition("/")[2] if sliced else "")
        if not named:
            vendor, named = who, where
        each.add(gpus_of_pod)
        counted = counted or pod.counted
        count = None if count is None or pod.count is None else count + pod.count
        total = (
            None
            if total is None or gpus_of_pod is None or pod.count is None
            else total + gpus_of_pod * pod.count
        )
        if not product:
            product, label, label_value = _product(pod, vendor)
            word = word or label_value
    if not vendor:
        return DeviceRequest(unread=unread)
    if product and not product.startswith(vendor):
        product = ""  # the label speaks of something else
    whole = each.pop() if len(each) == 1 else None
    return DeviceRequest(
        vendor=vendor,
        product=product or vendor,
        named=named,
        label=label if product else "",
        each=whole,
        total=total or None,
        pod_count=count or None,
        counted=counted,
        sliced=sliced,
        word=word,
    )


def _product(pod: PodForm, vendor: str) -> tuple[str, str, str]:
    """The product that the labels of a pod's nodes say, where it stands, and the label's value."""
    selector = pod.selector
    for name in _LABELS:
        value = selector.get(name, "")
        place = f"{pod.where}.nodeSelector.{name}"
        if not value or "$" in value or "{" in value:
            continue
        if vendor == "tpu" and (tpu := _TPU.search(value.lower())):
            version = tpu[1]
            return f"tpu{version}" if version == "7x" else f"tpu-{version}", place, value
        if gpu := _PRODUCTS.search(value.lower().replace("_", "-")):
            return f"{vendor}-{gpu[1].replace(' ', '')}", place, value
        family = value.lower().removeprefix("ml.").partition(".")[0]
        family = family if family in _FAMILIES else "-".join(family.split("-")[:2])
        if family in _FAMILIES:
            return f"nvidia-{_FAMILIES[family]}", place, value
    return "", "", ""


def product_in(text: str) -> str:
    """The product that a text names, as a partition or a type of GPUs has it; empty where none.

    >>> product_in("gpu:a100"), product_in("nvidia_h100_80gb_hbm3"), product_in("batch")
    ('a100', 'h100', '')
    """
    product = _PRODUCTS.search(text.lower().replace("_", "-"))
    return product[1].replace(" ", "") if product else ""


def agrees(device_request: DeviceRequest, preset: str) -> bool:
    """Whether a device of a profile can be the one that the pods ask for.

    >>> agrees(DeviceRequest(vendor="nvidia", product="nvidia-a100"), "a100-80gb-sxm")
    True
    >>> agrees(DeviceRequest(vendor="amd", product="amd"), "h100-80gb-sxm")
    False
    """
    if device_request.vendor != gpu_resource(preset).partition(".")[0]:
        return False
    wanted = device_request.product.partition("-")[2]
    return not wanted or re.match(rf"{re.escape(wanted)}(?![0-9])", preset) is not None


def elsewhere(forms: Iterable[PodForm], variables: Iterable[str]) -> DeviceRequest:
    """Accelerators of a job that runs on pods of another object, by its own selectors and
    variables.
    """
    for pod in forms:
        for name, value in pod.selector.items():
            if re.match(r"(ml\.)?(trn|inf)\d", value):
                return DeviceRequest(
                    vendor="neuron", product="neuron", named=f"{pod.where}.nodeSelector.{name}"
                )
    for name in variables:
        if name.startswith("NEURON_"):
            return DeviceRequest(vendor="neuron", product="neuron", named=f"the variable {name}")
    return DeviceRequest()


def _claimed(pod: PodForm, referenced: ReferencedObjects) -> Claims | None:
    """GPUs of a pod by its claims; None where it claims nothing."""
    rows = pod.spec.get("resourceClaims")
    claims = [glance(Claim, row) for row in rows if isinstance(row, dict)] if rows else []
    if not claims:
        return None
    demands = [claimed_gpus(claim, referenced) for claim in claims]
    is_known = not any(demand.why for demand in demands)
    text = str([referenced.spec(ref) for ref in _templates(claims)])
    return Claims(
        gpus=sum(demand.gpus for demand in demands) if is_known else None,
        where=f"{pod.where}.resourceClaims",
        vendor="amd" if "amd.com" in text else "nvidia",
    )


class Claims(NamedTuple):
    """GPUs that a pod claims."""

    gpus: int | None
    """How many; None where that cannot be told. [1]"""
    where: str
    vendor: str


def _templates(claims: Iterable[Claim]) -> list[Reference]:
    names = (claim.resource_claim_template_name for claim in claims)
    return [Reference(RESOURCE_CLAIM_TEMPLATE, name) for name in names if name]


__all__ = ["GPU", "DeviceRequest", "agrees", "asks", "devices_of", "elsewhere"]
