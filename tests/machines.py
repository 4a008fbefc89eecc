"""Machines and questions that a test can do sums with: nothing takes time but what the test gives a
time.

ideal(8, scale_out=50e9)                      eight perfect devices whose fabric alone has a limit
ideal(1, host=dict(layer=1e-3))               one whose launches take a millisecond a layer
"""

from dataclasses import fields, replace

from mofa_model import presets
from mofa_model.spec import (
    Calibration,
    Cluster,
    ComputeConstants,
    Device,
    Host,
    HostConstants,
    Link,
    LinkConstants,
    OverlapConstants,
    Training,
    Workload,
)

PEAK = 1e15
"""Of every format, and every kernel reaches it. [FLOP/s]"""
ENDLESS = 1e30
"""A bandwidth that costs no time. [B/s]"""


def nothing(kind, **kept):
    """Constants that are all zero but for those named."""
    return kind(**({item.name: 0.0 for item in fields(kind)} | kept))


KERNELS = ComputeConstants(
    gemm_efficiency=1.0,
    gemm_half_m=0.0,
    gemm_half_n=0.0,
    gemm_half_k=0.0,
    attention_efficiency=1.0,
    attention_half=0.0,
    attention_backward=2.0,
    memory_efficiency=1.0,
    optimizer_efficiency=1.0,
)
LINKS = nothing(
    LinkConstants,
    scale_up_efficiency=1.0,
    scale_out_efficiency=1.0,
    all_to_all_efficiency=1.0,
    point_efficiency=1.0,
    host_link_efficiency=1.0,
)


def ideal(
    gpus, *, memory=ENDLESS, scale_up=ENDLESS, scale_out=ENDLESS, host_link=ENDLESS, **groups
):
    """Perfect devices; `groups` are constants of `Calibration` by group, for example
    host=dict(step=1.0).
    """
    named = {
        "compute": KERNELS,
        "host": nothing(HostConstants),
        "links": LINKS,
        "overlap": nothing(OverlapConstants, tensor=1.0, tensor_backward=1.0, slow_down=1.0),
    }
    constants = {name: replace(named[name], **groups.get(name, {})) for name in named}
    return Cluster(
        device=Device(
            name="ideal",
            peak_bf16=PEAK,
            peak_fp8=PEAK,
            peak_fp4=PEAK,
            memory=80e9,
            memory_bandwidth=memory,
        ),
        gpus=gpus,
        scale_up=Link(bandwidth=scale_up),
        scale_out=Link(bandwidth=scale_out),
        host=Host(link=Link(bandwidth=host_link)),
        calibration=Calibration(**constants),
    )


def workload(model="llama3-8b", *, sequence=8192, batch=64, precision="bf16"):
    """A question about a preset."""
    shape = presets.model(model) if isinstance(model, str) else model
    recipe = presets.precision(precision)
    return Workload(
        model=shape, training=Training(sequence=sequence, global_batch=batch, precision=recipe)
    )


def overlapping_for_nothing(cluster):
    """The same machines where overlap of experts costs no launches: there the search leaves out
    what does without it.
    """
    host = replace(cluster.calibration.host, expert_overlap=0.0)
    return replace(cluster, calibration=replace(cluster.calibration, host=host))
