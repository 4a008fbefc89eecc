"""From what a source publishes to seconds, by the source's own convention.

Preferred in this order: step time, tokens per second, TFLOPS, model utilisation, hardware
utilisation. The first needs no convention, the second only the batch; the rest count FLOPs, and
sources count differently:

    full                full s x s attention, head once
    causal              half of the attention, head once
    head_counted_twice  as full, with the head's FLOPs doubled (nanotron with pp > 1)
    6n_full             6 N + 12 L s h per token with all parameters N (llm-foundry)
    full_nonemb         6 (N - embedding) + 12 L s h per token (torchtitan)

`flops_basis` says whether recomputed passes are counted: with hardware_full_recompute every layer
counts four forward passes, not three, which is 96 B s L h^2 (1 + s/6h + V/16Lh) for a plain block
(Megatron-LM SC21); with hardware_selective_recompute attention counts twice, 72 B s L h^2 (1 + s/3h
+ V/12Lh) (Korthikanti et al.).
"""

from __future__ import annotations

from typing import Final

from mofa_lab.validate.record import Record
from mofa_model import units
from mofa_model.calibrate.cases import MeasuredFigure
from mofa_model.equations.parameters import (
    attention_flops_per_token,
    forward_flops_per_token,
    total_parameters,
)
from mofa_model.errors import BadValue
from mofa_model.spec import Cluster, Transformer, Workload
from mofa_model.strategy import Recompute, Strategy
from mofa_model.units import GIB, Count, Flop, Numeric, Seconds

FORMULAS: Final = ("full", "causal", "head_counted_twice", "6n_full", "full_nonemb")
"""Ways of counting FLOPs."""

BASES: Final = ("model", "hardware_full_recompute", "hardware_selective_recompute", "hardware")
"""Which passes a count includes; plain `hardware` follows the case's own recomputation."""

ALLOCATED: Final = {
    "allocated_static_gib": "memory_allocated_bytes",
    "allocated_gib": "memory_peak_allocated_bytes",
}
"""What the allocator of the last rank counts, between two steps and at its peak: quantities by
fields of a case. [B]
"""

_HARDWARE: Final = {
    Recompute.FULL: "hardware_full_recompute",
    Recompute.SELECTIVE: "hardware_selective_recompute",
}
_MILLISECOND: Final = units.parse("1 ms", "s")
_TERAFLOPS: Final = units.parse("1 TFLOP/s", "FLOP/s")


def measurements(
    record: Record, workload: Workload, cluster: Cluster, strategy: Strategy
) -> tuple[MeasuredFigure, ...]:
    """All figures of a case that can be held against a prediction."""
    given = record.inner("measured")
    step = step_time(record, workload, cluster, strategy)
    figures = [step] if step else []
    rank = (
        "first stage"
        if "rank 0" in str(record.get("memory_basis") or given.get("memory_basis"))
        else "peak"
    )
    for quantity in ("memory_gib", "memory_static_gib"):
        value = given.measured(quantity)
        if value is not None:
            figures.append(MeasuredFigure(quantity=quantity, value=value * GIB, basis=rank))
    for quantity, name in ALLOCATED.items():
        value = given.measured(name)
        if value is not None:
            figures.append(MeasuredFigure(quantity=quantity, value=value, basis="last stage"))
    for quantity in ("layer_forward", "layer_backward"):
        value = given.measured(f"{quantity}_ms")
        if value is not None:
            figures.append(MeasuredFigure(quantity=f"{quantity}_s", value=value * _MILLISECOND))
    ratios = given.inner("activation_memory_pct_of_tp_baseline")
    for variant in ratios.values:
        value = ratios.measured(variant)
        if value is not None:
            figures.append(
                MeasuredFigure(quantity="activation_ratio", value=value / 100, basis=variant)
            )
    return tuple(figures)


