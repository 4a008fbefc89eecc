"""An advice in its written forms: the ten-second answer in a few lines, tables, rows, document."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mofa_model import units
from mofa_model.advice import Advice, Alternative, Current, Odds, Predicted, Status
from mofa_model.advice.answer import Frontier
from mofa_model.advice.candidates import LIKELY, SURELY
from mofa_model.advice.reasons import gained
from mofa_model.bands.evidence import Basis
from mofa_model.bands.odds import in_percent
from mofa_model.reliability.interval import SURE, length_of_run, timeouts
from mofa_model.search import Rejection
from mofa_model.strategy import Strategy, differences, format_strategy, short_strategy
from mofa_model.tables import Cell, Column, Table, bars, in_seconds, table_of
from mofa_model.units import DAY, GIB, Range

if TYPE_CHECKING:
    from mofa_model.launch import Launch

_DISTANCE: Final = (
    "The error is predicted over measured step time - 1, by a fit without the run's group;"
    " `there` is what differs."
)
SHOWN: Final = 3
"""Alternatives on one screen; one less beside runs to make."""


def tables(advice: Advice, launch: Launch | None = None, *, wide: bool = False) -> list[Table]:
    """What a person reads on one screen; `wide` adds all choices, measured runs and counts."""
    tables = [_first(advice)]
    if advice.strategy is not None and (advice.alternatives or advice.current is not None):
        others = advice.alternatives if wide else advice.alternatives[: SHOWN - bool(advice.probes)]
        tables += [_choices(advice, others), _why_not_table(advice, others)]
    elif advice.current is not None:
        tables.append(_why_not_table(advice, ()))
    tables += asked_tables(advice)
    if advice.nearest:
        rows = tuple((change,) for change in advice.nearest)
        title = "What would change the answer"
        tables.append(Table(title=title, columns=(Column("change"),), rows=rows))
    if wide and advice.basis is not None:
        tables.append(nearest_runs(advice.basis))
    if wide or advice.strategy is None:
        tables.append(_counts(advice))
    return tables if launch is None else [*tables, _launched(launch)]


def _launched(launch: Launch) -> Table:
    rows = tuple((line,) for line in launch.text().rstrip().splitlines())
    columns = (Column("arguments", copied=True),)
    return Table(title=f"Launch with {launch.trainer}", columns=columns, rows=rows)


def asked_tables(advice: Advice, launch: Launch | None = None) -> list[Table]:
    """The tables that a question asked for beside the advice: runs to make, sizes, the launch."""
    tables = [_probes(advice)] if advice.probes else []
    tables += [_frontier(advice)] if advice.frontier else []
    return tables if launch is None else [*tables, _launched(launch)]


def records(advice: Advice) -> Table:
    """Every priced layout of the answer as a row for programs, in SI."""
    kinds: dict[str, Sequence[Any]] = {
        "advice": [advice] if advice.strategy is not None else [],
        "alternative": advice.alternatives,
        "probe": advice.probes,
        **({} if advice.current is None else {advice.current.word: [advice.current]}),
        "frontier": advice.frontier,
    }
    facts = ("nodes", "precision", "checkpoint_interval_steps", "checkpoint_interval_seconds")
    ends = ("lower", "target", "upper")
    names = [f"{figure.name}_{end}" for figure in fields(Predicted) for end in ends]
    rows = [
        (
            kind,
            *((None, None) if layout.strategy is None else _layout(layout.strategy)),
            *(getattr(layout, name, None) for name in facts),
            getattr(layout, "reason", None) or None,
            *(_figure(layout.predicted, *name.rsplit("_", 1)) for name in names),
        )
        for kind, layouts in kinds.items()
        for layout in layouts
    ]
    figures = (name.removesuffix("_target") for name in names)
    columns = ("kind", "strategy", "gpus", *facts, "reason", *figures)
    return Table(columns=tuple(map(Column, columns)), rows=tuple(rows))


def _layout(strategy: Strategy) -> tuple[Cell, ...]:
    return format_strategy(strategy), int(strategy.gpus)


def _figure(predicted: Predicted | None, name: str, end: str) -> Cell:
    """An end of a predicted figure; no duration where no number of tokens is stated."""
    if predicted is None or (name == "duration_seconds" and not predicted.duration_seconds.target):
        return None
    return float(getattr(getattr(predicted, name), end))


def document(advice: Advice, launch: Launch | None = None, unlaunched: str = "") -> dict[str, Any]:
    """The answer for machines: SI numbers, strategies as text."""
    current, predicted = advice.current, advice.predicted
    data: dict[str, Any] = {
        "status": advice.status.value,
        "explanation": advice.explanation,
        "model": advice.model,
        "gpu": advice.device,
        "objective": advice.objective,
        "nodes": advice.nodes,
        "gpus": advice.gpus,
        "strategy": None if advice.strategy is None else format_strategy(advice.strategy),
        "precision": advice.precision,
        "checkpoint_interval_steps": advice.checkpoint_interval_steps,
        "checkpoint_interval_seconds": advice.checkpoint_interval_seconds,
        "predicted": predicted,
        "odds": advice.odds,
        "trainer": advice.trainer,
        "doubts": advice.doubts,
        "alternatives": [_alternative(alternative) for alternative in advice.alternatives],
        "frontier": [
            {
                "nodes": point.nodes,
                "gpus": point.gpus,
                "strategy": format_strategy(point.strategy),
                "checkpoint_interval_steps": point.checkpoint_interval_steps,
                "predicted": point.predicted,
            }
            for point in advice.frontier
        ],
        "counts": {
            "raw": advice.raw,
            "searched": advice.searched,
            "pruned": advice.pruned,
            "rejected": sum(advice.rejected.values()),
        },
        "rejected": advice.rejected,
        "nearest": advice.nearest,
        "confidence": advice.confidence,
        "evidence": advice.basis,
        "caveats": advice.caveats,
        "failures": [
            {
                "name": failure.name,
                "per_node_day": failure.rate.mean * DAY,
                "recovery_seconds": float(failure.recovery.mean),
            }
            for failure in advice.failures
        ],
        "memory_limit_bytes": advice.memory_limit_bytes,
        "model_version": advice.model_version,
    }
    if predicted and advice.restarts is not None and advice.hang_timeout is not None:
        data["restarts"] = {
            "restarts": advice.restarts,
            "chance": SURE,
            "run_seconds": length_of_run(float(predicted.duration_seconds.target)),
            "timeouts_seconds": timeouts(advice.hang_timeout),
        }
    if advice.recovery:
        data["recovery"] = advice.recovery
    if current is not None:
        data["current"] = {
            "strategy": current.text,
            "predicted": current.predicted,
            "odds": current.odds,
            "reason": current.reason,
            "gain": current.gain,
            "planned": current.is_planned,
            "failed": current.is_failed,
        }
    if advice.probes:
        data["probes"] = [_alternative(probe) for probe in advice.probes]
    if launch is not None:
        names = ("trainer", "release", "starter", "arguments", "environment", "files", "notes")
        data["launch"] = {name: getattr(launch, name) for name in names}
    if unlaunched:
        data["launch_refused"] = unlaunched
    return data


def _alternative(alternative: Alternative) -> dict[str, Any]:
    names = ["name", "odds", "strategy", "precision", "nodes", "predicted"]
    names += ["checkpoint_interval_steps", "checkpoint_interval_seconds"]
    data = {name: getattr(alternative, name) for name in names}
    data["strategy"] = format_strategy(alternative.strategy)
    return {**data, "terms_seconds": alternative.terms, "reason": alternative.reason}


def restarts_line(advice: Advice) -> str:
    """Restarts and time-outs in a line; empty where there is no layout."""
    if advice.restarts is None or advice.hang_timeout is None or advice.predicted is None:
        return ""
    ends = " < ".join(
        f"{name} {units.format(float(seconds), 's', 3)}"
        for name, seconds in timeouts(advice.hang_timeout).items()
    )
    days = length_of_run(float(advice.predicted.duration_seconds.target)) / DAY
    return f"{advice.restarts} in {days:.3g} d suffice with {SURE:.0%}; time-outs {ends}"


def _first(advice: Advice) -> Table:
    """The table with the advised strategy and its predictions, or with why there is none."""
    place = f"{advice.model} on {advice.gpus} {advice.device}"
    title = "; ".join((f"{place}: {advice.status.value}", *advice.beside))
    columns = (Column("advice"), Column("value", align="left"))
    if advice.strategy is None or advice.predicted is None:
        return Table(title=title, columns=columns, rows=(("why", advice.explanation),))
    p = advice.predicted
    interval = units.format(float(advice.checkpoint_interval_seconds or 0), "s", 3)
    memory = _range(p.memory_bytes, lambda x: f"{x / GIB:.1f}")
    limit = float(advice.memory_limit_bytes) / GIB
    fits = f"with a probability of {in_percent(advice.odds.fits)}" if advice.odds else "-"
    rows: list[tuple[Cell, ...]] = [
        ("strategy", short_strategy(advice.strategy)),
        ("trainer", advice.trainer or "none has it"),
        ("precision", advice.precision),
        ("checkpoint every", f"{advice.checkpoint_interval_steps} steps ({interval})"),
        ("step", _range(p.step_seconds, _time(p.step_seconds))),
        ("tokens a second", _range(p.tokens_per_second, lambda x: f"{x:,.0f}")),
        ("MFU", _range(p.mfu, lambda x: f"{x:.1%}")),
        ("device memory", f"{memory} of {limit:.1f} GiB"),
        ("it fits", fits),
        ("ETTR", _range(p.ettr, lambda x: f"{x:.1%}")),
    ]
    if line := restarts_line(advice):
        rows.append(("restarts", line))
    if advice.recovery:
        rows.append(("recovery", advice.recovery))
    if p.duration_seconds.target:
        rows.append(("time to finish", _range(p.duration_seconds, lambda x: f"{x / DAY:.1f} d")))
    rows.append(("confidence", f"{float(advice.confidence):.0%}"))
    notes = tuple(caveat for caveat in advice.caveats if caveat not in advice.doubts)
    return Table(title=title, columns=columns, rows=tuple(rows), notes=notes)


def _time(band: Range) -> Callable[[float], str]:
    """A printer of the times of a band: in seconds where larger units would make both ends look
    equal.
    """
    is_close = in_seconds(band.lower, band.upper)
    return lambda seconds: f"{seconds:.4g} s" if is_close else units.format(seconds, "s")


def _range(band: Range, text: Any) -> str:
    return f"{text(band.target)}  ({text(band.lower)} to {text(band.upper)})"


def _choices(advice: Advice, others: Sequence[Alternative]) -> Table:
    """The first choice, others and today's layout, by what they do and their odds."""
    today = advice.current
    rival = today.row if today is not None and today.odds is not None else "first"
    columns = (
        Column("choice", align="left"),
        Column("step", unit="s"),
        Column("tokens/s"),
        Column("GiB", align="right"),
        Column("ETTR", unit="%", wide=True),
        Column("days"),
        Column("fits", align="right"),
        Column(f"beats {rival}", align="right"),
    )
    priced: list[tuple[str, Predicted | None, Odds | None]] = [
        ("first choice", advice.predicted, advice.odds)
    ]
    priced += [(other.name, other.predicted, other.odds) for other in others]
    if today is not None and today.predicted is not None:
        priced.append((today.row, today.predicted, today.odds))
    rows = tuple(
        (name, *_figures(predicted), *_chances(odds))
        for name, predicted, odds in priced
        if predicted is not None
    )
    return Table(title="Choices", columns=columns, rows=rows)


