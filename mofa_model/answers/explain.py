"""`mofa explain`: the terms of a strategy's step and memory, or the measured runs like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field
from typing import Any, Final

import numpy as np

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

        if self.question.evidence:
            return super().shown()
        return [parts("Parts of a step", self.step_terms(), "{:.3g} s"), *super().shown()]


@asked_by(ExplainQuestion)
def explain(question: ExplainQuestion) -> ExplainAnswer:
    """Where the time and the memory of one strategy go, whether it fits or not."""
    require(question, more_examples={} if question.strategy else {"--strategy": "tp=2"})
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
    """The explanation of a layout by the measured runs that are most like it."""
    workload, cluster = problem.workload, problem.cluster
    share = float(estimate(workload, cluster, strategy).footprint.estimated)
    runs, place = measured_runs(), coordinates(workload, cluster, strategy, share)
    basis, features = basis_of(runs, place), features_of(runs, place)
    bands = {name: band_of(runs, place, name) for name in QUANTITIES}
    document = {
        "strategy": format_strategy(strategy),
        "model": problem.workload.model.name,
        "gpu": place.device,
        "gpus": int(problem.cluster.gpus),
        "stack": place.stack,
        "evidence": basis,
        "bands": {name: {"low": band.lower, "high": band.upper} for name, band in bands.items()},
        "features": features,
    }
    records = _feature_table(features)
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


def _feature_table(features: Sequence[Feature]) -> Table:
    """A table of a layout's features, with number and error of the measured runs that have each."""
    scopes = list(features[0].seen)
    columns = [Column("feature"), Column("value", align="left"), Column("beyond")]
    for number, name in enumerate(scopes):
        columns += [
            Column(name),
            Column(
                "error" if not number else f"error, {name}",
                unit="%",
                wide=0 < number < len(scopes) - 1,
            ),
        ]
    return Table(
        title="Measured runs by feature",
        columns=tuple(columns),
        rows=tuple(
            (
                feature.name,
                feature.value,
                round(feature.beyond, 2) or None,
                *(cell for seen in feature.seen.values() for cell in (seen.runs, seen.error)),
            )
            for feature in features
        ),
        notes=(_COUNTED,),
    )


def terms(workload: Workload, cluster: Cluster, strategy: Strategy) -> dict[str, Any]:
    """Every term of one strategy, in SI."""
    prediction = estimate(workload, cluster, strategy)
    layers = dict(zip(_names(workload.model.kinds), prediction.layer_times, strict=True))
    return {
        "strategy": format_strategy(strategy),
        "model": workload.model.name,
        "gpu": cluster.device.name,
        "gpus": int(cluster.gpus),
        "stack": cluster.calibration.stack,
        "evidence": basis_of(measured_runs(), coordinates(workload, cluster, strategy)),
        "summary": _summary(workload, cluster, strategy, prediction),
        "step": _terms(prediction.step_terms),
        "layers": {name: _terms(layer) for name, layer in layers.items()},
        "head": {name: float(part) for name, part in prediction.head_time.items()},
        "stages": _stages(workload, prediction),
        "memory": _memory(prediction.footprint, len(np.atleast_1d(prediction.stage_kinds.count))),
    }


def term_tables(document: Mapping[str, Any]) -> tuple[Table, ...]:
    """The terms for people: summary, step, layers, stages, memory."""
    tables = (_summary_table, _step_table, _layer_table, _stage_table, _memory_table)
    return tuple(table(document) for table in tables)


