"""Questions drawn by the thousand, for laws that a few hundred examples of Hypothesis miss.

    workload, cluster, family = question(seed, rows=1000)
    there = runnable(family, workload)          the rows that their schedule can run
    faster(cluster, "scale_up", 1.5)            the same machines with one thing faster
    same_kinds(wide, narrow)                    whether a term is the same among other layouts

One seed is one family: a model, a cluster and every category of a strategy, with that many layouts.
Models and schedules take turns, so that fifteen seeds have every block and every schedule; the rest
is drawn.
"""

from dataclasses import replace

import numpy as np
from hybrids import HYBRIDS
from strategies import DENSE, MIXTURES

from mofa_model import presets
from mofa_model.schedules import DUALPIPE, SCHEDULES, ZERO_BUBBLE
from mofa_model.spec import (
    Calibration,
    LinkConstants,
    MemoryConstants,
    OverlapConstants,
    Training,
    Workload,
)
from mofa_model.spec.training import Lengths
from mofa_model.spec.transformer import with_imbalance
from mofa_model.spec.tuning import Adapters
from mofa_model.strategy import (
    MODULES,
    OFFLOADED,
    ContextMode,
    Graphs,
    Placement,
    Recompute,
    Sharding,
    Strategy,
)

MODELS = (*DENSE, *MIXTURES, *HYBRIDS)
_WIDE = ("bf16", "fp32")
DEVICES = (
    ("a100-80gb-sxm", _WIDE),
    *((name, (*_WIDE, "fp8-block")) for name in ("h100", "h800-80gb-sxm", "mi300x")),
    *((name, (*_WIDE, "fp8-block", "mxfp8")) for name in ("b200", "gb200")),
)
LOADS = ((1.0, 0.0), (1.0, 0.0), (1.5, 0.0), (1.25, 0.125), (4.0, 1.0))
MEMORIES = (
    MemoryConstants(),
    MemoryConstants(score=5.0, mask=1.0, gathered_input=1.7, activation_scale=1.15),
    MemoryConstants(bucket=2.0, partition=2.0, update=1.5, sharded_weight=2.0),
)
OVERLAPS = (
    OverlapConstants(),
    OverlapConstants(tensor=1.0, tensor_backward=0.7, tensor_overlapped=0.3, slow_down=1.1),
)


def question(seed, rows):
    """A workload, a cluster and a family of so many layouts."""
    draw = np.random.default_rng(seed)

    def of(values):
        return values[draw.integers(len(values))]

    device, formats = of(DEVICES)
    precision = presets.precision(of(formats))
    name = MODELS[seed % len(MODELS)]
    model = with_imbalance(HYBRIDS.get(name) or presets.model(name), *of(LOADS))
    training = Training(
        sequence=of((2048, 4096, 32768, 131072)),
        global_batch=of((256, 1024, 15360)),
        precision=precision,
        tokens=of((0, 10**12)),
        optimizer=presets.optimizer(of(presets.names("optimizers"))),
        adapters=of((None, None, None, Adapters(rank=16))),
        documents=of(
            (
                None,
                None,
                Lengths((512.0, 8192.0), (3.0, 1.0)),
                Lengths((300.0, 2048.0), (3.0, 1.0), padded=True),
            )
        ),
    )
    cluster = presets.cluster(
        device,
        of((8, 64, 2048, 16384)),
        stack=of(presets.names("stacks")),
        precision=precision,
        spine_nodes=of((0, 32)),
        oversubscription=of((1.0, 4.0)),
        in_network_reduction=of((False, True)),
    )
    if draw.random() < 0.5:  # a stack that nobody measured, by the laws alone
        links = of((LinkConstants(), LinkConstants(scale_decay=0.3, tensor_latency=1e-4)))
        plain = Calibration(memory=of(MEMORIES), links=links, overlap=of(OVERLAPS))
        cluster = replace(cluster, calibration=plain)
    placed = replace(cluster.calibration, placement=of(("even", "slots", "cost")))
    return (
        Workload(model=model, training=training),
        replace(cluster, calibration=placed),
        _family(draw, of, rows, SCHEDULES[seed % len(SCHEDULES)]),
    )


def _family(draw, of, rows, schedule):
    """Layouts that differ in degrees alone."""

    def column(*values):
        return draw.choice(np.array(values, dtype=float), rows)

    def subset(names):
        return frozenset(of(names) for _ in range(draw.integers(1, 4)))

    virtual = column(1, 2, 4)
    if schedule in {ZERO_BUBBLE, DUALPIPE}:
        virtual = np.ones(rows)
    if schedule.folded:
        virtual = np.full(rows, 2.0)
    return Strategy(
        tp=column(1, 2, 4, 8, 16),
        pp=column(*((2, 4, 8, 16) if schedule is DUALPIPE else (1, 2, 4, 8, 16))),
        cp=column(1, 1, 2, 4, 8),
        dp=column(*(2.0**n for n in range(7))),
        ep=column(1, 2, 4, 8),
        etp=column(1, 2),
        mbs=column(1, 2),
        shard=column(0, 2, 8),
        vpp=virtual,
        chunks=column(1, 1, 2, 4),
        chunk_layers=column(0, 0, 1, 3),
        recompute_layers=column(0, 1, 3),
        schedule=schedule,
        sharding=of(tuple(Sharding)),
        sequence_parallel=of((False, True)),
        context_mode=of(tuple(ContextMode)),
        recompute=of(tuple(Recompute)),
        recompute_modules=subset(MODULES),
        offload=subset(OFFLOADED) if draw.random() < 0.5 else frozenset(),
        optimizer=of(tuple(Placement)),
        tensor_overlap=of((False, True)),
        data_overlap=of((False, True)),
        pipeline_overlap=of((False, True)),
        expert_overlap=of((False, True)),
        graphs=of(tuple(Graphs)),
    )


def runnable(family, workload):
    """Rows with as many micro-batches as their schedule asks for: `orders` refuses the others."""
    m = workload.training.global_batch / (family.dp * family.mbs)
    if family.schedule == DUALPIPE:
        return (m % 2 == 0) & (m >= 2 * family.pp)
    if family.schedule.folded:
        return (m == np.floor(m)) & family.schedule.possible(microbatches=m, stages=family.pp)
    return (m == np.floor(m)) & ((family.vpp == 1) | (m % family.pp == 0))


def faster(cluster, part, factor):
    """The same machines with one thing faster."""
    device = cluster.device
    if part == "peak":
        peaks = {
            name: factor * getattr(device, name) for name in ("peak_bf16", "peak_fp8", "peak_fp4")
        }
        return replace(cluster, device=replace(device, **peaks))
    if part == "memory":
        return replace(
            cluster, device=replace(device, memory_bandwidth=factor * device.memory_bandwidth)
        )
    if part == "host":
        bus = replace(cluster.host.link, bandwidth=factor * cluster.host.link.bandwidth)
        rate = factor * cluster.host.optimizer_rate
        return replace(cluster, host=replace(cluster.host, link=bus, optimizer_rate=rate))
    link = getattr(cluster, part)
    return replace(cluster, **{part: replace(link, bandwidth=factor * link.bandwidth)})


def same_kinds(wide, narrow):
    """Kinds of stages pad with zeros in a family; alone they do not."""
    wide, narrow = np.atleast_1d(wide), np.atleast_1d(narrow)
    return np.array_equal(wide[..., : narrow.shape[-1]], narrow)
