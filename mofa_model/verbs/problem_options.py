"""The options that `advise`, `explain` and `sweep` share: a model, its training, the machines. Not a verb."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from mofa_model import presets, units
from mofa_model.errors import BadValue, InputError, UnknownName
from mofa_model.spec import Cluster, Training, Workload
from mofa_model.spec.documents import parse_documents
from mofa_model.spec.imbalance import read_imbalance
from mofa_model.spec.part import part_of, part_of_storage, places
from mofa_model.spec.reliability import Reliability
from mofa_model.spec.roofline import Roofline, under
from mofa_model.verbs import job_text

if TYPE_CHECKING:
    from mofa_model.search import SearchCase
    from mofa_model.strategy import Strategy


def add_options(parser: ArgumentParser, *, required: bool = True) -> None:
    """Add model, training and machines; `problems_of` reads them."""
    job = parser.add_argument_group("job")
    job.add_argument(
        "--model",
        required=required,
        metavar="MODEL",
        help="preset, a model hub's config.json, or its id there: ORG/NAME",
    )
    job.add_argument("--seq", metavar="S", help="tokens in a sequence, for example 8192 or 8k")
    job.add_argument("--global-batch", metavar="B", help="sequences in an optimizer step")
    job.add_argument("--tokens", metavar="T", help="tokens of the whole run, for example 15T")
    job.add_argument(
        "--precision",
        default="bf16",
        metavar="P[,…]",
        help="training recipe; several let the search choose (default: bf16)",
    )
    job.add_argument(
        "--optimizer", default="adamw", metavar="O", help="what updates the weights (default: adamw)"
    )
    job.add_argument(
        "--lora", default="0", metavar="RANK", help="train adapters of this rank beside frozen weights"
    )
    job.add_argument(
        "--documents", metavar="L[:SHARE],…", help="lengths of the documents that are packed into a sequence"
    )
    job.add_argument(
        "--imbalance",
        metavar="MEAN[:SPREAD]",
        help="load of the fullest rank of experts over the mean, and its standard deviation over layers and micro-batches",
    )
    machines = parser.add_argument_group("machines")
    machines.add_argument(
        "--gpu", required=required, metavar="GPU", help="device preset, for example h100-sxm"
    )
    machines.add_argument("--gpus", metavar="N", help="devices, whole nodes or a part of one; or --nodes")
    machines.add_argument("--nodes", metavar="N", help="nodes; or --gpus")
    machines.add_argument("--gpus-per-node", type=int, metavar="N", help="devices that share a host")
    machines.add_argument("--domain", type=int, metavar="N", help="devices that share a scale-up link")
    machines.add_argument(
        "--scale-up", metavar="LINK", help="fabric or bandwidth inside a node: nvlink4, '450 GB/s'"
    )
    machines.add_argument(
        "--scale-out", metavar="LINK", help="fabric or bandwidth of one device between nodes: ndr"
    )
    machines.add_argument("--host-memory", metavar="SIZE", help="main memory of a node, for example '2 TiB'")
    machines.add_argument(
        "--oversubscription",
        type=float,
        default=1.0,
        metavar="X",
        help="how much thinner the spine is (default: 1)",
    )
    machines.add_argument(
        "--headroom", default="0", metavar="PERCENT", help="device memory to leave free (default: 0)"
    )
    stack = parser.add_argument_group("software")
    stack.add_argument(
        "--framework", metavar="NAME", help="trainer, which restricts what is searched (default: any)"
    )
    stack.add_argument(
        "--stack", metavar="NAME", help="stack whose measured constants are used (default: the trainer's)"
    )
    stack.add_argument(
        "--release", metavar="R", help="release of the stack (default: the newest that is listed)"
    )
    stack.add_argument(
        "--roofline",
        default=Roofline.SHAPED.value,
        metavar="NAME",
        help=f"how compute is modelled: {', '.join(one.value for one in Roofline)} (default: shaped)",
    )


def problems_of(arguments: Namespace, nodes: int | None = None) -> tuple[SearchCase, ...]:
    """The model and its machines for each precision, on a number of nodes (default: the one that is given)."""
    from mofa_model.search import SearchCase

    model = presets.model_named(_needed(arguments.model, "--model"))
    if arguments.imbalance is not None:
        model = read_imbalance(model, arguments.imbalance, field="--imbalance")
    sequence = units.count(_needed(arguments.seq, "--seq"), field="--seq")
    batch = units.count(_needed(arguments.global_batch, "--global-batch"), field="--global-batch")
    tokens = units.count(arguments.tokens, field="--tokens") if arguments.tokens else 0
    count = nodes_of(arguments) if nodes is None else nodes
    found = []
    for recipe in arguments.precision.split(","):
        name = presets.resolve("precisions", recipe.strip(), field="--precision")
        precision = presets.precision(name, stack=stack_of(arguments))
        training = Training(
            sequence=sequence,
            global_batch=batch,
            precision=precision,
            tokens=tokens,
            optimizer=presets.optimizer(
                presets.resolve("optimizers", arguments.optimizer, field="--optimizer")
            ),
            adapter_rank=_rank(arguments.lora),
            documents=parse_documents(arguments.documents, field="--documents")
            if arguments.documents
            else None,
        )
        cluster = presets.cluster(
            _gpu(arguments),
            1,
            stack=stack_of(arguments),
            precision=name,
            release=arguments.release,
            gpus_per_node=arguments.gpus_per_node,
            domain=arguments.domain,
            scale_up=arguments.scale_up,
            scale_out=arguments.scale_out,
            host_memory=arguments.host_memory,
            oversubscription=arguments.oversubscription,
            reserve=_percent(arguments.headroom),
        )
        cluster = replace(cluster, calibration=under(_roofline(arguments), cluster.calibration))
        cluster = part_of(cluster, _devices(arguments, int(cluster.gpus_per_node)))
        cluster = replace(cluster, gpus=count * int(cluster.gpus_per_node))
        cluster.device.peak(precision.gemm)  # a device without the format is refused here
        found.append(SearchCase(workload=Workload(model=model, training=training), cluster=cluster))
    return tuple(found)


def nodes_of(arguments: Namespace) -> int:
    """Nodes, from --nodes or --gpus."""
    if arguments.nodes is not None and arguments.gpus is not None:
        raise BadValue("--gpus", arguments.gpus, "give --gpus or --nodes, not both")
    if arguments.nodes is not None:
        return _least_one(units.count(arguments.nodes, field="--nodes"), "--nodes")
    gpus, per_node = _gpus(arguments), _per_node(arguments)
    found = places(gpus, per_node)
    if found is None:
        right = (
            f"give whole nodes of {per_node}, or at most {per_node} of one node, or another --gpus-per-node"
        )
        raise BadValue("--gpus", gpus, right)
    return found[0]


def reliability_of(arguments: Namespace, cluster: Cluster) -> Reliability:
    """The paper's recovery classes and a shared file system, as the options say; `cluster` is the job's own part."""
    from mofa_model.advice import assumed_reliability

    whole = _per_node(arguments)
    given = None if arguments.failure_rate is None else float(arguments.failure_rate)
    job_text.within(given, "--failure-rate", 0, job_text.MOST_RATE)
    rate = {} if given is None else {"per_node_day": given}
    found = assumed_reliability(float(whole * cluster.host.link.bandwidth), **rate)
    if arguments.hang is not None:
        found = replace(found, hangs=job_text.hangs_of(arguments.hang))
    tier = found.tiers[0]
    if text := arguments.checkpoint_bandwidth:
        bandwidth = units.parse(text, "B/s", field="--checkpoint-bandwidth")
        if bandwidth <= 0:
            raise BadValue("--checkpoint-bandwidth", text, "give a bandwidth above zero")
        tier = replace(tier, node_bandwidth=bandwidth)
    return part_of_storage(replace(found, tiers=(tier,)), cluster.gpus_per_node / whole)


def framework_of(arguments: Namespace) -> str:
    """The trainer's id: as given, else that of the stack, else any."""
    from mofa_model.search import framework

    if arguments.framework is not None:
        return framework(arguments.framework, field="--framework").name
    try:
        return framework(arguments.stack or "any").name
    except UnknownName:
        return "any"


