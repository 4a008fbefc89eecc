"""The history of a real Slurm, told once by Slurm's records and once by the exporters of a
Kubernetes cluster: the same account.
"""

from pathlib import Path

import pytest
from mofa_local.processes import Processes
from slurm_exporters import both_tellings
from slurm_truth import JSON, TEXT

SEEN = Path(__file__).parents[1] / "data" / "slurm"


@pytest.mark.parametrize("names", [TEXT, JSON], ids=["text", "json"])
def test_the_hours_of_a_slurm_equal_those_told_by_exporters_within_2_percent(
    tmp_path, capsys, binaries, names
) -> None:
    binaries.path("prometheus")
    with Processes(tmp_path / "server") as processes:
        told = both_tellings(SEEN, names, processes, tmp_path / "server", capsys)
    (slurm, by_slurm), (prometheus, by_prometheus) = told
    assert prometheus["ran"] == pytest.approx(slurm["ran"], rel=0.02), (slurm, prometheus)
    assert sum(prometheus.values()) == pytest.approx(sum(slurm.values()), rel=0.02)
    assert prometheus["repair"] == pytest.approx(slurm["repair"], rel=0.05)
    assert by_prometheus == by_slurm
