"""The ten-second answer: verdict, layout, what changes against today, one grade of evidence, and the
command to run. One decision for command, page, Python and notebook.
"""

from __future__ import annotations

import re
import textwrap
from typing import Final, NamedTuple

from mofa_model import units
from mofa_model.advice import Advice, Current, Status
from mofa_model.advice.candidates import LIKELY
from mofa_model.advice.verdict import SURELY
from mofa_model.bands.odds import in_percent
from mofa_model.strategy_text import differences, short_strategy
from mofa_model.units import GIB

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
    """The answer in a few lines; `command` is what to run next."""
    place = f"{advice.model} on {advice.gpus} {advice.device}"
    if advice.strategy is None or advice.predicted is None:
        lines = [
            BriefLine("verdict", f"{_VERDICTS[advice.status]}: {place}"),
            BriefLine("why", advice.explanation),
        ]
        lines += [BriefLine("instead", one) for one in advice.nearest[:1]]
        return tuple(lines)
    kept = bool(advice.kept)
    verdict = _kept(advice) if kept else _VERDICTS[advice.status]
    p = advice.predicted
    step = f"{units.format(p.step_seconds.target, 's', 3)}, {p.tokens_per_second.target:,.0f} tokens/s, MFU {p.mfu.target:.0%}"
    if p.duration_seconds.target:
        step += f"; the tokens take {units.format(p.duration_seconds.target, 's', 3)}"
    memory = f"{p.memory_bytes.lower / GIB:.0f} to {p.memory_bytes.upper / GIB:.0f} of {float(advice.memory_limit_bytes) / GIB:.0f} GiB"
    if advice.odds is not None:
        memory += f", fits with {in_percent(advice.odds.fits)}"
    every = units.format(float(advice.checkpoint_interval_seconds or 0), "s", 2)
    with_trainer = (
        f" ({advice.trainer}, {advice.precision})" if advice.trainer else f" ({advice.precision})"
    )
    lines = [
        BriefLine("verdict", f"{verdict}: {place}"),
        BriefLine("layout", f"{short_strategy(advice.strategy)}{with_trainer}"),
    ]
    if why := "; ".join(filter(None, (advice.kept, *advice.doubts))):
        lines.append(BriefLine("why", why))
    if advice.current is not None and (changes := _against(advice, advice.current)):
        lines.append(BriefLine("planned" if advice.current.is_planned else "today", changes))
    lines += [
        BriefLine("step", step),
        BriefLine("memory", memory),
        BriefLine("save", f"every {advice.checkpoint_interval_steps} steps ({every})"),
        BriefLine("evidence", _grade(advice)),
    ]
    if note := "; ".join(one for one in advice.caveats if one not in advice.doubts):
        lines.append(BriefLine("note", note))
    if command:
        lines.append(BriefLine("next", command))
    return tuple(lines)


def _kept(advice: Advice) -> str:
    """The verdict where what is there already stays."""
    is_planned = advice.current is not None and advice.current.is_planned
    return "keep what you wrote" if is_planned else "keep today's layout"


def _against(advice: Advice, today: Current) -> str:
    """What changes against today's or the planned layout, and the odds of both."""
    if advice.strategy is None:
        return ""
    if today.strategy is None or today.predicted is None:
        return f"does not run: {today.reason}"
    changes = ", ".join(differences(today.strategy, advice.strategy))
    if not changes:
        return "it is this layout"
    if today.odds is not None and today.odds.fits < LIKELY:
        return f"fits with {in_percent(today.odds.fits)}; change {changes}"
    faster = 1.0 + float(today.gain)
    odds = advice.odds.beats if advice.odds is not None else None
    surely = f", faster with {in_percent(odds)}" if odds is not None else ""
    speed = (
        f"{faster:.2f} times as fast"
        if faster >= 1.0 + _AS_FAST
        else "as fast"
        if faster > 1.0 - _AS_FAST
        else f"{1 / faster:.2f} times as slow"
    )
    fits = (
        f"; {today.called} fits with {in_percent(today.odds.fits)}"
        if today.odds is not None and today.odds.fits < SURELY
        else ""
    )
    return f"{changes}: {speed}{surely}{fits}"


def _grade(advice: Advice) -> str:
    """One grade of evidence, with what it rests on."""
    basis = advice.basis.evidence if advice.basis else ""
    grade = (
        "weak"
        if advice.status is Status.LOW_CONFIDENCE
        else "good"
        if float(advice.confidence) >= _GOOD
        else "fair"
    )
    runs = re.split(r"[;,(]", basis.removeprefix("evidence: "))[0].strip()
    return f"{grade}: {runs or advice.explanation.partition(';')[0]}, confidence {float(advice.confidence):.0%}"


_FIRST: Final = ("verdict", "layout", "today", "planned", "why", "evidence", "read", "note")
"""Lines that are broken before others are, where not all can be: first what to run."""


def as_text(brief_lines: tuple[BriefLine, ...], width: int = 80) -> str:
    """The lines for a screen of some width, at most twelve: long ones are broken, then cut.

    >>> print(as_text((BriefLine("layout", "tp8 pp4"), BriefLine("next", "mofa x")), 40), end="")
    layout    tp8 pp4
    next      mofa x
    """
    room = max(20, width - 10)
    # A command is copied as it is: the terminal breaks it.
    parts = {
        line: [line.says] if line.word == "next" else textwrap.wrap(line.says, room) or [""]
        for line in brief_lines
    }
    spare = LONGEST - len(brief_lines)
    wanted = sorted(brief_lines, key=lambda line: (*_FIRST, line.word).index(line.word))
    for line in wanted:
        kept = parts[line][: 1 + max(0, spare)]
        spare -= len(kept) - 1
        if len(kept) < len(parts[line]):
            kept[-1] = kept[-1][: room - 1] + "…"
        parts[line] = kept
    rows = [
        ("" if number else line.word, one)
        for line in brief_lines
        for number, one in enumerate(parts[line])
    ]
    return "".join(f"{word:<9} {one}".rstrip() + "\n" for word, one in rows)
