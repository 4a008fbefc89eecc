"""A TrainingJob and a ClusterProfile as the question that the model answers.

    to_inputs(job.spec, profile)                         offline: nodes and history from manifests
    to_inputs(job.spec, profile, ready=254, history=…)   in a cluster: both from what is live

Text and units end here. Failure rates are rounded to two significant digits, as the inputs hash
does, so that equal hashes are equal questions.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Final

from mofa_model import presets, units
from mofa_model.advice import Request, Unplaced, by_trainer, with_measured_today
from mofa_model.advice.request import UNTAUGHT
from mofa_model.blocks import (
    Block,
    Embedding,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    SoftmaxAttention,
)
from mofa_model.errors import BadValue, DoesNotFit, InputError, UnknownName
from mofa_model.launch import read_layout
from mofa_model.manifest.cluster_profile import ClusterProfileSpec
from mofa_model.manifest.failures import reliability_of
from mofa_model.manifest.parsing import Profile
from mofa_model.manifest.training_job import (
    LIMITS,
    Architecture,
    AxisBounds,
    ClusterPart,
    Constraints,
    ExpertPart,
    Model,
    TrainingJobSpec,
    TrainingPart,
)
from mofa_model.presets import models
from mofa_model.search import ANY, SearchCase, framework
from mofa_model.spec import (
    Adapters,
    Cluster,
    Precision,
    Run,
    Training,
    Transformer,
    UpdateRule,
    Workload,
)
from mofa_model.spec.cluster import part_of
from mofa_model.spec.evidence import ByClass
from mofa_model.spec.reliability import part_of_storage
from mofa_model.spec.training import parse_documents
from mofa_model.spec.transformer import read_imbalance
from mofa_model.spec.tuning import ADAPTED, Loss, read_targets
from mofa_model.strategy import Strategy

_FP8: Final = "fp8-delayed"
_LONGEST: Final = 1000
"""Characters of a layout as text. [1]"""


def to_inputs(
    spec: TrainingJobSpec,
    profile: Profile,
    *,
    ready: int | None = None,
    evidence: ByClass | None = None,
    config: str | None = None,
    path: str = "spec",
) -> Request:
    """The question that a TrainingJob asks of a profile.

    `ready` is the number of ready nodes [1] and `evidence` what was counted by recovery class;
    where they are None, the profile's status says both. `config` is the text of the config.json,
    `path` what errors call the spec.
    """
    if ready is None and profile.status.nodes:
        ready = profile.status.nodes.counted
    nodes, fewer = _nodes(spec, ready, path)
    trainer, stack = _trainer(spec, path)
    model = model_of(spec.model, config, f"{path}.model")
    if spec.training.imbalance is not None:
        model = read_imbalance(model, spec.training.imbalance, field=f"{path}.training.imbalance")
    recipe, notes = _recipe(_precision(spec, trainer), f"{path}.training.precision")
    precision = presets.precision(recipe, stack=stack)
    training = _training(spec.training, model, precision, trainer, f"{path}.training")
    whole = cluster_of(
        profile.spec,
        nodes,
        stack=stack,
        precision=precision.name,
        release=spec.training.framework_version,
        reserve=spec.constraints.memory_headroom_percent / 100,
    )
    cluster = _used_part(spec.cluster, whole, nodes, profile.name, f"{path}.cluster")
    problems = (SearchCase(workload=Workload(model=model, training=training), cluster=cluster),)
    limits = spec.checkpoint
    size, taught = limits.size, profile.status.calibration
    request = Request(
        problems=problems,
        reliability=part_of_storage(
            reliability_of(
                spec.failure_assumptions,
                profile.spec,
                profile.status.evidence() if evidence is None else evidence,
                cluster=whole,
                asynchronous=limits.mode == "Async",
                path=f"{path}.failureAssumptions",
            ),
            cluster.gpus_per_node / whole.gpus_per_node,
        ),
        nodes=nodes,
        fewer_nodes=fewer,
        objective=spec.objective.lower(),
        framework=trainer,
        trainers=by_trainer(problems, spec.training.framework_version) if trainer == ANY else (),
        constraints=_constraints(spec.constraints),
        checkpoint_bytes=units.parse(size, "B", field=f"{path}.checkpoint.size") if size else None,
        least_interval=float(limits.min_interval_seconds or 0),
        most_interval=None
        if limits.max_interval_seconds is None
        else float(limits.max_interval_seconds),
        current=_current(spec, int(cluster.gpus), int(model.layers), path),
        learned=1.0 if taught is None else round(float(taught.step_time_ratio), 2),
        learned_memory=UNTAUGHT if taught is None else taught.of_memory,
        notes=notes,
        caveats=_caveats(spec, profile, ready),
    )
    if spec.current is None or spec.current.step_seconds is None:
        return request
    step = float(spec.current.step_seconds)
    return with_measured_today(request, step, field=f"{path}.current.stepSeconds")


def _training(
    part: TrainingPart, model: Transformer, precision: Precision, trainer: str, path: str
) -> Training:
    """What is trained and how; optimizer and loss that nobody states are the trainer's
    usual ones.
    """
    usual, tokens, documents = framework(trainer).usual, part.tokens, part.documents
    optimizer = part.optimizer or usual("optimizers", "adamw")
    return Training(
        sequence=part.sequence_length,
        global_batch=part.global_batch_size,
        precision=precision,
        tokens=units.count(tokens, field=f"{path}.tokens") if tokens else 0,
        optimizer=_optimizer(optimizer, f"{path}.optimizer"),
        adapters=_adapters(part, model, path),
        documents=parse_documents(documents, field=f"{path}.documents") if documents else None,
        loss=Loss(usual("losses", "whole")),
    )


def _adapters(part: TrainingPart, model: Transformer, path: str) -> Adapters | None:
    """Adapters beside frozen weights; what has no meaning without them is refused."""
    if part.adapter_rank is None:
        for name, value in (("adapterTargets", part.adapter_targets), ("base", part.base)):
            if value is not None:
                raise BadValue(f"{path}.{name}", value, "give adapterRank, the rank of adapters")
        return None
    linears = [name for block in model.blocks for name in block.linears(model.hidden)]
    words = part.adapter_targets or ",".join(sorted(ADAPTED))
    base = part.base and presets.resolve("bases", part.base, field=f"{path}.base")
    return Adapters(
        rank=part.adapter_rank,
        targets=read_targets(words, linears, field=f"{path}.adapterTargets"),
        base=presets.base(base) if base else None,
    )


def _optimizer(name: str | None, field: str) -> UpdateRule:
    return presets.optimizer(presets.resolve("optimizers", name or "adamw", field=field))


def gpus_of_node(spec: ClusterProfileSpec) -> int:
    """GPUs of a node of a profile: as it states, else as its GPU's preset says. [1]"""
    return spec.gpus_per_node or int(presets.cluster(spec.gpu, 1).gpus_per_node)


