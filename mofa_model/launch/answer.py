"""`Launch`, which is written, with the script that starts it; and `Reading`, which is read."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeAlias

from mofa_model.errors import BadValue, DoesNotFit
from mofa_model.launch.start import Start
from mofa_model.launch.tuning import FineTuning
from mofa_model.records import dataclass
from mofa_model.schedules import INTERLEAVED
from mofa_model.spec import Training
from mofa_model.strategy import Strategy

OpenFile: TypeAlias = Callable[[str], str]
"""Gives the text of a file that a command names, by its path."""
TORCHRUN: Final = ("torchrun",)
"""What starts a trainer that has no starter of its own."""
TUNE: Final = ("tune", "run")
"""What starts a recipe of torchtune, with the options of torchrun."""


@dataclass(frozen=True, kw_only=True)
class LaunchSettings:
    """What a launch says beside the layout."""

    sequence: int
    """Tokens in a sequence. [1]"""
    global_batch: int
    """Sequences in an optimizer step. [1]"""
    layers: int
    """Transformer blocks, without prediction modules. [1]"""
    model: str = ""
    """Its id on a hub; empty where nobody knows it."""
    experts: bool = False
    """Whether the model is a mixture of experts."""
    prediction_modules: int = 0
    """Multi-token prediction modules. [1]"""
    stages: tuple[tuple[tuple[str, ...], ...], ...] = ()
    """Blocks of the layers of every virtual stage; empty where layers are only counted."""
    precision: str = "bf16"
    """Precision preset id."""
    optimizer: str = "adamw"
    """Optimizer preset id."""
    adapters: bool = False
    """Whether adapters are trained beside frozen weights."""
    documents: bool = False
    """Whether sequences are packed of documents."""
    interval_steps: int | None = None
    """Steps between checkpoints; None = the trainer's own. [1]"""
    asynchronous: bool = True
    """Whether training goes on while a checkpoint is written."""
    training: Training | None = None
    """The whole training, which the file of a fine-tuner says."""

    def micro_batches(self, strategy: Strategy) -> int:
        """Micro-batches of one data-parallel rank in a step. [1]"""
        ranks, size = int(strategy.dp), int(strategy.mbs)
        if self.global_batch % (ranks * size):
            raise BadValue(
                "strategy",
                f"dp x mbs = {ranks * size}",
                f"it must divide the batch ({self.global_batch})",
            )
        return self.global_batch // (ranks * size)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A strategy in a trainer's own words."""

    trainer: str
    """Its id, as `--launch` takes it."""
    release: str
    """Release in which these words were read."""
    arguments: tuple[str, ...]
    """What follows the trainer's script on the command line."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the layout needs."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that the arguments name, with their text."""
    notes: tuple[str, ...] = ()
    """What a person has to know or do that no argument can say, each in one sentence."""
    starter: tuple[str, ...] = TORCHRUN
    """What starts the trainer's script on every node, with its options."""
    beside: Start | None = None
    """Model, data, tokenizer and folders of the launch; None where people have to give them."""

    @property
    def all_files(self) -> dict[str, str]:
        """Every file beside the script, with its text."""
        return {**self.files, **(self.beside.extra_files if self.beside else {})}

    def text(self) -> str:
        """The whole to read and to copy: notes, variables and files, then the arguments."""
        lines = [f"# {self.release}", *(f"# {note}" for note in self.notes)]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in self.environment.items()]
        for name, content in self.files.items():
            lines += [f"# {name}:", *(f"#   {line}" for line in content.splitlines())]
        return "\n".join(lines) + "\n" + shell_lines(self.arguments) + "\n"


