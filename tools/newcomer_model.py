"""A newcomer's toys that change what a layout costs or how it is launched: each is added to a copy,
and shows there that it works.

Blocks, devices, schedules, axes, terms of a step, trainers.
"""

from __future__ import annotations

import json

from newcomer_copy import Copy, Fails

from mofa_model.search.axes import EVERY

JOB = (
    "--model",
    "llama3-8b",
    "--gpu",
    "h100",
    "--gpus",
    "64",
    "--global-batch",
    "512",
    "--seq",
    "8192",
)


def limited(*limits: str) -> tuple[str, ...]:
    """Flags that limit a search."""
    return tuple(word for limit in limits for word in ("--constraint", limit))


SCHEDULE = '''"""GPipe: all forwards, then all backwards, which holds the most activations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mofa_model.schedules.schedule import Operation, OperationKind, Order, Schedule


@dataclass(frozen=True)
class GPipe(Schedule):
    """All forwards first."""

    value: ClassVar[str] = "gpipe"

    def order(self, p, m, v=1) -> Order:
        """Forwards, then backwards."""
        self.own_virtual_stages(v)
        kinds = [(k, j) for k in (OperationKind.FORWARD, OperationKind.BACKWARD) for j in range(m)]
        return tuple(tuple((Operation(k, i, j),) for k, j in kinds) for i in range(p))

    def in_flight(self, *, position, microbatches, stages, virtual=1.0):
        """All of them, Eq. (5). [1]"""
        return microbatches + 0 * position

    def time(self, flow):
        """Fill, work and drain, Eq. (9). [s]"""
        hops = 2 * (flow.stages - 1) * flow.hop
        return flow.microbatches * flow.slowest + (flow.total - flow.slowest) + hops


GPIPE = GPipe()
'''


def schedule(copy: Copy) -> str:
    """A toy schedule."""
    copy.write("mofa_model/schedules/gpipe.py", SCHEDULE)
    copy.change(
        "mofa_model/schedules/__init__.py",
        "from mofa_model.schedules.one_f_one_b import",
        "from mofa_model.schedules.gpipe import GPIPE\nfrom mofa_model.schedules.one_f_one_b "
        "import",
    )
    copy.change(
        "mofa_model/schedules/__init__.py", "DUALPIPE, DUALPIPE_V)", "DUALPIPE, DUALPIPE_V, GPIPE)"
    )
    words = ("1f1b", "gpipe")
    advised, *priced = copy.json(
        ("advise", *JOB, *limited("schedule=gpipe", "pp=4")),
        *(("explain", *JOB, "--strategy", f"tp=2,pp=4,schedule={word}") for word in words),
    )
    chosen = advised["strategy"]
    if "schedule=gpipe" not in chosen:
        raise Fails(f"the search does not choose it where nothing else is allowed: {chosen}")
    memory = {
        word: answer["summary"]["memory_bytes"] for word, answer in zip(words, priced, strict=True)
    }
    if memory["gpipe"] <= memory["1f1b"]:
        raise Fails(f"it holds no more than 1F1B: {memory}")
    return (
        f"advised {chosen}; {memory['gpipe'] / 2**30:.1f} GiB in place of "
        f"{memory['1f1b'] / 2**30:.1f}"
    )


BLOCK = '''"""Pooling: a token adds the mean of all before it, projected to a width and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mofa_model.blocks.block import Block, ContextMessages, Core, Cut, Projection, SavedTensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Pooling(Block):
    """The mean of what came before."""

    word: ClassVar = "pooling"

    width: float
    """Width of the mean."""

    def products(self, hidden) -> tuple[Projection, ...]:
        """There and back."""
        return Projection(n=self.width, k=hidden), Projection(n=hidden, k=self.width, cut=Cut.INPUT)

    def cores(self) -> tuple[Core, ...]:
        """A running sum."""
        return (Core(heads=self.width, width=1, fixed=1),)

    def saved_tensors(self, hidden) -> tuple[SavedTensor, ...]:
        """The mean."""
        return (SavedTensor(elements=self.width, product_input=True),)

    def context_messages(self) -> ContextMessages:
        """The sum is handed on."""
        return ContextMessages(all_to_all_elements=2 * self.width, state_elements=self.width)

    def split(self) -> tuple[float, ...]:
        """The width."""
        return (self.width,)
'''
POOLED = """
[toy-pooled]
layers = [
    [8, ["pooling", "dense"], ["pooling", "dense"], ["pooling", "dense"], ["attention", "dense"]],
]
hidden = 4096
pooling = { width = 4096 }
attention = { heads = 32, kv_heads = 8, head_dim = 128 }
dense = { width = 14336 }
embedding = { vocabulary = 128256 }
source = "a newcomer"
"""


