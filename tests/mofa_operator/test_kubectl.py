"""`kubectl mofa` is the same command under another name; kubectl asks a program of ours what
may follow.
"""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from mofa_local import binaries
from operator_objects import profile, training_job

from mofa_model import presets
from mofa_model.advice import advise
from mofa_model.answers.advise import asked_in
from mofa_model.manifest.jobs import request_of
from mofa_operator import kubectl
from mofa_operator.verbs import cluster_options

BIN = Path(sys.executable).parent


def test_it_is_called_as_people_call_it(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kubectl-mofa", "explain", "--no-such"])
    assert kubectl.main() == 2
    assert capsys.readouterr().err.startswith("kubectl mofa explain: ")


def test_a_verb_of_the_desk_is_there_too(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kubectl-mofa", "presets", "devices", "h100"])
    assert kubectl.main() == 0
    assert "H100" in capsys.readouterr().out


@pytest.mark.parametrize("which", [[], ["--current"], ["--strategy", "tp=8,pp=2,sp=true"]])
def test_explain_prices_a_job_without_a_trainer_as_the_trainer_that_is_advised(
    which, tmp_path, monkeypatch, capsys
):
    """It said "(default)", a stack that nobody measured, beside a layout for Megatron."""
    job, east = tmp_path / "job.yaml", tmp_path / "east.yaml"
    job.write_text(yaml.safe_dump(training_job("a", current={"strategy": "tp=8,dp=2,sp=true"})))
    east.write_text(yaml.safe_dump(profile()))
    found = asked_in(str(job), (str(east),))
    monkeypatch.setattr(
        cluster_options,
        "read_job",
        lambda _: SimpleNamespace(snapshot=SimpleNamespace(question=None)),
    )
    monkeypatch.setattr("mofa_operator.decide.question.parsed_question", lambda _: found)
    monkeypatch.setattr(sys, "argv", ["kubectl-mofa", "explain", "a", "-o", "json", *which])
    assert kubectl.main() == 0
    assert json.loads(capsys.readouterr().out)["stack"] == presets.stack_of(
        advise(request_of(found)).trainer
    )


def test_kubectl_is_told_what_may_follow():
    done = subprocess.run(
        [BIN / "kubectl_complete-mofa", "do"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "doctor\n:4\n"


def test_kubectl_finds_it_as_a_plugin():
    program = binaries.find("kubectl")
    if program is None:
        pytest.skip("kubectl is not built yet: make up builds it")
    done = subprocess.run(
        [program, "mofa", "--version"],
        env={"PATH": str(BIN)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("mofa ")
