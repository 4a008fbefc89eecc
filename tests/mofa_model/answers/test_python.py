"""`import mofa_model as mofa`: the questions of the command in Python, with errors that
name parameters.
"""

import dataclasses
import importlib.util
import inspect
import json
import shlex
from pathlib import Path

import pytest
from each import each

import mofa_model as mofa
from mofa_model import cli
from mofa_model.answers.questions import AdviceQuestion, EttrQuestion

JOB = {
    "model": "llama3-8b",
    "gpu": "h100",
    "gpus": 16,
    "sequence_length": 8192,
    "global_batch_size": 64,
    "framework": "megatron",
}
JOB_FILE = Path(__file__).parents[3] / "examples" / "llama3-405b.yaml"
RUN = {"nodes": 32, "step": "27.99s", "save": "2s"}


def said(capsys, line):
    assert cli.main(shlex.split(line)[1:]) == 0
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def advice():
    return mofa.advise(**JOB, current="tp=4,pp=2", tokens="1T")


def test_python_and_the_command_give_the_same_answer(advice, capsys):
    line = advice.question.command("advise")
    assert json.loads(said(capsys, f"{line} --json")) == advice.to_dict()
    assert said(capsys, line) == repr(advice)


@each(
    [
        (mofa.ettr, "ettr", {**RUN, "classes": ["a:0.5:60s", "b:0.5:1h"], "curve": 3}),
        (mofa.ettr, "ettr", {**RUN, "vary": "rate=0.01,0.02"}),
        (mofa.simulate, "simulate", {**RUN, "runs": 5, "timeline": 3}),
        (mofa.explain, "explain", {**JOB, "strategy": "tp=2,sp=true"}),
        (mofa.sweep, "sweep", {**JOB, "strategy": "tp=2,sp=true", "vary": {"mbs": [1, 2], "seq": ["4k", 8192]}}),
    ]
)  # fmt: skip
def test_every_question_is_the_command_s(ask, verb, words):
    import contextlib
    import io

    found = ask(**words)
    line, text = found.question.command(verb), io.StringIO()
    with contextlib.redirect_stdout(text):
        assert cli.main([*shlex.split(line)[1:], "--json"]) == 0
    assert json.loads(text.getvalue()) == found.to_dict()


def test_an_answer_has_what_people_ask_for_first(advice):
    assert advice.status == "Recommended"
    assert advice.strategy.startswith("tp=")
    band = advice.predicted.step_seconds
    assert band.lower < band.target < band.upper
    assert advice.checkpoint_interval_steps > 0
    again = mofa.explain(**JOB, strategy=advice.strategy)
    assert again.fits
    assert again.step_seconds == pytest.approx(band.target, rel=0.1)


def test_an_answer_is_frozen(advice):
    with pytest.raises(dataclasses.FrozenInstanceError):
        advice.launch = None
    with pytest.raises(dataclasses.FrozenInstanceError):
        advice.question.gpus = "1"


def test_a_notebook_shows_tables_and_pictures_in_a_box_of_their_own(advice):
    for found in (advice, mofa.ettr(**RUN), mofa.simulate(**RUN, runs=5)):
        html = found._repr_html_()
        assert html.startswith('<div class="mofa-advisor"><style>.mofa-advisor{')
        assert "<svg" in html
        assert "<table" in html
        assert "body{" not in html, "a style that leaves its box would change the notebook"
        assert "<script" not in html


@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="pandas is not installed")
def test_a_frame_has_the_rows_of_the_csv(advice, capsys):
    frame = advice.to_frame("pandas")
    rows = said(capsys, f"{advice.question.command('advise')} -o csv").splitlines()
    assert list(frame.columns) == rows[0].split(",")
    assert len(frame) == len(rows) - 1


def test_a_frame_without_its_library_says_what_to_install(advice, monkeypatch):
    monkeypatch.setattr("mofa_model.answers.answer.find_spec", lambda _: None)
    with pytest.raises(
        mofa.InputError, match="pandas or polars is not installed; pip install pandas"
    ):
        advice.to_frame()
    with pytest.raises(mofa.InputError, match="did you mean pandas"):
        advice.to_frame("panda")


