"""The plots of docs/validation.md as small SVG files, the same bytes for the same figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mofa_lab.fitting.campaign import Calibrated, CampaignResult
from mofa_lab.fitting.figures import (
    STEP,
    SUBJECTS,
    errors,
    left_out_values,
    part_of,
    regret,
)
from mofa_lab.fitting.sets import set_of
from mofa_lab.validate.odds_report import RECORD
from mofa_model import presets
from mofa_model.calibrate.fit import FitRow
from mofa_model.files import from_json, read_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SETS: Final = ("published", "nanotron", "vtrain")
_STYLE: Final = {
    "svg.hashsalt": "mofa",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_COLORS: Final = (
    "#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5",
    "#9c6b4e", "#9498a0",
)  # fmt: skip


def write(result: CampaignResult, folder: Path) -> list[str]:
    """Draw every plot into a folder; the result is the names of the files."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    names = []
    with plt.rc_context(_STYLE):  # type: ignore[arg-type]
        for name, draw in PLOTS.items():
            figure = draw(result)
            figure.savefig(folder / name, metadata={"Date": None}, bbox_inches="tight", dpi=110)
            plt.close(figure)
            names.append(name)
    return names


def _panels(count: int, width: float = 3.4, height: float = 3.4) -> tuple[Figure, Sequence[Axes]]:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, count, figsize=(width * count, height), layout="constrained")
    return figure, list(np.atleast_1d(axes))


def _against(key: Callable[[FitRow], str]) -> Callable[[CampaignResult], Figure]:
    """Predicted against measured step times, publisher or group left out, coloured by a property of
    the run.
    """

    def draw(result: CampaignResult) -> Figure:
        part = result.time
        figure, axes = _panels(3)
        for ax, name in zip(axes, SETS, strict=True):
            values = left_out_values(part, name)
            rows = [i for i, row in enumerate(part.evidence.rows) if _is_step(row, name)]
            kinds = sorted({key(part.evidence.rows[i]) for i in rows})
            for number, kind in enumerate(kinds):
                of_kind = [i for i in rows if key(part.evidence.rows[i]) == kind]
                measured, predicted = (
                    np.exp(part.evidence.measured[of_kind]),
                    np.exp(values[of_kind]),
                )
                color = _COLORS[number % len(_COLORS)]
                ax.scatter(
                    measured,
                    predicted,
                    s=7,
                    alpha=0.6,
                    lw=0,
                    color=color,
                    label=kind,
                    rasterized=True,
                )
            _diagonal(ax, np.exp(part.evidence.measured[rows]))
            ax.set(xscale="log", yscale="log", title=name, xlabel="measured step [s]")
            ax.legend(frameon=False, fontsize=6, loc="lower right", handletextpad=0.1)
        axes[0].set_ylabel("predicted step [s]")
        return figure

    return draw


def _is_step(row: FitRow, name: str) -> bool:
    return set_of(row.case) == name and row.figure is not None and row.figure.quantity == STEP


def _diagonal(ax: Axes, values: Any) -> None:
    if not len(values):
        return
    ends = np.array([values.min(), values.max()])
    ax.plot(ends, ends, color="#222222", lw=0.8)
    for factor in (0.9, 1.1):
        ax.plot(ends, factor * ends, color="#222222", lw=0.4, ls=":")


def _residuals(result: CampaignResult) -> Figure:
    """Histogram of errors, with the publisher or the group left out and in-sample."""
    figure, axes = _panels(3, height=2.6)
    edges = np.linspace(-0.5, 0.5, 51).tolist()
    for ax, name in zip(axes, SETS, strict=True):
        by_fit: Mapping[str, Any] = {
            "left out": left_out_values(result.time, name),
            "fitted": result.time.values,
        }
        for number, (label, values) in enumerate(by_fit.items()):
            inside = [e for e in _step_errors(result.time, values, name) if np.isfinite(e)]
            clipped = np.clip(inside, edges[0], edges[-1])
            ax.hist(clipped, edges, histtype="step", color=_COLORS[number], lw=1.2, label=label)
        ax.axvline(0, color="#222222", lw=0.6)
        ax.set(title=name, xlabel="predicted / measured - 1 (ends: beyond)")
        ax.legend(frameon=False, fontsize=7)
    axes[0].set_ylabel("runs")
    return figure


