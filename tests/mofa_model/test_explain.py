"""One strategy explained: the terms are those of the estimate, and they add up."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mofa_model.answers.explain import terms
from mofa_model.cli import main
from mofa_model.estimate import estimate
from mofa_model.estimate.step import StepTime
from mofa_model.estimate.terms import Footprint, LayerTime, terms_of
from mofa_model.presets import cluster, model, precision
from mofa_model.spec import Training, Workload
from mofa_model.strategy import parse_strategy

LAYOUTS = [
    ("llama3-8b", "tp=2,pp=4,sp=true,vpp=2,schedule=interleaved"),
    ("deepseek-v2-lite", "pp=2,ep=8,recompute=selective:moe_act+layernorm,offload=activations"),
    ("mixtral-8x7b", "tp=2,ep=8,sp=true,recompute=full:2,optimizer=zero3-cpu"),
]


def parts(name, text):
    training = Training(sequence=4096, global_batch=256, precision=precision("bf16"))
    return (
        Workload(model=model(name), training=training),
        cluster("h100", 64),
        parse_strategy(text, gpus=64),
    )


@pytest.mark.parametrize("name, text", LAYOUTS)
def test_terms_add_up_to_the_estimate(name, text):
    w, c, s = parts(name, text)
    found, told = estimate(w, c, s), terms(w, c, s)
    assert sum(term["seconds"] for term in told["step"].values()) == pytest.approx(
        float(found.step_time)
    )
    totals = np.sum([term["bytes"] for term in told["memory"].values()], axis=0)
    assert max(totals) == pytest.approx(float(found.footprint.peak))
    assert [stage["memory_bytes"] for stage in told["stages"]] == pytest.approx(totals.tolist())
    assert sum(stage["stages"] for stage in told["stages"]) == s.pp
    slowest = max(stage["seconds"] for stage in told["stages"])
    assert told["step"]["stages"]["seconds"] == pytest.approx(
        told["summary"]["micro_batches"] * slowest
    )


def test_every_term_names_its_equation_and_its_meaning():
    for record in (StepTime, LayerTime, Footprint):
        for term in terms_of(record):
            equation = term.metadata["equation"]
            assert equation.startswith(("(", "Table")) or equation == "ours"
            assert term.metadata["meaning"]


def test_the_command_explains_what_does_not_fit_as_well(capsys):
    job = [
        "--model",
        "llama3.1-405b",
        "--gpu",
        "h100",
        "--gpus",
        "64",
        "--global-batch",
        "64",
        "--seq",
        "8192",
    ]
    assert main(["explain", *job, "--strategy", "tp=8,pp=8"]) == 0
    assert "does not fit" in capsys.readouterr().out
    assert main(["explain", *job, "--strategy", "tp=8,pp=8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["fits"] is False


def test_a_trainers_flags_are_a_strategy(capsys):
    job = [
        "--model",
        "llama3-8b",
        "--gpu",
        "h100",
        "--gpus",
        "64",
        "--global-batch",
        "256",
        "--seq",
        "8192",
    ]
    flags = "--tensor-model-parallel-size 2 --sequence-parallel --use-distributed-optimizer"
    assert main(["explain", *job, "--strategy", flags, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["strategy"].startswith("tp=2,pp=1,cp=1,ep=1,dp=32")


@pytest.mark.parametrize(
    "words, text", [(["--strategy", "tp=3"], "--strategy"), (["--strategy", "tp=x"], "tp")]
)
def test_a_strategy_that_cannot_be_is_one_line(words, text, capsys):
    job = [
        "--model",
        "llama3-8b",
        "--gpu",
        "h100",
        "--gpus",
        "64",
        "--global-batch",
        "256",
        "--seq",
        "8192",
    ]
    assert main(["explain", *job, *words]) == 2
    assert text in capsys.readouterr().err
