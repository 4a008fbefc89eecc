"""Short runs of an advice: what they measured goes into the question, and which are worth making into the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mofa_model.bands import in_percent
from mofa_model.errors import BadValue
from mofa_model.strategy_text import short_strategy
from mofa_model.tables import Column, Table
from mofa_model.units import GIB

if TYPE_CHECKING:
    from mofa_model.advice import Advice, Request
    from mofa_model.answers.advise import AdviceQuestion


def asked(question: AdviceQuestion, request: Request) -> Request:
    """The question with the runs that are asked for and those that were made."""
    if not 0 <= question.probe <= 10:
        raise BadValue("--probe", question.probe, "give a number from 0 to 10")
    request = replace(request, probe=question.probe)
    if not question.runs:
        return request
    from mofa_model.calibrate.short_runs import with_short_runs

    if request.framework == "any":
        raise BadValue("--runs", question.runs, "say which trainer ran them: --framework TRAINER")
    return with_short_runs(request, question.runs)


def table(advice: Advice) -> list[Table]:
    """The runs to make; none where none were asked for."""
    columns = (
        Column("run"),
        Column("step", unit="s"),
        Column("GiB"),
        Column("fits", align="right"),
        Column("layout, and what it is worth", align="left"),
    )
    rows = tuple(
        (
            one.name,
            one.predicted.step_seconds.target,
            round(one.predicted.memory_bytes.target / GIB),
            in_percent(one.odds.fits),
            f"{short_strategy(one.strategy)}: {one.reason}",
        )
        for one in advice.probes
    )
    return [Table(title="Short runs to make", columns=columns, rows=rows)] if rows else []
