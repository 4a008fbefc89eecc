"""Evaluations a second of the llm-analysis package; run by ../estimate.py in that package's own
environment.

Reads a number of evaluations from each line of standard input, and answers with the seconds of a
processor that they took.
"""

import logging
import sys
import time

from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis
from llm_analysis.config import ModelConfig, ParallelismConfig, get_gpu_config_by_name

logging.disable(logging.CRITICAL)

# It wants the FFN to be a multiple of the hidden size, which rules out the Llama 3 shapes.
MODEL = ModelConfig(
    name="gpt3-175b",
    num_layers=96,
    n_head=96,
    hidden_dim=12288,
    vocab_size=51200,
    max_seq_len=2048,
)
GPU = get_gpu_config_by_name("h100-sxm-80gb")


def evaluate(tensor: int, pipeline: int) -> None:
    """Memory, FLOPs and latency of one layout."""
    layout = ParallelismConfig(
        tp_size=tensor, pp_size=pipeline, dp_size=1024 // (tensor * pipeline)
    )
    analysis = LLMAnalysis(
        MODEL, GPU, parallelism_config=layout, flops_efficiency=0.5, hbm_memory_efficiency=0.8
    )
    analysis.training(
        batch_size_per_gpu=1,
        gradient_accumulation_steps=8,
        seq_len=2048,
        activation_recomputation=ActivationRecomputation.FULL,
        ds_zero=DSZeRO.STAGE_3,
    )


def main() -> None:
    """Answer until standard input ends."""
    layouts = [(t, p) for t in (4, 8) for p in (4, 8, 16)]
    for line in sys.stdin:
        count = int(line)
        began = time.process_time()
        for at in range(count):
            evaluate(*layouts[at % len(layouts)])
        sys.stdout.write(f"{time.process_time() - began}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
