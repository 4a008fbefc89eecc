"""Rank 0 of a training loop serves tokens/s, steps and checkpoints to Prometheus.

    series = TrainSeries(job="tiny", namespace="research", tokens_per_step=batch * sequence)
    for step, batch in enumerate(batches, start=1):
        ...
        series.step(step)  # and series.saved(step) after each checkpoint

A Hugging Face Trainer takes it as a callback: Trainer(..., callbacks=[series]).
"""

import os
import time

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server


class TrainSeries:
    """The series of `mofa observe`, from the loop itself; tokens_per_step are the whole job's."""

    def __init__(self, tokens_per_step, job=None, namespace=None, port=9400, address="0.0.0.0"):
        namespace = namespace or os.environ.get("POD_NAMESPACE", "default")
        labels = dict(training_namespace=namespace, training_job=job or os.environ["TRAINING_JOB"])
        self._tokens_per_step, self._last = tokens_per_step, None
        registry = CollectorRegistry()

        def series(kind, name, text):
            return kind(f"mofa_train_{name}", text, labels, registry=registry).labels(**labels)

        self._tokens = series(Gauge, "tokens_per_second", "Tokens per second of the whole job.")
        self._step = series(Gauge, "step", "Last finished step.")
        self._seconds = series(Gauge, "step_seconds", "Time of an optimizer step.")
        self._at = series(Gauge, "last_step_timestamp_seconds", "When the last step was finished.")
        self._saves = series(Counter, "checkpoint", "Checkpoints that were completed.")
        self._saved = series(Gauge, "checkpoint_step", "Step of the last checkpoint.")
        self.server, _ = start_http_server(port, address, registry)

    def step(self, step):
        now = time.monotonic()
        if self._last is not None and step > self._last[0]:
            seconds = (now - self._last[1]) / (step - self._last[0])
            self._seconds.set(seconds)
            self._tokens.set(self._tokens_per_step / seconds)
        self._last = (step, now)
        self._step.set(step)
        self._at.set_to_current_time()

    def saved(self, step):
        self._saves.inc()
        self._saved.set(step)

    def on_step_end(self, args, state, control, **kwargs):
        self.step(state.global_step)

    def on_save(self, args, state, control, **kwargs):
        self.saved(state.global_step)

    def __getattr__(self, name):  # a Trainer calls every event that it has
        if name.startswith("on_"):
            return lambda *args, **kwargs: None
        raise AttributeError(name)
