"""The rule: it fits, runs have what it has, and of what cannot be told apart it is the simplest."""

from __future__ import annotations

import ast
import importlib
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mofa_model
from mofa_model.advice import LearnedMemory, Request, Status, advise, assumed_reliability
from mofa_model.advice.candidates import lost_by_failing
from mofa_model.advice.choice import simplest
from mofa_model.advice.compose import DECIDING, deciding_numbers
from mofa_model.annotations import inputs_hash
from mofa_model.bands.coordinates import Coordinates
from mofa_model.bands.odds import odds_of
from mofa_model.bands.table import measured_runs
from mofa_model.cli import main
from mofa_model.estimate.step import least_step
from mofa_model.presets import cluster, model, precision
from mofa_model.search import SearchCase, framework
from mofa_model.search.axes import EVERY
from mofa_model.spec import Training, Workload
from mofa_model.strategy import parse_strategy


def question(name="llama3-8b", gpus=64, trainer="megatron", stack="megatron-core", **changes):
    training = Training(sequence=8192, global_batch=256, precision=precision("bf16"), tokens=1e12)
    machines = cluster("h100", gpus, stack=stack)
    given = {
        "problems": (
            SearchCase(workload=Workload(model=model(name), training=training), cluster=machines),
        ),
        "reliability": assumed_reliability(machines.gpus_per_node * machines.host.link.bandwidth),
        "nodes": gpus // 8,
        "framework": trainer,
    }
    return Request(**given | changes)


@pytest.fixture(scope="module")
def answer():
    return advise(question(current=parse_strategy("tp=4,pp=2", gpus=64)))


def test_the_first_choice_fits_surely_and_has_what_runs_have(answer):
    assert answer.status is Status.RECOMMENDED
    assert answer.odds.fits >= 0.9
    assert answer.predicted.memory_bytes.upper <= answer.memory_limit_bytes * 1.001
    assert not any("no measured run has" in doubt for doubt in answer.doubts)
    assert answer.strategy.offload == frozenset()
    assert answer.strategy.schedule.value in {"1f1b", "interleaved"}


def test_a_smaller_risk_takes_less_memory_and_the_estimates_alone_take_all():
    sure, usual, bare = (
        advise(question("llama3-70b", top=0, **changes))
        for changes in ({"risk": 0.02}, {}, {"odds": False})
    )
    assert sure.odds.fits >= 0.98
    assert sure.predicted.memory_bytes.target <= usual.predicted.memory_bytes.target
    assert bare.predicted.step_seconds.target <= usual.predicted.step_seconds.target * (1 + 1e-9)


def test_what_nobody_measured_is_no_veto_but_has_to_be_worth_its_risk():
    """Megatron's runs have no DeepSeek-V3 on 2,048 H800; without what they lack the step was
    28.5 s.
    """
    given = cluster("h800", 2048, stack="megatron-core")
    training = Training(sequence=4096, global_batch=15360, precision=precision("bf16"), tokens=1e12)
    workload = Workload(model=model("deepseek-v3"), training=training)
    problems = (SearchCase(workload=workload, cluster=given),)
    found = advise(question(gpus=2048, problems=problems))
    assert found.predicted.step_seconds.target < 26.0
    assert "NotMeasured" not in found.rejected
    plain = advise(question("llama3-70b"))
    for one in plain.alternatives:
        if one.name == "worth a try":
            assert "no measured run has" in one.reason
            assert one.predicted.step_seconds.target < plain.predicted.step_seconds.target
    allowed = advise(question("llama3-70b", lifted=("NotMeasured",), top=0))
    assert allowed.predicted.step_seconds.target <= plain.predicted.step_seconds.target * 1.02


def test_what_runs_is_a_candidate_that_fits_and_is_kept_unless_another_is_likely_better():
    """Its memory is not doubted: 405B on 16,384 was told to leave a layout that ran for being
    too large.
    """
    plain = advise(question(top=0))
    kept = advise(question(current=plain.strategy))
    assert (kept.status, kept.odds.fits, kept.odds.beats) == (Status.RECOMMENDED, 1.0, 0.5)
    assert kept.strategy == plain.strategy
    assert kept.kept.startswith("keep what you run: the best other layout is better with a")
    assert kept.explanation.startswith(kept.kept)
    full = parse_strategy("tp=1,pp=1,mbs=1,optimizer=replicated", gpus=64)
    runs = advise(question(current=full, top=0))
    assert runs.current.odds.fits == 1.0
    assert "by the model it needs" in runs.current.reason
    slow = parse_strategy("tp=8,pp=8,mbs=1", gpus=64)
    left = advise(question(current=slow, top=0))
    assert (left.status, left.kept) == (Status.RECOMMENDED, "")
    assert left.current.gain > 0.1
    assert left.odds.beats > 0.9


