"""What `advise`, `explain` and `sweep` ask about: a model, its training, the machines; and what that means."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mofa_model import presets, terminal, units
from mofa_model.answers import job_text
from mofa_model.answers.question import Names, Number, Real, Text, Whole, WordedQuestion, option_of
from mofa_model.errors import BadValue, Missing, UnknownName
from mofa_model.spec import Cluster, Training, Workload
from mofa_model.spec.batch import read_batch
from mofa_model.spec.documents import parse_documents
from mofa_model.spec.imbalance import read_imbalance
from mofa_model.spec.part import part_of, part_of_storage, places
from mofa_model.spec.reliability import Reliability
from mofa_model.spec.roofline import Roofline, under

if TYPE_CHECKING:
    from mofa_model.advice import ByTrainer
    from mofa_model.search import SearchCase
    from mofa_model.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class TrainingWords(WordedQuestion):
    """A model, its training, the machines and the software."""

    model: Text | None = None
    """A preset, the path of a `config.json`, or a model hub's id: `org/name`."""
    sequence_length: Number | None = None
    """Tokens in a sequence, for example 8192 or "8k"."""
    global_batch_size: Number | None = None
    """Sequences in an optimizer step, or "4M tokens"."""
    tokens: Number | None = None
    """Tokens of the whole run, for example "15T"; without it the objective is the step alone."""
    precision: Names = ("bf16",)
    """Training recipe; of several the search chooses."""
    optimizer: Text = "adamw"
    """What updates the weights."""
    adapter_rank: Number = "0"
    """Rank of adapters beside frozen weights (LoRA); 0 trains all weights."""
    documents: Text | None = None
    """Lengths of the documents that are packed into a sequence, each with its share: "512:3,8k"."""
    imbalance: Number | None = None
    """Load of the fullest rank of experts over the mean, and behind a colon its standard deviation: "1.4:0.3"."""
    gpu: Text | None = None
    """A device preset, for example "h100-sxm"."""
    gpus: Number | None = None
    """Devices, whole nodes or a part of one; or give `nodes`."""
    nodes: Number | None = None
    """Nodes; or give `gpus`."""
    gpus_per_node: Whole | None = None
    """Devices that share a host; without it what the device's system has."""
    domain: Whole | None = None
    """Devices that share a scale-up link; without it what the device's system has."""
    scale_up: Text | None = None
    """Fabric or bandwidth inside a node: "nvlink4", "450 GB/s"."""
    scale_out: Text | None = None
    """Fabric or bandwidth of one device between nodes: "ndr", "400 Gbit/s"."""
    host_memory: Text | None = None
    """Main memory of a node, for example "2 TiB"."""
    oversubscription: Real = 1.0
    """How much thinner the spine is."""
    headroom: Number = "0"
    """Device memory to leave free, in percent."""
    framework: Text | None = None
    """Trainer, which restricts what is searched; without it the best of all."""
    stack: Text | None = None
    """Stack whose measured constants are used; without it the trainer's."""
    framework_version: Text | None = None
    """Release of the stack; without it the newest that is listed."""
    roofline: Text = "shaped"
    """How compute is modelled: shaped, modified or theoretical."""


@dataclass(frozen=True, kw_only=True)
class FailingTraining(TrainingWords):
    """The same on nodes that fail, with checkpoints."""

    failure_rate: Real | None = None
    """Failures per node-day; without it 0.005, the paper's."""
    hang: Text | None = None
    """Failures that end no process until this timeout, and their share of all: "15min:0.3"."""
    checkpoint_bandwidth: Text | None = None
    """What a node writes to storage; without it 2 GB/s."""


_NEEDED: Final = {
    "model": "llama3-8b",
    "gpu": "h100",
    "gpus": "64",
    "sequence_length": "8192",
    "global_batch_size": "512",
}
"""What nothing can be said without, and an example of each."""


