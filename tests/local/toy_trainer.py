"""A toy trainer: ten steps of a line fitted to points, over gloo, in the groups that its options
say.

Each process writes what it is into a file of its own in the folder TOY_OUT.
"""

import argparse
import json
import os
from pathlib import Path


def groups(dist, world, sizes):
    """The process groups of each axis that this process is in, the innermost axis first."""
    groups_of_rank, stride = {}, 1
    rank = dist.get_rank()
    for name, size in sizes.items():
        for first in range(world):
            if (first // stride) % size == 0:
                ranks = [first + stride * number for number in range(size)]
                made = dist.new_group(ranks)
                if rank in ranks:
                    groups_of_rank[name] = made
        stride *= size
    return groups_of_rank


def main():
    """Train."""
    import torch  # tests import this file where there is no torch
    import torch.distributed as dist

    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("tensor", "context", "pipeline"):
        option = "--context-parallel-size" if name == "context" else f"--{name}-model-parallel-size"
        parser.add_argument(option, dest=name, type=int, default=1)
    parser.add_argument("--exit-duration-in-mins", type=int)
    arguments, _ = parser.parse_known_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    inner = {name: getattr(arguments, name) for name in ("tensor", "context")}
    data = world // (inner["tensor"] * inner["context"] * arguments.pipeline)
    sizes = {**inner, "data": data, "pipeline": arguments.pipeline}
    groups_of_rank = groups(dist, world, sizes)
    torch.manual_seed(rank)
    points = torch.rand(64)
    weight = torch.zeros(1)
    losses = []
    for _ in range(10):
        error = weight * points - 3 * points
        slope = torch.stack([(2 * error * points).mean(), (error**2).mean()])
        for group in groups_of_rank.values():  # a mean over all axes, one after the other
            dist.all_reduce(slope, group=group)
            slope /= dist.get_world_size(group)
        weight -= slope[0]
        losses.append(round(slope[1].item(), 9))
    out = {
        "rank": rank,
        "world": world,
        "local": int(os.environ["LOCAL_RANK"]),
        "node": os.environ["SLURMD_NODENAME"],
        "devices": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        "sizes": sizes,
        "minutes": arguments.exit_duration_in_mins,
        "losses": losses,
    }
    Path(os.environ["TOY_OUT"], f"{rank}.json").write_text(json.dumps(out))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
