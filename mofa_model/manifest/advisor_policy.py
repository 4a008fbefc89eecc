"""AdvisorPolicy: which kinds of jobs are advised in a namespace, and with which defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import ConfigDict, Field, ValidationError, model_validator

from mofa_model.manifest.fields import (
    UNIQUE,
    Count,
    Devices,
    Fraction,
    Kind,
    Label,
    LabelValue,
    Name,
    Part,
    Rule,
    Tokens,
    Version,
    Word,
    Zero,
    keyed,
)
from mofa_model.manifest.status import Condition
from mofa_model.manifest.training_job import (
    Checkpoint,
    Constraints,
    FailureAssumptions,
    Mode,
    Objective,
    default,
)

_LABELS: Final = "matchLabels"
_EXPRESSIONS: Final = "matchExpressions"


class Requirement(Part):
    """What one label has to be."""

    rules = (
        Rule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
            "In and NotIn need values, Exists and DoesNotExist have none",
            lambda label: (label.operator in {"In", "NotIn"}) == bool(label.values),
        ),
    )

    key: Label
    """The label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """What has to hold of it."""
    values: Annotated[list[LabelValue], Field(max_length=16)] | None = Field(
        default=None, json_schema_extra=UNIQUE
    )
    """Values that it has to have one of, or none of."""

    def holds(self, labels: Mapping[str, Any]) -> bool:
        """Whether labels are so; a label that is not there has none of the values."""
        if self.operator in {"Exists", "DoesNotExist"}:
            return (self.key in labels) is (self.operator == "Exists")
        return (labels.get(self.key) in (self.values or ())) is (self.operator == "In")


class LabelSelector(Part):
    """Labels that must be there, and requirements that must hold; none = everything."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})

    match_labels: Annotated[dict[Label, LabelValue], Field(max_length=16)] | None = None
    """Labels, each with its value."""
    match_expressions: Annotated[list[Requirement], Field(max_length=16)] | None = None
    """Requirements, all of which must hold."""

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, selector: Any) -> Any:
        """Take a plain map of labels for a selector with these matchLabels."""
        if not isinstance(selector, Mapping) or not selector:
            return selector
        return selector if {_LABELS, _EXPRESSIONS} & selector.keys() else {_LABELS: selector}

    def matches(self, labels: Mapping[str, Any]) -> bool:
        """Whether labels are selected.

        >>> LabelSelector.model_validate({"team": "a"}).matches({"team": "a", "tier": "x"})
        True
        """
        return all(
            labels.get(key) == value for key, value in (self.match_labels or {}).items()
        ) and all(requirement.holds(labels) for requirement in self.match_expressions or ())

    def keys(self) -> set[str]:
        """Names of the labels that the selector looks at."""
        return {
            *(self.match_labels or {}),
            *(requirement.key for requirement in self.match_expressions or ()),
        }


def read_selector(written: Any) -> LabelSelector:
    """The selector of a policy in a cluster.

    An unreadable one selects everything, so that the jobs' answers name what is wrong.
    """
    try:
        return LabelSelector.model_validate(written or {})
    except ValidationError:
        return LabelSelector()


Verdict: TypeAlias = Literal["Admit", "Retry", "Reject"]
"""What becomes of a job in a queue."""

MOST_HANDS: Final = 50
"""Share of the operator's concurrent work that one namespace may have. [%]"""
MOST_INFLUENCE: Final = 2
"""How far the jobs of one namespace move a shared pool's factor in a day. [%]"""


class KindRef(Part):
    """A kind of existing jobs."""

    api_version: Version
    """Its apiVersion."""
    kind: Kind
    """Its kind."""


class TrainingDefaults(Part):
    """What a job's own arguments and annotations leave open."""

    model: Word | None = None
    """Model preset."""
    tokens: Tokens | None = None
    """Tokens of the whole run."""
    sequence_length: Count | None = None
    """Tokens in a sequence."""
    global_batch_size: Count | None = None
    """Sequences in an optimizer step."""
    precision: Word | None = None
    """Precision preset."""
    framework: Word | None = None
    """Trainer."""


