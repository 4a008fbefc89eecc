"""The simulator keeps its books, and knows nothing of the models that it proves."""

import ast
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import mofa_model.simulator
from mofa_model.errors import BadValue
from mofa_model.simulator.engine import measure_period
from mofa_model.simulator.runs import simulate_runs, timeline
from mofa_model.simulator.scenario import Cause, Scenario, draw_failures
from mofa_model.spec.reliability import FailureLaw, RecoveryTime

BACK = RecoveryTime(mean=300.0, law="deterministic")


def scenario(rate=1e-4, tiers=3, **more):
    parts = (("process", 0.3), ("pod", 0.6), ("job", 0.1))
    given = {
        "work": 60.0,
        "every": (1, 3, 6)[:tiers],
        "blocking": (0.5, 1.0, 4.0)[:tiers],
        "background": (0.0, 20.0, 100.0)[:tiers],
        "slowdown": 0.02,
    }
    given["causes"] = tuple(
        Cause(name=name, share=share, recovery_laws=(BACK,), tier=min(i, tiers - 1))
        for i, (name, share) in enumerate(parts)
    )
    return Scenario(rate=rate, **(given | more))


def test_it_imports_nothing_of_reliability():
    folder = Path(mofa_model.simulator.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any("reliability" in n and "spec" not in n for n in names), path


def test_without_failures_only_saves_take_time():
    runs = simulate_runs(scenario(rate=0.0), duration=86400.0, count=3, seed=1)
    period = measure_period(scenario(rate=0.0))
    assert period.time == pytest.approx(6 * 60 + 6 * 0.5 + 2 * 1 + 4 + 119.5 * 0.02 / 1.02)
    assert runs.ettr == pytest.approx(360 / period.time, abs=1e-3)
    assert np.all(runs.failures == 0)


@pytest.mark.parametrize("tiers", [1, 2, 3])
def test_productive_and_lost_time_add_to_the_run(tiers):
    runs = simulate_runs(scenario(rate=1e-3, tiers=tiers), duration=50_000.0, count=50, seed=2)
    assert np.mean(runs.ettr) + sum(runs.lost.values()) / 50_000 == pytest.approx(1.0, abs=1e-9)


def test_a_seed_gives_the_same_runs_again():
    first, again, other = (
        simulate_runs(scenario(), duration=1e5, count=20, seed=seed).ettr for seed in (7, 7, 8)
    )
    assert np.all(first == again)
    assert np.any(first != other)


def test_a_timeline_is_whole_and_ends_with_the_run():
    line = timeline(scenario(rate=1e-3), duration=20_000.0, seed=3)
    assert line[0].start == 0
    assert line[-1].end == 20_000
    for before, after in pairwise(line):
        assert after.start == before.end
        assert (after.phase == "recovering") == bool(before.failure)


@pytest.mark.parametrize(
    "law",
    [
        FailureLaw(),
        FailureLaw(kind="weibull", shape=0.7),
        FailureLaw(kind="mixture", short_share=0.5, short_mean=1 / 6),
    ],
)
def test_failures_have_the_asked_mean(law):
    times = draw_failures(scenario(rate=1e-3, law=law), 200_000, np.random.default_rng(5))
    assert np.mean(times) == pytest.approx(1000.0, rel=0.02)


def test_shares_that_do_not_add_to_one_are_refused():
    with pytest.raises(BadValue, match="add to one"):
        scenario(causes=(Cause(name="job", share=0.7, recovery_laws=(BACK,)),))


def test_what_would_take_hours_is_refused():
    with pytest.raises(BadValue, match="shorten"):
        simulate_runs(scenario(rate=1e6), duration=1e6, count=1000, seed=1)
