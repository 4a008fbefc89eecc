"""One case that is complete and plain, and a stand-in for the estimate whose answers a reader can
do in the head.
"""

import copy
from types import SimpleNamespace

import numpy as np
import pytest

PLAIN = {
    "id": "plain",
    "source": "somewhere, container 26.04",
    "year": 2026,
    "kind": "pretrain",
    "model": {
        "name": "small",
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "ffn": 14336,
        "gated_mlp": True,
        "vocab": 128256,
        "seq": 8192,
    },
    "system": {"gpu": "H100-80GB-SXM", "gpus": 64, "gpus_per_node": 8, "nic_gbps_per_gpu": 200},
    "strategy": {"tp": 4, "pp": 2, "dp": 8, "mbs": 1, "gbs": 128},
    "measured": {"step_time_s": 10.0},
    "normalized": {"software": "megatron-bridge", "publisher": "someone", "precision": "bf16"},
}


@pytest.fixture
def plain():
    """A case whose fields a test may change."""
    return copy.deepcopy(PLAIN)


@pytest.fixture
def changed(plain):
    """The plain case with fields changed: changed({"strategy": {"tp": 8}})."""

    def change(changes):
        for name, value in changes.items():
            if isinstance(value, dict):
                plain[name] = {**plain.get(name, {}), **value}
            else:
                plain[name] = value
        return plain

    return change


class Tokens:
    """Prices a step at a microsecond per token and GPU-hour nothing; the fullest device holds a
    byte per layer.
    """

    def __call__(self, workload, cluster, strategy):
        tokens = workload.training.global_batch * workload.training.sequence
        layers = np.asarray(workload.model.layers, dtype=float)
        footprint = SimpleNamespace(
            peak=layers,
            first_stage=2 * layers,
            static_first_stage=layers / 2,
            allocated=layers,
            static_allocated=layers / 4,
            activations=layers,
            estimated=1.0,
            fits=lambda given: layers <= given.device.memory,
        )
        return SimpleNamespace(
            step_time=1e-6 * tokens / cluster.gpus,
            footprint=footprint,
            layer_forward=1e-3 * layers,
            layer_backward=2e-3 * layers,
        )


@pytest.fixture
def tokens():
    """The stand-in."""
    return Tokens()
