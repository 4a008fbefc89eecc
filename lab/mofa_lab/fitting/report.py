"""docs/validation.md: how well the constants hold, written from the runs and never by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from mofa_lab.fitting import figures, report_evidence
from mofa_lab.fitting.campaign import CampaignResult, shipped_loss
from mofa_lab.fitting.coverage import ENOUGH, WITHIN, coverage, coverage_without
from mofa_lab.fitting.figures import ErrorRow, lines, memory_calls, rates_of, regret
from mofa_lab.fitting.report_constants import ablation, constants, unseen
from mofa_lab.fitting.report_runs import SPREAD, large, odd, published, sweeps, table, ways
from mofa_model.bands.odds import SHARE
from mofa_model.files import write_text
from mofa_model.tables import Cell, Column

Progress = Callable[[str], None]

HEAD: Final = """\
# How well the predictions hold

Written by `make validate` from the runs in `lab/data/cases`; do not edit. Every error is predicted / measured - 1 and
every figure counts all runs, those that look wrong included. *All runs fitted* is in-sample; the figures to quote are
those with something left out: the constants are then fitted without it, and a stack of which no run is left has the
defaults of an unseen stack. A *group* that is left out is everything that one publisher ran of one family of models on one
GPU, so that releases of a container never teach each other; of a sweep it is one model.
"""

KERNELS: Final = Path("lab/data/kernels.json")
"""Figures of `mofa validate kernels`, in a clone."""

REGIMES: Final = 6
"""One in so many regimes of the reliability grid is simulated: the whole takes minutes."""


def write(found: CampaignResult, folder: Path, *, progress: Progress = lambda _: None) -> list[str]:
    """The pages and plots, into a folder; the result is what was written."""
    from mofa_lab.fitting import plots

    names = [
        str(folder / "validation" / name) for name in plots.write(found, folder / "validation")
    ]
    progress("plots")
    page, evidence = folder / "validation.md", folder / "evidence.md"
    write_text(page, page_of(found, progress))
    write_text(evidence, report_evidence.page())
    return [str(page), str(evidence), *names]


def page_of(found: CampaignResult, progress: Progress = lambda _: None) -> str:
    """The page as markdown."""
    parts = [
        HEAD,
        *_standing(found),
        *_bands(found),
        *published(found),
        *large(found),
        *sweeps(found),
    ]
    parts += [
        *unseen(found, progress),
        *ablation(found, progress),
        *odd(found),
        *constants(found),
        *_reliability(progress),
        *_odds(),
        *_kernels(),
    ]
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _standing(found: CampaignResult) -> Iterator[str]:
    yield "## Summary"
    yield table(
        (Column("runs"), Column("how"), *SPREAD, Column("aim"), Column("met")),
        (_judged(line) for line in lines(found) if line.errors["n"]),
    )
    yield table(
        (
            Column("picking the fastest of a group"),
            Column("how"),
            Column("groups"),
            Column("mean loss", unit="%"),
            Column("p90", unit="%"),
            Column("aim"),
        ),
        _picks(found),
    )
    yield table(
        (
            Column("runs that did not fit"),
            Column("how"),
            Column("found", unit="%"),
            Column("false alarms", unit="%"),
            Column("aim"),
        ),
        _calls(found),
    )
    same = abs(shipped_loss(found) / found.loss - 1.0) < 1e-3
    yield (
        "The constants that are shipped are those of this fit."
        if same
        else "The constants that are shipped are *not* those of this fit: run `mofa fit … --write`."
    )
    yield "![Median errors, fitted and left out](validation/validated.svg)"


def _judged(line: ErrorRow) -> tuple[Cell, ...]:
    told = line.errors
    got = (told["median_ape"], told["mape"], told["p90_ape"])
    aims = line.subject.aims.get(line.left_out, (None, None, None))
    aim = ", ".join(
        f"{name} {100 * wanted:g} %"
        for name, wanted in zip(("median", "mean", "p90"), aims, strict=True)
        if wanted is not None
    )
    met = all(wanted is None or value <= wanted for value, wanted in zip(got, aims, strict=True))
    how = f"{line.left_out} left out" if line.left_out else "all runs fitted"
    return (line.subject.name, how, told["n"], *got, aim or None, met if aim else None)


def _picks(found: CampaignResult) -> Iterator[tuple[Cell, ...]]:
    for name, aims in (
        ("nanotron", ("mean 6 %", "mean 3 %, p90 8 %", None, "mean 1 %")),
        ("vtrain", ("mean 3.5 %", None, "mean 3 %", None)),
    ):
        for how, values in ways(found, "group"):
            told = regret(found.time, values, name)
            every = told["every_choice"]
            parts = {
                name: told,
                f"{name}, below 512 GPUs": told["below_512_gpus"],
                f"{name}, groups of two runs too": every,
                f"{name}, groups of two too, below 512 GPUs": every["below_512_gpus"],
            }
            for (words, part), aim in zip(parts.items(), aims, strict=True):
                yield (words, how, part["groups"], part["mean"], part["p90"], aim)


def _calls(found: CampaignResult) -> Iterator[tuple[Cell, ...]]:
    part = found.memory
    told = memory_calls(part, part.values, part.logs, "nanotron")
    yield ("nanotron", "all runs fitted", *rates_of(told), "97 % found at 3 % false alarms")
    if "group" in part.validated:
        told = figures.memory_calls_out_of_fold(part, "group", "nanotron")
        yield ("nanotron", "group left out", *rates_of(told), None)


def _bands(found: CampaignResult) -> Iterator[str]:
    if "group" not in found.time.validated:
        return
    yield "## Bands"
    yield (
        f"Every estimate carries a band that is made to hold {100 * SHARE:.0f} % of runs. Here each band is made without the "
        f"group that it is judged on. A set of {ENOUGH} runs and more stands where {100 * WITHIN[0]:.0f} to "
        f"{100 * WITHIN[1]:.0f} % are held; a smaller one is too small to judge by its share, and stands where chance alone "
        "would let so few be held once in a hundred times or more. The interval is of 95 %, as if all runs of a group were "
        "independent; they are not, so the number of groups says how much a line is worth."
    )
    told = list(coverage(found))
    for way in dict.fromkeys(way for _, way, _ in told):
        yield f"### By {way}"
        yield table(
            (
                Column("left-out runs"),
                Column("groups"),
                Column("n"),
                Column("held", unit="%"),
                Column("from", unit="%"),
                Column("to", unit="%"),
                Column("high / low"),
                Column("enough to judge"),
                Column("stands"),
            ),
            (
                (
                    f"{one.name}, {quantity}",
                    one.groups,
                    one.runs,
                    one.share,
                    *one.interval,
                    round(one.width, 3),
                    one.runs >= ENOUGH,
                    one.stands,
                )
                for quantity, which, one in told
                if which == way
            ),
        )
    yield "### Without a stack, a class of devices, or all large runs"
    yield "The bands of runs whose whole stack or class of devices nobody measured, or that are larger than every other."
    yield table(
        (
            Column("left out"),
            Column("runs"),
            Column("n"),
            Column("held", unit="%"),
            Column("high / low"),
        ),
        (
            (by, one.name, one.runs, one.share, round(one.width, 3))
            for by, one in coverage_without(found)
        ),
    )


def _odds() -> Iterator[str]:
    """Odds are scored by `mofa validate odds`, which leaves its figures in a file: the report asks nothing of the search."""
    from mofa_lab.validate import odds_report

    if odds_report.RECORD.exists():
        yield odds_report.section(odds_report.RECORD)


def _kernels() -> Iterator[str]:
    """Kernels are scored by `mofa validate kernels`, which leaves its figures in a file: their tables are too large for a clone."""
    from mofa_lab.kernels import report

    if KERNELS.exists():
        yield report.section(KERNELS)


def _reliability(progress: Progress) -> Iterator[str]:
    from mofa_lab.validate import ettr_grid

    yield "## Effective training time"
    yield (
        f"One in {REGIMES} regimes of the grid; `python -m mofa_lab.validate.ettr_grid` prints all. The simulator shares "
        "no formula with the model."
    )
    yield ettr_grid.markdown(
        [ettr_grid.compare(regime) for regime in ettr_grid.regimes()[::REGIMES]]
    )
    progress("effective training time")
