"""The spec of a TrainingJob: a model, its training and a pool of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field, create_model

from mofa_model.axes.axis import Switch
from mofa_model.axes.axis import Word as AxisWord
from mofa_model.checks import field_names
from mofa_model.manifest.fields import (
    UNIQUE,
    Argument,
    AtLeastOne,
    Count,
    Decimal,
    Degree,
    Devices,
    Fraction,
    Key,
    Kind,
    LabelValue,
    Layers,
    Layout,
    Name,
    Part,
    Percent,
    Positive,
    Rule,
    Seconds,
    SeriesLabel,
    Size,
    SomeSeconds,
    Tokens,
    Version,
    Word,
    Zero,
)
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.strategy import AXES, Strategy


class LatentAttentionPart(Part):
    """Multi-head latent attention, in place of kvHeads and headDim."""

    query_rank: Zero = 0
    """Width of the query latent; 0 = queries are projected directly."""
    kv_rank: Count
    """Width of the key and value latent."""
    nope_dim: Count
    """Width of a head's part without rotary position."""
    rope_dim: Zero = 0
    """Width of a head's rotary part."""
    value_dim: Count
    """Width of a head's value."""


class ExpertPart(Part):
    """The mixture of experts."""

    rules = (
        Rule("self.topK <= self.count", "topK must not exceed count", lambda e: e.top_k <= e.count),
    )

    count: Count
    """Routed experts."""
    top_k: Count
    """Experts that a token is sent to."""
    ffn_size: Count
    """FFN width of one expert."""
    shared_ffn_size: Zero = 0
    """FFN width of the experts that every token passes, together."""
    dense_layers: Zero = 0
    """Leading layers that have a plain FFN instead."""
    imbalance: AtLeastOne = "1"
    """Load of the fullest rank against the mean, at least 1."""
    node_limit: Zero = 0
    """Nodes that the experts of one token may lie on; 0 = any."""


class Architecture(Part):
    """The shape of a decoder."""

    rules = (
        Rule(
            "!has(self.latentAttention) || !(has(self.kvHeads) || has(self.headDim))",
            "latentAttention has no kvHeads and no headDim",
            lambda a: a.latent_attention is None or (a.kv_heads is None and a.head_dim is None),
        ),
        Rule(
            "!has(self.kvHeads) || self.heads % self.kvHeads == 0",
            "kvHeads must divide heads",
            lambda a: a.kv_heads is None or a.heads % a.kv_heads == 0,
        ),
        Rule(
            "!has(self.experts) || self.experts.denseLayers <= self.layers",
            "experts.denseLayers must not exceed layers",
            lambda a: a.experts is None or a.experts.dense_layers <= a.layers,
        ),
    )

    layers: Layers
    """Transformer blocks."""
    hidden_size: Count
    """Width of the residual stream."""
    heads: Count
    """Query heads."""
    kv_heads: Count | None = None
    """Key and value heads; as many as heads where it is missing."""
    head_dim: Count | None = None
    """Width of one head; hiddenSize / heads where it is missing."""
    window: Zero = 0
    """Tokens that a windowed layer attends to; 0 = no window."""
    windowed_layers_percent: Percent = 100
    """Share of the layers that are windowed, where there is a window."""
    latent_attention: LatentAttentionPart | None = None
    """Multi-head latent attention."""
    ffn_size: Count
    """Width of the dense feed-forward part."""
    gated: bool = True
    """True for SwiGLU and its kin: three matrices instead of two."""
    vocabulary_size: Count
    """Rows of the embedding, padding included."""
    tied_embeddings: bool = False
    """True where the head is the embedding transposed."""
    experts: ExpertPart | None = None
    """The mixture of experts; missing for a dense model."""
    prediction_modules: Zero = 0
    """Multi-token prediction modules."""


class ConfigMapRef(Part):
    """A key of a ConfigMap in the same namespace."""

    name: Name
    """The ConfigMap."""
    key: Key = "config.json"
    """Its key: a Hugging Face config.json."""


class Model(Part):
    """The model: one of a preset, its architecture, or a reference to its config.json."""

    rules = (
        Rule(
            "(has(self.preset) ? 1 : 0) + (has(self.architecture) ? 1 : 0)"
            " + (has(self.configMapRef) ? 1 : 0) == 1",
            "give exactly one of preset, architecture and configMapRef",
            lambda m: sum(x is not None for x in (m.preset, m.architecture, m.config_map_ref)) == 1,
        ),
    )

    preset: Word | None = Field(default=None, examples=["llama3-405b"])
    """Id or alias of a model preset: `mofa presets models` lists them."""
    architecture: Architecture | None = None
    """The model's shape, field by field."""
    config_map_ref: ConfigMapRef | None = None
    """Where a Hugging Face config.json is."""


Mode = Literal["Disabled", "Annotate", "Apply"]
Objective = Literal["Time", "Throughput", "Cost"]


