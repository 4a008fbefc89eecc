"""Pictures as SVG, each with a title and a description for screen readers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from xml.etree import ElementTree as ET

from mofa_model.page.markup import Node, el
from mofa_model.records import dataclass
from mofa_model.units import Range

PLAIN: Final = (
    "#2563eb",
    "#b45309",
    "#047857",
    "#be185d",
    "#6d28d9",
    "#0e7490",
    "#4d7c0f",
    "#57606a",
)
"""The same colours for a viewer who drops the style, as some hosts of notebooks do."""
COLORS: Final = tuple(f"var(--c{number},{plain})" for number, plain in enumerate(PLAIN))
_WIDE: Final = 720.0
_TICKS: Final = (1.0, 10.0, 60.0, 300.0, 1200.0, 3600.0, 4 * 3600.0, 86400.0, 7 * 86400.0)
"""Times with a label on an axis. [s]"""
_MARKED: Final = 24
"""Most points of a line that has a dot at each. [1]"""
_FAR: Final = 20.0
"""Ratio of the ends of an axis from which it is logarithmic. [1]"""


def parts(title: str, sizes: Mapping[str, float], show: str = "{:.3g}") -> ET.Element:
    """Parts of a whole as one bar, with a legend of their numbers; zeros are left out."""
    positive = {name: size for name, size in sizes.items() if size > 0}
    total = sum(positive.values()) or 1.0
    bars, swatches, x = [], [], 0.0
    for number, (name, size) in enumerate(positive.items()):
        color, width = COLORS[number % len(COLORS)], _WIDE * size / total
        label, style = f"{name}: {show.format(size)} ({size / total:.1%})", f"fill:{color}"
        bars.append(
            el("rect", el("title", label), x=x, y=0.0, width=width, height=34.0, style=style)
        )
        swatches.append(el("li", el("span", style=f"background:{color}"), label))
        x += width
    picture = _svg(_WIDE, 34.0, el("title", title), *bars)
    return el("figure", picture, el("ul", *swatches, class_="swatches"))


def _svg(width: float, height: float, *children: Node) -> ET.Element:
    """A picture of some size, in pixels."""
    box = f"0 0 {width:g} {height:g}"
    return el("svg", *children, viewBox=box, width=width, height=height, role="img")


def _rules(left: float, right: float, labels: Iterable[tuple[str, float]]) -> list[ET.Element]:
    """Horizontal lines across a picture, each at its height and with its label."""
    rules = []
    for label, y in labels:
        rules.append(el("path", d=f"M{left:g} {y:.1f}H{right:g}", class_="axis"))
        rules.append(el("text", label, x=left - 6, y=y + 4, text_anchor="end", class_="soft"))
    return rules


def curve(
    title: str,
    points: Sequence[tuple[float, float, float, float]],
    *,
    mark: tuple[float, str] | None = None,
    across: str,
    up: str,
) -> ET.Element:
    """A curve with its band over a logarithmic axis.

    Points are (x, lower, y, upper); `mark` is a place on the axis and its name.
    """
    left, right, top, bottom, height = 54.0, _WIDE - 12, 12.0, 226.0, 262.0
    xs = [math.log10(point[0]) for point in points]
    low, high = min(point[1] for point in points), max(point[3] for point in points)
    low, high = (low, high) if high > low else (low - 0.01, high + 0.01)
    low = max(low, high - 4 * max(high - max(point[2] for point in points), 0.25 * (high - low)))

    def column(x: float) -> float:
        return round(left + (right - left) * (x - xs[0]) / ((xs[-1] - xs[0]) or 1.0), 1)

    def place(x: float, y: float) -> str:
        share = (max(low, min(high, y)) - low) / (high - low)
        return f"{column(x):.1f},{bottom - (bottom - top) * share:.1f}"

    band = [place(x, p[3]) for x, p in zip(xs, points, strict=True)]
    band += [place(x, p[1]) for x, p in reversed(list(zip(xs, points, strict=True)))]
    line = " ".join(place(x, p[2]) for x, p in zip(xs, points, strict=True))
    children = [
        el("title", title),
        el("desc", f"{up} over {across}, from {_shown(points[0][0])} to {_shown(points[-1][0])}."),
    ]
    labels = [
        (f"{low + share * (high - low):.1%}", bottom - (bottom - top) * share)
        for share in (0.0, 0.5, 1.0)
    ]
    children += _rules(left, right, labels)
    for seconds in (tick for tick in _TICKS if points[0][0] <= tick <= points[-1][0]):
        x = column(math.log10(seconds))
        children.append(el("path", d=f"M{x:.1f} {bottom:g}v5", class_="axis"))
        children.append(
            el("text", _shown(seconds), x=x, y=bottom + 18, text_anchor="middle", class_="soft")
        )
    children.append(el("polygon", points=" ".join(band), style=f"fill:{COLORS[0]};opacity:.18"))
    children.append(
        el("polyline", points=line, style=f"fill:none;stroke:{COLORS[0]};stroke-width:2")
    )
    if mark is not None:
        x = column(math.log10(mark[0]))
        style = f"stroke:{COLORS[1]};stroke-width:1.5;stroke-dasharray:4 3"
        children.append(el("path", d=f"M{x:.1f} {top:g}V{bottom:g}", style=style))
        side, shift = ("end", -6) if x > _WIDE / 2 else ("start", 6)
        children.append(el("text", mark[1], x=x + shift, y=bottom - 8, text_anchor=side))
    caption = f"{up} over {across}. The shaded band is what the failure rate leaves open."
    return el("figure", _svg(_WIDE, height, *children), el("figcaption", caption))


def checkpoint_curve(
    points: Sequence[tuple[float, float, float, float]], seconds: float, steps: int
) -> ET.Element:
    """ETTR over the checkpoint interval, with the interval that is recommended."""
    return curve(
        "Effective training time over the checkpoint interval",
        points,
        mark=(seconds, f"{steps} steps"),
        across="work between saves",
        up="effective training time",
    )


def band(
    title: str,
    expected: Range,
    seen: float | None,
    show: str,
    words: tuple[str, str] = ("predicted", "seen"),
) -> ET.Element:
    """A band with its target, and a diamond for what stands against it; `words` name the two."""
    lower, target, upper = expected.lower, expected.target, expected.upper
    ends = [lower, upper, *([] if seen is None else [seen])]
    low, high = min(ends), max(ends)
    room = 0.1 * (high - low) or 0.1 * abs(high) or 1.0
    low, high = low - room, high + room

    def place(value: float) -> float:
        return 300.0 * (value - low) / (high - low)

    description = f"{title}: {words[0]} {show.format(target)}, "
    description += f"between {show.format(lower)} and {show.format(upper)}"
    description += "" if seen is None else f"; {words[1]} {show.format(seen)}"
    diamond = None
    if seen is not None:
        path = f"M{place(seen):.1f} 3l7 8l-7 8l-7 -8z"
        diamond = el("path", d=path, style=f"fill:{COLORS[1]}")
    width, plain, faint = max(2.0, place(upper) - place(lower)), f"fill:{COLORS[0]}", ";opacity:.35"
    return _svg(
        300.0,
        22.0,
        el("title", description),
        el("path", d="M0 11H300", class_="axis"),
        el("rect", x=place(lower), y=6.0, width=width, height=10.0, rx=3.0, style=plain + faint),
        el("rect", x=place(target) - 1.5, y=3.0, width=3.0, height=16.0, style=plain),
        diamond,
    )


def _shown(seconds: float) -> str:
    """A time with its largest unit."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


