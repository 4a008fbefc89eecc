"""How many devices a command is started on: by its scheduler, its starter, and variables of
the script.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from mofa_model.identity.commands import ProgramCall, Said
from mofa_model.identity.fact import Fact
from mofa_model.identity.settings import Setting
from mofa_model.pasted.recognise import starter_of
from mofa_model.pasted.told import Told, number

_NODES: Final = (
    "NNODES", "NUM_NODES", "NODES", "N_NODES", "NUM_NODE", "NNODE", "num_nodes", "nnodes", "NODE_COUNT", "WORKER_NUM", "NHOSTS",
)  # fmt: skip
_EACH: Final = (
    "GPUS_PER_NODE", "GPN", "NUM_GPUS_PER_NODE", "N_GPUS_PER_NODE", "NPROC_PER_NODE", "N_GPU_PER_NODE", "NGPU_PER_NODE",
    "GPU_PER_NODE", "GPUS_PER_HOST", "NGPUS_PER_NODE", "NGPU_PER_HOST", "NUM_GPUS_PER_WORKER", "num_gpus_pernode",
    "gpus_per_node", "nproc_per_node", "DEVICES_PER_NODE",
)  # fmt: skip
_ALL: Final = (
    "WORLD_SIZE", "NUM_GPUS", "N_GPUS", "NGPUS", "num_gpus", "NUM_GPU", "TOTAL_GPUS", "NGPU", "NUM_PROCESSES",
)  # fmt: skip
"""Variables of scripts by which people count nodes, devices of a node, and all devices."""
_IN_PROGRAM: Final = frozenset(
    {"verl", "nemo", "nemo-launcher", "openrlhf", "lit-gpt", "nemo-automodel", "megatron-bridge"}
)
"""Trainers whose program itself is told its nodes and devices."""
_STARTS: Final = frozenset({"ms-swift", "llama-factory", "axolotl"})
"""Trainers that start a process on each device by themselves."""
_MEET: Final = frozenset({"nnodes", "hostfile", "rdzv_endpoint", "num_nodes", "master_addr"})


def devices_of(
    slurm: Mapping[str, Fact], launch_options: Sequence[Setting], said: Said, told: Told
) -> dict[str, Fact]:
    """Nodes, devices of a node, and devices of the job."""
    starter = starter_of(told.call)
    nodes, each, total = _of_starter(launch_options, starter)
    if told.trainer in _IN_PROGRAM:
        each = each or told.whole(told.row("gpus_per_node"))
        nodes = nodes or told.whole(told.row("nodes"))
    if told.trainer == "lit-gpt" and each is not None and nodes is None:
        total, each = each, None
    if each is None and starter in {"deepspeed", "accelerate", "torchrun", "plain"}:
        each = _visible(said)
    facts = {name: slurm[name] for name in ("nodes", "gpus_per_node", "gpu") if name in slurm}
    if nodes is not None and (starter != "srun" or "nodes" not in facts):
        facts["nodes"] = nodes
    if each is not None:
        facts["gpus_per_node"] = each
    for name, names in (("nodes", _NODES), ("gpus_per_node", _EACH)):
        if name not in facts and (held := variable(said, names)):
            facts[name] = held
    starts = told.trainer in _STARTS or (each is not None and not slurm)
    if starter == "plain" and starts and "gpus_per_node" in facts and _is_alone(said):
        facts.setdefault("nodes", Fact(1, facts["gpus_per_node"].source))
    tasks = slurm.get("tasks_per_node")
    if "gpus_per_node" not in facts and tasks is not None and tasks.value > 1:
        facts["gpus_per_node"] = tasks
    return _whole_job(facts, starter, total, slurm, launch_options, said)


def _of_starter(
    launch_options: Sequence[Setting], starter: str
) -> tuple[Fact | None, Fact | None, Fact | None]:
    """Nodes, devices of a node, and all, as the options before the program say."""
    by_key = {one.key: one for one in launch_options}

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


def _is_alone(said: Said) -> bool:
    """Whether no variable says where the processes of several nodes meet."""
    return not {"MASTER_ADDR", "NODE_RANK", "NNODES", "RANK"} & said.variables.keys()


def _visible(said: Said) -> Fact | None:
    held = said.variables.get("CUDA_VISIBLE_DEVICES")
    if held is None or not re.fullmatch(r"\d+(,\d+)*", held.value):
        return None
    return Fact(len(held.value.split(",")), held.where)


def _whole_job(
    facts: dict[str, Fact], starter: str, total: Fact | None, slurm: Mapping[str, Fact],
    launch_options: Sequence[Setting], said: Said,
) -> dict[str, Fact]:  # fmt: skip
    """Facts on nodes and GPUs, completed by the total number that a starter or Slurm says."""
    known = {"nodes", "gpus_per_node"} <= facts.keys()
    counts = starter in {"accelerate", "plain", "mpirun", "composer", "srun"}
    if total is not None and counts and (starter == "accelerate" or not known):
        facts["gpus"] = total
    elif "gpus" in slurm and not known:
        facts["gpus"] = slurm["gpus"]
    if starter in {"torchrun", "deepspeed"} and "nodes" not in facts and "gpus_per_node" in facts:
        alone = not any(one.key in _MEET and one.value != "localhost" for one in launch_options)
        if alone:
            facts["nodes"] = Fact(1, facts["gpus_per_node"].source)
    meets = any(one.key in {"num_machines", "machine_rank"} for one in launch_options)
    if (
        starter == "accelerate"
        and "gpus" in facts
        and "nodes" not in facts
        and not meets
        and not slurm
    ):
        facts["nodes"] = Fact(1, facts["gpus"].source)
    known = {"nodes", "gpus_per_node"} <= facts.keys()
    if "gpus" not in facts and not known and (held := variable(said, _ALL)):
        facts["gpus"] = held
    return facts


def variable(said: Said, names: Sequence[str]) -> Fact | None:
    """The first of some variables that is a whole number above zero."""
    for name in names:
        held = said.variables.get(name)
        if held is not None and held.value.isdecimal() and int(held.value) > 0:
            return Fact(int(held.value), held.where)
    return None


def names_file(call: ProgramCall | None, name: str) -> bool:
    """Whether a command names a file."""
    tail = name.rpartition("/")[2]
    return call is not None and any(
        (word.partition("=")[2] or word).rpartition("/")[2] == tail for word in call.texts
    )