def default(part: type[Part]) -> Any:
    """A part whose fields all have defaults, made when it is missing."""
    return Field(default_factory=part)


class TrainingPart(Part):
    """What is trained, by which trainer."""

    tokens: Tokens | None = None
    """Tokens of the whole run, for example "15T"; without it the objective Time means the step
    alone."""
    sequence_length: Count
    """Tokens in a sequence."""
    global_batch_size: Count
    """Sequences in an optimizer step."""
    precision: Word = Field(default="bf16", examples=["BF16"])
    """Precision preset, for example BF16, fp8-current or mxfp8."""
    optimizer: Word | None = Field(default=None, examples=["muon"])
    """What updates the weights; without it AdamW."""
    adapter_rank: Count | None = Field(default=None, examples=[16])
    """Rank of the adapters that are trained beside frozen weights (LoRA); without it all weights
    are trained."""
    adapter_targets: Annotated[str, Field(max_length=256)] | None = Field(
        default=None, examples=["q,v,down"]
    )
    """Linear layers that have adapters: attention, mlp, experts, all, or their names; without it
    those of attention."""
    base: Word | None = Field(default=None, examples=["nf4"])
    """Format of the frozen weights beside adapters, a preset; without it that of the precision's
    products."""
    documents: Annotated[str, Field(max_length=512)] | None = Field(
        default=None, examples=["512:3,8k"]
    )
    """Lengths of the documents that are packed into a sequence, each with its share; after the
    word padded, each is a sequence, padded to the longest of its micro-batch."""
    imbalance: Annotated[str, Field(max_length=32)] | None = Field(
        default=None, examples=["1.4:0.3"]
    )
    """Load of the fullest rank of experts over the mean, and behind a colon its standard deviation
    over layers and micro-batches; without it the model's own."""
    framework: Word | None = Field(default=None, examples=["megatron"])
    """Trainer; it restricts the search to what that trainer can run, and decides the form of launch
    arguments."""
    framework_version: Word | None = Field(default=None, examples=["26.04"])
    """Release of the trainer, where a preset knows that it matters."""


class ClusterPart(Part):
    """Where it runs."""

    rules = (
        Rule(
            "!(has(self.nodes) && has(self.maxNodes))",
            "give nodes or maxNodes, not both",
            lambda c: c.nodes is None or c.max_nodes is None,
        ),
        Rule(
            "!has(self.gpusPerPod) || !has(self.gpusPerNode)"
            " || self.gpusPerNode % self.gpusPerPod == 0",
            "gpusPerPod must divide gpusPerNode",
            lambda c: (
                c.gpus_per_pod is None
                or c.gpus_per_node is None
                or c.gpus_per_node % c.gpus_per_pod == 0
            ),
        ),
    )

    profile: Name
    """The ClusterProfile that describes the nodes."""
    nodes: Count | None = None
    """Nodes, exactly; with neither nodes nor maxNodes, all ready nodes of the profile."""
    max_nodes: Count | None = None
    """The most nodes; fewer are advised where more do not pay."""
    gpus_per_node: Devices | None = None
    """GPUs that the job has on each of its nodes; missing = all of them."""
    gpus_per_pod: Devices | None = None
    """GPUs of one pod, between which NVLink is used; missing = all that the job has on a node."""


class AxisBounds(Part):
    """The values of an axis: listed, or between two bounds."""

    rules = (
        Rule(
            "!has(self.values) || !(has(self.min) || has(self.max))",
            "give values, or min and max",
            lambda r: r.values is None or (r.min is None and r.max is None),
        ),
        Rule(
            "!has(self.min) || !has(self.max) || self.min <= self.max",
            "min must not exceed max",
            lambda r: r.min is None or r.max is None or r.min <= r.max,
        ),
    )

    values: Annotated[list[Degree], Field(min_length=1, max_length=32)] | None = Field(
        default=None, json_schema_extra=UNIQUE
    )
    """The only values; one value fixes the axis."""
    min: Degree | None = None
    """The least value."""
    max: Degree | None = None
    """The largest value."""


class _Headroom(Part):
    """What the search may choose; a missing axis is free."""

    memory_headroom_percent: Annotated[int, Field(ge=0, le=99, examples=[10])] = 0
    """Share of the device memory to leave free."""


LIMITS: Final = tuple(
    sorted(
        (word for axis in AXES for word in axis.keys if word.about),
        key=lambda word: (word.place, field_names(Strategy).index(word.field)),
    )
)
"""What manifests can say of the axes: numbers, then lists of words, then truths."""


def _limit(word: AxisWord) -> tuple[Any, Any]:
    """Type and field of a limit."""
    kind: Any = bool if word.place == Switch.place else AxisBounds
    extra: Any = None
    if words := word.listed():
        word_type: Any = Literal[words]
        kind = Annotated[list[word_type], Field(min_length=1, max_length=len(words))]
        extra = UNIQUE
    return kind | None, Field(default=None, description=word.about, json_schema_extra=extra)


