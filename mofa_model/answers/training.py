"""From a question about a training to what the model takes: search cases, reliability, request."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mofa_model import presets, terminal, units
from mofa_model.answers.job import hangs_of, size_of
from mofa_model.answers.questions import LAYOUTS, OF_HOST, LayoutQuestion, TrainingQuestion
from mofa_model.errors import BadValue, Missing, UnknownName
from mofa_model.spec import Adapters, Cluster, Training, Transformer, Workload
from mofa_model.spec.calibration import Roofline, under
from mofa_model.spec.cluster import part_of, places
from mofa_model.spec.reliability import Reliability, part_of_storage
from mofa_model.spec.training import Lengths, read_batch
from mofa_model.spec.transformer import read_imbalance
from mofa_model.spec.tuning import Loss, Task, read_targets

if TYPE_CHECKING:
    from mofa_model.advice import ByTrainer, Request
    from mofa_model.search import SearchCase
    from mofa_model.spec.recovery_plans import RecoveryPlan
    from mofa_model.strategy import Strategy

_NEEDED: Final = {
    "model": "llama3-8b",
    "gpu": "h100",
    "gpus": "64",
    "sequence_length": "8192",
    "global_batch_size": "512",
}
"""What every question needs, and an example of each."""
DEVICE_HINT: Final = "or give its data sheet: --device-file FILE"


def require(
    question: TrainingQuestion,
    *,
    given_elsewhere: Collection[str] = (),
    more_examples: Mapping[str, str] | None = None,
    also: str = "",
) -> None:
    """Refuse a question that lacks a needed field; the error names all fields that it lacks.

    `given_elsewhere` are fields that need no option, `more_examples` has what else is lacking, and
    `also` is a sentence that the error adds.
    """
    if question.gpu is not None or question.device_file:
        _gpu(question)  # a wrong device is refused first, so that the error's examples work
    stated = {name for name in _NEEDED if getattr(question, name) is not None} | {*given_elsewhere}
    if question.device_file:
        stated.add("gpu")
    if question.nodes is not None or "nodes" in stated or getattr(question, "max_nodes", None):
        stated.add("gpus")
    lacking = {
        question.options[name].flag: example
        for name, example in _NEEDED.items()
        if name not in stated
    }
    if lacking := {**(more_examples or {}), **lacking}:
        raise Missing(lacking, also=also)


def problems_of(question: TrainingQuestion, nodes: int | None = None) -> tuple[SearchCase, ...]:
    """The model and its machines for each precision, on `nodes` or as many as the question says."""
    from mofa_model.search import SearchCase, framework

    require(question, given_elsewhere=() if nodes is None else ("nodes",))
    model = presets.model_named(str(question.model))
    if question.imbalance is not None:
        model = read_imbalance(model, str(question.imbalance), field="--imbalance")
    sequence = units.count(question.sequence_length, field="--seq")
    batch = read_batch(str(question.global_batch_size), sequence, "--global-batch")
    tokens = units.count(question.tokens, field="--tokens") if question.tokens else 0
    trainer = framework(framework_of(question))
    optimizer = question.optimizer or trainer.usual("optimizers", "adamw")
    optimizer = presets.resolve("optimizers", optimizer, field="--optimizer")
    documents = _documents(question)
    adapters = adapters_of(question, model)
    task, teacher = Task(question.task), question.teacher and presets.model_named(question.teacher)
    if (teacher is None) is (task is Task.DISTILL):
        raise BadValue("--teacher", question.teacher, "give it with --task distill, and only there")
    usual = trainer.usual("losses", question.loss)
    loss = Loss(question.loss if "loss" in question.changed_fields() else usual)
    up, out, memory = question.scale_up, question.scale_out, question.host_memory
    count = nodes_of(question) if nodes is None else nodes
    cases = []
    recipes = question.precision or (trainer.usual("precisions", "bf16"),)
    for recipe in ",".join(recipes).split(","):
        name = presets.resolve("precisions", recipe.strip(), field="--precision")
        precision = presets.precision(name, stack=stack_of(question))
        training = Training(
            sequence=sequence,
            global_batch=batch,
            precision=precision,
            tokens=tokens,
            optimizer=presets.optimizer(optimizer),
            adapters=adapters,
            documents=documents,
            task=task,
            teacher=teacher or None,
            loss=loss,
            released=question.gradient_release,
        )
        cluster = presets.cluster(
            _gpu(question),
            1,
            stack=stack_of(question),
            precision=name,
            release=question.framework_version,
            gpus_per_node=question.gpus_per_node,
            domain=question.domain,
            scale_up=presets.link(up, field="--scale-up") if up else None,
            scale_out=presets.link(out, field="--scale-out") if out else None,
            host_memory=units.parse(memory, "B", field="--host-memory") if memory else None,
            oversubscription=question.oversubscription,
            reserve=_percent(str(question.headroom)),
        )
        calibration = under(Roofline(question.roofline), cluster.calibration)
        cluster = replace(cluster, calibration=calibration)
        cluster = part_of(cluster, _devices(question, int(cluster.gpus_per_node)))
        cluster = replace(cluster, gpus=count * int(cluster.gpus_per_node))
        cluster.device.peak_rate(precision.gemm)  # raises for a device without the format
        cases.append(SearchCase(workload=Workload(model=model, training=training), cluster=cluster))
    return tuple(cases)


def _documents(question: TrainingQuestion) -> Lengths | None:
    if not question.documents:
        return None
    from mofa_model.answers.lengths import documents_of

    return documents_of(question.documents, field="--documents")


def adapters_of(question: TrainingQuestion, model: Transformer) -> Adapters | None:
    """The adapters of a question; options that only adapters have are refused without them."""
    if not question.adapter_rank:
        names = ("adapter_targets", "adapter_alpha", "adapter_dropout", "dora", "base")
        for name in sorted(set(names) & question.changed_fields().keys()):
            flag = question.options[name].flag
            raise BadValue(flag, getattr(question, name), "give the rank of adapters: --lora 16")
        return None
    linears = [name for block in model.blocks for name in block.linears(model.hidden)]
    words = ",".join(question.adapter_targets)
    base = question.base and presets.resolve("bases", question.base, field="--base")
    return Adapters(
        rank=question.adapter_rank,
        targets=read_targets(words, linears, field="--lora-targets"),
        alpha=question.adapter_alpha or 0,
        dropout=question.adapter_dropout,
        magnitudes=question.dora,
        base=presets.base(base) if base else None,
    )


def trainers_of(question: TrainingQuestion, problems: tuple[SearchCase, ...]) -> ByTrainer:
    """The problems under each trainer's constants; empty where a trainer or stack is named."""
    from mofa_model.advice import by_trainer
    from mofa_model.search import ANY

    if framework_of(question) != ANY or question.stack is not None:
        return ()
    roofline = Roofline(question.roofline)
    return by_trainer(
        problems, question.framework_version, lambda constants: under(roofline, constants)
    )