def shell_lines(arguments: Sequence[str], quote: Callable[[str], str] = shlex.quote) -> str:
    """Arguments for a shell: each option stands with its values on a line of its own."""
    groups: list[list[str]] = []
    for word in arguments:
        quoted = quote(word)
        if groups and not word.startswith("-") and groups[-1][0].startswith("-"):
            groups[-1].append(quoted)
        else:
            groups.append([quoted])
    return " \\\n".join(" ".join(group) for group in groups)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a launch command says; what it leaves open is None or missing."""

    trainer: str
    """The trainer it is for."""
    layout: Mapping[str, Any]
    """Fields of `Strategy` that it decides."""
    chunk_layers: int | None = None
    """Layers of a virtual stage, where the command gives these instead of their number. [1]"""
    outer_slots: int = 0
    """Embedding and head, where these count as layers when layers go to stages. [1]"""
    rounds: int | None = None
    """Micro-batches of a rank in a step, where nothing says the batch of all ranks. [1]"""
    copies: int = 1
    """Copies of what is sharded, over all data-parallel ranks. [1]"""
    layers: int | None = None
    """Transformer blocks. [1]"""
    sequence: int | None = None
    """Tokens in a sequence. [1]"""
    global_batch: int | None = None
    """Sequences in an optimizer step. [1]"""
    precision: str | None = None
    """Precision preset id."""
    interval_steps: int | None = None
    """Steps between checkpoints. [1]"""
    recompute_every: int = 1
    """Of so many layers one is computed again. [1]"""
    tuning: FineTuning | None = None
    """The fine-tuning that it says."""
    recipe: str = ""
    """The trainer's own configuration that it names and that says the rest; empty = none."""
    unpriced: tuple[str, ...] = ()
    """What it says that changes memory or time, and no field of a strategy says."""

    def strategy(self, gpus: int, *, layers: int | None = None, field: str = "current") -> Strategy:
        """The layout on `gpus` devices [1]; `DoesNotFit` where there is none.

        `layers` [1] are the model's, where the command does not say.

        >>> Reading(trainer="megatron", layout={"tp": 8, "pp": 4}).strategy(64).dp
        2
        """
        fields = dict(self.layout)
        taken = int(fields.get("tp", 1)) * int(fields.get("pp", 1)) * int(fields.get("cp", 1))
        if gpus % taken:
            raise DoesNotFit(field, f"tp x pp x cp = {taken}", f"it must divide the {gpus} devices")
        dp = gpus // taken
        if fields.setdefault("dp", dp) != dp:
            right = f"{gpus} devices over tp x pp x cp = {taken} make {dp}"
            raise DoesNotFit(f"{field}.dp", f"dp = {fields['dp']}", right)
        fields |= self._virtual_stage_fields(fields, layers, field)
        fields |= self._shard_field(dp * int(fields.get("cp", 1)), field)
        fields |= self._recompute_field(fields, layers, field)
        return Strategy(**fields)

    def _virtual_stage_fields(
        self, fields: Mapping[str, Any], layers: int | None, field: str
    ) -> dict[str, Any]:
        """`vpp` and `schedule`, from a file that gives the layers of a virtual stage."""
        if self.chunk_layers is None:
            return {}
        depth, stages = self.layers or layers, int(fields.get("pp", 1))
        if depth is None:
            raise BadValue(
                field,
                f"{self.chunk_layers} layers a virtual stage",
                "say how many layers the model has",
            )
        chunks = -(-(depth + self.outer_slots) // self.chunk_layers)
        if chunks % stages:
            raise DoesNotFit(
                field,
                f"{chunks} virtual stages",
                f"their number must be a multiple of the {stages} stages",
            )
        vpp = chunks // stages
        return {"vpp": vpp, "schedule": INTERLEAVED} if vpp > 1 else {}

    def _recompute_field(
        self, fields: Mapping[str, Any], layers: int | None, field: str
    ) -> dict[str, Any]:
        """`recompute_layers` of a stage, from a file that recomputes every n-th layer."""
        if self.recompute_every == 1:
            return {}
        depth = self.layers or layers
        if depth is None:
            raise BadValue(
                field, f"every {self.recompute_every} layers", "say how many layers the model has"
            )
        return {"recompute_layers": -(-depth // int(fields.get("pp", 1)) // self.recompute_every)}

    def _shard_field(self, ranks: int, field: str) -> dict[str, Any]:
        """`shard`, the ranks that share one copy, from a file that gives the number of copies."""
        if self.copies == 1:
            return {}
        if ranks % self.copies:
            right = f"they must divide the {ranks} data-parallel ranks"
            raise DoesNotFit(field, f"{self.copies} copies", right)
        return {"shard": ranks // self.copies}


_PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "megatron": ("pretrain_gpt.py",),
    "torchtitan": ("-m", "torchtitan.train"),
    "trl": (),
    "axolotl": ("-m", "axolotl.cli.train"),
    "llama-factory": ("-m", "llamafactory.launcher"),
    "torchtune": (),
}
"""What torchrun starts, by trainer; users of the other trainers have a script of their own."""
_OWN: Final = ("train.py",)
"""A user's own script, by its usual name."""


def program_of(trainer: str) -> tuple[str, ...]:
    """What torchrun starts, before the trainer's arguments.

    >>> program_of("torchtitan")
    ('-m', 'torchtitan.train')
    """
    return _PROGRAMS.get(trainer, _OWN)


def on_nodes(
    starter: Sequence[str],
    nodes: int,
    gpus: int,
    *,
    rank: str = "",
    address: str = "",
    port: str = "29500",
) -> list[tuple[str, str]]:
    """Options that tell a starter its nodes and GPUs [1], and with an address how they meet.

    >>> on_nodes(["torchrun"], 2, 8)
    [('--nnodes', '2'), ('--nproc-per-node', '8')]
    """
    if tuple(starter) in {TORCHRUN, TUNE}:
        names = ("--node-rank", "--master-addr", "--master-port")
        sizes = [("--nnodes", str(nodes)), ("--nproc-per-node", str(gpus))]
    else:
        names = ("--machine_rank", "--main_process_ip", "--main_process_port")
        sizes = [("--num_machines", str(nodes)), ("--num_processes", str(nodes * gpus))]
    return sizes + list(zip(names, (rank, address, port), strict=True)) * bool(address)


def launch_script(launch: Launch, nodes: int, gpus: int) -> str:
    """A shell script for each node; arguments of people's own come before the layout."""
    program = program_of(launch.trainer)
    begin = launch.beside or Start()
    started = f'"${{SCRIPT:-{program[0]}}}"' if len(program) == 1 else shlex.join(program)
    if begin.program:
        started = f'"${{SCRIPT:-{begin.program.replace(chr(34), "")}}}"'

    def quoted(word: str) -> str:
        return f'"$HERE"/{shlex.quote(word)}' if word in launch.files else shlex.quote(word)

    rendezvous = (
        {"rank": '"$NODE_RANK"', "address": '"$MASTER_ADDR"', "port": '"${MASTER_PORT:-29500}"'}
        if nodes > 1
        else {}
    )
    node_options = " ".join(
        f"{option} {value}" for option, value in on_nodes(launch.starter, nodes, gpus, **rendezvous)
    )
    options = [option for option in begin.shell_options() if option]
    layout = shell_lines(launch.arguments, quoted)
    parts = [
        f"{' '.join(map(quoted, launch.starter))}",
        node_options,
        *([started] if started else []),
    ]
    parts += (
        [layout, *options, '"$@"']
        if begin.options_last or not started
        else [*options, '"$@"', layout]
    )
    lines = [
        "#!/usr/bin/env bash",
        (
            f"# {launch.release} on {nodes} nodes with {gpus} GPUs each; "
            "run it on every node, with arguments of your own."
        ),
        *(f"# {note}" for note in launch.notes),
        "set -euo pipefail",
        *(['HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"'] if launch.all_files else []),
        *begin.top(),
        *(_MEETING if nodes > 1 else ()),
        *(f"export {name}={shlex.quote(value)}" for name, value in launch.environment.items()),
        "exec " + " \\\n".join(parts),
    ]
    return "\n".join(lines) + "\n"


_MEETING: Final = (
    "# Slurm says which node this is; elsewhere say it yourself.",
    'NODE_RANK="${NODE_RANK:-${SLURM_NODEID:?say NODE_RANK, 0 on the first node}}"',
    (
        'MASTER_ADDR="${MASTER_ADDR:-$(scontrol show hostnames "${SLURM_JOB_NODELIST:?'
        'say MASTER_ADDR, the address of the first node}" | head -n 1)}"'
    ),
)
"""How the nodes of a job find each other."""