if TYPE_CHECKING:
    Constraints = _Headroom
else:
    Constraints = create_model(
        "Constraints",
        __base__=_Headroom,
        __doc__=_Headroom.__doc__,
        **{word.field: _limit(word) for word in LIMITS},
    )


class Checkpoint(Part):
    """How checkpoints are taken; sizes and bandwidths default from model and profile."""

    rules = (
        Rule(
            "!has(self.minIntervalSeconds) || !has(self.maxIntervalSeconds)"
            " || self.minIntervalSeconds <= self.maxIntervalSeconds",
            "minIntervalSeconds must not exceed maxIntervalSeconds",
            lambda c: (
                c.min_interval_seconds is None
                or c.max_interval_seconds is None
                or c.min_interval_seconds <= c.max_interval_seconds
            ),
        ),
    )

    mode: Literal["Async", "Sync"] = "Async"
    """Whether training goes on while a checkpoint is written."""
    size: Size | None = None
    """Bytes of a checkpoint, where the model's own estimate is wrong."""
    min_interval_seconds: Seconds | None = None
    """The shortest interval to advise."""
    max_interval_seconds: SomeSeconds | None = None
    """The longest interval to advise."""


class ClassAssumption(Part):
    """What the user assumes of one recovery class."""

    failures_per_thousand_node_days: Decimal | None = Field(default=None, examples=["1.5"])
    """Failures that need this class."""
    recovery_seconds: Seconds | None = None
    """Mean time to recover."""


if TYPE_CHECKING:
    PerClass = Part
else:
    PerClass = create_model(
        "PerClass",
        __base__=Part,
        __doc__="Assumptions by recovery class; the classes partition recoveries.",
        **{
            recovery_class.value: (
                ClassAssumption | None,
                Field(default=None, description=recovery_class.sentence),
            )
            for recovery_class in RecoveryClass
        },
    )


class FailureAssumptions(Part):
    """Where failure rates come from."""

    source: Literal["Live", "Assumed", "Blend"] = "Blend"
    """Live = counted failures alone; Assumed = assumptions alone; Blend = both, each with its
    weight."""
    per_class: PerClass = default(PerClass)
    """Assumptions that replace the profile's."""


class TargetRef(Part):
    """An existing job to annotate as well."""

    api_version: Version
    """Its apiVersion."""
    kind: Kind
    """Its kind."""
    name: Name
    """Its name, in the same namespace."""


class CurrentLayout(Part):
    """Today's layout: as strategy text, or as the trainer's own arguments."""

    rules = (
        Rule(
            "has(self.strategy) != has(self.arguments)",
            "give strategy or arguments",
            lambda c: (c.strategy is None) != (c.arguments is None),
        ),
    )

    strategy: Layout | None = None
    """For example tp=8,pp=4,dp=32."""
    arguments: Annotated[list[Argument], Field(min_length=1, max_length=256)] | None = None
    """The words of the launch command."""
    step_seconds: Positive | None = None
    """Measured time of a step with it; the answer then compares with this time."""


class Slo(Part):
    """The objective that burn alerts use."""

    ettr: Fraction
    """Least acceptable effective training time ratio, for example "0.90"."""


class Throughput(Part):
    """Where observed tokens per second and steps come from."""

    preset: Word = Field(default="mofa", examples=["mofa"])
    """Exporter: mofa, or one that the operator knows."""
    matchers: Annotated[dict[SeriesLabel, LabelValue], Field(max_length=16)] = Field(
        default_factory=dict
    )
    """Labels that pick this job's series; values are escaped."""


class TrainingJobSpec(Part):
    """A model, its training and a pool of nodes, for which advice is asked."""

    mode: Mode = "Annotate"
    """Disabled removes our annotations; Annotate writes them; Apply also sets the launch of a job
    that waits for it."""
    model: Model
    """The model."""
    training: TrainingPart
    """What is trained, by which trainer."""
    cluster: ClusterPart
    """Where it runs."""
    objective: Objective = "Time"
    """Time = days to finish the tokens, failures included; Throughput = the step alone; Cost = GPU
    hours."""
    constraints: Constraints = default(Constraints)
    """What the search may choose."""
    checkpoint: Checkpoint = default(Checkpoint)
    """How checkpoints are taken."""
    failure_assumptions: FailureAssumptions = default(FailureAssumptions)
    """Where failure rates come from."""
    target_ref: TargetRef | None = None
    """An existing job to annotate as well."""
    current: CurrentLayout | None = None
    """Today's layout, priced beside the advice."""
    slo: Slo | None = None
    """The objective that burn alerts use."""
    throughput: Throughput = default(Throughput)
    """Where observed tokens per second and steps come from."""
