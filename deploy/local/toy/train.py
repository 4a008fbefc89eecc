"""A trainer that really trains, as small as one can be: PyTorch on the CPU, data parallel by gloo,
with Megatron's flags and log lines.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=… MASTER_PORT=29500 python train.py --micro-batch-size 8
        --global-batch-size 16 …

It takes the flags that `mofa advise --launch megatron` prints: what it can do it does (batches,
sequence, steps between checkpoints), what acts on GPUs alone it leaves, and a layout that it cannot
run ends it with one line. It learns to continue made-up text, and goes on from the last checkpoint.
FOLDER and DEPTH are of this program, not of Megatron.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ONE_ONLY = ("tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size")


class Block(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.inner = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, tokens, mask):
        normed = self.first(tokens)
        tokens = (
            tokens + self.attention(normed, normed, normed, attn_mask=mask, need_weights=False)[0]
        )
        return tokens + self.inner(self.second(tokens))


class Model(nn.Module):
    def __init__(self, layers, width, heads, inner, vocabulary, sequence):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(sequence, width)
        self.blocks = nn.ModuleList(Block(width, heads, inner) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.register_buffer(
            "mask", torch.full((sequence, sequence), float("-inf")).triu(1), persistent=False
        )

    def forward(self, text):
        tokens = self.words(text) + self.places.weight
        for block in self.blocks:
            tokens = block(tokens, self.mask)
        return self.head(self.norm(tokens))


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    for name in ONE_ONLY:
        parser.add_argument(f"--{name}", type=int, default=1)
    for name, default in (
        ("micro-batch-size", 1),
        ("global-batch-size", 8),
        ("seq-length", 64),
        ("save-interval", 100),
        ("train-iters", 1_000_000),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (
        ("num-layers", 2),
        ("hidden-size", 32),
        ("num-attention-heads", 2),
        ("ffn-hidden-size", 128),
        ("vocab-size", 256),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument(
        "--load", type=Path, default=Path("/checkpoints"), help="folder of checkpoints"
    )
    parser.add_argument("--log-interval", type=int, default=10)
    arguments, others = parser.parse_known_args()
    for name in ONE_ONLY:
        if (size := getattr(arguments, name.replace("-", "_"))) != 1:
            sys.exit(
                f"train.py: --{name} {size}: this trainer is data parallel only; 1 would be right"
            )
    return arguments, others


def batch(arguments, step, part, count):
    """Made-up text that can be learned: every word follows from the one before it."""
    drawn = torch.Generator().manual_seed(step * 1_000_003 + part)
    first = torch.randint(arguments.vocab_size, (count, 1), generator=drawn)
    return (first + torch.arange(arguments.seq_length + 1) * 7) % arguments.vocab_size


def say(text):
    print(text, flush=True)


def main():
    arguments, others = parsed()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    micro = arguments.global_batch_size // (arguments.micro_batch_size * ranks)
    if micro * arguments.micro_batch_size * ranks != arguments.global_batch_size:
        sys.exit(
            f"train.py: --global-batch-size {arguments.global_batch_size} is not a multiple of "
            f"{arguments.micro_batch_size} x {ranks}"
        )
    if rank == 0:
        say(f"using world size: {ranks}, data-parallel size: {ranks}")
        say(f"  seq_length ...................................... {arguments.seq_length}")
        say(f"left to GPUs: {' '.join(others)}")
    model = DistributedDataParallel(
        Model(
            arguments.num_layers,
            arguments.hidden_size,
            arguments.num_attention_heads,
            arguments.ffn_hidden_size,
            arguments.vocab_size,
            arguments.seq_length,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    kept, step = arguments.load / "last.pt", 0
    if kept.exists():
        state = torch.load(kept)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
        if rank == 0:
            say(
                f"  successfully loaded checkpoint from {arguments.load} [ t 1/1, p 1/1 ] at "
                f"iteration {step}"
            )
    begun, since = time.monotonic(), 0
    while step < arguments.train_iters:
        for part in range(micro):
            text = batch(arguments, step, part * ranks + rank, arguments.micro_batch_size)
            words = model(text[:, :-1])
            loss = nn.functional.cross_entropy(words.flatten(0, 1), text[:, 1:].flatten()) / micro
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step, since = step + 1, since + 1
        if since == arguments.log_interval:
            took = 1e3 * (time.monotonic() - begun) / since
            if rank == 0:
                say(
                    f" [{time.strftime('%Y-%m-%d %H:%M:%S')}] iteration "
                    f"{step:8d}/{arguments.train_iters:8d} | consumed samples: "
                    f"{step * arguments.global_batch_size:12d} | elapsed time per iteration (ms): "
                    f"{took:.1f} | global batch size: {arguments.global_batch_size:5d} | lm loss: "
                    f"{loss.item() * micro:.6E} |"
                )
            begun, since = time.monotonic(), 0
        if step % arguments.save_interval == 0 and rank == 0:
            unfinished = kept.with_suffix(".unfinished")
            torch.save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
                unfinished,
            )
            unfinished.replace(kept)
            say(
                f"  successfully saved checkpoint from iteration {step:7d} to {arguments.load} "
                "[ t 1/1, p 1/1 ]"
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
