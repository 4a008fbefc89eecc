"""docs/validation.md: how well the constants hold, written from the runs and never by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from mofa_lab.fitting import figures, report_evidence
from mofa_lab.fitting.campaign import CampaignResult, shipped_loss
from mofa_lab.fitting.coverage import ENOUGH, WITHIN, coverage, coverage_without
from mofa_lab.fitting.figures import ErrorRow, lines, memory_calls, rates_of
from mofa_lab.fitting.report_constants import ablation, constants, unseen
from mofa_lab.fitting.report_runs import SPREAD, large, odd, published, sweeps, table
from mofa_model.bands.odds import SHARE
from mofa_model.files import write_text
from mofa_model.tables import Cell, Column

Progress = Callable[[str], None]

HEAD: Final = """\
# How well the predictions hold

Written by `make validate` from the runs in `lab/data/cases`; do not edit. An error is predicted / measured - 1; every figure counts all
runs, those that look wrong included. What is quoted has something *left out*: the constants are fitted without it, and a stack of which no run
is left has the defaults of an unseen stack. Published runs are judged without everything that their *publisher* ran, sweeps without
their *group*: one model of the sweep. Groups say how many independent things a line is about: what one publisher ran of one family of
models on one GPU is one group, however many runs it has.
"""

KERNELS: Final = Path("lab/data/kernels.json")
"""Figures of `mofa validate kernels`, in a clone."""

FIGURE: Final = (Column("value", align="right"), Column("aim"), Column("met"))
"""What stands beside a figure that has an aim."""

REGIMES: Final = 6
"""One in so many regimes of the reliability grid is simulated: the whole takes minutes."""


def write(found: CampaignResult, folder: Path, *, progress: Progress = lambda _: None) -> list[str]:
    """The pages and plots, into a folder; the result is what was written."""
    from mofa_lab.fitting import plots

    names = [
        str(folder / "validation" / name) for name in plots.write(found, folder / "validation")
    ]
    progress("plots")
    from mofa_lab.validate import paper_runs

    pages = {
        folder / "validation.md": page_of(found, progress),
        folder / "validation" / "paper.md": paper_runs.page(),
        folder / "evidence.md": report_evidence.page(),
    }
    for page, text in pages.items():
        write_text(page, text)
    return [*map(str, pages), *names]


def page_of(found: CampaignResult, progress: Progress = lambda _: None) -> str:
    """The page as markdown: what is quoted, then its details."""
    parts = [
        HEAD,
        *_short(found),
        *_paper(),
        *_forecasts(),
        *published(found),
        *large(found),
        *_bands(found),
        *unseen(found, progress),
        *_odds(),
        *sweeps(found),
        *_kernels(),
        *_reliability(progress),
        *_ways(found),
        *ablation(found, progress),
        *odd(found),
        *constants(found),
    ]
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _short(found: CampaignResult) -> Iterator[str]:
    """What is quoted, each with its aim; an aim that is missed says no."""
    yield "## In short"
    yield table(
        (
            Column("runs"),
            Column("left out"),
            Column("groups"),
            *SPREAD,
            Column("aim"),
            Column("met"),
        ),
        (_quoted(line) for line in lines(found) if line.quoted and line.errors["n"]),
    )
    yield table((Column("figure"), *FIGURE), _figures(found))
    same = abs(shipped_loss(found) / found.loss - 1.0) < 1e-3
    yield (
        "The constants that are shipped are those of this fit."
        if same
        else "The constants that are shipped are *not* those of this fit: run `mofa fit … --write`."
    )
    yield "![Median errors, left out and fitted](validation/validated.svg)"


def _quoted(line: ErrorRow) -> tuple[Cell, ...]:
    told = line.errors
    aim = ", ".join(
        f"{name} {100 * wanted:g} %"
        for name, wanted in zip(("median", "mean", "p90"), line.subject.aim, strict=True)
        if wanted is not None
    )
    return (
        line.subject.name,
        line.left_out,
        line.groups,
        told["n"],
        told["median_ape"],
        told["mape"],
        told["p90_ape"],
        aim,
        line.met,
    )


def _figures(found: CampaignResult) -> Iterator[tuple[Cell, ...]]:
    """Bands, chances and picks, and the paper's runs, as far as they have aims."""
    if "stack" in found.time.validated:
        yield _pooled(found)
    from mofa_lab.validate import odds_report, paper_runs

    if odds_report.RECORD.exists():
        yield from odds_report.aims(odds_report.RECORD)
    if paper_runs.ROWS.exists():
        yield from paper_runs.aims()


def _pooled(found: CampaignResult) -> tuple[Cell, ...]:
    """How many published steps are held by bands of stacks that nobody measured."""
    told = [
        one
        for by, one in coverage_without(found)
        if by == "stack" and one.name.endswith(", published")
    ]
    share = sum(one.held for one in told) / max(1, sum(one.runs for one in told))
    return (
        f"bands of 80 % where the stack is left out, {len(told)} stacks: published steps held",
        f"{100 * share:.1f} %",
        f"{100 * WITHIN[0]:.0f} to {100 * WITHIN[1]:.0f} %",
        WITHIN[0] <= share <= WITHIN[1],
    )


def _ways(found: CampaignResult) -> Iterator[str]:
    """Every way of leaving out, and in-sample."""
    yield "## Errors by what is left out"
    yield "*Nothing* is in-sample: it says what the model can follow, not what it predicts."
    yield table(
        (Column("runs"), Column("left out"), Column("groups"), *SPREAD),
        (
            (
                line.subject.name,
                line.left_out or "nothing",
                line.groups,
                line.errors["n"],
                line.errors["median_ape"],
                line.errors["mape"],
                line.errors["p90_ape"],
            )
            for line in lines(found)
            if line.errors["n"]
        ),
    )
    yield table(
        (
            Column("runs that did not fit"),
            Column("left out"),
            Column("found", unit="%"),
            Column("false alarms", unit="%"),
        ),
        _calls(found),
    )


def _calls(found: CampaignResult) -> Iterator[tuple[Cell, ...]]:
    part = found.memory
    if "group" in part.validated:
        told = figures.memory_calls_out_of_fold(part, "group", "nanotron")
        yield ("nanotron", "group", *rates_of(told))
    told = memory_calls(part, part.values, part.logs, "nanotron")
    yield ("nanotron", "nothing", *rates_of(told))


def _paper() -> Iterator[str]:
    """The paper's runs have a page of their own."""
    yield "## The paper's own runs"
    yield (
        "The six runs that the MoFa paper measured, before and after one calibrating run of each device, and what its unnamed "
        "devices are taken for: [a page of their own](validation/paper.md), printed by `mofa validate paper`."
    )


def _forecasts() -> Iterator[str]:
    """Forecasts that were written before their results, and how they came out."""
    from mofa_lab.validate import forecast

    if forecast.FOLDER.exists():
        yield from forecast.section(forecast.FOLDER)


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
        f"One in {REGIMES} regimes of the grid; `python -m mofa_lab.validate.ettr_grid` prints each of them. The simulator shares "
        "no formula with the model."
    )
    yield ettr_grid.told([ettr_grid.compare(regime) for regime in ettr_grid.regimes()[::REGIMES]])
    progress("effective training time")
