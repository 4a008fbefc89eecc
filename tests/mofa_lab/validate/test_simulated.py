"""ETTR from renewal cycles: skipping changes nothing, and the exact model of tiers agrees."""

import numpy as np
import pytest

from mofa_lab.validate.simulated import _cycles, simulate_ettr
from mofa_model.reliability.checkpoint import Tiers
from mofa_model.reliability.laws import ExponentialRun
from mofa_model.reliability.tiers import Failure, ettr
from mofa_model.simulator.engine import measure_period
from mofa_model.simulator.scenario import Cause, Scenario
from mofa_model.spec.reliability import RecoveryTime

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


@pytest.mark.parametrize("tiers", [1, 3])
def test_skipping_quiet_periods_changes_nothing(tiers):
    plan = scenario(rate=1e-4, tiers=tiers)
    for seed in range(4):
        quick = _cycles(plan, 1, np.random.default_rng(seed), measure_period(plan))
        every = _cycles(plan, 1, np.random.default_rng(seed), None)
        assert quick[0] == every[0]
        assert quick[1] == pytest.approx(every[1], rel=1e-12)


def test_a_copy_in_flight_is_lost_with_a_failure():
    # Copies take longer than the job ever lives: nothing becomes durable, nothing is gained.
    plan = scenario(
        rate=0.1,
        tiers=1,
        background=(1e4,),
        causes=(Cause(name="job", share=1.0, recovery_laws=(BACK,)),),
    )
    assert simulate_ettr(plan, seed=1).ettr == 0


@pytest.mark.parametrize("error", [2e-3, pytest.param(1e-3, marks=pytest.mark.soak)])
def test_missed_copies_in_a_row_are_counted_to_the_end(error):
    # Copies of 800 s against an MTBF of 1000 s: most are cut off; the chain still adds up at any
    # depth.
    tiers = Tiers(
        work=50.0, every=(1, 2, 20), blocking=(0.1, 0.1, 0.1), background=(0.0, 80.0, 800.0)
    )
    run = ExponentialRun(((1.0, 1e-3),))
    shares = tuple(Failure(tier=i, share=share, run=run) for i, share in enumerate((0.3, 0.4, 0.3)))
    value = ettr(tiers, shares, 1e3)
    at_once = RecoveryTime(mean=0.0, law="deterministic")
    causes = tuple(
        Cause(name=str(i), share=share, recovery_laws=(at_once,), tier=i)
        for i, share in enumerate((0.3, 0.4, 0.3))
    )
    seen = simulate_ettr(
        Scenario(
            rate=1e-3,
            causes=causes,
            work=50.0,
            every=(1, 2, 20),
            blocking=(0.1, 0.1, 0.1),
            background=(0.0, 80.0, 800.0),
        ),
        seed=1,
        error=error,
    )
    assert abs(value - seen.ettr) < 4 * seen.error
