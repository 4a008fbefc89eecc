"""Batch scripts written: changed in place, and new."""

import difflib
import itertools
import shutil
import subprocess

import pytest

from mofa_model.errors import BadValue
from mofa_model.identity.sbatch import read_script
from mofa_model.identity.sbatch_written import SlurmJob, asked_options, changed_batch, new_batch
from mofa_model.launch import ChangedScript

HEADS = {
    "nodes and gres": "#SBATCH -N 4 --gres=gpu:h100:8,nvme:1   # whole nodes\n#SBATCH --ntasks-per-node=1",
    "per node": '#SBATCH --nodes=4\n#SBATCH --gpus-per-node="a100:8"\n#SBATCH --ntasks-per-node 8',
    "whole job": "#SBATCH --nodes 4\n#SBATCH -G 32\n#SBATCH -n 4",
    "per task": "#SBATCH -n32\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-task=1",
    "from, to": "#SBATCH --nodes=4-8\n#SBATCH --gpus-per-node=8\n#SBATCH --exclusive",
    "said twice": "#SBATCH -N 9\n#SBATCH --gpus-per-node=8\n#SBATCH -N 4",
}
BODIES = {
    "variables of Slurm": 'srun torchrun --nnodes $SLURM_NNODES --nproc_per_node=$SLURM_GPUS_ON_NODE t.py "$@"',
    "its own variables": (
        "NNODES=${NNODES:-4}\nGPUS_PER_NODE=8\nexport WORLD_SIZE=$((NNODES * GPUS_PER_NODE))\n"
        'ARGS=(--nnodes "$NNODES" --nproc_per_node $GPUS_PER_NODE)\nsrun torchrun "${ARGS[@]}" t.py'
    ),
    "numbers": "srun -N4 --ntasks-per-node=1 bash -c 'torchrun --nnodes=4 --nproc-per-node 8 t.py --seed 4'",
    "accelerate": "accelerate launch --num_machines 4 --num_processes 32 t.py --layers 32",
    "lightning": "srun python t.py trainer.num_nodes=4 trainer.devices=8 model.heads=8",
}
SIZES = [(2, 8), (4, 4), (6, 8), (3, 5)]


def checked(text):
    """Whether a shell reads it, and how often shellcheck finds what."""
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    return done.returncode


@pytest.mark.parametrize(("head", "body"), list(itertools.product(HEADS, BODIES)))
def test_nodes_and_gpus_are_changed_where_they_are_given_and_nothing_else(head, body) -> None:
    text = f"#!/bin/bash\n# ours\n{HEADS[head]}\n#SBATCH --time=1-0\n\nset -e\n{BODIES[body]}\n"
    for nodes, gpus in SIZES:
        job = SlurmJob(nodes=nodes, gpus_per_node=gpus)
        made = changed_batch(text, "j", job)
        facts = read_script(made.text, "j").facts
        assert (facts["nodes"].value, facts["devices_per_node"].value) == (nodes, gpus), made
        assert changed_batch(made.text, "j", job) == ChangedScript(text=made.text)
        rows = [
            one for one in difflib.ndiff(text.split("\n"), made.text.split("\n")) if one[0] in "+-"
        ]
        assert len(rows) == 2 * len({one.line_number for one in made.changes})
        assert checked(made.text) == 0
        for kept in ("--seed 4", "--layers 32", "model.heads=8", "nvme:1", "# whole nodes", "-N 9"):
            assert (kept in made.text) == (kept in text)
        assert not made.left


def test_a_script_that_asks_for_what_is_wanted_stays_as_it_is() -> None:
    text = f"#!/bin/bash\n{HEADS['per node']}\nsrun x\n"
    assert changed_batch(text, "j", SlurmJob(nodes=4, gpus_per_node=8)).text == text


