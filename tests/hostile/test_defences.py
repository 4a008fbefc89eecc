"""A test that cannot fail defends nothing: each is run once with its defence taken out,
and fails.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from defences import DEFENCES

ROOT = Path(__file__).parents[2]
SECURITY = (ROOT / "docs" / "security.md").read_text("utf-8")
QUICK = ("a namespace has a share of Events", "matchers of one's own are few")
"""Those of `make test`; the others in soak."""


def failed(name):
    """The lines of failures of a test without its defence; none where it passes or was skipped."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-x", "-p", "defences", "-p", "no:cacheprovider", DEFENCES[name].test]  # fmt: skip
    given = os.environ | {"MOFA_DEFENCE": name, "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=given, check=False)
    assert "INTERNALERROR" not in done.stdout + done.stderr, done.stderr[-2000:]
    return [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(one, marks=pytest.mark.soak) for one in DEFENCES if one not in QUICK)])  # fmt: skip
def test_without_its_defence_a_test_fails(name):
    assert failed(name), f"{DEFENCES[name].test} passes without {DEFENCES[name].place}"


@pytest.mark.parametrize("name", DEFENCES)
def test_each_defence_is_that_of_a_threat_that_is_written_down(name):
    rows = [
        row for row in SECURITY.splitlines() if row.startswith("|") and DEFENCES[name].threat in row
    ]
    assert rows
    file = DEFENCES[name].test.partition("::")[0]
    known = any(
        file in row or Path(file).name in row or f"{Path(file).parent}/" in row for row in rows
    )
    assert known or "the same |" in rows[0]
