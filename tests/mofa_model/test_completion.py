"""Tab in real shells: verbs, options and names of presets."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import argcomplete.io
import pytest

from mofa_model.cli import offered
from mofa_model.completion import script

BIN = Path(sys.executable).parent
ENVIRONMENT = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "dumb"}
BASH = """
COMP_LINE="$1"; COMP_POINT=${#1}; COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_TYPE=9
_python_argcomplete mofa; printf '%s\\n' "${COMPREPLY[@]}"
"""


def shell(name):
    return pytest.param(
        name,
        marks=pytest.mark.skipif(
            shutil.which(name) is None, reason=f"{name} is not on this machine"
        ),
    )


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """What `offered` says to argcomplete by variables goes again."""
    for name in ("_ARGCOMPLETE", "COMP_LINE", "COMP_POINT", "_ARGCOMPLETE_IFS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    "words, there",
    [
        (["adv"], "advise"),
        (["advise", "--glo"], "--global-batch"),
        (["advise", "--model", "llama3-7"], "llama3-70b"),
        (["advise", "--gpu", "h200"], "h200-141gb-sxm"),
        (["advise", "--teacher", "llama3-7"], "llama3-70b"),
        (["profile", "--scale-up", "nvl"], "nvlink4"),
        (["advise", "--framework", "tor"], "torchtitan"),
        (["advise", "--profile", "h100-e"], "h100-east"),
        (["advise", "--objective", "th"], "throughput"),
        (["completion", ""], "fish"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else one,
)
def test_what_may_follow_is_offered(words, there):
    assert there in [one.strip() for one in offered("mofa", words, {})]


def test_it_is_offered_where_standard_error_was_another_at_first(monkeypatch):
    with Path(os.devnull).open("w") as closed:  # as one that a test captured
        monkeypatch.setattr(argcomplete.io, "debug_stream", closed)
    assert "advise" in offered("mofa", ["adv"], {})


def complete(name, line):
    """What a real shell makes of a Tab after a line."""
    if name == "bash":
        command = ["bash", "--norc", "-c", script("bash") + BASH, "bash", line]
    elif name == "fish":
        command = ["fish", "--no-config", "-c", f"{script('fish')}\ncomplete -C '{line}'"]
    else:
        return typed(line)
    done = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout


def typed(line):
    """A zsh at a terminal, a line, and a Tab."""
    child, terminal = pty.fork()
    if not child:
        os.execvpe("zsh", ["zsh", "-f", "-i"], ENVIRONMENT)
    said = ""
    try:
        set_up = 'autoload -Uz compinit; compinit -u -D; eval "$(mofa completion zsh)"; echo READY-$((1+1))\n'
        os.write(terminal, set_up.encode())
        said, sent, end = "", False, time.monotonic() + 60
        while time.monotonic() < end:
            if select.select([terminal], [], [], 0.2)[0]:
                said += os.read(terminal, 65536).decode(errors="replace")
            if not sent and "READY-2" in said:
                said, sent = "", True
                os.write(terminal, f"{line}\t".encode())
            elif sent and "advise" in said:
                return said
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)
    return said


@pytest.mark.parametrize("name", [shell("bash"), shell("zsh"), shell("fish")])
def test_a_real_shell_completes_a_verb(name):
    assert "advise" in complete(name, "mofa adv")


def test_an_option_is_completed_in_a_real_shell_of_those_that_every_machine_has():
    assert "--global-batch" in complete("bash", "mofa advise --glo")
