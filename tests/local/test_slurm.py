"""A real Slurm on this machine: jobs come to harm, and what its records say is compared with who
did it.
"""

import time

import pytest
from mofa_local import slurm
from mofa_local.processes import Processes
from mofa_local.slurm_faults import Faults, recorded
from slurm_exporters import both_tellings
from slurm_truth import JSON, TEXT, scored

pytestmark = pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing() or "there is a Slurm")


def harmed(folder, seed, *, nodes, jobs, shortest, longest):
    with Processes(folder / "processes") as processes:
        site = slurm.SlurmSite(
            folder / "site", processes, nodes=nodes, bounds_memory=slurm.bounds_memory()
        )
        site.start()
        begun = time.time()
        faults = Faults(site, jobs, seed, shortest, longest)
        faults.run()
        recorded(site, faults, begun, folder / "seen")
    return folder / "seen"


@pytest.mark.slow
def test_a_node_that_loses_its_power_ends_its_job(tmp_path) -> None:
    with Processes(tmp_path / "processes") as processes:
        site = slurm.SlurmSite(tmp_path / "site", processes, nodes=2, down_after=20)
        site.start()
        job = site.submit(
            "#!/bin/bash\nsleep 600\n", "-N1", "-wgpu01", "--gres=gpu:8", "--no-requeue"
        )
        site.wait_for(
            "it runs", lambda: "RUNNING" in site.ask("squeue", "-h", "-o", "%T", f"-j{job}")
        )
        site.kill_node("gpu01")
        site.wait_for("the node is down", lambda: site.states()["gpu01"].startswith("down"))
        shown = ("sacct", "-X", "-n", "-P", "--format=State", f"-j{job}")
        site.wait_for("the job has failed", lambda: site.ask(*shown).strip() == "NODE_FAIL")


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2])
def test_of_300_jobs_95_percent_are_found_and_the_hours_are_right_to_2_percent(
    tmp_path, capsys, seed
) -> None:
    seen = harmed(tmp_path, seed, nodes=40, jobs=300, shortest=60, longest=140)
    for names in (TEXT, JSON):
        score = scored(seen, names)
        assert (score.recall >= 0.95, score.precision >= 0.95, score.error <= 0.02) == (
            True,
        ) * 3, score
        with Processes(tmp_path / "server") as processes:
            told = both_tellings(seen, names, processes, tmp_path / names[0], capsys)
        (by_slurm, _), (by_prometheus, _) = told
        assert by_prometheus["ran"] == pytest.approx(by_slurm["ran"], rel=0.02)
