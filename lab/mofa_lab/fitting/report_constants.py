"""Sections of docs/validation.md on constants: what one run is worth, what each effect is worth,
and the list itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from mofa_lab.fitting.ablate import NONE, Ablated, ablate
from mofa_lab.fitting.campaign import CampaignResult, independent
from mofa_lab.fitting.figures import SUBJECTS
from mofa_lab.fitting.report_runs import table
from mofa_lab.fitting.unseen import SMALL, one_run
from mofa_model.tables import Cell, Column

Progress = Callable[[str], None]


def unseen(result: CampaignResult, progress: Progress) -> Iterator[str]:
    """The section on errors of a system that was left out, before and after one of its runs
    is known.
    """
    if "stack" not in result.time.validated:
        return
    yield "## What one run of your own is worth"
    refined = list(one_run(result.time))
    small = sum(system.after < SMALL for system in refined)
    yield (
        "A system is what one publisher ran of a stack on one chip in one GEMM format. Its stack "
        "is left out of the fit; then one of its runs refines it, as `mofa calibrate --from-runs` "
        f"does, and its others judge. Median over all such pairs: below {100 * SMALL:.0f} % for "
        f"{small} of {len(refined)} systems."
    )
    rows: list[tuple[Cell, ...]] = [
        (r.system, r.runs, r.tried, r.before, r.after, r.p90) for r in refined
    ]
    if refined:
        medians = [
            float(np.median([getattr(r, name) for r in refined]))
            for name in ("before", "after", "p90")
        ]
        rows.append(("median of the systems", None, None, *medians))
    yield table(
        (
            Column("system"),
            Column("runs"),
            Column("refining runs tried"),
            Column("unseen, median", unit="%"),
            Column("after one run, median", unit="%"),
            Column("p90", unit="%"),
        ),
        rows,
    )
    progress("one run")


def ablation(result: CampaignResult, progress: Progress) -> Iterator[str]:
    """Errors without each effect."""
    yield "## What each effect is worth"
    yield (
        "Median / mean error of step times without an effect, in-sample, all other constants "
        "fitted anew. Loss is the mean loss of the pick."
    )
    rows = list(ablate(result, progress))
    yield _ablation_table([row for row in rows if row.refitted or row.effect == NONE])


def _ablation_table(ablated: list[Ablated]) -> str:
    """A row for each effect taken away: median / mean error of each set's step times, and the loss
    of each sweep's pick.
    """
    names = [
        s.name
        for s in SUBJECTS
        if s.quantity == "time" and len(s.by) > 1 and s.name in ablated[0].errors
    ]
    sweeps = list(ablated[0].regrets)
    rows: list[tuple[Cell, ...]] = [
        (
            row.effect,
            *(
                f"{100 * median:.1f} / {100 * mean:.1f}"
                for median, mean in (row.errors[name] for name in names)
            ),
            *(row.regrets[sweep] for sweep in sweeps),
        )
        for row in ablated
    ]
    columns = (
        Column("taken away"),
        *(Column(name.removesuffix(", step time"), unit="%", align="right") for name in names),
        *(Column(f"loss, {sweep}", unit="%") for sweep in sweeps),
    )
    return table(columns, rows)


LOOSE: Final = 0.3
"""Standard deviation of a constant's logarithm over the folds beyond which it is named. [1]"""


def constants(result: CampaignResult) -> Iterator[str]:
    """How many constants there are, and those that the folds do not agree on."""
    yield "## Constants"
    fitted = [item for item in result.constants if item.fitted]
    runs = independent(result.cases)
    counts = ", ".join(f"{count} {name}" for name, count in sorted(runs.items()))
    total = sum(runs.values())
    fixed = len(result.constants) - len(fitted)
    loose = [item for item in fitted if item.scatter > LOOSE]
    yield (
        f"{len(fitted)} constants are fitted to {total} independent runs ({counts}): one for "
        f"{total / max(1, len(fitted)):.1f} of them; {fixed} further entries are facts or choices "
        "and stay at their priors. `mofa_model/presets/constants.toml` has each with its value, "
        "its prior, its runs and its scatter: the standard deviation of its logarithm over the "
        f"fits that leave something out that has a say on it. Scatter is above {LOOSE:g} for "
        f"{len(loose)} of them, so another set of runs would move them by a third and more."
    )
    if loose:
        yield table(
            (
                Column("section"),
                Column("constant"),
                Column("value"),
                Column("prior"),
                Column("scatter", unit="%"),
                Column("runs"),
            ),
            (
                (
                    item.entry.section,
                    item.entry.path,
                    f"x {item.value:g}" if item.entry.factor else f"{item.value:g}",
                    f"{item.entry.prior:g}",
                    item.scatter,
                    sum(count for _, count in item.run_counts),
                )
                for item in loose
            ),
        )