@dataclass(frozen=True, kw_only=True)
class LineDrawing:
    """Lines over one axis, each with its name."""

    lines: Mapping[str, Sequence[tuple[Any, float]]]
    """Points by the name of their line; places that are no numbers stand side by side."""
    across: str
    """What the axis is."""
    up: str
    """What is drawn."""
    percent: bool = False
    """Whether it is a share."""


def lines(title: str, drawing: LineDrawing) -> ET.Element:
    """Points joined by lines; the axis is logarithmic where its numbers are far apart."""
    places = list(dict.fromkeys(x for points in drawing.lines.values() for x, _ in points))
    heights = [y for points in drawing.lines.values() for _, y in points]
    if not heights:
        return el("p", "There is nothing to draw.")
    left, right, top, bottom, height = 70.0, _WIDE - 24, 14.0, 226.0, 272.0
    numeric = all(isinstance(x, int | float) for x in places)
    places = sorted(places) if numeric else places
    far = numeric and places[0] > 0 and places[-1] / places[0] > _FAR
    scaled = {
        x: math.log10(x) if far else float(x) if numeric else float(n) for n, x in enumerate(places)
    }
    first, last = min(scaled.values()), max(scaled.values())
    low, high = min(heights), max(heights)
    room = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    low, high = max(0.0, low - room) if low >= 0 else low - room, high + room

    def place(x: Any) -> float:
        return left + (right - left) * (
            (scaled[x] - first) / (last - first) if last > first else 0.5
        )

    def over(y: float) -> float:
        return bottom - (bottom - top) * (y - low) / (high - low)

    def written(y: float) -> str:
        return f"{y:.1%}" if drawing.percent else f"{y:,.4g}" if abs(y) < 1e4 else f"{y:,.0f}"

    def named(x: Any) -> str:
        return f"{x:,g}" if numeric else str(x)

    children = [
        el("title", title),
        el("desc", f"{drawing.up} over {drawing.across}, as in the table beside it."),
    ]
    levels = [low + share * (high - low) for share in (0.0, 0.5, 1.0)]
    children += _rules(left, right, ((written(y), over(y)) for y in levels))
    children += [
        el("text", named(x), x=place(x), y=bottom + 18, text_anchor="middle", class_="soft")
        for x in places[:: max(1, len(places) // 8)]
    ]
    swatches = []
    for number, (name, points) in enumerate(drawing.lines.items()):
        color = COLORS[number % len(COLORS)]
        joined = " ".join(f"{place(x):.1f},{over(y):.1f}" for x, y in points)
        children.append(
            el("polyline", points=joined, style=f"fill:none;stroke:{color};stroke-width:2")
        )
        for x, y in points if len(points) <= _MARKED else ():
            word = f"{drawing.across} {named(x)}{f', {name}' if name else ''}: {written(y)}"
            children.append(
                el(
                    "circle",
                    el("title", word),
                    cx=place(x),
                    cy=over(y),
                    r=4.0,
                    style=f"fill:{color}",
                )
            )
        if name:
            swatches.append(el("li", el("span", style=f"background:{color}"), name))
    legend = el("ul", *swatches, class_="swatches") if swatches else None
    caption = el("figcaption", f"{drawing.up} over {drawing.across}.")
    return el("figure", _svg(_WIDE, height, *children), legend, caption)