def test_each_change_is_told_with_its_line() -> None:
    text = f"#!/bin/bash\n{HEADS['nodes and gres']}\nsrun torchrun --nnodes 4 t.py\n"
    asked = {"time": "2-0", "requeue": ""}
    made = changed_batch(text, "j", SlurmJob(nodes=8, gpus_per_node=4, sbatch_options=asked))
    assert [str(one) for one in made.changes] == [
        "line 2: nodes 4 is 8",
        "line 2: gres 8 is 4",
        "line 4: requeue --requeue is new",
        "line 4: time --time=2-0 is new",
        "line 4: nnodes 4 is 8",
    ]


def test_a_heterogeneous_job_is_left_alone_and_said() -> None:
    text = "#!/bin/bash\n#SBATCH -N 1\n#SBATCH hetjob\n#SBATCH -N 4\nsrun x\n"
    made = changed_batch(text, "j", SlurmJob(nodes=8, gpus_per_node=8))
    assert (made.text, made.left) == (text, ("a heterogeneous job is left alone",))


def test_tasks_that_slurm_may_place_anywhere_are_left_and_said() -> None:
    text = "#!/bin/bash\n#SBATCH --ntasks=16\n#SBATCH --gpus-per-task=1\nsrun python t.py\n"
    assert read_script(text, "j").facts["devices"].value == 16
    made = changed_batch(text, "j", SlurmJob(nodes=4, gpus_per_node=8))
    told = "it says neither its nodes nor their GPUs: start it on 4 nodes with 8 GPUs each"
    assert (made.text, made.left) == (text, (told,))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("set -e\n#SBATCH -N 2\nsrun x", "line 3: sbatch does not read it: it stands behind a command"),
        ("#SBATCH -N 2\nsrun python t.py", "it does not say the GPUs of a node: start it where each has 4"),
        (
            "#SBATCH -N 2\nsrun accelerate launch --num_processes $((4 * SLURM_NNODES)) t.py",
            "--num_processes is 12, and the layout needs 9",
        ),
        (
            "#SBATCH -N 2 --gres=gpu:8 -w n[01-08]\nsrun python t.py",
            "--nodelist=n[01-08] names 8 nodes, and the job has 3",
        ),
        (
            "#SBATCH -N 2 --gres=gpu:8\nsrun tools/train.sh c.py 8",
            "tools/train.sh is told 8: if these are GPUs, tell it 3",
        ),
        (
            "#SBATCH -N 2 --gres=gpu:2\nCUDA_VISIBLE_DEVICES=0,1 srun python t.py",
            "CUDA_VISIBLE_DEVICES=0,1 shows 2 GPUs, and the layout needs 3",
        ),
        (
            "#SBATCH -N 1 --gres=gpu:8\ntorchrun --rdzv_endpoint=$H:1 t.py",
            "torchrun is started on the first node alone: start it by srun",
        ),
        (
            "#SBATCH -N 1 --gres=gpu:8\nsrun accelerate launch --num_processes 8 t.py",
            "accelerate is not told how 3 nodes meet: give it --num_machines, --machine_rank and --main_process_ip",
        ),
        (
            "#SBATCH -N 2 --gres=gpu:8\nsrun accelerate launch --config_file c.yaml t.py",
            "accelerate reads its machines in a file: say 3 there, and 9 processes",
        ),
        (
            "#SBATCH -N 2 --gres=gpu:8\nsrun python t.py --nodes 2",
            "--nodes is 2: if the program means the job's, tell it 3",
        ),
        (
            "#SBATCH -N 1 --gres=gpu:8\nsrun torchrun --nnodes=1:2 --rdzv_endpoint=localhost:6000 t.py",
            "torchrun is not told how 3 nodes meet: give it --rdzv-backend c10d and --rdzv-endpoint with the first node's address",
        ),
    ],
)  # fmt: skip
def test_what_a_script_says_of_its_size_elsewhere_is_told(text, told) -> None:
    gpus = 4 if "each has 4" in told else 3
    made = changed_batch(f"#!/bin/bash\n{text}\n", "j", SlurmJob(nodes=3, gpus_per_node=gpus))
    assert told in made.left
    again = changed_batch(made.text, "j", SlurmJob(nodes=3, gpus_per_node=gpus))
    assert again.text == made.text


