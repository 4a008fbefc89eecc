"""What `-o json` and `to_dict` say, as types: SI numbers with every digit, strategies as text, None where there is nothing.

`docs/reference/schema/` has the same as JSON schemas, made from these types. Version 1 grows by new keys and by nothing else.
"""

from __future__ import annotations

from typing import Any, Final, NotRequired, TypedDict

VERSION: Final = 1
"""Of all documents; it changes with the product's major version, and no key leaves before that."""


class BandDocument(TypedDict):
    """A figure with its bounds."""

    lower: float
    target: float
    upper: float


class PredictedDocument(TypedDict):
    """What a layout is expected to do."""

    step_seconds: BandDocument
    tokens_per_second: BandDocument
    mfu: BandDocument
    memory_bytes: BandDocument
    ettr: BandDocument
    duration_seconds: BandDocument


class OddsDocument(TypedDict):
    """Chances by what measured runs were wrong."""

    fits: float
    beats: float | None


class NearRunDocument(TypedDict):
    """A measured run that is like the layout."""

    name: str
    place: str
    distance: float
    error: float
    differs: list[str]


class EvidenceDocument(TypedDict):
    """Measured runs that a prediction rests on."""

    stack: str
    devices: str
    runs: int
    related: int
    largest: int
    nearest: list[NearRunDocument]
    confidence: float
    within: float


class AlternativeDocument(TypedDict):
    """Another layout, or a short run to make."""

    name: str
    odds: OddsDocument
    strategy: str
    precision: str
    nodes: int
    predicted: PredictedDocument
    checkpoint_interval_steps: int
    checkpoint_interval_seconds: float
    terms_seconds: dict[str, float]
    reason: str


class FrontierDocument(TypedDict):
    """The best layout on a number of nodes."""

    nodes: int
    gpus: int
    strategy: str
    checkpoint_interval_steps: int
    predicted: PredictedDocument


class CountsDocument(TypedDict):
    """What became of every combination."""

    raw: int
    searched: int
    pruned: int
    rejected: int


class FailureDocument(TypedDict):
    """A failure rate that was used."""

    name: str
    per_node_day: float
    recovery_seconds: float


class CurrentDocument(TypedDict):
    """Today's layout beside the advice."""

    strategy: str
    predicted: PredictedDocument | None
    odds: OddsDocument | None
    reason: str
    gain: float


class LaunchDocument(TypedDict):
    """The first choice in a trainer's own arguments."""

    trainer: str
    release: str
    starter: list[str]
    arguments: list[str]
    environment: dict[str, str]
    files: dict[str, str]
    notes: list[str]


class AdviseDocument(TypedDict):
    """The answer of `advise`."""

    status: str
    explanation: str
    model: str
    gpu: str
    objective: str
    nodes: int
    gpus: int
    strategy: str | None
    precision: str | None
    checkpoint_interval_steps: int | None
    checkpoint_interval_seconds: float | None
    predicted: PredictedDocument | None
    odds: OddsDocument | None
    trainer: str
    doubts: list[str]
    alternatives: list[AlternativeDocument]
    frontier: list[FrontierDocument]
    counts: CountsDocument
    rejected: dict[str, int]
    nearest: list[str]
    confidence: float
    evidence: EvidenceDocument | None
    caveats: list[str]
    failures: list[FailureDocument]
    memory_limit_bytes: float
    model_version: str
    current: NotRequired[CurrentDocument]
    probes: NotRequired[list[AlternativeDocument]]
    launch: NotRequired[LaunchDocument]
    launch_refused: NotRequired[str]


class TermDocument(TypedDict):
    """A term of time."""

    seconds: float
    equation: str
    meaning: str


class MemoryTermDocument(TypedDict):
    """A term of memory, for each kind of stage."""

    bytes: list[float]
    equation: str
    meaning: str


class ExplainDocument(TypedDict):
    """The answer of `explain`: terms, or with `evidence` what is known of runs like the layout."""

    strategy: str
    model: str
    gpu: str
    gpus: int
    stack: str
    evidence: EvidenceDocument
    summary: NotRequired[dict[str, float | bool]]
    step: NotRequired[dict[str, TermDocument]]
    layers: NotRequired[dict[str, dict[str, TermDocument]]]
    head: NotRequired[dict[str, float]]
    stages: NotRequired[list[dict[str, float | bool]]]
    memory: NotRequired[dict[str, MemoryTermDocument]]
    bands: NotRequired[dict[str, dict[str, float]]]
    features: NotRequired[list[dict[str, Any]]]


class IntervalDocument(TypedDict):
    """Checkpoint intervals."""

    steps: int
    seconds: float
    every: list[int]
    tier_steps: list[int]
    best_steps: int
    best_ettr: float
    half: float
    double: float
    flat_from: int
    flat_to: int
    minimax_steps: int


class PaperDocument(TypedDict):
    """The paper's form beside ours."""

    ettr: float
    steps: int
    failure_load: float
    trust: str


class EttrDocument(TypedDict):
    """The answer of `ettr`."""

    model: str
    ettr: BandDocument
    level: float
    interval: IntervalDocument
    paper: PaperDocument
    mtbf_s: float | None
    failures_per_node_day: BandDocument
    save_s: dict[str, list[float]]
    scatter: dict[str, float]
    budget: dict[str, float]
    curve: list[dict[str, float]]
    watchdog: NotRequired[dict[str, float]]
    finish_s: NotRequired[dict[str, float | None]]
    deadline: NotRequired[dict[str, int | None]]


class VariedEttrDocument(TypedDict):
    """The answer of `ettr` where a field varies."""

    varied: str
    rows: list[dict[str, float | str]]


class StretchDocument(TypedDict):
    """A stretch of one run."""

    start_s: float
    end_s: float
    what: str
    saves: int
    ended_by: str


class SimulateDocument(TypedDict):
    """The answer of `simulate`."""

    duration_s: float
    runs: int
    interval_steps: int
    every: list[int]
    ettr: dict[str, float]
    failures: float
    lost_s: dict[str, float]
    timeline: list[StretchDocument]


class SweepDocument(TypedDict):
    """The answer of `sweep`: one row for each point."""

    varied: list[str]
    rows: list[dict[str, float | str | None]]
