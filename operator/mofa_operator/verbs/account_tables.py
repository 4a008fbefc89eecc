"""The account of a pool as tables, for every verb that shows it. Not a verb."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date as calendar
from datetime import timedelta
from typing import Final

from mofa_model.spec.account import (
    NO_JOB,
    START,
    NodeState,
    NodeTime,
    capacity,
    node_days_lost,
    summed,
)
from mofa_model.tables import Column, Table

_JOBS: Final = 20
"""Most jobs in the table. [1]"""
_CHANGED: Final = 0.001
"""Least change of a share of the capacity that gets a sentence; our choice. [1]"""
_WORDS: Final = {"": "-", START: "first start of a job", NO_JOB: "-"}


def account_table(account: Sequence[NodeTime], pool: str = "") -> Table:
    """Where the node-time went: by state, then by cause."""
    whole = capacity(account) or 1.0
    return Table(
        title=f"Account of {pool}" if pool else "Account",
        columns=(
            Column("state", align="left"),
            Column("cause", align="left"),
            Column("node-days"),
            Column("share", unit="%"),
            Column("by machines", unit="%", wide=True),
            Column("estimated", unit="%", wide=True),
            Column("costliest incidents", align="left", wide=True),
        ),
        rows=tuple(
            (
                row.state.value,
                _WORDS.get(row.cause, row.cause),
                row.node_days,
                row.node_days / whole,
                row.machines / row.node_days if row.node_days else 0.0,
                row.estimated / row.node_days if row.node_days else 0.0,
                " ".join(row.incidents),
            )
            for row in summed(account, "cause")
        ),
        notes=tuple(_notes(account)),
    )


def _notes(account: Sequence[NodeTime]) -> list[str]:
    """The capacity, what was lost of it, and what is only estimated."""
    whole, states = capacity(account), {row.state: row for row in summed(account)}
    lost = sum(node_days_lost(account).values())
    kept, idle = _days(states, NodeState.KEPT), _days(states, NodeState.IDLE)
    parts = f"{kept:.6g} trained and kept, {idle:.6g} idle, {lost:.6g} lost"
    notes = [f"{whole:.6g} node-days in all: {parts}."]
    estimated = sum(row.estimated for row in account)
    if estimated:
        notes.append(
            f"{estimated:.4g} node-days of work done again are an estimate, because nobody "
            "publishes steps: the time since the last save, as the job is known to save, else by "
            "spec.incidents.checkpointSeconds, else half of half an hour."
        )
    return notes


def _days(states: Mapping[NodeState, NodeTime], state: NodeState) -> float:
    """Node-days in a state. [d]"""
    return states[state].node_days if state in states else 0.0


def tables_of(account: Sequence[NodeTime], period: str, until: str) -> list[Table]:
    """The tables of a whole window, or of its last week."""
    if period == "week":
        return week_tables(account, until)
    return [account_table(account), jobs_table(account)]


def jobs_table(account: Sequence[NodeTime]) -> Table:
    """What each job kept and lost, the largest loss first."""
    rows = []
    for job in sorted({row.job for row in account if row.job}):
        job_account = [row for row in account if row.job == job]
        by_cause = node_days_lost(job_account)
        held = sum(row.node_days for row in job_account if row.state is not NodeState.IDLE)
        worst = ", ".join(f"{cause} {time:.3g}" for cause, time in list(by_cause.items())[:3])
        states = {row.state: row for row in summed(job_account)}
        lost = sum(by_cause.values())
        rows.append((job, _days(states, NodeState.KEPT), lost, lost / held if held else 0.0, worst))
    rows.sort(key=lambda row: (-row[2], row[0]))
    more = len(rows) - _JOBS
    return Table(
        title="Account by job",
        columns=(
            Column("job", align="left", copied=True),
            Column("kept"),
            Column("lost"),
            Column("share lost", unit="%"),
            Column("to what", align="left"),
        ),
        rows=tuple(rows[:_JOBS]),
        notes=(f"{more} more jobs lost less.",) if more > 0 else (),
    )


def week_tables(account: Sequence[NodeTime], until: str) -> list[Table]:
    """The seven days before a date, such as 2026-11-21, beside the seven before them."""
    end = calendar.fromisoformat(until)
    first, before = ((end - timedelta(days=days)).isoformat() for days in (7, 14))
    new = [row for row in account if first <= row.date < until]
    old = [row for row in account if before <= row.date < first]
    week = account_table(new, f"the week from {first}")
    return [week, _changes(old, new), jobs_table(new)]


def _changes(old: Sequence[NodeTime], new: Sequence[NodeTime]) -> Table:
    """Share of the capacity that each cause cost in two weeks."""
    shares = [
        {cause: time / (capacity(week) or 1.0) for cause, time in node_days_lost(week).items()}
        for week in (old, new)
    ]
    causes = sorted(
        shares[0].keys() | shares[1].keys(), key=lambda cause: (-abs(_change(shares, cause)), cause)
    )
    notes = []
    if not old:
        notes.append("Nothing is known of the week before.")
    for cause in causes[:3] if old else ():
        change = _change(shares, cause)
        if abs(change) >= _CHANGED:
            word = "more" if change > 0 else "less"
            notes.append(f"{abs(change):.1%} of the capacity {word} went to {cause} than before.")
    return Table(
        title="What changed since the week before",
        columns=(
            Column("lost to", align="left"),
            Column("this week", unit="%"),
            Column("before", unit="%"),
            Column("change", unit="%"),
        ),
        rows=tuple(
            (
                _WORDS.get(cause, cause),
                shares[1].get(cause, 0.0),
                shares[0].get(cause, 0.0),
                _change(shares, cause),
            )
            for cause in causes
        ),
        notes=tuple(notes),
    )


def _change(shares: Sequence[Mapping[str, float]], cause: str) -> float:
    return shares[1].get(cause, 0.0) - shares[0].get(cause, 0.0)
