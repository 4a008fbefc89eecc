"""One advice as a page: the layout to run, its predicted figures, and the other choices."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Final
from xml.etree import ElementTree as ET

import numpy as np

from mofa_model import units
from mofa_model.advice import Advice, Request
from mofa_model.advice.predictions import best_interval, job_of, priced
from mofa_model.advice.reasons import gained
from mofa_model.bands.odds import in_percent
from mofa_model.errors import MofaError
from mofa_model.estimate.step import STEP_NAMES
from mofa_model.estimate.terms import Footprint, terms_of
from mofa_model.launch import shell_lines
from mofa_model.page import figures
from mofa_model.page.markup import Node, el, page, table, text
from mofa_model.records import dataclass
from mofa_model.reliability.model import CurvePoint, ettr_curve
from mofa_model.search import Rejection
from mofa_model.strategy import format_strategy, parse_strategy, short_strategy
from mofa_model.units import DAY, GIB, Range

LEVEL: Final = 0.9
"""Level of the band of the failure rate. [1]"""
POINTS: Final = 41
"""Points of the ETTR curve. [1]"""
_LAYOUT: Final = re.compile(r"\btp=\d+(?:,[a-z-]+=[\w:+/.-]*\w)+")
"""A layout in the long form."""
_MOODS: Final = {"Recommended": "good", "LowConfidence": "warn"}


@dataclass(frozen=True, kw_only=True)
class AdviceView:
    """An advice with the numbers of its pictures; workers send it to other processes."""

    advice: Advice
    """The advice."""
    step_parts: Mapping[str, float] = field(default_factory=dict)
    """Terms of the step, times the factor learned from running jobs or short runs. [s]"""
    memory_parts: Mapping[str, float] = field(default_factory=dict)
    """Terms of the fullest stage's memory. [B]"""
    curve: tuple[CurvePoint, ...] = ()
    """ETTR over intervals."""
    launch: tuple[str, ...] = ()
    """Launch arguments."""

    @property
    def title(self) -> str:
        """Model and machines."""
        return f"{self.advice.model} on {self.advice.gpus} {self.advice.device}"


def view_of(request: Request, advice: Advice, launch: tuple[str, ...] = ()) -> AdviceView:
    """The view of an advice; its strategy, where there is one, is priced once more."""
    if advice.strategy is None or advice.predicted is None:
        return AdviceView(advice=advice)
    request = request.for_trainer(advice.trainer)
    problem = request.problem_in(advice.precision)
    gpus = advice.nodes * int(problem.cluster.gpus_per_node)
    problem = replace(problem, cluster=replace(problem.cluster, gpus=gpus))
    best, p = priced(problem, advice.strategy), advice.predicted
    learned = p.step_seconds.target / best.step_time if request.timed else float(request.learned)
    job = job_of(request, problem, advice.nodes, advice.strategy, best.step_time * learned)
    interval = best_interval(request, job)
    share = p.memory_bytes.target / float(best.footprint.peak)
    parts = best.step_terms.terms()
    return AdviceView(
        advice=advice,
        step_parts={STEP_NAMES[name]: learned * seconds for name, seconds in parts.items()},
        memory_parts={name: share * b for name, b in _memory(best.footprint).items()},
        curve=tuple(ettr_curve(job, interval.steps, interval.every, POINTS, LEVEL)),
        launch=launch,
    )


def advice_page(view: AdviceView) -> str:
    """A page that needs no other file."""
    advice = view.advice
    foot = f"MoFa Advisor {advice.model_version}. "
    foot += f"Bands hold with a probability of {float(advice.confidence):.0%}."
    return text(page(view.title, el("h1", view.title), *advice_sections(view), foot=foot))


def brief_list(lines: Sequence[tuple[str, str]]) -> ET.Element:
    """The ten-second answer: the subject of each line, and its sentence."""
    rows = []
    for word, sentence in lines:
        shown = sentence if word == "next" else in_short(sentence)  # people copy the command
        rows.append(el("div", el("dt", word), el("dd", shown)))
    return el("dl", *rows, class_="brief")