@each(
    [
        ({"gpus": 63}, "gpus: 63 cannot be right; give whole nodes of 8, .* another gpus_per_node"),
        ({"sequence_length": None}, "sequence_length: is missing"),
        ({"global_batch_size": "x"}, "global_batch_size: 'x' cannot be right"),
        ({"model": "lama3-8b"}, "model: .*did you mean llama3-8b"),
        ({"modle": "x"}, r"advise\(\): unknown name 'modle'; did you mean model"),
        ({"seq": 1}, r"advise\(\): unknown name 'seq'; did you mean sequence_length"),
        ({"gpus": True}, "gpus: True cannot be right; give a number"),
        ({"sync": 1}, "sync: 1 cannot be right; give True or False"),
        ({"constraints": 3}, "constraints: 3 cannot be right; give text, or a list"),
        ({"constraints": "tp=x"}, "tp"),
        ({"failure_rate": "often"}, "failure_rate: 'often' cannot be right; give a number"),
        ({"checkpoint_bandwidth": 2e9}, "checkpoint_bandwidth: .* give text"),
        ({"allow": "all"}, "allow: unknown name 'all'; .*experimental"),
        ({"top": 1000}, "top: 1000 cannot be right"),
        ({"file": "nowhere.yaml"}, "nowhere.yaml: cannot be read"),
        (
            {"file": JOB_FILE},
            "model, sequence_length, .*llama3-405b.yaml' cannot be right; it is a job's file",
        ),
    ]
)
def test_what_cannot_be_right_names_its_parameter(words, right):
    with pytest.raises(mofa.InputError, match=right) as raised:
        mofa.advise(**{**JOB, **words})
    assert "--" not in str(raised.value)


@each(
    [
        ({"step": None}, "step: is missing"),
        ({"step": "10"}, "step: '10' is not a quantity"),
        ({"nodes": 0}, "nodes: 0.0 cannot be right"),
        ({"classes": "pod:2:1s"}, "classes: "),
        ({"method": "guess"}, "method: unknown name 'guess'"),
        ({"failures": 3}, "failures: 3 cannot be right; give failures and node_days together"),
        ({"vary": "colour=red"}, "vary: unknown name 'colour'"),
    ]
)
def test_what_cannot_be_right_of_a_run_names_its_parameter(words, right):
    asked = {name: value for name, value in {**RUN, **words}.items() if value is not None}
    with pytest.raises(mofa.InputError, match=right):
        mofa.ettr(**asked)


def test_no_strategy_is_an_answer_and_an_error_where_it_is_asked_for():
    found = mofa.advise(
        model="llama3-405b", gpu="h100", gpus=8, sequence_length=8192, global_batch_size=64
    )
    assert found.status == "NoRecommendation"
    assert found.strategy is None
    with pytest.raises(mofa.NoFeasibleStrategy):
        found.raise_for_status()


def test_a_sweep_without_any_answer_is_an_error():
    with pytest.raises(mofa.InputError, match="whole nodes of 8"):
        mofa.sweep(**{**JOB, "gpus": None}, vary={"gpus": [9, 10]})


def test_help_and_completion_know_the_words():
    signature = inspect.signature(mofa.advise)
    assert next(iter(signature.parameters)) == "file"
    assert {"model", "gpu", "gpus", "sequence_length"} <= set(signature.parameters)
    assert signature.parameters["risk"].default == 0.1
    assert "best parallel strategy" in mofa.advise.__doc__


def test_numbers_and_their_text_ask_the_same():
    assert AdviceQuestion(gpus=8, tokens=15_000_000_000_000) == AdviceQuestion(
        gpus="8", tokens="15000000000000"
    )
    assert EttrQuestion(nodes="32", step="1s") == EttrQuestion(nodes=32, step="1s")
    numpy = pytest.importorskip("numpy")
    assert AdviceQuestion(gpus=numpy.int64(8)) == AdviceQuestion(gpus=8)
