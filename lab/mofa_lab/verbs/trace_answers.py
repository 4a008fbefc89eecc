"""The tables of `mofa trace`. Not a verb."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mofa_lab.traces.account import Account, account
from mofa_lab.traces.events import Trace
from mofa_lab.traces.predict import predict, source_of
from mofa_lab.traces.prices import Layout
from mofa_lab.traces.ranks import job_of
from mofa_lab.traces.replay import critical_path, replay, spans
from mofa_model.strategy import format_strategy
from mofa_model.tables import Column, Table

Answer = tuple[list[Table], dict[str, Any]]


def inspected(traces: Sequence[Trace]) -> Answer:
    """Steps, streams, classes and collectives of every rank."""
    ranks = [account(trace) for trace in traces]
    tables = [_steps(ranks), _streams(ranks), _classes(ranks)]
    if any(rank.talks for rank in ranks):
        tables.append(_talks(ranks))
    if any(rank.messages for rank in ranks):
        tables.append(_messages(ranks))
    document = {
        "ranks": [
            {
                "file": rank.trace.path,
                "rank": rank.trace.rank,
                "gpu": rank.trace.gpu,
                "events": len(rank.trace.events),
                "dropped": rank.trace.dropped,
                "steps": [
                    {f: getattr(step, f) for f in step.__slots__} | {"span": step.span}
                    for step in rank.steps
                ],
                "streams": rank.streams,
                "classes": [
                    {
                        "class": kind.value,
                        "kernels": count,
                        "seconds": time,
                        "exposed_seconds": alone,
                    }
                    for kind, count, time, alone in rank.by_class
                ],
                "communication": rank.talks,
                "collectives": [
                    {f: getattr(m, f) for f in m.__slots__} | {"bandwidth": m.bandwidth}
                    for m in rank.messages
                ],
            }
            for rank in ranks
        ],
        "slowest_rank": _slowest(ranks),
    }
    return tables, document


def _slowest(ranks: Sequence[Account]) -> int:
    """The rank that computes longest: the others wait for it in collectives."""
    return max(
        ranks, key=lambda rank: sum(step.compute - step.hidden for step in rank.steps)
    ).trace.rank


def _steps(ranks: Sequence[Account]) -> Table:
    seconds = ("span", "compute", "exposed", "hidden", "host-bound", "waiting")
    notes = [f"Rank {_slowest(ranks)} computes longest."] if len(ranks) > 1 else []
    if any(rank.trace.host_only for rank in ranks):
        notes.append("No device activity: the operators of the host stand in the place of kernels.")
    dropped = sum(rank.trace.dropped for rank in ranks)
    if dropped:
        notes.append(f"{dropped} events without a usable time or name were left out.")
    return Table(
        title="Steps",
        columns=(Column("rank"), Column("step"), *(Column(name, unit="s") for name in seconds)),
        rows=tuple(
            (rank.trace.rank, s.name, s.span, s.compute, s.exposed, s.hidden, s.host, s.waiting)
            for rank in ranks
            for s in rank.steps
        ),
        notes=tuple(notes),
    )


def _streams(ranks: Sequence[Account]) -> Table:
    seconds = ("span", "compute", "exposed", "hidden", "idle")
    return Table(
        title="Streams",
        columns=(
            Column("rank"), Column("step", wide=True), Column("stream"), Column("kernels"),
            *(Column(name, unit="s") for name in seconds),
        ),
        rows=tuple(
            (
                rank.trace.rank, s.step, s.stream, s.kernels, s.span, s.compute, s.exposed,
                s.hidden, s.idle,
            )
            for rank in ranks
            for s in rank.streams
        ),
    )  # fmt: skip


def _classes(ranks: Sequence[Account]) -> Table:
    return Table(
        title="Operator classes",
        columns=(
            Column("rank"),
            Column("class"),
            Column("kernels"),
            Column("time", unit="s"),
            Column("exposed", unit="s"),
        ),
        rows=tuple(
            (rank.trace.rank, kind.value, count, time, alone)
            for rank in ranks
            for kind, count, time, alone in rank.by_class
        ),
    )


def _talks(ranks: Sequence[Account]) -> Table:
    return Table(
        title="Communication",
        columns=(
            Column("rank"), Column("class"), Column("under"), Column("pass"), Column("kernels"),
            Column("time", unit="s"), Column("exposed", unit="s"), Column("hidden", unit="s"),
        ),
        rows=tuple(
            (
                rank.trace.rank, t.kind.value, t.place or "-",
                "backward" if t.backward else "forward", t.count,
                t.time, t.exposed, t.hidden,
            )
            for rank in ranks
            for t in rank.talks
        ),
    )  # fmt: skip


def _messages(ranks: Sequence[Account]) -> Table:
    return Table(
        title="Collectives by size",
        columns=(
            Column("rank"), Column("class"), Column("ranks"), Column("size", unit="B"),
            Column("count"), Column("fastest", unit="s"), Column("median", unit="s"),
            Column("bus bandwidth", unit="B/s"),
        ),
        rows=tuple(
            (
                rank.trace.rank, m.kind.value, m.members, m.size, m.count, m.fastest, m.median,
                m.bandwidth,
            )
            for rank in ranks
            for m in rank.messages
        ),
        notes=(
            "Bandwidth is of the fastest of each kind: the one that waited least for other ranks.",
        ),
    )  # fmt: skip


def replayed(traces: Sequence[Trace]) -> Answer:
    """Spans of every lane, the links between tasks, and the critical path."""
    job = job_of(traces)
    ran = replay(job.graph)
    lanes, path, links = spans(ran), critical_path(ran), job.graph.counted()
    whole = lanes[-1]
    tables = [
        Table(
            title="Replay",
            columns=(
                Column("lane"), Column("tasks"), Column("measured", unit="s"),
                Column("replayed", unit="s"),
                Column("error", unit="%"),
            ),
            rows=tuple((s.lane, s.tasks, s.measured, s.replayed, s.error) for s in lanes),
        ),
        Table(
            title="Links",
            columns=(Column("why"), Column("count")),
            rows=tuple((why.replace("_", " "), count) for why, count in links.items()),
            notes=(
                f"{job.graph.inferred} of {len(job.graph.source)} links are inferred.",
                (
                    f"{job.meetings} collectives meet across ranks, {job.inferred} of them by "
                    "coinciding ends."
                ),
            ),
        ),
        Table(
            title="Critical path",
            columns=(Column("spent on"), Column("time", unit="s"), Column("share", unit="%")),
            rows=tuple((what, time, time / ran.makespan) for what, time in path.items()),
        ),
    ]  # fmt: skip
    document = {
        "lanes": [{f: getattr(s, f) for f in s.__slots__} | {"error": s.error} for s in lanes],
        "measured_seconds": whole.measured,
        "replayed_seconds": whole.replayed,
        "links": links,
        "inferred_links": job.graph.inferred,
        "meetings": {"count": job.meetings, "inferred": job.inferred},
        "clock_shifts_seconds": list(job.shifts),
        "critical_path_seconds": path,
    }
    return tables, document


def predicted(traces: Sequence[Trace], old: Layout, new: Layout) -> Answer:
    """Step time of the layout that is asked for, beside the traced one and the
    analytical estimate.
    """
    source = source_of(traces, old)
    prediction = predict(source, new)
    layouts = [format_strategy(layout.strategy) for layout in (old, new)]
    tables = [
        Table(
            title="Step time",
            columns=(
                Column("what"),
                Column("time", unit="s"),
                Column("from", unit="s"),
                Column("to", unit="s"),
            ),
            rows=(
                ("traced layout, measured", source.seconds, None, None),
                ("traced layout, from its own templates", source.rebuilt, None, None),
                ("asked for", prediction.seconds, prediction.lower, prediction.upper),
                ("asked for, analytical with learned constants", prediction.analytical, None, None),
                ("asked for, analytical with shipped constants", prediction.untaught, None, None),
            ),
            notes=(f"traced: {layouts[0]}", f"asked for: {layouts[1]}"),
        ),
        Table(
            title="Critical path of the layout asked for",
            columns=(Column("spent on"), Column("time", unit="s"), Column("share", unit="%")),
            rows=tuple(
                (what, time, time / sum(prediction.path.values()))
                for what, time in prediction.path.items()
            ),
        ),
        Table(
            title="Constants that the traces say",
            columns=(
                Column("constant"),
                Column("value"),
                Column("scatter", unit="%"),
                Column("samples"),
                Column("how", wide=True),
            ),
            rows=tuple((f.path, f.value, f.scatter, f.samples, f.what) for f in source.findings),
        ),
    ]
    document = {
        "traced": {
            "strategy": layouts[0],
            "measured_seconds": source.seconds,
            "rebuilt_seconds": source.rebuilt,
        },
        "predicted": {
            "strategy": layouts[1],
            "seconds": prediction.seconds,
            "lower": prediction.lower,
            "upper": prediction.upper,
            "analytical_seconds": prediction.analytical,
            "analytical_untaught_seconds": prediction.untaught,
            "critical_path_seconds": prediction.path,
        },
        "constants": source.findings,
    }
    return tables, document
