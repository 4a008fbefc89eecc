"""One strategy: the terms of its step and its memory, or the measured runs that are like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_model.answers.advise_tables import nearest_runs
from mofa_model.answers.answer import UserAnswer, asked_by
from mofa_model.answers.questions import ExplainQuestion
from mofa_model.answers.training import layout_of, problems_of, require
from mofa_model.bands.coordinates import coordinates
from mofa_model.bands.evidence import Basis, Feature, basis_of, features_of
from mofa_model.bands.odds import band_of
from mofa_model.bands.table import QUANTITIES, measured_runs
from mofa_model.blocks import Layer
from mofa_model.estimate import Estimate, StepTime, estimate
from mofa_model.estimate.expert_load import RISK, uneven_load
from mofa_model.estimate.step import STEP_NAMES, overflow, tokens_per_second, utilisation
from mofa_model.estimate.terms import (
    Footprint,
    LayerTime,
    device_memory_limit,
    host_memory_limit,
    terms_of,
)
from mofa_model.records import dataclass
from mofa_model.search import SearchCase
from mofa_model.spec import Cluster, Workload
from mofa_model.strategy import Strategy, format_strategy
from mofa_model.tables import Cell, Column, Table
from mofa_model.units import GIB, Range, format

_COUNTED: Final = (
    "How many measured runs have each feature, and their median error by fits without their groups:"
    " here, of the stack's family on these devices; of its family anywhere; on these devices; in"
    " this format; all. Sizes count runs of half to twice as much. `beyond` counts doublings beyond"
    " what its family's runs had; one that only another family has is one, one that none has two."
)


@dataclass(frozen=True, kw_only=True, repr=False)
class ExplainAnswer(UserAnswer):
    """The terms of a strategy, or the measured runs that it rests on."""

    question: ExplainQuestion
    """What was asked."""
    document: Mapping[str, Any]
    """Everything that is said, as plain data."""
    tables: tuple[Table, ...]
    """What people read."""
    records: Table
    """A row for each term, in SI."""

    @property
    def step_seconds(self) -> float:
        """One optimizer step. [s]"""
        return float(self.document["summary"]["step_seconds"])

    @property
    def memory_bytes(self) -> float:
        """Device memory of the fullest stage. [B]"""
        return float(self.document["summary"]["memory_bytes"])

    @property
    def fits(self) -> bool:
        """Whether the estimate fits the device."""
        return bool(self.document["summary"]["fits"])

    def step_terms(self) -> dict[str, float]:
        """Terms of the step, by what they are called beside an advice. [s]"""
        return {STEP_NAMES[name]: term["seconds"] for name, term in self.document["step"].items()}

    def shown(self) -> Sequence[Any]:
        """The parts of the step as a bar, and the tables."""
        from mofa_model.page.figures import parts

        drawn = (
            []
            if self.question.evidence
            else [parts("Parts of a step", self.step_terms(), "{:.3g} s")]
        )
        return [*drawn, *super().shown()]


@asked_by(ExplainQuestion)
def explain(question: ExplainQuestion) -> ExplainAnswer:
    """Where the time and the memory of one strategy go, whether it fits or not."""
    require(question, first={} if question.strategy else {"--strategy": "tp=2"})
    problem = problems_of(question)[0]
    strategy = layout_of(str(question.strategy), problem, "--strategy")
    if question.evidence:
        return _evidence(question, problem, strategy)
    document = terms(problem.workload, problem.cluster, strategy)
    return ExplainAnswer(
        question=question,
        document=document,
        tables=term_tables(document),
        records=term_records(document),
    )


def _evidence(question: ExplainQuestion, problem: SearchCase, strategy: Strategy) -> ExplainAnswer:
    """The measured runs that say something of a layout, as the explanation shows them."""
    workload, cluster = problem.workload, problem.cluster
    share = float(estimate(workload, cluster, strategy).footprint.estimated)
    runs, here = measured_runs(), coordinates(workload, cluster, strategy, share)
    basis, seen = basis_of(runs, here), features_of(runs, here)
    bands = {name: band_of(runs, here, name) for name in QUANTITIES}
    document = {
        "strategy": format_strategy(strategy),
        "model": problem.workload.model.name,
        "gpu": here.device,
        "gpus": int(problem.cluster.gpus),
        "stack": here.stack,
        "evidence": basis,
        "bands": {name: {"low": band.lower, "high": band.upper} for name, band in bands.items()},
        "features": seen,
    }
    records = _feature_table(seen)
    tables = (_evidence_table(document, basis, bands), nearest_runs(basis), records)
    return ExplainAnswer(question=question, document=document, tables=tables, records=records)


def _evidence_table(document: Mapping[str, Any], basis: Basis, bands: Mapping[str, Range]) -> Table:
    place = f"{document['model']} on {document['gpus']} {document['gpu']} ({basis.of})"
    rows = [
        (f"{name}, band", f"{band.lower:.3g} to {band.upper:.3g} of the estimate")
        for name, band in bands.items()
    ]
    rows.append(("confidence", f"{basis.confidence:.0%}"))
    return Table(
        title=f"{place}: {document['strategy']}; {basis.evidence}",
        columns=(Column("known"), Column("value", align="left")),
        rows=tuple(rows),
    )


def _feature_table(found: Sequence[Feature]) -> Table:
    """A table of a layout's features, with the measured runs that have each."""
    where = list(found[0].seen)
    columns = [Column("feature"), Column("value", align="left"), Column("beyond")]
    for at, name in enumerate(where):
        columns += [
            Column(name),
            Column("error" if not at else f"error, {name}", unit="%", wide=0 < at < len(where) - 1),
        ]
    return Table(
        title="Measured runs by feature",
        columns=tuple(columns),
        rows=tuple(
            (
                one.name,
                one.value,
                round(one.beyond, 2) or None,
                *(cell for seen in one.seen.values() for cell in (seen.runs, seen.error)),
            )
            for one in found
        ),
        notes=(_COUNTED,),
    )


