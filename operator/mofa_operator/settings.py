"""What the operator is told when it starts, by concern. Durations are seconds.

`verbs/operator.py` makes one flag of every field (`--prometheus-url`), one environment variable
(`MOFA_PROMETHEUS_URL`) and its help text from the field's docstring; the chart's values are checked
against the same fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mofa_model.kinds import KINDS


@dataclass(frozen=True, kw_only=True, slots=True)
class PrometheusSettings:
    """Where history and observed throughput come from."""

    url: str | None = None
    """Address of the server; without it advice rests on assumptions, and says so."""
    flavour: str = "prometheus"
    """prometheus, thanos, mimir, victoriametrics, google, amazon or azure."""
    bearer_token_file: str | None = None
    """File with a token; read anew when it changes and when the server says 401."""
    basic_auth_file: str | None = None
    """File with user:password."""
    header: tuple[str, ...] = ()
    """Extra headers, name=value; may be repeated."""
    org_id: str | None = None
    """Tenant, sent as X-Scope-OrgID."""
    ca_file: str | None = None
    """Certificate authority of the server; missing = the system's."""
    insecure_skip_verify: bool = False
    """Do not check the server's certificate."""
    timeout: float = 30.0
    """Longest wait for one query. [s]"""
    largest_answer: int = 16 * 1024 * 1024
    """Largest answer that is read. [B]"""
    most_series: int = 20_000
    """Most series of one answer."""
    interval: float = 60.0
    """Time between looks at the history of a profile. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiSettings:
    """How hard the API server may be worked."""

    writes_per_second: float = 500.0
    """Writes to the API server, in the long run. [1/s]"""
    burst: int = 1000
    """Writes that may come at once. [1]"""
    concurrency: int = 32
    """Objects that are reconciled at the same time. [1]"""
    timeout: float = 30.0
    """Longest wait for one request. [s]"""
    largest_object: int = 512 * 1024
    """Largest job that is read; one that is larger is told so, and gets no advice. [B]"""
    namespace_bytes: int = 64 * 1024 * 1024
    """Most that is kept of all jobs of one namespace; those beyond it are told so. [B]"""
    all_bytes: int = 256 * 1024 * 1024
    """Most that is kept of all jobs; beyond it only namespaces with less than their share
    grow. [B]
    """
    fence: bool = False
    """Write only while the admission policy is proved, every hour, to refuse other writes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopSettings:
    """When things are looked at again."""

    resync: float = 600.0
    """Time between full lists of every kind, against missed watches. [s]"""
    settle: float = 2.0
    """Quiet time after a change of nodes before it counts. [s]"""
    settle_longest: float = 30.0
    """Longest wait for that quiet. [s]"""
    steady: float = 300.0
    """How long a node must be away, or there, until the pool's size in advice follows. [s]"""
    quiet: float = 600.0
    """Least time between two writes of what is observed, per object. [s]"""
    material: float = 0.05
    """Least relative change of what is observed that is written. [1]"""
    backoff: float = 1.0
    """First wait after a failure; it doubles. [s]"""
    backoff_longest: float = 300.0
    """Longest wait after a failure. [s]"""
    stall: float = 120.0
    """Time without progress after which the liveness probe fails. [s]"""
    workers: int = 1
    """Processes that compute advice. [1]"""
    gate_longest: float = 300.0
    """Longest that a job waits at our gate in mode Apply. [s]"""
    stuck_steps: float = 5.0
    """Steps' time without a step after which a job is stuck. [1]"""
    stuck_least: float = 300.0
    """Least time without a step after which a job is stuck. [s]"""
    start_least: float = 1800.0
    """Least time that a start may take, up to the first step: images, loading, compiling. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseSettings:
    """Election of one operator among several."""

    enabled: bool = False
    """Take part in an election; one replica with strategy Recreate needs none."""
    namespace: str = "mofa-system"
    """Namespace of the Lease."""
    name: str = "mofa-advisor"
    """Name of the Lease."""
    duration: float = 15.0
    """How long a Lease holds without renewal. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeSettings:
    """What the operator serves."""

    address: str = "0.0.0.0"  # noqa: S104 - in a pod, the pod's own address
    """Address to listen on."""
    metrics_port: int = 8080
    """Port of /metrics, and of the page."""
    health_port: int = 8081
    """Port of /healthz and /readyz."""
    page: bool = False
    """Serve the page."""
    authenticate: bool = False
    """Show metrics and page only to a bearer token that the API server lets get their path."""
    most_jobs: int = 2000
    """Jobs that have series of their own; the others are counted together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorSettings:
    """All of it."""

    namespace: tuple[str, ...] = ()
    """Namespaces to watch; none = all."""
    kinds: tuple[str, ...] = tuple(kind.setting for kind in KINDS)
    """Existing kinds to watch, where the cluster has them."""
    admission_checks: bool = False
    """Answer the AdmissionChecks of Kueue whose controller is mofa.dev/advisor."""
    pods: bool = False
    """Read the pods of advised jobs once they run: what they are told, and nothing else of them."""
    dry_run: bool = False
    """Decide and log, but write nothing."""
    log_format: str = "text"
    """text or json."""
    verbose: bool = False
    """Log every decision."""
    prometheus: PrometheusSettings = field(default_factory=PrometheusSettings)
    """Where history and observed throughput come from."""
    api: ApiSettings = field(default_factory=ApiSettings)
    """How hard the API server may be worked."""
    loop: LoopSettings = field(default_factory=LoopSettings)
    """When things are looked at again."""
    lease: LeaseSettings = field(default_factory=LeaseSettings)
    """Election of one operator among several."""
    serve: ServeSettings = field(default_factory=ServeSettings)
    """What the operator serves."""
