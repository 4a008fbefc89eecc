"""The question of an advice, the same for command, Python, manifests and pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from mofa_model import presets
from mofa_model.bands.coordinates import Coordinates
from mofa_model.bands.odds import LayoutOdds, ShortRun, odds_of
from mofa_model.bands.table import MeasuredRuns, Support, measured_runs, support
from mofa_model.checks import LATER, not_negative, positive, whole
from mofa_model.errors import BadValue
from mofa_model.records import dataclass
from mofa_model.search import ANY, LIFTABLE, SearchCase, trainers
from mofa_model.spec import Calibration
from mofa_model.spec.reliability import COPY_SLOWDOWN, CheckpointTier, Reliability, paper_classes
from mofa_model.strategy import Strategy
from mofa_model.units import Bytes, Count, Ratio, Seconds

if TYPE_CHECKING:
    from mofa_model.spec.recovery_plans import RecoveryPlan

OBJECTIVES = ("time", "throughput", "cost")
"""Least expected time to finish; least step time; least GPU-hours to finish."""

RATE = 0.005
"""Default failures of a node in a day: the paper's assumption. [1/d]"""
STORAGE = 2e9
"""Default bandwidth of a node to a shared file system: 25 Gbit/s less protocol. Ours. [B/s]"""
SHARED_STORAGE = 1e12
"""Default bandwidth of all nodes to it; published systems reach 2 TB/s. Ours. [B/s]"""
STALL = 1.0
"""Default stall of an asynchronous save: barrier and planning, 0.2 to several seconds. Ours. [s]"""
ROOMY = 2.0**60
"""Main memory of a node where nobody said it and the usual one is not enough. [B]"""


def assumed_reliability(snapshot_bandwidth: float, per_node_day: float = RATE) -> Reliability:
    """The paper's recovery classes at an assumed rate, and asynchronous checkpoints to a shared
    file system.

    >>> assumed_reliability(4e11).tiers[0].node_bandwidth
    2000000000.0
    """
    remote = CheckpointTier(
        name="remote",
        node_bandwidth=STORAGE,
        total_bandwidth=SHARED_STORAGE,
        asynchronous=True,
        snapshot_bandwidth=snapshot_bandwidth,
        stall=STALL,
    )
    return Reliability(classes=paper_classes(per_node_day), tiers=(remote,), slowdown=COPY_SLOWDOWN)


ByTrainer = tuple[tuple[str, tuple[SearchCase, ...]], ...]
"""Trainers, each with the problems of a question under its own constants."""


def by_trainer(
    problems: tuple[SearchCase, ...],
    release: str | None = None,
    under: Callable[[Calibration], Calibration] = lambda constants: constants,
) -> ByTrainer:
    """Problems under the constants of each trainer's own stack, for a question that names no
    trainer.

    The `release` of a stack, and further changes of its constants (`under`), are the same for all.
    """
    return tuple(
        (
            name,
            tuple(
                _with_constants_of(problem, presets.stack_of(name), release, under)
                for problem in problems
            ),
        )
        for name in trainers()
    )


def _with_constants_of(
    problem: SearchCase,
    stack: str,
    release: str | None,
    under: Callable[[Calibration], Calibration],
) -> SearchCase:
    """The problem with the precision and the calibration constants of a software stack.

    `under` changes the constants further.
    """
    training, cluster = problem.workload.training, problem.cluster
    precision = presets.precision(training.precision.name, stack=stack)
    constants = presets.calibration(cluster.device.name, precision.name, stack, release=release)
    return SearchCase(
        workload=replace(problem.workload, training=replace(training, precision=precision)),
        cluster=replace(cluster, calibration=under(constants)),
    )


@dataclass(frozen=True, kw_only=True)
class Unplaced:
    """Today's layout where it does not fit these machines: it is shown without a price."""

    text: str
    why: str


@dataclass(frozen=True, kw_only=True)
class LearnedMemory:
    """What running jobs taught of peak device memory on these machines."""

    ratio: float = 1.0
    """Observed over estimated, as it is expected of the next job. [1]"""
    spread: float = 10.0
    """Logarithm by which four of five jobs differ at most; the default is wider than bands. [1]"""


