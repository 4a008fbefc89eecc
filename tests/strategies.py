"""Hypothesis generators of everything that the cost model is asked about, in one place.

    from strategies import clusters, families, workloads

A *family* is a Strategy whose degrees are arrays; `layouts()` draws it with a single row,
as plain numbers.
"""

from dataclasses import replace

import numpy as np
from hybrids import HYBRIDS
from hypothesis import strategies as st

from mofa_model import presets
from mofa_model.schedules import DUALPIPE, SCHEDULES, ZERO_BUBBLE
from mofa_model.spec import Calibration, LinkConstants, MemoryConstants, Training, Workload
from mofa_model.spec.transformer import with_imbalance
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

DENSE = ("llama3.1-8b", "llama3.1-405b", "gpt3-175b")
"""Grouped-query and multi-head attention, gated and plain FFN, own and tied embedding."""
MIXTURES = ("mixtral-8x7b", "deepseek-v3", "gpt-oss-20b")
"""Plain experts; latent attention with shared experts, first dense layers and a prediction
module; windows.
"""

ROWS = 7
"""Layouts of a family: few enough to ask for each alone."""


@st.composite
def workloads(draw, models=DENSE + MIXTURES):
    """A model with its batch, sequence and formats."""
    recipe = presets.precision(draw(st.sampled_from(["bf16", "fp8-block", "mxfp8"])))
    training = Training(
        sequence=draw(st.sampled_from([2048, 4096, 131072])),
        global_batch=draw(st.sampled_from([256, 1024, 15360])),
        precision=recipe,
    )
    name = draw(st.sampled_from(models))
    model = HYBRIDS.get(name) or presets.model(name)
    mean, spread = draw(st.sampled_from([(1.0, 0.0), (1.0, 0.0), (1.5, 0.0), (1.25, 0.125)]))
    return Workload(model=with_imbalance(model, mean, spread), training=training)


@st.composite
def calibrations(draw):
    """A generic stack, with the constants that change a form: unfused attention, buckets,
    thin links.
    """
    return Calibration(
        placement=draw(st.sampled_from(["even", "slots", "cost"])),
        memory=draw(
            st.sampled_from(
                [
                    MemoryConstants(),
                    MemoryConstants(score=5.0, mask=1.0, gathered_input=1.7, activation_scale=1.15),
                    MemoryConstants(bucket=2.0, partition=2.0, update=1.5, sharded_weight=2.0),
                ]
            )
        ),
        links=draw(
            st.sampled_from([LinkConstants(), LinkConstants(scale_decay=0.3, tensor_latency=1e-4)])
        ),
    )


@st.composite
def clusters(draw):
    """HGX nodes or racks, with or without a thinned-out spine and adding switches."""
    cluster = presets.cluster(
        draw(st.sampled_from(["h100", "b200", "gb200"])),
        draw(st.sampled_from([8, 64, 2048, 16384])),
        spine_nodes=draw(st.sampled_from([0, 32])),
        oversubscription=draw(st.sampled_from([1.0, 4.0])),
        in_network_reduction=draw(st.booleans()),
    )
    return replace(cluster, calibration=draw(calibrations()))


def categories(schedules=SCHEDULES):
    """Every choice of a strategy that is a Python value."""
    return st.fixed_dictionaries(
        dict(
            schedule=st.sampled_from(schedules),
            sharding=st.sampled_from(Sharding),
            sequence_parallel=st.booleans(),
            context_mode=st.sampled_from(ContextMode),
            recompute=st.sampled_from(Recompute),
            recompute_modules=st.frozensets(st.sampled_from(MODULES), min_size=1, max_size=3),
            offload=st.frozensets(st.sampled_from(OFFLOADED), max_size=3),
            optimizer=st.sampled_from(Placement),
            tensor_overlap=st.booleans(),
            data_overlap=st.booleans(),
            pipeline_overlap=st.booleans(),
            expert_overlap=st.booleans(),
            graphs=st.sampled_from(Graphs),
        )
    )


def powers(top):
    """Powers of two up to 2^top."""
    return st.integers(0, top).map(lambda n: float(2**n))


@st.composite
def degrees(draw, rows):
    """Columns of degrees that divide each other as far as any law here needs it."""

    def column(values):
        return np.array(draw(st.lists(values, min_size=rows, max_size=rows)))

    return dict(
        tp=column(powers(4)),
        pp=column(powers(4)),
        cp=column(powers(3)),
        dp=column(powers(6)),
        ep=column(powers(3)),
        etp=column(powers(1)),
        mbs=column(powers(1)),
        shard=column(st.sampled_from([0.0, 2.0, 8.0])),
        recompute_layers=column(st.sampled_from([0.0, 1.0, 3.0])),
        chunks=column(powers(2)),
        chunk_layers=column(st.sampled_from([0.0, 0.0, 1.0, 3.0])),
        vpp=column(powers(2)),
    )


@st.composite
def families(draw, rows=ROWS, schedules=SCHEDULES):
    """Layouts that differ in degrees alone."""
    chosen, columns = draw(categories(schedules)), draw(degrees(rows))
    if chosen["schedule"] in {ZERO_BUBBLE, DUALPIPE}:
        columns["vpp"] = np.ones(rows)
    if chosen["schedule"].folded:
        columns["vpp"] = np.full(rows, 2.0)
    if chosen["schedule"] == DUALPIPE:
        columns["pp"] = np.maximum(columns["pp"], 2.0)
    return Strategy(**chosen, **columns)


def layouts(schedules=SCHEDULES):
    """A single layout, as plain numbers."""
    return families(rows=1, schedules=schedules).map(lambda family: family.row(0))