def cluster_of(
    spec: ClusterProfileSpec,
    nodes: int,
    *,
    stack: str = "default",
    precision: str = "bf16",
    release: str | None = None,
    reserve: float = 0.0,
) -> Cluster:
    """The cluster of the model that a profile's nodes make."""
    network, host = spec.network, spec.host
    per_node = gpus_of_node(spec)
    return presets.cluster(
        spec.gpu,
        nodes * per_node,
        stack=stack,
        precision=precision,
        release=release,
        gpus_per_node=per_node,
        domain=network.scale_up_domain,
        scale_up=network.scale_up,
        scale_out=network.scale_out,
        spine_nodes=network.leaf_group_nodes,
        oversubscription=float(network.oversubscription),
        in_network_reduction=network.in_network_reduction,
        host_memory=host.memory,
        host_link=host.link,
        reserve=reserve,
    )


def _used_part(
    cluster: ClusterPart, whole: Cluster, nodes: int, profile: str, path: str
) -> Cluster:
    """The machines of a job that has so many GPUs of each node, in pods of so many."""
    per_node = int(whole.gpus_per_node)
    devices, pod = cluster.gpus_per_node or per_node, cluster.gpus_per_pod or 0
    if devices > per_node:
        raise BadValue(
            f"{path}.gpusPerNode", devices, f"nodes of profile {profile} have {per_node} each"
        )
    if pod and devices % pod:
        raise BadValue(f"{path}.gpusPerPod", pod, f"it must divide the {devices} GPUs on each node")
    return replace(part_of(whole, devices, pod), gpus=nodes * devices)


