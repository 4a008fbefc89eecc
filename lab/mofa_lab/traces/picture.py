"""A timeline as SVG: one row a stream, coloured by operator class; what is too thin to be seen is
drawn together.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Final

import numpy as np

from mofa_lab.traces import intervals
from mofa_lab.traces.events import EventKind, Trace
from mofa_lab.traces.operators import CLASSES, Class, classes_of

WIDTH: Final = 1100
ROW: Final = 26
_LEFT: Final = 110
_COLOURS: Final[Mapping[Class, str]] = {
    Class.GEMM: "#3b6fb6",
    Class.GROUPED: "#1d4e89",
    Class.ATTENTION: "#7a4fa3",
    Class.ELEMENTWISE: "#8fb3d9",
    Class.OPTIMIZER: "#5f8f5f",
    Class.COPY: "#b9c4cf",
    Class.ALL_REDUCE: "#d9822b",
    Class.ALL_GATHER: "#e0a030",
    Class.REDUCE_SCATTER: "#c96a2b",
    Class.ALL_TO_ALL: "#c0392b",
    Class.POINT: "#8d6e3f",
    Class.BROADCAST: "#a08060",
}


def timeline(trace: Trace) -> str:
    """The streams of a trace from its first kernel to its last."""
    mask = trace.events.kind <= EventKind.COPY
    events, numbers = trace.events.rows(mask), classes_of(trace)[mask]
    if not len(events):
        return ""
    low, high = float(events.start.min()), float(events.end.max())
    scale = (WIDTH - _LEFT) / max(high - low, 1e-12)
    lanes: list[int] = np.unique(events.lane).tolist()
    parts = []
    for row, lane in enumerate(lanes):
        y = row * ROW + 6
        label = html.escape(f"stream {trace.lanes[lane].name}")
        parts.append(f'<text x="0" y="{y + 14}" font-size="13">{label}</text>')
        for number, kind in enumerate(CLASSES):
            in_cell = (events.lane == lane) & (numbers == number)
            end = np.maximum(events.end[in_cell], events.start[in_cell] + 0.7 / scale)
            for begin, finish in intervals.union(events.start[in_cell], end).tolist():
                x, width = _LEFT + (begin - low) * scale, (finish - begin) * scale
                parts.append(
                    f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 8}" '
                    f'fill="{_COLOURS[kind]}"/>'
                )
    bottom = len(lanes) * ROW + 8
    seen = [CLASSES[n] for n in np.unique(numbers).tolist()]
    for place, kind in enumerate(seen):
        x, y = _LEFT + (place % 6) * 165, bottom + (place // 6) * 20
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{_COLOURS[kind]}"/>')
        parts.append(
            f'<text x="{x + 17}" y="{y + 11}" font-size="12">{html.escape(kind.value)}</text>'
        )
    height = bottom + (len(seen) // 6 + 1) * 20 + 4
    title = f"{(high - low) * 1e3:.2f} ms on {len(lanes)} streams"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" '
        f'font-family="system-ui,sans-serif" role="img"><title>{title}</title>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
