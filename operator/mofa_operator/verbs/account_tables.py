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
"""Jobs that people see. [1]"""
_CHANGED: Final = 0.001
"""Least change of a share of the capacity that is worth a sentence. Ours. [1]"""
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
                one.state.value,
                _WORDS.get(one.cause, one.cause),
                one.node_days,
                one.node_days / whole,
                one.machines / one.node_days if one.node_days else 0.0,
                one.estimated / one.node_days if one.node_days else 0.0,
                " ".join(one.incidents),
            )
            for one in summed(account, "cause")
        ),
        notes=tuple(_notes(account)),
    )


def _notes(account: Sequence[NodeTime]) -> list[str]:
    """The capacity, what was lost of it, and what is only estimated."""
    whole, states = capacity(account), {one.state: one for one in summed(account)}
    away = sum(node_days_lost(account).values())
    kept, idle = _days(states, NodeState.KEPT), _days(states, NodeState.IDLE)
    parts = f"{kept:.6g} trained and kept, {idle:.6g} idle, {away:.6g} lost"
    told = [f"{whole:.6g} node-days in all: {parts}."]
    guessed = sum(one.estimated for one in account)
    if guessed:
        told.append(
            f"{guessed:.4g} node-days of work done again are an estimate, because nobody publishes "
            "steps: the time since the last save, as the job is known to save, else by "
            "spec.incidents.checkpointSeconds, else half of half an hour."
        )
    return told


def _days(states: Mapping[NodeState, NodeTime], state: NodeState) -> float:
    return states[state].node_days if state in states else 0.0


def tables_of(account: Sequence[NodeTime], period: str, until: str) -> list[Table]:
    """The tables of a whole window, or of its last week."""
    if period == "week":
        return week_tables(account, until)
    return [account_table(account), jobs_table(account)]


def jobs_table(account: Sequence[NodeTime]) -> Table:
    """What each job kept and lost, the largest loss first."""
    rows = []
    for job in sorted({one.job for one in account if one.job}):
        own = [one for one in account if one.job == job]
        by_cause = node_days_lost(own)
        held = sum(one.node_days for one in own if one.state is not NodeState.IDLE)
        worst = ", ".join(f"{cause} {time:.3g}" for cause, time in list(by_cause.items())[:3])
        states = {one.state: one for one in summed(own)}
        away = sum(by_cause.values())
        rows.append((job, _days(states, NodeState.KEPT), away, away / held if held else 0.0, worst))
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
    """The seven days before a date beside the seven before them. `until` is as 2026-11-21."""
    end = calendar.fromisoformat(until)
    first, before = ((end - timedelta(days=days)).isoformat() for days in (7, 14))
    new = [one for one in account if first <= one.date < until]
    old = [one for one in account if before <= one.date < first]
    week = account_table(new, f"the week from {first}")
    return [week, _changes(old, new), jobs_table(new)]


def _changes(old: Sequence[NodeTime], new: Sequence[NodeTime]) -> Table:
    """What a cause costs now and did before, in shares of the capacity."""
    shares = [
        {cause: time / (capacity(one) or 1.0) for cause, time in node_days_lost(one).items()}
        for one in (old, new)
    ]
    causes = sorted(
        shares[0].keys() | shares[1].keys(),
        key=lambda cause: (-abs(_change(shares, cause)), cause),
    )
    notes = []
    if not old:
        notes.append("Nothing is known of the week before.")
    for cause in causes[:3] if old else ():
        by = _change(shares, cause)
        if abs(by) >= _CHANGED:
            word = "more" if by > 0 else "less"
            notes.append(f"{abs(by):.1%} of the capacity {word} went to {cause} than before.")
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
