"""Batch scripts for a real Slurm: accepted by sbatch, and started; real torchrun, a toy trainer on
the CPU.
"""

import json
import os
import re
import shutil
import string
import sys
from pathlib import Path

import pytest
from mofa_local import slurm
from mofa_local.processes import Processes

from mofa_model.answers.explain import explain
from mofa_model.answers.training import problems_of
from mofa_model.identity.directives import KNOWN
from mofa_model.identity.sbatch_written import SlurmJob, asked_options, changed_batch, new_batch
from mofa_model.launch import launch, launch_script
from mofa_model.strategy import parse_strategy

TORCHRUN = shutil.which(
    "torchrun",
    path=f"{Path.home()}/.cache/mofa-oracle-trainers/bin:{os.environ['PATH']}",
)
pytestmark = pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing() or "there is a Slurm")
with_torch = pytest.mark.skipif(
    TORCHRUN is None, reason="no torchrun here: make oracle installs it"
)

PROGRAM = """#!/bin/bash
# All nodes run on this machine, so a node's name is replaced by the address of this machine.
for word; do case $word in gpu[0-9]*) word=127.0.0.1;; esac; words+=("$word"); done
exec {torchrun} "${{words[@]}}"
"""
LAYOUTS = [
    # nodes, GPUs of each, layout, options of sbatch
    (2, 2, "tp=2,pp=1,cp=1,dp=2", "-p batch -t 30"),
    (1, 1, "tp=1,pp=1,cp=1,dp=1", ""),
    (1, 2, "tp=2,pp=1,cp=1,dp=1", "-t 1-0"),
    (1, 4, "tp=2,pp=2,pp-overlap=false,cp=1,dp=1", "-C h100"),
    (2, 1, "tp=1,pp=2,pp-overlap=false,cp=1,dp=1", "--gres=gpu:h100:1"),
    (2, 4, "tp=4,pp=2,pp-overlap=false,cp=1,dp=1", "-p urgent -t 0:20:00"),
    (3, 1, "tp=1,pp=1,cp=1,dp=3", "--no-requeue -t 10"),
    (3, 2, "tp=2,pp=1,cp=1,dp=3", "-C 'h100&hbm' --signal=B:USR1@60"),
    (4, 1, "tp=1,pp=2,pp-overlap=false,cp=2,dp=1", "--oversubscribe --cpus-per-gpu=2"),
    (4, 2, "tp=2,pp=2,pp-overlap=false,cp=1,dp=2", "-J 'a name' -A lab"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    with Processes(folder / "processes") as processes:
        made = slurm.SlurmSite(folder / "site", processes, nodes=4, devices=4, down_after=60)
        made.start()
        yield made


def written(folder, nodes, gpus, layout, asked):
    """A folder with the launch of a layout and its batch script."""
    strategy = parse_strategy(layout)
    answer = explain(
        model="llama3-8b", gpu="h100", gpus=nodes * gpus, global_batch_size=48, sequence_length=8192,
        strategy=layout,
    )  # fmt: skip
    told = launch(strategy, "megatron", problems_of(answer.question)[0])
    job = SlurmJob(nodes=nodes, gpus_per_node=gpus, sbatch_options=asked_options(asked))
    folder.mkdir(exist_ok=True)
    (folder / "out").mkdir(exist_ok=True)
    (folder / "launch.sh").write_text(launch_script(told, nodes, gpus))
    (folder / "train.sbatch").write_text(new_batch(job, "a toy", "megatron"))
    return strategy


def started(site, folder):
    """What every process of a job says of itself, by its rank; the job ran to its end."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "torchrun").write_text(PROGRAM.format(torchrun=TORCHRUN))
    (programs / "torchrun").chmod(0o755)
    around = {
        "PATH": f"{programs}:{Path(TORCHRUN).parent}:{os.environ['PATH']}",
        "SCRIPT": str(Path(__file__).with_name("toy_trainer.py")),
        "TOY_OUT": str(folder / "out"),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    set_ = [f"{name}={value}" for name, value in around.items()]
    log = folder / "log"
    submitted = site.ask(
        "env", *set_, "sbatch", "--parsable", f"--chdir={folder}", f"--output={log}",
        folder / "train.sbatch",
    )  # fmt: skip
    job = submitted.strip()
    site.wait_for(
        "the job has ended",
        lambda: (
            site.ask("squeue", "-h", "-t", "all", f"-j{job}", "-o", "%T").strip()
            not in {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING"}
        ),
        seconds=900,
    )
    state = site.ask("squeue", "-h", "-t", "all", f"-j{job}", "-o", "%T").strip()
    assert state == "COMPLETED", log.read_text()[-3000:]
    return {
        (one := json.loads(path.read_text()))["rank"]: one for path in (folder / "out").iterdir()
    }


def checked(site, folder, nodes, gpus, layout, asked):
    strategy = written(folder, nodes, gpus, layout, asked)
    tried = site.run("sbatch", "--test-only", folder / "train.sbatch")
    assert tried.returncode == 0, tried.stderr
    ranks = started(site, folder)
    assert sorted(ranks) == list(range(nodes * gpus))
    for rank, one in ranks.items():
        assert (one["world"], one["local"]) == (nodes * gpus, rank % gpus)
        assert one["devices"].split(",") == [str(number) for number in range(gpus)]
        assert one["sizes"]["tensor"] == strategy.tp
        assert (one["sizes"]["pipeline"], one["sizes"]["data"]) == (strategy.pp, strategy.dp)
        assert (len(one["losses"]), one["losses"]) == (10, ranks[0]["losses"])
    assert ranks[0]["losses"][-1] < 0.2 * ranks[0]["losses"][0]
    assert len({one["node"] for one in ranks.values()}) == nodes
    limited = "-t" in asked.split() and not {"--no-requeue", "--signal=B:USR1@60"} & set(
        asked.split()
    )
    assert (ranks[0]["minutes"] is not None) is limited


@with_torch
@pytest.mark.slow
def test_a_written_script_starts_its_ranks_on_its_devices(site, tmp_path) -> None:
    checked(site, tmp_path / "job", *LAYOUTS[0])


@with_torch
@pytest.mark.slow
def test_a_script_that_is_changed_in_place_starts_at_its_new_size(site, tmp_path) -> None:
    folder = tmp_path / "job"
    written(folder, 4, 1, "tp=2,pp=1,cp=1,dp=2", "--gres=gpu:h100:1")
    for name in ("train.sbatch", "launch.sh"):
        text = (folder / name).read_text()
        made = changed_batch(text, name, SlurmJob(nodes=2, gpus_per_node=2))
        assert not made.left
        (folder / name).write_text(made.text)
    assert "#SBATCH --nodes=2\n" in (folder / "train.sbatch").read_text()
    ranks = started(site, folder)
    assert [one["local"] for _, one in sorted(ranks.items())] == [0, 1, 0, 1]
    assert {one["devices"] for one in ranks.values()} == {"0,1"}


@with_torch
@pytest.mark.soak
@pytest.mark.parametrize("row", LAYOUTS[1:], ids=lambda row: row[2])
def test_ten_layouts_are_accepted_and_started(site, tmp_path, row) -> None:
    checked(site, tmp_path / "job", *row)


BESIDE = """#!/bin/bash
#SBATCH -N 1 --gpus-per-node=h100:1 -n 1 -t 5
: > {log}
srun --overlap -n 1 {mofa} observe {log} --job toy --sequence 128 --textfile {folder}/job.prom --poll 50ms &
until [[ -e {folder}/job.prom ]]; do sleep 0.2; done
srun --overlap -n 1 bash -c 'for ((N = 1; N <= 40; N++)); do
    echo " iteration $N/ 100 | consumed samples: $((N * 8)) | elapsed time per iteration (ms): 250.0 | learning rate: 1E-4 | global batch size: 8 |" >> {log}
    sleep 0.25; cp {folder}/job.prom {folder}/seen.prom 2> /dev/null || true
done'
scancel --signal=TERM "$SLURM_JOB_ID.0"
wait
{mofa} observe {log} --once --append --sequence 128 --job toy
"""


def asked_for(site, program):
    """The long options of a program of Slurm: it names those that a beginning may mean."""
    found = set()
    for letter in string.ascii_lowercase:
        said = site.run(program, f"--{letter}=1", "--usage").stderr.partition("possibilities")[2]
        found |= set(re.findall(r"'--([\w-]+)'", said))
    return found


@pytest.mark.slow
def test_every_option_that_sbatch_and_srun_have_is_known(site) -> None:
    for program, fewest in (("sbatch", 95), ("srun", 115)):
        options = asked_for(site, program)
        assert len(options) >= fewest
        assert options - KNOWN == set()


@pytest.mark.slow
def test_observe_runs_beside_a_job_as_a_second_step_and_at_its_end(site, tmp_path) -> None:
    mofa = Path(sys.executable).with_name("mofa")
    text = BESIDE.format(mofa=mofa, log=tmp_path / "train.log", folder=tmp_path)
    job = site.submit(text, f"--chdir={tmp_path}", "--output=out.log")
    site.wait_for(
        "it has ended",
        lambda: "COMPLETED" in site.ask("squeue", "-h", "-t", "all", f"-j{job}", "-o", "%T"),
        seconds=400,
    )
    log = (tmp_path / "train.log").read_text()
    assert "mofa observe: last step: 40\n" in log
    assert 'mofa_train_step{training_job="toy"' in (tmp_path / "seen.prom").read_text()
    assert not (tmp_path / "job.prom").exists()


@pytest.mark.slow
def test_a_job_whose_time_ends_waits_for_its_next_turn(site, tmp_path) -> None:
    text = new_batch(
        SlurmJob(nodes=1, gpus_per_node=1, sbatch_options={"time": "1"}), "a toy", "torchtitan"
    )
    text = text.replace("USR1@6", "USR1@50")  # the signal comes within a minute of what is asked
    (tmp_path / "launch.sh").write_text('echo "turn ${SLURM_RESTART_COUNT:-0}"; sleep 600\n')
    (tmp_path / "train.sbatch").write_text(text)
    log = tmp_path / "log"
    job = site.ask(
        "sbatch", "--parsable", f"--chdir={tmp_path}", f"--output={log}", tmp_path / "train.sbatch"
    ).strip()
    site.wait_for(
        "its second turn", lambda: log.exists() and "turn 1" in log.read_text(), seconds=400
    )
    site.run("scancel", job)
