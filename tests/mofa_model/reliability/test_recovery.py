"""Recovery plans: the closed forms against our events, and against an outsider's in SimPy that
share no code with either.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from outsider import judged
from planned_runs import measured

import mofa_model
import mofa_operator
from mofa_model.answers.simulate import planned_scenario
from mofa_model.errors import MofaError
from mofa_model.reliability import interval, model
from mofa_model.reliability.model import Job
from mofa_model.reliability.recovery import planned
from mofa_model.simulator.planned import PlannedScenario
from mofa_model.spec.recovery_plans import PLANS, Replicas, choices, plan_of
from mofa_model.spec.reliability import FailureRate, Hangs, RecoveryTime, Reliability, paper_classes

CLOSE = 0.003
"""Points of ETTR that a closed form may be off. [1]"""
_SNAPSHOT = 200e9


@dataclass(frozen=True)
class Regime:
    """Nodes, failures of a node and day, a plan, and what the layout and the saves are."""

    nodes: int
    rate: float
    plan: str
    replicas: int = 1
    step: float = 10.0
    block: float = 20.0
    state: float = 600e9
    hangs: Hangs | None = None
    micro: int = 0
    failures: int = 20_000
    snapshot: float = _SNAPSHOT
    stages: int = 8

    @property
    def job(self) -> Job:
        rel = Reliability(classes=paper_classes(self.rate, float("inf")), hangs=self.hangs)
        layout = Replicas(
            count=self.replicas,
            state=self.state,
            snapshot=self.snapshot,
            micro_batches=self.micro or float("inf"),
            stages=self.stages,
        )
        return Job(
            nodes=self.nodes,
            step_time=self.step,
            blocking=(self.block,),
            background=(0.0,),
            reliability=rel,
            plan=plan_of(self.plan),
            redundancy=layout,
        )

    def scenario(self, best: interval.Interval) -> PlannedScenario:
        return planned_scenario(self.job, best.steps, best.every)


HUNG = Hangs(timeout=900.0, share=0.3, pauses=12 / 86400, pause=RecoveryTime(mean=300.0, cv=1.0))
SAMPLE = (
    Regime(4096, 0.005, "in-place+peer+stand-in:spares=2:refill=2h", failures=2000),
    Regime(12_500, 0.005, "replica", replicas=100, failures=5000),
    Regime(12_500, 0.005, "shrink", replicas=96, failures=5000),
)
REGIMES = (
    Regime(1, 0.5, "in-place", failures=2000),
    Regime(1, 2.0, "stand-in:spares=1", failures=4000),
    Regime(2, 2.0, "replica", replicas=2, failures=4000),
    Regime(8, 0.1, "retry", failures=2000),
    Regime(16, 1.0, "replica", replicas=2),
    Regime(16, 1.0, "shrink", replicas=4),
    Regime(64, 0.02, "restart", failures=2000),
    Regime(64, 0.1, "peer"),
    Regime(128, 0.05, "stand-in:spares=1:refill=12h"),
    Regime(128, 0.05, "stand-in:spares=4:refill=12h"),
    Regime(256, 0.02, "in-place+peer+stand-in"),
    Regime(256, 0.08, "replica", replicas=8),
    Regime(256, 0.08, "replica:keeps-batch=true", replicas=8, micro=32),
    Regime(256, 0.08, "shrink:stall=60s", replicas=8),
    Regime(512, 0.02, "warm:spares=3:refill=4h:jobs=1"),
    Regime(512, 0.02, "in-place+replica", replicas=16),
    Regime(1024, 0.005, "classes", hangs=HUNG),
    Regime(1024, 0.005, "classes:watchdog=10min", hangs=HUNG),
    Regime(1024, 0.005, "replica:watchdog=5min", replicas=16, hangs=HUNG),
    Regime(1024, 0.02, "peer+stand-in:spares=8:refill=6h"),
    Regime(2048, 0.005, "replica:stall=30s:rejoin=10s", replicas=64),
    Regime(2048, 0.005, "retry"),
    Regime(2048, 0.01, "stand-in:spares=6:takeover=30s:refill=3h"),
    Regime(4096, 0.005, "in-place"),
    Regime(4096, 0.005, "replica", replicas=128),
    Regime(4096, 0.005, "peer+shrink", replicas=32),
    Regime(8192, 0.002, "replica", replicas=64),
    Regime(8192, 0.005, "peer+replica", replicas=64),
    Regime(8192, 0.005, "in-place+shrink", replicas=64),
    Regime(12_500, 0.005, "stand-in:spares=16:refill=4h"),
    Regime(12_500, 0.005, "in-place+peer+stand-in:spares=8:refill=2h"),
    Regime(12_500, 0.005, "peer", step=5.0),
    Regime(12_500, 0.005, "replica:keeps-batch=true", replicas=48, micro=64),
    Regime(12_500, 0.0023, "replica", replicas=24),
    Regime(12_500, 0.0023, "shrink", replicas=96),
)


def _agrees(regime: Regime) -> None:
    job = regime.job
    best = interval.recommend(job)
    seen, error = measured(regime.scenario(best), regime.failures)
    assert abs(best.ettr - seen) < CLOSE + 2 * error, (regime, best.ettr, seen, error)
    assert error < CLOSE


@pytest.mark.parametrize("regime", SAMPLE, ids=lambda one: f"{one.plan}-{one.nodes}")
def test_a_plan_is_as_plain_events_say_within_three_tenths_of_a_point(regime: Regime) -> None:
    _agrees(regime)


@pytest.mark.soak
@pytest.mark.parametrize("regime", REGIMES, ids=lambda one: f"{one.plan}-{one.nodes}-{one.rate}")
def test_thirty_five_regimes_from_8_to_100_000_gpus_are_as_plain_events_say(
    regime: Regime,
) -> None:
    _agrees(regime)


def _agrees_with_an_outsider(regime: Regime, sure: float) -> None:
    best = interval.recommend(regime.job)
    seen, error = judged(regime, plan_of(regime.plan), int(best.steps), best.every, sure)
    assert abs(best.ettr - seen) < CLOSE + 2 * error, (regime, best.ettr, seen, error)


@pytest.mark.parametrize("regime", SAMPLE, ids=lambda one: f"{one.plan}-{one.nodes}")
def test_a_plan_is_as_an_outsider_s_events_say_within_three_tenths_of_a_point(
    regime: Regime,
) -> None:
    _agrees_with_an_outsider(regime, sure=0.002)


@pytest.mark.soak
@pytest.mark.parametrize(
    "regime", [*SAMPLE, *REGIMES], ids=lambda one: f"{one.plan}-{one.nodes}-{one.rate}"
)
def test_38_regimes_from_8_to_100_000_gpus_are_as_an_outsider_s_events_say(regime: Regime) -> None:
    _agrees_with_an_outsider(regime, sure=0.0008)


def test_a_job_without_a_plan_is_priced_as_before_to_the_last_bit() -> None:
    job = replace(SAMPLE[0].job, plan=None)
    said = replace(job, plan=PLANS["classes"])
    assert model.ettr(said, 60) == model.ettr(job, 60)
    assert interval.recommend(said) == interval.recommend(job)


def test_shares_of_time_add_to_one_under_each_of_25_plans() -> None:
    job = Regime(1024, 0.01, "classes", replicas=16).job
    for plan in choices():
        under = replace(job, plan=plan)
        every = (1, 8) if plan.peers else (1,)
        parts = model.budget(under, 30, every)
        assert sum(parts.values()) == pytest.approx(1.0, abs=1e-9), plan.name
        assert parts["training"] == pytest.approx(float(model.ettr(under, 30, every)), abs=1e-9)
        assert 0 < planned(under).keeps <= 1


def test_failures_are_split_and_none_is_lost_while_no_replica_fails_alone() -> None:
    job = Regime(1024, 0.01, "classes").job
    rate = model.failure_rate(job)
    for plan in choices():
        if str(plan.others) == "stop":
            under = planned(replace(job, plan=plan)).job
            assert model.failure_rate(under) == pytest.approx(rate, rel=1e-12), plan.name


def test_copies_on_peers_cost_replicas_that_go_on_a_little_and_never_the_interval() -> None:
    """Only failures of the whole job read a save, and they read the far one: both tiers
    save together.
    """
    job = Regime(8192, 0.005, "replica", replicas=64).job
    alone = interval.recommend(job)
    both = interval.recommend(replace(job, plan=plan_of("peer+replica")))
    assert 0.97 * alone.ettr < both.ettr <= alone.ettr
    assert both.every == (1, 1)


def test_more_spares_never_lower_ettr_and_the_last_of_eight_is_worth_less_than_the_first() -> None:
    job = Regime(1024, 0.02, "classes").job
    ettr = [
        interval.recommend(replace(job, plan=plan_of(f"stand-in:spares={n}:refill=6h"))).ettr
        for n in range(1, 9)
    ]
    gains = np.diff(ettr)
    assert np.all(gains > 0)
    assert gains[-1] < gains[0]


@pytest.mark.parametrize(
    "text",
    ["hot", "stand-in:spares", "stand-in:speed=3", "peer:peers=1", "stand-in+warm", "restart+peer+in-place",
     "stand-in:spares=x", "replica:others=run", "replica:keeps-batch=1", "replica:stall=-3s"],
)  # fmt: skip
def test_a_plan_that_cannot_be_is_refused_and_the_option_is_named(text: str) -> None:
    with pytest.raises(MofaError, match="--recovery"):
        plan_of(text)


def test_published_chains_of_retries_work_in_33_percent_and_a_shared_stand_in_takes_20_seconds() -> (
    None
):
    retry, stand_in = PLANS["retry"], PLANS["stand-in"]
    assert 1 - (1 - retry.success) ** retry.attempts == pytest.approx(4 / 12, abs=0.003)
    under = planned(replace(Regime(128, 0.005, "stand-in").job)).job
    assert next(c for c in under.reliability.classes if "spare" in c.name).recovery.mean == 20.0
    assert stand_in.takeover == 20.0


def test_replicas_that_go_on_keep_80_percent_of_100_000_gpus_where_a_whole_job_keeps_57() -> None:
    """Known: a failure in 18 minutes, stalls of 10 and 3 minutes (arXiv 2602.00277)."""
    rate = 86400 / (18 * 60) / 12_500
    slow = RecoveryTime(mean=600.0, law="deterministic")
    pod = replace(
        paper_classes(rate, float("inf"))[1], rate=FailureRate.assumed(rate, float("inf"))
    )
    rel = Reliability(classes=(replace(pod, recovery=slow),))
    job = Job(nodes=12_500, step_time=10.0, blocking=(0.0,), background=(0.0,), reliability=rel)
    whole = model.ettr(job, 1)
    layout = Replicas(count=48)
    others = model.ettr(replace(job, plan=PLANS["replica"], redundancy=layout), 1)
    assert float(whole) == pytest.approx(0.57, abs=0.01)
    assert float(others) == pytest.approx(0.80, abs=0.04)


def test_every_function_of_reliability_and_simulator_is_reached_from_a_verb() -> None:
    """By name: from the verbs of the model and of the operator on, over all names that reached
    code says.
    """
    named = _names_by_definition(Path(mofa_model.__file__).parent)
    for name, uses in _names_by_definition(Path(mofa_operator.__file__).parent).items():
        named.setdefault(name, []).extend(uses)
    reached, todo = set[str](), ["run"]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += [used for uses in named.get(name, ()) for used in uses]
    here = _names_by_definition(Path(mofa_model.__file__).parent / "reliability")
    here |= _names_by_definition(Path(mofa_model.__file__).parent / "simulator")
    public = {name for name in here if not name.startswith("__")}
    assert not sorted(public - reached), "no verb asks for these"


def _names_by_definition(folder: Path) -> dict[str, list[set[str]]]:
    """Names that each function, and each class for its own body, says."""
    found: dict[str, list[set[str]]] = {}
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                used = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
                used |= {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
                used |= {
                    alias.name
                    for one in ast.walk(node)
                    if isinstance(one, ast.ImportFrom)
                    for alias in one.names
                }
                found.setdefault(node.name, []).append(used)
            elif isinstance(node, ast.ClassDef):
                used = {
                    f.name
                    for f in node.body
                    if isinstance(f, ast.FunctionDef) and f.name.startswith("__")
                }
                found.setdefault(node.name, []).append(used)
    return found