def require(
    asked: TrainingWords,
    *,
    said: Collection[str] = (),
    first: Mapping[str, str] | None = None,
    also: str = "",
) -> None:
    """Refuse a question that lacks something, and name all that it lacks; `said` are fields that are said otherwise, `first`
    examples of what lacks beside.
    """
    if asked.gpu is not None:  # what is shown for the rest shall be answered
        _gpu(asked)
    counted = asked.nodes is not None or "nodes" in said or getattr(asked, "max_nodes", None)
    said = {*said, "gpus"} if counted else said
    lacking = {
        option_of(name): one
        for name, one in _NEEDED.items()
        if getattr(asked, name) is None and name not in said
    }
    if lacking := {**(first or {}), **lacking}:
        raise Missing(lacking, also=also)


def problems_of(asked: TrainingWords, nodes: int | None = None) -> tuple[SearchCase, ...]:
    """The model and its machines for each precision, on a number of nodes (default: the one that is given)."""
    from mofa_model.search import SearchCase

    require(asked, said=() if nodes is None else ("nodes",))
    model = presets.model_named(str(asked.model))
    if asked.imbalance is not None:
        model = read_imbalance(model, str(asked.imbalance), field="--imbalance")
    sequence = units.count(asked.sequence_length, field="--seq")
    batch = read_batch(str(asked.global_batch_size), sequence, "--global-batch")
    tokens = units.count(asked.tokens, field="--tokens") if asked.tokens else 0
    count = nodes_of(asked) if nodes is None else nodes
    found = []
    for recipe in ",".join(asked.precision).split(","):
        name = presets.resolve("precisions", recipe.strip(), field="--precision")
        precision = presets.precision(name, stack=stack_of(asked))
        training = Training(
            sequence=sequence,
            global_batch=batch,
            precision=precision,
            tokens=tokens,
            optimizer=presets.optimizer(
                presets.resolve("optimizers", asked.optimizer, field="--optimizer")
            ),
            adapter_rank=_rank(asked.adapter_rank),
            documents=parse_documents(asked.documents, field="--documents")
            if asked.documents
            else None,
        )
        cluster = presets.cluster(
            _gpu(asked),
            1,
            stack=stack_of(asked),
            precision=name,
            release=asked.framework_version,
            gpus_per_node=asked.gpus_per_node,
            domain=asked.domain,
            scale_up=presets.link(asked.scale_up, field="--scale-up") if asked.scale_up else None,
            scale_out=presets.link(asked.scale_out, field="--scale-out")
            if asked.scale_out
            else None,
            host_memory=units.parse(asked.host_memory, "B", field="--host-memory")
            if asked.host_memory
            else None,
            oversubscription=asked.oversubscription,
            reserve=_percent(str(asked.headroom)),
        )
        cluster = replace(cluster, calibration=under(_roofline(asked), cluster.calibration))
        cluster = part_of(cluster, _devices(asked, int(cluster.gpus_per_node)))
        cluster = replace(cluster, gpus=count * int(cluster.gpus_per_node))
        cluster.device.peak(precision.gemm)  # a device without the format is refused here
        found.append(SearchCase(workload=Workload(model=model, training=training), cluster=cluster))
    return tuple(found)


def trainers_of(asked: TrainingWords, problems: tuple[SearchCase, ...]) -> ByTrainer:
    """The problems as each trainer has them, where none is named; a stack that is named is everybody's."""
    from mofa_model.advice import by_trainer
    from mofa_model.search import ANY

    if framework_of(asked) != ANY or asked.stack is not None:
        return ()
    roofline = _roofline(asked)
    return by_trainer(
        problems, asked.framework_version, lambda constants: under(roofline, constants)
    )


def nodes_of(asked: TrainingWords) -> int:
    """Nodes, from --nodes or --gpus."""
    if asked.nodes is not None and asked.gpus is not None:
        raise BadValue("--gpus", asked.gpus, "give --gpus or --nodes, not both")
    if asked.nodes is not None:
        return _least_one(units.count(asked.nodes, field="--nodes"), "--nodes")
    gpus, per_node = _gpus(asked), _per_node(asked)
    found = places(gpus, per_node)
    if found is None:
        right = f"give whole nodes of {per_node}, or at most {per_node} of one node, or another --gpus-per-node"
        raise BadValue("--gpus", gpus, right)
    return found[0]