def folded(view: AdviceView, *, is_open: bool = False) -> ET.Element:
    """The whole answer behind its summary."""
    summary = el("summary", "The whole answer: figures, parts of a step, memory, other choices")
    mark = {"open": "open"} if is_open else {}
    return el("details", summary, *advice_sections(view), **mark)


def in_short(sentence: str) -> str:
    """A sentence with its layouts in the short form.

    >>> in_short("tp=8,pp=1,cp=1,ep=1,dp=4,vpp=1,mbs=1,sp=true on 32 GPUs: 4.4 s a step")
    'tp8 dp4 mbs1 sp distributed on 32 GPUs: 4.4 s a step'
    """

    def short(match: re.Match[str]) -> str:
        try:
            return short_strategy(parse_strategy(match[0]))
        except MofaError:  # it only looks like a layout
            return match[0]

    return _LAYOUT.sub(short, sentence)


def advice_sections(view: AdviceView, *, without_status: bool = False) -> list[ET.Element]:
    """The sections of the page between heading and footer.

    `without_status` leaves out status and explanation, for pages that show them elsewhere.
    """
    advice = view.advice
    status = advice.status.value
    mood = el("strong", status, class_=_MOODS.get(status, "bad"))
    sections = [] if without_status else [el("p", mood, f": {in_short(advice.explanation)}.")]
    if caveats := [caveat for caveat in advice.caveats if caveat not in advice.doubts]:
        sections.append(el("ul", *(el("li", caveat) for caveat in caveats)))
    if advice.strategy is not None:
        sections += [*_key(advice), *_strategy(view), *_others(advice)]
        sections += [*_parts(view), *_checkpoints(view)]
    sections += _failures(advice)
    if advice.rejected:
        rows = [(n, f"{count:,}", Rejection(n).meaning) for n, count in advice.rejected.items()]
        left_out = table(("reason", "strategies", "meaning"), rows, numbers=(1,))
        summary = el("summary", "Layouts by the reason that left them out")
        sections += [el("h2", "What was left out"), el("details", summary, left_out)]
    return sections


def _key(advice: Advice) -> list[ET.Element]:
    """The main figures of the advice."""
    if (p := advice.predicted) is None:
        return []
    memory, ends = _band(p.memory_bytes, lambda x: f"{x / GIB:.1f}")
    limit = float(advice.memory_limit_bytes) / GIB
    every = units.format(float(advice.checkpoint_interval_seconds or 0), "s", 3)
    figures_shown = [
        ("Step", _band(p.step_seconds, lambda x: units.format(x, "s"))),
        ("Tokens a second", _band(p.tokens_per_second, lambda x: f"{x:,.0f}")),
        ("MFU", _band(p.mfu, lambda x: f"{x:.1%}")),
        ("Effective training time", _band(p.ettr, lambda x: f"{x:.1%}")),
        ("Odds", _odds(advice)),
        ("Device memory", (f"{memory} GiB", f"{ends} of {limit:.1f} GiB")),
        ("Checkpoint every", (f"{advice.checkpoint_interval_steps} steps", every)),
    ]
    if p.duration_seconds.target:
        duration = _band(p.duration_seconds, lambda x: f"{x / DAY:.1f} d")
        figures_shown.append(("Time to finish", duration))
    cells = (
        el("div", el("dt", name), el("dd", first, el("small", more)))
        for name, (first, more) in figures_shown
    )
    return [el("dl", *cells, class_="key")]


def _odds(advice: Advice) -> tuple[str, str]:
    """The chance that it fits, and that it beats today's layout where there is one."""
    fits, beats = (advice.odds.fits, advice.odds.beats) if advice.odds else (0.0, None)
    rival = advice.current.called if advice.current else "today's layout"
    chance = "" if beats is None else f"beats {rival} with {in_percent(beats)}; "
    more = f"{chance}bands hold with {in_percent(advice.confidence)}"
    return f"fits: {in_percent(fits)}", more


