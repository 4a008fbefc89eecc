"""How trainers publish their progress, as data: names of series and of the labels that say whose they are.

    mofa       what `mofa observe` exports, beside any trainer
    prime-rl   its own exporter
    megatron   Megatron core's OpenTelemetry names, dots as underscores; it publishes no step number

torchtitan publishes nothing to Prometheus: use `mofa observe` beside it. Values are of the whole job and every rank may publish
the same one, so they are reduced by the largest and never added up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from mofa_operator.observe.prometheus.promql import Pool, duration

Job: TypeAlias = tuple[str, str]
"""Namespace and name of a job."""
NAMESPACE: Final = "namespace"
"""Label in which a scrape says where its target runs."""
RECENT: Final = 900.0
"""A job runs while its last finished step changed within this time. [s]"""
SMOOTHED: Final = 600.0
"""Throughput is the mean over this time. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trainer:
    """One exporter's names."""

    step: str | None
    """Series of the last finished step; None where there is none: then a job runs while it publishes a speed."""
    tokens: str
    """Series of tokens per second of the whole job."""
    step_time: str | None = None
    """Series of the time of a step, where there is one."""
    checkpoint: str | None = None
    """Series of the step of the last checkpoint, where there is one."""
    memory: str | None = None
    """Series of the device memory that an allocator has reserved, where there is one. [B]"""
    step_scale: float = 1.0
    """What makes that seconds. [s]"""
    start: str | None = None
    """Series of when it began, which is there before the first step; None where there is none."""
    names: tuple[str, ...] = ("training_namespace", "training_job")
    """Labels with the job's namespace and name; none where only a TrainingJob's own matchers can tell."""

    def advancing(self, pool: Pool) -> str:
        """Last steps of jobs whose steps advance now."""
        if self.step is None:
            return f"max by ({self._by}) (last_over_time({pool.series(self.tokens)}[{duration(RECENT)}])) > 0"
        series = pool.series(self.step)
        moved = f"max by ({self._by}) (changes({series}[{duration(RECENT)}])) > 0"
        return f"max by ({self._by}) (last_over_time({series}[{duration(RECENT)}])) and ({moved})"

    def there(self, pool: Pool) -> str:
        """Jobs whose series are there now, whether or not steps advance: since when, 0 where that is not said. [s]"""
        some = f"0 * max by ({self._by}) ({pool.series(self.step or self.tokens)})"
        return (
            some
            if self.start is None
            else f"max by ({self._by}) ({pool.series(self.start)}) or {some}"
        )

    def speed(self, pool: Pool) -> str:
        """Tokens per second of each job. [1/s]"""
        return (
            f"max by ({self._by}) (avg_over_time({pool.series(self.tokens)}[{duration(SMOOTHED)}]))"
        )

    def reserved(self, pool: Pool) -> str:
        """Most device memory that an allocator of each job has reserved. [B]"""
        if self.memory is None:
            raise ValueError("this trainer publishes no memory")
        return (
            f"max by ({self._by}) (max_over_time({pool.series(self.memory)}[{duration(SMOOTHED)}]))"
        )

    def pace(self, pool: Pool, span: float) -> str:
        """Median time of a step, by job. [s]"""
        if self.step_time is None:
            gain = f"rate({self._steps(pool)}[5m]) > 0"
            return f"1 / max by ({self._by}) (quantile_over_time(0.5, ({gain})[{duration(span - 1)}:1m]))"
        series = pool.series(self.step_time)
        median = f"max by ({self._by}) (quantile_over_time(0.5, {series}[{duration(span)}]))"
        return median if self.step_scale == 1 else f"{median} * {self.step_scale:.15g}"

    def path(self, pool: Pool, span: float, look: float) -> str:
        """Last step of each job, looked at again and again."""
        return f"(max by ({self._by}) ({self._steps(pool)}))[{duration(span)}:{duration(look)}]"

    def sampled(self, pool: Pool, span: float, look: float) -> str:
        """When each of these was sampled. [s]"""
        return f"(max by ({self._by}) (timestamp({self._steps(pool)})))[{duration(span)}:{duration(look)}]"

    def spacing(self, pool: Pool, span: float) -> str:
        """Mean steps between two checkpoints, by job. [1]"""
        if self.checkpoint is None:
            raise ValueError("this trainer publishes no checkpoints")
        series = f"{pool.series(self.checkpoint)}[{duration(span)}]"
        gained = f"max_over_time({series}) - min_over_time({series})"
        return f"max by ({self._by}) (({gained}) / (changes({series}) > 0)) > 0"

    def gained(self, pool: Pool, span: float) -> str:
        """Steps gained, by job; redone ones count once. [1]"""
        series = f"{self._steps(pool)}[{duration(span)}]"
        return (
            f"max by ({self._by}) (max_over_time({series})) - on ({self._by}) "
            f"min by ({self._by}) (min_over_time({series}))"
        )

    def since(self, pool: Pool, span: float) -> str:
        """First moment at which each job was seen, to five minutes. [s]"""
        series = self._steps(pool)
        return f"min by ({self._by}) (min_over_time(timestamp({series})[{duration(span - 1)}:{duration(300)}]))"

    def most_samples(self, pool: Pool, span: float) -> str:
        """Most samples of one step series in an hour, by the namespace of its target. [1]"""
        counted = f"count_over_time({self._steps(pool)}[1h])"
        grid = f"[{duration(span - 1)}:{duration(min(span, 3600) / 2)}]"
        return f"max by (namespace) (max_over_time(({counted}){grid}))"

    def stops(self, pool: Pool, span: float, wait: float, look: float) -> str:
        """Moments at which a job was no longer alive, but was one look before, and its last step."""
        return self._edge(
            pool, span, wait, look, before=f" offset {duration(look)}", after="", step="max"
        )

    def starts(self, pool: Pool, span: float, wait: float, look: float) -> str:
        """Moments at which a job was alive, and was not one look before, and the step that it went on from."""
        return self._edge(
            pool, span, wait, look, before="", after=f" offset {duration(look)}", step="min"
        )

    def _edge(
        self,
        pool: Pool,
        span: float,
        wait: float,
        look: float,
        *,
        before: str,
        after: str,
        step: str,
    ) -> str:
        series = f"{self._steps(pool)}[{duration(wait)}]"
        number = f"{step} by ({self._by}) ({step}_over_time({self._steps(pool)}[{duration(wait + look)}]))"
        is_alive = f"(max by ({self._by}) (changes({series}{before})) > 0)"
        was_alive = f"(max by ({self._by}) (changes({series}{after})) > 0)"
        edge = f"({is_alive} unless on ({self._by}) {was_alive})"
        return f"({number} and on ({self._by}) {edge})[{duration(span - 1)}:{duration(look)}]"

    def _steps(self, pool: Pool) -> str:
        if self.step is None:
            raise ValueError("this trainer publishes no step")
        return pool.series(self.step)

    @property
    def _by(self) -> str:
        return ", ".join(self.names)


MOFA: Final = Trainer(
    step="mofa_train_step",
    tokens="mofa_train_tokens_per_second",
    step_time="mofa_train_step_seconds",
    checkpoint="mofa_train_checkpoint_step",
    memory="mofa_train_reserved_memory_bytes",
    start="mofa_train_start_timestamp_seconds",
)
"""Our own exporter."""
TRAINERS: Final[Mapping[str, Trainer]] = {
    "mofa": MOFA,
    "prime-rl": Trainer(step="trainer_step", tokens="trainer_throughput_tokens_per_sec", names=()),
    "megatron": Trainer(
        step=None,
        tokens="megatron_training_tokens_per_sec",
        step_time="megatron_training_step_duration_ms",
        step_scale=1e-3,
        names=(),
    ),
}
"""Exporters that are known, by the name that a TrainingJob's `throughput.preset` gives."""