UNTAUGHT: Final = LearnedMemory()
"""What holds where no job has taught anything of memory."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A question about one job; everything that the answer depends on, and nothing else."""

    problems: tuple[SearchCase, ...]
    """The model and its machines, one for each precision; the preferred one first."""
    reliability: Reliability
    """How machines fail and come back, and where checkpoints go."""
    nodes: int
    """Nodes: exactly so many, or at most. [1]"""
    fewer_nodes: bool = False
    """Whether fewer nodes may be advised."""
    objective: str = "time"
    framework: str = ANY
    """Trainer; `any` = whichever of all has the best answer."""
    trainers: ByTrainer = field(default=(), metadata={"since": "a stack for each trainer"})
    """Without a named trainer: `problems` under the constants of each trainer's stack."""
    constraints: tuple[str, ...] = ()
    """Constraints on axes: tp=4,8 or pp<=8."""
    lifted: tuple[str, ...] = ()
    """Expert rules that are not applied, by their reasons."""
    checkpoint_bytes: Bytes | None = None
    """Size of a checkpoint; None = weights and optimizer states of the model. [B]"""
    least_interval: Seconds = 0.0
    """Shortest checkpoint interval. [s]"""
    most_interval: Seconds | None = None
    """Longest checkpoint interval; None = any. [s]"""
    current: Strategy | Unplaced | None = None
    current_runs: bool = field(default=True, metadata={"since": "written layouts"})
    """Whether somebody says or sees that it runs; else a command that may never have run has it."""
    learned: Ratio = 1.0
    """Observed over predicted step time of running jobs; every step is so much longer. [1]"""
    of_today: Ratio = field(default=1.0, metadata={"since": "measured today"})
    """The part of `learned` that the measured step of the job's own layout says. [1]"""
    learned_memory: LearnedMemory = field(default=UNTAUGHT, metadata=LATER)
    """The same of memory: every device holds so much more, and the band is no wider."""
    recovery_plans: tuple[RecoveryPlan, ...] = field(default=(), metadata=LATER)
    """Recovery plans to choose from together with the layout; none = what recovery classes say."""
    risk: Ratio = 0.1
    """Chance of being out of memory that is taken. [1]"""
    least_fits: Ratio = field(default=0.0, metadata={"since": "sizes"})
    """Least chance of fitting of what is chosen; 0 = what may not fit only costs. [1]"""
    odds: bool = True
    """Whether odds decide; else the estimates alone, over all that the trainer can run."""
    runs: MeasuredRuns = field(default_factory=measured_runs, compare=False, repr=False)
    """Measured runs that odds and bands rest on."""
    tried: tuple[ShortRun, ...] = field(default=(), metadata={"since": "short runs"})
    """Layouts that were run for a few steps; what all share is in `learned`."""
    probe: Count = field(default=0, metadata={"since": "short runs"})
    """Short runs to propose. [1]"""
    top: Count = 5
    notes: tuple[str, ...] = ()
    """How inputs were read, one sentence each; these are no doubts."""
    tunes: bool = field(default=False, metadata=LATER)
    """Whether somebody says that it is a fine-tune, which is short; adapters and trainers that do
    nothing else say so themselves."""
    caveats: tuple[str, ...] = field(default_factory=tuple)
    """What lowers confidence whatever is computed, one sentence each."""

    @property
    def timed(self) -> bool:
        """Whether somebody measured a step of a layout."""
        return any("step" in run.errors for run in self.tried)

    def for_trainer(self, trainer: str) -> Request:
        """The question with one of its trainers chosen, unless it names a trainer already."""
        if self.framework != ANY or not trainer:
            return self
        problems = dict(self.trainers).get(trainer, self.problems)
        return replace(self, framework=trainer, problems=problems, trainers=())

    def problem_in(self, precision: str | None) -> SearchCase:
        """The search case that computes in a precision, or the first case where none does."""
        named = (
            problem
            for problem in self.problems
            if problem.workload.training.precision.name == precision
        )
        return next(named, self.problems[0])

    def __post_init__(self) -> None:
        whole(nodes=self.nodes)
        not_negative(top=self.top, probe=self.probe, least_interval=self.least_interval)
        positive(
            learned=self.learned,
            memory_ratio=self.learned_memory.ratio,
            memory_spread=self.learned_memory.spread,
        )
        if not 0.0 < self.risk < 1.0:
            raise BadValue("risk", self.risk, "give a chance between 0 and 1, for example 0.1")
        if not 0.0 <= self.least_fits < 1.0:
            right = "give a chance from 0 to below 1, for example 0.99"
            raise BadValue("least_fits", self.least_fits, right)
        if not self.problems:
            raise BadValue("precision", (), "give at least one")
        if self.objective not in OBJECTIVES:
            raise BadValue("objective", self.objective, f"one of {', '.join(OBJECTIVES)}")
        known = [reason.value for reason in LIFTABLE]
        for name in self.lifted:
            if name not in known:
                raise BadValue("lift", name, f"one of {', '.join(known)}")


def layout_odds(request: Request, layouts: Sequence[Coordinates]) -> LayoutOdds:
    """Odds of layouts by measured runs, and by short runs if there are any, else by jobs."""
    odds = odds_of(request.runs, layouts, request.tried)
    is_told = any("memory" in run.errors for run in request.tried)
    if is_told or request.learned_memory == UNTAUGHT:
        return odds
    return odds.memory_taught(math.log(request.learned_memory.ratio), request.learned_memory.spread)


def trainer_of(request: Request) -> str:
    """Name of the trainer that was asked for; empty where none was named."""
    return "" if request.framework == ANY else request.framework


def measured_support(request: Request) -> Support:
    """Which features the measured runs of the asked software stack have."""
    first = request.problems[0]
    workload, stack = first.workload, first.cluster.calibration.stack
    experts = workload.model.experts is not None
    method = workload.training.method
    return support(request.runs, stack, experts=experts, method=method)
