"""Failures that have to be noticed first: what the wait costs, and what a watchdog is worth."""

import json
import math
from dataclasses import replace

import pytest

from mofa_model.annotations import hash_of
from mofa_model.cli import main
from mofa_model.errors import BadValue
from mofa_model.reliability import model
from mofa_model.reliability.interval import watchdog
from mofa_model.simulator.runs import simulate_runs
from mofa_model.simulator.scenario import Cause, Scenario
from mofa_model.spec.reliability import Hangs, RecoveryTime


def hung(job, timeout, share=1.0):
    return replace(
        job, reliability=replace(job.reliability, hangs=Hangs(timeout=timeout, share=share))
    )


def test_a_job_that_always_hangs_recovers_later_by_the_timeout_and_one_that_never_does_as_before(
    plain_job,
):
    job = plain_job(1e-4)
    assert model.ettr(hung(job, 900.0), 60) == pytest.approx(
        model.ettr(plain_job(1e-4, recovery=1200.0), 60)
    )
    assert model.ettr(hung(job, 900.0, 0.0), 60) == model.ettr(job, 60)
    part = model.survived(hung(job, 900.0, 0.25))
    assert part == pytest.approx(0.75 * math.exp(-0.03) + 0.25 * math.exp(-0.12))


def test_where_nothing_is_said_of_hangs_a_question_is_the_same_to_its_hash(tiered_job):
    job = tiered_job()
    assert hash_of(job.reliability, "1") == "e5c909c75e1133f1ec067acee17606a9"
    assert hash_of(job.reliability, "1") != hash_of(hung(job, 900.0).reliability, "1")


def test_a_simulated_run_that_waits_for_a_timeout_loses_what_the_model_says(plain_job):
    rate, job = 2e-4, plain_job(2e-4)
    back, wait = (
        RecoveryTime(mean=300.0, law="deterministic"),
        RecoveryTime(mean=900.0, law="deterministic"),
    )
    causes = (
        Cause(name="crash", share=0.6, recovery_laws=(back,), tier=0),
        Cause(name="hang", share=0.4, recovery_laws=(wait, back), tier=0),
    )
    given = Scenario(
        rate=rate,
        causes=causes,
        work=600.0,
        every=(1,),
        blocking=(30.0,),
        background=(0.0,),
        slowdown=0.0,
    )
    runs = simulate_runs(given, duration=4e5, count=200, seed=3).ettr
    error = runs.std() / math.sqrt(len(runs))
    assert abs(runs.mean() - model.ettr(hung(job, 900.0, 0.4), 60)) < 4 * error + 1e-3


@pytest.mark.parametrize(
    ("timeout", "step", "save", "expected"),
    [
        (900.0, 10.0, 20.0, 240.0),
        (900.0, 60.0, 20.0, 360.0),
        (900.0, 10.0, 300.0, 360.0),
        (240.0, 10.0, 20.0, None),
    ],
)
def test_a_watchdog_lets_five_steps_and_a_save_pass_and_is_told_where_it_is_worth_something(
    plain_job, timeout, step, save, expected
):
    job = hung(plain_job(1e-4, step=step, blocking=save), timeout)
    found = watchdog(job, 60, (1,))
    if expected is None:
        assert found is None
        return
    assert found.timeout == expected
    sooner = model.ettr(hung(job, expected), 60) - model.ettr(job, 60)
    assert 0 < found.worth == pytest.approx(sooner)
    assert watchdog(plain_job(1e-4), 60, (1,)) is None


def test_time_lost_to_hangs_is_told_apart(tiered_job):
    job = hung(tiered_job(), 900.0, 0.3)
    lost = {
        name.removeprefix("recovering, "): share
        for name, share in model.budget(job, 6, (1, 5, 60)).items()
        if name.startswith("recovering, ")
    }
    assert set(lost) == {
        f"{name}{ending}" for name in ("process", "pod", "job") for ending in ("", ", hung")
    }
    assert lost["pod, hung"] > 0.3 * lost["pod"]


@pytest.mark.parametrize("wrong", [{"timeout": -1.0}, {"timeout": 900.0, "share": 1.5}])
def test_hangs_that_cannot_be_are_refused(wrong):
    with pytest.raises(BadValue):
        Hangs(**wrong)


def test_the_search_counts_the_wait_and_its_answer_says_what_a_watchdog_is_worth(capsys):
    asked = [
        "advise",
        "--model",
        "llama3-8b",
        "--gpu",
        "h100-sxm",
        "--nodes",
        "256",
        "--seq",
        "8k",
        "--global-batch",
        "2048",
    ]

    def told(*more):
        assert (
            main(
                [
                    *asked,
                    "--framework",
                    "megatron",
                    "--constraint",
                    "tp=1",
                    "--constraint",
                    "pp=1",
                    "-o",
                    "json",
                    *more,
                ]
            )
            == 0
        )
        return json.loads(capsys.readouterr().out)

    plain, hung = told(), told("--hang", "15min:0.5")
    assert "watchdog" not in plain["explanation"]
    assert "; a watchdog of 4 min is worth 0." in hung["explanation"]
    assert hung["predicted"]["ettr"]["target"] < plain["predicted"]["ettr"]["target"]


def test_a_hang_that_cannot_be_is_refused_in_one_line(capsys):
    for wrong, right in (("15min:2", "between 0 and 1"), ("soon", "--hang"), ("-5min", "--hang")):
        assert main(["ettr", "--nodes", "64", "--step", "10s", f"--hang={wrong}"]) == 2
        told = capsys.readouterr().err
        assert (told.count("\n"), right in told) == (1, True), told