def nodes_of(question: TrainingQuestion) -> int:
    """Nodes, from --nodes or --gpus."""
    if question.nodes is not None and question.gpus is not None:
        raise BadValue("--gpus", question.gpus, "give --gpus or --nodes, not both")
    if question.nodes is not None:
        return _at_least_one(units.count(question.nodes, field="--nodes"), "--nodes")
    gpus, per_node = _gpus(question), _whole_node(question)
    placement = places(gpus, per_node)
    if placement is None:
        right = f"give whole nodes of {per_node}, or at most {per_node} of one node"
        right += ", or another --gpus-per-node"
        if gpus > per_node:
            below = gpus // per_node * per_node
            right += f"; near are {below} and {below + per_node}"
        raise BadValue("--gpus", gpus, right)
    return placement[0]


def reliability_of(question: LayoutQuestion, cluster: Cluster) -> Reliability:
    """The paper's recovery classes and a shared file system, changed as the question says.

    `cluster` is the job's own part of the machines.
    """
    from mofa_model.advice import assumed_reliability

    whole = _whole_node(question)
    rate = {} if question.failure_rate is None else {"per_node_day": question.failure_rate}
    reliability = assumed_reliability(float(whole * cluster.host.link.bandwidth), **rate)
    if question.hang is not None:
        reliability = replace(reliability, hangs=hangs_of(question.hang))
    tier = replace(reliability.tiers[0], asynchronous=not question.sync)
    if text := question.checkpoint_bandwidth:
        bandwidth = units.parse(text, "B/s", field="--checkpoint-bandwidth")
        if bandwidth <= 0:
            raise BadValue("--checkpoint-bandwidth", text, "give a bandwidth above zero")
        tier = replace(tier, node_bandwidth=bandwidth)
    return part_of_storage(replace(reliability, tiers=(tier,)), cluster.gpus_per_node / whole)


