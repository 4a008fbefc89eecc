"""Predicted against measured kernels: with the surfaces that hold, with families of shapes left
out, or with the relative's.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mofa_lab.kernels import fit
from mofa_lab.kernels.device import FEWEST, calls_of
from mofa_lab.kernels.tables import Calls
from mofa_model.files import from_json, read_text, write_text
from mofa_model.kernels import OPERATORS, Timer
from mofa_model.kernels.surface import Floats
from mofa_model.presets.kernels import kernels, relative, sheet

PARTS: Final = 5
"""One in so many families is left out, by the crc32 of its columns joined by a slash."""
NCCL: Final = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
ROWS: Final = 8.0
"""Rows an expert from which grouped GEMM is judged."""


@dataclass(frozen=True, kw_only=True)
class KernelComparison:
    """Calls with their predictions; a prediction that cannot be made is not a number."""

    calls: Calls
    """What was measured."""
    predicted: Floats
    """What was predicted. [s]"""
    reason: str = ""
    """Why nothing was predicted."""


def compared(
    files: Iterable[str],
    left_out: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> list[KernelComparison]:
    """All calls of the tables beside their predictions."""
    comparisons = []
    for calls in calls_of(files):
        way = {None: _shipped, "family": _folds, "device": _relative}[left_out]
        comparisons.append(way(calls))
        progress(f"{calls.device} {calls.operator} {calls.form}")
    return comparisons


def _shipped(calls: Calls) -> KernelComparison:
    held = kernels(calls.device)
    form = _held_form(
        [form for operator, form in held.surfaces if operator == calls.operator], calls.form
    )
    if form is None:
        return _none(calls, f"no surface of {calls.operator} {calls.form}")
    return KernelComparison(calls=calls, predicted=_asked(calls, held.timer(calls.operator, form)))


def _held_form(forms: Sequence[str], wanted: str) -> str | None:
    """The form to predict with: the wanted one, or the newest measured version of its library."""
    if wanted in forms:
        return wanted
    library = [form for form in forms if wanted.startswith("nccl ") and form.startswith("nccl ")]
    return max(
        library, key=lambda form: [int(part) for part in re.findall(r"\d+", form)], default=None
    )


def _relative(calls: Calls) -> KernelComparison:
    """Predictions by the surfaces of a relative device, as if this one had not been measured."""
    of = relative(calls.device)
    surface = kernels(of).surfaces.get((calls.operator, calls.form)) if of else None
    if surface is None or kernels(of or "").measured[calls.operator, calls.form] != of:
        return _none(calls, "no relative was measured")
    timer = Timer(
        work=OPERATORS[calls.operator].work,
        surface=surface,
        sheet=sheet(calls.device, surface.format),
    )
    return KernelComparison(calls=calls, predicted=_asked(calls, timer))


def _folds(calls: Calls) -> KernelComparison:
    """Calls of one part of the model families, predicted from a fit to the others, part by part."""
    out = np.array([zlib.crc32(family.encode()) % PARTS == 0 for family in calls.families.tolist()])
    predicted = np.full(len(calls.seconds), np.nan)
    if np.any(out) and np.sum(~out) >= FEWEST:
        promised = sheet(calls.device, calls.format)
        surface = fit.surface(calls.rows(~out), promised, "")
        timer = Timer(work=OPERATORS[calls.operator].work, surface=surface, sheet=promised)
        predicted[out] = _asked(calls.rows(out), timer)
    return KernelComparison(
        calls=calls, predicted=predicted, reason="not among the families that are left out"
    )


def _asked(calls: Calls, timer: Timer) -> Floats:
    return np.broadcast_to(timer.seconds(**calls.sizes), calls.seconds.shape).astype(float)


def _none(calls: Calls, reason: str) -> KernelComparison:
    return KernelComparison(
        calls=calls, predicted=np.full(len(calls.seconds), np.nan), reason=reason
    )


def document(comparisons: Sequence[KernelComparison]) -> dict[str, Any]:
    """Summary and cases, as `mofa validate kernels` answers them."""
    cases: list[dict[str, Any]] = []
    missing: list[dict[str, Any]] = []
    for comparison in comparisons:
        op = f"{comparison.calls.operator} {comparison.calls.form}"
        rows = zip(
            comparison.calls.ids.tolist(),
            comparison.predicted.tolist(),
            comparison.calls.seconds.tolist(),
            strict=True,
        )
        for name, predicted, measured in rows:
            case = {"id": name, "device": comparison.calls.device, "op": op}
            if np.isnan(predicted):
                missing.append(case | {"reason": comparison.reason})
            else:
                cases.append(case | {"predicted_s": predicted, "measured_s": measured})
    groups = [
        {"device": device, "op": op, **spread}
        for (device, op), spread in sorted(grouped(comparisons).items())
    ]
    return {
        "summary": {
            **_spread(np.concatenate([_errors(comparison) for comparison in comparisons])),
            "groups": groups,
        },
        "cases": cases,
        "unsupported": missing,
    }


def grouped(comparisons: Sequence[KernelComparison]) -> Mapping[tuple[str, str], dict[str, Any]]:
    """Errors by device and group of operators."""
    parts: dict[tuple[str, str], list[Floats]] = {}
    for comparison in comparisons:
        for group, rows in _groups(comparison.calls):
            parts.setdefault((comparison.calls.device, group), []).append(_errors(comparison, rows))
    joined = {key: np.concatenate(errors) for key, errors in parts.items()}
    return {key: _spread(errors) for key, errors in joined.items() if len(errors)}


def record(file: str, way: str, groups: Sequence[Mapping[str, Any]]) -> None:
    """Keep a summary, beside those of the other ways that the file holds."""
    held = from_json(read_text(file), file) if Path(file).exists() else {}
    held[way] = [
        {
            name: float(f"{value:.4g}") if isinstance(value, float) else value
            for name, value in group.items()
        }
        for group in groups
    ]
    write_text(file, json.dumps(held, indent=1) + "\n")


def _groups(calls: Calls) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """What is judged together."""
    whole = np.ones(len(calls.seconds), dtype=bool)
    if calls.operator == "grouped-gemm":
        each = calls.sizes["tokens"] * calls.sizes["topk"] / calls.sizes["experts"]
        yield f"grouped-gemm {calls.form}, {ROWS:g} rows an expert and more", each >= ROWS
    elif calls.operator in NCCL and calls.form.startswith("nccl"):
        yield "collectives", whole
    elif calls.operator in NCCL:
        yield "all-reduce of inference engines", whole
    elif calls.operator.endswith("-attention"):
        yield f"{calls.operator} {calls.form.split()[0]}", whole
    elif calls.operator in {"gemm", "latent-block"}:
        yield f"{calls.operator} {calls.form}", whole
    else:
        yield calls.operator, whole


def _errors(comparison: KernelComparison, rows: NDArray[np.bool_] | None = None) -> Floats:
    errors = np.abs(comparison.predicted / comparison.calls.seconds - 1.0)
    chosen = ~np.isnan(errors) if rows is None else rows & ~np.isnan(errors)
    return errors[chosen]


def _spread(errors: Floats) -> dict[str, Any]:
    if not len(errors):
        return {"n": 0, "median_ape": None, "mape": None, "p90_ape": None}
    median, p90 = np.percentile(errors, (50, 90)).tolist()
    return {"n": len(errors), "median_ape": median, "mape": float(np.mean(errors)), "p90_ape": p90}