def test_an_elastic_torchrun_may_have_as_many_nodes_as_the_job() -> None:
    text = "#!/bin/bash\n#SBATCH -N 2 --gres=gpu:8\nsrun torchrun --nnodes=1:2 --rdzv_endpoint=$H t.py\n"
    made = changed_batch(text, "j", SlurmJob(nodes=6, gpus_per_node=8))
    assert (made.text, made.left) == (text.replace("-N 2", "-N 6").replace("1:2", "1:6"), ())


def test_a_script_of_one_node_is_told_what_more_nodes_need() -> None:
    text = "#!/bin/bash\n#SBATCH -N 1 --gpus-per-node=8\nsrun torchrun --nproc_per_node 8 {}t.py\n"
    job = SlurmJob(nodes=2, gpus_per_node=8)
    (left,) = changed_batch(text.format(""), "j", job).left
    assert left.startswith("torchrun is not told how 2 nodes meet")
    assert not changed_batch(text.format("--rdzv_endpoint=$HEAD:29500 "), "j", job).left


def test_a_variable_that_also_says_the_layout_is_told() -> None:
    text = (
        "#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=8\nG=8\nsrun torchrun --nproc_per_node $G pretrain_gpt.py "
        "--tensor-model-parallel-size $G --num-layers 32 --micro-batch-size 1\n"
    )
    made = changed_batch(text, "j", SlurmJob(nodes=2, gpus_per_node=4))
    assert made.left == (
        "a variable that was changed also says the layout: write that out as well",
    )


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("--gpus-per-node=h100:4", "the layout is for 8 GPUs of each node"),
        ("-N 3", "the layout is for 4 nodes"),
        ("-n 32", "it follows from the layout"),
        ("--gpu-per-node=8", "did you mean --gpus-per-node"),
        ("--time=$T", "sbatch puts no variable"),
        ("gpu", "'gpu' is no option"),
    ],
)
def test_options_that_contradict_the_layout_are_refused_by_name(asked, message) -> None:
    with pytest.raises(BadValue, match=message):
        SlurmJob(nodes=4, gpus_per_node=8, sbatch_options=asked_options(asked))


CONTAINERS = {
    "--container-image=x.sqsh --container-mounts=/d:/d": '--container-image=x.sqsh --container-mounts="$HERE:$HERE,/d:/d"',
    "--container-image=x.sif": 'apptainer exec --nv --bind "$HERE:$HERE" x.sif',
    "--container-image=enroot://m": 'enroot start --rw --mount "$HERE:$HERE" m',
}


@pytest.mark.parametrize("asked", CONTAINERS)
def test_a_new_script_starts_its_container(asked) -> None:
    text = new_batch(SlurmJob(nodes=2, gpus_per_node=8, sbatch_options=asked_options(asked)), "m")
    assert f"srun --kill-on-bad-exit=1 --cpu-bind=none {CONTAINERS[asked]} bash " in text
    assert read_script(text, "j").script_steps[-1].container == asked.split()[0].partition("=")[
        2
    ].removeprefix("enroot://")


@pytest.mark.parametrize("trainer", ["megatron", "nemo", "torchtitan", "trl"])
def test_a_new_script_is_read_back_and_shells_find_nothing_in_it(trainer) -> None:
    for asked in ("", "-t 1-0 -p gpu", "-t 5 --requeue", "-t 10 --signal=TERM@60"):
        job = SlurmJob(nodes=4, gpus_per_node=8, sbatch_options=asked_options(asked))
        text = new_batch(job, "a model on 32 h100", trainer)
        read = read_script(text, "j")
        assert (read.facts["nodes"].value, read.facts["devices"].value) == (4, 32)
        assert (read.faults, checked(text)) == ((), 0)
        if shutil.which("shellcheck"):
            done = subprocess.run(
                ["shellcheck", "-"], input=text, text=True, capture_output=True, check=False
            )
            assert done.stdout == ""
