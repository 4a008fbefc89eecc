"""What README and documents have people type is run, page by page and in their order; what asks a
cluster is in tests/cluster.
"""

import glob
import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from desk import GIVEN
from documents import ELSEWHERE, PAGES, ROOT, asks_a_cluster, commands, elsewhere
from trace_generator import World
from trace_setup import Setup, Stack

from mofa_model.cli import main

CONFIG = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": True,
}  # fmt: skip
"""A model of one's own, as it would be published."""
TRACED = Setup(
    layers=32, vocabulary=128256, sequence=8192, micro_batches=8, tp=2, pp=2, dp=4
)  # what the page says of its traces


def typed(page):
    """Its commands for the desk."""
    return [one for one in commands(page) if not asks_a_cluster(one) and not elsewhere(one)]


def ran(line):
    """Run one as a shell would: in this process, unless it sets variables, which are read once."""
    words = shlex.split(line)
    if "=" in words[0]:
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])  # noqa: PTH120 - text
        return subprocess.run(
            ["bash", "-c", line], env=os.environ | {"PATH": path}, check=False
        ).returncode
    assert words[0] == "mofa", line
    return main([one for word in words[1:] for one in (glob.glob(word) or [word])])  # noqa: PTH207


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if typed(page)], ids=lambda page: page.stem
)
def test_what_a_page_has_people_type_runs_in_its_order(
    page, tmp_path, monkeypatch, capsys, asked_once
):
    for folder in ("examples", "lab/data"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for name, text in (GIVEN | {"config.json": json.dumps(CONFIG)}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    if any("rank0" in line for line in typed(page)):
        for rank, path in zip(
            (0, 8), World(TRACED, Stack()).run().write(tmp_path, [0, 8]), strict=True
        ):
            (tmp_path / f"rank{rank}.json.gz").write_bytes(gzip.compress(path.read_bytes(), 1))
    monkeypatch.chdir(tmp_path)
    codes = {}
    for line in typed(page):
        codes[line] = ran(line)
        said = capsys.readouterr()
        if codes[line] != 0:
            codes[line] = said.err
        writes_a_file = "--in-place" in line or "--out " in line
        assert said.out or codes[line] or writes_a_file or "=" in line.split()[0], line
    assert {line: code for line, code in codes.items() if code != 0} == {}


def test_what_is_not_run_from_the_pages_is_on_some_page():
    every = [line for page in PAGES for line in commands(page)]
    assert len(every) > 100
    assert [one for one in ELSEWHERE if not any(line.startswith(one) for line in every)] == []


def test_a_stranger_is_three_commands_from_an_answer_on_their_own_model():
    """As the README has it: one command installs, one answers about a known model, one about a
    model of one's own.
    """
    page = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Try it\n")[2]
    block = re.search(r"(?:^    .+\n)+", page, re.MULTILINE)[0].splitlines()
    assert len(block) <= 3
    assert block[0].strip() == "pip install '.[plot,operator]'"
    assert block[-1].strip().startswith("mofa config.json ")
    assert {line.strip() for line in block[1:]} <= {*typed(ROOT / "README.md")}
