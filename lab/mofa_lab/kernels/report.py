"""The section of docs/validation.md on kernels: how well surfaces hold for shapes and devices that
they did not see.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from mofa_model.files import from_json, read_text
from mofa_model.tables import Column, Table, as_markdown

HEAD: Final = """\
## Kernels

Measured kernels beside their surfaces (`mofa presets kernels`): median / 90th percentile of |predicted / measured - 1| in percent, forward
calls of ai-dynamo/aiconfigurator. *Family left out*: one family of shapes in five (pairs of widths, heads, experts, sizes), told by
crc32, predicted by a fit to the others. *Relative*: the surfaces of the relative that the device's preset names, scaled by both data
sheets, as if the device had not been measured. A line is the median over its devices; aims are of the left-out family on each device.
"""  # noqa: E501

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
    """The section as markdown, from the record that `mofa validate kernels --left-out ...
    --record` wrote.
    """
    held = from_json(read_text(file), file)
    by = {
        (way, row["device"], row["op"]): row
        for way in ("family", "device")
        for row in held.get(way, ())
    }
    devices: dict[str, list[str]] = {}
    for op, device in sorted({(op, device) for _, device, op in by}):
        devices.setdefault(op, []).append(device)
    rows = tuple(_row(op, names, by) for op, names in devices.items())
    columns = (
        Column("kernels"), Column("devices"), Column("calls"),
        Column("family left out", align="right"), Column("aims met"),
        Column("relative", align="right"),
    )  # fmt: skip
    return f"{HEAD}\n{as_markdown(Table(columns=columns, rows=rows))}"


def _row(
    op: str, devices: Sequence[str], by: Mapping[tuple[str, str, str], Mapping[str, Any]]
) -> tuple[Any, ...]:
    """A row on one kind of operator: errors where a model family was left out, how many devices
    meet their aim, and errors where the whole device was left out.
    """
    family = [by["family", name, op] for name in devices if ("family", name, op) in by]
    other = [by["device", name, op] for name in devices if ("device", name, op) in by]
    judged = [(row, aim) for row in family if (aim := _aim(op, row["device"]))]
    met = sum(
        100 * row["median_ape"] <= aim[0] and 100 * row["p90_ape"] <= aim[1] for row, aim in judged
    )
    return (
        op,
        len(devices),
        sum(row["n"] for row in family or other),
        _pair(family),
        f"{met} of {len(judged)}" if judged else None,
        _pair(other),
    )


def _aim(op: str, device: str) -> tuple[int, int] | None:
    if device == "a100-80gb-sxm" and op.startswith("grouped"):
        return None
    return OWN.get((device, op)) or next(
        (aim for text, aim in AIMS.items() if re.fullmatch(text, op)), None
    )


def _pair(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Median over devices of the medians and of the 90th percentiles; None where a device has too
    few rows for them.
    """
    scored = [row for row in rows if row["median_ape"] is not None]
    if not scored:
        return None
    middle, far = (median(100 * row[name] for row in scored) for name in ("median_ape", "p90_ape"))
    return f"{middle:.1f} / {far:.1f}"