def _why_not_table(advice: Advice, others: Sequence[Alternative]) -> Table:
    """The table of the alternatives and of today's layout, with the reason against each."""
    rows: list[tuple[Cell, ...]] = [
        (other.name, f"{short_strategy(other.strategy)}: {other.reason}") for other in others
    ]
    if (today := advice.current) is not None:
        gain = gained(advice)
        reasons = [today.reason, f"the advice is {gain}" if gain else ""]
        rows.append((today.row, f"{today.short}: {'; '.join(filter(None, reasons)) or 'it fits'}"))
    columns = (Column("choice"), Column("layout, and what decides", align="left"))
    return Table(title="Why not", columns=columns, rows=tuple(rows))


def _chances(odds: Odds | None) -> tuple[Cell, ...]:
    if odds is None:
        return None, None
    return in_percent(odds.fits), None if odds.beats is None else in_percent(odds.beats)


def _figures(p: Predicted) -> tuple[Cell, ...]:
    days = round(p.duration_seconds.target / DAY, 1) if p.duration_seconds.target else None
    memory = " to ".join(f"{x / GIB:.0f}" for x in (p.memory_bytes.lower, p.memory_bytes.upper))
    return (p.step_seconds.target, round(p.tokens_per_second.target), memory, p.ettr.target, days)