def terms(workload: Workload, cluster: Cluster, strategy: Strategy) -> dict[str, Any]:
    """Every term of one strategy, in SI."""
    found = estimate(workload, cluster, strategy)
    layers = dict(zip(_names(workload.model.kinds), found.layer_times, strict=True))
    return {
        "strategy": format_strategy(strategy),
        "model": workload.model.name,
        "gpu": cluster.device.name,
        "gpus": int(cluster.gpus),
        "stack": cluster.calibration.stack,
        "evidence": basis_of(measured_runs(), coordinates(workload, cluster, strategy)),
        "summary": _summary(workload, cluster, strategy, found),
        "step": _terms(found.step_terms),
        "layers": {name: _terms(layer) for name, layer in layers.items()},
        "head": {name: float(part) for name, part in found.head_time.items()},
        "stages": _stages(workload, found),
        "memory": _memory(found.footprint, len(np.atleast_1d(found.stage_kinds.count))),
    }


def term_tables(document: Mapping[str, Any]) -> tuple[Table, ...]:
    """The terms for people: summary, step, layers, stages, memory."""
    made = (_summary_table, _step_table, _layer_table, _stage_table, _memory_table)
    return tuple(table(document) for table in made)


def term_records(document: Mapping[str, Any]) -> Table:
    """Every number of an explanation as a row for programs, in SI."""
    rows: list[tuple[Cell, ...]] = []
    for name, number in document["summary"].items():
        unit = "s" if name.endswith("seconds") else "B" if name.endswith("bytes") else ""
        rows.append(("summary", None, name, float(number), unit, None))
    for name, term in document["step"].items():
        rows.append(("step", None, name, term["seconds"], "s", term["equation"]))
    for kind, terms in document["layers"].items():
        rows += [
            ("layer", kind, name, term["seconds"], "s", term["equation"])
            for name, term in terms.items()
        ]
    rows += [("head", None, name, seconds, "s", None) for name, seconds in document["head"].items()]
    firsts = [str(stage["first"]) for stage in document["stages"]]
    for stage, first in zip(document["stages"], firsts, strict=True):
        for name, number in stage.items():
            unit = "s" if name.endswith("seconds") else "B" if name.endswith("bytes") else ""
            rows.append(("stage", first, name, float(number), unit, None))
    for name, term in document["memory"].items():
        sizes = zip(firsts, term["bytes"], strict=True)
        rows += [("memory", first, name, size, "B", term["equation"]) for first, size in sizes]
    columns = ("part", "of", "quantity", "value", "unit", "equation")
    return Table(columns=tuple(map(Column, columns)), rows=tuple(rows))


