"""Public names have one meaning: what tools/words.py counts may only fall."""

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
    "title, most",
    [
        ("classes with several homes", 0),
        ("names with several units", 3),
        ("names that hold several things", 3),
    ],
)
def test_few_names_have_several_meanings(counted, title, most):
    assert counted[title] <= most
