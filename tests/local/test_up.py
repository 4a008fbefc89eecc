"""What `make up` prints when it is ready: every line of it works where it is pasted."""

import subprocess

import pytest
from mofa_local import binaries, stack, up


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "env").write_text(
        "export KUBECONFIG=/tmp/kubeconfig\nexport ADVISOR_URL=http://127.0.0.1:1\n"
    )
    return tmp_path


def commands(folder):
    """The lines under Try, which are indented by two blanks; their meaning is indented by four."""
    told = up.hints(folder).partition("Try:\n")[2].splitlines()
    return [line.strip() for line in told if line.startswith("  ") and not line.startswith("    ")]


def pasted(command):
    return subprocess.run(
        ["bash", "-c", command], cwd=stack.ROOT, capture_output=True, text=True, check=False
    )


def test_the_interruption_names_a_module_that_can_be_run_and_this_stack(folder, monkeypatch):
    monkeypatch.chdir(stack.ROOT)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (interrupt,) = [command for command in commands(folder) if "inject" in command]
    done = pasted(interrupt)
    assert (done.returncode, done.stderr) == (
        1,
        "inject: the stack is not up; `make up` starts it\n",
    )


def test_every_command_is_one_that_a_shell_can_read_and_find(folder, monkeypatch):
    monkeypatch.chdir(stack.ROOT)
    for command in commands(folder):
        assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0, command
        program = next(word for word in command.split() if "=" not in word)
        known = f"type -t {program} || test -x {program}"
        missing = program != "kubectl" and pasted(known).returncode
        assert not missing, command
    assert pasted(commands(folder)[0]).returncode == 0


def test_the_first_up_says_before_it_builds_what_and_about_how_long(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    usual = sum(binaries.tool(name).seconds for name in stack.TOOLS)
    told = stack.first_build(stack.TOOLS)
    assert 300 < usual < 900  # five to fifteen minutes
    assert told.startswith(
        f"{len(stack.TOOLS)} programs are built once from pinned sources: about {usual / 60:.0f} min on two quiet cores"
    )
    assert "up to half an hour where others work beside it" in told
    assert "kube-state-metrics" not in told