def _nodes(spec: TrainingJobSpec, ready: int | None, path: str) -> tuple[int, bool]:
    """Nodes, and whether fewer may be advised."""
    if spec.cluster.nodes is not None:
        return spec.cluster.nodes, False
    if spec.cluster.max_nodes is not None:
        return spec.cluster.max_nodes, True
    if not ready:
        raise InputError(
            f"{path}.cluster.nodes: is missing, and profile {spec.cluster.profile} states "
            "no ready nodes; give nodes or maxNodes"
        )
    return ready, False


def _trainer(spec: TrainingJobSpec, path: str) -> tuple[str, str]:
    """Ids of the trainer, for the search and for the constants of its software stack."""
    trainer = spec.training.framework
    if trainer is None:
        return ANY, presets.stack_of(ANY)
    return framework(trainer, field=f"{path}.training.framework").name, presets.stack_of(trainer)


def _constraints(constraints: Constraints) -> tuple[str, ...]:
    """A manifest's constraints as the texts that the search reads.

    >>> from mofa_model.manifest.training_job import Constraints
    >>> _constraints(Constraints.model_validate({"tp": {"values": [8, 4]}, "pp": {"max": 16}}))
    ('tp=4,8', 'pp<=16')
    """
    return tuple(
        f"{word.key}{_limit_text(bound)}"
        for word in LIMITS
        if (bound := getattr(constraints, word.field)) not in (None, AxisBounds())
    )


def _limit_text(bound: AxisBounds | list[str] | bool) -> str:
    """A limit on an axis as the text of a constraint: `=1,2`, `>=4`."""
    if isinstance(bound, bool):
        return f"={'true' if bound else 'false'}"
    if isinstance(bound, list):
        return f"={','.join(sorted(set(bound)))}"
    if bound.values:
        return f"={','.join(str(value) for value in sorted(set(bound.values)))}"
    if bound.min is not None and bound.max is not None:
        return f"={bound.min}..{bound.max}"
    return f">={bound.min}" if bound.max is None else f"<={bound.max}"


def _current(
    spec: TrainingJobSpec, gpus: int, layers: int, path: str
) -> Strategy | Unplaced | None:
    """Today's layout; one for another number of devices is `Unplaced`, and no error."""
    if spec.current is None:
        return None
    current = spec.current
    text = current.strategy if current.strategy is not None else current.arguments or []
    try:
        return read_layout(text, gpus, layers=layers, field=f"{path}.current")
    except DoesNotFit as error:
        words = text if isinstance(text, str) else shlex.join(text)
        return Unplaced(text=words[:_LONGEST], why=error.why)


def _precision(spec: TrainingJobSpec, trainer: str) -> str:
    """The precision that is said; else the usual one, or the first of a trainer that lacks it."""
    usual = spec.training.precision
    is_said = "precision" in spec.training.model_fields_set
    return usual if is_said else framework(trainer).usual("precisions", usual)


def _recipe(word: str, field: str) -> tuple[str, tuple[str, ...]]:
    """The precision preset of a manifest, and how it was read where that has to be said.

    Version 0.1.0 took `fp8` and `float8` for fp8-delayed. Jobs in clusters that say so keep their
    answer, which names the recipe. On the command line the word is refused.
    """
    recipes = presets.meanings("precisions", word)
    if _FP8 not in recipes or len(recipes) == 1:
        return presets.resolve("precisions", word, field=field), ()
    others = ", ".join(name for name in recipes if name != _FP8)
    return _FP8, (f"precision {word} is read as {_FP8}; name the recipe: {_FP8}, {others}",)


