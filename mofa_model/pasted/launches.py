"""How many devices a command is started on: by its scheduler, its starter, and variables of
the script.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from mofa_model.identity.commands import Contents, ProgramCall
from mofa_model.identity.fact import Fact, number
from mofa_model.identity.settings import Setting
from mofa_model.pasted.lookup import Lookup
from mofa_model.pasted.recognise import starter_of

_NODES: Final = (
    "NNODES", "NUM_NODES", "NODES", "N_NODES", "NUM_NODE", "NNODE", "num_nodes", "nnodes",
    "NODE_COUNT", "WORKER_NUM", "NHOSTS",
)  # fmt: skip
_EACH: Final = (
    "GPUS_PER_NODE", "GPN", "NUM_GPUS_PER_NODE", "N_GPUS_PER_NODE", "NPROC_PER_NODE",
    "N_GPU_PER_NODE", "NGPU_PER_NODE", "GPU_PER_NODE", "GPUS_PER_HOST", "NGPUS_PER_NODE",
    "NGPU_PER_HOST", "NUM_GPUS_PER_WORKER", "num_gpus_pernode", "gpus_per_node", "nproc_per_node",
    "DEVICES_PER_NODE",
)  # fmt: skip
_ALL: Final = (
    "WORLD_SIZE", "NUM_GPUS", "N_GPUS", "NGPUS", "num_gpus", "NUM_GPU", "TOTAL_GPUS", "NGPU",
    "NUM_PROCESSES",
)  # fmt: skip
"""Variables of scripts by which people count nodes, devices of a node, and all devices."""
_IN_PROGRAM: Final = frozenset(
    {"verl", "nemo", "nemo-launcher", "openrlhf", "lit-gpt", "nemo-automodel", "megatron-bridge"}
)
"""Trainers whose program has options for its nodes and devices."""
_STARTS: Final = frozenset({"ms-swift", "llama-factory", "axolotl"})
"""Trainers that start a process on each device by themselves."""
_MEET: Final = frozenset({"nnodes", "hostfile", "rdzv_endpoint", "num_nodes", "master_addr"})


def devices_of(
    slurm: Mapping[str, Fact], launch_options: Sequence[Setting], contents: Contents, lookup: Lookup
) -> dict[str, Fact]:
    """Nodes, devices of a node, and devices of the job."""
    starter = starter_of(lookup.call)
    nodes, each, total = _of_starter(launch_options, starter)
    if lookup.trainer in _IN_PROGRAM:
        each = each or lookup.whole(lookup.keys("gpus_per_node"))
        nodes = nodes or lookup.whole(lookup.keys("nodes"))
    if lookup.trainer == "lit-gpt" and each is not None and nodes is None:
        total, each = each, None
    if each is None and starter in {"deepspeed", "accelerate", "torchrun", "plain"}:
        each = _visible(contents)
    facts = {name: slurm[name] for name in ("nodes", "gpus_per_node", "gpu") if name in slurm}
    if nodes is not None and (starter != "srun" or "nodes" not in facts):
        facts["nodes"] = nodes
    if each is not None:
        facts["gpus_per_node"] = each
    for name, names in (("nodes", _NODES), ("gpus_per_node", _EACH)):
        if name not in facts and (count := variable(contents, names)):
            facts[name] = count
    starts = lookup.trainer in _STARTS or (each is not None and not slurm)
    if starter == "plain" and starts and "gpus_per_node" in facts and _is_alone(contents):
        facts.setdefault("nodes", Fact(1, facts["gpus_per_node"].source))
    tasks = slurm.get("tasks_per_node")
    if "gpus_per_node" not in facts and tasks is not None and tasks.value > 1:
        facts["gpus_per_node"] = tasks
    return _whole_job(facts, starter, total, slurm, launch_options, contents)


def _of_starter(
    launch_options: Sequence[Setting], starter: str
) -> tuple[Fact | None, Fact | None, Fact | None]:
    """Nodes, devices of a node, and all, as the options before the program say."""
    by_key = {option.key: option for option in launch_options}

    def of(*names: str) -> Fact | None:
        for name in names:
            if name in by_key and (value := number(by_key[name].value)) and value > 0:
                return Fact(value, by_key[name].where)
        return None

    nodes = of("nodes") if starter == "srun" else of("nnodes", "num_machines", "num_nodes", "nodes")
    each = of(
        "nproc_per_node",
        "nproc",
        "num_gpus",
        "num_processes_per_node",
        "gpus_per_node",
        "ntasks_per_node",
    )
    include = by_key.get("include")
    if include is not None and ":" in include.value:  # DeepSpeed: host:0,1@other:0,1
        hosts = [part for part in include.value.split("@") if part]
        each = Fact(len(hosts[0].partition(":")[2].split(",")), include.where)
        nodes = nodes or Fact(len(hosts), include.where)
    return nodes, each, of("num_processes", "np", "world_size")


def _is_alone(contents: Contents) -> bool:
    """Whether the job runs on one node: no variable says where several nodes meet."""
    return not {"MASTER_ADDR", "NODE_RANK", "NNODES", "RANK"} & contents.variables.keys()


def _visible(contents: Contents) -> Fact | None:
    devices = contents.variables.get("CUDA_VISIBLE_DEVICES")
    if devices is None or not re.fullmatch(r"\d+(,\d+)*", devices.value):
        return None
    return Fact(len(devices.value.split(",")), devices.where)


def _whole_job(
    facts: dict[str, Fact], starter: str, total: Fact | None, slurm: Mapping[str, Fact],
    launch_options: Sequence[Setting], contents: Contents,
) -> dict[str, Fact]:  # fmt: skip
    """Facts on nodes and GPUs, completed by the total number that a starter or Slurm says."""
    has_both = {"nodes", "gpus_per_node"} <= facts.keys()
    counts = starter in {"accelerate", "plain", "mpirun", "composer", "srun"}
    if total is not None and counts and (starter == "accelerate" or not has_both):
        facts["gpus"] = total
    elif "gpus" in slurm and not has_both:
        facts["gpus"] = slurm["gpus"]
    if starter in {"torchrun", "deepspeed"} and "nodes" not in facts and "gpus_per_node" in facts:
        alone = not any(
            option.key in _MEET and option.value != "localhost" for option in launch_options
        )
        if alone:
            facts["nodes"] = Fact(1, facts["gpus_per_node"].source)
    meets = any(option.key in {"num_machines", "machine_rank"} for option in launch_options)
    if (
        starter == "accelerate"
        and "gpus" in facts
        and "nodes" not in facts
        and not meets
        and not slurm
    ):
        facts["nodes"] = Fact(1, facts["gpus"].source)
    has_both = {"nodes", "gpus_per_node"} <= facts.keys()
    if "gpus" not in facts and not has_both and (count := variable(contents, _ALL)):
        facts["gpus"] = count
    return facts


def variable(contents: Contents, names: Sequence[str]) -> Fact | None:
    """The first of some variables that is a whole number above zero."""
    for name in names:
        shell_variable = contents.variables.get(name)
        if (
            shell_variable is not None
            and shell_variable.value.isdecimal()
            and int(shell_variable.value) > 0
        ):
            return Fact(int(shell_variable.value), shell_variable.where)
    return None


def names_file(call: ProgramCall | None, name: str) -> bool:
    """Whether a command names a file."""
    tail = name.rpartition("/")[2]
    return call is not None and any(
        (word.partition("=")[2] or word).rpartition("/")[2] == tail for word in call.texts
    )