def _step_errors(part: Calibrated, values: Any, name: str) -> list[float]:
    return list(errors(part, values, lambda row: _is_step(row, name)).values())


def _regrets(result: CampaignResult) -> Figure:
    """Throughput that the pick of each group loses, in-sample and with the group left out."""
    figure, axes = _panels(2, width=5.1, height=3.8)
    for ax, name in zip(axes, ("nanotron", "vtrain"), strict=True):
        by_fit = {"all runs fitted": regret(result.time, result.time.values, name)["by_group"]}
        if "group" in result.time.validated:
            by_fit["group left out"] = regret(
                result.time, result.time.validated["group"].values, name
            )["by_group"]
        in_sample = by_fit["all runs fitted"]
        groups = sorted(
            group for group in in_sample if any(losses.get(group) for losses in by_fit.values())
        )
        for number, (label, losses) in enumerate(by_fit.items()):
            places = np.arange(len(groups)) + 0.4 * number
            ax.barh(
                places,
                [100 * losses.get(g, 0.0) for g in groups],
                0.4,
                color=_COLORS[number],
                label=label,
            )
        ax.set_yticks(
            np.arange(len(groups)) + 0.2, [g.split("-", 1)[1] for g in groups], fontsize=5
        )
        ax.set(
            title=f"{name}: {len(groups)} of {len(in_sample)} groups lose",
            xlabel="throughput lost by the pick [%]",
        )
        ax.legend(frameon=False, fontsize=7)
    return figure


def _validated(result: CampaignResult) -> Figure:
    """Median errors of every subject, cross-validated and in-sample."""
    figure, axes = _panels(1, width=8.0, height=3.6)
    ax, place = axes[0], 0.0
    places, labels = [], []
    for subject in SUBJECTS:
        part = part_of(result, subject)
        by_fit = {by: part.validated[by].values for by in subject.by if by in part.validated} | {
            "": part.values
        }
        for number, (by, values) in enumerate(by_fit.items()):
            sizes = np.abs(list(errors(part, values, subject.chosen).values()))
            if sizes.size:
                ax.barh(place, 100 * np.median(sizes), 0.8, color=_COLORS[number])
                places.append(place)
                labels.append(f"{subject.name}: {by + ' left out' if by else 'all runs fitted'}")
                place += 1.0
        place += 0.6
    ax.set_yticks(places, labels, fontsize=6)
    ax.invert_yaxis()
    ax.set(xlabel="median error [%]")
    return figure


def _odds(_: CampaignResult) -> Figure:
    """How often the layout that was said to be faster was, by the chance that was said; from the
    record of `mofa validate odds`.
    """
    figure, (ax,) = _panels(1)
    ax.plot((50, 100), (50, 100), color="#222222", lw=0.6)
    pairs = from_json(read_text(RECORD), RECORD)["pairs"] if RECORD.exists() else {}
    for number, (stack, figures) in enumerate(sorted(pairs.items())):
        predicted, observed = (
            [100 * row[name] for row in figures["bins"]] for name in ("said", "was")
        )
        ax.plot(predicted, observed, "o-", ms=3, lw=1, color=_COLORS[number], label=stack)
    ax.set(xlabel="said to be faster with [%]", ylabel="was faster [%]")
    ax.legend(frameon=False, fontsize=7)
    return figure


PLOTS: Final[Mapping[str, Callable[[CampaignResult], Any]]] = {
    "by-stack.svg": _against(lambda row: row.case.key.stack),
    "by-gpu.svg": _against(lambda row: presets.device_class(row.case.key.device)),
    "residuals.svg": _residuals,
    "regret.svg": _regrets,
    "validated.svg": _validated,
    "odds.svg": _odds,
}
"""File names and what draws them."""