class AdmissionRules(Part):
    """What our AdmissionCheck says of jobs that Kueue has found room for."""

    no_layout: Verdict = "Admit"
    """A job for which nothing fits the room: start it without advice, try again later, or refuse
    it."""
    ettr: Fraction | None = None
    """Least effective training time ratio to expect of a job, for example "0.90"; a TrainingJob's
    own slo counts before it."""
    below_ettr: Verdict = "Admit"
    """The same of a job that is expected to stay below that."""
    retry_seconds: Count = 300
    """How long a job waits before it is tried again. [s]"""
    node_selector: bool = False
    """Whether pods get the nodeSelector of the ClusterProfile, too."""


class SizeBounds(Part):
    """Between which sizes one is chosen for a job that asks for it. Micro-batch, recomputation and
    all else of a layout are bounded by `constraints`.
    """

    rules = (
        Rule(
            "!has(self.maxNodes) || self.minNodes <= self.maxNodes",
            "minNodes must not exceed maxNodes",
            lambda bounds: bounds.max_nodes is None or bounds.min_nodes <= bounds.max_nodes,
        ),
    )

    min_nodes: Count = 1
    """The fewest nodes."""
    max_nodes: Count | None = None
    """The most nodes; without it as many as the pool had nearly always in the last hours, less its
    spare nodes."""
    gpus_per_node: Annotated[list[Devices], Field(max_length=8)] = Field(
        default_factory=list, json_schema_extra=UNIQUE
    )
    """GPUs of a node, each of which may be chosen; without it all of a node, and on one node 1, 2,
    4 and so on."""
    global_batch_sizes: Annotated[list[Count], Field(max_length=8)] = Field(
        default_factory=list, json_schema_extra=UNIQUE
    )
    """Sequences in an optimizer step, each of which may be chosen; without it the job's own."""
    methods: Annotated[list[Literal["Full", "LoRA"]], Field(max_length=2)] = Field(
        default_factory=list, json_schema_extra=UNIQUE
    )
    """What may be trained: all weights, adapters beside frozen weights, or either; without it what
    the job says."""
    adapter_rank: Count = 16
    """Rank of adapters, where they are chosen."""


class NamespaceBudget(Part):
    """What jobs of the namespace may take of what all share; of several policies the least."""

    hands_percent: Annotated[int, Field(ge=1, le=MOST_HANDS)] = MOST_HANDS
    """Share of the operator's concurrent work, but one thing at a time at least."""
    influence_percent: Annotated[int, Field(ge=0, le=MOST_INFLUENCE)] = MOST_INFLUENCE
    """By how much a day they move what a pool has learned, where others teach it too; 0 = they
    teach nothing."""


class AdvisorPolicySpec(Part):
    """Which existing kinds of jobs are advised in a namespace, and with which defaults."""

    kinds: Annotated[list[KindRef], Field(max_length=16)] = keyed("apiVersion", "kind")
    """Kinds whose jobs are advised without an annotation of their own."""
    selector: LabelSelector = default(LabelSelector)
    """Labels that a job must have; none = every job of these kinds. A plain map of labels is read
    as its matchLabels."""
    mode: Mode = "Annotate"
    """Mode of jobs that have no mode annotation."""
    profile: Name | None = None
    """ClusterProfile of these jobs."""
    training: TrainingDefaults = default(TrainingDefaults)
    """What a job's own arguments and annotations leave open."""
    objective: Objective = "Time"
    """What the advice is best at."""
    constraints: Constraints = default(Constraints)
    """What the search may choose."""
    checkpoint: Checkpoint = default(Checkpoint)
    """How checkpoints are taken."""
    failure_assumptions: FailureAssumptions = default(FailureAssumptions)
    """Where failure rates come from."""
    admission: AdmissionRules = default(AdmissionRules)
    """What our AdmissionCheck says of these jobs in Kueue's queues."""
    sizing: SizeBounds = default(SizeBounds)
    """Sizes of jobs that ask for one by the annotation advisor.mofa.dev/size."""
    budget: NamespaceBudget = default(NamespaceBudget)
    """What its jobs may take of what all namespaces share: less than usual, never more."""
    restarts: Literal["Keep", "Raise"] = "Keep"
    """Whether mode Apply, with the arguments, raises `backoffLimit` of a waiting batch Job or
    RayJob to what its run needs with a chance of 99 %; it never lowers one. Of other kinds it
    cannot change.
    """


class AdvisorPolicyStatus(Part):
    """What the policy reaches."""

    observed_generation: Zero | None = None
    """Generation of the spec that this status is of."""
    jobs: Zero | None = None
    """Jobs that the policy applies to."""
    conditions: Annotated[list[Condition], Field(max_length=16)] = keyed("type")
    """Ready."""
