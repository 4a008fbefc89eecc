"""Time of one product and of attention: by measured kernels where a device has them, else by the laws of `equations.compute`."""

from __future__ import annotations

from dataclasses import dataclass

from mofa_model.blocks import Core, Rows
from mofa_model.equations import compute, documents
from mofa_model.spec import Cluster, Workload
from mofa_model.strategy import Strategy
from mofa_model.units import BytesPerSecond, Count, FlopPerSecond, Seconds


@dataclass(frozen=True, slots=True)
class Rates:
    """What the device reaches in this precision, by the laws."""

    linear: FlopPerSecond
    head: FlopPerSecond
    attention: FlopPerSecond
    memory: BytesPerSecond


def achieved_rates(workload: Workload, cluster: Cluster) -> Rates:
    """Peaks of the data sheet times the constants of the calibration, Eqs. (1), (17). [FLOP/s, B/s]"""
    device, constants = cluster.device, cluster.calibration.compute
    gemm = workload.training.precision.gemm
    quantised = workload.training.precision.quantised
    wide = device.peak("bf16" if quantised else gemm)
    low = device.peak(gemm) * constants.low_precision_rate if quantised else wide
    return Rates(
        linear=low * constants.gemm_efficiency,
        head=wide * constants.gemm_efficiency,
        attention=wide * constants.attention_efficiency,
        memory=device.memory_bandwidth * constants.memory_efficiency,
    )


def product_time(
    workload: Workload,
    cluster: Cluster,
    rates: Rates,
    rows: Rows,
    m: Count,
    n: Count,
    k: Count,
    together: Count | None = None,
) -> Seconds:
    """One forward matrix product, of those that see such rows; those of a rank's experts are launched `together`. [s]"""
    c, kernels = cluster.calibration.compute, cluster.calibration.kernels
    measured = None if kernels is None else kernels.product
    if measured is not None and measured.format == workload.training.precision.gemm:
        if rows is Rows.SENT:
            return measured.wide_seconds(m, n, k) * c.sustained
        return measured.seconds(m, n, k, together) * c.sustained
    shape = c.gemm_shape * c.grouped_penalty if rows is Rows.ROUTED else c.gemm_shape
    return compute.gemm_time(
        m,
        n,
        k,
        rate=rates.head if rows is Rows.SENT else rates.linear,
        half_m=c.gemm_half_m * shape,
        half_n=c.gemm_half_n * shape,
        half_k=c.gemm_half_k * shape,
        width=workload.training.precision.activation,
        bandwidth=rates.memory,
    )


def core_time(
    workload: Workload, cluster: Cluster, s: Strategy, rates: Rates, core: Core, sequence: Count
) -> Seconds:
    """Work on each other of the tokens of a micro-batch of such sequences, forward. [s]"""
    c, kernels = cluster.calibration.compute, cluster.calibration.kernels
    met = (
        core.fixed
        if core.fixed is not None
        else documents.over_documents(
            workload.training,
            lambda seen: compute.attended_tokens(seen, c.attention_causal, core.window),
        )
    )
    if core.scored and kernels is not None and kernels.attention is not None:
        heads = core.heads / (
            s.tp * s.cp
        )  # in a ring a rank does as much, for all heads and a part of the tokens
        once = kernels.attention.seconds(s.mbs, sequence, heads, core.width, met) * c.attention_pace
    else:
        once = compute.attention_time(
            s.mbs * (sequence / s.cp),
            met,
            core.heads / s.tp,
            core.width,
            rate=rates.attention,
            half=c.attention_half,
            score_traffic=c.score_traffic if core.scored else 0.0,
            bandwidth=rates.memory,
        )
    return once if core.times is None else once * core.times