def test_a_layout_that_only_stands_in_a_command_may_not_fit():
    """A manifest that asked for 97 GiB of an 80 GB GPU was told to keep it, and Recommended."""
    asked = {"name": "llama3-8b", "gpus": 8, "top": 0}
    full = parse_strategy("dp=8,mbs=1,recompute=none,optimizer=distributed", gpus=8)
    runs = advise(question(**asked, current=full))
    assert runs.strategy == full
    assert "though by the model it needs" in runs.kept
    written = advise(question(**asked, current=full, current_runs=False))
    assert written.strategy != full
    assert written.odds.fits >= 0.9
    assert written.odds.beats > 0.9
    assert written.current.odds.fits < 0.1
    plain = advise(question(top=0))
    kept = advise(question(current=plain.strategy, current_runs=False))
    assert kept.kept.startswith("keep what you wrote: the best other layout")
    assert kept.odds.fits < 1.0


def test_what_runs_is_not_kept_against_a_constraint_on_its_optimizer():
    """`optimizer=zero3` is a level of sharding and a place; only the place was asked of
    what runs.
    """
    runs = parse_strategy("dp=64,mbs=2,optimizer=zero2", gpus=64)
    asked = question(trainer="deepspeed", stack="deepspeed", current=runs)
    assert advise(asked).strategy == runs
    bound = advise(replace(asked, constraints=("optimizer=zero3",)))
    assert bound.strategy.sharding.value == "zero3"


def test_a_failed_start_costs_a_short_run_more_than_a_long_one():
    """A tenth of months of pre-training; two hours are 1.8 times a fine-tune of an hour."""
    asked = question("llama3-8b", 8)
    (case,) = asked.problems
    unsaid = replace(
        case, workload=replace(case.workload, training=replace(case.workload.training, tokens=0))
    )
    assert lost_by_failing(asked, case) == pytest.approx(0.1, abs=0.002)
    assert lost_by_failing(asked, unsaid) == 0.1
    tuned = lost_by_failing(replace(asked, tunes=True), unsaid)
    hours = 1e8 / 8192 / 256 * float(least_step(case.workload, case.cluster)) / 0.4 / 3600
    assert tuned == pytest.approx(0.1 + 2.0 / hours)
    assert lost_by_failing(replace(asked, framework="torchtune"), unsaid) == tuned


def test_today_s_layout_is_no_answer_where_a_constraint_or_the_number_of_devices_forbids_it():
    plain = advise(question(top=0))
    other = "tp=4" if plain.strategy.tp != 4 else "tp=2"
    barred = advise(question(current=plain.strategy, constraints=(other,), top=0))
    assert barred.strategy != plain.strategy
    assert barred.status is Status.LOW_CONFIDENCE
    assert barred.doubts[0].startswith("keep what you run: the first choice is better with a")


def test_low_confidence_says_which_is_missing():
    nobody = advise(question(trainer="deepspeed", stack="deepspeed", top=0))
    assert nobody.status is Status.LOW_CONFIDENCE
    assert nobody.doubts == (nobody.basis.evidence,)
    assert nobody.explanation.startswith(
        "evidence: none of deepspeed or its relatives, nearest data parallel on "
    )
    tight = advise(question("llama3-70b", 8, constraints=("optimizer=device",), top=0))
    if tight.strategy is not None:
        assert tight.odds.fits >= 0.9 or "it fits with a probability of" in tight.explanation


def test_with_no_trainer_named_every_choice_can_be_run_by_its_trainer():
    found = advise(question(trainer="any", stack="default"))
    choices = [(found.trainer, found.strategy)]
    choices += [
        (one.name.removeprefix("in "), one.strategy)
        for one in found.alternatives
        if one.name.startswith("in ")
    ]
    assert len(choices) > 1
    for trainer, strategy in choices:
        having = framework(trainer)
        assert all(
            axis.supported_by(having, axis.value_of(strategy))
            for axis in EVERY
            if axis.words and axis.name != "sharding"
        )


def test_the_hash_covers_the_risk_and_the_runs_that_odds_rest_on():
    plain = question()
    fewer = replace(plain.runs, lines=plain.runs.lines[1:])
    digests = {
        inputs_hash(one, "1")
        for one in (plain, replace(plain, risk=0.2), replace(plain, runs=fewer))
    }
    assert len(digests) == 3
    assert inputs_hash(question(), "1") == inputs_hash(plain, "1")


