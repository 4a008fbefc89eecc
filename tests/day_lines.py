"""Time lines of a small pool for tests of incidents: four nodes for a day, and pods of one job."""

from mofa_operator.incidents.timelines import (
    BOOT,
    CORDON,
    PRESSURE,
    READY,
    TAINT,
    XID,
    ContainerExit,
    NodeTimeline,
    PodTimeline,
    PoolTimelines,
    SignalTimeline,
    Span,
    Stall,
    ValueRun,
)

JOB = "research/llama"
START, DAY, STEP = 1_000_000.0, 86400.0, 60.0
END = START + DAY
NODES = ("a", "b", "c", "d")


def pod(slot=0, attempt="0", at=START - DAY, until=END, node=None, **more):
    more = {"started": at + 30, "containers": 1, **more}
    where = NODES[slot] if node is None else node
    return PodTimeline(
        job=JOB, attempt=attempt, slot=str(slot), node=where, created=at, last=until, **more
    )


def exits(*given, again=20.0):
    return tuple(
        ContainerExit(at=START + at, restarted_at=START + at + again, container="main", code=code)
        for at, code in given
    )


def life(name, **runs_by_word):
    signals = {"ready": READY, "cordon": CORDON, "xid": XID, "pressure": PRESSURE, "boot": BOOT}
    signals["removal"] = TAINT
    parts = {"xid": ("0", "u"), "pressure": ("DiskPressure",)}
    parts["removal"] = ("ToBeDeletedByClusterAutoscaler",)
    lines = (
        SignalTimeline(name, signals[word], parts.get(word, ()), runs)
        for word, runs in runs_by_word.items()
    )
    seen = (Span(START, END),)
    return NodeTimeline(
        name=name,
        timelines=tuple(lines),
        signals=frozenset(signals[word] for word in runs_by_word),
        spacing=dict.fromkeys(signals.values(), STEP),
        labels={},
        presence=seen,
        sampled=seen,
    )


def switched(*turns, first):
    """Runs of a value that changes at some times."""
    made, at, value = [], START, first
    for turn, then in turns:
        made.append(ValueRun(at, START + turn - STEP, value))
        at, value = START + turn, then
    return (*made, ValueRun(at, END, value))


def stills(*spans, redone=0.0):
    return [Stall(START + a, START + b, redone) for a, b in spans]


def pool_of(*pods, busy=None, stalls=None, **nodes):
    lines = [nodes.get(name) or life(name) for name in NODES]
    return PoolTimelines(
        node_timelines={line.name: line for line in lines},
        pod_timelines={f"uid-{n}": pod for n, pod in enumerate(pods)},
        gpu_busy=busy or {},
        stalls=stalls or {},
        sampled=(Span(START, END),),
        sample_spacing=STEP,
    )