def block(copy: Copy) -> str:
    """A toy block: one file, and a preset that has it."""
    copy.write("mofa_model/blocks/pooling.py", BLOCK)
    name = "mofa_model/presets/models.toml"
    copy.write(name, (copy.root / name).read_text(encoding="utf-8") + POOLED)
    models = ("toy-pooled", "llama3-8b")
    *seen, pooled, plain, advised = copy.json(
        *(("explain", *JOB, "--model", model, "--strategy", "tp=2,sp=true") for model in models),
        *(("presets", "models", model) for model in models),
        ("advise", *JOB, "--model", "toy-pooled", "--framework", "any", *limited("pp=1")),
    )
    layers = seen[0]["layers"]
    if "pooling + dense" not in layers:
        raise Fails(f"no layer has it: {', '.join(layers)}")
    step, memory = (
        [answer["summary"][name] for answer in seen] for name in ("step_seconds", "memory_bytes")
    )
    if not (step[0] < step[1] and memory[0] < memory[1] and pooled != plain):
        raise Fails(f"it costs as much as attention: {step}, {memory}")
    return f"a step of {step[0]:.2f} s in place of {step[1]:.2f} s; advised {advised['strategy']}"


DEVICE = """
[toy-gpu]
aliases = ["toy"]
class = "other"
peak_bf16 = "4000 TFLOP/s"
memory = "160 GiB"
memory_bandwidth = "8 TB/s"
scale_up = "nvlink4"
scale_out = "ndr"
host_link = "pcie5"
gpus_per_node = 8
domain = 8
source = "a newcomer"
"""


def device(copy: Copy) -> str:
    """A toy device."""
    name = "mofa_model/presets/devices.toml"
    copy.write(name, (copy.root / name).read_text(encoding="utf-8") + DEVICE)
    gpus = ("toy", "h100")
    priced = copy.json(*(("explain", *JOB, "--gpu", gpu, "--strategy", "tp=2") for gpu in gpus))
    step = {
        gpu: answer["summary"]["step_seconds"] for gpu, answer in zip(gpus, priced, strict=True)
    }
    if step["toy"] == step["h100"]:
        raise Fails(f"its step is that of an H100: {step}")
    return f"a step of {step['toy']:.2f} s in place of {step['h100']:.2f} s on H100s"


FIELD = """    muon: bool = False
    \"\"\"Muon updates the weights: one moment, and Newton-Schulz iterations on every matrix.\"\"\"
    tensor_overlap: bool = False
"""
ROW = """    switch(
        "muon", "muon", Scope.STATE, tried.of_all(False, True), COMPLEXITY, example="muon=true",
        about="Whether Muon updates the weights.", feature="muon", assumed=False,
    ),
    switch(
        "tensor_overlap", "tp-overlap","""
RULE = """    rule = workload.training.optimizer
    return replace(rule, states=4.0, iterations=5.0, gather=2.0) if strategy.muon else rule
"""
MANIFEST = """
apiVersion: mofa.dev/v1alpha1
kind: TrainingJob
metadata: {name: toy, namespace: default}
spec:
  model: {preset: llama3-8b}
  training: {sequenceLength: 8192, globalBatchSize: 512}
  cluster: {profile: h100-east, nodes: 8}
  constraints: {tp: {values: [2]}, pp: {values: [1]}, cp: {values: [1]}, muon: LIMIT}
"""


def axis(copy: Copy) -> str:
    """A toy axis that changes memory, the time of a step, and the bytes of a checkpoint."""
    copy.change("mofa_model/strategy.py", "    tensor_overlap: bool = False\n", FIELD)
    free = max(axis.complexity for axis in EVERY) + 1  # no two axes break a tie alike
    row = ROW.replace("COMPLEXITY", str(free))
    copy.change(
        "mofa_model/strategy.py", '    switch(\n        "tensor_overlap", "tp-overlap",', row
    )
    rule = "mofa_model/estimate/model_states.py"
    copy.change(rule, "    return workload.training.optimizer\n", RULE)
    copy.change(rule, "  # noqa: ARG001", "")
    allow = ("--allow", "experimental")  # no run has it yet
    plain = (*JOB, *allow, *limited("cp=1", "mbs=1", "recompute=none", "tp=2"))
    alone = (
        *plain,
        *limited("pp=2", "schedule=v-half"),
    )  # which no trainer has, so both are priced alike
    with_it, without, trained = copy.json(
        ("advise", *alone, *limited("muon=true")),
        ("advise", *alone, *limited("muon=false")),
        ("advise", *plain, "--framework", "megatron"),
    )
    if "muon=true" not in with_it["strategy"] or "muon" in without["strategy"]:
        raise Fails(f"a constraint does not hold it: {with_it['strategy']}, {without['strategy']}")
    if "muon" in trained["strategy"]:
        raise Fails("it is chosen for a trainer that does not have it")
    seconds, size = (
        [answer["predicted"][name]["target"] for answer in (with_it, without)]
        for name in ("step_seconds", "memory_bytes")
    )
    if seconds[0] == seconds[1] or size[0] >= size[1]:
        raise Fails(f"it costs as much as without: {seconds}, {size}")
    saves = [answer["checkpoint_interval_steps"] for answer in (with_it, without)]
    if saves[0] >= saves[1]:
        raise Fails(f"its smaller checkpoints are saved no more often: every {saves} steps")
    limits = ("true", "false")
    for limit in limits:
        (copy.root / f"{limit}.yaml").write_text(MANIFEST.replace("LIMIT", limit), encoding="utf-8")
    for limit, answer in zip(
        limits, copy.json(*(("advise", f"{limit}.yaml") for limit in limits)), strict=True
    ):
        if ("muon=true" in answer["strategy"]) != (limit == "true"):
            raise Fails(f"a manifest that says {limit} gets {answer['strategy']}")
    return (
        f"a step of {seconds[0]:.3f} s in place of {seconds[1]:.3f} s; saved every {saves[0]} "
        f"steps in place of {saves[1]}"
    )


