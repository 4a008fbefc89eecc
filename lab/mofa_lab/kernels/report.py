"""The section of docs/validation.md on kernels: how well surfaces hold for shapes and devices that they did not see."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mofa_model.files import from_json, read_text
from mofa_model.tables import Column, Table, as_markdown

HEAD: Final = """\
## Kernels

Measured kernels beside their surfaces (`mofa presets kernels`): median / 90th percentile of |predicted / measured - 1| in percent, forward
calls of ai-dynamo/aiconfigurator. *Family left out*: one family of shapes in five (pairs of widths, heads, experts, sizes), told by
crc32, predicted by a fit to the others. *Relative*: the surfaces of the relative that the device's preset names, scaled by both data
sheets, as if the device had not been measured. Aims are of the left-out family where nothing else is said.
"""

AIMS: Final = {
    r"gemm (bf16|fp8-tensorwise)": (4, 12),
    r"gemm (fp8-block|nvfp4)": (5, 16),
    r"gemm fp8-rowwise": (7, 26),
    r"causal-attention bf16": (4, 14),
    r"causal-attention fp8": (4, 20),
    r"full-attention bf16": (10, 25),
    r"collectives": (4, 15),
    r"grouped-gemm .* balanced, .*": (15, 50),
}
"""Median and 90th percentile, in percent."""
OWN: Final = {("a100-80gb-sxm", "gemm bf16"): (6, 19), ("h100-80gb-sxm", "gemm fp8-block"): (6, 18)}
"""Where a device has aims of its own."""


def section(file: Path) -> str:
    """The section as markdown, from the record that `mofa validate kernels --left-out ... --record` wrote."""
    held = from_json(read_text(file), file)
    by = {
        (way, row["device"], row["op"]): row
        for way in ("family", "device")
        for row in held.get(way, ())
    }
    keys = sorted({(op, device) for _, device, op in by})
    rows = tuple(_row(device, op, by) for op, device in keys)
    columns = (
        Column("kernels"), Column("device"), Column("calls"), Column("family left out"), Column("aim"), Column("met"), Column("relative"),
    )  # fmt: skip
    return f"{HEAD}\n{as_markdown(Table(columns=columns, rows=rows))}"


def _row(
    device: str, op: str, by: Mapping[tuple[str, str, str], Mapping[str, Any]]
) -> tuple[Any, ...]:
    family, other = by.get(("family", device, op)), by.get(("device", device, op))
    aim = OWN.get((device, op)) or next(
        (aim for text, aim in AIMS.items() if re.fullmatch(text, op)), None
    )
    if device == "a100-80gb-sxm" and op.startswith("grouped"):
        aim = None
    met = None
    if aim and family:
        met = 100 * family["median_ape"] <= aim[0] and 100 * family["p90_ape"] <= aim[1]
    calls = (family or other or {})["n"]
    return (
        op,
        device,
        calls,
        _pair(family),
        f"{aim[0]} / {aim[1]}" if aim else None,
        met,
        _pair(other),
    )


def _pair(row: Mapping[str, Any] | None) -> str | None:
    return f"{100 * row['median_ape']:.1f} / {100 * row['p90_ape']:.1f}" if row else None