def _frontier(advice: Advice) -> Table:
    times = [
        best.predicted.duration_seconds.target or best.predicted.step_seconds.target
        for best in advice.frontier
    ]
    bar_of = dict(zip((best.nodes for best in advice.frontier), bars(times), strict=True))

    def hours(frontier: Frontier) -> int | None:
        seconds = frontier.predicted.duration_seconds.target
        return round(seconds / 3600 * frontier.gpus) if seconds else None

    return table_of(
        "Time against GPUs",
        advice.frontier,
        (
            (Column("nodes"), lambda best: best.nodes),
            (Column("GPUs"), lambda best: best.gpus),
            (Column("step", unit="s"), lambda best: best.predicted.step_seconds.target),
            (Column("MFU", unit="%"), lambda best: best.predicted.mfu.target),
            (Column("ETTR", unit="%"), lambda best: best.predicted.ettr.target),
            (Column("days"), lambda best: _figures(best.predicted)[-1]),
            (Column("GPU hours"), hours),
            (Column("time", align="left"), lambda best: bar_of[best.nodes]),
            (
                Column("strategy", align="left", wide=True),
                lambda best: short_strategy(best.strategy),
            ),
        ),
    )


def _probes(advice: Advice) -> Table:
    return table_of(
        "Short runs to make",
        advice.probes,
        (
            (Column("run"), lambda probe: probe.name),
            (Column("step", unit="s"), lambda probe: probe.predicted.step_seconds.target),
            (Column("GiB"), lambda probe: round(probe.predicted.memory_bytes.target / GIB)),
            (Column("fits", align="right"), lambda probe: in_percent(probe.odds.fits)),
            (
                Column("layout, and what it is worth", align="left"),
                lambda probe: f"{short_strategy(probe.strategy)}: {probe.reason}",
            ),
        ),
    )