def term_records(document: Mapping[str, Any]) -> Table:
    """Every number of an explanation as a row for programs, in SI."""
    rows: list[tuple[Cell, ...]] = []

    def add(part: str, of: str | None, figures: Mapping[str, Any]) -> None:
        for name, number in figures.items():
            unit = "s" if name.endswith("seconds") else "B" if name.endswith("bytes") else ""
            rows.append((part, of, name, float(number), unit, None))

    def add_terms(part: str, of: str | None, terms: Mapping[str, Any]) -> None:
        for name, term in terms.items():
            rows.append((part, of, name, term["seconds"], "s", term["equation"]))

    add("summary", None, document["summary"])
    add_terms("step", None, document["step"])
    for kind, terms in document["layers"].items():
        add_terms("layer", kind, terms)
    rows += [("head", None, name, seconds, "s", None) for name, seconds in document["head"].items()]
    firsts = [str(stage["first"]) for stage in document["stages"]]
    for stage, first in zip(document["stages"], firsts, strict=True):
        add("stage", first, stage)
    for name, term in document["memory"].items():
        sizes = zip(firsts, term["bytes"], strict=True)
        rows += [("memory", first, name, size, "B", term["equation"]) for first, size in sizes]
    columns = ("part", "of", "quantity", "value", "unit", "equation")
    return Table(columns=tuple(map(Column, columns)), rows=tuple(rows))


def _names(kinds: Sequence[Layer]) -> list[str]:
    """Names of kinds of layers: with experts or plain, else by their blocks."""
    short = ["with experts" if kind.routed else "plain" for kind in kinds]
    return short if len(set(short)) == len(short) else [kind.name for kind in kinds]


def _summary(
    workload: Workload, cluster: Cluster, strategy: Strategy, prediction: Estimate
) -> dict[str, Any]:
    """The main figures of an estimate by their names in a JSON answer."""
    step = float(prediction.step_time)
    summary = {
        "step_seconds": step,
        "tokens_per_second": float(tokens_per_second(workload, step)),
        "mfu": float(utilisation(workload, cluster, step)),
        "micro_batches": int(prediction.micro_batches),
        "memory_bytes": float(prediction.footprint.peak),
        "memory_limit_bytes": float(device_memory_limit(cluster)),
        "host_bytes": float(prediction.footprint.host),
        "host_limit_bytes": float(host_memory_limit(cluster)),
        "host_stated": bool(cluster.host.stated),
        "fits": bool(prediction.footprint.fits(cluster)),
    }
    if (load := uneven_load(workload, strategy)) is not None:
        risk = overflow(workload, cluster, strategy)
        summary |= {"load_mean": float(load.mean), "load_tail": float(load.tail)}
        summary["out_of_memory"] = float(risk)
    if workload.training.documents is not None:
        from mofa_model.equations import documents

        summary["documents"] = float(documents.filled(workload.training, strategy.mbs))
    return summary


def _terms(record: StepTime | LayerTime) -> dict[str, Any]:
    return {
        term.name: {"seconds": float(getattr(record, term.name)), **_about(term)}
        for term in terms_of(type(record))
    }


def _about(term: Field[Any]) -> dict[str, str]:
    return {name: term.metadata[name] for name in ("equation", "meaning")}


def _stages(workload: Workload, prediction: Estimate) -> list[dict[str, Any]]:
    kinds, times = prediction.stage_kinds, prediction.stage_time
    routed = np.array([kind.routed for kind in workload.model.kinds])
    device, launches, seconds, memory = (
        np.broadcast_to(values, np.shape(kinds.count))
        for values in (times.device, times.launch_time, times.total, prediction.footprint.total)
    )
    return [
        {
            "stages": int(kinds.count[k]),
            "first": int(kinds.position[k]),
            "dense_layers": int(kinds.held[~routed, k].sum()),
            "expert_layers": int(kinds.held[routed, k].sum()),
            "embedding": bool(kinds.embedding[k]),
            "head": bool(kinds.head[k]),
            "device_seconds": float(device[k]),
            "launch_seconds": float(launches[k]),
            "seconds": float(seconds[k]),
            "memory_bytes": float(memory[k]),
        }
        for k in range(len(kinds.count))
    ]


def _memory(memory: Footprint, kinds: int) -> dict[str, Any]:
    return {
        term.name: {
            "bytes": [float(x) for x in np.broadcast_to(getattr(memory, term.name), (kinds,))],
            **_about(term),
        }
        for term in terms_of(Footprint)
    }


