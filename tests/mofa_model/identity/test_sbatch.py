"""Batch scripts of Slurm: their directives, steps and facts, with file and line."""

import pytest

from mofa_model.errors import BadFile
from mofa_model.identity.directives import devices_of_gres, seconds_of
from mofa_model.identity.sbatch import read_script

SCRIPT = """\
#!/bin/bash
# a comment
#SBATCH --job-name=llama --partition=h100-long   # two on a line
#SBATCH -N 4
#SBATCH --gres=gpu:8,nvme:1
#SBATCH --ntasks-per-node 1
#SBATCH -t 1-12:00:00
#SBATCH --mem=512G
#SBATCH --signal=B:USR1@300
#SBATCH --requeue

export MASTER=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
COUNT=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | wc -l)
TP=8
PP=2
ARGS=(
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size $PP
    --num-layers 32 --hidden-size 4096 --num-attention-heads 32
    --seq-length 8192 --micro-batch-size 1 --global-batch-size 128 --bf16
)
srun -l --container-image=/images/megatron.sqsh --container-mounts /data torchrun \\
    --nnodes $COUNT --nproc_per_node $SLURM_GPUS_ON_NODE --rdzv_endpoint $MASTER:29500 \\
    pretrain_gpt.py "${ARGS[@]}"
#SBATCH --nodes=99
"""


def facts(text: str) -> dict[str, object]:
    return {name: one.value for name, one in read_script(text, "j").facts.items()}


def test_fourteen_facts_stand_with_their_lines() -> None:
    read = read_script(SCRIPT, "train.sbatch")
    said = {name: (one.value, one.source) for name, one in read.facts.items()}
    expected = {
        "nodes": (4, "train.sbatch:4"),
        "devices_per_node": (8, "train.sbatch:5"),
        "devices": (32, "train.sbatch:5"),
        "device_kind": ("nvidia-h100", "train.sbatch:3"),
        "tasks_per_node": (1, "train.sbatch:6"),
        "time_limit_seconds": (36 * 3600, "train.sbatch:7"),
        "memory_bytes": (512 * 2**30, "train.sbatch:8"),
        "signal": ("USR1", "train.sbatch:9"),
        "signal_seconds": (300, "train.sbatch:9"),
        "requeue": (True, "train.sbatch:10"),
        "partition": ("h100-long", "train.sbatch:3"),
        "container": ("/images/megatron.sqsh", "train.sbatch:22"),
        "sequence_length": (8192, "train.sbatch:20"),
        "global_batch": (128, "train.sbatch:20"),
    }
    assert {name: said.get(name) for name in expected} == expected
    assert read.facts["parallel"].value == {"tp": 8, "pp": 2}
    assert read.launch_found is not None
    assert read.launch_found.reading.layout["tp"] == 8
    assert "train.sbatch:25: sbatch does not read it: it stands behind a command" in read.notes


def test_the_launcher_is_told_what_slurm_will_set() -> None:
    call = read_script(SCRIPT, "x").contents.program_calls[-1]
    assert call.texts[:5] == ("torchrun", "--nnodes", "4", "--nproc_per_node", "8")


@pytest.mark.parametrize(
    ("directives", "expected"),
    [
        ("#SBATCH -N2\n#SBATCH --gpus-per-node=a100:4", (2, 4, 8, "nvidia-a100")),
        ("#SBATCH --nodes=2-4 --gres=gpu:h100:8", (2, 8, 16, "nvidia-h100")),
        ("#SBATCH --gpus=16 --nodes=2", (2, 8, 16, None)),
        ("#SBATCH -N 2 --tasks-per-node=4 --gpus-per-task=1", (2, 4, 8, None)),
        ("#SBATCH -n 8 --ntasks-per-node=4 --gpus-per-task=1", (2, 4, 8, None)),
        ("#SBATCH -N 2 -C 'gpu&a100'\n#SBATCH --gres=gpu:2", (2, 2, 4, "nvidia-a100")),
        ("#SBATCH -N 3 --gpus-per-node=8\n#SBATCH --nodes=5", (5, 8, 40, None)),
        ("#SBATCH --gres=gpu:mi300x:8 -N 1", (1, 8, 8, "amd-mi300x")),
    ],
)
def test_nodes_and_devices(directives: str, expected: tuple) -> None:
    found = facts(f"#!/bin/sh\n{directives}\nsrun python train.py\n")
    names = ("nodes", "devices_per_node", "devices", "device_kind")
    assert tuple(found.get(name) for name in names) == expected


