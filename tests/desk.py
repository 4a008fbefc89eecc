"""What lies on a desk where people type what documents and help texts show them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_RUNS = "model,gpu,gpus,strategy,global_batch,sequence,step_seconds\nllama3-8b,h100,64,tp2 sp zero2,512,8192,11.0\n"
_PRODUCTS = "device,recipe,m,n,k,seconds_best\n" + "".join(
    f"gb200,bf16,{64 << i},4096,4096,{1e-5 * 2**i}\n" for i in range(9)
)
GIVEN = {
    "train.sbatch": """\
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 pretrain_gpt.py \\
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 11008 --swiglu \\
  --seq-length 4096 --micro-batch-size 1 --global-batch-size 256 --bf16 --use-distributed-optimizer \\
  --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2
""",
    "job.yaml": (ROOT / "examples/llama3-405b.yaml").read_text(),
    "pool.yaml": (ROOT / "examples/h100-east.yaml").read_text(),
    "failures.csv": "time,node,class\n3600,a,pod\n7200,b,job\n",
    "nodes.csv": "node,node_days\na,100\nb,200\n",
    "past.json": '{"start": 0, "end": 864000, "incidents": [], "exposure": {"by_node": {"a": 10}}, '
    '"account": {"rows": []}}',
    "advice.json": '{"job": {"nodes": 8, "step": "2 s", "interval": 200, "save": "1 s", "copy": "4 s", "replicas": 4, '
    '"gpus_per_node": 8, "checkpoint_size": "100 GB", "rate": 0.05, "classes": ["pod:1:262s"], "recovery": "in-place"}}',
    "ledger.yaml": "apiVersion: mofa.dev/v1alpha1\nkind: FailureLedger\nmetadata: {name: east}\nstatus:\n  days:\n"
    '  - {date: "2026-01-31", witness: Prometheus, coveredSeconds: 86400, classes: '
    '[{name: pod, failures: 1, exposureNodeDays: "100", recoveries: 1, recoverySeconds: 500}]}\n',
    "runs.csv": _RUNS,
    "tables/gemm.csv": _PRODUCTS,
    "results.json": '[{"id": "mlperf-next-llama31-8b-b200-8", "step_seconds": 0.5}]',
    **{
        name: (ROOT / "tests/data/slurm" / file).read_text()
        for name, file in (
            ("nodes.txt", "nodes.txt"),
            ("events.txt", "events.txt"),
            ("sacct.txt", "runs.txt"),
            ("sacct.json", "sacct-json.json"),
        )
    },
    "train.log": (ROOT / "tests/data/logs/megatron.log").read_text(),
}
"""Files by name."""
