"""A fact passes few files and few kinds of records on its way; what tools/walks.py counts may
only fall.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def said():
    done = subprocess.run(
        [sys.executable, "tools/walks.py"],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'operator'}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize("walk, files, kinds, stages", [("advise", 80, 99, 49)])
def test_a_question_passes_few_files_and_kinds_of_records(said, walk, files, kinds, stages):
    told = [int(word) for word in said[walk].split() if word.isdigit()]
    assert told[0] <= files
    assert told[1] <= kinds
    assert sum(told[3:]) <= stages


@pytest.mark.parametrize("chain, kinds", [("annotation", 8), ("ettr", 13)])
def test_facts_pass_few_kinds_of_records(said, chain, kinds):
    assert int(said[chain].split()[0]) <= kinds
