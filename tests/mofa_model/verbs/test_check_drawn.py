"""Pull requests that are drawn: what is done to a script, and to which of four, by chance."""

import random

import pytest

from mofa_model.answers.check import review
from mofa_model.answers.questions import CheckQuestion
from mofa_model.answers.reviewed import launches_in

SCRIPT = """\
#!/bin/bash -l
#SBATCH -J {name}
#SBATCH -N {nodes}
#SBATCH --gres=gpu:{gpu}:8
#SBATCH -n {nodes} --ntasks-per-node=1
#SBATCH -t {time}
{head}
{before}
HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -1)
TP={tp}; PP={pp}
MODEL=({shape} --seq-length {seq} --max-position-embeddings {seq} --swiglu --normalization RMSNorm)
TRAIN=(
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size $PP
    --micro-batch-size {mbs} --global-batch-size {batch}
    --bf16 --tokenizer-type HuggingFaceTokenizer --tokenizer-model {tokenizer}
    --lr {lr} --save-interval {save} --save /ckpt --load /ckpt
    {more}
)
srun {srun} bash -c "torchrun --nnodes {nodes} --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint $HEAD:29400 pretrain_gpt.py ${{MODEL[*]}} ${{TRAIN[*]}}"
"""
USUAL = dict(
    name="run", time="2-00:00:00", mbs=1, lr="3e-4", head="", before="set -e", srun="",
    more="--sequence-parallel --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
)  # fmt: skip
GROUPS = "--group-query-attention --num-query-groups 8"
SCRIPTS = {
    "Qwen/Qwen2.5-32B": dict(
        shape=f"--num-layers 64 --hidden-size 5120 --ffn-hidden-size 27648 --num-attention-heads 40 {GROUPS}",
        tp=8, pp=2, nodes=8, batch=512, gpu="h100", seq=4096, save=300,
    ),
    "mistralai/Mistral-7B-v0.3": dict(
        shape=f"--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 {GROUPS}",
        tp=2, pp=1, nodes=4, batch=256, gpu="h200", seq=8192, save=400,
    ),
    "meta-llama/Llama-3.1-70B": dict(
        shape=f"--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 {GROUPS}",
        tp=8, pp=4, nodes=16, batch=1024, gpu="h100", seq=8192, save=200,
    ),
    "meta-llama/Llama-2-13b-hf": dict(
        shape="--num-layers 40 --hidden-size 5120 --ffn-hidden-size 13824 --num-attention-heads 40",
        tp=4, pp=1, nodes=4, batch=256, gpu="a100-80gb", seq=4096, save=500,
    ),
}  # fmt: skip
FULL = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"


def few_batches(v):
    """Eight stages and four micro-batches: most of a step is a bubble."""
    tp = v["tp"] if v["nodes"] >= v["tp"] else 4
    return dict(pp=8, tp=tp, batch=4 * max(1, v["nodes"] // tp))


BAD = [
    lambda v: dict(tp=3),
    lambda v: dict(batch=v["batch"] + 3),
    lambda v: dict(pp=7),
    lambda v: dict(more=v["more"] + " --context-parallel-size 3"),
    lambda v: dict(more=v["more"] + " --tensor-parallel-sizes 4"),
    lambda v: dict(pp=4 if v["pp"] < 4 else 8, more=v["more"] + " --num-layers-per-virtual-pipeline-stage 3"),
    lambda v: dict(head="#SBATCH --gpus-pernode=8"),
    lambda v: dict(head="#SBATCH --account=$ACCOUNT"),
    lambda v: dict(before="cd /work\n#SBATCH --qos=high"),
    lambda v: dict(mbs=3),
    lambda v: dict(mbs=32, batch=v["batch"] * 32),
    lambda v: dict(seq=v["seq"] * 16),
    lambda v: dict(gpu="a100-40gb", mbs=8, batch=v["batch"] * 8),
    lambda v: dict(tp=1, pp=1, more="", mbs=4),
    lambda v: dict(tp=1, pp=1, more=v["more"].replace("--use-distributed-optimizer ", "")),
    lambda v: dict(more=f"{v['more']} {FULL}"),
    few_batches,
    lambda v: dict(save=3),
    lambda v: dict(save=200_000),
    lambda v: dict(time="00:20:00", save=5000),
]  # fmt: skip
GOOD = [
    lambda v: dict(lr="1e-4"),
    lambda v: dict(name="other"),
    lambda v: dict(time="1-12:00:00"),
    lambda v: dict(head="#SBATCH --mail-type=FAIL --requeue"),
    lambda v: dict(head="#SBATCH -p long -q normal"),
    lambda v: dict(nodes=v["nodes"] * 2, batch=v["batch"] * 2),
    lambda v: dict(nodes=v["nodes"] * 2),
    lambda v: dict(nodes=v["nodes"] // 2, batch=v["batch"] // 2),
    lambda v: dict(batch=v["batch"] * 2),
    lambda v: dict(save=round(v["save"] * 1.3)),
    lambda v: dict(save=round(v["save"] * 0.8)),
    lambda v: dict(more=v["more"] + " --log-interval 5 --wandb-project x --tensorboard-dir /tb"),
    lambda v: dict(before="set -euo pipefail\nmodule purge\nmodule load cuda/12.4\nsource /env/bin/activate"),
    lambda v: dict(srun="--container-image=/img/x.sqsh --container-mounts=/data:/data,/ckpt:/ckpt"),
    lambda v: dict(head="#SBATCH -o logs/%x-%j.out -e logs/%x-%j.err"),
    lambda v: dict(head="#SBATCH --exclusive --mem=0"),
    lambda v: dict(more=v["more"] + " --weight-decay 0.1 --clip-grad 1.0 --seed 7"),
    lambda v: dict(head="#SBATCH --signal=B:TERM@120"),
    lambda v: dict(more=v["more"] + " --eval-interval 1000 --eval-iters 10"),
    lambda v: dict(head="#SBATCH --exclude=n[01-03]"),
]  # fmt: skip


def told(change, model):
    """The findings of one pull request that are no notes."""
    usual = {**USUAL, **SCRIPTS[model], "tokenizer": model}
    (before,) = launches_in(SCRIPT.format(**usual), "train.sbatch")
    (after,) = launches_in(SCRIPT.format(**{**usual, **change(usual)}), "train.sbatch")
    found = review(after, before, CheckQuestion([]))
    return [one.text for one in found if one.level != "note"]


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))]
)
def test_of_25_bad_ones_24_are_told_and_of_25_good_ones_at_most_one(seed) -> None:
    draw = random.Random(seed)
    bad = [(draw.choice(BAD), draw.choice([*SCRIPTS])) for _ in range(25)]
    good = [(draw.choice(GOOD), draw.choice([*SCRIPTS])) for _ in range(25)]
    missed = [(BAD.index(change), model) for change, model in bad if not told(change, model)]
    false = [
        (GOOD.index(change), model, said) for change, model in good if (said := told(change, model))
    ]
    assert (len(missed) <= 1, len(false) <= 1) == (True, True), (missed, false)
