"""The series in which trainers publish progress, as data: their names, and labels of the job.

    mofa       what `mofa observe` exports, beside any trainer
    prime-rl   its own exporter
    megatron   Megatron core's OpenTelemetry names, dots as underscores; it publishes no step number

torchtitan publishes nothing to Prometheus: use `mofa observe` beside it. A value is of the whole
job, and every rank may publish the same one; so the largest counts, and values are never added up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from mofa_operator.observe.prometheus.promql import Pool, duration
from mofa_operator.snapshot import SHAPE

NAMESPACE: Final = "namespace"
"""Label in which a scrape shows where its target runs."""
TRAINING_LABELS: Final = ("training_namespace", "training_job")
"""Labels of our own series that name the job."""
RECENT: Final = 900.0
"""A job runs while its last finished step changed within this time. [s]"""
SMOOTHED: Final = 600.0
"""Throughput is the mean over this time. [s]"""

APART: Final = 2.0
"""Ratio of two speeds that targets publish of one job from which on the job is contested, because
its ranks would publish the same. [1]"""


class JobName(NamedTuple):
    """The identity of a job."""

    namespace: str
    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerSeries:
    """The series of one exporter; None = it has no such series."""

    step: str | None
    """The last finished step; without it a job runs while it publishes a speed."""
    tokens: str
    """Tokens per second of the whole job."""
    step_time: str | None = None
    """Time of a step, in units of `step_scale`."""
    step_scale: float = 1.0
    """Seconds of one unit of the step time. [s]"""
    checkpoint: str | None = None
    """Step of the last checkpoint."""
    save: str | None = None
    """For how long a save holds up training. [s]"""
    memory: str | None = None
    """Device memory that an allocator has reserved. [B]"""
    sequence: str | None = None
    """Tokens in a sequence, as the trainer says. [1]"""
    batch: str | None = None
    """Sequences in a step, as the trainer says. [1]"""
    shape: str | None = None
    """1, with the sizes of its model in labels, as the trainer says."""
    start: str | None = None
    """When it began; it exists before the first step."""
    names: tuple[str, ...] = TRAINING_LABELS
    """Labels with the job's namespace and name; empty where only own matchers pick it."""

    def advancing(self, pool: Pool) -> str:
        """Last steps of jobs whose steps advance now."""
        recent = f"{pool.series(self.step or self.tokens)}[{duration(RECENT)}]"
        last = self._max(pool, f"last_over_time({recent})")
        if self.step is None:
            return f"{last} > 0"
        return f"{last} and ({self._max(pool, f'changes({recent})')} > 0)"

    def there(self, pool: Pool) -> str:
        """Jobs whose series exist now, whether or not steps advance, and since when. [s]"""
        exists = f"0 * {self._max(pool, pool.series(self.step or self.tokens))}"
        if self.start is None:
            return exists
        return f"{self._max(pool, pool.series(self.start))} or {exists}"

    def speed(self, pool: Pool) -> str:
        """Tokens per second of each job, by targets that still publish where any do. [1/s]"""
        mean = f"avg_over_time({pool.series(self.tokens)}[{duration(SMOOTHED)}])"
        still = f"{mean} and {pool.series(self.tokens)}"
        return f"{self._max(pool, still)} or {self._max(pool, mean)}"

    def contested(self, pool: Pool) -> str:
        """A query for jobs whose series cannot be trusted: two targets contradict each other, or no
        target is scraped. The label `doubt` says which.

        Ranks of one job publish the same, and a late rank is only a few steps behind.
        """
        current = pool.series(self.tokens)  # an ended rank no longer publishes
        speed = f"max_over_time({current}[{duration(SMOOTHED)}]) > 0 and {current}"
        doubts = {"speeds": f"{self._max(pool, speed)} > {APART:g} * {self._min(pool, speed)}"}
        if self.step is not None and self.step_time is not None:
            steps = f"last_over_time({self._steps(pool)}[{duration(RECENT)}])"
            moves = f"changes({self._steps(pool)}[{duration(RECENT)}]) > 0"
            alive = f"({steps} and {moves} and {self._steps(pool)})"
            gap = f"({self._max(pool, alive)} - {self._min(pool, alive)})"
            doubts["steps"] = f"{gap} * {self.pace(pool, SMOOTHED)} > {SMOOTHED:g}"
        if pool.scraped:
            series = pool.series(self.step or self.tokens)
            job_series = self._max(pool, series)
            by = f" by ({self._by})" if self.names else ""
            doubts["targets"] = f"(max{by} ({series})) unless on ({self._by}) ({job_series})"
        parts = (
            f'label_replace({query}, "doubt", "{name}", "", "")' for name, query in doubts.items()
        )
        return " or ".join(parts)

    def reserved_memory(self, pool: Pool) -> str:
        """Most device memory that an allocator of each job has reserved. [B]"""
        series = pool.series(_published(self.memory))
        return self._max(pool, f"max_over_time({series}[{duration(SMOOTHED)}])")

    def stated(self, pool: Pool, series: str) -> str:
        """What each job's trainer says of itself in one of its series."""
        return self._max(pool, f"last_over_time({pool.series(series)}[{duration(RECENT)}])")

    def stated_shape(self, pool: Pool) -> str:
        """The sizes of each job's model, as labels."""
        last = f"last_over_time({pool.series(_published(self.shape))}[{duration(RECENT)}])"
        return f"max by ({self._by}, {', '.join(SHAPE)}) ({pool.attested(last, RECENT)})"

    def pace(self, pool: Pool, span: float) -> str:
        """Median time of a step of each job. [s]"""
        if self.step_time is None:
            gain = f"rate({self._steps(pool)}[5m]) > 0"
            median = f"quantile_over_time(0.5, ({gain})[{duration(span - 1)}:1m])"
            return f"1 / {self._max(pool, median, span)}"
        series = pool.series(self.step_time)
        median = self._max(pool, f"quantile_over_time(0.5, {series}[{duration(span)}])", span)
        return median if self.step_scale == 1 else f"{median} * {self.step_scale:.15g}"

    def path(self, pool: Pool, span: float, look: float) -> str:
        """Last step of each job, every `look` seconds."""
        return f"({self._max(pool, self._steps(pool))})[{duration(span)}:{duration(look)}]"

    def sampled(self, pool: Pool, span: float, look: float) -> str:
        """When each of these was sampled. [s]"""
        moments = self._max(pool, f"timestamp({self._steps(pool)})")
        return f"({moments})[{duration(span)}:{duration(look)}]"

    def steps_between_saves(self, pool: Pool, span: float) -> str:
        """Mean steps between two checkpoints of each job. [1]"""
        series = f"{pool.series(_published(self.checkpoint))}[{duration(span)}]"
        gained = f"max_over_time({series}) - min_over_time({series})"
        return f"{self._max(pool, f'({gained}) / (changes({series}) > 0)', span)} > 0"

    def gained(self, pool: Pool, span: float) -> str:
        """Steps gained by each job; those that were trained again count once. [1]"""
        series = f"{self._steps(pool)}[{duration(span)}]"
        most = self._max(pool, f"max_over_time({series})", span)
        return f"{most} - on ({self._by}) {self._min(pool, f'min_over_time({series})', span)}"

    def since(self, pool: Pool, span: float) -> str:
        """First moment at which each job was sampled, to five minutes. [s]"""
        grid = f"[{duration(span - 1)}:{duration(300)}]"
        return self._min(pool, f"min_over_time(timestamp({self._steps(pool)}){grid})", span)

    def most_samples(self, pool: Pool, span: float) -> str:
        """Most samples of one step series in an hour, by the namespace of its target. [1]"""
        counted = f"count_over_time({self._steps(pool)}[1h])"
        grid = f"[{duration(span - 1)}:{duration(min(span, 3600) / 2)}]"
        return f"max by (namespace) (max_over_time(({counted}){grid}))"

    def stops(self, pool: Pool, span: float, wait: float, look: float) -> str:
        """Moments at which the steps of a job stood still for the first time, and its last step."""
        return self._turning_points(pool, span, wait, look, f" offset {duration(look)}", "", "max")

    def starts(self, pool: Pool, span: float, wait: float, look: float) -> str:
        """Moments at which the steps of a job first moved, and the step that each went on from."""
        return self._turning_points(pool, span, wait, look, "", f" offset {duration(look)}", "min")

    def _turning_points(
        self, pool: Pool, span: float, wait: float, look: float, moved: str, stood: str, end: str
    ) -> str:
        """The query for moments when steps advanced at offset `moved`, but not at `stood`."""
        steps = self._steps(pool)
        number = f"{end} by ({self._by}) ({end}_over_time({steps}[{duration(wait + look)}]))"
        moves, moves_not = (
            f"({self._max(pool, f'changes({steps}[{duration(wait)}]{offset})')} > 0)"
            for offset in (moved, stood)
        )
        edge = f"({moves} unless on ({self._by}) {moves_not})"
        return f"({number} and on ({self._by}) {edge})[{duration(span - 1)}:{duration(look)}]"

    def _steps(self, pool: Pool) -> str:
        return pool.series(_published(self.step))

    def _max(self, pool: Pool, query: str, span: float = RECENT) -> str:
        return f"max by ({self._by}) ({pool.attested(query, span)})"

    def _min(self, pool: Pool, query: str, span: float = RECENT) -> str:
        return f"min by ({self._by}) ({pool.attested(query, span)})"

    @property
    def _by(self) -> str:
        return ", ".join(self.names)


def _published(series: str | None) -> str:
    if series is None:
        raise ValueError("this trainer publishes no series for this query")
    return series


MOFA: Final = TrainerSeries(
    step="mofa_train_step",
    tokens="mofa_train_tokens_per_second",
    step_time="mofa_train_step_seconds",
    checkpoint="mofa_train_checkpoint_step",
    save="mofa_train_save_seconds",
    memory="mofa_train_reserved_memory_bytes",
    sequence="mofa_train_sequence_length",
    batch="mofa_train_global_batch_size",
    shape="mofa_train_model_shape",
    start="mofa_train_start_timestamp_seconds",
)
"""Our own exporter."""
TRAINERS: Final[Mapping[str, TrainerSeries]] = {
    "mofa": MOFA,
    "prime-rl": TrainerSeries(
        step="trainer_step", tokens="trainer_throughput_tokens_per_sec", names=()
    ),
    "megatron": TrainerSeries(
        step=None,
        tokens="megatron_training_tokens_per_sec",
        step_time="megatron_training_step_duration_ms",
        step_scale=1e-3,
        names=(),
    ),
}
"""Exporters by the name that a TrainingJob's `throughput.preset` gives."""
