"""What `--help` promises: examples of every verb, which parse and run, and the exit codes that
there are.
"""

import argparse
import io
import re
import shlex
import shutil
import subprocess
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from desk import GIVEN

from mofa_model import cli, verbs
from mofa_model.verbs import rates

ROOT = Path(__file__).resolve().parent.parent
PARSED = (
    "mofa operator",
    "mofa profile --from-cluster",
    "mofa profile --measure",
    "mofa doctor",
    "mofa pools",
    "mofa top",
    "mofa why",
    "mofa validate account",
    "mofa validate changes",
    "mofa trace",
    "mofa observe - ",
    "mofa observe /logs",
    "mofa observe '",
    "mofa ui",
)
"""Examples that need a cluster, a trace or a trainer that goes on writing, or that serve until they
are ended: they are parsed, and run elsewhere."""
MINUTES = "mofa fit"
"""Examples that take minutes, and one of which writes this installation's presets: they are parsed
as well.
"""
LONG = (
    "mofa validate odds",
    "mofa validate sizes",
    "mofa validate fleets",
    "mofa validate assumptions",
    "mofa validate tuning",
    "mofa which --model llama3-8b --examples",
    "mofa simulate --nodes 2048 --step 10s --save 0.2s,1s,2s",
)
"""Examples that take ten seconds of a core and more: `make soak` runs them."""


def parser_of(verb):
    foreign = {point.name: point.value for point in entry_points(group=verbs.GROUP)}
    module = verbs.load(verb, foreign.get(verb))
    parser = argparse.ArgumentParser(
        prog=f"mofa {verb}", epilog=module.EXAMPLES, exit_on_error=False, allow_abbrev=False
    )
    module.configure(parser)
    return parser


VERBS = sorted({*verbs.ours(), *(point.name for point in entry_points(group=verbs.GROUP))})


def examples(verb):
    """Command lines of the epilogue, continuation lines joined, from `mofa` to the end of their
    pipe's part.
    """
    text = parser_of(verb).epilog or ""
    text = re.sub(r"\\\n\s*", " ", text)
    found = []
    for line in text.splitlines():
        if (
            match := re.search(r"(?:^|[ (])(mofa [a-z]+ .*|mofa [a-z]+)$", line)
        ) and line.startswith("  "):
            command = re.split(r" \| |\)$| > |   +\S", match.group(1))[0].strip()
            found.append(command)
    return found


EVERY = [
    (verb, line)
    for verb in VERBS
    for line in examples(verb)
    if "…" not in line and "..." not in line.split()
]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_examples_of_itself(verb):
    assert any(line.startswith(f"mofa {verb}") for line in examples(verb)), examples(verb)


@pytest.mark.parametrize("verb, line", EVERY, ids=[line for _, line in EVERY])
def test_every_example_is_parsed(verb, line):
    words = shlex.split(line)[1:]
    two = " ".join(words[:2])
    name = two if two in verbs.LAB else words[0]
    parser_of(name).parse_args(words[len(name.split()) :])


def committed(folder, branch):
    """Make a repository of a folder, whose files all stand in that branch."""
    author = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    for words in (
        ("init", "--quiet"),
        ("add", "--all"),
        (*author, "commit", "--quiet", "--message", "As it is here"),
        ("update-ref", f"refs/remotes/{branch}", "HEAD"),
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb, line",
    [
        pytest.param(verb, line, id=line, marks=[pytest.mark.soak] * line.startswith(LONG))
        for verb, line in EVERY
    ],
)
def test_every_example_runs(verb, line, tmp_path, monkeypatch, capsys, asked_once):
    if line.startswith((*PARSED, MINUTES)):
        pytest.skip("needs what is not here; it was parsed")
    for folder in ("examples", "lab/data"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for name, text in GIVEN.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(GIVEN["job.yaml"].encode())))
    words = shlex.split(line)
    if "--base" in words:
        committed(tmp_path, words[words.index("--base") + 1])
    code = cli.main(words[1:])
    said = capsys.readouterr()
    asks_slurm = "--slurm" in words and "nodes.txt" not in words  # none is set up here
    assert code == (4 if "--prometheus" in words or asks_slurm else 0), said.err


def test_readme_help_and_code_list_the_same_exit_codes(capsys):
    readme = {
        int(code)
        for code in re.findall(r"^\| (\d+) \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    }
    assert cli.main([]) == 0
    told = capsys.readouterr().out.partition("exit codes:")[2].partition("`")[0]
    assert {int(code) for code in re.findall(r"(?:^|, |,\n)\s*(\d+) ", told)} == readme
    stated = {int(code) for code in re.findall(r"(?:    |· )(\d+) ", cli.__doc__)}
    assert stated == readme == {0, 1, 2, 3, 4, rates.CONTRADICTED, cli.INTERRUPTED}
