"""One advice as a page: what to run, what it will do, where the time and the memory go, and why not something else."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from xml.etree import ElementTree as ET

from mofa_model import units
from mofa_model.bands import in_percent
from mofa_model.errors import MofaError
from mofa_model.launch import shell_lines
from mofa_model.page import figures
from mofa_model.page.markup import Node, el, page, table, text
from mofa_model.page.view import AdviceView
from mofa_model.strategy_text import parse_strategy, short_strategy
from mofa_model.units import DAY, GIB, Range

_LAYOUT: Final = re.compile(r"\btp=\d+(?:,[a-z-]+=[\w:+/.-]*\w)+")
"""A layout in the long form."""


def advice_page(view: AdviceView) -> str:
    """A page that needs no other file."""
    foot = f"MoFa Advisor {view.version}. Bands hold with a probability of {view.confidence:.0%}."
    foot += f" Nearest measured run: {view.nearest_run}." if view.nearest_run else ""
    return text(page(view.title, el("h1", view.title), *advice_sections(view), foot=foot))


def in_short(said: str) -> str:
    """A sentence with its layouts in the short form; the long one has its own place.

    >>> in_short("tp=8,pp=1,cp=1,ep=1,dp=4,vpp=1,mbs=1,sp=true on 32 GPUs: 4.4 s a step")
    'tp8 dp4 mbs1 sp distributed on 32 GPUs: 4.4 s a step'
    """

    def short(found: re.Match[str]) -> str:
        try:
            return short_strategy(parse_strategy(found[0]))
        except MofaError:  # somebody else's words
            return found[0]

    return _LAYOUT.sub(short, said)


def advice_sections(view: AdviceView, *, told: bool = False) -> list[ET.Element]:
    """What stands between the heading and the footer; `told` = status and explanation were said already."""
    first = el(
        "p",
        el("strong", view.status, class_=_mood(view.status)),
        f": {in_short(view.explanation)}.",
    )
    found = [] if told else [first]
    if view.caveats:
        found.append(el("ul", *(el("li", caveat) for caveat in view.caveats)))
    if view.strategy:
        found += [
            _key(view),
            *_strategy(view),
            *_others(view),
            *_time(view),
            *_memory(view),
            *_checkpoints(view),
        ]
    found += _failures(view)
    if view.rejected:
        rows = [(name, f"{count:,}", meaning) for name, count, meaning in view.rejected]
        found += [
            el("h2", "What was left out"),
            el(
                "details",
                el("summary", "Layouts by the reason that left them out"),
                table(("reason", "strategies", "meaning"), rows, numbers=(1,)),
            ),
        ]
    return found


def _key(view: AdviceView) -> ET.Element:
    p = view.predicted
    told = [
        ("Step", _band(p["step_seconds"], lambda x: units.format(x, "s"))),
        ("Tokens a second", _band(p["tokens_per_second"], lambda x: f"{x:,.0f}")),
        ("MFU", _band(p["mfu"], lambda x: f"{x:.1%}")),
        ("Effective training time", _band(p["ettr"], lambda x: f"{x:.1%}")),
        ("Odds", _odds(view)),
        ("Device memory", _memory_of(view)),
        ("Checkpoint every", (f"{view.checkpoint_steps} steps", units.format(view.checkpoint_seconds, "s", 3))),
    ]  # fmt: skip
    if p["duration_seconds"].target:
        told.append(("Time to finish", _band(p["duration_seconds"], lambda x: f"{x / DAY:.1f} d")))
    return el(
        "dl",
        *(
            el("div", el("dt", name), el("dd", first, el("small", more)))
            for name, (first, more) in told
        ),
        class_="key",
    )


def _odds(view: AdviceView) -> tuple[str, str]:
    """The chance that it fits, and that it beats today's layout where there is one."""
    beats = "" if view.beats is None else f"beats today's layout with {in_percent(view.beats)}; "
    return f"fits: {in_percent(view.fits)}", f"{beats}bands hold with {in_percent(view.confidence)}"