def _caveats(spec: TrainingJobSpec, profile: Profile, ready: int | None) -> tuple[str, ...]:
    nodes, caveats = spec.cluster.nodes, list[str]()
    if nodes is not None and ready is not None and ready < nodes:
        # No number: the hash must not change with each node.
        caveats.append("fewer nodes are ready than are asked for")
    unready = next(
        (c for c in profile.status.conditions if (c.type, c.status) == ("Ready", "False")), None
    )
    if unready is not None:
        why = f"{unready.reason}: {unready.message}" if unready.message else unready.reason
        caveats.append(f"ClusterProfile {profile.name} is not ready: {why}")
    return tuple(caveats)


def model_of(model_part: Model, config: str | None, path: str) -> Transformer:
    """The model that a manifest names; `config` is the text behind configMapRef."""
    if model_part.preset is not None:
        also = "or describe it by architecture or configMapRef"
        return presets.model(
            presets.resolve("models", model_part.preset, field=f"{path}.preset", also=also)
        )
    if model_part.architecture is not None:
        return _from_architecture(model_part.architecture)
    ref = model_part.config_map_ref
    if ref is None or config is None:
        name = f"{ref.name}/{ref.key}" if ref is not None else ""
        raise BadValue(
            f"{path}.configMapRef", name, "this ConfigMap was not found; give it beside the job"
        )
    return read_config(config, f"{path}.configMapRef")


def read_config(text: str, path: str) -> Transformer:
    """A Hugging Face config.json as text.

    Errors repeat no value of it: who reads the answer may not read the ConfigMap.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON: {' '.join(str(error).split())[:120]}") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: is not a model configuration; give a JSON object")
    try:
        return models.from_config(document)
    except (BadValue, UnknownName) as error:
        raise InputError(
            f"{path}: its field {error.field} cannot be right; {error.right}"
        ) from None


def _from_architecture(shape: Architecture) -> Transformer:
    latent, experts = shape.latent_attention, shape.experts
    mixer: Block
    if latent is not None:
        ranks = latent.model_dump()
        mixer = LatentAttention(
            heads=shape.heads, **ranks | {"query_rank": latent.query_rank or None}
        )
    else:
        mixer = SoftmaxAttention(
            heads=shape.heads,
            kv_heads=shape.kv_heads or shape.heads,
            head_dim=shape.head_dim or shape.hidden_size // shape.heads,
        )
    dense = FeedForward(width=shape.ffn_size, gated=shape.gated)
    sparse = dense if experts is None else _experts(experts, gated=shape.gated)
    leading = 0 if experts is None else experts.dense_layers
    layers = [
        Layer((_windowed(shape, mixer, index), dense if index < leading else sparse))
        for index in range(shape.layers)
    ]
    return Transformer(
        name="custom",
        hidden=shape.hidden_size,
        runs=Run.of(layers),
        embedding=Embedding(vocabulary=shape.vocabulary_size, tied=shape.tied_embeddings),
        prediction_modules=shape.prediction_modules,
    )


def _windowed(shape: Architecture, mixer: Block, index: int) -> Block:
    """The attention of a layer: windowed layers lie evenly between the others."""
    if not shape.window or not isinstance(mixer, SoftmaxAttention):
        return mixer
    windowed = round(shape.layers * shape.windowed_layers_percent / 100)
    before, after = (-(-count * windowed // shape.layers) for count in (index, index + 1))
    return replace(mixer, window=shape.window) if after > before else mixer


def _experts(experts: ExpertPart, *, gated: bool) -> Experts:
    return Experts(
        count=experts.count,
        top_k=experts.top_k,
        width=experts.ffn_size,
        gated=gated,
        shared_width=experts.shared_ffn_size or None,
        imbalance=float(experts.imbalance),
        node_limit=experts.node_limit,
    )
