"""Public names have one meaning: tools/words.py finds none that has several."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def counted():
    done = subprocess.run(
        [sys.executable, "tools/words.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    titles = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
    return {title: int(count) for title, count in (line.rsplit(": ", 1) for line in titles)}


@pytest.mark.parametrize(
    "title",
    ["classes with several homes", "names with several units", "names that hold several things"],
)
def test_no_name_has_several_meanings(counted, title):
    assert counted[title] == 0