def _summary_table(document: Mapping[str, Any]) -> Table:
    """The first table of `mofa explain`: step, throughput, memory and whether it fits."""
    summary = document["summary"]
    memory = f"{summary['memory_bytes'] / GIB:.1f} of {summary['memory_limit_bytes'] / GIB:.1f} GiB"
    host = f"{summary['host_bytes'] / GIB:.0f} of {summary['host_limit_bytes'] / GIB:.0f} GiB"
    if summary["host_bytes"] and not summary["host_stated"]:
        host += " (nobody said it)"
    rows: tuple[tuple[Cell, ...], ...] = (
        ("step", format(summary["step_seconds"], "s")),
        ("tokens a second", f"{summary['tokens_per_second']:,.0f}"),
        ("MFU", f"{summary['mfu']:.1%}"),
        ("micro-batches", summary["micro_batches"]),
        ("device memory", f"{memory}: {'fits' if summary['fits'] else 'does not fit'}"),
        ("host memory of a node", host),
    )
    if "load_mean" in summary:
        load = f"{summary['load_mean']:.3g} times the mean, "
        load += f"{summary['load_tail']:.3g} at the {RISK:.0%} tail of a run"
        rows += (("fullest rank of experts", load),)
        rows += (("out of memory in a run", f"{summary['out_of_memory']:.2%}"),)
    if "documents" in summary:
        rows += (("documents in a sequence", f"{summary['documents']:.1%} of its tokens"),)
    title = (
        f"{document['model']} on {document['gpus']} {document['gpu']} ({document['evidence'].of}): "
        f"{document['strategy']}; {document['evidence'].evidence}"
    )
    columns = (Column("quantity"), Column("value", align="left"))
    return Table(title=title, columns=columns, rows=rows)


def _step_table(document: Mapping[str, Any]) -> Table:
    total = document["summary"]["step_seconds"]
    rows = [
        (name, term["seconds"], term["seconds"] / total, term["equation"], term["meaning"])
        for name, term in document["step"].items()
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


def _layer_table(document: Mapping[str, Any]) -> Table:
    kinds = list(document["layers"])
    columns = (
        Column("term"),
        *(Column(kind, unit="s") for kind in kinds),
        Column("equation"),
        Column("meaning"),
    )
    rows = tuple(
        (
            term.name,
            *(document["layers"][kind][term.name]["seconds"] for kind in kinds),
            *_about(term).values(),
        )
        for term in terms_of(LayerTime)
    )
    note = f"Head and loss, forward and backward: {format(sum(document['head'].values()), 's')}."
    return Table(title="One layer, one micro-batch", columns=columns, rows=rows, notes=(note,))


def _stage_table(document: Mapping[str, Any]) -> Table:
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
            stage["stages"],
            stage["first"],
            stage["dense_layers"] + stage["expert_layers"],
            stage["expert_layers"],
            " and ".join(name for name in ("embedding", "head") if stage[name]) or "layers",
            stage["device_seconds"],
            stage["launch_seconds"],
            stage["seconds"],
            stage["memory_bytes"],
        )
        for stage in document["stages"]
    )
    return Table(title="Stages, one micro-batch", columns=columns, rows=rows)


def _memory_table(document: Mapping[str, Any]) -> Table:
    firsts = [stage["first"] for stage in document["stages"]]
    columns = (
        Column("term"),
        *(Column(f"stage {first}", unit="B") for first in firsts),
        Column("equation"),
        Column("meaning", wide=len(firsts) > 2),
    )
    rows = [
        (name, *term["bytes"], term["equation"], term["meaning"])
        for name, term in document["memory"].items()
    ]
    totals = [stage["memory_bytes"] for stage in document["stages"]]
    rows.append(("peak", *totals, "(6)", "all of it"))
    return Table(title="Device memory by kind of stage", columns=columns, rows=tuple(rows))
