"""Memory of a device that keeps optimizer states or activations in its host, and what the host then holds."""

from __future__ import annotations

from mofa_model.units import Bytes, BytesPerSecond, Count, Seconds


def device_optimizer_bytes(optimizer: Bytes, *, on_host: bool) -> Bytes:
    """Optimizer bytes per parameter on the device, Eq. (27): none where they live in the host. [B]

    >>> device_optimizer_bytes(16.0, on_host=True)
    0.0
    """
    return 0.0 * optimizer if on_host else optimizer


def weight_fetch_time(
    held: Count, shard: Count, width: Bytes, rounds: Count, link: BytesPerSecond
) -> Seconds:
    """Time in which a device fetches its share of the weights from the host, before each gather of a step. Ours. [s]

    Source: DeepSpeed, runtime/zero/partition_parameters.py: a share that lives on the host is copied to the device, then gathered.

    >>> weight_fetch_time(8e9, 8, 2.0, 4.0, 50e9)
    0.16
    """
    return rounds * (held / shard) * width / link


def host_activation(
    in_flight: Count, layers: Count, layer: Bytes, layer_input: Bytes, devices: Count
) -> Bytes:
    """Activations that the devices of a node park in its host: n_inflight l (A - A_in) G, what Eq. (33) takes from them. [B]

    >>> host_activation(2, 16, 5.0e8, 1.0e8, 8)
    102400000000.0
    """
    return in_flight * layers * (layer - layer_input) * devices