def nearest_runs(basis: Basis) -> Table:
    """The measured runs that are most like a layout."""
    return table_of(
        "Nearest measured runs",
        basis.nearest,
        (
            (Column("run"), lambda run: run.name),
            (Column("distance"), lambda run: round(run.distance, 2)),
            (Column("error", unit="%"), lambda run: run.error),
            (Column("there", align="left"), lambda run: " ".join(run.differs)),
        ),
        (_DISTANCE,),
    )


def _counts(advice: Advice) -> Table:
    rows: list[tuple[Cell, ...]] = [
        ("searched", advice.searched, "legal strategies that fit, each one priced"),
        (
            "pruned",
            advice.pruned,
            "proved to be no better: overlap left off, or too much work whatever the rest",
        ),
        *((name, count, Rejection(name).meaning) for name, count in advice.rejected.items()),
        ("all", advice.raw, "combinations of the axis values"),
    ]
    columns = (Column("strategies"), Column("count"), Column("meaning", align="left"))
    return Table(title="What became of every combination", columns=columns, rows=tuple(rows))


LONGEST: Final = 12
"""Lines of the answer. [1]"""
_GOOD: Final = 0.75
"""Confidence from which evidence is called good. Ours. [1]"""
_AS_FAST: Final = 0.005
"""Share up to which two speeds are called the same: it is lost in two decimals. [1]"""
_VERDICTS: Final = {
    Status.RECOMMENDED: "run this",
    Status.LOW_CONFIDENCE: "try this before you rely on it",
    Status.NO_RECOMMENDATION: "nothing runs",
}


class BriefLine(NamedTuple):
    """A line of the answer."""

    word: str
    says: str


