"""Runs that calibration is tried on: all that we ship, and a few of each kind that are quick
to fit.
"""

from pathlib import Path

import pytest

from mofa_lab.fitting import campaign
from mofa_lab.fitting.priors import priors
from mofa_lab.validate.cases import load

CASES = Path(__file__).resolve().parents[3] / "lab" / "data" / "cases"


@pytest.fixture(scope="session")
def published():
    cases, refused = load(CASES / "throughput.json")
    assert refused == []
    return cases


@pytest.fixture(scope="session")
def sweeps():
    cases, refused = load(CASES / "sweep.json")
    assert refused == []
    return cases


@pytest.fixture(scope="session")
def few(published, sweeps):
    """Some forty runs: three published tables, and the first runs of a group of each sweep."""
    tables = ("throughput table", "A100 80GB", "SimuMax")
    chosen = [case for name in tables for case in [c for c in published if name in c.source][:8]]
    for name in ("16x2048", "28x3072", "gpt-12x1024", "gpt-16x1024"):
        runs = [case for case in sweeps if name in case.workload.model.name]
        chosen += [case for case in runs if case.group == runs[0].group][:6]
    return chosen


@pytest.fixture(scope="session")
def entries():
    return priors()


@pytest.fixture(scope="session")
def calibrated(few, entries):
    """A calibration on the few, with whole systems left out among others."""
    return campaign.calibrate(
        few, entries, leave_out=("group", "system", "stack", "device", "scale")
    )
