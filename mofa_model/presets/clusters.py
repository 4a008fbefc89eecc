"""A cluster from a device's name: its usual machine and fabric, each of which the caller may
replace.
"""

from __future__ import annotations

from collections.abc import Iterable

from mofa_model import units
from mofa_model.checks import positive
from mofa_model.errors import BadValue
from mofa_model.presets import catalogue, constants, entries
from mofa_model.spec import Cluster, Host, Link, Precision
from mofa_model.units import Numeric


def link(fabric: str | Link, *, field: str = "link") -> Link:
    """A link by fabric id or by its bandwidth; a bandwidth alone has no latency.

    >>> link("50 Gbit/s").bandwidth, link("25Gb/s").bandwidth, link("400GbE").bandwidth
    (6250000000.0, 3125000000.0, 50000000000.0)
    """
    if isinstance(fabric, Link):
        return fabric
    if str(fabric)[:1] in set("0123456789+-.") and not entries.meanings("fabrics", fabric):
        bandwidth = units.parse(fabric, "B/s", field=field)
        positive(**{field: bandwidth})
        return Link(bandwidth=bandwidth)
    return catalogue.fabric(entries.resolve("fabrics", fabric, field=field))


def cluster(
    device: str,
    gpus: Numeric,
    *,
    stack: str = "default",
    precision: str | Precision = "bf16",
    release: str | None = None,
    defects: Iterable[str] = (),
    gpus_per_node: Numeric | None = None,
    domain: Numeric | None = None,
    scale_up: str | Link | None = None,
    scale_out: str | Link | None = None,
    spine_nodes: Numeric = 0,
    oversubscription: Numeric = 1.0,
    in_network_reduction: bool = False,
    host_memory: str | float | None = None,
    host_link: str | Link | None = None,
    reserve: Numeric = 0.0,
) -> Cluster:
    """`gpus` devices in the machine they usually stand in, with the constants of a stack and a
    precision.

    `device` may also be a node that a cloud rents out, by its name there: then it is that machine.
    None leaves what the device's preset says. Links are given by fabric id, by bandwidth with unit,
    or as a `Link`; host memory of a node as text with unit or in bytes [B].

    >>> link = cluster("h100", 64, scale_out="200 Gbit/s").scale_out
    >>> cluster("gb200", 144).domain, link.bandwidth
    (72, 25000000000.0)
    >>> cluster("p4d.24xlarge", 64).device.name, cluster("p4d.24xlarge", 64).scale_out.bandwidth
    ('a100-40gb-sxm', 6250000000.0)
    """
    name = entries.resolve("devices", device, field="gpu")
    entry = entries.entry("devices", name)
    recipe = precision.name if isinstance(precision, Precision) else precision
    rented = entries.instance(device)
    machine = {**entry, **rented}
    node = machine["gpus_per_node"] if gpus_per_node is None else gpus_per_node
    if domain is None:
        # A domain that is the node stays the node; a rack-wide one (NVL72) does not shrink with it.
        domain = entry["domain"] if entry["domain"] != entry["gpus_per_node"] else node
    return Cluster(
        device=catalogue.device(name),
        gpus=gpus,
        gpus_per_node=node,
        domain=domain,
        scale_up=link(scale_up or entry["scale_up"], field="scale_up"),
        scale_out=link(scale_out or machine["scale_out"], field="scale_out"),
        spine_nodes=spine_nodes,
        oversubscription=oversubscription,
        in_network_reduction=in_network_reduction,
        host=_host(
            host_memory or rented.get("host_memory"),
            entry.get("host_memory"),
            host_link or entry["host_link"],
        ),
        reserve=reserve,
        calibration=constants.calibration(name, recipe, stack, release=release, defects=defects),
    )


def _host(chosen: str | float | None, usual: str | None, bus_name: str | Link) -> Host:
    """The host by what a user or a cloud says, else as in the usual machine."""
    bus = link(bus_name, field="host_link")
    memory = chosen or usual
    if memory is None:
        return Host(link=bus, stated=False)
    if isinstance(memory, bool) or not isinstance(memory, str | int | float):
        raise BadValue("host_memory", memory, "write a size with a unit, for example '1 TiB'")
    size = units.parse(memory, "B", field="host_memory") if isinstance(memory, str) else memory
    return Host(memory=size, link=bus, stated=chosen is not None)
