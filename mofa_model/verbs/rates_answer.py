"""The answer of `mofa rates` in tables. Not a verb."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mofa_model import output
from mofa_model.tables import Column, Table
from mofa_model.units import Range

if TYPE_CHECKING:
    from mofa_model.reliability.observed import Assessment


def tables(found: Assessment) -> list[Table]:
    """Rates with their verdicts, recovery times, the worst nodes."""
    columns = (
        Column("class"),
        Column("failures"),
        Column("expected", wide=True),
        Column("assumed"),
        Column("observed"),
        Column("lower"),
        Column("upper"),
        Column("exact lower", wide=True),
        Column("exact upper", wide=True),
        Column("prior", unit="%", wide=True),
        Column("evidence", wide=True),
        Column("verdict"),
        Column("since", wide=True),
    )
    rows = tuple(
        (r.name, r.failures, r.expected, r.assumed, r.mean, r.lower, r.upper, r.exact_lower, r.exact_upper,
         r.prior_weight, r.evidence, r.verdict.value, r.since)
        for r in found.rates
    )  # fmt: skip
    covered = "unknown" if found.coverage is None else f"{100 * found.coverage:.1f} %"
    notes = [f"Exposure {found.node_days:g} node-days, coverage {covered}.", *found.notes]
    notes += [
        f"Since {r.since} {r.name} fails {r.ratio:.2g} times as often as assumed."
        for r in found.rates
        if r.since is not None and r.ratio is not None
    ]
    if found.trend is not None:
        score, p = found.trend
        word = "no trend" if p >= 0.05 else "more frequent" if score > 0 else "less frequent"
        notes.append(f"Trend: {word} (Laplace {score:.2f}, p = {p:.3g}).")
    tables = [Table(title="Failures per node-day", columns=columns, rows=rows, notes=tuple(notes))]
    if found.outlooks:
        tables.append(
            Table(
                title="Failures of all classes in the next days",
                columns=(Column("days"), Column("lower"), Column("expected"), Column("upper")),
                rows=tuple((one.days, one.lower, one.mean, one.upper) for one in found.outlooks),
                notes=("With the exposure of the last week.",),
            )
        )
    if found.recoveries:
        tables.append(
            Table(
                title="Mean recovery time",
                columns=(
                    Column("class"),
                    *(Column(name, unit="s") for name in ("lower", "mean", "upper")),
                ),
                rows=tuple(
                    (name, r.mean.lower, r.mean.target, r.mean.upper)
                    for name, r in found.recoveries.items()
                ),
            )
        )
    if found.dispersion is not None:
        d = found.dispersion
        word = (
            "nodes fail alike" if d.p_value >= 0.05 else "some nodes fail more than chance allows"
        )
        tables.append(
            Table(
                title="Worst nodes",
                columns=(Column("node"), Column("failures"), Column("chance")),
                rows=tuple((name, count, float(chance)) for name, count, chance in d.worst),
                notes=(f"Dispersion {d.index:.2f}, p = {d.p_value:.3g}: {word}.",),
            )
        )
    return tables


def document(found: Assessment) -> dict[str, Any]:
    """The same for programs."""
    return {
        **output.as_data(found),
        "shares": {name: _bounds(share) for name, share in found.shares.items()},
        "recoveries": {
            name: _bounds(seen.mean) | {"law": output.as_data(seen.law)}
            for name, seen in found.recoveries.items()
        },
        "contradicted": found.contradicted,
    }


def _bounds(posterior: Range) -> dict[str, Any]:
    return {"mean": posterior.target, "low": posterior.lower, "high": posterior.upper}