def _names(kinds: Sequence[Layer]) -> list[str]:
    """Names of kinds of layers: with experts or plain, else by their blocks."""
    short = ["with experts" if kind.routed else "plain" for kind in kinds]
    if len(set(short)) == len(short):
        return short
    return [kind.name for kind in kinds]


def _summary(
    workload: Workload, cluster: Cluster, strategy: Strategy, found: Estimate
) -> dict[str, Any]:
    """The main figures of an estimate by their names in a JSON answer."""
    step, load, uneven = (
        float(found.step_time),
        uneven_load(workload, strategy),
        dict[str, float](),
    )
    if load is not None:
        risk = overflow(workload, cluster, strategy)
        uneven = {
            "load_mean": float(load.mean),
            "load_tail": float(load.tail),
            "out_of_memory": float(risk),
        }
    if workload.training.documents is not None:
        from mofa_model.equations import documents

        uneven["documents"] = float(documents.filled(workload.training, strategy.mbs))
    return {
        "step_seconds": step,
        "tokens_per_second": float(tokens_per_second(workload, step)),
        "mfu": float(utilisation(workload, cluster, step)),
        "micro_batches": int(found.micro_batches),
        "memory_bytes": float(found.footprint.peak),
        "memory_limit_bytes": float(device_memory_limit(cluster)),
        "host_bytes": float(found.footprint.host),
        "host_limit_bytes": float(host_memory_limit(cluster)),
        "host_stated": bool(cluster.host.stated),
        "fits": bool(found.footprint.fits(cluster)),
        **uneven,
    }


def _terms(record: StepTime | LayerTime) -> dict[str, Any]:
    return {
        item.name: {"seconds": float(getattr(record, item.name)), **_about(item)}
        for item in terms_of(type(record))
    }


def _about(item: Field[Any]) -> dict[str, str]:
    return {name: item.metadata[name] for name in ("equation", "meaning")}


def _stages(workload: Workload, found: Estimate) -> list[dict[str, Any]]:
    s, t = found.stage_kinds, found.stage_time
    routed = np.array([kind.routed for kind in workload.model.kinds])
    peak = np.broadcast_to(found.footprint.total, np.shape(s.count))
    return [
        {
            "stages": int(s.count[k]),
            "first": int(s.position[k]),
            "dense_layers": int(s.held[~routed, k].sum()),
            "expert_layers": int(s.held[routed, k].sum()),
            "embedding": bool(s.embedding[k]),
            "head": bool(s.head[k]),
            "device_seconds": float(_at(t.device, k)),
            "launch_seconds": float(_at(t.launch_time, k)),
            "seconds": float(_at(t.total, k)),
            "memory_bytes": float(peak[k]),
        }
        for k in range(len(s.count))
    ]


def _memory(memory: Footprint, kinds: int) -> dict[str, Any]:
    return {
        item.name: {
            "bytes": [float(x) for x in np.broadcast_to(getattr(memory, item.name), (kinds,))],
            **_about(item),
        }
        for item in terms_of(Footprint)
    }


def _at(values: Any, kind: int) -> Any:
    array: NDArray[Any] = np.asarray(values)
    return array[kind] if array.ndim else array