def _strategy(view: AdviceView) -> list[ET.Element]:
    layout = format_strategy(view.advice.strategy) if view.advice.strategy else ""
    nodes = [
        el("h2", "Strategy"),
        el("p", el("code", in_short(layout))),
        el("details", el("summary", "Every axis"), el("p", el("code", layout))),
    ]
    if (today := view.advice.current) is not None:
        gain = gained(view.advice)
        reasons = [f"the advice is {gain}"] if gain else [] if today.reason else ["cannot run"]
        reasons += [today.reason] if today.reason else []
        if today.is_planned and today.odds is not None:
            reasons.append(f"it fits with {in_percent(today.odds.fits)}")
        called = f"{today.called[0].upper()}{today.called[1:]} "
        nodes.append(el("p", called, el("code", today.short), f": {'; '.join(reasons)}."))
    if view.launch:
        lines = el("pre", el("code", shell_lines(view.launch)))
        nodes.append(el("details", el("summary", "Launch arguments"), lines))
    return nodes


def _parts(view: AdviceView) -> list[ET.Element]:
    """The sections with the parts of a step and of the memory, as bars."""
    sizes = {name: size / GIB for name, size in view.memory_parts.items()}
    return [
        el("h2", "Where the time of a step goes"),
        figures.parts("Parts of a step", view.step_parts, "{:.3g} s"),
        el("h2", "What fills the device"),
        figures.parts("Parts of the fullest stage's memory", sizes, "{:.3g} GiB"),
    ]


def _checkpoints(view: AdviceView) -> list[ET.Element]:
    advice = view.advice
    points = [(float(p.seconds), p.ettr.lower, p.ettr.target, p.ettr.upper) for p in view.curve]
    picture = figures.checkpoint_curve(
        points,
        float(advice.checkpoint_interval_seconds or 0),
        int(advice.checkpoint_interval_steps or 0),
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
    details = el("details", el("summary", "The curve as a table"), numbers)
    return [el("h2", "Checkpoints"), picture, details]


def _others(advice: Advice) -> list[ET.Element]:
    rows: list[tuple[Node, ...]] = [
        (
            other.name,
            el("code", short_strategy(other.strategy)),
            units.format(other.predicted.step_seconds.target, "s"),
            f"{other.predicted.memory_bytes.target / GIB:.1f}",
            f"{other.predicted.ettr.target:.1%}",
            in_percent(other.odds.fits),
            in_percent(other.odds.beats or 0.0),
            other.reason,
        )
        for other in (*advice.alternatives, *advice.probes)
    ]
    if not rows:
        return []
    beats = "beats the first" if advice.current is None else f"beats {advice.current.row}"
    headings = ("choice", "strategy", "step", "GiB", "ETTR", "fits", beats, "why not")
    nodes = [el("h2", "Other choices"), table(headings, rows, numbers=(2, 3, 4, 5, 6))]
    if advice.nearest:
        changes = (el("li", in_short(change)) for change in advice.nearest)
        nodes += [el("h2", "What would change the answer"), el("ul", *changes)]
    return nodes


def _failures(advice: Advice) -> list[ET.Element]:
    if not advice.failures:
        return []
    rows = [
        (
            failure.name,
            f"{1000 * (failure.rate.mean * DAY):.3g}",
            units.format(float(failure.recovery.mean), "s", 3),
        )
        for failure in advice.failures
    ]
    headings = ("recovery class", "failures in 1,000 node-days", "mean recovery")
    return [el("h2", "Assumed and observed failures"), table(headings, rows, numbers=(1, 2))]


def _band(band: Range, show: Callable[[float], str]) -> tuple[str, str]:
    return show(band.target), f"{show(band.lower)} to {show(band.upper)}"


def _memory(footprint: Footprint) -> dict[str, float]:
    """Terms of device memory on the fullest kind of stage. [B]"""
    totals = np.atleast_1d(np.asarray(footprint.total))
    fullest = int(np.argmax(totals))
    return {
        term.name: float(np.broadcast_to(getattr(footprint, term.name), totals.shape)[fullest])
        for term in terms_of(Footprint)
    }
