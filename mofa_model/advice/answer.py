"""The types of an answer, for the command, annotations and the operator."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field

from mofa_model.advice.request import UNTAUGHT
from mofa_model.bands.evidence import Basis
from mofa_model.records import dataclass
from mofa_model.spec.reliability import FailureMode
from mofa_model.strategy import Strategy, format_strategy, short_strategy
from mofa_model.units import Bytes, Range, Ratio, Seconds


class Status(enum.Enum):
    """What an answer is worth; the values are those of the `status` annotation."""

    RECOMMENDED = "Recommended"
    LOW_CONFIDENCE = "LowConfidence"
    NO_RECOMMENDATION = "NoRecommendation"


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What a strategy is expected to do."""

    step_seconds: Range
    """One optimizer step. [s]"""
    tokens_per_second: Range
    """The whole job, while it runs. [1/s]"""
    mfu: Range
    """Model FLOPs utilisation. [1]"""
    memory_bytes: Range
    """Peak device memory of the fullest stage. [B]"""
    ettr: Range
    """Effective training time ratio at the interval beside it. [1]"""
    duration_seconds: Range
    """Wall time to finish the tokens with failures; zeros where no tokens are stated. [s]"""


@dataclass(frozen=True, kw_only=True)
class Odds:
    """Chances of a strategy, by the errors of measured runs."""

    fits: Ratio
    """Of fitting the devices. [1]"""
    beats: Ratio | None = None
    """Of being better than today's layout, else than the first choice; None of that. [1]"""


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """Another strategy, and why it is not the first choice."""

    name: str
    """`most likely best`, `worth a try`, `in` a trainer, or `with` or `without` a feature."""
    trainer: str = ""
    """Trainer that can run it; empty where none can."""
    odds: Odds
    strategy: Strategy
    """What it is, as one layout."""
    precision: str
    nodes: int
    predicted: Predicted
    checkpoint_interval_steps: int
    """Its own best interval. [1]"""
    checkpoint_interval_seconds: Seconds
    """The same as time. [s]"""
    terms: Mapping[str, Seconds]
    """By how much each term of a step is longer than the first choice's. [s]"""
    reason: str
    """One sentence: which terms decide."""


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """The best strategy on a number of nodes, where fewer nodes are slower: time against GPUs."""

    nodes: int
    gpus: int
    """Devices on them. [1]"""
    strategy: Strategy
    predicted: Predicted
    checkpoint_interval_steps: int
    """Its best interval. [1]"""