def test_srun_alone_says_the_nodes() -> None:
    found = facts("srun -N 3 --gpus-per-node 8 torchrun --nproc_per_node 8 train.py")
    assert (found["nodes"], found["devices"]) == (3, 24)


@pytest.mark.parametrize(
    ("line", "image", "program"),
    [
        ("srun --container-image a.sqsh python t.py", "a.sqsh", "t.py"),
        ("srun -u apptainer exec --nv -B /d:/d img.sif python t.py", "img.sif", "t.py"),
        ("singularity run --nv img.sif torchrun t.py --x 1", "img.sif", "t.py"),
        ("srun enroot start --rw -m /d:/d img torchrun t.py", "img", "t.py"),
        ("srun apptainer exec img.sif bash -c 'cd /x && python t.py'", "img.sif", "t.py"),
    ],
)
def test_containers_of_steps(line: str, image: str, program: str) -> None:
    read = read_script(f"#!/bin/bash\n#SBATCH -N 1\n{line}\n", "j")
    step = read.script_steps[-1]
    assert (step.container, step.call.program) == (image, program)


def test_a_heterogeneous_job_is_counted_whole() -> None:
    text = "#!/bin/bash\n#SBATCH -N 1 --gres=gpu:8\n#SBATCH hetjob\n#SBATCH -N 4 --gres=gpu:8\nsrun x\n"
    read = read_script(text, "j")
    assert (read.components, read.facts["nodes"].value) == (2, 5)


def test_an_array_is_left_alone_and_said() -> None:
    notes = read_script("#!/bin/bash\n#SBATCH -a 0-9%2\nsrun x\n", "j").notes
    assert notes == (
        "j:2: a job array, 0-9%2: each of its tasks is a job like this one; the array is left alone",
    )


def test_what_sbatch_does_not_expand_is_said() -> None:
    read = read_script("#!/bin/bash\n#SBATCH --nodes=$N\nsrun x\n", "j")
    assert "nodes" not in read.facts
    assert read.notes == ("j:2: sbatch puts no variable into --nodes=$N",)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-N 1 here", "'here' is no option: sbatch refuses the script"),
        ("--gpu-per-node=8", "sbatch has no option --gpu-per-node; did you mean --gpus-per-node?"),
        ("--label", "--label is an option of srun, which sbatch refuses"),
        ("--time=$T", "sbatch puts no variable into --time=$T"),
    ],
)
def test_what_sbatch_refuses_is_a_fault_with_its_line(line: str, message: str) -> None:
    read = read_script(f"#!/bin/bash\n#SBATCH {line}\nsrun x\n", "j")
    assert [tuple(one) for one in read.faults] == [(2, message)]


def test_what_sbatch_takes_is_no_fault() -> None:
    text = """\
#!/bin/bash
#SBATCH--job-name=$USER --output=logs/$X.out --gpus-per-n=8 --site-plugin=3
cat > other.sbatch <<EOF
#SBATCH --nodes=$N
EOF
"""
    read = read_script(text, "j")
    assert (read.faults, read.facts["devices_per_node"].value) == ((), 8)


def test_a_script_of_dos_is_refused_by_name() -> None:
    with pytest.raises(BadFile, match=r"j: its lines end as on DOS"):
        read_script("#!/bin/bash\r\n#SBATCH -N 1\r\n", "j")


def test_a_script_that_no_shell_reads_is_refused_by_name() -> None:
    with pytest.raises(BadFile, match="j: no shell can read it"):
        read_script("#!/bin/bash\nif then fi (\n", "j")


def test_no_secret_is_a_fact_or_a_variable() -> None:
    read = read_script(
        "#!/bin/bash\nexport HF_TOKEN=hf_abcdefgh\nsrun python t.py --api-key s3cr3t\n", "j"
    )
    assert "hf_abcdefgh" not in str(read.contents.variables) + str(dict(read.facts))
    assert "s3cr3t" not in str(dict(read.facts))


def test_times_and_resources() -> None:
    assert [seconds_of(one) for one in ("5", "5:30", "1:2:3", "1-0", "1-2:30")] == [
        300, 330, 3723, 86400, 95400,
    ]  # fmt: skip
    assert devices_of_gres("gpu:a100:4(S:0-1),gpu:t4:2,shard:8") == (6, "a100")