def request_of(question: LayoutQuestion) -> Request:
    """The request to the model that a question makes."""
    from mofa_model.advice import Request

    max_nodes = question.max_nodes
    if max_nodes is not None and (question.nodes is not None or question.gpus is not None):
        raise BadValue("--max-nodes", max_nodes, "give --max-nodes, or --nodes, or --gpus")
    nodes = units.count(max_nodes, field="--max-nodes") if max_nodes else nodes_of(question)
    problems = problems_of(question, nodes)
    size = question.checkpoint_size
    request = Request(
        problems=problems,
        reliability=reliability_of(question, problems[0].cluster),
        nodes=nodes,
        fewer_nodes=max_nodes is not None,
        objective=question.objective or "time",
        framework=framework_of(question),
        trainers=trainers_of(question, problems),
        constraints=tuple(question.constraints),
        lifted=lifted(question),
        recovery_plans=_plans(question),
        risk=question.risk,
        odds=not question.by_estimate,
        checkpoint_bytes=size_of(size) if size else None,
    )
    return with_layout(question, request)


def with_layout(question: LayoutQuestion, request: Request) -> Request:
    """The request with the layout that exists already: --current, --planned or --failed."""
    from mofa_model.advice import with_failed

    layouts = {name: text for name in LAYOUTS if (text := getattr(question, name))}
    if not layouts:
        return request
    name, text = layouts.popitem()
    flag = question.options[name].flag
    if layouts:
        right = (
            "give --current for a layout that runs, --planned for one that did not run yet, or"
            " --failed for one that ran out of memory"
        )
        raise BadValue(flag, text, right)
    layout = layout_of(text.removesuffix(OF_HOST), request.problems[0], flag)
    if name == "failed":
        return with_failed(request, layout, of_host=text.endswith(OF_HOST))
    return replace(request, current=layout, current_runs=name == "current")


def _plans(question: LayoutQuestion) -> tuple[RecoveryPlan, ...]:
    if not question.recovery:
        return ()
    from mofa_model.spec.recovery_plans import plans_of

    return plans_of(tuple(question.recovery))


def lifted(question: LayoutQuestion) -> tuple[str, ...]:
    """Expert rules that are not applied; `--allow` lifts the rule against unmeasured layouts."""
    from mofa_model.search import Rejection

    return (*question.lift, *((Rejection.NOT_MEASURED.value,) if question.allow else ()))


def framework_of(question: TrainingQuestion) -> str:
    """The trainer's id: as given, else that of the stack, else any."""
    from mofa_model.search import framework

    if question.framework is not None:
        return framework(question.framework, field="--framework").name
    try:
        return framework(question.stack or "any").name
    except UnknownName:
        return "any"


def stack_of(question: TrainingQuestion) -> str:
    """The stack's id: as given, else the trainer's, else the id for an unknown stack."""
    if question.stack is not None:
        return presets.resolve("stacks", question.stack, field="--stack")
    return presets.stack_of(question.framework or "default")


def _whole_node(question: TrainingQuestion) -> int:
    """Devices of a whole node."""
    return question.gpus_per_node or int(presets.cluster(_gpu(question), 1).gpus_per_node)


def _gpus(question: TrainingQuestion) -> int:
    return _at_least_one(units.count(question.gpus, field="--gpus"), "--gpus")


def _devices(question: TrainingQuestion, per_node: int) -> int:
    """Devices of each node that the job has: all, or fewer where it asks for a part of one node."""
    return per_node if question.gpus is None else min(per_node, _gpus(question))


def _gpu(question: TrainingQuestion) -> str:
    """The name of the device or of a cloud's node, as the question writes it."""
    if question.device_file:
        name = presets.device_of_file(question.device_file)
        if question.gpu is not None and presets.meanings("devices", question.gpu) != (name,):
            right = f"{question.device_file} is the data sheet of {name}; give one of them"
            raise BadValue("--gpu", question.gpu, right)
        return name
    presets.resolve("devices", question.gpu, field="--gpu", also=DEVICE_HINT)
    return str(question.gpu)


def _at_least_one(value: int, name: str) -> int:
    """The value, if it is one or more; else an error that names the field."""
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
    """A layout from text, a launch command or its file; stderr names arguments without a price."""
    from mofa_model.files import read_text
    from mofa_model.launch import read_layout
    from mofa_model.strategy import Sharding

    unpriced: list[str] = []
    # On one rank, a trainer that keeps fp32 weights under autocast shards no states.
    autocast = bool(problem.cluster.calibration.memory.autocast)
    strategy = read_layout(
        text,
        int(problem.cluster.gpus),
        layers=int(problem.workload.model.layers),
        open_file=read_text,
        field=field,
        unpriced=unpriced.append,
        alone=Sharding.NONE if autocast else Sharding.OPTIMIZER,
    )
    if unpriced:
        terminal.tell(f"{field}: the cost of {', '.join(unpriced)} is not modelled")
    return strategy