@dataclass(frozen=True, kw_only=True)
class Current:
    """Today's layout, priced beside the advice."""

    strategy: Strategy | None
    """As it was given; None where it does not fit these machines."""
    given: str = ""
    """What was given instead, as text."""
    predicted: Predicted | None
    """What it does; None where it cannot run."""
    odds: Odds | None = None
    """Its chances; None where it cannot run."""
    reason: str
    """Why it cannot run, or does not fit, by the model; empty where it does."""
    gain: Ratio
    """Time for the same work over that with the advice, minus one; 0 where it cannot run. [1]"""
    is_planned: bool = False
    """Whether it is only written, and nobody says or saw that it runs."""
    is_failed: bool = False
    """Whether it ran out of memory."""

    @property
    def word(self) -> str:
        """One word for today's layout: today, planned or failed."""
        return "failed" if self.is_failed else "planned" if self.is_planned else "today"

    @property
    def called(self) -> str:
        """What sentences call this layout: today's layout, the planned layout."""
        return f"the {self.word} layout" if self.word != "today" else "today's layout"

    @property
    def row(self) -> str:
        """What a row of a table calls it, as in `beats today's`."""
        return self.word if self.word != "today" else "today's"

    @property
    def text(self) -> str:
        """The layout as text."""
        return self.given if self.strategy is None else format_strategy(self.strategy)

    @property
    def short(self) -> str:
        """The layout in as few words as a table has room for."""
        return self.given if self.strategy is None else short_strategy(self.strategy)


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The answer. Strategy, prediction and interval are None without a recommendation."""

    status: Status
    model: str
    device: str
    """GPU preset."""
    objective: str
    strategy: Strategy | None = None
    """The first choice, as one layout."""
    precision: str | None = None
    """Training recipe of the first choice."""
    predicted: Predicted | None = None
    """What it is expected to do."""
    odds: Odds | None = None
    trainer: str = ""
    """Trainer that was named, else the best of all; empty where none runs the layout."""
    expected: Seconds | None = None
    """The objective with what memory may cost; the least of all trainers is chosen. [s]"""
    checkpoint_interval_steps: int | None = None
    """Steps between checkpoints. [1]"""
    checkpoint_interval_seconds: Seconds | None = None
    """The same as time. [s]"""
    recovery: str = ""
    """Recovery plan of the first choice; empty where none was asked for."""
    restarts: int | None = None
    """Restarts that are enough for its run with a chance of `SURE`. [1]"""
    hang_timeout: Seconds | None = None
    """Time-out of its collectives. [s]"""
    nodes: int
    """Nodes that the first choice uses; those that were given where there is none. [1]"""
    gpus: int
    """Devices on them. [1]"""
    explanation: str
    """One sentence: what is recommended and why, or what stands in the way."""
    alternatives: tuple[Alternative, ...] = ()
    """The most likely best layout if another, one worth a try, and the best of other kinds."""
    probes: tuple[Alternative, ...] = ()
    """Short runs that would make the choice surer, the most valuable first; if asked for."""
    frontier: tuple[Frontier, ...] = ()
    """Time against GPUs, where several numbers of nodes were searched; by rising number."""
    raw: int
    """Combinations of all axis values: those searched, pruned and rejected."""
    searched: int
    """Legal strategies that fit, each one priced. [1]"""
    pruned: int
    """Strategies left out because another one is proved to be at least as good. [1]"""
    rejected: Mapping[str, int] = field(default_factory=dict)
    """Strategies that are not legal or do not fit, by reason."""
    nearest: tuple[str, ...] = ()
    """Constraints that a small change would move, one sentence each."""
    current: Current | None = None
    """Today's layout, where one was given."""
    confidence: Ratio
    """Probability that the band of the step holds. [1]"""
    kept: str = ""
    """Where today's layout is the first choice: that it is, and the chance of the best
    other one.
    """
    doubts: tuple[str, ...] = ()
    """Why it is not Recommended, one sentence each, what matters most first; none where it is."""
    basis: Basis | None = None
    """Measured runs that the prediction rests on."""
    caveats: tuple[str, ...] = ()
    """How the question was read, and what lowers confidence, one sentence each."""
    failures: tuple[FailureMode, ...] = ()
    """Failures with their rates and recoveries that the answer used."""
    learned: Ratio = 1.0
    """Factor on every step that running jobs taught, and that the predictions contain. [1]"""
    learned_memory: Ratio = 1.0
    """The same on device memory."""
    learned_spread: Ratio = UNTAUGHT.spread
    """Logarithm by which four of five jobs differ from that at most. [1]"""
    memory_limit_bytes: Bytes
    """Device memory that a strategy may take. [B]"""
    model_version: str
    """Version of the engine; part of the inputs hash."""

    @property
    def beside(self) -> tuple[str, ...]:
        """Sentences after the status: that today's layout is kept, doubts, and evidence."""
        evidence = self.basis.evidence if self.basis else ""
        return tuple(filter(None, dict.fromkeys((self.kept, *self.doubts, evidence))))

    @property
    def taught(self) -> Mapping[str, float]:
        """Factors that running jobs taught, where they are not 1: step, memory, spread."""
        factors = {
            "step": (float(self.learned), 1.0),
            "memory": (float(self.learned_memory), UNTAUGHT.ratio),
            "spread": (float(self.learned_spread), UNTAUGHT.spread),
        }
        return {name: factor for name, (factor, default) in factors.items() if factor != default}
