"""What a prediction rests on, in tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mofa_model.bands import (
    Basis,
    Feature,
    bands_of,
    basis_of,
    coordinates,
    features_of,
    measured_runs,
)
from mofa_model.search import SearchCase
from mofa_model.strategy import Strategy
from mofa_model.strategy_text import format_strategy
from mofa_model.tables import Column, Table
from mofa_model.units import Range

_DISTANCE: Final = (
    "A run says half as much for each unit of distance. The error is predicted over measured step time - 1, by a fit that did not "
    "see the run's group; `there` is what is another."
)
_COUNTED: Final = (
    "How many measured runs have each feature, and their median error by fits that did not see their groups: here, of the stack on "
    "these devices; of the stack anywhere; on these devices; in this format; all. Sizes count runs of half to twice as much."
)


def evidence(
    problem: SearchCase, strategy: Strategy
) -> tuple[list[Table], Mapping[str, Any], Table]:
    """All that is known of runs like one layout: tables, the same for machines, and rows for programs."""
    runs, asked = measured_runs(), coordinates(problem.workload, problem.cluster, strategy)
    basis, found = basis_of(runs, asked), features_of(runs, asked)
    bands = bands_of(runs, asked)
    document = {
        "strategy": format_strategy(strategy),
        "model": problem.workload.model.name,
        "gpu": asked.device,
        "gpus": int(problem.cluster.gpus),
        "stack": asked.stack,
        "evidence": basis,
        "bands": {name: {"low": band.lower, "high": band.upper} for name, band in bands.items()},
        "features": found,
    }
    told = features(found)
    return [_first(document, basis, bands), nearest(basis), told], document, told


def _first(document: Mapping[str, Any], basis: Basis, bands: Mapping[str, Range]) -> Table:
    place = f"{document['model']} on {document['gpus']} {document['gpu']} ({basis.of})"
    rows = [("nearest run", basis.nearest_run)]
    rows += [
        (f"{name}, band", f"{band.lower:.3g} to {band.upper:.3g} of the estimate")
        for name, band in bands.items()
    ]
    rows.append(("confidence", f"{basis.confidence:.0%}"))
    return Table(
        title=f"{place}: {document['strategy']}; {basis.evidence}",
        columns=(Column("known"), Column("value", align="left")),
        rows=tuple(rows),
    )


def nearest(basis: Basis) -> Table:
    """The nearest runs."""
    return Table(
        title="Nearest measured runs",
        columns=(
            Column("run"), Column("distance"), Column("error", unit="%"), Column("there", align="left"),
        ),
        rows=tuple((one.name, round(one.distance, 2), one.error, " ".join(one.differs)) for one in basis.nearest),
        notes=(_DISTANCE,),
    )  # fmt: skip


def features(found: Sequence[Feature]) -> Table:
    """The evidence map of one layout."""
    where = list(found[0].seen)
    columns = [Column("feature"), Column("value", align="left")]
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
                *(cell for seen in one.seen.values() for cell in (seen.runs, seen.error)),
            )
            for one in found
        ),
        notes=(_COUNTED,),
    )
