"""`mofa incidents` over made histories whose truth is known: a folder that `MOFA_FAILURE_HISTORIES` names.

It holds `histories.py` (makes an OpenMetrics text of a scenario, and its truth), `scenarios/*.toml` and `score.py` (compares what
was found with the truth). Minutes and gigabytes a scenario, so this soaks.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mofa_local.processes import Processes
from mofa_local.prometheus import Prometheus as Server
from mofa_local.prometheus import backfill

from mofa_model.cli import main

FOLDER = Path(os.environ.get("MOFA_FAILURE_HISTORIES") or "/nowhere")
SCENARIOS = sorted((FOLDER / "scenarios").glob("*.toml"))

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        not SCENARIOS, reason="MOFA_FAILURE_HISTORIES names no folder of labelled histories"
    ),
]


def found_in(scenario, folder, capsys):
    """Paths of the truth of a scenario and of what is found of it."""
    made, truth, found = (
        folder / f"{scenario.stem}.{end}" for end in ("om", "truth.json", "found.json")
    )
    making = [
        sys.executable,
        str(FOLDER / "histories.py"),
        str(scenario),
        "-o",
        str(made),
        "-t",
        str(truth),
    ]
    subprocess.run(making, check=True, capture_output=True)
    known = json.loads(truth.read_text("utf-8"))
    with Processes(folder / scenario.stem) as processes:
        server = Server(processes, folder / scenario.stem)
        backfill(made, server.data)
        made.unlink()
        server.start()
        window = ["--start", str(known["start"]), "--end", str(known["end"])]
        asked = [
            "--prometheus",
            server.url,
            "--match",
            f'cluster="{scenario.stem}"',
            *window,
            "-o",
            "json",
        ]
        code = main(["incidents", *asked])
        told = capsys.readouterr()
    assert code == 0, told.err
    found.write_text(told.out, "utf-8")
    return [str(truth), str(found)]


def test_failures_are_found_each_once_with_its_cause_its_recovery_and_the_time_at_risk(
    tmp_path, capsys
):
    pairs = [path for scenario in SCENARIOS for path in found_in(scenario, tmp_path, capsys)]
    scores = tmp_path / "scores.json"
    scoring = [sys.executable, str(FOLDER / "score.py"), *pairs, "--json", str(scores)]
    subprocess.run(scoring, check=True, capture_output=True)
    said = json.loads(scores.read_text("utf-8"))
    node, job = said["node"], said["job"]
    assert (node["recall"] >= 0.97, node["precision"] >= 0.96, node["cause_right"] >= 0.95) == (
        True,
    ) * 3, node
    assert (job["recall"] >= 0.95, job["precision"] >= 0.90, job["cause_right"] >= 0.92) == (
        True,
    ) * 3, job
    assert 0.8 <= job["recovery"]["median_ratio"] <= 1.2
    assert all(abs(off) <= 0.01 for off in said["exposure_error"].values()), said["exposure_error"]