def brief(advice: Advice, command: str = "") -> tuple[BriefLine, ...]:
    """The answer in a few lines; `command` is the next one to run."""
    place = f"{advice.model} on {advice.gpus} {advice.device}"
    if advice.strategy is None or advice.predicted is None:
        lines = [
            BriefLine("verdict", f"{_VERDICTS[advice.status]}: {place}"),
            BriefLine("why", advice.explanation),
        ]
        lines += [BriefLine("instead", change) for change in advice.nearest[:1]]
        return tuple(lines)
    kept, _, chance = advice.kept.partition(": ")
    verdict = kept or _VERDICTS[advice.status]
    p = advice.predicted
    step = f"{units.format(p.step_seconds.target, 's', 3)}, "
    step += f"{p.tokens_per_second.target:,.0f} tokens/s, MFU {p.mfu.target:.0%}"
    if p.duration_seconds.target:
        step += f"; the tokens take {units.format(p.duration_seconds.target, 's', 3)}"
    memory = f"{p.memory_bytes.lower / GIB:.0f} to {p.memory_bytes.upper / GIB:.0f}"
    memory += f" of {float(advice.memory_limit_bytes) / GIB:.0f} GiB"
    if advice.odds is not None:
        memory += f", fits with {in_percent(advice.odds.fits)}"
    every = units.format(float(advice.checkpoint_interval_seconds or 0), "s", 2)
    software = f"{advice.trainer}, {advice.precision}" if advice.trainer else advice.precision
    lines = [
        BriefLine("verdict", f"{verdict}: {place}"),
        BriefLine("layout", f"{short_strategy(advice.strategy)} ({software})"),
    ]
    if why := "; ".join(filter(None, (chance, *advice.doubts))):
        lines.append(BriefLine("why", why))
    if advice.current is not None and (changes := _against(advice, advice.current)):
        lines.append(BriefLine(advice.current.word, changes))
    lines += [
        BriefLine("step", step),
        BriefLine("memory", memory),
        BriefLine("save", f"every {advice.checkpoint_interval_steps} steps ({every})"),
        BriefLine("evidence", _grade(advice)),
    ]
    if note := "; ".join(caveat for caveat in advice.caveats if caveat not in advice.doubts):
        lines.append(BriefLine("note", note))
    if command:
        lines.append(BriefLine("next", command))
    return tuple(lines)


def _against(advice: Advice, today: Current) -> str:
    """The changes that the advice makes to today's or the planned layout, and the odds of both."""
    if advice.strategy is None:
        return ""
    if today.strategy is None or today.predicted is None:
        return f"does not run: {today.reason}"
    changes = ", ".join(differences(today.strategy, advice.strategy))
    if not changes:
        return "it is this layout"
    if today.is_failed:
        return f"{today.reason}; change {changes}"
    if today.odds is not None and today.odds.fits < LIKELY:
        return f"fits with {in_percent(today.odds.fits)}; change {changes}"
    speed = 1.0 + float(today.gain)
    if speed >= 1.0 + _AS_FAST:
        text = f"{changes}: {speed:.2f} times as fast"
    elif speed > 1.0 - _AS_FAST:
        text = f"{changes}: as fast"
    else:
        text = f"{changes}: {1 / speed:.2f} times as slow"
    if advice.odds is not None and advice.odds.beats is not None:
        text += f", faster with {in_percent(advice.odds.beats)}"
    if today.odds is not None and today.odds.fits < SURELY:
        text += f"; {today.called} fits with {in_percent(today.odds.fits)}"
    return text


def _grade(advice: Advice) -> str:
    """How good the evidence is, in one word, with the runs that it rests on."""
    confidence = float(advice.confidence)
    grade = "good" if confidence >= _GOOD else "fair"
    if advice.status is Status.LOW_CONFIDENCE:
        grade = "weak"
    basis = advice.basis.evidence if advice.basis else ""
    runs = re.split(r"[;,(]", basis.removeprefix("evidence: "))[0].strip()
    return f"{grade}: {runs or advice.explanation.partition(';')[0]}, confidence {confidence:.0%}"


_FIRST: Final = (
    "verdict", "layout", "today", "planned", "failed", "why", "evidence", "read", "note",
)  # fmt: skip
"""Lines in the order in which they get a second row of a screen, as far as there is room."""


def as_text(brief_lines: tuple[BriefLine, ...], width: int = 80) -> str:
    """The lines for a screen of some width, at most twelve rows: long ones are broken, then cut.

    >>> print(as_text((BriefLine("layout", "tp8 pp4"), BriefLine("next", "mofa x")), 40), end="")
    layout    tp8 pp4
    next      mofa x
    """
    room = max(20, width - 10)
    # People copy the command, so it stays in one row and the terminal breaks it.
    rows = {
        line: [line.says] if line.word == "next" else textwrap.wrap(line.says, room) or [""]
        for line in brief_lines
    }
    spare = LONGEST - len(brief_lines)
    for line in sorted(brief_lines, key=lambda line: (*_FIRST, line.word).index(line.word)):
        kept = rows[line][: 1 + max(0, spare)]
        spare -= len(kept) - 1
        if len(kept) < len(rows[line]):
            kept[-1] = kept[-1][: room - 1] + "…"
        rows[line] = kept
    return "".join(
        f"{'' if number else line.word:<9} {row}".rstrip() + "\n"
        for line in brief_lines
        for number, row in enumerate(rows[line])
    )