def stack_of(arguments: Namespace) -> str:
    """The stack's id: as given, else that of the trainer, else one that nobody measured."""
    if arguments.stack is not None:
        return presets.resolve("stacks", arguments.stack, field="--stack")
    try:
        return presets.resolve("stacks", arguments.framework or "default")
    except UnknownName:
        return "default"


def _rank(text: str) -> int:
    rank = units.count(text, field="--lora")
    if rank < 0:
        raise BadValue("--lora", text, "give a rank of 1 or more, or 0 to train all weights")
    return rank


def _roofline(arguments: Namespace) -> Roofline:
    names = [one.value for one in Roofline]
    if arguments.roofline not in names:
        raise BadValue("--roofline", arguments.roofline, f"one of {', '.join(names)}")
    return Roofline(arguments.roofline)


def _per_node(arguments: Namespace) -> int:
    """Devices of a whole node."""
    given: int | None = arguments.gpus_per_node
    return given or int(presets.cluster(_gpu(arguments), 1).gpus_per_node)


def _gpus(arguments: Namespace) -> int:
    return _least_one(units.count(_needed(arguments.gpus, "--gpus"), field="--gpus"), "--gpus")


def _devices(arguments: Namespace, per_node: int) -> int:
    """Devices of each node that the job has: all, but where it asks for fewer than one node has."""
    return per_node if arguments.gpus is None else min(per_node, _gpus(arguments))


def _gpu(arguments: Namespace) -> str:
    return presets.resolve("devices", _needed(arguments.gpu, "--gpu"), field="--gpu")


def _needed(value: str | None, name: str) -> str:
    if value is None:
        raise InputError(f"{name}: is missing; give it, or a TrainingJob manifest")
    return value


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
        sys.stderr.write(f"{field}: not priced: {', '.join(left)}\n")
    return found
