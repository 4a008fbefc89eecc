"""Files that look like the profiler's, made from numbers."""

from __future__ import annotations

import gzip
import json
from itertools import accumulate
from pathlib import Path

import pytest
from shapes import decoder
from trace_generator import World

from mofa_lab.traces.columns import load
from mofa_lab.traces.predict import source_of
from mofa_lab.traces.prices import Layout
from mofa_model import presets
from mofa_model.blocks import Experts, SoftmaxAttention
from mofa_model.spec import Training, Workload
from mofa_model.strategy import Sharding, Strategy

DATA = Path(__file__).parents[3] / "lab" / "data" / "traces"
_NAMES = {
    "kernel GEMM": "sm90_xmma_gemm_bf16",
    "kernel grouped GEMM": "m_grouped_gemm",
    "kernel attention": "flash_fwd_kernel",
    "kernel norm, elementwise": "elementwise_kernel",
    "kernel copy": "direct_copy_kernel_cuda",
    "kernel all-to-all": "internode::exchange",
    "copy copy": "Memcpy DtoD (Device -> Device)",
}
_CATEGORIES = {0: "kernel", 1: "gpu_memcpy", 2: "cuda_runtime", 4: "user_annotation"}


@pytest.fixture(scope="session")
def dualpipe(tmp_path_factory):
    """DeepSeek's published trace, as a file, from the numbers that are kept of it."""
    kept = json.loads((DATA / "deepseek_v3_h800_dualpipe.json").read_text())
    events = []
    for kind, what, lane, start, duration, link in zip(
        kept["kind"],
        kept["what"],
        kept["lane"],
        accumulate(kept["start_us"]),
        kept["duration_us"],
        kept["link"],
        strict=True,
    ):
        name = kept["names"][what]
        device, process, thread = kept["lanes"][lane]
        details = {
            "correlation": link,
            **({"stream": int(thread), "device": int(process)} if device else {}),
        }
        events.append(
            {
                "ph": "X", "cat": _CATEGORIES[kind], "name": _NAMES.get(name, name), "pid": int(process),
                "tid": int(thread), "ts": start, "dur": duration, "args": details,
            }
        )  # fmt: skip
    engine = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "autograd::engine::evaluate_function",
        "pid": 1166,
    }
    events.append(
        engine | {"tid": int(kept["backward_thread"]), "ts": 0, "dur": 200_000, "args": {}}
    )
    document = {
        "deviceProperties": [{"name": kept["gpu"]}],
        "distributedInfo": {"rank": 0, "world_size": kept["world"]},
        "traceEvents": events,
    }
    path = tmp_path_factory.mktemp("traces") / "dualpipe.json.gz"
    path.write_bytes(gzip.compress(json.dumps(document).encode(), 1))
    return path


@pytest.fixture
def write(tmp_path):
    """Write events as a trace; gives the path."""

    def write(events, name="trace.json", **head):
        path = tmp_path / name
        path.write_text(json.dumps({**head, "traceEvents": events}))
        return path

    return write


@pytest.fixture(scope="session")
def layout():
    """What a generator's setup is called here."""

    def layout(setup, gpu="h100"):
        experts = None
        if setup.experts:
            experts = Experts(count=setup.experts, top_k=setup.top_k, width=setup.expert_ffn)
        attention = SoftmaxAttention(
            heads=setup.heads, kv_heads=setup.kv_heads, head_dim=setup.head_dim
        )
        model = decoder(
            "generated", layers=setup.layers, hidden=setup.hidden, attention=attention, ffn=setup.ffn,
            vocabulary=setup.vocabulary, experts=experts,
        )  # fmt: skip
        batch = setup.micro_batches * setup.mbs * setup.dp
        training = Training(
            sequence=setup.sequence, global_batch=batch, precision=presets.precision("bf16")
        )
        strategy = Strategy(
            tp=setup.tp, pp=setup.pp, dp=setup.dp, ep=setup.ep, vpp=setup.vpp, mbs=setup.mbs,
            sequence_parallel=setup.tp > 1, sharding=Sharding.OPTIMIZER,
        )  # fmt: skip
        workload = Workload(model=model, training=training)
        return Layout(
            workload=workload, cluster=presets.cluster(gpu, setup.world), strategy=strategy
        )

    return layout


@pytest.fixture(scope="session")
def traced(layout, tmp_path_factory):
    """Run a setup, trace one rank of each stage, understand it; gives the step time too."""

    def traced(setup, stack, missing=None):
        world = World(setup, stack).run()
        folder = tmp_path_factory.mktemp("ranks")
        ranks = [stage * setup.tp * setup.dp for stage in range(setup.pp)]
        files = world.write(folder, ranks, missing=missing)
        return world.step_seconds, source_of([load(path) for path in files], layout(setup))

    return traced
