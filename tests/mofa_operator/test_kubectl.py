"""`kubectl mofa` is the same command under another name; kubectl asks a program of ours what may follow."""

import subprocess
import sys
from pathlib import Path

import pytest
from mofa_local import binaries

from mofa_operator import kubectl

BIN = Path(sys.executable).parent


def test_it_is_called_as_people_call_it(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kubectl-mofa", "explain", "--no-such"])
    with pytest.raises(SystemExit):
        kubectl.main()
    assert capsys.readouterr().err.startswith("kubectl mofa explain: ")


def test_a_verb_of_the_desk_is_there_too(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kubectl-mofa", "presets", "devices", "h100"])
    assert kubectl.main() == 0
    assert "H100" in capsys.readouterr().out


def test_kubectl_is_told_what_may_follow():
    done = subprocess.run([BIN / "kubectl_complete-mofa", "do"], capture_output=True, text=True, check=True)
    assert done.stdout == "doctor\n:4\n"


def test_kubectl_finds_it_as_a_plugin():
    program = binaries.find("kubectl")
    if program is None:
        pytest.skip("kubectl is not built yet: make up builds it")
    done = subprocess.run(
        [program, "mofa", "--version"], env={"PATH": str(BIN)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("mofa ")
