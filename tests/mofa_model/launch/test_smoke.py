"""Ten steps really run on the CPU, with gloo and a small model, in the environment that `make
oracle` builds.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from mofa_model.cli import main

HOME = Path(os.environ.get("TRAINERS_HOME", Path.home() / ".cache" / "mofa-oracle-trainers"))
SMALL = "layers=2,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=1000,gated=true"
PLAIN = ["--gpu", "h100", "--gpus", "2", "--seq", "64", "--global-batch", "8", "--constraint", "sharding=replicated"]  # fmt: skip
RUN = {
    "accelerate": ["--model", SMALL],
    "trl": ["--model", "qwen2.5-7b", "--lora", "8"],
    "llama-factory": ["--model", "qwen2.5-7b", "--lora", "8"],
}
"""Trainers that run without a GPU, and what they are asked."""


@pytest.mark.soak
@pytest.mark.parametrize("trainer", RUN)
def test_ten_steps_run_without_a_gpu_and_fetch_nothing(trainer, tmp_path, capsys):
    if not (HOME / "own" / "torchtune").exists():
        pytest.skip("make oracle builds the trainers' environment")
    folder = tmp_path / "out"
    asked = ["advise", *RUN[trainer], *PLAIN, "--framework", trainer, "--save-dir", str(folder)]
    assert main(asked) == 0
    capsys.readouterr()
    environment = {
        **os.environ,
        "PATH": f"{HOME}/bin:{os.environ['PATH']}",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(HOME / "own" / trainer.replace("-", "")),
    }
    run = subprocess.run(
        ["bash", folder / "launch-smoke.sh"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said = run.stdout + run.stderr
    assert run.returncode == 0, said[-3000:]
    assert len(re.findall(r"'loss': ", said)) == 10
    assert (tmp_path / "smoke").is_dir()
