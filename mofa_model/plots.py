"""Pictures of answers in one style: an SVG or PNG file, written whole or not at all.

    plots.check("--plot", path)          before the work: the name, and whether matplotlib is there
    plots.ettr_curve(path, points, ...)  effective training time over the checkpoint interval
    plots.step_terms(path, bars)         where the time of a step goes, one bar a strategy
    plots.lines(path, lines, ...)        anything over anything

matplotlib comes with the extra `plot` and is imported when a picture is drawn. The same numbers
give the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from mofa_model import files
from mofa_model.errors import BadValue, InputError, install_of

if TYPE_CHECKING:
    from argparse import ArgumentParser, _ArgumentGroup

    from matplotlib.axes import Axes

FORMS: Final = ("svg", "png")
COLORS: Final = (
    "#2563eb",
    "#b45309",
    "#059669",
    "#be185d",
    "#7c3aed",
    "#0891b2",
    "#65a30d",
    "#6b7280",
)
"""Told apart by people who see red and green alike, on white and in print."""
STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "mofa",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.2,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.markersize": 3.5,
}
"""What every picture has. Text stays text, so that an SVG is small and can be searched."""
_WIDE: Final = 20.0
"""Ratio of the ends beyond which an axis is logarithmic."""


def add_option(parser: ArgumentParser | _ArgumentGroup, what: str) -> None:
    """Give a verb the option `--plot FILE`, which draws what it answers."""
    parser.add_argument("--plot", metavar="FILE", help=f"draw {what} to FILE.svg or FILE.png")


def check(field: str, path: str) -> None:
    """Refuse file names that are not .svg or .png, and any picture where matplotlib is missing."""
    if path.rpartition(".")[2].lower() not in FORMS:
        raise BadValue(field, path, "give a file name that ends in .svg or .png")
    if find_spec("matplotlib") is None:
        raise InputError(f"{field}: matplotlib is not installed; {install_of('plot')}")


@contextmanager
def picture(path: str, *, width: float = 7.0, height: float = 4.2) -> Iterator[Axes]:
    """Axes to draw on; the file is written when the block ends well."""
    check("--plot", path)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    form = path.rpartition(".")[2].lower()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure.subplots()
        drawn = io.BytesIO()
        figure.savefig(
            drawn, format=form, dpi=150, metadata={"Date": None} if form == "svg" else None
        )
    files.write_bytes(path, drawn.getvalue())


def ettr_curve(
    path: str, points: Sequence[Mapping[str, float]], steps: int, seconds: float
) -> None:
    """ETTR over the interval with its band, the paper's form, and the recommended interval."""
    intervals = [point["seconds"] for point in points]
    percent = {
        name: [100 * point[name] for point in points]
        for name in ("ettr", "lower", "upper", "paper")
    }
    with picture(path) as axes:
        axes.fill_between(
            intervals, percent["lower"], percent["upper"], alpha=0.2, color=COLORS[0], lw=0
        )
        axes.plot(intervals, percent["ettr"], color=COLORS[0], label="exact, with the rate's band")
        axes.plot(
            intervals, percent["paper"], color=COLORS[1], ls="--", label="paper's closed form"
        )
        axes.axvline(seconds, color=COLORS[-1], lw=1, ls=":", label=f"{steps} steps")
        axes.set(
            xscale="log", xlabel="work between saves [s]", ylabel="effective training time [%]"
        )
        axes.set_ylim(bottom=max(0.0, min(percent["lower"]) - 2))
        axes.legend()


def step_terms(path: str, bars: Mapping[str, Mapping[str, float]], title: str = "") -> None:
    """Seconds of each term of a step, stacked: one bar a strategy; zeros are left out."""
    terms = [
        name for name in next(iter(bars.values())) if any(bar[name] > 0 for bar in bars.values())
    ]
    labels = list(bars)
    with picture(path, height=1.8 + 0.42 * len(bars)) as axes:
        left = [0.0] * len(bars)
        for number, term in enumerate(terms):
            sizes = [bar[term] for bar in bars.values()]
            color = COLORS[number % len(COLORS)]
            axes.barh(range(len(bars)), sizes, left=left, height=0.62, color=color, label=term)
            left = [a + b for a, b in zip(left, sizes, strict=True)]
        for place, total in enumerate(left):
            axes.text(total, place, f" {total:.4g} s", va="center", fontsize=8)
        axes.set_yticks(range(len(bars)), labels, fontsize=7)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.1)
        axes.set_xlabel("one step [s]")
        axes.set_title(title, fontsize=8)
        axes.figure.legend(ncols=3, loc="outside lower center")


def lines(
    path: str,
    drawn: Mapping[str, Sequence[tuple[Any, float]]],
    *,
    x: str,
    y: str,
    percent: bool = False,
) -> None:
    """One line a label; the x axis is logarithmic where its numbers are far apart."""
    scale = 100.0 if percent else 1.0
    with picture(path) as axes:
        for number, (label, points) in enumerate(drawn.items()):
            across, up = zip(*points, strict=True)
            color = COLORS[number % len(COLORS)]
            style = "-" if number < len(COLORS) else "--"
            axes.plot(
                across, [scale * value for value in up], style, marker="o", color=color, label=label
            )
        places = [place for points in drawn.values() for place, _ in points]
        numbers = [place for place in places if isinstance(place, int | float)]
        if len(numbers) == len(places) and min(numbers) > 0 and max(numbers) / min(numbers) > _WIDE:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.set_xticks(sorted(set(numbers)) if len(set(numbers)) <= 12 else axes.get_xticks())
        axes.set(xlabel=x, ylabel=f"{y} [%]" if percent else y)
        if len(drawn) > 1:
            axes.legend()