def reliability_of(asked: FailingTraining, cluster: Cluster) -> Reliability:
    """The paper's recovery classes and a shared file system, as the options say; `cluster` is the job's own part."""
    from mofa_model.advice import assumed_reliability

    whole = _per_node(asked)
    given = None if asked.failure_rate is None else float(asked.failure_rate)
    job_text.within(given, "--failure-rate", 0, job_text.MOST_RATE)
    rate = {} if given is None else {"per_node_day": given}
    found = assumed_reliability(float(whole * cluster.host.link.bandwidth), **rate)
    if asked.hang is not None:
        found = replace(found, hangs=job_text.hangs_of(asked.hang))
    tier = found.tiers[0]
    if text := asked.checkpoint_bandwidth:
        bandwidth = units.parse(text, "B/s", field="--checkpoint-bandwidth")
        if bandwidth <= 0:
            raise BadValue("--checkpoint-bandwidth", text, "give a bandwidth above zero")
        tier = replace(tier, node_bandwidth=bandwidth)
    return part_of_storage(replace(found, tiers=(tier,)), cluster.gpus_per_node / whole)


def framework_of(asked: TrainingWords) -> str:
    """The trainer's id: as given, else that of the stack, else any."""
    from mofa_model.search import framework

    if asked.framework is not None:
        return framework(asked.framework, field="--framework").name
    try:
        return framework(asked.stack or "any").name
    except UnknownName:
        return "any"


def stack_of(asked: TrainingWords) -> str:
    """The stack's id: as given, else that of the trainer, else one that nobody measured."""
    if asked.stack is not None:
        return presets.resolve("stacks", asked.stack, field="--stack")
    return presets.stack_of(asked.framework or "default")


def _rank(text: Number) -> int:
    rank = units.count(text, field="--lora")
    if rank < 0:
        raise BadValue("--lora", text, "give a rank of 1 or more, or 0 to train all weights")
    return rank


def _roofline(asked: TrainingWords) -> Roofline:
    names = [one.value for one in Roofline]
    if asked.roofline not in names:
        raise BadValue("--roofline", asked.roofline, f"one of {', '.join(names)}")
    return Roofline(asked.roofline)


def _per_node(asked: TrainingWords) -> int:
    """Devices of a whole node."""
    given: int | None = asked.gpus_per_node
    return given or int(presets.cluster(_gpu(asked), 1).gpus_per_node)


def _gpus(asked: TrainingWords) -> int:
    return _least_one(units.count(asked.gpus, field="--gpus"), "--gpus")


def _devices(asked: TrainingWords, per_node: int) -> int:
    """Devices of each node that the job has: all, but where it asks for fewer than one node has."""
    return per_node if asked.gpus is None else min(per_node, _gpus(asked))


def _gpu(asked: TrainingWords) -> str:
    """The device or a cloud's node, by the name that it was given."""
    presets.resolve("devices", asked.gpu, field="--gpu")
    return str(asked.gpu)


def _least_one(value: int, name: str) -> int:
    if value < 1:
        raise BadValue(name, value, "give one or more")
    return value


def _percent(text: str) -> float:
    try:
        value = float(text.rstrip("%"))
    except ValueError:
        raise BadValue("--headroom", text, "give a percentage, for example 5") from None
    if not 0 <= value < 100:
        raise BadValue("--headroom", text, "give a percentage from 0 to below 100")
    return value / 100


def layout_of(text: str, problem: SearchCase, field: str) -> Strategy:
    """A layout that somebody types, as text or as a launch command; what in it changes memory or time and is not priced is told."""
    from mofa_model.files import read_text
    from mofa_model.launch import read_layout

    left: list[str] = []
    found = read_layout(
        text,
        int(problem.cluster.gpus),
        layers=int(problem.workload.model.layers),
        open_file=read_text,
        field=field,
        unpriced=left.append,
    )
    if left:
        terminal.tell(f"{field}: not priced: {', '.join(left)}")
    return found
