"""Pictures are written whole, the same bytes for the same numbers, and refused in one line before
any work.
"""

import importlib.util
import sys

import pytest

from mofa_model import plots
from mofa_model.cli import main

JOB = [
    "--model",
    "llama3-8b",
    "--gpu",
    "h100",
    "--gpus",
    "64",
    "--global-batch",
    "512",
    "--seq",
    "8192",
]
STRATEGY = ["--strategy", "tp=2,sp=true,mbs=1"]


drawing = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="the extra `plot` is not installed"
)
"""Tests that need a picture; the others hold without the extra too."""


def is_picture(path):
    data = path.read_bytes()
    return (
        data.startswith(b"\x89PNG") if path.suffix == ".png" else data.rstrip().endswith(b"</svg>")
    )


@drawing
@pytest.mark.parametrize("form", plots.FORMS)
@pytest.mark.parametrize(
    "words",
    [
        ["explain", *JOB, *STRATEGY],
        ["ettr", "--nodes", "32", "--step", "28s"],
        ["sweep", *JOB, *STRATEGY, "--vary", "mbs=1,2", "dp_overlap=true,false"],
    ],
    ids=lambda words: words[0],
)
def test_a_verb_draws_its_answer(tmp_path, capsys, words, form):
    path = tmp_path / f"picture.{form}"
    assert main([*words, "--plot", str(path)]) == 0
    assert is_picture(path)
    assert capsys.readouterr().out


@drawing
def test_the_advice_draws_its_steps_and_its_ettr_twice_the_same(tmp_path, capsys):
    for folder in ("one", "two"):
        assert main(["advise", *JOB, "--plots", str(tmp_path / folder)]) == 0
    for name in ("step.svg", "ettr.svg"):
        one, two = (tmp_path / folder / name for folder in ("one", "two"))
        assert is_picture(one)
        assert one.read_bytes() == two.read_bytes()
    assert capsys.readouterr().err.count("drawn: ") == 4


@drawing
def test_the_bars_of_a_step_leave_out_terms_that_are_nothing_everywhere(tmp_path):
    path = tmp_path / "step.svg"
    plots.step_terms(str(path), {"a": {"work": 2.0, "hops": 0.0}, "b": {"work": 1.5, "hops": 0.0}})
    text = path.read_text(encoding="utf-8")
    assert ">work<" in text
    assert "hops" not in text


@pytest.mark.parametrize(
    "verb", [["explain", *JOB, *STRATEGY], ["ettr", "--nodes", "32", "--step", "28s"]]
)
def test_another_form_is_refused(tmp_path, capsys, verb):
    assert main([*verb, "--plot", str(tmp_path / "picture.gif")]) == 2
    assert "ends in .svg or .png" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["explain", *JOB, *STRATEGY, "--plot", str(tmp_path / "picture.svg")]) == 2
    assert "pip install '.[plot]', in a clone" in capsys.readouterr().err


@drawing
def test_a_folder_that_cannot_be_made_is_named(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["advise", *JOB, "--plots", str(tmp_path / "file")]) == 2
    assert "cannot be made" in capsys.readouterr().err