TERM = """    norms: Seconds = term(
        "ours",
        "all-reduce of gradient norms",
        called="gradient norms",
        seconds=lambda step: 2.0 * step.cluster.calibration.links.collective,
    )
    # The slowest node delays all terms above.
"""


def term(copy: Copy) -> str:
    """A toy term of the step."""
    ((before,),) = (copy.json(("explain", *JOB, "--strategy", "tp=2")),)
    copy.change(
        "mofa_model/estimate/step.py", "    # The slowest node delays all terms above.\n", TERM
    )
    after, advised = copy.json(
        ("explain", *JOB, "--strategy", "tp=2"),
        ("advise", *JOB, *limited("tp=2", "pp=1", "cp=1", "mbs=1")),
    )
    longer = after["summary"]["step_seconds"] - before["summary"]["step_seconds"]
    if "gradient norms" not in json.dumps(after) or not 0 < longer < 0.01:
        raise Fails(f"a step is longer by {longer} s")
    return f"a step is longer by {longer:.6f} s, as its table says; advised {advised['strategy']}"


TRAINER_ENTRY = """
[toytrain]
about = "a toy trainer"
like = "torchtitan"
tp = false
pp = false
cp = false
ep = false
sharding = ["zero3"]
shard_groups = false
recompute = ["none"]
adapters = false
source = "a newcomer"
"""
TRAINER = '''"""Toytrain: two arguments."""

from collections.abc import Sequence
from typing import Final

from mofa_model.launch.answer import Launch, LaunchSettings, OpenFile, Reading
from mofa_model.strategy import Sharding, Strategy

TRAINER: Final = "toytrain"


def write(strategy: Strategy, settings: LaunchSettings) -> Launch:
    """Micro-batch and batch."""
    words = f"--toy-micro-batch={int(strategy.mbs)}", f"--toy-batch={settings.global_batch}"
    return Launch(trainer=TRAINER, release="1.0", arguments=words)


def matches(words: Sequence[str]) -> bool:
    """Whether a launch is its own."""
    return any(word.startswith("--toy-") for word in words)


def read(words: Sequence[str], _open: OpenFile) -> Reading:
    """Micro-batch and batch, as they were written."""
    said = dict(word.split("=", 1) for word in words if word.startswith("--toy-"))
    layout = {"mbs": int(said["--toy-micro-batch"]), "sharding": Sharding.WEIGHTS}
    return Reading(trainer=TRAINER, layout=layout, global_batch=int(said["--toy-batch"]))
'''


def trainer(copy: Copy) -> str:
    """A toy trainer: what it can run, and its flags."""
    name = "mofa_model/axes/frameworks.toml"
    copy.write(name, (copy.root / name).read_text(encoding="utf-8") + TRAINER_ENTRY)
    copy.write("mofa_model/launch/toytrain.py", TRAINER)
    (advised,) = copy.json(("advise", *JOB, "--framework", "toytrain", "--launch", "toytrain"))
    arguments = advised["launch"]["arguments"]
    if not any(word.startswith("--toy-micro-batch=") for word in arguments):
        raise Fails(f"its launch says {arguments}")
    line = f"torchrun train.py {' '.join(arguments)}"
    (again,) = copy.json(("explain", *JOB, "--strategy", line))
    if "optimizer=zero3" not in advised["strategy"] or again["strategy"] != advised["strategy"]:
        raise Fails(f"{advised['strategy']} is read back as {again['strategy']}")
    return f"advised {advised['strategy']}, launched by {' '.join(arguments)} and read back"