def step_time(
    record: Record, workload: Workload, cluster: Cluster, strategy: Strategy
) -> MeasuredFigure | None:
    """The time of an optimizer step from the most direct figure that a case gives. [s]"""
    given = record.inner("measured")
    figures = {
        name: value
        for name in ("step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "hfu")
        if (value := given.measured(name)) is not None
    }
    if not figures:
        return None
    name, value = next(iter(figures.items()))
    if name == "step_time_s":
        return MeasuredFigure(quantity="step_time_s", value=value, basis=name)
    training = workload.training
    tokens = training.global_batch * training.sequence
    if name == "tokens_per_s_per_gpu":
        seconds = step_from_tokens(tokens, cluster.gpus, value)
    else:
        formula = record.text("flops_formula", "full")
        basis = record.text("flops_basis", "model") if name == "tflops_per_gpu" else "model"
        basis = "hardware" if name == "hfu" else basis
        flops = tokens * flops_per_token(
            workload.model,
            training.sequence,
            formula,
            basis,
            strategy,
            parameters=given.number("n_params", 0.0),
        )
        rate = value * (
            _TERAFLOPS if name == "tflops_per_gpu" else _peak(record, workload, cluster)
        )
        seconds = step_from_rate(flops, cluster.gpus, rate)
    return MeasuredFigure(quantity="step_time_s", value=float(seconds), basis=name)


def step_from_tokens(tokens: Count, gpus: Count, rate: Numeric) -> Seconds:
    """Time of a step of so many tokens at a throughput per device. Ours. [s]

    >>> step_from_tokens(64 * 2048, 8, 4096.0)
    4.0
    """
    return tokens / (gpus * rate)


def step_from_rate(flops: Flop, gpus: Count, rate: Numeric) -> Seconds:
    """Time of a step of so many counted FLOPs at a rate per device, Eq. (15) solved for the time.
    [s]

    >>> step_from_rate(8e15, 8, 5e14)
    2.0
    """
    return flops / (gpus * rate)


def _peak(record: Record, workload: Workload, cluster: Cluster) -> Numeric:
    """What a utilisation is a share of: the stated peak, else that of the GEMMs'
    format. [FLOP/s]
    """
    stated = record.number("mfu_peak", 0.0) * _TERAFLOPS
    return stated or cluster.device.peak_rate(workload.training.precision.gemm)


def flops_per_token(
    model: Transformer,
    sequence: Count,
    formula: str,
    basis: str,
    strategy: Strategy,
    *,
    parameters: Count = 0.0,
) -> Flop:
    """FLOPs that a source counts for a token, forward and backward, Eq. (15) and the sources'
    own. [FLOP]
    """
    if formula not in FORMULAS:
        raise BadValue("flops_formula", formula, f"one of {', '.join(FORMULAS)}")
    if basis not in BASES:
        raise BadValue("flops_basis", basis, f"one of {', '.join(BASES)}")
    if basis == "hardware":
        basis = _HARDWARE.get(_recomputed(strategy), "model")
    core = attention_flops_per_token(model, sequence)
    head = model.embedding.rows(model.hidden) * 2
    if formula == "6n_full":
        forward = 2 * (parameters or total_parameters(model)) + core
        head = 0.0
    else:
        convention, twice = (
            ("causal" if formula == "causal" else "full"),
            formula == "head_counted_twice",
        )
        forward = forward_flops_per_token(
            model, sequence, convention=convention, head_counted_twice=twice
        )
    again = {"hardware_full_recompute": forward - head, "hardware_selective_recompute": 3 * core}
    return 3 * forward + again.get(basis, 0.0)


def _recomputed(strategy: Strategy) -> Recompute:
    """Full or selective only where a source counts it: norms and activation functions have no FLOPs
    to count.
    """
    selective = strategy.recompute is Recompute.SELECTIVE
    return (
        Recompute.NONE
        if selective and "core_attn" not in strategy.recompute_modules
        else strategy.recompute
    )