def _summary_table(d: Mapping[str, Any]) -> Table:
    """The first table of `mofa explain`: step, throughput, memory and whether it fits."""
    s = d["summary"]
    rows: tuple[tuple[Cell, ...], ...] = (
        ("step", format(s["step_seconds"], "s")),
        ("tokens a second", f"{s['tokens_per_second']:,.0f}"),
        ("MFU", f"{s['mfu']:.1%}"),
        ("micro-batches", s["micro_batches"]),
        (
            "device memory",
            (
                f"{s['memory_bytes'] / GIB:.1f} of {s['memory_limit_bytes'] / GIB:.1f} GiB: "
                f"{'fits' if s['fits'] else 'does not fit'}"
            ),
        ),
        (
            "host memory of a node",
            f"{s['host_bytes'] / GIB:.0f} of {s['host_limit_bytes'] / GIB:.0f} GiB"
            + ("" if s["host_stated"] else " (nobody said it)" if s["host_bytes"] else ""),
        ),
    )
    if "load_mean" in s:
        load = (
            f"{s['load_mean']:.3g} times the mean, "
            f"{s['load_tail']:.3g} at the {RISK:.0%} tail of a run"
        )
        rows += (
            ("fullest rank of experts", load),
            ("out of memory in a run", f"{s['out_of_memory']:.2%}"),
        )
    if "documents" in s:
        rows += (("documents in a sequence", f"{s['documents']:.1%} of its tokens"),)
    title = (
        f"{d['model']} on {d['gpus']} {d['gpu']} ({d['evidence'].of}): "
        f"{d['strategy']}; {d['evidence'].evidence}"
    )
    return Table(
        title=title, columns=(Column("quantity"), Column("value", align="left")), rows=rows
    )


def _step_table(d: Mapping[str, Any]) -> Table:
    total = d["summary"]["step_seconds"]
    rows = [
        (name, term["seconds"], term["seconds"] / total, term["equation"], term["meaning"])
        for name, term in d["step"].items()
    ]
    rows.append(("step", total, 1.0, "(14)", "all of it"))
    return Table(title="Step", columns=_TERM_COLUMNS, rows=tuple(rows))


_TERM_COLUMNS: Final = (
    Column("term"),
    Column("time", unit="s"),
    Column("share", unit="%"),
    Column("equation"),
    Column("meaning"),
)


def _layer_table(d: Mapping[str, Any]) -> Table:
    kinds = list(d["layers"])
    columns = (
        Column("term"),
        *(Column(kind, unit="s") for kind in kinds),
        Column("equation"),
        Column("meaning"),
    )
    rows = tuple(
        (
            item.name,
            *(d["layers"][kind][item.name]["seconds"] for kind in kinds),
            *_about(item).values(),
        )
        for item in terms_of(LayerTime)
    )
    note = f"Head and loss, forward and backward: {format(sum(d['head'].values()), 's')}."
    return Table(title="One layer, one micro-batch", columns=columns, rows=rows, notes=(note,))


def _stage_table(d: Mapping[str, Any]) -> Table:
    columns = (
        Column("stages"),
        Column("first"),
        Column("layers"),
        Column("with experts", wide=True),
        Column("holds"),
        Column("device", unit="s"),
        Column("launches", unit="s"),
        Column("time", unit="s"),
        Column("memory", unit="B"),
    )
    rows = tuple(
        (
            s["stages"],
            s["first"],
            s["dense_layers"] + s["expert_layers"],
            s["expert_layers"],
            " and ".join(name for name in ("embedding", "head") if s[name]) or "layers",
            s["device_seconds"],
            s["launch_seconds"],
            s["seconds"],
            s["memory_bytes"],
        )
        for s in d["stages"]
    )
    return Table(title="Stages, one micro-batch", columns=columns, rows=rows)


def _memory_table(d: Mapping[str, Any]) -> Table:
    firsts = [s["first"] for s in d["stages"]]
    columns = (
        Column("term"),
        *(Column(f"stage {first}", unit="B") for first in firsts),
        Column("equation"),
        Column("meaning", wide=len(firsts) > 2),
    )
    rows = [
        (name, *term["bytes"], term["equation"], term["meaning"])
        for name, term in d["memory"].items()
    ]
    totals = [s["memory_bytes"] for s in d["stages"]]
    rows.append(("peak", *totals, "(6)", "all of it"))
    return Table(title="Device memory by kind of stage", columns=columns, rows=tuple(rows))
