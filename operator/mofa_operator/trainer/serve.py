"""The series of `mofa observe` on /metrics, from what the log has shown so far.

An unknown number has no series, and is never 0. Speeds are no longer exported once the log has been
silent for long, because they do not hold any more; the step and its moment stay.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mofa_model.errors import BadValue, why
from mofa_model.files import write_bytes
from mofa_operator.trainer.progress import Progress

LABELS: Final = ("training_namespace", "training_job")
START: Final = "mofa_train_start_timestamp_seconds"
"""The only series before the first step; it shows a trainer that never finishes one."""
_SPEEDS: Final = {
    "mofa_train_tokens_per_second": ("tokens_per_second", "Tokens per second of the whole job."),
    "mofa_train_step_seconds": ("step_seconds", "Time of an optimizer step."),
    "mofa_train_reserved_memory_bytes": (
        "memory_bytes",
        "Most device memory that an allocator has reserved.",
    ),
}
_GAUGES: Final = {
    "mofa_train_step": ("step", "Last finished step."),
    "mofa_train_last_step_timestamp_seconds": ("at", "When the last finished step was logged."),
    "mofa_train_checkpoint_step": ("saved", "Step of the last checkpoint."),
    "mofa_train_checkpoint_interval_steps": (
        "save_spacing",
        "Steps between the last two checkpoints.",
    ),
    "mofa_train_save_seconds": ("save_seconds", "For how long the last save held up training."),
}
_STATED: Final = {
    "mofa_train_sequence_length": ("sequence", "Tokens in a sequence, as the trainer says."),
    "mofa_train_global_batch_size": ("batch", "Sequences in a step, as the trainer says."),
}
"""What a trainer says at its start, and a manifest may not."""
_MODEL: Final = "mofa_train_model_shape"
_COUNTERS: Final = {
    "mofa_train_checkpoint": ("saves", "Checkpoints that were completed."),
    "mofa_train_restarts": ("restarts", "Times that training went back to an earlier step."),
    "mofa_train_steps_redone": ("redone", "Steps that were trained again after a restart."),
}


@dataclass(slots=True, eq=False)
class LogExporter(Collector):
    """The series of one job; `progress` is replaced whole, so no scrape sees half of a line."""

    namespace: str
    job: str
    stale: float
    """Silence after which speeds are no longer exported. [s]"""
    progress: Progress = field(default_factory=Progress)
    since: float = field(default_factory=time.time)
    """When it began to look, in seconds of the epoch. [s]"""

    def collect(self) -> Iterator[Metric]:
        """The present series."""
        progress, job = self.progress, (self.namespace, self.job)

        def gauge(name: str, text: str, value: float) -> Metric:
            family = GaugeMetricFamily(name, text, labels=LABELS)
            family.add_metric(job, value)
            return family

        yield gauge(
            START, "When mofa observe began to look; there before the first step.", self.since
        )
        silent = progress.at is None or time.time() - progress.at > self.stale
        for name, (attribute, text) in {**({} if silent else _SPEEDS), **_GAUGES}.items():
            value = getattr(progress, attribute)
            if value is not None:
                yield gauge(name, text, value)
        for name, (attribute, text) in _STATED.items():
            if (stated := getattr(progress.facts, attribute)) is not None:
                yield gauge(name, text, stated)
        if shape := progress.facts.shape:
            shape_family = GaugeMetricFamily(
                _MODEL,
                "1, with the shape of the model, as the trainer says.",
                labels=(*LABELS, *shape),
            )
            shape_family.add_metric((*job, *shape.values()), 1.0)
            yield shape_family
        if progress.step is not None:
            for name, (attribute, text) in _COUNTERS.items():
                counter = CounterMetricFamily(name, text, labels=LABELS)
                counter.add_metric(job, getattr(progress, attribute))
                yield counter


class Textfile:
    """A file of series for node-exporter's textfile collector; a context, which removes it."""

    def __init__(self, exporter: LogExporter, path: str) -> None:
        self._path = Path(path)
        if self._path.suffix != ".prom":
            raise BadValue("--textfile", path, "node-exporter reads names that end in .prom")
        self._registry = CollectorRegistry()
        self._registry.register(exporter)
        self.url = path

    def write(self) -> None:
        """Write the present series."""
        write_bytes(self._path, generate_latest(self._registry))

    def __enter__(self) -> Self:
        """Itself, with a first file."""
        self.write()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the file: node-exporter would show it for ever."""
        self._path.unlink(missing_ok=True)


class Served:
    """A server of an exporter's series; a context, which ends it."""

    def __init__(self, exporter: LogExporter, address: str, port: int) -> None:
        registry = CollectorRegistry()
        registry.register(exporter)
        try:
            self._server, self._thread = start_http_server(port, address, registry)
        except (OSError, OverflowError) as error:
            reason = why(error) if isinstance(error, OSError) else str(error)
            raise BadValue(
                "--address, --port", f"{address}:{port}", f"it cannot be listened on: {reason}"
            ) from error
        host = f"[{address}]" if ":" in address else address
        self.url = f"http://{host}:{self._server.server_port}/metrics"

    def write(self) -> None:
        """Do nothing, because each scrape asks."""

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