def test_the_hash_covers_every_number_of_the_rule(monkeypatch):
    plain = inputs_hash(question(), "1")
    for name in (
        "choice.DECIDED",
        "coordinates.CHOICE",
        "odds.PARTING",
        "weighed.SLOWED",
        "probes.DRAWS",
        "band.SHARE",
    ):
        numbers = {**deciding_numbers(), name: 0.123}
        monkeypatch.setattr(
            "mofa_model.annotations.deciding_numbers", lambda numbers=numbers: numbers
        )
        assert inputs_hash(question(), "1") != plain, name


def test_no_constant_of_these_modules_is_forgotten_by_the_hash():
    for module, labels in DECIDING.items():
        if module.startswith(("bands.", "advice.")):
            path = Path(mofa_model.__file__).parent / f"{module.replace('.', '/')}.py"
            made = {
                node.target.id
                for node in ast.parse(path.read_text(encoding="utf-8")).body
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
            }
            values = vars(importlib.import_module(f"mofa_model.{module}"))
            numbers = {
                name
                for name in made
                if name.isupper() and name[0] != "_" and isinstance(values[name], int | float)
            }
            assert numbers <= {label.partition(".")[2] for label in labels.split()}, module


def test_memory_that_running_jobs_taught_moves_estimate_band_and_odds():
    plain = advise(question("llama3-70b", top=0, current=parse_strategy("tp=8,pp=2", gpus=64)))
    surer, fuller = (
        advise(
            question(
                "llama3-70b",
                top=0,
                current=plain.current.strategy,
                learned_memory=LearnedMemory(ratio=ratio, spread=0.06),
            )
        )
        for ratio in (1.0, 1.2)
    )
    before, after = plain.current.predicted.memory_bytes, fuller.current.predicted.memory_bytes
    assert after.target == pytest.approx(1.2 * before.target)
    assert after.upper / after.target == pytest.approx(math.exp(0.06))
    assert before.upper / before.target > math.exp(0.06)
    assert fuller.current.odds.fits <= surer.current.odds.fits
    for one in (surer, fuller):
        assert one.odds.fits >= 0.9
        assert one.predicted.memory_bytes.target <= one.memory_limit_bytes
    assert surer.predicted.memory_bytes.target >= plain.predicted.memory_bytes.target, (
        "less has to be left free"
    )
    assert "a factor of 1.2 on device memory" in fuller.explanation
    assert inputs_hash(question(learned_memory=LearnedMemory()), "1") == inputs_hash(
        question(), "1"
    )
    assert inputs_hash(
        question(learned_memory=LearnedMemory(ratio=1.2, spread=0.06)), "1"
    ) != inputs_hash(question(), "1")


def test_of_what_cannot_be_told_apart_the_simplest_is_first():
    at = Coordinates(
        stack="nemo", device="h100-80gb-sxm", format="bf16", blocks="attention+dense",
        gpus="64", hidden="4096", sequence="8192", layout={"tp": "2"},
    )  # fmt: skip
    seen = odds_of(measured_runs(), (at, replace(at, layout={}), replace(at, layout={"cp": "2"})))
    bits = np.array([2.0, 0.0, 1.0])
    assert simplest(seen, np.array([1.0, 1.008, 1.005]), bits) == 1
    assert simplest(seen, np.array([1.0, 1.5, 1.005]), bits) == 2
    assert simplest(seen, np.array([1.0, 1.5, 1.5]), bits) == 0
    assert simplest(seen, np.array([1.0, 1.03, 1.5]), bits) == 0


def test_the_answer_is_one_screen(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for words in (["--framework", "megatron", "--current", "tp8 pp4 sp"], []):
        assert main(["advise", "--model", "llama3-70b", "--gpu", "h100", "--gpus", "512", "--global-batch", "512",
                     "--seq", "8192", "--tokens", "2T", *words]) == 0  # fmt: skip
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) <= 12
        assert lines[-1].startswith("next      mofa advise ")  # a command is copied in one piece
        assert max(map(len, lines[:-1])) <= 80


def test_a_risk_that_is_no_chance_is_refused_by_name(capsys):
    words = [
        "--model",
        "llama3-8b",
        "--gpu",
        "h100",
        "--gpus",
        "64",
        "--global-batch",
        "64",
        "--seq",
        "4096",
    ]
    assert main(["advise", *words, "--risk", "2"]) == 2
    assert "risk" in capsys.readouterr().err