def _memory_of(view: AdviceView) -> tuple[str, str]:
    """The estimate, and its band."""
    first, ends = _band(view.predicted["memory_bytes"], lambda x: f"{x / GIB:.1f}")
    return f"{first} GiB", f"{ends} of {view.memory_limit / GIB:.1f} GiB"


def _strategy(view: AdviceView) -> list[ET.Element]:
    found = [
        el("h2", "Strategy"),
        el("p", el("code", in_short(view.strategy))),
        el("details", el("summary", "Every axis"), el("p", el("code", view.strategy))),
    ]
    if view.current is not None:
        layout, gain, reason = view.current
        told = [f"the advice is {gain}"] if gain else [] if reason else ["cannot run"]
        found.append(
            el(
                "p",
                "Today's layout ",
                el("code", layout),
                f": {'; '.join(filter(None, (*told, reason)))}.",
            )
        )
    if view.launch:
        found.append(
            el(
                "details",
                el("summary", "Launch arguments"),
                el("pre", el("code", shell_lines(view.launch))),
            )
        )
    return found


def _time(view: AdviceView) -> list[ET.Element]:
    return [
        el("h2", "Where the time of a step goes"),
        figures.parts("Parts of a step", view.step_parts, "{:.3g} s"),
    ]


def _memory(view: AdviceView) -> list[ET.Element]:
    sizes = {name: size / GIB for name, size in view.memory_parts.items()}
    return [
        el("h2", "What fills the device"),
        figures.parts("Parts of the fullest stage's memory", sizes, "{:.3g} GiB"),
    ]


def _checkpoints(view: AdviceView) -> list[ET.Element]:
    points = [(float(p.seconds), p.ettr.lower, p.ettr.target, p.ettr.upper) for p in view.curve]
    drawn = figures.curve(
        "Effective training time over the checkpoint interval",
        points,
        mark=(view.checkpoint_seconds, f"{view.checkpoint_steps} steps"),
        across="work between saves",
        up="effective training time",
    )
    rows = [
        (
            str(p.steps),
            units.format(float(p.seconds), "s"),
            *(f"{x:.2%}" for x in (p.ettr.lower, p.ettr.target, p.ettr.upper)),
        )
        for p in view.curve[::4]
    ]
    numbers = table(("steps", "work", "lower", "ETTR", "upper"), rows, numbers=range(5))
    return [
        el("h2", "Checkpoints"),
        drawn,
        el("details", el("summary", "The curve as a table"), numbers),
    ]


def _others(view: AdviceView) -> list[ET.Element]:
    rows: list[tuple[Node, ...]] = [
        (
            one.name,
            el("code", one.strategy),
            units.format(one.step, "s"),
            f"{one.memory / GIB:.1f}",
            f"{one.ettr:.1%}",
            in_percent(one.fits),
            in_percent(one.beats),
            one.reason,
        )
        for one in view.alternatives
    ]
    if not rows:
        return []
    than = "beats the first" if view.current is None else "beats today's"
    headings = ("choice", "strategy", "step", "GiB", "ETTR", "fits", than, "why not")
    found = [
        el("h2", "Other choices"),
        table(headings, rows, numbers=(2, 3, 4, 5, 6)),
    ]
    if view.nearest:
        found += [
            el("h2", "What would change the answer"),
            el("ul", *(el("li", in_short(change)) for change in view.nearest)),
        ]
    return found


def _failures(view: AdviceView) -> list[ET.Element]:
    if not view.failures:
        return []
    rows = [(name, f"{rate:.3g}", units.format(mean, "s", 3)) for name, rate, mean in view.failures]
    headings = ("recovery class", "failures in 1,000 node-days", "mean recovery")
    return [el("h2", "Assumed and observed failures"), table(headings, rows, numbers=(1, 2))]


def _band(band: Range, show: Callable[[float], str]) -> tuple[str, str]:
    return show(band.target), f"{show(band.lower)} to {show(band.upper)}"


def _mood(status: str) -> str:
    return {"Recommended": "good", "LowConfidence": "warn"}.get(status, "bad")
