"""What an estimate asks of a device's kernels in one training recipe."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mofa_model.kernels.operators import LATENT
from mofa_model.kernels.surface import Timer
from mofa_model.records import dataclass
from mofa_model.units import Bytes, Count, Seconds

KV_SHARE = 0.125
"""Key over query heads at which attention is asked for: a server's kernels write their cache too,
and so they write least."""
CAST_RATE = 0.87
"""Share of the memory bandwidth that a cast reaches. Source: casts of 300 MB and more on six
devices, 0.86 to 0.92."""


class MeasuredProducts:
    """Matrix products of a device, in the recipe's format and in bf16."""

    def __init__(self, narrow: Timer, wide: Timer, cast: Bytes) -> None:
        """`cast` bytes are moved for an element of the rows within the time of `narrow`. [B]"""
        self._narrow, self._wide, self._cast = narrow, wide, cast

    @property
    def format(self) -> str:
        """Format of the matrix units: bf16, fp8 or fp4."""
        return self._narrow.surface.format

    def seconds(self, m: Count, n: Count, k: Count, together: Count | None = None) -> Seconds:
        """A product whose rows are narrow already: the cast is taken away, and of so many
        `together` each pays its part of the start. [s]
        """
        time, sheet = self._narrow.seconds(m=m, n=n, k=k), self._narrow.sheet
        if not self._cast and together is None:
            return time
        start = 0.0 if together is None else self._narrow.surface.law.start * (1.0 - 1.0 / together)
        cast = self._cast * m * k / (sheet.memory * CAST_RATE)
        return np.maximum(time - cast - start, 2.0 * m * n * k / sheet.peak)

    def wide_seconds(self, m: Count, n: Count, k: Count) -> Seconds:
        """A product in bf16, as the head's. [s]"""
        return self._wide.seconds(m=m, n=n, k=k)

    @property
    def digest(self) -> str:
        """Checksum of all that the times depend on. It is part of the inputs hash."""
        return f"{self._narrow.digest} {self._wide.digest} {self._cast}"


class MeasuredAttention:
    """Causal attention of a device, of all earlier tokens or of a window of them."""

    def __init__(self, by_width: Mapping[float, Timer], windows: Mapping[float, Timer]) -> None:
        """Measured times by the width of a key plus that of a value; in a window, the same."""
        self._whole, self._windows = _ByWidth(by_width), _ByWidth(windows) if windows else None

    def seconds(
        self,
        batch: Count,
        sequence: Count,
        heads: Count,
        width: Count,
        attended: Count,
        window: Count | None = None,
    ) -> Seconds:
        """Forward attention of whole sequences; kernels of another width reach the same rate. [s]

        Causal attention of a whole sequence meets half of it; another number of tokens takes time
        in proportion. A narrow window does not: its kernels wait for memory.
        """
        sizes = {"batch": batch, "sequence": sequence, "heads": heads}
        time = self._whole.seconds(width, sizes)
        if window is None or self._windows is None:
            return time * (attended / (0.5 * sequence))
        # Sequences of packed documents meet less of a window, too.
        narrow = np.minimum(window, sequence)
        met = narrow * (1.0 - narrow / (2.0 * sequence))
        sliding = np.minimum(time, self._windows.seconds(width, sizes | {"window": narrow}))
        inside = np.asarray(window) < sequence
        return np.where(inside, sliding * (attended / met), time * (attended / (0.5 * sequence)))

    @property
    def digest(self) -> str:
        """Checksum of all that the times depend on. It is part of the inputs hash."""
        parts = (self._whole, self._windows)
        return " ".join(part.digest for part in parts if part is not None)


class _ByWidth:
    """Timers of one kind of attention; another width has the rate of the nearest."""

    def __init__(self, timers: Mapping[float, Timer]) -> None:
        """Measured times by the width of a key plus that of a value."""
        self._timers = tuple(timers.values())
        self._widths = np.array(list(timers))
        self._logs = np.log(self._widths)[:, None]

    def seconds(self, width: Count, sizes: Mapping[str, Count]) -> Seconds:
        """A call of so many sequences, tokens and heads. [s]"""
        near = np.argmin(np.abs(self._logs - np.log(np.ravel(width))), axis=0)
        time = self._like(int(near[0]), width, sizes)
        for index in sorted({*near.tolist()} - {int(near[0])}):
            time = np.where(near == index, self._like(index, width, sizes), time)
        return time

    def _like(self, index: int, width: Count, sizes: Mapping[str, Count]) -> Seconds:
        """Attention at the rate of one of the timers. [s]"""
        timed_width = float(self._widths[index])
        if timed_width != sum(LATENT):
            sizes = {**sizes, "kv_heads": KV_SHARE * sizes["heads"]}
        return self._timers[index].seconds(**sizes) * (width / timed_width)

    @property
    def digest(self) -> str:
        """Checksum of all that the times depend on."""
        return " ".join(timer.digest for timer in self._timers)


class MeasuredGather:
    """All-gathers over the scale-up link; a reduce-scatter takes as long."""

    def __init__(self, timer: Timer) -> None:
        """`timer` of the whole tensor among ranks."""
        self._timer = timer

    def seconds(self, size: Bytes, ranks: Count) -> Seconds:
        """A gather of `size` bytes in all among two ranks or more. [s]"""
        return self._timer.seconds(size=size, ranks=np.maximum(ranks, 2.0))

    @property
    def digest(self) -> str:
        """Checksum of all that the times depend on. It is part of the inputs hash."""
        return self._timer.digest


@dataclass(frozen=True, kw_only=True)
class MeasuredKernels:
    """Kernels of one device in one recipe; None where a law holds."""

    product: MeasuredProducts | None
    """Products with weights."""
    attention: MeasuredAttention | None
    """Scores, softmax and weighted values."""
    gather: MeasuredGather | None
    """All-gathers and reduce-scatters inside a scale-up domain."""
